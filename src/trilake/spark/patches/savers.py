"""Take over ``df.write`` for the registered formats."""

from __future__ import annotations

from collections.abc import Iterable

from trilake.spark.patches.dataframe_writer import NAMED, SAVERS, take_over
from trilake.spark.patches.merge_writer import take_over_merges
from trilake.spark.patches.table_writer import take_over_tables
from trilake.spark.session.format import spark_format_named
from trilake.table.registry import DEFAULT


def install(registered: Iterable[str]) -> None:
    """Take over the writes of the formats that are registered under these names."""
    for name in registered:
        format = name.removeprefix("trilake-")
        SAVERS[name] = spark_format_named(format).save
        if format == DEFAULT:
            NAMED.add(name)
    take_over()
    take_over_tables()
    take_over_merges()
