"""Reads and writes of Lance datasets that Spark does not support for Python data sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trilake.errors import InvalidArgumentError
from trilake.lance.commands.fragment_writer import WriteOptions
from trilake.lance.commands.write import Mode
from trilake.lance.file.errors import DatasetExistsError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.table import LanceTable
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.versions import list_versions
from trilake.spark.lance import ml_vectors
from trilake.spark.lance.source import LanceWriter, TrilakeLanceDataSource, WrittenFragments
from trilake.spark.lance.vectors import Vectors
from trilake.spark.session.job_errors import job_error_of
from trilake.spark.session.runner import row_outcomes
from trilake.spark.session.schemas import requested_schema
from trilake.spark.session.settings import session_options, shared_location
from trilake.spark.session.sources.pruned_source import filtered_frame, pruned_source_frame
from trilake.spark.session.sources.rows_source import rows_schema
from trilake.storage import open_store
from trilake.table.format import Mode as SaveMode
from trilake.table.table import FilterLike

_MODES: dict[SaveMode, Mode] = {"error": "create", "ignore": "create", "append": "append", "overwrite": "overwrite"}


def read_dataframe(
    spark: SparkSession,
    table: LanceTable,
    *,
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    options: Mapping[str, str] | None = None,
    newest: bool = False,
) -> DataFrame:
    """The rows of a version for which ``filter`` is true, projected to ``columns``; a SQL filter selects fragments and
    row groups."""
    output = table.projected_schema(columns)
    names = ml_vectors.vector_columns((options or {}).get("mlVectors"), output)
    if names and not (filter is None or isinstance(filter, str)):
        raise InvalidArgumentError("with mlVectors, a filter must be SQL", help='write it as "n > 5"')
    declared = rows_schema(output, table.uri)
    row_schema = ml_vectors.declared(declared, names) if names else declared
    source_options = {"version": str(table.version), **(options or {})}
    return filtered_frame(spark, TrilakeLanceDataSource, table, filter, source_options, output, row_schema)


def load_lance(spark: SparkSession, path: str, options: Mapping[str, str], schema: Any = None) -> DataFrame:
    """The DataFrame of ``spark.read.format("lance").options(...).schema(schema).load(path)``."""
    source = TrilakeLanceDataSource({**options, "path": path})
    source_schema = source.schema()
    snapshot, _ = source.opened()
    source_options = {k: v for k, v in options.items() if k.lower() not in ("path", "version", "tag", "timestamp")}
    source_options["version"] = str(snapshot.version)
    row_schema = source_schema if schema is None else requested_schema(spark, schema)
    return pruned_source_frame(spark, TrilakeLanceDataSource, path, source_options, snapshot.schema, row_schema)


def write_dataframe(
    df: DataFrame,
    uri: str,
    store: Mapping[str, str],
    *,
    mode: SaveMode,
    options: WriteOptions | None = None,
    vectors: Vectors | None = None,
) -> tuple[Snapshot | None, list[Fragment]]:
    """Run a write as one Spark job and commit it; returns the version (``None`` if ``ignore`` found a dataset) and the
    added fragments."""
    uri = shared_location(uri)
    store = session_options(df.sparkSession, uri, store)
    target = open_store(uri, store)
    if mode == "ignore" and list_versions(target).versions:
        return None, []

    def failed(cause: Exception) -> Exception:
        return job_error_of(
            cause,
            "the write failed before its commit; the dataset is unchanged",
            again="repeat the write",
            cleanup="cleanup_old_versions removes the files that tasks left",
            file=target.uri,
        )

    try:
        writer = LanceWriter.begin(uri, store, df.schema, _MODES[mode], options or WriteOptions(), vectors)
        written: list[WrittenFragments] = row_outcomes(df, lambda batches, _: writer.write(batches), failed)
        return writer.finish(written), [f for w in written for f in w.fragments]
    except DatasetExistsError:  # another process has created the dataset
        if mode != "ignore":
            raise
        return None, []
