"""Arguments and options shared by many commands, and the tables that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trilake.errors import InvalidArgumentError
from trilake.table.registry import BUILT_IN, format_named, names

if TYPE_CHECKING:
    from trilake.table.table import Table
    from trilake.table.upkeep import Upkeep


#: Formats of rows to write.
InputFormat = Literal["csv", "json", "parquet", "arrow"]


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
    str | None, typer.Option("--timestamp", help="Version at this time, such as 2024-12-31T23:59:59Z.")
]
StorageOptions = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the object store; may be repeated.")
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


def key_values(strings: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parse ``KEY=VALUE`` strings of an option.  Raises ``InvalidArgumentError``.

    >>> key_values(["region=eu-west-1", "a=b=c"], "--option")
    {'region': 'eu-west-1', 'a': 'b=c'}
    """
    pairs: dict[str, str] = {}
    for string in strings or ():
        key, equals, value = string.partition("=")
        if not equals or not key:
            # Without the value, which may be a secret.
            raise InvalidArgumentError(f"{option} {key!r:.80} has no value", help=f"write {option} KEY=VALUE")
        if pairs.get(key, value) != value:
            raise InvalidArgumentError(f"{option} {key!r:.80} has two values", help="pass it once")
        pairs[key] = value
    return pairs


def opened(
    uri: str,
    format: str | None = None,
    version: int | None = None,
    timestamp: str | None = None,
    options: Sequence[str] | None = None,
) -> Table:
    """Open a table with options as strings."""
    from trilake import api

    parsed = key_values(options, "--option")
    table: Table = api.open(uri, format=format, version=version, timestamp=timestamp, storage_options=parsed)
    return table


def upkeep_of(table: Table) -> Upkeep:
    """The maintenance commands of the table's format."""
    return format_named(table.format).upkeep()
