"""Running a command in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from trilake.cli.app import application


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


def run(*arguments: str | Path, input: bytes | str | None = None) -> Ran:
    """Run a command in this process."""
    done = CliRunner().invoke(application(), [str(a) for a in arguments], input=input, prog_name="trilake")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Ran(done.exit_code, done.stdout, done.stderr)
