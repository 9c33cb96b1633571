"""``Report``: an HTML page about a table, and advice."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, TypeAlias

from trilake.errors import InvalidArgumentError

#: ``do``: cheap and always helps.  ``consider``: helps some queries, or rewrites the table.
Weight: TypeAlias = Literal["do", "consider"]


@dataclass(frozen=True)
class Advice:
    """What to do, the estimated gain, and the command in Python and for a shell.

    >>> advice = Advice("Compact small files", "40 files of 1 KB", "table.optimize()", "trilake optimize t")
    >>> advice.weight
    'do'
    """

    title: str
    estimate: str
    command: str
    shell: str
    weight: Weight = "do"


#: Height of a report in a notebook, in pixels.
_HEIGHT = 720


@dataclass(frozen=True)
class Report:
    """A report: the HTML page, and its advice.  Notebooks show the page in a frame without scripts.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-report-class")
    >>> report = trilake.open("memory://doc-report-class").report()
    >>> report.html[:15], report.advice
    ('<!doctype html>', ())
    """

    uri: str
    html: str = field(repr=False)
    advice: tuple[Advice, ...] = ()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to the local file ``path``, replacing an existing one; return its path.

        Raises ``InvalidArgumentError`` if it cannot be written.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Report("memory://t", "<!doctype html>").save(f"{folder}/report.html").name
        'report.html'
        """
        place = Path(path)
        try:
            place.write_text(self.html, encoding="utf-8")
        except OSError as e:
            raise InvalidArgumentError(
                f"the report cannot be written: {e.strerror or e}",
                help="pass the path of a writable file in an existing folder",
                file=fspath(path),
            ) from e
        return place

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        title = html.escape(f"Report of {self.uri}", quote=True)
        return (
            f'<iframe sandbox title="{title}" srcdoc="{page}" width="100%" height="{_HEIGHT}"'
            ' style="border:1px solid #8884;border-radius:8px"></iframe>'
        )
