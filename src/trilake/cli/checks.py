"""Commands that verify and repair tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trilake.cli.exits import Exit, in_options
from trilake.cli.options import Format, Json, StorageOptions, Uri, Version, key_values
from trilake.cli.output import ask, must_be_able_to_ask, output, printable_lines
from trilake.common.text import printable

if TYPE_CHECKING:
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
        output(True).facts(_for_shell(result.to_dict()))
    else:
        print(_for_people(result))
    if not result.ok:
        raise typer.Exit(Exit.FINDINGS)


def _for_people(result: object) -> str:
    """The lines for people, with command line options instead of Python arguments."""
    return printable_lines(in_options(str(result)) or "")


def _for_shell(values: dict[str, Any]) -> dict[str, Any]:
    for item in (*values.get("findings", ()), *values.get("left", ()), *values.get("steps", ())):
        for key in {"help", "needs", "error"} & item.keys():
            item[key] = in_options(item[key])
    return values
