"""Catalogue entries of tables that are not Delta, updated after writes."""

from __future__ import annotations

from pyspark.sql import SparkSession

from trilake.spark.delta.names.catalogue import absolute, parts_of
from trilake.spark.delta.names.entries import About, change_entry, find_entry, make_entry
from trilake.spark.session.format import spark_format_named
from trilake.storage.base import Store


def refresh_entry(
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
    """Update an entry after a write that ``replaced`` the table, or make it again if it is gone.

    :func:`trilake.spark.delta.names.catalogue.refresh_name` does this for Delta tables.
    """
    parts = parts_of(name)
    if find_entry(spark, parts) is not None:
        if replaced:
            change_entry(spark, parts, about)
    elif managed and spark_format_named(format).is_whole(store):
        make_entry(spark, parts, about, path=absolute(location), provider=format, managed=True)
