"""Pages of 2.0: a tree of encodings, whose leaves are buffers that are addressed by row number.

Lists and structs have separate columns; a list refers to its items in the column below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from trilake.lance.file import types
from trilake.lance.file.schema import Field
from trilake.lance.file.sources import Int64s, Job, Pieces, together
from trilake.lance.proto import encodings20_pb2
from trilake.lance.v2.codecs import MAX_UNBACKED
from trilake.lance.v2.compression import SymbolTable, decompressed
from trilake.lance.v2.container import Page
from trilake.lance.v2.layers import Rows, ranges, repeated, split
from trilake.lance.v2.nesting import Node, bitmap, narrowed
from trilake.lance.v2.values import (
    Bytes,
    DamagedPage,
    FixedLists,
    Flat,
    Indexed,
    Nothing,
    UnsupportedPage,
    Values,
    Variable,
    fixed,
    gather,
)
from trilake.lance.v2.values import Rows as PackedRows

Valid = npt.NDArray[np.bool_] | None
#: Values, and a mask of the valid ones; ``None`` if all are valid.
Decoded = tuple[Values, Valid]
Pages = Callable[[int], Sequence[Page]]
_COMPRESSIONS = {"zstd": "zstd", "lz4": "lz4_raw"}


def read_array(node: Node, rows: Rows, pages: Pages) -> Job[pa.Array]:
    """Read ascending rows of a field; ``pages`` returns the pages of a column by number.  Raises ``DamagedPage``."""
    if node.kind == "struct":
        children = yield from together([read_array(child, rows, pages) for child in node.children])
        return pa.Array.from_buffers(node.type, len(rows), [None], children=children)
    if node.kind == "vector":
        raise UnsupportedPage("fixed-size lists of structs are not supported in files of 2.0")
    if node.column is None:
        raise DamagedPage("a list has no column")
    every = pages(node.column)
    firsts = np.array([page.first for page in every], np.int64)
    count = every[-1].first + every[-1].length if every else 0
    parts = [(every[number], inside) for number, inside in split(firsts, count, rows)]
    if sum(len(inside) for _, inside in parts) != len(rows):
        raise DamagedPage("a column has fewer rows than the file")
    if node.kind == "list":
        return (yield from _read_lists(node, parts, pages))
    if types.is_variable(node.stored) and any(_kind(page) == "list" for page, _ in parts):
        return (yield from _read_byte_lists(node, parts, pages))
    results = yield from together([_Tree(page).decode(page.encoding, inside, node.stored) for page, inside in parts])
    masks = [None if valid is None else bitmap(valid) for _, valid in results]
    arrays = [narrowed(node, values.arrow(node.stored, m)) for (values, _), m in zip(results, masks, strict=True)]
    try:
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    except pa.ArrowException as e:
        raise DamagedPage(f"the values of several pages are too many for {node.type}: {e}") from e


def _read_lists(node: Node, parts: Sequence[tuple[Page, Rows]], pages: Pages) -> Job[pa.Array]:
    bases: Mapping[int, int] = _item_bases(pages(node.column or 0))
    results = yield from together([_read_ends(page, inside) for page, inside in parts])
    begin = np.concatenate([first + bases[page.first] for (page, _), (first, _, _) in zip(parts, results, strict=True)])
    length, valid = (np.concatenate([result[i] for result in results]) for i in (1, 2))
    items: Rows = ranges(begin, begin + length)
    total = len(items)
    if total and all(isinstance(inside, range) for _, inside in parts):
        items = range(int(begin[0]), int(begin[0]) + total)
    (child,) = node.children
    below = (yield from read_array(child, items, pages)) if total else pa.nulls(0, child.type)
    large = pt.is_large_list(node.type)
    if not large and total > 2**31 - 1:
        raise DamagedPage("more than 2^31 list items in one read; read fewer rows")
    offsets = np.zeros(len(length) + 1, np.int64 if large else np.int32)
    np.cumsum(length, out=offsets[1:])
    return pa.Array.from_buffers(node.type, len(length), [bitmap(valid), pa.py_buffer(offsets)], children=[below])


def _read_byte_lists(node: Node, parts: Sequence[tuple[Page, Rows]], pages: Pages) -> Job[pa.Array]:
    """Read strings or bytes as pylance 0.13 wrote them: lists of bytes, which are in the next column."""
    byte = Node(Field("item", -1, node.field.id, "uint8"), "leaf", (), (node.column or 0) + 1, pa.uint8())
    lists = Node(replace(node.field, logical_type="large_list", children=(byte.field,)), "list", (byte,), node.column)
    array = yield from _read_lists(lists, parts, pages)
    values = Variable(array.offsets.to_numpy(), array.values.to_numpy())
    return values.arrow(node.stored, array.buffers()[0])


def _item_bases(pages: Sequence[Page]) -> dict[int, int]:
    """Count the items in the pages before each page, by the page's first row."""
    bases, total = {}, 0
    for page in pages:
        if page.length:
            bases[page.first] = total
        if _kind(page) == "list":
            total += page.encoding.list.num_items
    if total >= 1 << 48:
        raise DamagedPage(f"a page has lists with {total} items")
    return bases


def _read_ends(page: Page, rows: Rows) -> Job[tuple[Int64s, Int64s, npt.NDArray[np.bool_]]]:
    """Return the first item, the number of items and the validity of each list."""
    if _kind(page) != "list":
        raise DamagedPage(f"a page of lists is encoded as {_kind(page)!r}")
    lists = page.encoding.list
    begin, end, valid = yield from _Tree(page).ends(lists.offsets, rows, lists.null_offset_adjustment)
    if len(end) and int(end.max()) > lists.num_items:
        raise DamagedPage(f"a list ends at item {end.max()}, but its page has {lists.num_items} items")
    return begin, end - begin, valid


def _kind(page: Page) -> str | None:
    kind: str | None = page.encoding.WhichOneof("array_encoding")
    return kind


class _Tree:
    """The encodings of a page; a decoder ``_<kind>`` for each kind."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def decode(self, encoding: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        kind = encoding.WhichOneof("array_encoding")
        decode = getattr(self, f"_{kind}", None) if kind else None
        if decode is None:
            raise UnsupportedPage(f"the encoding {kind or 'none'!r} is not supported")
        decoded: Decoded = yield from decode(getattr(encoding, kind), rows, arrow)
        return decoded

    def _pieces(self, flat: Any, begin: Int64s, length: Int64s) -> Job[tuple[Bytes, Int64s]]:
        """Read pieces of a buffer; return the bytes, and the position of each piece in them."""
        number, buffers = flat.buffer.buffer_index, self._page.buffers
        if flat.buffer.buffer_type:
            raise UnsupportedPage("buffers of columns and files are not supported")
        if number >= len(buffers):
            raise DamagedPage(f"a page has {len(buffers)} buffers, none with number {number}")
        position, size = buffers[number]
        scheme = flat.compression.scheme if flat.HasField("compression") else "none"
        if scheme not in ("none", ""):
            if scheme not in _COMPRESSIONS:
                raise UnsupportedPage(f"compression {scheme!r} is not supported")
            (answer,) = yield [Pieces(np.array([position], np.int64), size)]
            data = decompressed(_COMPRESSIONS[scheme], answer.data[answer.at[0] : answer.at[0] + size])
            self._check(begin, length, len(data))
            return data, begin
        self._check(begin, length, size)
        (answer,) = yield [Pieces(position + begin, length)]
        return answer.data, answer.at

    def _check(self, begin: Int64s, length: Int64s, size: int) -> None:
        if len(begin) and (int(begin.min()) < 0 or int(length.min()) < 0 or int((begin + length).max()) > size):
            raise DamagedPage(f"a page's buffer of {size} bytes is too short for its rows")

    def _flat(self, flat: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        return (yield from self._packed(flat, rows, int(flat.bits_per_value))), None

    def _packed(self, flat: Any, rows: Rows, bits: int) -> Job[Flat]:
        if bits != 1 and (bits % 8 or not bits or bits >= 1 << 34):
            raise UnsupportedPage(f"values of {bits} bits are not supported")
        if isinstance(rows, range):
            first, last = rows.start * bits, rows.stop * bits
            begin, length = first // 8, (last + 7) // 8 - first // 8
            data, at = yield from self._pieces(flat, np.array([begin], np.int64), np.array([length], np.int64))
            return Flat(data[at[0] : at[0] + length], bits, len(rows), first % 8)
        if bits == 1:
            data, at = yield from self._pieces(flat, rows >> 3, np.ones(len(rows), np.int64))
            picked = data[at] >> (rows & 7).astype(np.uint8) & 1
            return Flat(np.packbits(picked, bitorder="little"), 1, len(rows))
        width = np.full(len(rows), bits // 8, np.int64)
        data, at = yield from self._pieces(flat, rows * (bits // 8), width)
        return Flat(gather(data, at, width).data, bits, len(rows))

    def _nullable(self, nullable: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        kind = nullable.WhichOneof("nullability")
        if kind == "no_nulls":
            return (yield from self.decode(nullable.no_nulls.values, rows, arrow))
        if kind == "all_nulls":
            if len(rows) > MAX_UNBACKED:
                raise DamagedPage(f"{len(rows)} nulls in one read are too many; read fewer rows")
            return Nothing(len(rows)), np.zeros(len(rows), np.bool_)
        if kind != "some_nulls":
            raise DamagedPage("a page has no validity bitmap")
        some = nullable.some_nulls
        (bits, _), (values, _) = yield from together(
            [self.decode(some.validity, rows, None), self.decode(some.values, rows, arrow)]
        )
        if not isinstance(bits, Flat) or bits.bits != 1:
            raise DamagedPage("a validity bitmap does not have one bit per value")
        unpacked = np.unpackbits(bits.data, count=bits.skip + bits.count, bitorder="little")
        return values, unpacked[bits.skip :].astype(np.bool_)

    def _fixed_size_list(self, lists: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        size = int(lists.dimension)
        flat, bits = _flat_items(lists.items)
        if size * max(bits, 1) * (self._page.length + 1) > 8 * (MAX_UNBACKED + sum(n for _, n in self._page.buffers)):
            raise DamagedPage(f"a page is too short for lists of {size} items")
        if flat is not None and size * bits % 8 == 0 and size and not isinstance(rows, range):
            whole = yield from self._packed(flat, rows, size * bits)
            return FixedLists(size, Flat(whole.data, bits, size * len(rows)), None, len(rows)), None
        below = None if arrow is None or not pt.is_fixed_size_list(arrow) else arrow.value_type
        values, valid = yield from self.decode(lists.items, repeated(rows, size), below)
        validity = None if valid is None else Flat(np.packbits(valid, bitorder="little"), 1, len(valid))
        return FixedLists(size, values, validity, len(rows)), None

    def ends(self, encoding: Any, rows: Rows, adjustment: int) -> Job[tuple[Int64s, Int64s, Any]]:
        """Return begin, end and validity of each row; stored ends of nulls are increased by ``adjustment``."""
        before: Rows
        if isinstance(rows, range):
            before = range(max(rows.start - 1, 0), rows.stop)
            values, _ = yield from self.decode(encoding, before, None)
            numbers = self._numbers(values)
            if not rows.start:
                numbers = np.append(np.uint64(0), numbers) if len(rows) else numbers
            previous, last = numbers[: len(rows)], numbers[len(numbers) - len(rows) :]
        else:
            (low, _), (high, _) = yield from together(
                [self.decode(encoding, np.maximum(rows - 1, 0), None), self.decode(encoding, rows, None)]
            )
            previous, last = self._numbers(low).copy(), self._numbers(high)
            previous[rows == 0] = 0
        limit = np.uint64(adjustment)
        null = last >= limit if adjustment else np.zeros(len(last), np.bool_)
        end = np.where(null, last - limit, last)
        begin = np.where(previous >= limit, previous - limit, previous) if adjustment else previous
        if len(end) and (int(max(end.max(), begin.max())) >= 1 << 56 or (end < begin).any()):
            raise DamagedPage("the ends of strings, bytes or lists decrease, or are too large")
        return begin.astype(np.int64), end.astype(np.int64), ~null

    def _numbers(self, values: Values) -> Any:
        if not isinstance(values, Flat) or values.bits != 64:
            raise DamagedPage("ends of strings, bytes or lists are not 64-bit integers")
        return values.data[: 8 * values.count].copy().view("<u8")

    def _binary(self, binary: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        data, at, length, valid = yield from self._strings(binary, rows)
        if isinstance(rows, range) and len(rows):
            offsets = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(length, out=offsets[1:])
            return Variable(offsets, data[at[0] : at[0] + offsets[-1]]), valid
        return gather(data, at, length), valid

    def _strings(self, binary: Any, rows: Rows) -> Job[tuple[Bytes, Int64s, Int64s, Any]]:
        """Locate strings or binaries: return data, positions, lengths and validity."""
        begin, end, valid = yield from self.ends(binary.indices, rows, binary.null_adjustment)
        flat, bits = _flat_items(binary.bytes)
        if flat is None or bits != 8:
            raise UnsupportedPage("only flat strings or bytes are supported")
        if isinstance(rows, range):
            if (begin[1:] != end[:-1]).any():
                raise DamagedPage("the ends of strings, bytes or lists decrease, or are too large")
            total = end[-1:] - begin[:1]
            data, at = yield from self._pieces(flat, begin[:1], total)
            return data, begin - begin[:1] + at[:1], end - begin, valid
        data, at = yield from self._pieces(flat, begin, end - begin)
        return data, at, end - begin, valid

    def _fsst(self, fsst: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        if fsst.binary.WhichOneof("array_encoding") != "binary":
            raise UnsupportedPage("FSST is supported only for strings and bytes")
        data, at, length, valid = yield from self._strings(fsst.binary.binary, rows)
        return SymbolTable.parse(fsst.symbol_table).decode(data, at, length), valid

    def _dictionary(self, dictionary: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        count = int(dictionary.num_dictionary_items)
        typed = arrow is not None and pt.is_dictionary(arrow)
        below = arrow.value_type if arrow is not None and typed else arrow
        (indices, valid), (items, present) = yield from together(
            [self.decode(dictionary.indices, rows, None), self.decode(dictionary.items, range(count), below)]
        )
        if not isinstance(indices, Flat) or indices.bits == 1:
            raise DamagedPage("the indices of a dictionary are not integers")
        numbers = indices.typed()
        if typed:  # an entry may be null
            if present is not None and not present.all():
                if len(numbers) and int(numbers.max()) >= count:
                    raise DamagedPage(f"dictionary index {numbers.max()} is out of range for {count} entries")
                valid = present[numbers] if valid is None else valid & present[numbers]
            return Indexed(indices, items), valid
        # Indices count from 1; 0 is null.
        valid = numbers > 0 if valid is None else valid & (numbers > 0)
        numbers = np.maximum(numbers, 1) - 1
        if not count:
            return Nothing(len(numbers)), np.zeros(len(numbers), np.bool_)
        return Indexed(Flat(numbers.astype(numbers.dtype).view(np.uint8), indices.bits, len(numbers)), items), valid

    def _struct(self, struct: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        if len(rows) > MAX_UNBACKED:
            raise DamagedPage(f"{len(rows)} empty structs in one read are too many; read fewer rows")
        yield []
        return Nothing(len(rows)), None

    def _packed_struct(self, struct: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        widths = []
        for inner in struct.inner:
            items = 1
            while True:
                kind = inner.WhichOneof("array_encoding")
                if kind == "nullable" and inner.nullable.WhichOneof("nullability") == "no_nulls":
                    inner = inner.nullable.no_nulls.values
                elif kind == "fixed_size_list":
                    items *= inner.fixed_size_list.dimension
                    inner = inner.fixed_size_list.items
                else:
                    break
            if kind != "flat" or inner.flat.bits_per_value * items % 8:
                raise UnsupportedPage(f"the encoding {kind!r} in a packed struct is not supported")
            widths.append(int(inner.flat.bits_per_value) * items)
        flat = yield from self._packed(encodings20_pb2.Flat(buffer=struct.buffer), rows, sum(widths))
        return PackedRows(widths, flat), None

    def _fixed_size_binary(self, binary: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        flat, bits = _flat_items(binary.bytes)
        if flat is None or bits != 8:
            raise UnsupportedPage("only flat bytes are supported")
        return (yield from self._packed(flat, rows, 8 * int(binary.byte_width))), None

    def _constant(self, constant: Any, rows: Rows, arrow: pa.DataType | None) -> Job[Decoded]:
        if arrow is None or len(rows) > MAX_UNBACKED:
            raise UnsupportedPage(f"{len(rows)} constants in one read are not supported")
        yield []
        value = fixed(np.frombuffer(constant.value, np.uint8), 1, arrow)
        return value.take(np.zeros(len(rows), np.int64)), None


def _flat_items(encoding: Any) -> tuple[Any, int]:
    """Return a flat encoding and its bits, without a ``no_nulls`` wrapper; ``None`` for other encodings."""
    kind = encoding.WhichOneof("array_encoding")
    if kind == "nullable" and encoding.nullable.WhichOneof("nullability") == "no_nulls":
        encoding = encoding.nullable.no_nulls.values
    if encoding.WhichOneof("array_encoding") != "flat":
        return None, 0
    return encoding.flat, int(encoding.flat.bits_per_value)
