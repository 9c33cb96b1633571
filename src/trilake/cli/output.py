"""``Output``: how commands print, for people or as JSON, and how they ask for confirmation.

Results go to standard output, messages to standard error.  Tables fit a terminal's width; in a pipe each row is one
line without colours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import typer

from trilake.cli.exits import Exit, Problem
from trilake.common.text import plural, printable
from trilake.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.table import Table

#: Rows formatted together; the first ones determine column widths.
_CHUNK = 1000
#: Most characters of a cell on a terminal, and the minimum width of a readable column.
_CELL, _NARROW = 2000, 8
#: Width without a terminal, so that lines never wrap.
_ENDLESS = 1 << 20


def output(json: bool) -> Output:
    """The output for people, or as JSON."""
    return JsonOutput() if json else Output()


def debugging() -> bool:
    """Whether ``TRILAKE_DEBUG`` is set."""
    return os.environ.get("TRILAKE_DEBUG", "").strip().lower() not in ("", "0", "false", "no", "off")


def printable_lines(string: str) -> str:
    r"""Like :func:`trilake.common.text.printable`, but keep line ends.

    >>> printable_lines("a\nb\x07")
    'a\nb\\x07'
    """
    return "\n".join(map(printable, string.split("\n")))


def must_be_able_to_ask(json: bool) -> None:
    """Check that standard input is a terminal.  Raises ``InvalidArgumentError``."""
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise InvalidArgumentError("cannot ask for confirmation without a terminal", help="pass --yes to confirm")


def ask(question: str) -> None:
    """Ask on standard error, and exit if the answer is no."""
    if not typer.confirm(question, err=True):
        print("nothing was done", file=sys.stderr)
        raise typer.Exit(Exit.FAILED)


def console(*, error: bool = False) -> Console:
    """A console without markup, emoji codes or highlighting."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    printer = Console(file=stream, markup=False, emoji=False, highlight=False)
    if not printer.is_terminal:
        printer.width = _ENDLESS
    return printer


class Output:
    """The output of a command, as tables and lines for people."""

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Print properties; values are JSON values."""
        table = _grid()
        for name, value in facts.items():
            if value is None or value in ([], {}):
                continue
            for n, line in enumerate(_fact_lines(value)):
                table.add_row(printable(name.replace("_", " ")) if n == 0 else "", line)
        self._lay_out(table)

    def objects(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], numbers: Sequence[str] = ()) -> None:
        """Print records, such as files; for people only ``columns``, with ``numbers`` right-aligned."""
        right = [name in numbers for name in columns]
        self._tables(list(columns), right, ([row.get(name) for name in columns] for row in rows))

    def rows(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Print rows of a table."""
        import pyarrow.types as pt

        from trilake.cli.values import python_values

        right = [pt.is_integer(t) or pt.is_floating(t) or pt.is_decimal(t) for t in schema.types]

        def values() -> Iterator[Sequence[Any]]:
            for part in _chunks(batches):
                columns = [python_values(column) for column in part.columns]
                yield from zip(*columns, strict=True) if columns else [()] * part.num_rows

        self._tables(schema.names, right, values())

    def value(self, name: str, value: Any, **more: Any) -> None:
        """Print a value; JSON also has ``more``."""
        from trilake.cli.values import cell

        print(cell(value))

    def note(self, message: str) -> None:
        """Print a remark for people."""
        console(error=True).print(printable(message), style="dim", soft_wrap=True)

    def problem(self, problem: Problem) -> None:
        """Print why the command failed."""
        where = ", ".join(f"{k.replace('_', ' ')}: {v}" for k, v in problem.context.items())
        out = console(error=True)
        message = f"[{problem.code}] {problem.message}" + (f" ({where})" if where else "")
        out.print(_labelled("error", "bold red", message), soft_wrap=True)
        if problem.help:
            out.print(_labelled("help", "bold green", problem.help), soft_wrap=True)

    def _tables(self, names: list[str], right: list[bool], rows: Iterator[Sequence[Any]]) -> None:
        from rich import box
        from rich.table import Table

        if not names:
            print(f"{plural(sum(1 for _ in rows), 'row')} without columns")
            return
        out = console()
        if out.is_terminal and len(names) * _NARROW > out.width and len(names) > 2:
            self._records(names, rows)
            return
        first = list(islice(rows, _CHUNK))
        widths = [0] * len(names)
        for chunk in chain([first], iter(lambda: list(islice(rows, _CHUNK)), [])):
            cells = [[_cell(v, out.is_terminal) for v in row] for row in chunk]
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
            table.show_header = chunk is first
            for i, name in enumerate(names):
                table.add_column(
                    printable(name),
                    justify="right" if right[i] else "left",
                    overflow="fold",
                    no_wrap=not out.is_terminal,
                    min_width=widths[i] or None,
                )
            for row in cells:
                table.add_row(*row)
            if chunk is first:
                widths = [_width(name, i, cells) for i, name in enumerate(names)]
                if out.is_terminal and sum(widths) > out.width:
                    widths = [0] * len(names)  # the table folds what does not fit
            self._lay_out(table)

    def _records(self, names: list[str], rows: Iterator[Sequence[Any]]) -> None:
        """Print each row as a block, if the columns do not fit."""
        for number, row in enumerate(rows, 1):
            console().print(f"row {number}", style="bold", soft_wrap=True)
            table = _grid()
            for name, value in zip(names, row, strict=True):
                table.add_row(f"  {printable(name)}", _cell(value, True))
            self._lay_out(table)

    def _lay_out(self, table: Table) -> None:
        out = console()
        if out.is_terminal:
            out.print(table)
            return
        with out.capture() as captured:
            out.print(table)
        # No padding after the last column.
        for line in captured.get().splitlines():
            print(line.rstrip(" "))


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from (batch.slice(start, _CHUNK) for start in range(0, batch.num_rows, _CHUNK))


def _labelled(label: str, style: str, string: str) -> Any:
    from rich.text import Text

    return Text.assemble((f"{label}: ", style), printable(string))


def _grid() -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    return table


def _cell(value: Any, terminal: bool) -> Any:
    from rich.text import Text

    from trilake.cli.values import cell

    if value is None:
        return Text("null", style="dim")
    string = cell(value)
    if terminal and len(string) > _CELL:
        string = f"{string[:_CELL]}… and {len(string) - _CELL:,} more characters"
    return Text(string)


def _width(name: str, column: int, cells: list[list[Any]]) -> int:
    from rich.cells import cell_len

    return max([cell_len(printable(name)), *(int(row[column].cell_len) for row in cells)])


def _fact_lines(value: Any) -> list[str]:
    from trilake.cli.values import cell

    if isinstance(value, Mapping):
        return [f"{printable(str(k))} = {cell(v)}" for k, v in value.items()]
    return [cell(v) for v in value] if isinstance(value, list | tuple) else [cell(value)]


class JsonOutput(Output):
    """One JSON document on standard output, or on standard error if the command failed."""

    def facts(self, facts: Mapping[str, Any]) -> None:
        self._document(dict(facts))

    def objects(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], numbers: Sequence[str] = ()) -> None:
        from trilake.cli.values import to_json_string

        before = "["
        for row in rows:
            sys.stdout.write(f"{before}\n{to_json_string(dict(row))}")
            before = ","
        print("[]" if before == "[" else "\n]")

    def rows(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        from trilake.cli.values import objects

        self.objects((row for part in _chunks(batches) for row in objects(part)), ())

    def value(self, name: str, value: Any, **more: Any) -> None:
        self._document({name: value, **more})

    def note(self, message: str) -> None:
        pass  # in the result

    def problem(self, problem: Problem) -> None:
        self._document(problem.as_object(), sys.stderr)

    def _document(self, value: Any, file: Any = None) -> None:
        from trilake.cli.values import to_json_string

        print(to_json_string(value, indent=2), file=file)
