"""How each format writes a DataFrame that Spark will not hand to a Python data source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trilake.delta.write import parse_mode
from trilake.spark.dataframe_writer import NAMED, SAVERS, SaveRequest, take_over
from trilake.spark.delta_source import WRITE_OPTIONS, write_request
from trilake.spark.delta_write import write_dataframe
from trilake.spark.options import Options
from trilake.spark.table_writer import take_over_tables


def save_delta(request: SaveRequest, path: str) -> None:
    """Write a Delta table in any mode, partitioned or not."""
    options = Options(request.options, WRITE_OPTIONS, properties=True)
    asked = write_request(options, request.df.schema, request.mode == "overwrite")
    asked = replace(
        asked,
        mode=parse_mode(request.mode),
        partition_by=request.partition_by or asked.partition_by,
        properties={**(asked.properties or {}), **request.properties} or None,
    )
    write_dataframe(request.df, path, options.store, asked)


_DELTA = ("delta", "trilake-delta")


def install(registered: Iterable[str]) -> None:
    """Take over the writes of the formats that are registered under these names."""
    for name in registered:
        if name in _DELTA:
            SAVERS[name] = save_delta
            NAMED.add(name)
    take_over()
    take_over_tables()
