"""Commands that write rows: from files and standard input, and from one format to another."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trilake.cli.options import (
    Columns,
    Filter,
    InputFormat,
    Json,
    PartitionBy,
    Properties,
    Spark,
    StorageOptions,
    Timestamp,
    Uri,
    Version,
    format_option,
    key_values,
)
from trilake.cli.output import output
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.table.registry import DEFAULT, format_named

if TYPE_CHECKING:
    import pyarrow as pa


_Mode = Literal["error", "append", "overwrite", "ignore"]
WriteMode = Annotated[
    _Mode, typer.Option("--mode", "-m", help="If the table exists: fail, append, overwrite, or do nothing.")
]


def write(
    uri: Uri,
    files: Annotated[
        list[str] | None, typer.Argument(help="Files to read; - or nothing for standard input.", show_default=False)
    ] = None,
    from_format: Annotated[
        InputFormat | None, typer.Option("--from", help="Format of the rows; detected by default.")
    ] = None,
    mode: WriteMode = "error",
    format: Annotated[str | None, format_option(f"Format of a new table; {DEFAULT} by default.")] = None,
    partition_by: PartitionBy = None,
    property: Properties = None,
    type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="COLUMN=TYPE", help="SQL type of a column of CSV or JSON; may be repeated."),
    ] = None,
    replace_where: Annotated[
        str | None, typer.Option("--replace-where", metavar="SQL", help="With overwrite: replace only rows that match.")
    ] = None,
    schema_mode: Annotated[
        Literal["merge", "overwrite"] | None,
        typer.Option("--schema-mode", help="Add new columns, or replace the schema."),
    ] = None,
    delimiter: Annotated[str | None, typer.Option("--delimiter", help="CSV delimiter; a comma by default.")] = None,
    header: Annotated[bool, typer.Option("--header/--no-header", help="Whether CSV starts with column names.")] = True,
    null: Annotated[str, typer.Option("--null", help="Unquoted string that CSV uses for null.")] = "",
    user_metadata: Annotated[
        str | None, typer.Option("--user-metadata", help="Comment to record in the history.")
    ] = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Write rows from CSV, JSON, Parquet or Arrow files, or standard input, to a table, in one commit.

    CSV and JSON columns get the types of an existing table, or inferred ones.
    """
    from trilake import api
    from trilake.cli.sources import STDIN, Reading, open_rows

    options = key_values(option, "--option")
    places = files or [STDIN]
    if places.count(STDIN) > 1:
        raise InvalidArgumentError("standard input can only be read once", help="pass - once")
    if STDIN in places and sys.stdin is not None and sys.stdin.isatty():
        raise InvalidArgumentError(
            "expected rows on standard input, but it is a terminal",
            help="pass files, or pipe rows into the command; to type rows, run cat | trilake write ...",
        )
    existing = None
    with suppress(TableNotFoundError):
        existing = api.open(uri, format=format, storage_options=options)
    format = format or (DEFAULT if existing is None else existing.format)
    types = {} if existing is None or schema_mode == "overwrite" else {f.name: f.type for f in existing.schema}
    column_types = {name: _arrow_type(string) for name, string in key_values(type, "--type").items()}
    column_names = () if format_named(format).fills_columns else tuple(types)
    reading = Reading(from_format, types | column_types, tuple(column_types), delimiter, header, null, column_names)
    result = api.write(
        open_rows(places, reading, options),
        uri,
        mode=mode,
        format=format,
        partition_by=partition_by or None,
        properties=key_values(property, "--property") or None,
        replace_where=replace_where,
        schema_mode=schema_mode,
        user_metadata=user_metadata,
        storage_options=options,
    )
    names = ("version", "rows_added", "files_added", "files_removed", "bytes_added")
    output(json).facts({"uri": uri, "format": format, **{name: getattr(result, name) for name in names}})


def _arrow_type(string: str) -> pa.DataType:
    from trilake.delta.protocol.schema import StructField, StructType
    from trilake.delta.protocol.sql_types import parse_sql_type

    kind, _ = parse_sql_type(string)
    return StructType((StructField("", kind),)).to_arrow_schema().field(0).type


#: The format of ``convert`` that brings the Iceberg metadata of a Delta table up to date.
_ICEBERG = "iceberg-metadata"


def convert(
    source: Annotated[str, typer.Argument(help="Table, or folder of Parquet files, to read.")],
    to: Annotated[
        str,
        format_option(
            f"Format of the target; {_ICEBERG} adds the metadata of an Iceberg table.", "--to", "parquet", _ICEBERG
        ),
    ],
    target: Annotated[
        str | None, typer.Argument(help=f"Table or folder to write; omit it with --to {_ICEBERG}.")
    ] = None,
    source_format: Annotated[
        str | None, format_option("Format of the source; detected by default.", "--from", "parquet")
    ] = None,
    mode: Annotated[
        _Mode,
        typer.Option(
            "--mode", "-m", metavar="error|append|overwrite", help="If the target exists: fail, append, or overwrite."
        ),
    ] = "error",
    column: Columns = None,
    filter: Filter = None,
    partition_by: PartitionBy = None,
    no_partitions: Annotated[bool, typer.Option("--no-partitions", help="Do not partition the target.")] = False,
    property: Properties = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    target_option: Annotated[
        list[str] | None,
        typer.Option("--target-option", metavar="KEY=VALUE", help="Option of the target's store, if it differs."),
    ] = None,
    spark: Spark = False,
    json: Json = False,
) -> None:
    """Copy rows to another format, verified by reading them back before they become visible."""
    from trilake.tools.convert import convert as run

    if (target is None) != (to == _ICEBERG):
        message = f"--to {to} {'does not take' if target else 'needs'} a target"
        raise InvalidArgumentError(message, help=f"pass {'one location' if target else 'two locations'}")
    if target is None:
        from trilake.api.definitions import sync_iceberg

        iceberg_version = sync_iceberg(source, storage_options=key_values(option, "--option"))
        output(json).facts({"source": source, "format": _ICEBERG, "source_version": iceberg_version})
        return
    if mode == "ignore":
        raise InvalidArgumentError("convert does not support --mode ignore", help="pass error, append or overwrite")
    if no_partitions and partition_by:
        raise InvalidArgumentError(
            "--no-partitions and --partition-by cannot be used together", help="pass one of them"
        )
    session = None
    if spark:
        from trilake.cli.query import session_here

        session = session_here()
    result = run(
        source,
        target,
        format=to,
        spark=session,
        source_format=source_format,
        version=version,
        timestamp=timestamp,
        columns=column or None,
        filter=filter,
        mode=mode,
        partition_by=[] if no_partitions else (partition_by or None),
        options=key_values(property, "--property"),
        storage_options=key_values(option, "--option"),
        target_storage_options=key_values(target_option, "--target-option") if target_option else None,
    )
    names = ("source", "source_format", "source_version", "target", "format", "version", "rows", "files", "bytes")
    facts = {name: getattr(result, name) for name in names}
    output(json).facts({**facts, "checksum": str(result.checksum), "verified": result.verified})
