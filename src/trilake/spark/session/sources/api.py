"""Spark's data source API, from PySpark 3.5 on.

If this release lacks a class, a substitute takes its name, so that trilake's sources can always be defined;
:mod:`trilake.spark.session.sources.python_source` runs them without Spark's support.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import types as T

from trilake.errors import MissingDependencyError, UnsupportedSparkError


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_api = _module("pyspark.sql.datasource")
_admission = _module("pyspark.sql.streaming.datasource")

#: Whether Spark has Python data sources.
HAS_DATA_SOURCES: bool = _api is not None
#: Whether a stream's sink can take Arrow batches.
HAS_ARROW_SINKS: bool = hasattr(_api, "DataSourceStreamArrowWriter")
#: Whether Spark passes the start and the limits of a batch to a stream.
HAS_ADMISSION: bool = _admission is not None

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource as DataSource
    from pyspark.sql.datasource import DataSourceArrowWriter as DataSourceArrowWriter
    from pyspark.sql.datasource import DataSourceReader as DataSourceReader
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
    from pyspark.sql.datasource import DataSourceStreamReader as DataSourceStreamReader
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamWriter
    from pyspark.sql.datasource import InputPartition as InputPartition
    from pyspark.sql.datasource import WriterCommitMessage as WriterCommitMessage
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxBytes as ReadMaxBytes
    from pyspark.sql.streaming.datasource import ReadMaxFiles as ReadMaxFiles
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
else:

    class _DataSource:
        def __init__(self, options: Mapping[str, str]) -> None:
            self.options = dict(options)

    class _Part:
        pass

    @dataclass
    class _ReadMaxFiles:
        max_files: int

    @dataclass
    class _ReadMaxBytes:
        max_bytes: int

    DataSource = getattr(_api, "DataSource", _DataSource)
    DataSourceReader = getattr(_api, "DataSourceReader", _Part)
    DataSourceArrowWriter = getattr(_api, "DataSourceArrowWriter", _Part)
    DataSourceStreamReader = getattr(_api, "DataSourceStreamReader", _Part)
    DataSourceStreamWriter = getattr(_api, "DataSourceStreamWriter", _Part)
    DataSourceStreamArrowWriter = getattr(_api, "DataSourceStreamArrowWriter", _Part)
    InputPartition = getattr(_api, "InputPartition", type("InputPartition", (), {}))
    WriterCommitMessage = getattr(_api, "WriterCommitMessage", type("WriterCommitMessage", (), {}))
    ReadLimit = getattr(_admission, "ReadLimit", object)
    ReadAllAvailable = getattr(_admission, "ReadAllAvailable", type("ReadAllAvailable", (), {}))
    ReadMaxFiles = getattr(_admission, "ReadMaxFiles", _ReadMaxFiles)
    ReadMaxBytes = getattr(_admission, "ReadMaxBytes", _ReadMaxBytes)
    SupportsTriggerAvailableNow = getattr(
        _admission, "SupportsTriggerAvailableNow", type("SupportsTriggerAvailableNow", (), {})
    )


class _WholeBatches(DataSourceStreamReader):
    """A stream reader for releases without limits and starts of batches: each batch takes everything after the previous
    one.  Before Spark requests the first new offset of a run, it requests the partitions up to the last offset."""

    def __init__(self, reader: DataSourceStreamReader) -> None:
        self.reader = reader
        self.offset: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        first: dict[str, Any] = self.reader.initialOffset()
        if self.offset is None:
            self.offset = first
        return first

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # the signature of Spark 4.0 and 4.1
        start = self.initialOffset() if self.offset is None else self.offset
        self.offset = self.reader.latestOffset(start, ReadAllAvailable())
        return self.offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.offset = end
        return self.reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.reader.read(partition)


class _RowSink(DataSourceStreamWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, schema: T.StructType) -> None:
        self.writer, self.schema = writer, schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.writer.write(_batches(iterator, self.schema))

    def commit(self, messages: Any, batchId: int) -> None:
        self.writer.commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:
        self.writer.abort(messages, batchId)


#: Rows per Arrow batch.
_ROWS = 10_000


def _batches(rows: Iterator[Any], schema: T.StructType) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.conversion import LocalDataToArrowConversion

    while chunk := list(islice(rows, _ROWS)):
        yield from LocalDataToArrowConversion.convert(chunk, schema, False).to_batches()


def check_limits(limits: Iterable[str]) -> None:
    """Raise ``UnsupportedSparkError`` for options that limit a stream's batches, if this release has no limits."""
    names = sorted(limits)
    if names and not HAS_ADMISSION:
        raise UnsupportedSparkError(
            f"PySpark {pyspark.__version__} does not support batch limits for Python data sources: {', '.join(names)}",
            help="leave the option out (a batch then has all new rows), or use PySpark 4.2 or newer",
        )


def stream_reader(reader: DataSourceStreamReader, limits: Iterable[str] = ()) -> DataSourceStreamReader:
    """A stream reader for this release; ``limits`` are the given options that limit a batch.  Raises
    ``UnsupportedSparkError`` if the release does not support them."""
    check_limits(limits)
    return reader if HAS_ADMISSION else _WholeBatches(reader)


def stream_writer(writer: DataSourceStreamArrowWriter, schema: T.StructType) -> DataSourceStreamWriter:
    """A sink for this release; without Spark's data sources, ``foreachBatch`` passes Arrow batches to it."""
    return writer if HAS_ARROW_SINKS or not HAS_DATA_SOURCES else _RowSink(writer, schema)


def unavailable(name: str, error: MissingDependencyError) -> type[DataSource]:
    """A data source for a format whose libraries are missing: each use raises ``error``."""

    class Unavailable(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def __init__(self, options: MutableMapping[str, str]) -> None:
            raise error

    return Unavailable
