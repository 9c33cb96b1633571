"""Commands that describe a table by its metadata, without reading rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trilake.cli.options import (
    Filter,
    Format,
    Json,
    StorageOptions,
    Timestamp,
    Uri,
    Version,
    key_values,
    opened,
    upkeep_of,
)
from trilake.cli.output import output
from trilake.common.text import format_size

if TYPE_CHECKING:
    from trilake.table.table import Table

Limit = Annotated[int, typer.Option("--limit", "-n", min=0, help="How many to show; 0 for all.")]


def info(
    uri: Uri,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show format, version, rows, files, size, partitioning, protocol and properties of a table."""
    facts = table_facts(opened(uri, format, version, timestamp, option))
    if not json:
        facts["size"] = f"{format_size(facts['size'])} ({facts['size']:,} bytes)"
        for name in ("rows", "files", "deleted_rows"):
            if isinstance(facts.get(name), int):
                facts[name] = f"{facts[name]:,}"
    output(json).facts(facts)


def table_facts(table: Table) -> dict[str, Any]:
    """Facts about a table as JSON values; ``rows`` is ``None`` if the metadata has no count."""
    import pyarrow as pa

    from trilake.cli.values import python_values

    def plain(value: Any) -> Any:
        return python_values(pa.array([value], value.type))[0] if isinstance(value, pa.Scalar) else value

    return {name: plain(value) for name, value in upkeep_of(table).facts(table).items()}


def schema(
    uri: Uri,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show the columns: name, type, nullability and role."""
    table = opened(uri, format, version, timestamp, option)
    columns = upkeep_of(table).columns(table)
    rows = (row if json else {k: "" if v is None else v for k, v in row.items()} for row in columns)
    output(json).objects(rows, ["name", "type", "nullable", "role", "comment"])


def files(
    uri: Uri,
    filter: Filter = None,
    limit: Limit = 0,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """List the data files of a version; with --filter, only those that may have a matching row."""
    from trilake.cli.values import objects

    matching_files = opened(uri, format, version, timestamp, option).files(filter)
    listed_files = matching_files.slice(0, limit) if limit else matching_files
    out = output(json)
    rows = (_file(row, json) for batch in listed_files.to_batches(max_chunksize=1000) for row in objects(batch))
    out.objects(
        rows,
        ["path", "size", "num_records", "partition_values", "deleted_rows"],
        numbers=["size", "num_records", "deleted_rows"],
    )
    if listed_files.num_rows < matching_files.num_rows:
        out.note(f"{listed_files.num_rows:,} of {matching_files.num_rows:,} files")


def _file(row: dict[str, Any], json: bool) -> dict[str, Any]:
    values = {p["key"]: p["value"] for p in row["partition_values"] or ()}
    if json:
        return {**row, "partition_values": values}
    vector = row.get("deletion_vector")
    deleted = vector.get("cardinality") if isinstance(vector, dict) else vector
    pairs = ", ".join(f"{k}={'null' if v is None else v}" for k, v in values.items())
    shown = {"size": format_size(row["size"]), "deleted_rows": "" if deleted is None else deleted}
    return {**row, **shown, "partition_values": pairs}


def history(
    uri: Uri,
    limit: Limit = 0,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """List the versions, newest first: time, user and operation."""
    from trilake.cli.values import objects

    table = opened(uri, format, version, timestamp, option)
    commits = table.history(limit or None)
    rows = (_commit(row, json) for batch in commits.to_batches(max_chunksize=1000) for row in objects(batch))
    names = ["version", "timestamp", "operation"]
    optional = [n for n in ("num_rows", "userName", "operationParameters", "userMetadata") if n in commits.column_names]
    names += [n for n in optional if commits[n].null_count < commits.num_rows]
    out = output(json)
    out.objects(rows, names, numbers=["version", "num_rows"])
    if table.version is None:
        out.note(f"{table.format.title()} tables have no versions")


def _commit(row: dict[str, Any], json: bool) -> dict[str, Any]:
    for name in ("operationParameters", "operationMetrics"):
        if row.get(name) is not None:
            row[name] = {p["key"]: p["value"] for p in row[name]}
    if not json and row.get("operationParameters") is not None:
        row["operationParameters"] = ", ".join(f"{k}={v}" for k, v in row["operationParameters"].items())
    return row


def log(
    uri: Uri,
    start: Annotated[int | None, typer.Option("--from", min=0, help="Oldest version to show.")] = None,
    end: Annotated[int | None, typer.Option("--to", min=0, help="Newest version to show.")] = None,
    limit: Limit = 10,
    actions: Annotated[int, typer.Option("--actions", min=0, help="Actions to show per version; 0 for all.")] = 20,
    format: Format = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Show the log, action by action, newest version first; with --json, each action as stored."""
    from trilake.cli.values import log_lines

    table = opened(uri, format, options=option)
    entries = upkeep_of(table).log(table, start, end, limit)
    if json:
        output(json).objects(entries, [])
    else:
        for line in log_lines(entries, actions):
            print(line)


def report(
    uri: Uri,
    file: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="File to write.")] = "report.html",
    verify: Annotated[
        bool | None,
        typer.Option("--verify/--no-verify", help="Verify the metadata; on by default, except for very many files."),
    ] = None,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Write an HTML report about a table: versions, files, columns, findings and advice."""
    from trilake.tools.report.run import report as run

    page = run(
        uri,
        file,
        verify=verify,
        format=format,
        version=version,
        timestamp=timestamp,
        storage_options=key_values(option, "--option"),
    )
    advice = [{"title": a.title, "estimate": a.estimate, "command": a.command, "weight": a.weight} for a in page.advice]
    out = output(json)
    if json:
        out.facts({"uri": page.uri, "file": file, "size": len(page.html.encode()), "advice": advice})
        return
    out.facts({"uri": page.uri, "file": file})
    if advice:
        out.objects(advice, ["weight", "title", "estimate", "command"])
