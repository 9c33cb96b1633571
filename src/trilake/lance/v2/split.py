"""Which pages of a column have some rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trilake.lance.v2.container import Page
from trilake.lance.v2.layers import Rows


def split(pages: Sequence[Page], rows: Rows) -> Iterator[tuple[Page, Rows]]:
    """The pages that have some of the rows, which ascend, and which of their own these are."""
    firsts = np.array([page.first for page in pages], np.int64)
    if isinstance(rows, range):
        for page in pages[max(int(np.searchsorted(firsts, rows.start, "right")) - 1, 0) :]:
            if page.first >= rows.stop:
                break
            inside = range(max(rows.start - page.first, 0), min(rows.stop - page.first, page.length))
            if len(inside):
                yield page, inside
        return
    cuts = np.searchsorted(rows, np.append(firsts, np.iinfo(np.int64).max))
    for number in np.flatnonzero(np.diff(cuts)).tolist():
        yield pages[number], rows[cuts[number] : cuts[number + 1]] - firsts[number]
