"""``df.writeStream`` and ``spark.readStream`` for trilake's formats.

Spark silently drops ``partitionBy`` for Python sinks, and does not pass on a checkpoint in the session's configuration.
After :func:`patch_streams`, both reach trilake's sinks as options, and ``toTable`` and ``readStream.table`` find
trilake's tables in the catalog.

A stream to a Delta table is written batch by batch on the driver (:mod:`trilake.spark.patches.foreach_batch`), where
Spark can write the files and read those of a source (:mod:`trilake.spark.delta.native_batch`).  Spark Connect, which
runs such functions on the server, uses the Python sink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from trilake.common.timestamps import iso
from trilake.delta.log.log import DeltaLog
from trilake.delta.rules.row_rules import depending_on_zone
from trilake.errors import IllegalArgumentError, InvalidArgumentError, UnsupportedExpressionError
from trilake.spark.catalog.entries import absolute
from trilake.spark.catalog.named_tables import existing_table
from trilake.spark.delta.reading.load import split_version
from trilake.spark.delta.settings import FEED_BEYOND
from trilake.spark.delta.source import WRITE_OPTIONS
from trilake.spark.delta.stream import STREAM_LIMITS
from trilake.spark.patches.chains import (
    all_options,
    all_partitions,
    check_one_location,
    classes,
    frame_of,
    is_connect_class,
    record_option,
    session_of,
    source_of,
    watch_chains,
    with_spark_errors,
)
from trilake.spark.patches.foreach_batch import WriteBatch, sink_batches
from trilake.spark.patches.formats import FORMATS, registered, sources
from trilake.spark.patches.recorder import Action, Record, patch, record_of
from trilake.spark.patches.table_names import (
    format_of_new,
    is_there,
    must_be_of,
    save_as_table,
    store_options,
    trilake_table,
)
from trilake.spark.scan.columns import no_rows
from trilake.spark.session.analysis_errors import analysis_error, raise_for_spark
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.format import SaveRequest
from trilake.spark.session.job_errors import error_at_end
from trilake.spark.session.options import EXISTING, STREAM_WRITE_OPTIONS, Options, checkpoint_of
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import (
    is_utc,
    session_flag,
    session_options,
    session_store,
    session_zone,
    shared_location,
    time_ms,
)
from trilake.spark.session.sources.api import HAS_DATA_SOURCES, DataSource, check_limits
from trilake.spark.session.sources.python_source import SinkBatch, check_streams, ensure_source
from trilake.storage import open_store
from trilake.table.registry import has_log

_CHECKPOINT = "checkpointLocation"
_START, _BEYOND = "startingTimestamp", "beyondNewest"
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


def patch_streams() -> None:
    """Patch streams.  Idempotent."""
    watch_chains()
    for cls in classes("stream_writer"):
        patch(cls, "start", _start)
        patch(cls, "toTable", _to_table)
    for cls in classes("stream_reader"):
        patch(cls, "table", _table)
        patch(cls, "load", _load)


@dataclass(frozen=True)
class _Request:
    df: DataFrame
    format: str
    mode: str
    options: dict[str, str]
    partition_by: tuple[str, ...]
    query_name: str | None
    trigger: dict[str, Any] | None

    @property
    def checkpoint(self) -> str | None:
        return record_option(self.options, _CHECKPOINT) or None


def _request(
    record: Record, format: str, output_mode: Any, partition_by: Any, query_name: Any, options: dict[str, Any]
) -> _Request:
    if record.cluster_by is not None:
        raise InvalidArgumentError(
            "clusterBy is not supported for streams",
            help="create the table with trilake.create(..., cluster_by=[...]) before the stream starts",
        )
    return _Request(
        frame_of(record),
        format,
        str(output_mode or record.mode or "append").lower(),
        all_options(record, options),
        all_partitions(record, partition_by) or (),
        query_name or record.query_name,
        record.trigger,
    )


def _start(
    original: Any,
    writer: Any,
    path: Any = None,
    format: Any = None,
    outputMode: Any = None,
    partitionBy: Any = None,
    queryName: Any = None,
    **options: Any,
) -> Action | None:
    record = record_of(writer)
    source = "" if record is None else source_of(record, format, session_of(record))
    if record is None or source not in FORMATS:
        return None
    batches = not is_connect_class(type(writer))

    def act() -> Any:
        request = _request(record, source, outputMode, partitionBy, queryName, options)
        return _start_query(request, path, batches=batches)

    return with_spark_errors(act)


def _to_table(
    original: Any,
    writer: Any,
    tableName: str,
    format: Any = None,
    outputMode: Any = None,
    partitionBy: Any = None,
    queryName: Any = None,
    **options: Any,
) -> Action | None:
    record = record_of(writer)
    if record is None:
        return None
    source = str(format or record.format or "").lower()
    table = None if source and source not in FORMATS else trilake_table(session_of(record), tableName)
    streamed = source or (format_of_new(session_of(record), tableName) if table is None else registered(table.format))
    if streamed is None or streamed not in FORMATS:
        return None
    batches = not is_connect_class(type(writer))

    def act() -> Any:
        request = _request(record, streamed, outputMode, partitionBy, queryName, options)
        if table is not None:
            must_be_of(table, tableName, streamed)
        location = _create_table(request, tableName) if table is None else table.location
        others = {k: v for k, v in request.options.items() if k.lower() != "path"}
        spark = request.df.sparkSession
        if table is None or is_there(table.format, session_store(spark, location, store_options(others))):
            others[EXISTING] = "true"  # if the table is dropped, batches must not create one without a name
        return _start_query(replace(request, options=others), location, batches=batches)

    return with_spark_errors(act)


def _start_query(request: _Request, location: Any, *, batches: bool) -> Any:
    """Start a query.  With ``batches``, the driver writes batches of a Delta table, and rows do not pass through
    Python; other sinks run in another process, so their paths are made absolute."""
    location = location or record_option(request.options, "path")
    check_one_location(location, request.options)
    location = _absolute(location)
    # Spark rejects a path that is both an option and an argument of start().
    request = replace(request, options={k: v for k, v in request.options.items() if k.lower() != "path"})
    request = replace(request, options=_sink_options(request))
    if isinstance(location, str | PathLike):
        request = replace(request, options=session_options(request.df.sparkSession, location, request.options))
    if not batches:
        check_streams(request.df.sparkSession, "write a stream to it")
        _check_zone(request, location)
    if (has_log(request.format) and batches) or not HAS_DATA_SOURCES:
        if not isinstance(location, str | PathLike):
            raise IllegalArgumentError("a path is required", help='write .start("/path/to/table")')
        write = _batches_to_delta if has_log(request.format) else _batches_to_sink
        return _writer(request).foreachBatch(write(request, fspath(location))).start()
    ensure_source(request.df.sparkSession, _source(request.format))
    stream = _writer(request).format(request.format)
    return stream.start() if location is None else stream.start(fspath(location))


def _check_zone(request: _Request, location: Any) -> None:
    """Reject a stream whose sink would compute values that depend on the session's time zone.  The sink runs in a
    process with the time zone UTC.  Raises ``UnsupportedExpressionError``."""
    spark = request.df.sparkSession
    if not has_log(request.format) or is_utc(spark) or not isinstance(location, str | PathLike):
        return
    log = DeltaLog(open_store(fspath(location), store_options(request.options)), spark_engine())
    if not log.exists():
        return
    expressions = depending_on_zone(log.head().metadata, from_spark(request.df.schema), log.engine.runtime.now())
    if expressions:
        raise UnsupportedExpressionError(
            f"over Spark Connect a stream's rows are computed in UTC, but the session's zone is {session_zone(spark)}: "
            + ", ".join(expressions),
            help="write the stream in a classic session, or set spark.sql.session.timeZone to UTC",
            file=log.store.uri,
        )


def _source(name: str) -> type[DataSource]:
    return next(s for s in sources() if s.name() == name)


def _writer(request: _Request) -> Any:
    stream: Any = request.df.writeStream.outputMode(request.mode).options(**request.options)
    if request.query_name is not None:
        stream = stream.queryName(request.query_name)
    return stream if request.trigger is None else stream.trigger(**request.trigger)


def _sink_options(request: _Request) -> dict[str, str]:
    options = {k: _absolute(v) if k.lower() == _CHECKPOINT.lower() else v for k, v in request.options.items()}
    if request.partition_by:
        if any("," in c for c in request.partition_by):
            raise InvalidArgumentError(
                f"a stream cannot be partitioned by a column with a comma in its name, got {request.partition_by}"
            )
        options["partitionBy"] = ",".join(request.partition_by)
    if not request.checkpoint:
        folder = request.df.sparkSession.conf.get(_CHECKPOINTS, None)
        if folder:
            options[_CHECKPOINT] = f"{folder.rstrip('/')}/{request.query_name or spark_engine().runtime.new_id()}"
    return options


def _absolute(location: Any) -> Any:
    return absolute(fspath(location)) if isinstance(location, str | PathLike) and location else location


def _batches_to_delta(request: _Request, path: str) -> WriteBatch:
    if request.mode not in ("append", "complete"):
        raise InvalidArgumentError(
            f"output mode {request.mode} is not supported for Delta tables",
            help="use append or complete, or trilake.foreach_batch.merge to update rows",
            condition="DELTA_UNSUPPORTED_OUTPUT_MODE",
        )
    options = Options(request.options, (*WRITE_OPTIONS, *STREAM_WRITE_OPTIONS), properties=True)
    checkpoint_of(options)  # without it, Spark would use a temporary folder
    return sink_batches(path, options, request.df.schema, complete=request.mode == "complete")


def _batches_to_sink(request: _Request, path: str) -> SinkBatch:
    """Batches for a trilake sink, for a Spark without Python data sources."""
    source = _source(request.format)({**request.options, "path": path})
    return SinkBatch(partial(source.streamWriter, request.df.schema, request.mode == "complete"))


def _create_table(request: _Request, name: str) -> str:
    """Create an empty table with the stream's columns, unless another process has just done so; returns its
    location."""
    spark = request.df.sparkSession
    of_stream = {option.lower() for option in STREAM_WRITE_OPTIONS}
    options = {k: v for k, v in request.options.items() if k.lower() not in of_stream}
    empty = no_rows(spark, request.df.schema)
    create = SaveRequest(
        empty, request.format, "ignore", options, request.partition_by or None, operation="CREATE TABLE"
    )
    save_as_table(create, name)
    table = existing_table(spark, name)
    must_be_of(table, name, request.format)
    return table.location


def _table(original: Any, reader: Any, tableName: str) -> Action | None:
    record = record_of(reader)
    if record is None:
        return None
    table = trilake_table(record.constructor_args[0], tableName)
    streamed = None if table is None else registered(table.format)
    if table is None or streamed is None:
        return None

    def load(path: str, **more: str) -> Any:
        return reader.format(streamed).load(path, **more)

    return _load_stream(load, record, streamed, table.location, record.options)


def _load(
    original: Any, reader: Any, path: Any = None, format: Any = None, schema: Any = None, **options: Any
) -> Action | None:
    record = record_of(reader)
    source = "" if record is None else source_of(record, format, record.constructor_args[0])
    if record is None or source not in FORMATS:
        return None
    merged = all_options(record, options)
    option = next((name for name in merged if name.lower() == "path"), None)
    if path is not None or option is None:
        return _load_stream(
            partial(original, format=format, schema=schema, **options), record, source, _absolute(path), merged
        )
    others = {name: value for name, value in options.items() if name.lower() != "path"}

    def load(_: None, **more: str) -> Any:  # Spark rejects a path that is both an option and an argument
        reader.option("path", _absolute(merged[option]))
        return original(format=format, schema=schema, **others, **more)

    return _load_stream(load, record, source, None, merged)


def _load_stream(
    load: Callable[..., Any], record: Record, source: str, path: Any, options: Mapping[str, str]
) -> Action:
    """A stream from a trilake format, whose planning process gets the session's settings.  Unsupported features are
    rejected here, since an error of that process would arrive as one of Spark's."""
    spark = record.constructor_args[0]
    location = path or record_option(options, "path")

    def act() -> Any:
        check_one_location(location, options)
        if has_log(source):
            _check_no_travel(location, options)
        check_streams(spark, "read a stream of it")
        limits = STREAM_LIMITS if has_log(source) else {"maxFilesPerTrigger"}
        check_limits(limit for limit in limits if record_option(options, limit) is not None)
        if HAS_DATA_SOURCES:
            ensure_source(spark, _source(source))
        session_values = {}
        if isinstance(location, str | PathLike):
            shared_location(location)  # raises for a table in memory
            session_values = session_options(spark, location, store_options(options))
        session_values = {k: v for k, v in session_values.items() if k not in options}
        try:
            return load(path, **session_values, **_start_of_session(spark, source, options))
        except AnalysisException as e:
            error = error_at_end(str(e))  # below that process's traceback
            if error is None:
                raise
            raise_for_spark(error, analysis_error(error))

    return act


def _start_of_session(spark: SparkSession, source: str, options: Mapping[str, str]) -> dict[str, str]:
    beyond = {_BEYOND: "true"} if has_log(source) and session_flag(spark, FEED_BEYOND, False) else {}
    start = record_option(options, _START)
    if start is None:
        return beyond
    try:
        return {_START: iso(time_ms(spark, start)), **beyond}
    except InvalidArgumentError:
        return beyond  # the stream raises its own error


def _check_no_travel(location: Any, options: Mapping[str, str]) -> None:
    versions = [n for n in ("versionAsOf", "timestampAsOf") if record_option(options, n) is not None]
    if isinstance(location, str | PathLike) and split_version(fspath(location), store_options(options))[1] is not None:
        versions.append(f"the version in {fspath(location)}")
    if versions:
        raise analysis_error(
            InvalidArgumentError(
                f"a stream reads all later versions: {' and '.join(versions)} is not supported",
                help="begin with startingVersion or startingTimestamp, or read one version with spark.read",
                condition="DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
            )
        )
