"""Commands that read rows, and compare versions and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trilake.cli.exits import Exit
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
    upkeep_of,
)
from trilake.cli.output import output, printable_lines
from trilake.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trilake.table.comparison.result import TableDiff


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


def changes(
    uri: Uri,
    start: Annotated[str, typer.Option("--from", help="First version, or a time.")] = "0",
    end: Annotated[str | None, typer.Option("--to", help="Last version, or a time; the newest by default.")] = None,
    column: Columns = None,
    format: Format = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show the change data feed: which rows each version inserted, updated and deleted."""
    table = opened(uri, format, options=option)
    first, last = (int(m) if m is not None and m.isdecimal() else m for m in (start, end))
    output(json).rows(*upkeep_of(table).changes(table, first or 0, last, column or None))


def diff(
    uri: Uri,
    before: Annotated[
        int | None, typer.Argument(min=0, help="Older version; with --to, the newest by default.")
    ] = None,
    after: Annotated[int | None, typer.Argument(min=0, help="Newer version; the newest by default.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URI", help="Compare with this table; AFTER is a version of it.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", metavar="NAME", help="Key column that identifies a row; may be repeated."),
    ] = None,
    column: Columns = None,
    filter: Filter = None,
    no_rows: Annotated[bool, typer.Option("--no-rows", help="Compare only schema, properties and files.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows of each kind to show.")] = 20,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if they differ.")] = False,
    format: Format = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show the differences between two versions or two tables: columns, properties, files and rows.

    Compares whole rows, or rows by --key.  Files may differ even if rows do not.
    """
    from trilake.tools.diff import diff as compare

    if to is None and before is None:
        raise InvalidArgumentError(
            "diff needs a version or another table",
            help="pass a version, as in `trilake diff URI 3`, or the other table with --to",
        )
    if to is not None and format is not None:
        raise InvalidArgumentError("--format cannot be used with --to", help="leave --format out")
    difference = compare(
        uri,
        to,
        before_version=before,
        after_version=after,
        key=key or None,
        columns=column or None,
        filter=filter,
        rows=not no_rows,
        limit=limit,
        format=format,
        storage_options=key_values(option, "--option"),
    )
    out, rows = output(json), difference.rows
    if json:
        out.facts(_json_object(difference))
    else:
        print(printable_lines(str(difference)))
    if rows is not None and not json:
        for title, total, table in (
            ("rows added", rows.added, rows.added_rows),
            ("rows removed", rows.removed, rows.removed_rows),
            ("rows changed", 2 * rows.changed, rows.changed_rows),
        ):
            if table.num_rows:
                out.note(title + (f", {table.num_rows:,} of {total:,}:" if table.num_rows < total else ":"))
                out.rows(table.schema, table.to_batches())
    if exit_code and not difference.equal:
        raise typer.Exit(Exit.FINDINGS)


def _json_object(difference: TableDiff) -> dict[str, Any]:
    from trilake.cli.values import objects

    whole = difference.to_dict()
    for name in ("added", "removed"):
        whole["files"][name] = list(objects(getattr(difference.files, name)))
    if difference.rows is not None:
        for name in ("added_rows", "removed_rows", "changed_rows"):
            whole["rows"][name] = list(objects(getattr(difference.rows, name)))
    return whole
