"""Commands that verify, repair, maintain or drop a table, or restore an older version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trilake.cli.exits import Exit, in_options
from trilake.cli.options import Format, Json, Spark, StorageOptions, Uri, Version, key_values, opened, upkeep_of
from trilake.cli.output import ask, must_be_able_to_ask, output, printable_lines
from trilake.common.text import format_size, plural, printable
from trilake.errors import InvalidArgumentError
from trilake.table.registry import format_named

if TYPE_CHECKING:
    import pyarrow as pa

    from trilake.table.findings import Findings, Repairs


Depth = Annotated[
    Literal["log", "files", "rows"],
    typer.Option("--depth", help="What to check: the log, the log and the files, or every row too."),
]


def verify(
    uri: Uri,
    depth: Depth = "rows",
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, metavar="FILES", help="Read the rows of at most this many files.")
    ] = None,
    format: Format = None,
    version: Version = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Check the table against the rules of its format; exit with 1 if a rule is broken or cannot be checked."""
    from trilake.tools.verify import verify as run

    verification = run(
        uri,
        version=version,
        depth=depth,
        sample=sample,
        format=format,
        storage_options=key_values(option, "--option"),
    )
    _report(verification, json)


def repair(
    uri: Uri,
    dry_run: Annotated[bool, typer.Option("--dry-run/--run", help="List the steps, or run them.")] = True,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="STEP", help="Run only this step; may be repeated.")
    ] = None,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="Also run steps that lose rows.")] = False,
    depth: Depth = "files",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Run without asking.")] = False,
    format: Format = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """List safe repairs; with --run, run them.

    On a terminal --run asks first; elsewhere it needs --yes.  Exits with 1 if findings remain.
    """
    from trilake.tools.repair import repair as run

    how: dict[str, Any] = {
        "only": only or None,
        "accept_loss": accept_loss,
        "depth": depth,
        "format": format,
        "storage_options": key_values(option, "--option"),
    }
    if not dry_run and not yes:
        must_be_able_to_ask(json)
        plan = run(uri, dry_run=True, **how)
        print(_for_people(plan))
        if plan.steps:
            ask(f"Repair {printable(uri)}?")
    _report(run(uri, dry_run=dry_run, **how), json)


def _report(result: Findings | Repairs, json: bool) -> None:
    if json:
        values = result.to_dict()
        for item in (*values.get("findings", ()), *values.get("left", ()), *values.get("steps", ())):
            for key in {"help", "needs", "error"} & item.keys():
                item[key] = in_options(item[key])
        output(True).facts(values)
    else:
        print(_for_people(result))
    if not result.ok:
        raise typer.Exit(Exit.FINDINGS)


def _for_people(result: object) -> str:
    """The lines for people, with command line options instead of Python arguments."""
    return printable_lines(in_options(str(result)) or "")


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
    full: Annotated[bool, typer.Option("--full", help="Recluster all files.")] = False,
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

    def on_spark() -> Any:
        from trilake.cli.query import session_here

        spark = session_here()
        from trilake.spark.delta.optimize import OptimizeRunner

        return OptimizeRunner(spark)

    table = opened(uri, format, options=option)
    options = OptimizeOptions(
        where=where,
        zorder_by=tuple(zorder_by or ()),
        target_size=target_size,
        target_rows=target_rows,
        full=full,
        purge=purge,
        on_spark=on_spark if spark else None,
    )
    facts = upkeep_of(table).optimize(table, options)
    if not json:
        facts.pop("metrics", None)
    output(json).facts(facts)


def vacuum(
    uri: Uri,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files; without it they are only listed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    retention_hours: Annotated[
        float | None, typer.Option("--retention-hours", min=0, help="Keep unused files for this long.")
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

    def on_spark() -> Any:
        from trilake.cli.query import session_here

        spark = session_here()
        from trilake.spark.delta.maintenance import many_runner

        return many_runner(spark, format_named(table.format).store_of(table), least=64)

    table = opened(uri, format, options=option)
    if delete and not yes:
        must_be_able_to_ask(json)
    upkeep = upkeep_of(table)
    options = VacuumOptions(retention_hours, lite, not no_retention_check, on_spark if spark else None)
    unneeded = upkeep.vacuum(table, options) if delete and yes else upkeep.unneeded(table, options)
    count = unneeded.files.num_rows
    if delete and not yes:
        if count:
            ask(f"Delete {plural(count, 'file')} ({format_size(unneeded.size)}) of {printable(table.uri)}?")
        unneeded = upkeep.vacuum(table, options)
    facts = {"uri": table.uri, "deleted": delete, "version": unneeded.version}
    files = unneeded.files
    _show_files(facts, files, unneeded.size, unneeded.foreign.to_pylist(), json=json, listed=files.num_rows > 0)
    if count and not delete:
        output(json).note("nothing was deleted: pass --delete to delete")


def _show_files(
    facts: dict[str, Any], files: pa.Table, size: int, foreign: list[str], *, json: bool, listed: bool
) -> None:
    """Print the files of a vacuum or drop; ``facts["deleted"]`` says whether they were deleted."""
    from trilake.cli.values import objects

    out = output(json)
    if json:
        paths = files["path"].to_pylist()
        out.facts({**facts, "files": files.num_rows, "size": size, "paths": paths, "foreign": foreign})
        return
    if listed:
        rows = ({**row, "size": format_size(row["size"])} for row in objects(files))
        out.objects(rows, ["path", "size"], numbers=["size"])
    state = "deleted" if facts["deleted"] else "would be deleted"
    out.note(f"{plural(files.num_rows, 'file')} ({format_size(size)}) {state}")
    if foreign:
        out.note(f"kept {plural(len(foreign), 'file')} that do not belong to the table, such as {foreign[0]}")


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

    def run(*, dry: bool, listed: bool) -> None:
        result = drop_table(uri, dry_run=dry, format=format, storage_options=key_values(option, "--option"))
        facts = {"uri": uri, "deleted": not dry}
        _show_files(facts, result.files, result.size, result.foreign["path"].to_pylist(), json=json, listed=listed)

    if dry_run or not yes:
        run(dry=True, listed=True)
    if dry_run:
        return
    if not yes:
        ask(f"Delete the table {printable(uri)} with all its versions?")
    run(dry=False, listed=yes)


def restore(
    uri: Uri,
    version: Annotated[int | None, typer.Option("--version", "-v", help="Version to restore.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Restore the version at this time, such as 2024-12-31T23:59:59Z.")
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
    table = opened(uri, format, options=option)
    facts = upkeep_of(table).restore(table, version, timestamp, ignore_missing=ignore_missing)
    output(json).facts(facts)
