"""Arguments and options shared by many commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from trilake.table.registry import BUILT_IN, names


class InputFormat(StrEnum):
    """Formats of rows to write."""

    csv = "csv"
    json = "json"
    parquet = "parquet"
    arrow = "arrow"


def format_option(help: str, name: str = "--format", *others: str) -> Any:
    """An option that takes a format's name, or one of ``others``."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in (*names(), *others):
            raise typer.BadParameter(f"{value!r} is not one of {', '.join((*names(), *others))}")
        return value

    choices = "|".join((*(row.name for row in BUILT_IN), *others))
    return typer.Option(name, metavar=choices, help=help, callback=check, autocompletion=names)


Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs; errors become a JSON object on stderr.")]
Uri = Annotated[str, typer.Argument(help="Path or URI of the table: a folder, s3://bucket/table, gs://, az://.")]
Format = Annotated[str | None, format_option("Format; detected by default.")]
Version = Annotated[int | None, typer.Option("--version", "-v", help="Version; the newest by default.")]
Timestamp = Annotated[
    str | None, typer.Option("--timestamp", help="Version of this time, such as 2024-12-31T23:59:59Z.")
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Option of the object store; may be repeated."),
]
Filter = Annotated[
    str | None, typer.Option("--filter", "--where", "-w", metavar="SQL", help="Only rows that match this condition.")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", "-c", metavar="NAME", help="Only this column; may be repeated.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="KEY=VALUE", help="Property of the target; may be repeated."),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option("--partition-by", metavar="NAME", help="Partition column of a new table; may be repeated."),
]
Spark = Annotated[bool, typer.Option("--spark", help="Run as Spark jobs on this machine.")]
