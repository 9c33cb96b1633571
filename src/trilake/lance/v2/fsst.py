"""FSST: strings as one-byte codes; a code stands for a symbol of up to eight bytes, 255 escapes the next byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.lance.file.sources import Int64s
from trilake.lance.v2.kernel_loader import kernels
from trilake.lance.v2.values import Bytes, DamagedPage, Variable, gather, new_offsets

_MAGIC = 0x46535354
_ON = 1 << 24
_SYMBOLS = 256


@dataclass(frozen=True)
class SymbolTable:
    """The symbol of each code, as a little-endian word, and its length in bytes."""

    symbols: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint8]
    #: Whether strings are coded; if not, they are stored as they are.
    used: bool

    @classmethod
    def parse(cls, data: bytes) -> SymbolTable:
        """Parse a serialized symbol table.  Raises ``DamagedPage``."""
        header = int.from_bytes(data[:8], "little")
        count = header & 0xFF
        if len(data) < 8 + 9 * count or header >> 32 != _MAGIC:
            raise DamagedPage("an FSST symbol table is invalid")
        symbols = np.zeros(_SYMBOLS, np.uint64)
        lengths = np.zeros(_SYMBOLS, np.uint8)
        symbols[:count] = np.frombuffer(data, "<u8", count, 8)
        lengths[:count] = np.frombuffer(data, np.uint8, count, 8 + 8 * count)
        if lengths.max() > 8:
            raise DamagedPage("an FSST symbol table is invalid")
        return cls(symbols, lengths, bool(header & _ON))

    def decode(self, data: Bytes, begin: Int64s, length: Int64s) -> Variable:
        """Decode pieces of ``data``.  Raises ``DamagedPage``."""
        if not self.used:
            return gather(data, begin, length)
        return self._decode(len(begin), int(length.sum()), "fsst_decode", data, begin, length)

    def decode_chunks(self, data: Bytes, at: Int64s, size: Int64s, counts: Int64s, width: int) -> Variable:
        """Decode chunks that begin with offsets of ``width`` bytes.  Raises ``DamagedPage``."""
        return self._decode(int(counts.sum()), int(size.sum()), "fsst_chunks", data, at, size, counts, width)

    def _decode(self, count: int, size: int, kernel: str, *pieces: Any) -> Variable:
        offsets = new_offsets(count, 8 * size)
        # Only decoding shows the length: allocate for the worst case, then shrink.
        buffer = pa.allocate_buffer(8 * size + 8, resizable=True)
        out = np.frombuffer(buffer, np.uint8)
        if getattr(kernels(), kernel)(*pieces, self.symbols, self.lengths, out, offsets) >= 0:
            raise DamagedPage("FSST-encoded strings are invalid")
        del out
        buffer.resize(int(offsets[-1]), shrink_to_fit=True)
        return Variable(offsets, np.frombuffer(buffer, np.uint8))
