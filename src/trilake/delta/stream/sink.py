"""A streaming sink: each batch becomes exactly one commit.

Spark repeats a batch until it has recorded the batch as done, so a batch may come again after its commit, from a new
process.  The commit identifies its batch with a ``txn`` action: the query's id, which is stored in the checkpoint, and
the batch's number::

    plan --> files --> txn there already? done, without a commit
                   --> commit with txn --> Spark records the batch
                           |
                       another process was faster: the conflict check rejects this commit, which counts as success

Vacuum removes the files of attempts that failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import WritePlan, finish_write, on_new_table, resume_write
from trilake.delta.files.file_plan import WrittenFiles
from trilake.delta.log.log import DeltaLog
from trilake.errors import ConcurrentTransactionError, ForeignFilesError, TableExistsError
from trilake.table.results import WriteResult
from trilake.table.streams import BatchId

OPERATION = "STREAMING UPDATE"


def batch_request(request: WriteRequest, batch: BatchId) -> WriteRequest:
    """The write request of one batch."""
    mode = "Complete" if request.replaces else "Append"
    return replace(
        request,
        txn=(batch.query_id, batch.batch),
        operation=OPERATION,
        files_metric="numAddedFiles",
        parameters={"outputMode": mode, "queryId": batch.query_id, "epochId": str(batch.batch)},
    )


def committed(log: DeltaLog, batch: BatchId) -> bool:
    """Whether the table already has this batch, or a later one of the same query."""
    return log.exists() and log.head().has_transaction(batch.query_id, batch.batch)


def commit_batch(
    log: DeltaLog,
    plan: WritePlan,
    batch: BatchId,
    written: Iterable[WrittenFiles],
    *,
    run: Runner = run_here,
) -> WriteResult:
    """Commit the files of a batch, unless the table has the batch.

    ``plan`` is the plan for which the files were written.  An append of no rows makes no commit.
    """
    parts = list(written)
    if committed(log, batch):
        # Keep the files: if Spark retries with the same ones, they belong to the table.  Otherwise vacuum removes them.
        return WriteResult(log.head().version)
    plan = _of_batch(log, plan, batch_request(plan.request, batch))
    base = plan.base
    adds_nothing = not plan.request.replaces and not any(p.actions for p in parts)
    if base is not None and adds_nothing and (plan.metadata, plan.protocol) == (base.metadata, base.protocol):
        return WriteResult(base.version)
    try:
        return finish_write(log, plan, parts, run=run, again=True)
    except ForeignFilesError:
        raise
    except (ConcurrentTransactionError, TableExistsError) as e:
        if committed(log, batch):
            return WriteResult(log.head().version)
        if isinstance(e, ConcurrentTransactionError):
            raise
    return finish_write(log, on_new_table(log, plan), parts, run=run)


def _of_batch(log: DeltaLog, plan: WritePlan, request: WriteRequest) -> WritePlan:
    """The plan with the batch's transaction, on the newest version if it replaces all rows."""
    plan = resume_write(log, replace(plan, request=request))
    if plan.base is None and log.exists():
        return on_new_table(log, plan)
    if plan.base is None or not request.replaces:
        return plan
    newest = log.snapshot()
    same = newest.metadata == plan.base.metadata and newest.protocol == plan.base.protocol
    # The output mode replaces all rows, including rows added during the batch.
    return replace(plan, base=newest) if same else plan
