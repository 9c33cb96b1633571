"""Progress bars of long work: in a terminal and in a notebook, and nothing anywhere else.

A bar appears once the work has taken half a second, so that short work prints nothing.  In a notebook it is a widget,
or a line of text where ipywidgets is not installed.  ``TRILAKE_PROGRESS=0`` switches
bars off, ``TRILAKE_PROGRESS=1`` on where output goes to a file.
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

#: Seconds of work before a bar is worth its lines.
_DELAY = 0.5
#: Seconds between two lines of text.
_EVERY = 0.25


class Bar:
    """How far a piece of work is; :func:`progress` makes it."""

    def __init__(self, label: str, total: int | None, unit: str, shown: bool, file: TextIO | None) -> None:
        self.label, self.total, self.unit, self.shown, self.file = label, total, unit, shown, file
        self.done = 0
        self._started = time.monotonic()
        self._bars: Progress | None = None
        self._lines: _Lines | None = None

    def advance(self, count: int = 1) -> None:
        """``count`` more units are done."""
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
        """Take the bar off the screen."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
        if self._lines is not None:
            self._lines.end(self.done)
            self._lines = None


class _Lines:
    """Progress as one line of text, written over and over: what a notebook without widgets can show."""

    def __init__(self, label: str, unit: str) -> None:
        self._label, self._unit = label, unit
        self._shown_at = -math.inf

    def say(self, done: int, total: int | None) -> None:
        """How far the work is; at most a few times in a second."""
        now = time.monotonic()
        if now - self._shown_at >= _EVERY:
            self._shown_at = now
            of = "" if total is None else f"/{total:,}"
            sys.stderr.write(f"\r{self._label} {done:,}{of} {self._unit}")
            sys.stderr.flush()

    def end(self, done: int) -> None:
        sys.stderr.write(f"\r{self._label} {done:,} {self._unit}, done\n")
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
        # Whoever names a file, or asks for bars, wants them there even if it is not a terminal.
        console=Console(file=file, stderr=file is None, force_terminal=None if _in_notebook() else True),
        transient=True,
    )


def is_shown() -> bool:
    """Whether someone is there to see a bar: a terminal or a notebook."""
    wish = os.environ.get("TRILAKE_PROGRESS")
    if wish is not None:
        return wish.strip().lower() not in ("0", "false", "off", "no", "")
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _has_widgets() -> bool:
    """Whether rich can draw in a notebook: without ipywidgets it warns and draws nothing."""
    try:
        return find_spec("ipywidgets") is not None
    except ValueError:  # what stands in sys.modules is not a module
        return False


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    context = shell.get_ipython() if shell is not None else None
    return type(context).__name__ == "ZMQInteractiveShell"


@contextmanager
def progress(label: str, total: int | None = None, *, unit: str = "files", file: TextIO | None = None) -> Iterator[Bar]:
    """A bar around a piece of work.

    Parameters
    ----------
    label: what is being done, such as ``optimize``.
    total: how many units there are; ``None`` where no one knows yet.
    unit: what is counted.
    file: where to draw; standard error by default.

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
    """The items, with a bar that moves as they are taken.

    >>> list(track([1, 2], "vacuum"))
    [1, 2]
    """
    with progress(label, total, unit=unit) as bar:
        for item in items:
            yield item
            bar.advance()
