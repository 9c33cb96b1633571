"""One column of a 2.1 or 2.2 file: its pages, and the values and levels of some rows."""

from __future__ import annotations

from collections.abc import Sequence
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
from trilake.lance.v2.split import split
from trilake.lance.v2.values import DamagedPage, UnsupportedPage


class Column:
    """A column.

    Parameters
    ----------
    leaf: the field that it is of.
    pages: of the file.
    """

    def __init__(self, leaf: Node, pages: Sequence[Page]) -> None:
        self._leaf, self._pages = leaf, pages
        self._open: dict[int, ReadablePage] = {}

    def read(self, rows: Rows, items: int) -> PlacedJob[Leaf]:
        """The values of some rows, which ascend and have ``items`` entries each at least.  Raises ``DamagedPage``."""
        if items != 1:
            if isinstance(rows, range):
                rows = range(rows.start * items, rows.stop * items)
            else:
                rows = (rows[:, None] * items + np.arange(items)).reshape(-1)
        jobs = [self._page(page).read(inside) for page, inside in split(self._pages, rows)]
        if not jobs:
            raise DamagedPage("a column has no pages")
        if len(jobs) == 1:
            return merge([(yield from jobs[0])], self._leaf.stored)
        return merge((yield from together(jobs)), self._leaf.stored)

    def _page(self, page: Page) -> ReadablePage:
        opened = self._open.get(page.first)
        if opened is None:
            opened = self._open[page.first] = open_page(page, page.encoding, self._leaf.stored)
        return opened


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
