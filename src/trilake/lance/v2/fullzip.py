"""Full-zip pages: large values, each after a control word with its levels, and an index of row positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from trilake.lance.file.sources import Int64s, Job, Pieces
from trilake.lance.v2.codecs import MAX_UNBACKED, interleaved_lists, kind_of, unsupported
from trilake.lance.v2.compression import SymbolTable, decompressed, scheme
from trilake.lance.v2.container import Page
from trilake.lance.v2.layers import Layers, Part, Rows
from trilake.lance.v2.values import (
    Bytes,
    DamagedPage,
    Flat,
    Nothing,
    Structs,
    UnsupportedPage,
    Values,
    allocate,
    gather,
    kernels,
)
from trilake.lance.v2.values import Rows as PackedRows


class FullZipPage:
    """A full-zip page."""

    def __init__(self, page: Page, layout: Any) -> None:
        self._page, self._layout = page, layout
        self._layers = Layers.of(layout.layers)
        bits = layout.bits_rep + layout.bits_def
        if bits > 32:
            raise UnsupportedPage(f"levels of {layout.bits_rep} and {layout.bits_def} bits are not supported")
        self._head = 0 if not bits else 1 if bits <= 8 else 2 if bits <= 16 else 4
        self._prefix = 0
        self._width = 0
        if layout.WhichOneof("details") == "bits_per_offset":
            if layout.bits_per_offset not in (32, 64):
                raise UnsupportedPage(f"lengths of {layout.bits_per_offset} bits are not supported")
            self._prefix = layout.bits_per_offset // 8
        else:
            self._width = (layout.bits_per_value + 7) // 8
        self._indexed = bool(self._prefix or self._layers.lists)
        if len(page.buffers) < 1 + self._indexed:
            raise DamagedPage(f"a full-zip page has {len(page.buffers)} buffers, too few for its layout")
        if self._layers.lists and not layout.bits_rep:
            raise DamagedPage("a page with lists has no repetition levels")

    def read(self, rows: Rows) -> Job[Part]:
        position, size = self._page.buffers[0]
        if self._indexed:
            begin, end = yield from self._places(rows)
        else:
            stride = self._head + self._width
            if stride * self._page.length > size:
                raise DamagedPage(f"{size} bytes are too few for {self._page.length} values of {stride}")
            if not stride and len(rows) > MAX_UNBACKED:
                raise DamagedPage(f"{len(rows)} nulls in one read are too many; read fewer rows")
            if isinstance(rows, range):
                begin, end = (np.array([n * stride], np.int64) for n in (rows.start, rows.stop))
            else:
                begin, end = rows * stride, (rows + 1) * stride
        if (begin < 0).any() or (end < begin).any() or (end > size).any():
            raise DamagedPage("the repetition index decreases, or points outside the page")
        (answer,) = yield [Pieces(position + begin, end - begin)]
        data, begin, end = answer.data, answer.at, answer.at + (end - begin)
        if not self._indexed:
            return self._zipped(data, begin, end, len(rows))
        return self._walk(data, begin, end, len(rows))

    def _places(self, rows: Rows) -> Job[tuple[Int64s, Int64s]]:
        """Look up rows in the repetition index: one byte range for consecutive rows, else one per row."""
        position, size = self._page.buffers[1]
        entries = self._page.length + 1
        width = size // entries
        if width not in (1, 2, 4, 8) or width * entries != size:
            raise DamagedPage(f"a repetition index of {size} bytes does not fit {self._page.length} rows")
        if isinstance(rows, range):
            bounds = np.array([rows.start, rows.stop], np.int64)
            pieces = Pieces(position + bounds * width, width)
        else:
            pieces = Pieces(position + rows * width, 2 * width)
        (answer,) = yield [pieces]
        length = pieces.lengths
        assert isinstance(length, int)
        index = answer.at[:, None] + np.arange(length)
        numbers = answer.data[index].reshape(-1, width).copy().view(f"<u{width}").reshape(-1)
        if len(numbers) and int(numbers.max()) > self._page.buffers[0][1]:
            raise DamagedPage("the repetition index points outside the page")
        numbers = numbers.astype(np.int64)
        return (numbers[:1], numbers[1:]) if isinstance(rows, range) else (numbers[::2], numbers[1::2])

    def _zipped(self, data: Bytes, begin: Int64s, end: Int64s, count: int) -> Part:
        stride = self._head + self._width
        if len(begin) == 1:
            whole = data[begin[0] : end[0]]
        else:
            whole = allocate(count * stride)
            kernels().copy_pieces(data, begin, end - begin, whole)
        if not self._head:
            return Part(self._fixed(whole, count), None, None, self._layers)
        rows = whole.reshape(count, stride)
        levels = np.ascontiguousarray(rows[:, : self._head]).reshape(-1).view(f"<u{self._head}")
        definition = (levels & ((1 << self._layout.bits_def) - 1)).astype(np.uint16)
        values = np.ascontiguousarray(rows[:, self._head :]).reshape(-1)
        return Part(self._fixed(values, count), None, definition, self._layers)

    def _walk(self, data: Bytes, begin: Int64s, end: Int64s, count: int) -> Part:
        k = kernels()
        most = self._layers.max_visible
        how = self._head, self._layout.bits_def, most, self._width, self._prefix
        if not (self._head or self._width or self._prefix):
            raise DamagedPage("the entries of a page have no bytes")
        entries, visible = k.count_zipped(data, begin, end, *how)
        if entries < 0:
            raise DamagedPage("a value is longer than its row")
        rep, definition = np.empty(entries, np.uint16), np.empty(entries, np.uint16)
        at, length = np.empty(visible, np.int64), np.empty(visible, np.int64)
        k.walk_zipped(data, begin, end, *how, rep, definition, at, length)
        rows = entries if not self._layers.lists else int(np.count_nonzero(rep == self._layers.lists))
        if rows != count:
            raise DamagedPage(f"expected {count} rows, got {rows}")
        if self._prefix:
            values: Values = _variable(self._layout.value_compression, data, at, length)
        else:
            values = self._fixed(gather(data, at, length).data, int(visible))
        has_def = self._layout.bits_def > 0
        return Part(values, rep if self._layers.lists else None, definition if has_def else None, self._layers)

    def _fixed(self, data: Bytes, count: int) -> Values:
        encoding = self._layout.value_compression
        if kind_of(encoding) == "constant" and not encoding.constant.HasField("value"):
            return Nothing(count)
        return fixed_values(encoding, data, count, self._width)


def fixed_values(encoding: Any, data: Bytes, count: int, width: int) -> Values:
    """Decode adjacent values of ``width`` bytes each."""
    kind = kind_of(encoding)
    if kind == "fixed_size_list":
        values = interleaved_lists(encoding.fixed_size_list, data, count)
    elif kind == "flat" and not encoding.flat.HasField("data") and encoding.flat.bits_per_value == 8 * width:
        values = Flat(data, 8 * width, count)
    elif kind == "packed_struct":
        widths = [int(bits) for bits in encoding.packed_struct.bits_per_value]
        if any(bits % 8 for bits in widths) or sum(widths) != 8 * width:
            raise unsupported(encoding, "structs of variable width")
        values = PackedRows(widths, Flat(data, 8 * width, count))
    else:
        raise unsupported(encoding, f"full-zip values of {width} bytes")
    if count * width > len(data):
        raise DamagedPage(f"{len(data)} bytes are too few for {count} values of {width} bytes")
    return values


def _variable(encoding: Any, data: Bytes, at: Int64s, length: Int64s) -> Values:
    kind = kind_of(encoding)
    if kind == "variable":
        return gather(data, at, length)
    if kind == "fsst":
        if kind_of(encoding.fsst.values) != "variable":
            raise unsupported(encoding.fsst.values, "FSST")
        return SymbolTable.parse(encoding.fsst.symbol_table).decode(data, at, length)
    if kind == "general":
        name = scheme(encoding.general.compression)
        parts = [
            decompressed(name, data[a : a + n]) if n else data[:0]
            for a, n in zip(at.tolist(), length.tolist(), strict=True)
        ]
        size = np.array([len(part) for part in parts], np.int64)
        whole = np.concatenate(parts) if parts else data[:0]
        return _variable(encoding.general.values, whole, np.cumsum(size) - size, size)
    if kind == "variable_packed_struct":
        return _structs(encoding.variable_packed_struct, data, at, length)
    raise unsupported(encoding, "full-zip values of variable length")


def _structs(encoding: Any, data: Bytes, begin: Int64s, length: Int64s) -> Structs:
    fields = encoding.fields
    widths, prefixes = np.zeros(len(fields), np.int64), np.zeros(len(fields), np.int64)
    for f, field in enumerate(fields):
        bits = field.bits_per_value or field.bits_per_length
        if field.WhichOneof("layout") == "bits_per_length":
            if bits not in (8, 16, 32, 64):
                raise UnsupportedPage(f"lengths of {bits} bits are not supported")
            prefixes[f] = bits // 8
        else:
            if bits % 8 or bits > 1 << 34:
                raise UnsupportedPage(f"a field of {bits} bits is not supported")
            widths[f] = bits // 8
    # Null structs have no bytes, so their fields have none.
    here = np.flatnonzero(length) if not length.all() else None
    b, n = (begin, length) if here is None else (begin[here], length[here])
    at, size = np.zeros((len(fields), len(b)), np.int64), np.zeros((len(fields), len(b)), np.int64)
    if kernels().walk_structs(data, b, n, widths, prefixes, at, size) >= 0:
        raise DamagedPage("the fields of a packed struct are longer than the struct")
    children: list[Values] = []
    for f, field in enumerate(fields):
        if prefixes[f]:
            child = _variable(field.value, data, at[f], size[f])
        else:
            cells = gather(data, at[f], size[f]).data
            child = fixed_values(field.value, cells, len(b), int(widths[f]))
        children.append(child if here is None else _spread(child, here, len(begin)))
    return Structs(children, len(begin))


def _spread(values: Values, at: Int64s, count: int) -> Values:
    """Spread values to their positions among ``count``; a gap repeats the value before it."""
    if not values.count:
        return Nothing(count)
    index = np.clip(np.searchsorted(at, np.arange(count), "right") - 1, 0, None)
    return values.take(index)
