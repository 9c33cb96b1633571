"""One column of a 2.1 or 2.2 file: read values and levels of rows from its pages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.lance.file.sources import PlacedJob, together
from trilake.lance.proto import encodings21_pb2
from trilake.lance.v2.constant import ConstantPage
from trilake.lance.v2.container import Page
from trilake.lance.v2.fullzip import FullZipPage
from trilake.lance.v2.layers import Layers, Part, ReadablePage, Rows, split
from trilake.lance.v2.miniblock import MiniBlockPages, joinable
from trilake.lance.v2.nesting import Leaf, merge
from trilake.lance.v2.values import DamagedPage, UnsupportedPage
from trilake.lance.v2.values import Rows as PackedRows


class Column:
    """A column of values of type ``stored``, read from its pages."""

    def __init__(self, stored: pa.DataType, pages: Sequence[Page]) -> None:
        self._stored = stored
        self._runs = _runs(pages)
        self._firsts = np.array([run[0].first for run in self._runs], np.int64)
        self._count = pages[-1].first + pages[-1].length if pages else 0
        self._open: dict[int, ReadablePage] = {}

    def read(self, rows: Rows, items: int) -> PlacedJob[Leaf]:
        """Read ascending rows.  Raises ``DamagedPage``.

        ``items`` is the number of entries per row: more than 1 in fixed-size lists of structs.
        """
        if items != 1:
            if isinstance(rows, range):
                rows = range(rows.start * items, rows.stop * items)
            else:
                rows = (rows[:, None] * items + np.arange(items)).reshape(-1)
        jobs = [self._run(number).read(inside) for number, inside in split(self._firsts, self._count, rows)]
        if not jobs:
            raise DamagedPage("a column has no pages")
        parts = [(yield from jobs[0])] if len(jobs) == 1 else (yield from together(jobs))
        return merge(parts, self._stored)

    def _run(self, number: int) -> ReadablePage:
        opened = self._open.get(number)
        if opened is None:
            opened = self._open[number] = _opened(self._runs[number], self._stored)
        return opened


def _runs(pages: Sequence[Page]) -> list[Sequence[Page]]:
    """Group adjacent pages that can be read as one."""
    runs: list[Sequence[Page]] = []
    for _, alike in groupby(pages, _layout_key):
        run = list(alike)
        runs += [run] if _layout_key(run[0]) else [[page] for page in run]
    return runs


def _layout_key(page: Page) -> bytes:
    """A key that is equal for pages that can be read as one; empty for pages that are read alone."""
    if page.encoding.WhichOneof("layout") != "mini_block_layout" or not joinable(page.encoding.mini_block_layout):
        return b""
    layout = encodings21_pb2.MiniBlockLayout()
    layout.CopyFrom(page.encoding.mini_block_layout)
    layout.ClearField("num_items")
    return layout.SerializeToString(deterministic=True)


def _opened(run: Sequence[Page], arrow: pa.DataType) -> ReadablePage:
    if len(run) == 1:
        return open_page(run[0], run[0].encoding, arrow)
    return MiniBlockPages(run, [page.encoding.mini_block_layout for page in run])


def open_page(page: Page, layout: Any, arrow: pa.DataType) -> ReadablePage:
    """Open a page of a column of type ``arrow``.  Raises ``DamagedPage``."""
    kind = layout.WhichOneof("layout")
    if kind == "mini_block_layout":
        return MiniBlockPages([page], [layout.mini_block_layout])
    if kind == "constant_layout":
        return ConstantPage(page, layout.constant_layout, arrow)
    if kind == "full_zip_layout":
        return FullZipPage(page, layout.full_zip_layout)
    if kind == "blob_layout":
        inner = open_page(page, layout.blob_layout.inner_layout, arrow)
        return BlobPage(inner, Layers.of(layout.blob_layout.layers))
    raise UnsupportedPage("the layout of a page is not supported")


class BlobPage:
    """A page of blobs in 2.1: byte ranges in an inner page; the position of an empty range holds a definition level."""

    def __init__(self, inner: ReadablePage, layers: Layers) -> None:
        if layers.lists:
            raise UnsupportedPage("blobs in lists are not supported")
        self._inner, self._layers = inner, layers

    def read(self, rows: Rows) -> PlacedJob[Part]:
        part = yield from self._inner.read(rows)
        values = part.values
        if not isinstance(values, PackedRows) or list(values.widths) != [64, 64]:
            raise DamagedPage("blob positions are not pairs of integers")
        position, size = values.data.data[: 16 * values.count].view("<u8").reshape(-1, 2).T
        levels = np.where(size == 0, position >> 16, 0)
        if levels.any():
            if int(levels.max()) > self._layers.max_level:
                raise DamagedPage(f"a definition level is {levels.max()}, of {self._layers.max_level}")
            return Part(values, None, levels.astype(np.uint16), self._layers)
        return Part(values, None, None, self._layers)
