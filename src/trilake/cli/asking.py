"""Confirmation prompts before irreversible commands."""

from __future__ import annotations

import sys

import typer

from trilake.cli.exits import Exit
from trilake.errors import InvalidArgumentError


def must_be_able_to_ask(json: bool) -> None:
    """Check that standard input is a terminal.  Raises ``InvalidArgumentError``."""
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise InvalidArgumentError("cannot ask for confirmation without a terminal", help="pass --yes to confirm")


def ask(question: str) -> None:
    """Ask on standard error, and exit if the answer is no."""
    if not typer.confirm(question, err=True):
        print("nothing was done", file=sys.stderr)
        raise typer.Exit(Exit.FAILED)
