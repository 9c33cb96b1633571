"""Reassemble shredded variants of Parquet files.

Parquet: *Variant Encoding* and *Variant Shredding*.  Each node of the column tree becomes one encoded value per
row, from the leaves to the root; missing values are null.  Integers and decimals take the fewest bytes, as in Spark.
There are no loops over rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.errors import CorruptFileError
from trilake.parquet.files import TAIL
from trilake.parquet.thrift import Struct, parse_struct, parse_structs, to_bytes, to_int

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

#: Fields of a footer, schema element, and logical type.
_SCHEMA, _NAME, _CHILDREN, _LOGICAL, _VARIANT = 2, 4, 5, 10, 16
#: Basic types: the lowest two bits of a value.
_SHORT_STRING, _OBJECT, _ARRAY = 1, 2, 3
#: Primitive types: the upper six bits, if the lowest two are 0.
_TRUE, _FALSE, _INT, _DOUBLE, _DECIMAL, _DATE, _FLOAT, _BINARY, _STRING, _TIME, _UUID = (
    *(1, 2, 3, 7, 8, 11, 14, 15, 16, 17, 20),
)
#: Timestamp types by unit and whether they have a zone.
_TIMESTAMPS = {("us", True): 12, ("us", False): 13, ("ns", True): 18, ("ns", False): 19}
#: A null variant, which is not missing.
NULL_VALUE = b"\x00"
_LONGEST_SHORT_STRING = 63
_PARTS = [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)]
#: Maximum nesting.
_MAX_DEPTH = 100
_HELP = "rewrite the file without shredding (spark.sql.variant.writeShredding.enabled=false)"


def is_shredded(type_: pa.DataType) -> bool:
    """Whether a variant column, as Arrow reads it, is shredded.

    >>> is_shredded(pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())]))
    True
    """
    return bool(pa.types.is_struct(type_) and type_.get_field_index("typed_value") >= 0)


def variant_groups(metadata: pq.FileMetaData) -> frozenset[str]:
    """The dotted paths of variant columns in a footer."""
    out = pa.BufferOutputStream()
    metadata.write_metadata_file(out)
    file = out.getvalue()
    elements = parse_structs(parse_struct(file[4:-TAIL].to_pybytes())[_SCHEMA])
    return frozenset(
        path for path, e in _paths(elements) if _LOGICAL in e and _VARIANT in parse_struct(e[_LOGICAL].data)
    )


def _paths(elements: Sequence[Struct]) -> Iterator[tuple[str, Struct]]:
    """The elements of a schema below its root, depth first, with paths."""
    ends: list[list[Any]] = []
    for element in elements:
        name = to_bytes(element[_NAME]).decode("utf-8", "replace")
        if ends:
            yield ".".join([*(n for n, _ in ends[1:]), name]), element
            ends[-1][1] -= 1
        ends.append([name, to_int(element[_CHILDREN]) if _CHILDREN in element else 0])
        while ends and not ends[-1][1]:
            ends.pop()


def unshredded(array: pa.StructArray, column: str) -> pa.StructArray:
    """Reassemble variants as structs of ``value`` and ``metadata``, which are empty for null variants.

    Raises ``CorruptFileError`` if the columns contradict each other or the format, or have an invalid type.
    """
    index = array.type.get_field_index("metadata")
    if index < 0:
        raise _corrupt("a shredded variant has no column metadata", column)
    metadata = array.flatten()[index].cast(pa.binary())
    keys = metadata.dictionary_encode()
    numbers = np.asarray(keys.indices.fill_null(-1), np.int64)
    if ((numbers < 0) & np.asarray(array.is_valid())).any():
        raise _corrupt("a variant has no metadata", column)
    values = _node(array, Names.of(keys.dictionary, column), np.maximum(numbers, 0), column, 0)
    values = pc.if_else(array.is_valid(), values.fill_null(NULL_VALUE), b"")
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([values, metadata.fill_null(b"")], fields=_PARTS, mask=mask)


def _corrupt(what: str, column: str) -> CorruptFileError:
    return CorruptFileError(what, help=_HELP, column=column)


@dataclass(frozen=True)
class Names:
    """The names in all distinct metadata of a batch."""

    #: The index of each metadata's first name, and of the end.
    first: Numbers
    #: Each name's metadata, and its rank among all names.
    owner: Numbers
    rank: Numbers
    #: The distinct names, in the order of ``rank``.
    ordered: pa.Array

    @classmethod
    def of(cls, metadata: pa.Array, column: str) -> Names:
        data, starts, ends = bytes_of(metadata)
        if (starts == ends).any() or ((data[starts] & 15) != 1).any():
            raise _corrupt("a variant has metadata of a version other than 1", column)
        width = (data[starts] >> 6).astype(np.int64) + 1
        counts = _unsigned(data, starts + 1, width, ends, column)
        offsets = starts + 1 + width
        base = offsets + (counts + 1) * width
        if (base > ends).any():
            raise _corrupt("the metadata of a variant ends within its list of names", column)
        owner, index = _expanded(counts)
        at = offsets[owner] + index * width[owner]
        low = base[owner] + _unsigned(data, at, width[owner], ends[owner], column)
        high = base[owner] + _unsigned(data, at + width[owner], width[owner], ends[owner], column)
        names = binary_slices(metadata, low, high, ends[owner], column)
        if not len(names):
            return cls(np.zeros(len(counts) + 1, np.int64), owner, owner, names)
        encoded = names.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary)
        rank = np.empty(len(order), np.int64)
        rank[np.asarray(order)] = np.arange(len(order))
        first = np.concatenate([[0], np.cumsum(counts)])
        return cls(first, owner, rank[np.asarray(encoded.indices)], encoded.dictionary.take(order))

    def ids_of(self, name: str) -> tuple[int, Numbers]:
        """The rank of a name, and its id in each metadata; -1 if absent."""
        ids = np.full(len(self.first) - 1, -1)
        rank = pc.index(self.ordered, pa.scalar(name.encode(), pa.binary())).as_py()
        indices = np.flatnonzero(self.rank == rank)
        ids[self.owner[indices]] = indices - self.first[self.owner[indices]]
        return rank, ids


# --- nodes -----------------------------------------------------------------------------------------------------------


def _node(group: pa.StructArray, names: Names, keys: Numbers, column: str, depth: int) -> pa.Array:
    """Encode a group of ``value`` and ``typed_value``; ``keys`` are the rows' metadata."""
    if depth > _MAX_DEPTH:
        raise _corrupt(f"a variant is nested deeper than {_MAX_DEPTH}", column)
    parts = (
        dict(zip([f.name for f in group.type], group.flatten(), strict=True)) if pa.types.is_struct(group.type) else {}
    )
    value, typed_value = parts.get("value"), parts.get("typed_value")
    if value is None and typed_value is None:
        raise _corrupt(f"{group.type} is not a struct of value and typed_value", column)
    value = pa.nulls(len(group), pa.binary()) if value is None else value.cast(pa.binary())
    if typed_value is None:
        return value
    if isinstance(typed_value, pa.ExtensionArray) and pa.types.is_fixed_size_binary(typed_value.storage.type):
        typed_value = typed_value.storage  # of UUIDs
    if pa.types.is_struct(typed_value.type):
        return _object(value, typed_value, names, keys, column, depth)
    if pc.any(pc.and_(value.is_valid(), typed_value.is_valid())).as_py():
        raise _corrupt("a variant has a value and a typed value, but is not an object", column)
    if pa.types.is_list(typed_value.type) or pa.types.is_large_list(typed_value.type):
        encoded = _array(typed_value, names, keys, column, depth)
    else:
        encoded = _primitive(typed_value, column)
    return pc.coalesce(encoded, value)


def _array(lists: pa.Array, names: Names, keys: Numbers, column: str, depth: int) -> pa.Array:
    counts = np.asarray(pc.list_value_length(lists).fill_null(0), np.int64)
    elements = _node(lists.flatten(), names, np.repeat(keys, counts), f"{column}.element", depth + 1)
    body = Body(counts, elements.fill_null(NULL_VALUE))
    return pc.if_else(lists.is_valid(), body.encoded(None), None)


def _object(value: pa.Array, fields: pa.StructArray, names: Names, keys: Numbers, column: str, depth: int) -> pa.Array:
    present = np.asarray(fields.is_valid())
    rest = fields_of(value, np.flatnonzero(present & np.asarray(value.is_valid())), names, keys, column)
    rows, ids, ranks, values = [rest.rows], [rest.ids], [rest.ranks], [rest.values]
    for f, part in zip(fields.type, fields.flatten(), strict=True):
        encoded = _node(part, names, keys, f"{column}.{f.name}", depth + 1)
        at = np.flatnonzero(present & np.asarray(encoded.is_valid()))
        rank, ids_of = names.ids_of(f.name)
        if (ids_of[keys[at]] < 0).any():
            raise _corrupt(f"the metadata of a variant lacks the name of its field {f.name!r}", column)
        rows.append(at)
        ids.append(ids_of[keys[at]])
        ranks.append(np.full(len(at), rank))
        values.append(encoded.take(pa.array(at)))
    row, by_name = np.concatenate(rows), np.concatenate(ranks)
    order = np.lexsort((by_name, row))
    row, by_name = row[order], by_name[order]
    if ((row[1:] == row[:-1]) & (by_name[1:] == by_name[:-1])).any():
        raise _corrupt("a field of a variant is both in its value and in a separate column", column)
    body = Body(np.bincount(row, minlength=len(value)), pa.concat_arrays(values).take(pa.array(order)))
    return pc.if_else(fields.is_valid(), body.encoded(np.concatenate(ids)[order]), value)


@dataclass(frozen=True)
class Fields:
    """Fields of encoded objects: rows, ids, ranks of names, and values."""

    rows: Numbers
    ids: Numbers
    ranks: Numbers
    values: pa.Array


def fields_of(value: pa.Array, rows: Numbers, names: Names, keys: Numbers, column: str) -> Fields:
    """The fields of the encoded objects at ``rows``."""
    data, starts, ends = bytes_of(value)
    starts, ends = starts[rows], ends[rows]
    if (starts == ends).any() or ((data[starts] & 3) != _OBJECT).any():
        raise _corrupt("a variant has fields in separate columns, but its value is not an object", column)
    head = (data[starts] >> 2).astype(np.int64)
    offset_size, id_size, large = (head & 3) + 1, (head >> 2 & 3) + 1, (head >> 4 & 1) == 1
    count_size = np.where(large, 4, 1)
    counts = _unsigned(data, starts + 1, count_size, ends, column)
    ids_at = starts + 1 + count_size
    offsets_at = ids_at + counts * id_size
    base = offsets_at + (counts + 1) * offset_size
    if (base > ends).any():
        raise _corrupt("an object of a variant ends within its list of fields", column)
    size = _unsigned(data, offsets_at + counts * offset_size, offset_size, ends, column)
    owner, index = _expanded(counts)
    last = ends[owner]
    ids = _unsigned(data, ids_at[owner] + index * id_size[owner], id_size[owner], last, column)
    offsets = _unsigned(data, offsets_at[owner] + index * offset_size[owner], offset_size[owner], last, column)
    key = keys[rows][owner]
    if (ids >= names.first[key + 1] - names.first[key]).any():
        raise _corrupt("a field of a variant has a name that its metadata lacks", column)
    # Values have any order; each ends where the next one begins.
    order = np.lexsort((offsets, owner))
    following = np.append(offsets[order][1:], 0)
    is_last = np.append(owner[order][1:] != owner[order][:-1], True)[: len(order)]
    stops = np.empty_like(offsets)
    stops[order] = np.where(is_last, size[owner][order], following[: len(order)])
    values = binary_slices(value, base[owner] + offsets, base[owner] + stops, last, column)
    return Fields(rows[owner], ids, names.rank[names.first[key] + ids], values)


@dataclass(frozen=True)
class Body:
    """The values of arrays or objects, row by row."""

    counts: Numbers
    values: pa.Array

    def encoded(self, ids: Numbers | None) -> pa.Array:
        """Encode one array per row, or an object with field ids."""
        ends = np.cumsum(self.counts)
        lists = pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), self.values)
        head = self._head(ids, np.asarray(pc.binary_length(self.values), np.int64), ends - self.counts)
        return pc.binary_join_element_wise(head, pc.binary_join(lists, b""), b"")

    def _head(self, ids: Numbers | None, lengths: Numbers, firsts: Numbers) -> pa.Array:
        counts, rows = self.counts, len(self.counts)
        owner, index = _expanded(counts)
        ends = np.cumsum(np.append(0, lengths))
        sizes = ends[firsts + counts] - ends[firsts]
        large = counts > 0xFF
        offset_size = _width(sizes)
        id_size, shift = np.zeros(rows, np.int64), 2
        if ids is not None:
            highest = np.zeros(rows, np.int64)
            np.maximum.at(highest, owner, ids)
            id_size, shift = _width(highest), 4
        first = (offset_size - 1) | large << shift
        first = first << 2 | _ARRAY if ids is None else (first | (id_size - 1) << 2) << 2 | _OBJECT
        count_size = np.where(large, 4, 1)
        starts = np.cumsum(np.append(0, 1 + count_size + counts * id_size + (counts + 1) * offset_size))
        out = np.zeros(starts[-1], np.uint8)
        at = starts[:-1]
        out[at] = first
        _put(out, at + 1, counts, count_size)
        at = at + 1 + count_size
        if ids is not None:
            _put(out, at[owner] + index * id_size[owner], ids, id_size[owner])
            at = at + counts * id_size
        _put(out, at[owner] + index * offset_size[owner], ends[:-1] - ends[firsts][owner], offset_size[owner])
        _put(out, at + counts * offset_size, sizes, offset_size)
        return _binaries(starts, out)


# --- values without parts --------------------------------------------------------------------------------------------


def _primitive(array: pa.Array, column: str) -> pa.Array:
    t, is_ = array.type, pa.types
    if is_.is_boolean(t):
        true, false = (pa.scalar(bytes([kind << 2]), pa.binary()) for kind in (_TRUE, _FALSE))
        return pc.if_else(array, true, false)
    if is_.is_signed_integer(t):
        numbers = np.asarray(array.fill_null(0), np.int64)
        size = sum((numbers < -(1 << bits)) | (numbers >= 1 << bits) for bits in (7, 15, 31))
        return _packed(array, (_INT + size) << 2, _as_bytes(numbers), 1 << size)
    if is_.is_decimal(t) and t.scale >= 0:
        return _decimals(array.cast(pa.decimal128(38, t.scale)))
    if is_.is_float32(t) or is_.is_float64(t):
        kind = _DOUBLE if is_.is_float64(t) else _FLOAT
        return _packed(array, kind << 2, _as_bytes(np.asarray(array.fill_null(0))))
    if is_.is_date32(t):
        return _packed(array, _DATE << 2, _as_bytes(np.asarray(array.cast(pa.int32()).fill_null(0))))
    if is_.is_timestamp(t) and (t.unit, t.tz is not None) in _TIMESTAMPS:
        kind = _TIMESTAMPS[t.unit, t.tz is not None]
        return _packed(array, kind << 2, _as_bytes(np.asarray(array.cast(pa.int64()).fill_null(0))))
    if is_.is_time64(t) and t.unit == "us":
        return _packed(array, _TIME << 2, _as_bytes(np.asarray(array.cast(pa.int64()).fill_null(0))))
    if is_.is_fixed_size_binary(t) and t.byte_width == 16:
        bytes_ = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, 16)[array.offset : array.offset + len(array)]
        return _packed(array, _UUID << 2, bytes_)
    if is_.is_string(t) or is_.is_large_string(t) or is_.is_binary(t) or is_.is_large_binary(t):
        return _strings(array.cast(pa.binary()), is_string=is_.is_string(t) or is_.is_large_string(t))
    raise _corrupt(f"a typed value has the type {t}, which is invalid in variants", column)


def _decimals(array: pa.Array) -> pa.Array:
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    words = np.where(np.asarray(array.is_valid())[:, None], words, 0)
    low, high = words[:, 0], words[:, 1]
    narrow = high == low >> 63
    size = np.select([narrow & (abs(low) < 10**bits) & (low != -(2**63)) for bits in (9, 18)], [0, 1], 2)
    scale = np.full((len(array), 1), array.type.scale, np.uint8)
    return _packed(array, (_DECIMAL + size) << 2, np.hstack([scale, _as_bytes(words)]), 1 + (4 << size))


def _strings(array: pa.Array, *, is_string: bool) -> pa.Array:
    lengths = np.asarray(pc.binary_length(array).fill_null(0), np.int64)
    short = is_string & (lengths <= _LONGEST_SHORT_STRING)
    first = np.where(short, lengths << 2 | _SHORT_STRING, (_STRING if is_string else _BINARY) << 2)
    head = _packed(array, first, _as_bytes(lengths.astype(np.uint32)), np.where(short, 0, 4))
    return pc.binary_join_element_wise(head, array, b"")


def _packed(array: pa.Array, first: Numbers | int, rest: _Bytes, sizes: Numbers | int | None = None) -> pa.Array:
    """Values with a first byte and the first ``sizes`` bytes of ``rest``; null where ``array`` is."""
    count, width = rest.shape
    whole = np.empty((count, 1 + width), np.uint8)
    whole[:, 0], whole[:, 1:] = first, rest
    lengths = 1 + np.broadcast_to(width if sizes is None else sizes, count)
    offsets = np.cumsum(np.append(0, lengths))
    return _binaries(offsets, whole[np.arange(1 + width) < lengths[:, None]], array)


# --- bytes -----------------------------------------------------------------------------------------------------------


def _as_bytes(numbers: np.ndarray[Any, Any]) -> _Bytes:
    """The little-endian bytes of fixed-width numbers, one row each."""
    little = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<"))
    width = numbers.dtype.itemsize * (numbers.shape[1] if numbers.ndim > 1 else 1)
    return little.view(np.uint8).reshape(len(numbers), width)


def _binaries(offsets: Numbers, data: _Bytes, nulls_of: pa.Array | None = None) -> pa.Array:
    valid = None
    if nulls_of is not None and nulls_of.null_count:
        valid = pa.py_buffer(np.packbits(np.asarray(nulls_of.is_valid()), bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def bytes_of(array: pa.Array) -> tuple[_Bytes, Numbers, Numbers]:
    """The bytes of binaries, and their offsets."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1] if offsets else np.zeros(1)
    bounds = ends.astype(np.int64)
    return np.frombuffer(data if data is not None else b"", np.uint8), bounds[:-1], bounds[1:]


def binary_slices(array: pa.Array, starts: Numbers, stops: Numbers, ends: Numbers, column: str) -> pa.Array:
    """Slices of the bytes of binaries, without overlaps."""
    order = np.lexsort((stops, starts))
    low, high = starts[order], stops[order]
    if (low > high).any() or (stops > ends).any() or (high[:-1] > low[1:]).any():
        raise _corrupt("the values of a variant overlap or extend past its end", column)
    bounds = np.empty(2 * len(order), np.int32)
    bounds[::2], bounds[1::2] = low, high
    if not len(order):
        return pa.array([], pa.binary())
    tiles = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), array.buffers()[2]])
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order)) * 2
    return tiles.take(pa.array(positions))


def _unsigned(data: _Bytes, at: Numbers, sizes: Numbers, ends: Numbers, column: str) -> Numbers:
    """Unsigned numbers of one to four bytes at positions of the data."""
    if (at + sizes > ends).any():
        raise _corrupt("a variant ends within a number", column)
    return numbers_at(data, at, sizes, ends)


def numbers_at(data: _Bytes, at: Numbers, sizes: Numbers, ends: Numbers) -> Numbers:
    """Numbers of up to eight bytes; truncated ones lack their last bytes."""
    out = np.zeros(len(at), np.int64)
    for byte in range(int(sizes.max(initial=0))):
        wide = (sizes > byte) & (at + byte < ends)
        out[wide] |= data[at[wide] + byte].astype(np.int64) << 8 * byte
    return out


def _put(out: _Bytes, at: Numbers, numbers: Numbers, sizes: Numbers) -> None:
    for byte in range(4):
        wide = sizes > byte
        out[at[wide] + byte] = numbers[wide] >> 8 * byte & 0xFF


def _width(numbers: Numbers) -> Numbers:
    """The number of bytes per number, at least one."""
    return np.searchsorted(np.array([1 << 8, 1 << 16, 1 << 24]), numbers, side="right") + 1


def _expanded(counts: Numbers) -> tuple[Numbers, Numbers]:
    """The row of each item, and its index within the row, by items per row."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
