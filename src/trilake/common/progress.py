"""Progress bars for terminals and notebooks.

A bar appears after half a second of work.  Notebooks get a widget or, if ipywidgets is not installed, a line of text.
``TRILAKE_PROGRESS=0`` disables bars, ``TRILAKE_PROGRESS=1`` enables them for redirected output.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")

#: Seconds of work before a bar appears.
_DELAY = 0.5
#: Seconds between two updates.
_EVERY = 0.25


class Bar:
    """The progress of some work; created by :func:`progress`."""

    def __init__(self, label: str, total: int | None, unit: str, visible: bool, file: TextIO | None) -> None:
        self.label, self.total, self.unit, self.shown, self.file = label, total, unit, visible, file
        self.done = 0
        self._started = time.monotonic()
        self._bars: Progress | None = None
        self._lines: _Lines | None = None

    def advance(self, count: int = 1) -> None:
        """Add ``count`` finished units."""
        self.done += count
        if self.shown:
            self._draw()

    def _draw(self) -> None:
        if self._lines is not None:
            self._lines.say(self.done, self.total)
            return
        if self._bars is None:
            if time.monotonic() - self._started < _DELAY:
                return
            if self.file is None and _in_notebook() and not _has_widgets():
                self._lines = _Lines(self.label, self.unit)
                self._lines.say(self.done, self.total)
                return
            self._bars = _bars(self.unit, self.file)
            self._bars.add_task(self.label, total=self.total)
            self._bars.start()
        self._bars.update(self._bars.task_ids[0], completed=self.done)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
        if self._lines is not None:
            self._lines.end(self.done)
            self._lines = None


class _Lines:
    """Progress as one line, for notebooks without widgets."""

    def __init__(self, label: str, unit: str) -> None:
        self._label, self._unit = label, unit
        self._shown_at = -math.inf

    def say(self, count: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._shown_at >= _EVERY:
            self._shown_at = now
            of = "" if total is None else f"/{total:,}"
            sys.stderr.write(f"\r{self._label} {count:,}{of} {self._unit}")
            sys.stderr.flush()

    def end(self, count: int) -> None:
        sys.stderr.write(f"\r{self._label} {count:,} {self._unit}, done\n")
        sys.stderr.flush()


def _bars(unit: str, file: TextIO | None) -> Progress:
    # Imported when the first bar appears: rich takes a tenth of a second to load.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        # An explicit file, or TRILAKE_PROGRESS=1, enables bars without a terminal.
        console=Console(file=file, stderr=file is None, force_terminal=None if _in_notebook() else True),
        transient=True,
    )


def is_shown() -> bool:
    """Whether output goes to a terminal or a notebook."""
    wish = os.environ.get("TRILAKE_PROGRESS")
    if wish is not None:
        return wish.strip().lower() not in ("0", "false", "off", "no", "")
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _has_widgets() -> bool:
    """Whether rich can draw in a notebook: without ipywidgets it warns and draws nothing."""
    try:
        return find_spec("ipywidgets") is not None
    except ValueError:  # sys.modules holds something that is not a module
        return False


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    context = shell.get_ipython() if shell is not None else None
    return type(context).__name__ == "ZMQInteractiveShell"


@contextmanager
def progress(label: str, total: int | None = None, *, unit: str = "files", file: TextIO | None = None) -> Iterator[Bar]:
    """Show a bar around some work.

    ``label`` is the kind of work, such as ``optimize``, and ``total`` the number of units, if known.  It is drawn to
    ``file``, or standard error.

    >>> with progress("optimize", total=3) as bar:
    ...     bar.advance()
    >>> bar.done
    1
    """
    bar = Bar(label, total, unit, is_shown(), file)
    try:
        yield bar
    finally:
        bar.close()


def track(items: Iterable[T], label: str, total: int | None = None, *, unit: str = "files") -> Iterator[T]:
    """Iterate over items with a progress bar.

    >>> list(track([1, 2], "vacuum"))
    [1, 2]
    """
    with progress(label, total, unit=unit) as bar:
        for item in items:
            yield item
            bar.advance()
