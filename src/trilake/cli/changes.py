"""Commands that compare versions and tables: ``changes`` and ``diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trilake.cli.exits import Exit
from trilake.cli.options import Columns, Filter, Format, Json, StorageOptions, Uri, key_values, opened, upkeep_of
from trilake.cli.output import output, printable_lines
from trilake.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trilake.table.comparison.result import TableDiff


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
        for title, count, table in (
            ("rows added", rows.added, rows.added_rows),
            ("rows removed", rows.removed, rows.removed_rows),
            ("rows changed", 2 * rows.changed, rows.changed_rows),
        ):
            if table.num_rows:
                out.note(title + (f", {table.num_rows:,} of {count:,}:" if table.num_rows < count else ":"))
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
