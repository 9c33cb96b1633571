"""Commands that keep a table in shape, or bring an older version back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trilake.cli.asking import ask, must_be_able_to_ask
from trilake.cli.options import Format, Json, Spark, StorageOptions, Uri
from trilake.cli.output import output
from trilake.cli.tables import not_for, opened
from trilake.common.text import printable, size_text
from trilake.delta.commands.optimize.metrics import as_row
from trilake.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trilake.table.table import Table


def optimize(
    uri: Uri,
    where: Annotated[
        str | None, typer.Option("--where", "-w", metavar="SQL", help="Only partitions for which this is true.")
    ] = None,
    zorder_by: Annotated[
        list[str] | None,
        typer.Option("--zorder-by", metavar="NAME", help="Order rows by this column; may be repeated."),
    ] = None,
    target_size: Annotated[
        int | None, typer.Option("--target-size", min=1, metavar="BYTES", help="Size of a file that is large enough.")
    ] = None,
    target_rows: Annotated[
        int | None, typer.Option("--target-rows", min=1, help="Of Lance: rows of a fragment that is large enough.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Cluster all files again.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Write the files again that hold deleted rows or dropped columns.")
    ] = False,
    format: Format = None,
    option: StorageOptions = None,
    spark: Spark = False,
    json: Json = False,
) -> None:
    """Put rows into fewer, larger or better ordered files, as one commit.

    Of Lance datasets small fragments are joined, and those with many deleted rows are written again.
    """
    table = opened(uri, format, None, None, option)
    if table.format == "lance":
        delta_options = {"--where": where, "--zorder-by": zorder_by, "--target-size": target_size}
        _refuse(table, {**delta_options, "--full": full, "--purge": purge, "--spark": spark})
        facts = _compact(table, target_rows)
    elif table.format == "delta":
        if target_rows is not None:
            raise not_for(table, "--target-rows", "pass --target-size, in bytes")
        if purge:
            _refuse(table, {"--zorder-by with --purge": zorder_by, "--full with --purge": full, "--spark": spark})
            delta: Any = table
            facts = _optimized(delta, delta.purge(where, target_size=target_size))
        else:
            facts = _optimize_delta(table, where, tuple(zorder_by or ()), target_size, full, spark)
        if not json:
            del facts["metrics"]
    else:
        raise not_for(table, "files to optimize", "write the rows again: trilake convert")
    output(json).facts(facts)


def _refuse(table: Table, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise not_for(table, name, "leave it out")


def _optimize_delta(
    table: Any, where: str | None, zorder_by: tuple[str, ...], target_size: int | None, full: bool, spark: bool
) -> dict[str, Any]:
    from trilake.delta.commands.optimize.optimize import OptimizeRequest, optimize

    request = OptimizeRequest(where=where, zorder_by=zorder_by, target_size=target_size, full=full)
    if spark:
        from trilake.cli.spark_jobs import optimize_on_spark

        done = optimize_on_spark(table.log, request)
    else:
        done = optimize(table.log, request)
    return _optimized(table, done)


def _optimized(table: Any, done: Any) -> dict[str, Any]:
    return {
        "uri": table.uri,
        "version": done.version,
        "files_removed": done.files_removed,
        "files_added": done.files_added,
        "bytes_removed": done.metrics.files_removed.total_size,
        "bytes_added": done.metrics.files_added.total_size,
        "metrics": as_row(done.metrics),
    }


def _compact(table: Any, target_rows: int | None) -> dict[str, Any]:
    from trilake.lance.commands.compaction import CompactionOptions, compact

    options = CompactionOptions() if target_rows is None else CompactionOptions(target_rows_per_fragment=target_rows)
    done, metrics = compact(table.snapshot, options)
    return {"uri": table.uri, "version": done.version, **asdict(metrics)}


# --- vacuum ----------------------------------------------------------------------------------------------------------


def vacuum(
    uri: Uri,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files; without it they are only listed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    retention_hours: Annotated[
        float | None,
        typer.Option("--retention-hours", min=0, help="How long what versions no longer need is kept."),
    ] = None,
    lite: Annotated[
        bool, typer.Option("--lite", help="Take the files from the log, without listing the folder.")
    ] = False,
    no_retention_check: Annotated[
        bool, typer.Option("--no-retention-check", help="Allow less than the table's own retention.")
    ] = False,
    format: Format = None,
    option: StorageOptions = None,
    spark: Spark = False,
    json: Json = False,
) -> None:
    """List the files that no version within the retention needs; with --delete, delete them.

    On a terminal --delete asks first; elsewhere it needs --yes. Of Lance datasets, old versions go with their files.
    """
    table = opened(uri, format, None, None, option)
    if delete and not yes:
        must_be_able_to_ask(json)
    if table.format == "lance":
        _refuse(table, {"--lite": lite, "--no-retention-check": no_retention_check, "--spark": spark})
        _clean_lance(table, retention_hours, delete, yes, json)
    elif table.format == "delta":
        how = {"retention_hours": retention_hours, "lite": lite, "enforce_retention": not no_retention_check}
        _vacuum_delta(table, how, delete, yes, spark, json)
    else:
        raise not_for(table, "versions, and so nothing to vacuum", "a write removes what earlier ones left unfinished")


def _vacuum_delta(table: Any, how: dict[str, Any], delete: bool, yes: bool, spark: bool, json: bool) -> None:
    from trilake.delta.commands.maintenance.vacuum import vacuum as run

    runner: dict[str, Any] = {}
    if spark:
        from trilake.cli.spark_jobs import many_runner

        runner = {"run": many_runner(table.log.store)}
    if not delete or not yes:
        plan = run(table.log, dry_run=True, known=table.snapshot, **how)
        if not delete:
            _show(table, plan.files, plan.foreign, plan.size, deleted=False, version=None, json=json)
            return
        _ask(plan.files.num_rows, plan.size, table.uri)
    done = run(table.log, known=table.snapshot, **how, **runner)
    _show(table, done.files, done.foreign, done.size, deleted=True, version=done.version, json=json)


def _show(table: Table, files: Any, foreign: Any, size: int, *, deleted: bool, version: int | None, json: bool) -> None:
    from trilake.cli.values import objects

    out = output(json)
    count = files.num_rows
    verb = "deleted" if deleted else "would be deleted"
    if json:
        listed = {"paths": files["path"].to_pylist(), "foreign": foreign["path"].to_pylist()}
        out.facts({"uri": table.uri, "deleted": deleted, "version": version, "files": count, "size": size, **listed})
        return
    if count:
        rows = ({**row, "size": size_text(row["size"])} for row in objects(files.select(["path", "size"])))
        out.objects(rows, ["path", "size"], numbers=["size"])
    out.note(f"{count:,} files, {size_text(size)}, {verb}")
    if foreign.num_rows:
        out.note(f"{foreign.num_rows:,} files that are not the table's own stay, such as {foreign['path'][0]}")
    if count and not deleted:
        out.note("nothing was deleted: pass --delete for that")


def _ask(files: int, size: int, uri: str) -> None:
    """Ask whether to delete.  Ends the command where the answer is no."""
    if files:
        ask(f"Delete {files:,} files, {size_text(size)}, of {printable(uri)}?")


def _clean_lance(table: Any, retention_hours: float | None, delete: bool, yes: bool, json: bool) -> None:
    import pyarrow as pa

    from trilake.lance.cleanup import cleanup, plan_cleanup

    age = int((14 * 24 if retention_hours is None else retention_hours) * 3_600_000)
    store = table.snapshot.store
    plan = plan_cleanup(store, age, table.snapshot.runtime, error_if_tagged=False)
    gone = [*plan.files, *plan.unfinished, *plan.manifests]
    files = pa.table({"path": pa.array([m.key for m in gone], pa.string()), "size": [m.size for m in gone]})
    size = sum(m.size for m in gone)
    if delete:
        if not yes:
            _ask(len(gone), size, table.uri)
        cleanup(store, age, table.snapshot.runtime, error_if_tagged=False)
    _show(table, files, files.slice(0, 0), size, deleted=delete, version=None, json=json)


# --- restore ---------------------------------------------------------------------------------------------------------


def restore(
    uri: Uri,
    version: Annotated[int | None, typer.Option("--version", "-v", help="Version to bring back.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Bring back the version that was newest then, such as 2024-12-31T23:59:59Z."),
    ] = None,
    ignore_missing: Annotated[
        bool, typer.Option("--ignore-missing", help="Go on where files of the version were deleted.")
    ] = False,
    format: Format = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Bring an older version back, as a new one."""
    if (version is None) == (timestamp is None):
        raise InvalidArgumentError("restore needs --version or --timestamp, one of them")
    table = opened(uri, format, None, None, option)
    if table.format == "delta":
        facts = _restore_delta(table, version, timestamp, ignore_missing)
    elif table.format == "lance":
        if ignore_missing:
            raise not_for(table, "--ignore-missing", "leave it out")
        facts = _restore_lance(opened(uri, format, version, timestamp, option))
    else:
        raise not_for(table, "versions", "nothing can be restored")
    output(json).facts(facts)


def _restore_delta(table: Any, version: int | None, timestamp: str | None, ignore_missing: bool) -> dict[str, Any]:
    done = table.restore(version, timestamp, ignore_missing=ignore_missing)
    return {"uri": table.uri, **asdict(done)}


def _restore_lance(old: Any) -> dict[str, Any]:
    from trilake.lance.pylance.lance_dataset import LanceDataset

    dataset = LanceDataset.of(old.snapshot, old.uri)
    dataset.restore()
    return {"uri": old.uri, "version": dataset.version, "restored_version": old.version}
