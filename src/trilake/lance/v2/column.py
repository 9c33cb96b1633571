"""One column of a 2.1 or 2.2 file: its pages, and the values and levels of some rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.lance.file.sources import PlacedJob, together
from trilake.lance.v2.blob import BlobPage
from trilake.lance.v2.constant import ConstantPage
from trilake.lance.v2.container import Page
from trilake.lance.v2.fullzip import FullZipPage
from trilake.lance.v2.layers import Layers, ReadablePage, Rows
from trilake.lance.v2.miniblock import MiniBlockPage
from trilake.lance.v2.nesting import Leaf, Node, merge
from trilake.lance.v2.values import DamagedPage, UnsupportedPage


class Column:
    """A column.

    Parameters
    ----------
    leaf: the field that it is of.
    pages: of the file.
    """

    def __init__(self, leaf: Node, pages: list[Page]) -> None:
        self._leaf, self._pages = leaf, pages
        self._firsts = np.array([page.first for page in pages], np.int64)
        self._open: dict[int, ReadablePage] = {}

    def read(self, rows: Rows, items: int) -> PlacedJob[Leaf]:
        """The values of some rows, which ascend and have ``items`` entries each at least.  Raises ``DamagedPage``."""
        if items != 1:
            if isinstance(rows, range):
                rows = range(rows.start * items, rows.stop * items)
            else:
                rows = (rows[:, None] * items + np.arange(items)).reshape(-1)
        jobs = [self._page(number).read(inside) for number, inside in self._split(rows)]
        if not jobs:
            raise DamagedPage("a column has no pages")
        if len(jobs) == 1:
            return merge([(yield from jobs[0])], self._leaf.type)
        return merge((yield from together(jobs)), self._leaf.type)

    def _split(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """The pages that have some of the rows, and which of their own these are."""
        if isinstance(rows, range):
            first = max(int(np.searchsorted(self._firsts, rows.start, "right")) - 1, 0)
            for number in range(first, len(self._pages)):
                page = self._pages[number]
                if page.first >= rows.stop:
                    break
                inside = range(max(rows.start - page.first, 0), min(rows.stop - page.first, page.length))
                if len(inside):
                    yield number, inside
            return
        cuts = np.searchsorted(rows, np.append(self._firsts, np.iinfo(np.int64).max))
        for number in np.flatnonzero(np.diff(cuts)).tolist():
            yield number, rows[cuts[number] : cuts[number + 1]] - self._firsts[number]

    def _page(self, number: int) -> ReadablePage:
        page = self._open.get(number)
        if page is None:
            page = self._open[number] = open_page(self._pages[number], self._pages[number].encoding, self._leaf.type)
        return page


def open_page(page: Page, layout: Any, arrow: pa.DataType) -> ReadablePage:
    """A page of the type of its column.  Raises ``DamagedPage``."""
    kind = layout.WhichOneof("layout")
    if kind == "mini_block_layout":
        return MiniBlockPage(page, layout.mini_block_layout)
    if kind == "constant_layout":
        return ConstantPage(page, layout.constant_layout, arrow)
    if kind == "full_zip_layout":
        return FullZipPage(page, layout.full_zip_layout)
    if kind == "blob_layout":
        inner = open_page(page, layout.blob_layout.inner_layout, arrow)
        return BlobPage(inner, Layers.of(layout.blob_layout.layers))
    raise UnsupportedPage("the layout of a page is not supported")
