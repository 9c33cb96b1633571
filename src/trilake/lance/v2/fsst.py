"""FSST: strings as codes of a byte each, which stand for up to eight bytes, or for the byte that follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.lance.file.sources import Int64s
from trilake.lance.v2.kernel_loader import kernels
from trilake.lance.v2.values import Bytes, DamagedPage, Variable, gather

_MAGIC = 0x46535354
_ON = 1 << 24
_SYMBOLS = 256


@dataclass(frozen=True)
class SymbolTable:
    """The symbols of codes, and their lengths."""

    symbols: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint8]
    #: Whether strings are coded at all.
    used: bool

    @classmethod
    def parse(cls, data: bytes) -> SymbolTable:
        """Raises ``DamagedPage``."""
        header = int.from_bytes(data[:8], "little")
        count = header & 0xFF
        if len(data) < 8 + 9 * count or header >> 32 != _MAGIC:
            raise DamagedPage("a table of FSST symbols is damaged")
        symbols = np.zeros(_SYMBOLS, np.uint64)
        lengths = np.zeros(_SYMBOLS, np.uint8)
        symbols[:count] = np.frombuffer(data, "<u8", count, 8)
        lengths[:count] = np.frombuffer(data, np.uint8, count, 8 + 8 * count)
        if lengths.max() > 8:
            raise DamagedPage("a table of FSST symbols is damaged")
        return cls(symbols, lengths, bool(header & _ON))

    def decode(self, data: Bytes, begin: Int64s, length: Int64s) -> Variable:
        """The values that are coded in these pieces of ``data``.  Raises ``DamagedPage``."""
        if not self.used:
            return gather(data, begin, length)
        offsets = np.zeros(len(begin) + 1, np.int64)
        # Decoding tells how long values are; memory that it does not need is given back untouched.
        buffer = pa.allocate_buffer(8 * int(length.sum()) + 8, resizable=True)
        out = np.frombuffer(buffer, np.uint8)
        if kernels().fsst_decode(data, begin, length, self.symbols, self.lengths, out, offsets[1:]) >= 0:
            raise DamagedPage("a string that FSST coded is damaged")
        del out
        buffer.resize(int(offsets[-1]), shrink_to_fit=True)
        return Variable(offsets, np.frombuffer(buffer, np.uint8))
