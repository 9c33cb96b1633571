"""Commands that maintain a table or restore an older version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trilake.cli.asking import ask, must_be_able_to_ask
from trilake.cli.options import Format, Json, Spark, StorageOptions, Uri
from trilake.cli.output import Output, output
from trilake.cli.tables import key_values, opened, upkeep_of
from trilake.common.text import format_size, plural, printable
from trilake.errors import InvalidArgumentError
from trilake.table.registry import row_named

if TYPE_CHECKING:
    from trilake.table.dropping import DropResult
    from trilake.table.table import Table
    from trilake.table.upkeep import Unneeded


def optimize(
    uri: Uri,
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="SQL", help="Only partitions that match.")
    ] = None,
    zorder_by: Annotated[
        list[str] | None,
        typer.Option("--zorder-by", metavar="NAME", help="Order rows by this column; may be repeated."),
    ] = None,
    target_size: Annotated[
        int | None, typer.Option("--target-size", min=1, metavar="BYTES", help="Target file size.")
    ] = None,
    target_rows: Annotated[
        int | None, typer.Option("--target-rows", min=1, help="Lance only: target rows of fragments.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Cluster all files again.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Rewrite files with deleted rows or dropped columns.")] = False,
    format: Format = None,
    option: StorageOptions = None,
    spark: Spark = False,
    json: Json = False,
) -> None:
    """Rewrite rows into fewer, larger or better ordered files, in one commit.

    In a Lance dataset, combine small fragments, and rewrite those with many deleted rows.
    """
    from trilake.table.upkeep import OptimizeOptions

    table = opened(uri, format, None, None, option)
    options = OptimizeOptions(
        where=where,
        zorder_by=tuple(zorder_by or ()),
        target_size=target_size,
        target_rows=target_rows,
        full=full,
        purge=purge,
        on_spark=_optimize_runner if spark else None,
    )
    facts = upkeep_of(table).optimize(table, options)
    if not json:
        facts.pop("metrics", None)
    output(json).facts(facts)


def _optimize_runner() -> Any:
    from trilake.cli.spark_jobs import optimize_runner

    return optimize_runner()


# --- vacuum ----------------------------------------------------------------------------------------------------------


def vacuum(
    uri: Uri,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files; without it they are only listed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    retention_hours: Annotated[
        float | None,
        typer.Option("--retention-hours", min=0, help="Keep unused files for this long."),
    ] = None,
    lite: Annotated[bool, typer.Option("--lite", help="Find files in the log, without listing the folder.")] = False,
    no_retention_check: Annotated[
        bool, typer.Option("--no-retention-check", help="Allow a shorter retention than the table's.")
    ] = False,
    format: Format = None,
    option: StorageOptions = None,
    spark: Spark = False,
    json: Json = False,
) -> None:
    """List the files that the retained versions do not need; with --delete, delete them.

    On a terminal --delete asks first; elsewhere it needs --yes.  For a Lance dataset it also deletes old versions.
    """
    from trilake.table.upkeep import VacuumOptions

    table = opened(uri, format, None, None, option)
    if delete and not yes:
        must_be_able_to_ask(json)
    upkeep = upkeep_of(table)
    options = VacuumOptions(retention_hours, lite, not no_retention_check, (lambda: _runner(table)) if spark else None)
    if not delete or not yes:
        unneeded = upkeep.unneeded(table, options)
        if not delete:
            _show(table, unneeded, deleted=False, json=json)
            return
        if count := unneeded.files.num_rows:
            ask(f"Delete {plural(count, 'file')}, {format_size(unneeded.size)}, of {printable(table.uri)}?")
    _show(table, upkeep.vacuum(table, options), deleted=True, json=json)


def _runner(table: Table) -> Any:
    from trilake.cli.spark_jobs import many_runner

    return many_runner(row_named(table.format).load().store_of(table))


def _show(table: Table, unneeded: Unneeded, *, deleted: bool, json: bool) -> None:
    from trilake.cli.values import objects

    out = output(json)
    files, foreign = unneeded.files, unneeded.foreign.to_pylist()
    count = files.num_rows
    if json:
        facts = {"uri": table.uri, "deleted": deleted, "version": unneeded.version, "files": count}
        out.facts({**facts, "size": unneeded.size, "paths": files["path"].to_pylist(), "foreign": foreign})
        return
    if count:
        rows = ({**row, "size": format_size(row["size"])} for row in objects(files))
        out.objects(rows, ["path", "size"], numbers=["size"])
    out.note(f"{plural(count, 'file')}, {format_size(unneeded.size)}, {_deleted(deleted)}")
    _note_foreign(out, foreign)
    if count and not deleted:
        out.note("nothing was deleted: pass --delete to delete")


# --- drop ------------------------------------------------------------------------------------------------------------


def drop(
    uri: Uri,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    format: Format = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Delete a table with all its versions.

    On a terminal the files are listed and the command asks first; elsewhere it needs --yes or --dry-run.
    """
    from trilake.tools.drop import drop as drop_table

    if not dry_run and not yes:
        must_be_able_to_ask(json)
    options, format_name = key_values(option, "--option"), None if format is None else str(format)
    lists_first = dry_run or not yes
    if lists_first:
        _show_drop(uri, drop_table(uri, dry_run=True, format=format_name, storage_options=options), json=json)
    if dry_run:
        return
    if not yes:
        ask(f"Delete the table {printable(uri)} with all its versions?")
    _show_drop(uri, drop_table(uri, format=format_name, storage_options=options), json=json, list_files=not lists_first)


def _show_drop(uri: str, result: DropResult, *, json: bool, list_files: bool = True) -> None:
    from trilake.cli.values import objects

    out = output(json)
    files, foreign = result.files, result.foreign["path"].to_pylist()
    if json:
        facts = {"uri": uri, "deleted": not result.dry_run, "files": files.num_rows, "size": result.size}
        out.facts({**facts, "paths": result.paths, "foreign": foreign})
        return
    if list_files:
        rows = ({**row, "size": format_size(row["size"])} for row in objects(files))
        out.objects(rows, ["path", "size"], numbers=["size"])
    out.note(f"{plural(files.num_rows, 'file')}, {format_size(result.size)}, {_deleted(not result.dry_run)}")
    _note_foreign(out, foreign)


def _deleted(deleted: bool) -> str:
    return "deleted" if deleted else "would be deleted"


def _note_foreign(out: Output, foreign: list[str]) -> None:
    if foreign:
        out.note(f"kept {plural(len(foreign), 'file')} that do not belong to the table, such as {foreign[0]}")


# --- restore ---------------------------------------------------------------------------------------------------------


def restore(
    uri: Uri,
    version: Annotated[int | None, typer.Option("--version", "-v", help="Version to restore.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Restore the version of this time, such as 2024-12-31T23:59:59Z."),
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Continue if files of the version are missing.")
    ] = False,
    format: Format = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Restore an older version in a new commit."""
    if (version is None) == (timestamp is None):
        raise InvalidArgumentError("restore needs a version or a timestamp", help="pass --version or --timestamp")
    table = opened(uri, format, None, None, option)
    facts = upkeep_of(table).restore(table, version, timestamp, ignore_missing=ignore_missing)
    output(json).facts(facts)
