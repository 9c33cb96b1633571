"""How files of a table are to be written: what travels to whoever holds the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal
from urllib.parse import quote

import pyarrow as pa

from trilake.delta.engine import Engine
from trilake.delta.files.file_statistics import StatisticsPlan
from trilake.delta.protocol.column_mapping import physical_schema
from trilake.delta.protocol.iceberg import TAG, compat_versions
from trilake.delta.protocol.properties import TableProperties
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.voids import no_typed_column, without_voids
from trilake.delta.rules.row_rules import RowRules
from trilake.errors import InvalidArgumentError
from trilake.expr import Filter
from trilake.table.data_files import FileFormat

#: Bytes of a data file, where the table does not say.
_TARGET_SIZE = 256 << 20
#: What a path may hold unescaped in the log (RFC 2396).
_PATH_SAFE = "/!$&'()*+,;=:@~"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.\-/!$&'()*+,;=:@~]*").fullmatch


#: How Parquet files can be compressed, by the names that Spark's writers know, and what Arrow calls it.
COMPRESSIONS: Mapping[str, str] = {
    **{name: name for name in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")},
    "uncompressed": "none",
    "lz4_raw": "lz4",
}


def parse_compression(text: str) -> str:
    """The compression of a name.  Raises ``InvalidArgumentError`` for one that is not known.

    >>> parse_compression("ZSTD"), parse_compression("uncompressed")
    ('zstd', 'none')
    """
    known = COMPRESSIONS.get(text.lower())
    if known is None:
        raise InvalidArgumentError(f"compression is {text!r}", help=f"it is one of {', '.join(sorted(COMPRESSIONS))}")
    return known


#: What a plan has of the table, and not of the write.
_of_table = attrgetter("schema", "partition_columns", "configuration", "provider", "materialized")


@dataclass(frozen=True)
class FilePlan:
    """How to write files of a table: what a Spark task needs apart from the rows.

    ``schema`` is the table's, ``partition_columns`` those of its columns by name, ``buffer_size`` the bytes of rows
    that wait in memory for a larger row group.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    job_id: str
    #: Formats of files, and clock and ids of the tasks.
    engine: Engine
    configuration: Mapping[str, str] = field(default_factory=dict)
    buffer_size: int = 128 << 20
    compression: str = "snappy"
    #: Partitions that one task writes at the same time: with fewer, rows that come in any order make more files.
    open_partitions: int = 64
    #: Physical paths of columns that may hold a NaN and get no bounds, so that one which comes late needs no new file.
    unbounded: frozenset[tuple[str, ...]] = frozenset()
    #: Format of the files, as ``metaData.format.provider`` says.
    provider: str = "parquet"
    #: What rows go through on their way in; ``None`` for rows that are the table's own already.
    rules: RowRules | None = None
    #: A condition that every row must meet, as rows that replace those of a predicate must.
    required: Filter | None = None
    #: ``cdc`` for files of the change data feed.
    action: Literal["add", "cdc"] = "add"
    #: Columns of the files that are none of the table's, such as ``_change_type``.
    extra: tuple[pa.Field, ...] = ()
    #: Most rows of a file, ``None`` for no limit but the size.
    max_records: int | None = None
    #: Whether files hold the partition columns too.
    materialized: bool = False

    @cached_property
    def target_size(self) -> int:
        """The size in bytes at which a file is closed."""
        return TableProperties(self.configuration).size_bytes("delta.targetFileSize") or _TARGET_SIZE

    def makes_the_files_of(self, other: FilePlan) -> bool:
        """Whether files made by this plan are what the other's table would have, its rules included."""
        return _of_table(self) == _of_table(other)

    @property
    def ending(self) -> str:
        """How names of the files end, which tells people the format and the compression."""
        if self.provider != "parquet":
            return self.provider
        return "parquet" if self.compression == "none" else f"{self.compression}.parquet"

    @property
    def format(self) -> FileFormat:
        """The format of files that are not Parquet.  Raises ``InvalidArgumentError`` where the engine lacks it."""
        known = self.engine.format(self.provider)
        if known is None:
            raise not_written(self.engine, self.provider, "")
        return known

    @property
    def mode(self) -> str:
        """How columns are mapped: ``none``, ``name`` or ``id``."""
        return self.configuration.get("delta.columnMapping.mode", "none").lower()

    @property
    def folder(self) -> str:
        """Folder of the files below the table, empty for the table's own."""
        return "_change_data" if self.action == "cdc" else ""

    @cached_property
    def statistics(self) -> StatisticsPlan:
        """Which columns get bounds in the log."""
        return StatisticsPlan.of(self.configuration, self.schema)

    @cached_property
    def tags(self) -> Mapping[str, str]:
        """What the action of a file says apart from its statistics: how to read those of floating-point columns."""
        versions = compat_versions(self.configuration)
        compat = {TAG: str(versions[0])} if versions else {}
        return {**self.statistics.tags(self.stated_schema), **compat}

    @cached_property
    def stored(self) -> StructType:
        """The table's columns that files hold, without partition columns and whatever has no type yet."""
        inside = tuple(f for f in self.schema.fields if f.name not in self.partition_columns)
        stored = without_voids(StructType(inside))
        if inside and not stored.fields:
            raise no_typed_column(StructType(inside))
        return stored

    @cached_property
    def stated_schema(self) -> pa.Schema:
        """The columns of a file without partition columns, of which the log says the values."""
        return pa.schema([*physical_schema(self.stored, self.mode), *self.extra])

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The columns of a file, under physical names and with field ids where the table maps its columns."""
        return pa.schema([*self.stated_schema, *self.partition_schema])

    @cached_property
    def partition_schema(self) -> pa.Schema:
        """The partition columns that a file holds, behind all others."""
        names = self.partition_columns if self.materialized else ()
        return physical_schema(StructType(tuple(self.schema.field(n) for n in names)), self.mode)


@dataclass(frozen=True)
class WrittenFiles:
    """What a task wrote: one action object a file, and how far it moved identity columns."""

    actions: tuple[Mapping[str, Any], ...]
    marks: Mapping[str, int] = field(default_factory=dict)


def encode_path(path: str) -> str:
    """A path as the log writes it: URI-encoded once.

    >>> encode_path("p=a b/x.parquet")
    'p=a%20b/x.parquet'
    """
    return path if _PLAIN_PATH(path) else quote(path, safe=_PATH_SAFE)


def check_provider(engine: Engine, provider: str, schema: StructType, uri: str) -> None:
    """See whether a table's files can be written in a format.

    Raises ``InvalidArgumentError`` for one that is not written, and ``SchemaMismatchError`` for a type that it lacks.
    """
    if provider not in engine.written:
        raise not_written(engine, provider, uri)
    known = engine.format(provider)
    if known is not None and known.check is not None:
        known.check(schema.to_arrow_schema())


def not_written(engine: Engine, provider: str, uri: str) -> InvalidArgumentError:
    """The error for a table of files that are not written here."""
    return InvalidArgumentError(
        f"the table's files are {provider!r}, and no such files are written",
        help=f"written are {', '.join(sorted(engine.written))}",
        file=uri or None,
    )
