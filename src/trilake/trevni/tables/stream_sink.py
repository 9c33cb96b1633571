"""Write each batch of a stream to a folder exactly once, even after failures.

A job claims its batch first: ``_streams/<query>/<batch>.<n>`` has the id of the job and is written by
``put_if_absent``.  If the claim exists, the job first ends the other job::

    claim 0 --won---> publish
            --lost--> its job is committed? done
                      else it is aborted, and can never be committed: claim 1 ...

Jobs make files visible at once; see :mod:`trilake.trevni.tables.jobs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from trilake.errors import ObjectExistsError, ObjectNotFoundError
from trilake.storage.base import Store
from trilake.trevni.tables import jobs
from trilake.trevni.tables.row_groups import StagedFile
from trilake.trevni.tables.table_write import TableWritePlan, finish_table_write

FOLDER = "_streams"
#: Number of claims to keep; Spark repeats only the last batch.
_KEPT = 200


@dataclass(frozen=True)
class TrevniBatch:
    """A batch of a query; ``query_id`` is the same for all runs with one checkpoint."""

    query_id: str
    batch: int

    def key(self, attempt: int) -> str:
        """Return the key of a claim."""
        return f"{FOLDER}/{self.query_id}/{self.batch:020d}.{attempt}"


def commit_batch(store: Store, plan: TableWritePlan, batch: TrevniBatch, files: Sequence[StagedFile]) -> bool:
    """Commit the staged files of a batch unless it is committed already; returns whether this call did."""
    if not files and not plan.describe and plan.mode != "overwrite":
        return False
    attempt = 0
    while not _claim(store, batch.key(attempt), plan.write_id):
        job = store.read(batch.key(attempt)).to_pybytes().decode()
        if end_job(store, job):
            if job != plan.write_id:
                jobs.remove_staged(store, plan.write_id)
            return False
        attempt += 1
    finish_table_write(store, plan, files)
    if batch.batch >= _KEPT:
        old = TrevniBatch(batch.query_id, batch.batch - _KEPT)
        store.delete([old.key(n) for n in range(4)])
    return True


def _claim(store: Store, key: str, job: str) -> bool:
    try:
        store.put_if_absent(key, job.encode())
    except ObjectExistsError:
        return False
    return True


def end_job(store: Store, job: str) -> bool:
    """End a job and return whether it is committed; if not, it can never commit."""
    outcome = jobs.record_outcome(store, job, "aborted")
    plan = jobs.plan_of(store, job)
    if plan is not None:
        if outcome == "aborted":
            jobs.remove_staged(store, job)  # if the driver is still moving these files, it must fail
        jobs.complete(store, job, plan, outcome, keep_records=outcome == "aborted")
        return outcome == "committed"
    if outcome == "committed":
        return True
    # A complete job has no records any more, but the names of its files contain its id.
    landed = any(job in m.key for m in jobs.visible(store) if not m.key.startswith(("_", ".")))
    if landed:
        with suppress(ObjectNotFoundError):
            store.delete([jobs.end_key(job)])
    return landed
