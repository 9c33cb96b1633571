"""The command that makes a report of a table."""

from __future__ import annotations

from typing import Annotated

import typer

from trilake.cli.options import Format, Json, StorageOptions, Timestamp, Uri, Version
from trilake.cli.output import output
from trilake.cli.tables import key_values


def report(
    uri: Uri,
    file: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the page is to be.")
    ] = "report.html",
    verify: Annotated[
        bool | None, typer.Option("--verify/--no-verify", help="Whether promises are checked; not for very many files.")
    ] = None,
    format: Format = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: StorageOptions = None,
    json: Json = False,
) -> None:
    """Write a page about a table: versions, files, columns, findings, and what to do; it needs no network."""
    from trilake.reporting.run import report as run

    made = run(
        uri,
        file,
        verify=verify,
        format=None if format is None else str(format),
        version=version,
        timestamp=timestamp,
        storage_options=key_values(option, "--option"),
    )
    advice = [{"title": a.title, "estimate": a.estimate, "command": a.command, "weight": a.weight} for a in made.advice]
    out = output(json)
    if json:
        out.facts({"uri": made.uri, "file": file, "size": len(made.html.encode()), "advice": advice})
        return
    out.facts({"uri": made.uri, "file": file})
    if advice:
        out.objects(advice, ["weight", "title", "estimate", "command"])
