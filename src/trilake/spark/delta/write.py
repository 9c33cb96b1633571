"""Write a DataFrame to a Delta table: with Spark's Parquet writer if possible, otherwise as Arrow in Spark's tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame

from trilake.delta.commands.rows.row_changes import Runner
from trilake.delta.commands.write.overwrite import settled_overwrite
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import WritePlan, finish_write, plan_write
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.errors import (
    IdentityOverflowError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
    TrilakeError,
)
from trilake.spark.delta.matches import find_matches
from trilake.spark.delta.merge.source import persisted
from trilake.spark.delta.session_transaction import session_transaction, settle
from trilake.spark.delta.settings import session_log, with_session
from trilake.spark.delta.storing.computed import with_stages
from trilake.spark.delta.storing.zones import predicate_in_utc
from trilake.spark.scan.columns import plain_text
from trilake.spark.scan.planning.table_reads import own_reads
from trilake.spark.scan.write import native_write_refusal, rows_on_driver, write_natively
from trilake.spark.session.compat import arrow_frame, without_echo
from trilake.spark.session.optimize_settings import rebalanced, right_sizes, wants_rebalance
from trilake.spark.session.runner import SparkRunner, failed_job, run_over_rows, with_a_column
from trilake.spark.session.settings import is_utc, quoted_plainly, reads_quotes_plainly
from trilake.spark.session.storage import check_shared, session_options
from trilake.storage import open_store
from trilake.storage.ownership import discard
from trilake.table.results import WriteResult

_log = logging.getLogger("trilake.spark")


class Finish(Protocol):
    """Commits the files of a write, like :func:`trilake.delta.commands.write.write.finish_write`."""

    def __call__(
        self, log: DeltaLog, plan: WritePlan, written: Iterable[WrittenFiles], *, run: Runner
    ) -> WriteResult: ...


def write_dataframe(
    df: DataFrame,
    uri: str,
    store: Mapping[str, str],
    request: WriteRequest,
    *,
    finish: Finish = finish_write,
    decided: Collection[str] = (),
    seen: Head | None = None,
    here: pa.Table | None = None,
    source: DataFrame | None = None,
) -> WriteResult:
    """Write the rows as one Spark job, or in this process if the driver has them, and commit.

    Session settings apply if the request does not override them; see :func:`trilake.spark.delta.settings.with_session`.
    ``seen`` is the table, if it was opened already.  ``here`` are the rows, if this process already has them; ``df``
    then only gives their columns and session.  ``source`` are the rows as the caller named their columns, if ``df`` has
    renamed them; conditions of the request name those.

    Raises ``WriteFailedError`` if a task fails: nothing is then committed, and the error says which files remain.
    """
    store = session_options(df.sparkSession, uri, store)
    log = session_log(df.sparkSession, open_store(uri, store))
    request = with_session(df.sparkSession, request, decided=decided)
    txn = session_transaction(df.sparkSession) if request.txn is None else None
    if txn is not None:
        request = replace(request, txn=txn)
    reads = own_reads(df, log.store.uri)
    if reads.version is not None and seen is None and request.replaces:
        # The rows belong to that version: check later commits for conflicts before replacing their rows.
        seen = log.snapshot(reads.version)
        if _replaces_all(seen, request, uri) and log.head().version > reads.version:
            request = replace(request, isolation="Serializable")  # rows that concurrent appends add must not stay
    zoned = not is_utc(df.sparkSession)
    if request.replace_where is not None and (zoned or not reads_quotes_plainly(df.sparkSession)):
        with suppress(TableNotFoundError):  # a new table
            seen = log.snapshot() if seen is None else seen
        schema = request.schema if seen is None else seen.schema
        where = plain_text(df.sparkSession, request.replace_where, schema)
        with quoted_plainly(df.sparkSession):
            where = predicate_in_utc(df.sparkSession, where, schema)
        request = replace(request, replace_where=where)
    plan = plan_write(log, request, spark=True, zoned=zoned, seen=seen)
    if plan.nothing:
        settle(df.sparkSession, txn)
        return finish_write(log, plan, [])
    with _matches(df, source, log, plan, finish) as (df, finish):
        try:
            if here is not None and _spark_computes(plan.files):
                df, here = arrow_frame(df.sparkSession, here, df.schema), None
            with without_echo(), reads.watched() as read:
                rows = _computed(with_a_column(df), plan.files)
                here = rows_on_driver(rows) if here is None else here
                if here is not None:
                    written = [write_files(log.store, plan.files, here.to_batches(), tasks=1)]
                else:
                    together = wants_rebalance(df.sparkSession, request, plan.metadata)
                    if together:
                        rows = rebalanced(rows, plan.files.partition_columns)
                    with right_sizes(df.sparkSession, enabled=together):
                        written = _write(rows, uri, store, log, plan.files)
                plan = replace(plan, read=read())
        except TrilakeError:
            raise  # a problem with the rows; no files remain
        except Exception as e:  # noqa: BLE001 - any error of a failed job
            raise failed_job(e, log, plan.files.job_id, "write") from None
        result = finish(log, plan, written, run=SparkRunner(df.sparkSession))
        settle(df.sparkSession, txn)
        return result


@contextmanager
def _matches(
    df: DataFrame, source: DataFrame | None, log: DeltaLog, plan: WritePlan, finish: Finish
) -> Iterator[tuple[DataFrame, Finish]]:
    """Find the rows that the write replaces, if it replaces matches; yields the rows to write, and how to commit."""
    replaced = plan.request.replace_matches
    if replaced is None or not isinstance(plan.base, Snapshot):
        yield df, finish
        return
    with persisted(df if source is None else source) as rows:  # read here, and again when they are written
        matches = find_matches(rows, log, plan.base, replaced, by_name=source is None)
        yield rows if source is None else df, partial(finish_write, matches=matches)


def _write(rows: DataFrame, uri: str, store: Mapping[str, str], log: DeltaLog, files: FilePlan) -> list[WrittenFiles]:
    """Write in Spark's tasks: with Spark's own writer if possible, otherwise through Arrow."""
    refusal = native_write_refusal(rows, log.store, files)
    if refusal is None:
        return [write_natively(rows, log.store, files)]
    check_shared(uri)
    _log.info("%s is written through Arrow: %s", uri, refusal)
    written = run_over_rows(rows, _WriteTask(uri, dict(store), files), log, files.job_id, "write")
    refused = [w for w in written if isinstance(w, TrilakeError)]
    if refused:
        parts = [w for w in written if isinstance(w, WrittenFiles)]
        discard(log.store, [unquote(str(a["path"])) for part in parts for a in part.actions])
        raise refused[0]
    return written


def _spark_computes(files: FilePlan) -> bool:
    return files.rules is not None and bool(files.rules.needs_spark)


def _replaces_all(base: Head, overwrite: WriteRequest, uri: str) -> bool:
    settled = settled_overwrite(base, overwrite, uri)
    return not settled.replaces_some and settled.partition_overwrite == "static"


def _computed(df: DataFrame, files: FilePlan) -> DataFrame:
    """The rows with the columns that only Spark can compute."""
    if files.rules is not None and files.rules.needs_spark:
        df = with_stages(df.selectExpr(*files.rules.spark_columns()), files.rules.spark_stages())
    return df


@dataclass(frozen=True)
class _WriteTask:
    uri: str
    options: Mapping[str, str] = field(repr=False)
    files: FilePlan

    def __call__(self, batches: Iterator[pa.RecordBatch], task: int) -> WrittenFiles | TrilakeError:
        try:
            return write_files(open_store(self.uri, dict(self.options)), self.files, batches, task=task)
        except (SchemaMismatchError, InvalidArgumentError, IdentityOverflowError) as e:
            return e  # returned, not raised, since another attempt would fail again
