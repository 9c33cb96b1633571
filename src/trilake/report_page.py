"""``Report``: a page about a table that was made, and the advice on it; :mod:`trilake.reporting` makes it."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, TypeAlias

from trilake.errors import InvalidArgumentError

#: ``do``: it costs little and helps everybody.  ``consider``: it helps some queries, or costs a rewrite.
Weight: TypeAlias = Literal["do", "consider"]


@dataclass(frozen=True)
class Advice:
    """What to do, why (with numbers), and how: ``command`` in Python, ``shell`` for a shell."""

    title: str
    estimate: str
    command: str
    shell: str
    weight: Weight = "do"


#: Height of a report in a notebook, in pixels.
_HEIGHT = 720


@dataclass(frozen=True)
class Report:
    """A report that was made: the page, and the advice on it.

    A notebook shows the page, in a frame that runs no script.
    """

    uri: str
    html: str = field(repr=False)
    advice: tuple[Advice, ...] = ()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a local file, in the place of any that is there; its path.

        Raises ``InvalidArgumentError`` where it cannot be written.
        """
        place = Path(path)
        try:
            place.write_text(self.html, encoding="utf-8")
        except OSError as e:
            raise InvalidArgumentError(
                f"the report cannot be written: {e.strerror or e}",
                help="name a file in a folder that exists",
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
