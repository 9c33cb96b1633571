"""Arguments and options that many commands share, so that each has one name and one meaning everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class TableFormat(StrEnum):
    """Formats of tables."""

    delta = "delta"
    lance = "lance"
    trevni = "trevni"


Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs; errors become a JSON object on stderr.")]
Uri = Annotated[str, typer.Argument(help="Path or URI of the table: a folder, s3://bucket/table, gs://, az://.")]
Format = Annotated[TableFormat | None, typer.Option("--format", help="Format; found out where it is not given.")]
Version = Annotated[int | None, typer.Option("--version", "-v", help="Version to look at; the newest by default.")]
Timestamp = Annotated[
    str | None, typer.Option("--timestamp", help="The version that was newest then, such as 2024-12-31T23:59:59Z.")
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Option of the object store; may be repeated."),
]
Filter = Annotated[
    str | None, typer.Option("--filter", "--where", "-w", metavar="SQL", help="Only rows for which this is true.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", metavar="NAME", help="Only this column; may be repeated."),
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="KEY=VALUE", help="Property of the target; may be repeated."),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option("--partition-by", metavar="NAME", help="Partition column of a new table; may be repeated."),
]
Spark = Annotated[bool, typer.Option("--spark", help="Run the work as Spark jobs on this machine.")]
