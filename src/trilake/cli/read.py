"""Commands that read rows."""

from __future__ import annotations

from typing import Annotated

import typer

from trilake.cli.options import (
    Columns,
    Filter,
    Format,
    Json,
    Spark,
    StorageOptions,
    Timestamp,
    Uri,
    Version,
    key_values,
    opened,
)
from trilake.cli.output import output, printable_lines


def head(
    uri: Uri,
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="How many rows.")] = 10,
    column: Columns = None,
    filter: Filter = None,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show a few rows, in undefined order."""
    first_rows = opened(uri, format, version, timestamp, option).limit(rows, column or None, filter)
    output(json).rows(first_rows.schema, first_rows.to_batches())


def count(
    uri: Uri,
    filter: Filter = None,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Count the rows, from the metadata if that is exact."""
    table = opened(uri, format, version, timestamp, option)
    output(json).value("count", table.count(filter), uri=table.uri, version=table.version, filter=filter)


def explain(
    uri: Uri,
    filter: Filter = None,
    all_files: Annotated[bool, typer.Option("--files", help="List all files instead of one per reason.")] = False,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show which files a filter reads and skips, and why."""
    from trilake.cli.values import objects

    explanation = opened(uri, format, version, timestamp, option).explain(filter)
    out = output(json)
    if all_files and not json:
        rows = [{**row, "kept": "keep" if row["kept"] else "skip"} for row in objects(explanation.files)]
        out.objects(rows, ["kept", "path", "reason"])
        return
    if json:
        facts = {"filter": explanation.filter, "notes": list(explanation.notes)}
        out.facts({**facts, "files": list(objects(explanation.files))})
    else:
        print(printable_lines(str(explanation)))


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT; tables are named by path: SELECT * FROM '/data/t'.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", metavar="NAME=PATH", help="Name for a table; may be repeated.")
    ] = None,
    option: StorageOptions = None,
    spark: Spark = False,
    json: Json = False,
) -> None:
    """Run DuckDB SQL over tables of any format, without Spark; with --spark, Spark SQL.

    Paths may end in @v3 for a version.
    """
    from trilake.cli.query import query_on_spark, run_query

    tables, options = key_values(table, "--table"), key_values(option, "--option")
    output(json).rows(*(query_on_spark if spark else run_query)(sql, tables, options))
