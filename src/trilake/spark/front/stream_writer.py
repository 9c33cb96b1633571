"""``df.writeStream`` and ``spark.readStream`` for what Spark does not pass on to a Python data source.

Spark drops ``partitionBy`` silently on the way to a Python sink, and keeps to itself a checkpoint that only settings of
the session name.  After :func:`take_over_streams` both reach the sinks of our formats as options.  ``toTable`` and
``readStream.table`` find tables of the catalogue that are ours.

A stream to a Delta table is written batch by batch by :mod:`trilake.spark.front.foreach_batch`, on the driver: that can
let Spark write the files, and read those of a source (:mod:`trilake.spark.delta.native_batch`).  Spark Connect,
which runs such functions elsewhere, keeps to the Python sink.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any
from uuid import uuid4

from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter
from pyspark.sql.utils import to_str

from trilake.delta.commands.write.write import WriteRequest, write_arrow
from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.catalogue import default_location
from trilake.spark.delta.source import WRITE_OPTIONS
from trilake.spark.front.dataframe_writer import our_location, rename, translated
from trilake.spark.front.foreach_batch import sink_batches
from trilake.spark.session.options import Options
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.stream_options import STREAM_WRITE_OPTIONS, checkpoint_of
from trilake.storage import open_store

_DONE, _STATE = "_trilake_streams", "_trilake_told"
_CHECKPOINT = "checkpointLocation"
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"

_DELTA = ("delta", "trilake-delta")

#: Names of formats whose streams are taken over.
STREAMED: set[str] = set()


@dataclass
class _Told:
    """What a chain of calls on ``df.writeStream`` has said so far."""

    format: str = ""
    partition_by: tuple[str, ...] = ()
    mode: str = "append"
    options: dict[str, str] = field(default_factory=dict)
    name: str | None = None

    @property
    def checkpoint(self) -> str | None:
        """Where the query's checkpoint is."""
        return next((v for k, v in self.options.items() if k.lower() == _CHECKPOINT.lower() and v), None)


def take_over_streams(registered: Iterable[str]) -> None:
    """Teach streams of this process the formats registered under these names; again is harmless."""
    STREAMED.update(registered)
    for writer, reader in (_classic(), _connect()):
        if writer is not None and not getattr(writer, _DONE, False):
            setattr(writer, _DONE, True)
            _take_over_writer(writer)
            _take_over_reader(reader)


def _classic() -> tuple[Any, Any]:
    return DataStreamWriter, DataStreamReader


def _connect() -> tuple[Any, Any]:
    try:
        from pyspark.sql.connect.streaming import readwriter
    except ImportError:  # Spark Connect's own requirements are not installed
        return None, None
    return readwriter.DataStreamWriter, readwriter.DataStreamReader


def _told(writer: Any) -> _Told:
    found = writer.__dict__.get(_STATE)
    if found is None:
        found = writer.__dict__[_STATE] = _Told()
    assert isinstance(found, _Told)
    return found


def _take_over_writer(cls: Any) -> None:
    start, to_table, partition = cls.start, cls.toTable, cls.partitionBy
    for name, note in _NOTES.items():
        setattr(cls, name, _noting(getattr(cls, name), note))

    @functools.wraps(partition)
    def partition_ours(self: Any, *cols: Any) -> Any:
        # Kept until the format is certain: what starts without it must never have heard of it.
        _told(self).partition_by = tuple(cols[0]) if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        return self

    @functools.wraps(start)
    def start_ours(
        self: Any,
        path: Any = None,
        format: Any = None,
        outputMode: Any = None,
        partitionBy: Any = None,
        queryName: Any = None,
        **options: Any,
    ) -> Any:
        _apply(self, format, outputMode, partitionBy, queryName, options)
        told = _told(self)
        if told.format in STREAMED:
            _prepare(self)
            if told.format in _DELTA and cls is DataStreamWriter:
                place = path or told.options.get("path")
                return translated(lambda: _start_by_batches(self, place, start))
        elif told.partition_by:
            partition(self, *told.partition_by)
        return start(self) if path is None else start(self, path)

    @functools.wraps(to_table)
    def to_table_ours(
        self: Any,
        tableName: str,
        format: Any = None,
        outputMode: Any = None,
        partitionBy: Any = None,
        queryName: Any = None,
        **options: Any,
    ) -> Any:
        _apply(self, format, outputMode, partitionBy, queryName, options)
        told = _told(self)
        place = None if told.format and told.format not in STREAMED else our_location(_session(self), tableName)
        if place is None:
            if told.format not in _DELTA or told.format not in STREAMED:
                if told.partition_by:
                    partition(self, *told.partition_by)
                return to_table(self, tableName)
            place = _made(self, tableName, told.partition_by)
        if not told.format:
            self.format("delta")
        return self.start(place)

    cls.start, cls.toTable, cls.partitionBy = start_ours, to_table_ours, partition_ours


def _apply(
    writer: Any, format: Any, output_mode: Any, partition_by: Any, query_name: Any, options: dict[str, Any]
) -> None:
    writer.options(**options)
    for method, value in (("outputMode", output_mode), ("format", format), ("queryName", query_name)):
        if value is not None:
            getattr(writer, method)(value)
    if partition_by is not None:
        writer.partitionBy(partition_by)


def _prepare(writer: Any) -> None:
    """Tell the sink by options what Spark keeps to itself."""
    told = _told(writer)
    if told.partition_by:
        if any("," in c for c in told.partition_by):
            raise InvalidArgumentError("a stream cannot be partitioned by a column with a comma in its name")
        writer.option("partitionBy", ",".join(told.partition_by))
    if not told.checkpoint:
        folder = _session(writer).conf.get(_CHECKPOINTS, None)
        if folder:
            writer.option(_CHECKPOINT, f"{folder.rstrip('/')}/{told.name or uuid4()}")


def _start_by_batches(writer: Any, place: Any, start: Callable[..., Any]) -> Any:
    """Start a query whose batches are written here, on the driver: their rows need not pass through Python."""
    told = _told(writer)
    if not isinstance(place, str | PathLike):
        raise InvalidArgumentError("no path was given", help='write .start("/path/to/table")')
    if told.mode not in ("append", "complete"):
        raise InvalidArgumentError(
            f"a Delta table takes no stream in output mode {told.mode}",
            help="it is append or complete; rows are updated by trilake.foreach_batch.merge",
        )
    options = Options(told.options, (*WRITE_OPTIONS, *STREAM_WRITE_OPTIONS), properties=True)
    checkpoint_of(options)  # without one, Spark would take a folder that is gone with the query
    write = sink_batches(fspath(place), options, _schema(writer), complete=told.mode == "complete")
    return start(writer.foreachBatch(write))


def _made(writer: Any, name: str, partition_by: tuple[str, ...]) -> str:
    """The place of a new table of the catalogue, with the stream's columns."""
    spark = _session(writer)
    place = default_location(spark, name)
    schema = from_spark(_schema(writer))

    def make() -> None:
        request = WriteRequest("append", schema, partition_by=partition_by or None, operation="CREATE TABLE")
        write_arrow(DeltaLog(open_store(place)), schema.to_arrow_schema(), [], request)
        rename(spark, name, place)

    translated(make)
    return place


def _session(writer: Any) -> Any:
    return writer._spark if hasattr(writer, "_spark") else writer._session


def _schema(writer: Any) -> Any:
    frame = getattr(writer, "_df", None)
    if frame is None:
        raise InvalidArgumentError(
            "on Spark Connect a stream cannot make a table of the catalogue",
            help="make it with DeltaTable.create, then call toTable",
        )
    return frame.schema


def _noting(method: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        method(self, *args, **kwargs)
        note(_told(self), *args, **kwargs)
        return self

    return call


def _note_format(told: _Told, source: str) -> None:
    told.format = source.lower()


def _note_function(told: _Told, *_: Any) -> None:
    told.format = ""


def _note_mode(told: _Told, outputMode: str) -> None:
    told.mode = outputMode.lower()


def _note_option(told: _Told, key: str, value: Any) -> None:
    text = to_str(value)
    if text is not None:
        told.options[key] = text


def _note_options(told: _Told, **options: Any) -> None:
    for key, value in options.items():
        _note_option(told, key, value)


def _note_name(told: _Told, queryName: str) -> None:
    told.name = queryName


_NOTES: dict[str, Callable[..., None]] = {
    "format": _note_format,
    "outputMode": _note_mode,
    "foreach": _note_function,
    "foreachBatch": _note_function,
    "option": _note_option,
    "options": _note_options,
    "queryName": _note_name,
}


def _take_over_reader(cls: Any) -> None:
    table = cls.table

    @functools.wraps(table)
    def table_ours(self: Any, tableName: str) -> Any:
        place = our_location(self._spark if hasattr(self, "_spark") else self._client, tableName)
        return table(self, tableName) if place is None else self.format("delta").load(place)

    cls.table = table_ours
