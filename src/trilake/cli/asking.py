"""Confirmation prompts before irreversible commands."""

from __future__ import annotations

import sys

import typer

from trilake.cli.exits import Exit
from trilake.errors import InvalidArgumentError


def must_be_able_to_ask(json: bool) -> None:
    """See that there is someone to ask.  Raises ``InvalidArgumentError``."""
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise InvalidArgumentError(
            "there is no terminal to ask on", help="pass --yes to go on without a question, or look first, without it"
        )


def ask(question: str) -> None:
    """Ask on standard error, and end the command where the answer is no."""
    if not typer.confirm(question, err=True):
        print("nothing was done", file=sys.stderr)
        raise typer.Exit(Exit.FAILED)
