"""Write a DataFrame to a Delta table: with Spark's Parquet writer if possible, otherwise as Arrow in Spark's tasks.

An overwrite may replace the rows that match the new ones (:func:`find_matches`) or a predicate, which is translated
from the session's time zone to UTC (:func:`predicate_in_utc`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trilake.common.text import columns_help, quote_name
from trilake.delta.commands.merge.clauses import Clause
from trilake.delta.commands.rows.row_changes import FoundRows
from trilake.delta.commands.write.overwrite import Matches, settled_overwrite
from trilake.delta.commands.write.request import ReplaceMatches, WriteRequest
from trilake.delta.commands.write.write import WritePlan, finish_write, plan_write
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.constraints import may_depend_on_zone
from trilake.delta.scan.scan import read_schema
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ExpressionError,
    FilterError,
    IdentityOverflowError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
    TrilakeError,
    stating,
)
from trilake.expr import parse_filter
from trilake.expr.terms.predicate import Opaque
from trilake.spark.delta.merge.job import MergeJob
from trilake.spark.delta.merge.run import check_expressions, name_error, visible_columns
from trilake.spark.delta.merge.source import SparkMerge, persisted
from trilake.spark.delta.row_addresses import addressed_rows
from trilake.spark.delta.settings import row_session, session_log, session_transaction, settle, with_session
from trilake.spark.delta.storing.computed import with_stages
from trilake.spark.scan.columns import as_column, plain_text
from trilake.spark.scan.planning.table_reads import own_reads
from trilake.spark.scan.resolution import resolving
from trilake.spark.scan.write import native_write_obstacle, rows_on_driver, write_natively
from trilake.spark.session.compat import arrow_frame, is_connect, without_echo
from trilake.spark.session.internals import active_session, java_frame, java_session, jvm, query_execution
from trilake.spark.session.job_errors import failing_as
from trilake.spark.session.optimize_settings import rebalanced, right_sizes, wants_rebalance
from trilake.spark.session.runner import SparkRunner, failed_job, run_over_rows, with_a_column
from trilake.spark.session.schemas import to_spark
from trilake.spark.session.settings import (
    ZONE,
    is_ansi,
    is_utc,
    quoted_plainly,
    reads_quotes_plainly,
    session_options,
    session_zone,
    shared_location,
)
from trilake.storage import open_store
from trilake.storage.ownership import discard
from trilake.table.results import WriteResult

_log = logging.getLogger("trilake.spark")


#: Commits the files of a write, like :func:`trilake.delta.commands.write.write.finish_write`.
Finish = Callable[..., WriteResult]


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
    """Write the rows as one Spark job, or in this process if the driver has them (``here``), and commit.  ``seen`` is
    the table, if it was opened already; ``decided`` are options that override the session's settings; ``source`` are
    the rows with the caller's names of columns, which conditions of the request use.  Raises ``WriteFailedError`` if a
    task fails: nothing is committed, and the error says which files remain."""
    spark = df.sparkSession
    store = session_options(spark, uri, store)
    log = session_log(spark, open_store(uri, store))
    request = with_session(spark, request, decided=decided)
    txn = session_transaction(spark) if request.txn is None else None
    if txn is not None:
        request = replace(request, txn=txn)
    reads = own_reads(df, log.store.uri)
    request, seen = _isolated(request, log, seen, reads.version)
    request, seen = _with_predicate_in_utc(spark, request, log, seen)
    plan = plan_write(log, request, session=row_session(spark), seen=seen)
    if plan.nothing:
        settle(spark, txn)
        return finish_write(log, plan, [])
    with _matches(df, source, log, plan, finish) as (df, finish):
        failed = partial(failed_job, log=log, job_id=plan.files.job_id, verb="write")
        # A trilake error is a problem with the rows; no files remain.
        with failing_as(failed, TrilakeError), without_echo(), reads.watched() as read:
            written = _write_rows(df, here, uri, store, log, plan)
            plan = replace(plan, read=read())
        result = finish(log, plan, written, run=SparkRunner(spark))
        settle(spark, txn)
        return result


def _isolated(
    request: WriteRequest, log: DeltaLog, seen: Head | None, read_version: int | None
) -> tuple[WriteRequest, Head | None]:
    """Base a replacement on the version that its rows were read from: later commits may conflict with it."""
    if read_version is None or seen is not None or not request.replaces:
        return request, seen
    seen = log.snapshot(read_version)
    settled = settled_overwrite(seen, request, log.store.uri)
    replaces_all = not settled.replaces_some and settled.partition_overwrite == "static"
    if replaces_all and log.head().version > read_version:
        request = replace(request, isolation="Serializable")  # rows that concurrent appends add must not stay
    return request, seen


def _with_predicate_in_utc(
    spark: SparkSession, request: WriteRequest, log: DeltaLog, seen: Head | None
) -> tuple[WriteRequest, Head | None]:
    """Translate the predicate of an overwrite from the session's time zone and its way to cast and to quote."""
    if request.replace_where is None or (is_utc(spark) and is_ansi(spark) and reads_quotes_plainly(spark)):
        return request, seen
    with suppress(TableNotFoundError):  # a new table
        seen = log.snapshot() if seen is None else seen
    schema = request.schema if seen is None else seen.schema
    where = plain_text(spark, request.replace_where, schema)
    with quoted_plainly(spark):
        where = predicate_in_utc(spark, where, schema)
    return replace(request, replace_where=where), seen


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


def _write_rows(
    df: DataFrame, here: pa.Table | None, uri: str, store: Mapping[str, str], log: DeltaLog, plan: WritePlan
) -> list[WrittenFiles]:
    """Write the rows in this process, if the driver has them (``here``), or as a job."""
    spark, files, rules = df.sparkSession, plan.files, plan.files.rules
    if rules is not None and rules.needs_spark:
        if here is not None:
            df, here = arrow_frame(spark, here, df.schema), None
        df = with_stages(with_a_column(df).selectExpr(*rules.spark_columns()), rules.spark_stages())
    rows = with_a_column(df)
    here = rows_on_driver(rows) if here is None else here
    if here is not None:
        return [write_files(log.store, files, here.to_batches(), tasks=1)]
    if not wants_rebalance(spark, plan.request, plan.metadata):
        return _write_job(rows, uri, store, log, files)
    with right_sizes(spark):
        return _write_job(rebalanced(rows, files.partition_columns), uri, store, log, files)


def _write_job(
    rows: DataFrame, uri: str, store: Mapping[str, str], log: DeltaLog, files: FilePlan
) -> list[WrittenFiles]:
    obstacle = native_write_obstacle(rows, log.store, files)
    if obstacle is None:
        return [write_natively(rows, log.store, files)]
    _log.info("%s is written through Arrow: %s", uri, obstacle)
    path, options = shared_location(uri), dict(store)

    def write(batches: Iterator[pa.RecordBatch], task: int) -> WrittenFiles | TrilakeError:
        try:
            return write_files(open_store(path, options), files, batches, task=task)
        except (SchemaMismatchError, InvalidArgumentError, IdentityOverflowError) as e:
            return e  # returned, not raised, since another attempt would fail again

    written = run_over_rows(rows, write, log, files.job_id, "write")
    rejected = [w for w in written if isinstance(w, TrilakeError)]
    if rejected:
        parts = [w for w in written if isinstance(w, WrittenFiles)]
        discard(log.store, [unquote(str(a["path"])) for part in parts for a in part.actions])
        raise rejected[0]
    return written


# --- the rows that an overwrite with ``replaceOn`` or ``replaceUsing`` replaces --------------------------------------


_TABLE, _ROWS = "__trilake_table", "__trilake_rows"


@stating(
    {
        "AMBIGUOUS_REFERENCE": "DELTA_INSERT_REPLACE_ON_AMBIGUOUS_COLUMNS_IN_CONDITION",
        "DELTA_MERGE_UNRESOLVED_EXPRESSION": "DELTA_INSERT_REPLACE_ON_UNRESOLVED_COLUMNS_IN_CONDITION",
    }
)
def find_matches(
    rows: DataFrame, log: DeltaLog, snapshot: Snapshot, replaced: ReplaceMatches, *, by_name: bool
) -> Matches:
    """Find the rows of a version that match one of ``rows``, as a MERGE would find them.  Without ``by_name``, compared
    columns must have the same position on both sides.  Raises ``InvalidArgumentError`` for a column that one side
    lacks, ``ExpressionError`` for a condition with unknown or ambiguous names."""
    spark, condition, alias = rows.sparkSession, replaced.condition, replaced.target_alias
    if replaced.columns:
        _check_columns(replaced.columns, rows, snapshot, by_name=by_name)
        names = map(quote_name, replaced.columns)
        condition, alias = " AND ".join(f"{_TABLE}.{n} = {_ROWS}.{n}" for n in names), _TABLE
        rows = rows.alias(_ROWS)
    request = SparkMerge(rows, condition, (Clause("matched", "delete"),), alias=alias)
    table = ArrowDeltaTable(log.store, log.engine, version=snapshot.version, known=snapshot)
    try:
        check_expressions(spark, request, snapshot.schema)
    except ExpressionError as e:
        if e.condition == "AMBIGUOUS_REFERENCE":
            e.help = "name the table with the option targetAlias and the rows with alias(), and write t.a or s.a"
        raise
    job = MergeJob(spark, table, request)
    found: dict[int, BitMap64] = {}
    with resolving(partial(name_error, visible_columns(request, snapshot.schema))):
        source = job.look_at_source(small=False)
        pruned = job.pruned(source.keys)
        numbers = pruned.numbers.tolist() if source.count else []
        if numbers:
            target = addressed_rows(spark, table, numbers)
            matches = target.aliased(alias).join(job.source, as_column(condition), "left_semi")
            found = target.collect(matches)
    return Matches(FoundRows(found, (), tuple(numbers)), pruned.read)


def _check_columns(columns: Sequence[str], rows: DataFrame, snapshot: Snapshot, *, by_name: bool) -> None:
    sides = {"table": snapshot.schema.names, "DataFrame": rows.columns}
    places = {side: {n.lower(): i for i, n in enumerate(names)} for side, names in sides.items()}
    for column in columns:
        for side, names in sides.items():
            if column.lower() not in places[side]:
                raise InvalidArgumentError(
                    f"replaceUsing: column {column!r} not found in the {side}",
                    help=columns_help(column, names),
                    condition="UNRESOLVED_INSERT_REPLACE_USING_COLUMN",
                )
        if not by_name and len({at[column.lower()] for at in places.values()}) > 1:
            raise InvalidArgumentError(
                f"insertInto matches columns by position, but column {column!r} of replaceUsing has different positions"
                " in the table and in the DataFrame",
                help="select the table's columns in its order",
                condition="INSERT_REPLACE_USING_DISALLOW_MISALIGNED_COLUMNS",
            )


# --- predicates on timestamps, from the session's time zone to UTC ---------------------------------------------------


#: A cast that depends on the session's time zone, for example from a date to an instant.
_CAST_TO_INSTANT = re.compile(r"\bAS TIMESTAMP\b")


def predicate_in_utc(spark: SparkSession, sql: str, schema: StructType) -> str:
    """A predicate that means in UTC what ``sql`` means in the session's time zone, with constants as instants.  Raises
    ``InvalidArgumentError`` if it depends on the zone in another way, as ``to_date(t) = DATE'2024-01-01'`` does."""
    if is_utc(spark):
        return sql
    columns = read_schema(schema)
    try:
        parsed = parse_filter(sql, filter_schema(columns))
    except FilterError:
        return sql  # the write raises the error
    if parsed is None or not may_depend_on_zone(sql, columns, parsed.columns):
        return sql
    in_utc = None if is_connect(spark) else _folded(spark, sql, columns)
    if in_utc is not None:
        parsed = parse_filter(in_utc, filter_schema(columns))
    opaque = parsed is None or any(
        isinstance(n, Opaque) and may_depend_on_zone(n.sql, columns, [p[0] for p in n.columns])
        for n in parsed.predicate.walk()
    )
    if in_utc is None or opaque or _CAST_TO_INSTANT.search(in_utc):
        raise InvalidArgumentError(
            f"cannot select the rows to replace by {sql} in a session with the time zone {session_zone(spark)}",
            help="compare columns with constants in a classic session, or set spark.sql.session.timeZone to UTC",
        )
    return in_utc


def _folded(spark: SparkSession, sql: str, columns: StructType) -> str | None:
    """The predicate with its constants as Spark computes them, and with instants in UTC."""
    try:
        frame = _of_unknown_rows(spark, columns).where(F.expr(sql))
        plan = query_execution(frame).optimizedPlan()
        other = spark.newSession()
        other.conf.set(ZONE, "UTC")
        with active_session(other):  # SQL shows literals in the zone of this session
            return str(plan.condition().sql())
    except Py4JError:
        return None


def _of_unknown_rows(spark: SparkSession, columns: StructType) -> DataFrame:
    """An empty DataFrame that the optimizer cannot recognise as empty."""
    rows = jvm(spark).org.apache.spark.api.java.JavaSparkContext(java_session(spark).sparkContext()).emptyRDD()
    java = java_session(spark)
    return java_frame(spark, java.createDataFrame(rows, java.parseDataType(to_spark(columns).json())))
