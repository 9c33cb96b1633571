"""Patch ``df.write`` for the registered formats."""

from __future__ import annotations

from collections.abc import Iterable

from trilake.spark.patches.dataframe_writer import NAMED, SAVERS, patch_dataframe_writer
from trilake.spark.patches.merge_writer import patch_merge_into
from trilake.spark.patches.table_writer import patch_table_writer
from trilake.spark.session.format import spark_format_named
from trilake.table.registry import DEFAULT


def install(registered: Iterable[str]) -> None:
    """Patch the writers for the formats registered under these names."""
    for name in registered:
        format = name.removeprefix("trilake-")
        SAVERS[name] = spark_format_named(format).save
        if format == DEFAULT:
            NAMED.add(name)
    patch_dataframe_writer()
    patch_table_writer()
    patch_merge_into()
