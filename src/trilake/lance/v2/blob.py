"""Blob pages of 2.1: where the bytes of each value are in the file; an empty place says what is null instead."""

from __future__ import annotations

import numpy as np

from trilake.lance.file.sources import PlacedJob
from trilake.lance.v2.layers import Layers, Part, ReadablePage, Rows
from trilake.lance.v2.values import DamagedPage, UnsupportedPage
from trilake.lance.v2.values import Rows as PackedRows


class BlobPage:
    """A page in this layout: descriptions in a page of their own, and the layers of the column."""

    def __init__(self, inner: ReadablePage, layers: Layers) -> None:
        if layers.lists:
            raise UnsupportedPage("blobs in lists are not supported")
        self._inner, self._layers = inner, layers

    def read(self, rows: Rows) -> PlacedJob[Part]:
        """The places of some rows, which ascend, and their levels."""
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
