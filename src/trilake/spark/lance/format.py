"""Lance on Spark, for the registry of formats; the optional libraries are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.errors import InvalidArgumentError, MissingDependencyError
from trilake.lance.format import LANCE as LOCAL
from trilake.lance.format import written
from trilake.lance.versions.versions import list_versions
from trilake.spark.lance import ml_vectors
from trilake.spark.lance.vectors import Vectors
from trilake.spark.session.format import MergeByKeys, SaveRequest, SparkFormat
from trilake.spark.session.settings import session_store
from trilake.spark.session.sources.api import DataSource, unavailable
from trilake.storage.base import Store
from trilake.table.format import TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import Table


class SparkLanceFormat(SparkFormat):
    """Lance datasets in Spark."""

    name = "lance"

    def read(self, spark: SparkSession, table: Table, **how: Any) -> DataFrame:
        from trilake.lance.table import LanceTable
        from trilake.spark.lance.frames import read_dataframe

        assert isinstance(table, LanceTable)
        return read_dataframe(spark, table, **how)

    def write(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> WriteResult:
        snapshot, fragments = self.save_rows(df, uri, options, write)
        return written(snapshot, len(fragments), sum(f.physical_rows for f in fragments))

    def save_rows(self, df: DataFrame, uri: str, options: Mapping[str, str], write: TableWrite) -> Any:
        from trilake.lance.table import write_options
        from trilake.spark.lance.frames import write_dataframe

        LOCAL.reject_log_only(write)
        LOCAL.reject_partitions(write)
        properties = dict(write.properties)
        vectors = Vectors.of(properties.pop("vectors", None), properties.pop("vectorType", None))
        return write_dataframe(df, uri, options, mode=write.mode, options=write_options(properties), vectors=vectors)

    def sources(self) -> tuple[type[DataSource], ...]:
        try:
            from trilake.spark.lance.source import LanceDataSource, TrilakeLanceDataSource
        except MissingDependencyError as e:
            return unavailable(self.name, e), unavailable(f"trilake-{self.name}", e)
        return LanceDataSource, TrilakeLanceDataSource

    def load(self, spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
        from trilake.spark.lance.frames import load_lance

        return load_lance(spark, path, options, schema)

    def write_options(self) -> Sequence[str]:
        from trilake.spark.lance.source import WRITE_OPTIONS

        return WRITE_OPTIONS

    def check_save(self, request: SaveRequest, path: str) -> None:
        super().check_save(request, path)
        if request.partition_by:
            raise InvalidArgumentError("a Lance dataset has no partitions", help="leave partitionBy out", file=path)

    def is_whole(self, store: Store) -> bool:
        return 1 in list_versions(store).versions

    def table_columns(self, schema: T.StructType) -> T.StructType:
        """Vectors of Spark ML are stored as lists."""
        return ml_vectors.plain(schema)[0]

    def delete(self, spark: SparkSession, path: str, condition: str | None) -> int:
        from trilake.spark.lance import jobs

        before = self._count(spark, path)
        jobs.delete(spark, path, condition or "true")
        return before - self._count(spark, path)

    def _count(self, spark: SparkSession, path: str) -> int:
        from trilake.lance.table import LanceTable

        return LanceTable(session_store(spark, path)).count()

    def update(self, spark: SparkSession, path: str, values: Mapping[str, str], condition: str | None) -> int:
        from trilake.spark.lance import jobs

        return jobs.update(spark, path, values, condition).num_rows_updated

    def merge(self, spark: SparkSession, path: str, source: DataFrame, merge: MergeByKeys) -> Mapping[str, int]:
        from trilake.lance.commands.merge_insert import MergeInsert
        from trilake.spark.lance.merge_job import merge_insert

        clauses = MergeInsert(
            merge.keys,
            update=merge.matched == "update",
            delete_matched=merge.matched == "delete",
            insert=merge.insert,
            delete_unmatched=merge.delete_unmatched,
        )
        stats = merge_insert(spark, path, source, list(merge.keys), clauses)
        return {name: getattr(stats, name) for name in ("num_updated_rows", "num_deleted_rows", "num_inserted_rows")}

    def optimize(self, spark: SparkSession, path: str) -> Mapping[str, int]:
        from trilake.spark.lance import jobs

        metrics = jobs.compact(spark, path)
        return {
            name: value for name in metrics.__dataclass_fields__ if isinstance(value := getattr(metrics, name), int)
        }


LANCE = SparkLanceFormat()
