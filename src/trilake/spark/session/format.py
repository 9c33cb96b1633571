"""``SparkFormat``: the interface of a format in a Spark session; each format's package has a subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.errors import InvalidArgumentError
from trilake.spark.session.options import Options
from trilake.spark.session.sources.api import DataSource
from trilake.storage.base import Store
from trilake.table.format import TableWrite, parse_mode
from trilake.table.registry import has_log, row_named
from trilake.table.results import WriteResult
from trilake.table.table import FilterLike, Table


@dataclass(frozen=True)
class SaveRequest:
    """A write from a call chain on ``df.write``.  ``mode`` is ``error``, ``ignore``, ``append`` or ``overwrite``;
    ``properties`` are the properties of a new table."""

    df: DataFrame
    format: str
    mode: str
    options: Mapping[str, str] = field(repr=False)
    partition_by: tuple[str, ...] | None
    properties: Mapping[str, str] = field(default_factory=dict)
    #: The columns of ``clusterBy``.
    cluster_by: tuple[str, ...] | None = None
    #: ``bucketBy`` or ``sortBy`` if called; trilake's formats support neither.
    buckets: str | None = None
    #: Whether to replace an existing table entirely, including its properties.
    replaces: bool = False
    #: The operation in the history, for a write that creates or replaces a named table.
    operation: str | None = None
    #: Whether the catalog manages the table's files.
    managed: bool = False
    #: Whether the table must exist, so that a write after a DROP does not create it again.
    must_exist: bool = False
    #: The rows with the columns as the caller named them, if ``df`` has renamed them.
    source: DataFrame | None = None


@dataclass(frozen=True)
class MergeByKeys:
    """A MERGE by equal keys, with clauses that copy whole rows.  ``matched`` is ``update`` or ``delete``; ``None``
    keeps matched rows."""

    keys: tuple[str, ...]
    matched: str | None = None
    insert: bool = False
    delete_unmatched: bool = False


class SparkFormat(ABC):
    """A table format in Spark."""

    name: ClassVar[str]

    @abstractmethod
    def read(
        self,
        spark: SparkSession,
        table: Table,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterLike | None = None,
        options: Mapping[str, str] | None = None,
        newest: bool = False,
    ) -> DataFrame:
        """An open table as a DataFrame, see :func:`trilake.read`; ``newest`` means that the read has no time travel."""

    @abstractmethod
    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> WriteResult:
        """Write the rows of a DataFrame, see :func:`trilake.write`."""

    @abstractmethod
    def sources(self) -> tuple[type[DataSource], ...]:
        """The Python data sources, with the format's name and with ``trilake-<name>``."""

    @abstractmethod
    def load(self, spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
        """The DataFrame of ``spark.read.format(...).load(path)``; ``schema``: the argument of ``spark.read.schema``."""

    def write_options(self) -> Sequence[str]:
        """The names of options of a write."""
        return ()

    def save(self, request: SaveRequest, path: str) -> None:
        """Write a DataFrame to a path, in the request's mode.  Raises ``InvalidArgumentError`` for options that the
        format does not support."""
        self.check_save(request, path)
        options = Options(request.options, self.write_options())
        check_one_partitioning(request, options, path)
        properties = dict(options.values)
        named = [c.strip() for c in properties.pop("partitionBy", "").split(",")]
        columns = request.partition_by or tuple(c for c in named if c) or None
        self.save_rows(request.df, path, options.store, TableWrite(parse_mode(request.mode), columns, properties))

    def save_rows(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> object:
        """Write the rows of a DataFrame without measuring the result: another statement may have dropped the table."""
        return self.write(df, uri, options, write)

    @abstractmethod
    def is_whole(self, store: Store) -> bool:
        """Whether this is a complete table that was created after a drop, and not just remaining files."""

    def table_columns(self, schema: T.StructType) -> T.StructType:
        """The columns of a catalog table for rows of this schema."""
        return schema

    def delete(self, spark: SparkSession, path: str, condition: str | None) -> int:
        """Delete rows; returns their number."""
        raise self.unsupported_change(path)

    def update(self, spark: SparkSession, path: str, values: Mapping[str, str], condition: str | None) -> int:
        """Update rows; returns their number."""
        raise self.unsupported_change(path)

    def merge(self, spark: SparkSession, path: str, source: DataFrame, merge: MergeByKeys) -> Mapping[str, int]:
        """Merge rows by equal keys; returns ``num_updated_rows``, ``num_deleted_rows`` and ``num_inserted_rows``."""
        raise self.unsupported_change(path)

    def optimize(self, spark: SparkSession, path: str) -> Mapping[str, int]:
        """Compact small files; returns metrics by name."""
        raise InvalidArgumentError(
            "OPTIMIZE is only supported for Delta tables", file=path, condition="DELTA_TABLE_ONLY_OPERATION"
        )

    def unsupported_change(self, path: str) -> InvalidArgumentError:
        """The error for a row change that the format doesn't support."""
        return InvalidArgumentError(
            f"changing rows is not supported for {self.name.title()} files",
            help="read the rows, and write the result to a new location",
            file=path,
        )

    def check_save(self, request: SaveRequest, path: str) -> None:
        """Raise ``InvalidArgumentError`` for options that trilake's formats do not support."""
        if request.buckets is not None:
            raise InvalidArgumentError(
                f"{request.buckets} is not supported for {request.format} tables",
                help=f"leave {request.buckets} out; partitionBy and clusterBy group the rows of a Delta table",
                file=path,
                condition="DELTA_OPERATION_NOT_ALLOWED",
            )
        if request.cluster_by and not has_log(self.name):
            raise InvalidArgumentError(
                f"clusterBy is not supported for {request.format} tables", help="leave clusterBy out", file=path
            )


def check_one_partitioning(request: SaveRequest, options: Options, path: str) -> None:
    """Raise ``InvalidArgumentError`` if the request has two lists of partition columns."""
    if request.partition_by and options.get("partitionBy") is not None:
        raise InvalidArgumentError(
            "partitionBy() and the option partitionBy cannot be used together", help="leave one of them out", file=path
        )


def spark_format_named(name: str) -> SparkFormat:
    """The format with this name.  Raises ``InvalidArgumentError``."""
    format: Any = row_named(name).load_spark()
    assert isinstance(format, SparkFormat)
    return format
