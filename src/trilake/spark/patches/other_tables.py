"""Lance datasets and Trevni files as tables of Spark's writers: the columns that a write by position, or by the name of
a path, goes by, and their names behind a write."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from trilake.lance.versions.versions import list_versions
from trilake.spark.delta.names.catalogue import absolute, holds_nothing, parts_of
from trilake.spark.delta.names.entries import About, change_entry, find_entry, make_entry
from trilake.spark.session.engine import spark_engine
from trilake.storage.base import Store
from trilake.trevni.tables.table import TrevniTable


def other_columns(format: str, store: Store) -> pa.Schema:
    """The columns of the table of a format, ``lance`` or ``trevni``, at a store's root.

    Raises ``TableNotFoundError`` where there is none.
    """
    if format == "lance":
        from trilake.lance.table import LanceTable  # late: the libraries that it needs are an extra

        return LanceTable(store, runtime=spark_engine().runtime).schema
    return TrevniTable(store.uri, options=store.options).schema


def refresh_other(
    spark: SparkSession,
    name: str,
    location: str,
    store: Store,
    format: str,
    about: About,
    *,
    managed: bool,
    replaced: bool,
) -> None:
    """Let a name say what a table is, where the write ``replaced`` it, and be there behind a write that made it anew.

    As :func:`trilake.spark.delta.names.catalogue.refresh_name` does for Delta tables.
    """
    parts = parts_of(name)
    if find_entry(spark, parts) is not None:
        if replaced:
            change_entry(spark, parts, about)
    elif managed and _is_whole(format, store):
        make_entry(spark, parts, about, path=absolute(location), provider=format, managed=True)


def _is_whole(format: str, store: Store) -> bool:
    """Whether a table is there that was begun after a drop, and not the rest of one whose files went."""
    if format == "lance":
        return 1 in list_versions(store).versions
    return not holds_nothing(store)
