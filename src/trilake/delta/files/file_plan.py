"""The plan for writing files of a table, which is sent to the processes with the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal
from urllib.parse import quote

import pyarrow as pa

from trilake.delta.engine import Engine
from trilake.delta.files.file_statistics import StatisticsPlan
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.column_mapping import physical_schema
from trilake.delta.protocol.iceberg import TAG, compat_versions, writes_partition_columns
from trilake.delta.protocol.properties import TableProperties
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.schema_edit import no_typed_column, without_voids
from trilake.delta.rules.row_rules import RowRules
from trilake.errors import InvalidArgumentError
from trilake.expr import Filter
from trilake.table.data_files import FileFormat

#: Default bytes of a data file.
_TARGET_SIZE = 256 << 20
#: Characters that stay unescaped in a path in the log (RFC 2396).
_PATH_SAFE = "/!$&'()*+,;=:@~"


#: Parquet compressions by Spark's names, with Arrow's names.
COMPRESSIONS: Mapping[str, str] = {
    **{name: name for name in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")},
    "uncompressed": "none",
    "lz4_raw": "lz4",
}


def parse_compression(value: str) -> str:
    """Parse the name of a compression.  Raises ``InvalidArgumentError`` for an unknown one.

    >>> parse_compression("ZSTD"), parse_compression("uncompressed")
    ('zstd', 'none')
    """
    codec = COMPRESSIONS.get(value.lower())
    if codec is None:
        raise InvalidArgumentError(f"compression must be one of {', '.join(sorted(COMPRESSIONS))}, got {value!r}")
    return codec


#: The fields of a plan that depend only on the table.
_of_table = attrgetter("schema", "partition_columns", "configuration", "provider", "materialized")


@dataclass(frozen=True)
class FilePlan:
    """How to write files of a table: everything that a Spark task needs except the rows.

    ``schema`` is the table's schema, ``partition_columns`` are names of its columns, ``buffer_size`` is the number of
    bytes of rows to buffer for larger row groups.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    job_id: str
    #: Formats of files, and the tasks' clock and ids.
    engine: Engine
    configuration: Mapping[str, str] = field(default_factory=dict)
    buffer_size: int = 128 << 20
    compression: str = "snappy"
    #: Partitions that one task writes concurrently; a lower number makes more files of unsorted rows.
    open_partitions: int = 64
    #: Physical paths of columns without bounds that may hold a NaN, so that a late NaN needs no new file.
    unbounded: frozenset[tuple[str, ...]] = frozenset()
    #: The format of the files, from ``metaData.format.provider``.
    provider: str = "parquet"
    #: The rules for incoming rows; ``None`` for rows that the table already has.
    rules: RowRules | None = None
    #: A condition that every row must satisfy, if the rows replace those of a predicate.
    required: Filter | None = None
    #: ``cdc`` for files of the change data feed.
    action: Literal["add", "cdc"] = "add"
    #: Extra columns of the files, such as ``_change_type``.
    extra: tuple[pa.Field, ...] = ()
    #: The most rows per file; ``None`` for no limit.
    max_records: int | None = None
    #: Whether files also hold the partition columns.
    materialized: bool = False

    @classmethod
    def of(cls, metadata: Metadata, protocol: Protocol, engine: Engine, job_id: str, **more: Any) -> FilePlan:
        """The plan for files of a table with this metadata; ``more`` are further fields."""
        return cls(
            metadata.schema,
            tuple(metadata.schema.field(c).name for c in metadata.partition_columns),
            job_id,
            engine.for_tasks(),
            metadata.configuration,
            provider=metadata.provider.lower(),
            materialized=writes_partition_columns(protocol, metadata.configuration),
            **more,
        )

    @cached_property
    def target_size(self) -> int:
        """The size in bytes at which a file is closed."""
        return TableProperties(self.configuration).size_bytes("delta.targetFileSize") or _TARGET_SIZE

    def makes_the_files_of(self, other: FilePlan) -> bool:
        """Whether both plans would write the same files, including rules."""
        return _of_table(self) == _of_table(other)

    @property
    def ending(self) -> str:
        """The suffix of file names, which shows the format and the compression."""
        if self.provider != "parquet":
            return self.provider
        return "parquet" if self.compression == "none" else f"{self.compression}.parquet"

    @property
    def format(self) -> FileFormat:
        """The format of files other than Parquet.  Raises ``InvalidArgumentError`` if the engine lacks it."""
        format_ = self.engine.format(self.provider)
        if format_ is None:
            raise not_written(self.engine, self.provider, "")
        return format_

    @property
    def mode(self) -> str:
        return self.configuration.get("delta.columnMapping.mode", "none").lower()

    @property
    def folder(self) -> str:
        """The folder of the files below the table; empty for the table's root."""
        return "_change_data" if self.action == "cdc" else ""

    @cached_property
    def statistics(self) -> StatisticsPlan:
        """Which columns get bounds in the log."""
        return StatisticsPlan.of(self.configuration, self.schema)

    @cached_property
    def tags(self) -> Mapping[str, str]:
        """The tags of file actions: how to read statistics of floating-point columns."""
        versions = compat_versions(self.configuration)
        compat = {TAG: str(versions[0])} if versions else {}
        return {**self.statistics.tags(self.stated_schema), **compat}

    @cached_property
    def stored(self) -> StructType:
        """The table's columns that files store, without partition columns and void parts."""
        inside = tuple(f for f in self.schema.fields if f.name not in self.partition_columns)
        stored = without_voids(StructType(inside))
        if inside and not stored.fields:
            raise no_typed_column(StructType(inside))
        return stored

    @cached_property
    def stated_schema(self) -> pa.Schema:
        """The columns of a file without partition columns, whose values are in the log."""
        return pa.schema([*physical_schema(self.stored, self.mode), *self.extra])

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The columns of a file; with column mapping, with physical names and field ids."""
        return pa.schema([*self.stated_schema, *self.partition_schema])

    @cached_property
    def partition_schema(self) -> pa.Schema:
        """The partition columns that a file holds, after all others."""
        names = self.partition_columns if self.materialized else ()
        return physical_schema(StructType(tuple(self.schema.field(n) for n in names)), self.mode)


@dataclass(frozen=True)
class WrittenFiles:
    """The result of a task: one action object per file, and the new marks of identity columns."""

    actions: tuple[Mapping[str, Any], ...]
    marks: Mapping[str, int] = field(default_factory=dict)


def encode_path(path: str) -> str:
    """URI-encode a path once, as in the log.

    >>> encode_path("p=a b/x.parquet")
    'p=a%20b/x.parquet'
    """
    return quote(path, safe=_PATH_SAFE)


def check_provider(engine: Engine, provider: str, schema: StructType, uri: str) -> None:
    """Check that a table's files can be written in a format.

    Raises ``InvalidArgumentError`` for an unsupported format, and ``SchemaMismatchError`` for a type that it lacks.
    """
    if provider not in engine.written:
        raise not_written(engine, provider, uri)
    format_ = engine.format(provider)
    if format_ is not None and format_.check is not None:
        format_.check(schema.to_arrow_schema())


def not_written(engine: Engine, provider: str, uri: str) -> InvalidArgumentError:
    """The error for a table with files in a format that cannot be written."""
    return InvalidArgumentError(
        f"the format of the table's files, {provider!r}, is not supported for writing",
        help=f"supported formats are {', '.join(sorted(engine.written))}",
        file=uri or None,
    )
