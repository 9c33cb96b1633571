"""``SparkFormat``: what generic code may ask of a format in a Spark session; a subclass for each, in its own room."""

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
from trilake.table.format import TableWrite
from trilake.table.registry import row_named
from trilake.table.results import WriteResult
from trilake.table.table import FilterLike, Table


@dataclass(frozen=True)
class SaveRequest:
    """What a chain of calls on ``df.write`` asks for.  ``mode`` is one of ``error``, ``ignore``, ``append`` and
    ``overwrite``; ``properties`` are those of a new table."""

    df: DataFrame
    format: str
    mode: str
    options: Mapping[str, str] = field(repr=False)
    partition_by: tuple[str, ...] | None
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Columns of ``clusterBy``.
    cluster_by: tuple[str, ...] | None = None
    #: What ``bucketBy`` and ``sortBy`` said, which none of our formats do.
    buckets: str | None = None
    #: Whether an existing table is to be what this makes of it, properties included, and nothing else.
    replaces: bool = False
    #: What the history calls a write that makes or replaces a table by its name; ``None`` for one that does neither.
    operation: str | None = None
    #: Whether the catalogue keeps the files of that table.
    managed: bool = False
    #: Whether the table must be there: a Delta table that was dropped is not made again.
    must_exist: bool = False


@dataclass(frozen=True)
class MergeByKeys:
    """A MERGE by equal keys whose clauses take whole rows.

    ``matched`` is ``update`` or ``delete``; ``None`` keeps matched rows.
    """

    keys: tuple[str, ...]
    matched: str | None = None
    insert: bool = False
    delete_unmatched: bool = False


@dataclass(frozen=True)
class MergedRows:
    """How many rows a MERGE changed."""

    inserted: int
    updated: int
    deleted: int


class SparkFormat(ABC):
    """One format of tables, for Spark."""

    name: ClassVar[str]
    has_clustering: ClassVar[bool] = False

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
        """An open table as a frame, see :func:`trilake.read`; ``newest`` says that no version was named."""

    @abstractmethod
    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> WriteResult:
        """Write the rows of a frame, see :func:`trilake.write`."""

    @abstractmethod
    def sources(self) -> tuple[type[DataSource], ...]:
        """The data sources for Spark: under the format's name, and under ``trilake-<name>``."""

    @abstractmethod
    def load(self, spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
        """The frame of ``spark.read.format(...).load(path)``; ``schema`` is what ``spark.read.schema`` was given."""

    @abstractmethod
    def save(self, request: SaveRequest, path: str) -> None:
        """Write a frame to a place, in the request's mode."""

    @abstractmethod
    def is_whole(self, store: Store) -> bool:
        """Whether a table is there that was begun after a drop, and not the rest of one whose files went."""

    def table_columns(self, schema: T.StructType) -> T.StructType:
        """The columns that a table of the catalogue has for rows of a schema."""
        return schema

    # --- SQL, for formats that have no log of Delta's ---

    def delete(self, spark: SparkSession, path: str, condition: str | None) -> int:
        """Delete rows; how many."""
        raise self.refuse_change(path)

    def update(self, spark: SparkSession, path: str, values: Mapping[str, str], condition: str | None) -> int:
        """Change rows; how many."""
        raise self.refuse_change(path)

    def merge(self, spark: SparkSession, path: str, source: DataFrame, merge: MergeByKeys) -> MergedRows:
        """Merge rows by equal keys."""
        raise self.refuse_change(path)

    def optimize(self, spark: SparkSession, path: str) -> Mapping[str, int]:
        """Join small files; metrics by name."""
        raise InvalidArgumentError(
            "OPTIMIZE is for Delta tables only", file=path, condition="DELTA_TABLE_ONLY_OPERATION"
        )

    def refuse_change(self, path: str) -> InvalidArgumentError:
        """The error for a change of rows that the format has no way to make."""
        return InvalidArgumentError(
            f"{self.name.title()} files cannot be changed",
            help="read them, and write the result to a new place",
            file=path,
        )

    def check_save(self, request: SaveRequest, path: str) -> None:
        """Refuse what Spark's own formats alone do.  Raises ``InvalidArgumentError``."""
        if request.buckets is not None:
            raise InvalidArgumentError(
                f"{request.buckets} is not supported for {request.format} tables",
                help=f"leave {request.buckets} out; partitionBy and clusterBy group the rows of a Delta table",
                file=path,
            )
        if request.cluster_by and not self.has_clustering:
            raise InvalidArgumentError(
                f"a {request.format} table has no clustering columns", help="leave clusterBy out", file=path
            )


def check_one_partitioning(request: SaveRequest, options: Options, path: str) -> None:
    """Refuse two lists of partition columns.  Raises ``InvalidArgumentError``."""
    if request.partition_by and options.get("partitionBy") is not None:
        raise InvalidArgumentError(
            "partitionBy() and the option partitionBy both say how the table is partitioned",
            help="leave one of them out",
            file=path,
        )


def spark_format_named(name: str) -> SparkFormat:
    """The format of that name.  Raises ``InvalidArgumentError``."""
    format: Any = row_named(name).load_spark()
    assert isinstance(format, SparkFormat)
    return format
