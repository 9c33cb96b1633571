"""The application: its commands and its error handling.

Errors become one line or one JSON object, and an exit code (:mod:`trilake.cli.exits`); there are no tracebacks.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from itertools import takewhile
from types import ModuleType
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from trilake.cli import maintenance, metadata, read, write
from trilake.cli.exits import Exit, Problem
from trilake.cli.output import debugging, output, printable_lines
from trilake.common.text import printable
from trilake.common.version import __version__


class Command(TyperCommand):
    """A command that rejects a repeated single-value option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not ctx.resilient_parsing:
            _, _, present = self.make_parser(ctx).parse_args(args=list(args))
            for param in self.get_params(ctx):
                of_many = getattr(param, "multiple", False) or param.nargs != 1
                same = getattr(param, "is_flag", False) and not param.secondary_opts
                if present.count(param) > 1 and not (of_many or same):
                    ctx.fail(f"Option {'/'.join((*param.opts, *param.secondary_opts))} is given more than once.")
        return super().parse_args(ctx, args)


class Commands(TyperGroup):
    """All commands; errors become exit codes."""

    #: Whether the output is JSON.
    json = False

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **more: Any) -> Any:
        assert not rest  # other parameters are keywords
        arguments = sys.argv[1:] if args is None else list(args)
        self.json = wants_json(arguments)
        if not self.json:
            return super().main(args=arguments, prog_name=prog_name, **more)
        try:
            code = super().main(args=arguments, prog_name=prog_name, **{**more, "standalone_mode": False})
        except TyperException as e:
            message = " ".join(e.format_message().split())
            output(True).problem(Problem("USAGE", message, Exit.USAGE, "trilake --help lists commands and options"))
            code = Exit.USAGE
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        with errors_reported(json=self.json):
            return super().invoke(ctx)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line has ``--json`` among its options.

    >>> wants_json(["info", "t", "--json"]), wants_json(["head", "--", "--json"])
    (True, False)
    """
    return "--json" in takewhile(lambda argument: argument != "--", arguments)


@contextmanager
def errors_reported(*, json: bool) -> Iterator[None]:
    """Report the block's error, and exit with its code."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()  # reports a closed pipe or a full disk
    except (typer.Exit, SystemExit):
        with _pipe_may_close():
            sys.stdout.flush()
        raise
    except (KeyboardInterrupt, typer.Abort):
        with _pipe_may_close():
            if json:
                output(True).problem(Problem("INTERRUPTED", "interrupted", Exit.INTERRUPTED))
            else:
                print("\ninterrupted", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        _forget(sys.stdout)
        raise typer.Exit(Exit.BROKEN_PIPE) from None
    except Exception as e:
        if isinstance(e, TyperException):  # a wrong command line, which typer reports
            raise
        problem = Problem.of(e)
        if debugging():
            print(printable_lines(traceback.format_exc()), file=sys.stderr, end="")
        if isinstance(e, OSError) and sys.stdout is not None:
            try:
                sys.stdout.flush()
            except OSError:  # a failed write: Python would fail again at exit
                _forget(sys.stdout)
        with _pipe_may_close():
            output(json).problem(problem)
        raise typer.Exit(problem.exit) from None


@contextmanager
def _pipe_may_close() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        _forget(sys.stdout)
        _forget(sys.stderr)
        raise typer.Exit(Exit.BROKEN_PIPE) from None


def _forget(stream: Any) -> None:
    with suppress(OSError, ValueError, AttributeError):  # closed, without a file, or None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


_HELP = (
    "Open lakehouse tables from the shell: Delta tables, Lance datasets and Trevni files, on local disks and in"
    " object stores.\n\nEvery command takes --json. Exit codes: 0 done, 1 findings, 2 wrong arguments, 3 failed, 4 no"
    " such table or version, 5 conflict with another writer, 6 damaged, 7 not supported or not installed, 8 storage,"
    " 70 unexpected, 130 interrupted, 141 closed pipe."
)


def _version(requested: bool) -> None:
    if requested:
        print(f"trilake {__version__}")
        raise typer.Exit()


def _global_options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Handle options before the command."""


def application() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="trilake",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=_HELP)(_global_options)
    panels: dict[str, tuple[Callable[..., None], ...]] = {
        "Inspect a table": (
            metadata.info,
            metadata.schema,
            metadata.files,
            metadata.history,
            metadata.log,
            metadata.report,
        ),
        "Read rows": (read.head, read.count, read.explain, read.query, read.changes, read.diff),
        "Write rows": (write.write, write.convert),
        "Maintain a table": (
            maintenance.verify,
            maintenance.repair,
            maintenance.optimize,
            maintenance.vacuum,
            maintenance.restore,
            maintenance.drop,
        ),
    }
    for panel, functions in panels.items():
        for function in functions:
            app.command(cls=Command, rich_help_panel=panel)(function)
    return app


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(f"{record.levelname.lower()}: {record.getMessage()}")


class _WithoutPandas(MetaPathFinder):
    """Hide pandas, which pyarrow would import: a third of the time of a short command."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("commands without --spark need no pandas", name="pandas")


def run() -> NoReturn:
    """Run the command line of this process."""
    if "--spark" not in sys.argv:
        sys.meta_path.insert(0, _WithoutPandas())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for terminals without UTF-8
    handler = logging.StreamHandler()
    handler.setFormatter(_PrintableFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    warnings.showwarning = lambda message, *_, **__: print(printable(f"warning: {message}"), file=sys.stderr)
    application()(prog_name="trilake")
    raise SystemExit(0)
