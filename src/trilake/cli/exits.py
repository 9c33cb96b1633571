"""Exit codes, and the errors that lead to each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from trilake import errors


class Exit(IntEnum):
    """The exit codes of every command; docs/cli.md explains them."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    FAILED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    DAMAGED = 6
    UNSUPPORTED = 7
    STORAGE = 8
    UNEXPECTED = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


#: The first matching class decides.
_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (errors.TableNotFoundError, Exit.NOT_FOUND),
    (errors.VersionNotFoundError, Exit.NOT_FOUND),
    (errors.MissingFileError, Exit.DAMAGED),
    (errors.ObjectNotFoundError, Exit.NOT_FOUND),
    (errors.ConflictError, Exit.CONFLICT),
    (errors.CorruptLogError, Exit.DAMAGED),
    (errors.CorruptFileError, Exit.DAMAGED),
    (errors.ChecksumMismatchError, Exit.DAMAGED),
    (errors.MissingDependencyError, Exit.UNSUPPORTED),
    (errors.UnsupportedExpressionError, Exit.UNSUPPORTED),
    (errors.UnsupportedFileError, Exit.UNSUPPORTED),
    (errors.UnsupportedProtocolError, Exit.UNSUPPORTED),
    (errors.UnsupportedSparkError, Exit.UNSUPPORTED),
    (errors.StorageError, Exit.STORAGE),
    (errors.ClockError, Exit.STORAGE),
    (errors.InvalidArgumentError, Exit.USAGE),
    (errors.TrilakeError, Exit.FAILED),
    (OSError, Exit.STORAGE),
)

#: Python arguments in help messages, and the corresponding options.
_OPTIONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"enforce_retention=False(?: \(on Spark [^)]*\))?"), "--no-retention-check"),
    (re.compile(r"\baccept_loss(?:=True)?"), "--accept-loss"),
    (re.compile(r"nothing was changed: pass dry_run=False"), "nothing was changed: pass --run"),
    (re.compile(r"\btrilake\.(repair|verify|write)\b"), r"trilake \1"),
    (re.compile(r"partition_by=\[\]"), "--no-partitions"),
    (re.compile(r"columns=\[…\]"), "--column"),
    (re.compile(r"ignore_missing=True"), "--ignore-missing"),
    (re.compile(r'\b(nulls)="(\w+)"'), r"--property \1=\2"),
    (re.compile(r'\bschema_mode="(\w+)"'), r"--schema-mode \1"),
    (re.compile(r'\b(format|mode)="(\w+)"'), r"--\1 \2"),
)
_DEBUG = "set TRILAKE_DEBUG=1 and run it again for a traceback"


@dataclass(frozen=True)
class Problem:
    """Why a command failed."""

    code: str
    message: str
    exit: Exit
    help: str | None = None
    context: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        """The problem for an error.

        >>> Problem.of(errors.TableNotFoundError("no table", file="x")).exit.name
        'NOT_FOUND'
        >>> Problem.of(ZeroDivisionError("division by zero")).message
        'unexpected ZeroDivisionError: division by zero'
        """
        code = next((c for kind, c in _CODES if isinstance(error, kind)), Exit.UNEXPECTED)
        if isinstance(error, errors.TrilakeError):
            return cls(error.code, error.message, code, in_options(error.help), dict(error.context))
        string = errors.masked(str(error))
        if isinstance(error, OSError):
            return cls("OS", string, code)
        message = f"unexpected {type(error).__name__}" + (f": {string}" if string else "")
        return cls("UNEXPECTED", message, code, _DEBUG)

    def as_object(self) -> dict[str, Any]:
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "help": self.help,
                "context": {k: v if isinstance(v, int | float | str) else str(v) for k, v in self.context.items()},
                "exit_code": int(self.exit),
            }
        }


def in_options(help: str | None) -> str | None:
    """Replace Python arguments in a help message with command line options.

    >>> in_options('pass mode="append" to write into it, or partition_by=[]')
    'pass --mode append to write into it, or --no-partitions'
    """
    for argument, option in _OPTIONS if help else ():
        help = argument.sub(option, help or "")
    return help
