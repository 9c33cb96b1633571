"""One column of a 2.1 or 2.2 file: its pages, and the values and levels of some rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.lance.file.sources import PlacedJob, together
from trilake.lance.v2.constant import ConstantPage
from trilake.lance.v2.container import Page
from trilake.lance.v2.fullzip import FullZipPage
from trilake.lance.v2.layers import Layers, Part, ReadablePage, Rows, split
from trilake.lance.v2.miniblock import MiniBlockPage
from trilake.lance.v2.nesting import Leaf, Node, merge
from trilake.lance.v2.values import DamagedPage, UnsupportedPage
from trilake.lance.v2.values import Rows as PackedRows


class Column:
    """A column: the field it belongs to, and its pages."""

    def __init__(self, leaf: Node, pages: Sequence[Page]) -> None:
        self._leaf, self._pages = leaf, pages
        self._open: dict[int, ReadablePage] = {}

    def read(self, rows: Rows, items: int) -> PlacedJob[Leaf]:
        """Read ascending rows with at least ``items`` entries each.  Raises ``DamagedPage``."""
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
    """Open a page of a column of type ``arrow``.  Raises ``DamagedPage``."""
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


class BlobPage:
    """A page of 2.1 with the positions of blobs in an inner page; an empty range says what is null instead."""

    def __init__(self, inner: ReadablePage, layers: Layers) -> None:
        if layers.lists:
            raise UnsupportedPage("blobs in lists are not supported")
        self._inner, self._layers = inner, layers

    def read(self, rows: Rows) -> PlacedJob[Part]:
        part = yield from self._inner.read(rows)
        values = part.values
        if not isinstance(values, PackedRows) or list(values.widths) != [64, 64]:
            raise DamagedPage("the places of blobs are not pairs of numbers")
        position, size = values.data.data[: 16 * values.count].view("<u8").reshape(-1, 2).T
        levels = np.where(size == 0, position >> 16, 0)
        if levels.any():
            if int(levels.max()) > self._layers.max_level:
                raise DamagedPage(f"a definition level is {levels.max()}, of {self._layers.max_level}")
            return Part(values, None, levels.astype(np.uint16), self._layers)
        return Part(values, None, None, self._layers)
