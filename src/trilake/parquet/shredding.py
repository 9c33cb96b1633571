"""Shred variants: write parts with the same type in many rows as separate columns.

Parquet: *Variant Shredding*.  :meth:`Shape.of` chooses the columns by a file's first rows, and
:func:`shredded` splits values into them; parts that do not fit stay in ``value``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.parquet.variants import Body, Fields, Names, Numbers, binary_slices, bytes_of, fields_of, numbers_at

_INTEGER, _TEXT, _BOOLEAN, _DOUBLE, _DATE, _INSTANT, _LOCAL, _OBJECT = range(1, 9)
_TYPES = {
    _INTEGER: pa.int64(),
    _TEXT: pa.string(),
    _BOOLEAN: pa.bool_(),
    _DOUBLE: pa.float64(),
    _DATE: pa.date32(),
    _INSTANT: pa.timestamp("us", "UTC"),
    _LOCAL: pa.timestamp("us"),
}
#: The share of rows, or of a field's values, from which on it gets a column.
_COMMON, _ALIKE = 0.1, 0.9
_MOST_FIELDS, _DEEPEST = 100, 5

#: The kind of a value by its first byte; 0 if it is not shredded.
_KIND_OF = np.zeros(256, np.int64)
_KIND_OF[1::4], _KIND_OF[2::4] = _TEXT, _OBJECT
_OF_PRIMITIVES = {1: _BOOLEAN, 2: _BOOLEAN, 7: _DOUBLE, 11: _DATE, 12: _INSTANT, 13: _LOCAL, 16: _TEXT}
for _number, _kind in (_OF_PRIMITIVES | dict.fromkeys(range(3, 7), _INTEGER)).items():
    _KIND_OF[_number << 2] = _kind
#: Bytes of a value by its first byte; 0 if the value has a length.
_SIZE_OF = np.zeros(256, np.int64)
_SIZE_OF[1::4] = 1 + np.arange(64)
for _number, _size in ((1, 0), (2, 0), (3, 1), (4, 2), (5, 4), (6, 8), (7, 8), (11, 4), (12, 8), (13, 8)):
    _SIZE_OF[_number << 2] = 1 + _size


@dataclass(frozen=True)
class Shape:
    """The parts of variants with separate columns: values of one kind, or fields of objects."""

    kind: int
    fields: tuple[tuple[str, Shape], ...] = ()

    @classmethod
    def of(cls, variants: pa.Array, column: str) -> Shape | None:
        """Choose a shape for rows; ``None`` if they have too little in common.  Raises ``CorruptFileError``."""
        values, names, keys = _taken_apart(variants, column)
        return _shape(values, names, keys, column, _DEEPEST)

    @property
    def type(self) -> pa.DataType:
        """The type of a shredded column in a file."""
        metadata = pa.field("metadata", pa.binary(), False)
        return pa.struct([metadata, *self._group])

    @property
    def _group(self) -> list[pa.Field]:
        typed = _TYPES.get(self.kind) or pa.struct([pa.field(n, pa.struct(s._group), False) for n, s in self.fields])
        return [pa.field("value", pa.binary()), pa.field("typed_value", typed)]


def shredded(variants: pa.Array, shape: Shape, column: str) -> pa.Array:
    """Split variants into the columns of a shape.  Raises ``CorruptFileError`` for values that are not variants."""
    values, names, keys = _taken_apart(variants, column)
    group = _shred(values, names, keys, shape, column)
    metadata = pc.if_else(variants.is_valid(), variants.field("metadata"), b"")
    mask = variants.is_null() if variants.null_count else None
    return pa.StructArray.from_arrays([metadata, *group], fields=list(shape.type), mask=mask)


def _taken_apart(variants: pa.Array, column: str) -> tuple[pa.Array, Names, Numbers]:
    parts = dict(zip([f.name for f in variants.type], variants.flatten(), strict=True))
    metadata = parts["metadata"].dictionary_encode()
    return parts["value"], Names.of(metadata.dictionary, column), np.asarray(metadata.indices.fill_null(0), np.int64)


def _kinds_of(values: pa.Array) -> Numbers:
    data, starts, ends = bytes_of(values)
    kinds = np.zeros(len(values), np.int64)
    has = np.flatnonzero(np.asarray(values.is_valid()) & (starts < ends))
    first, lengths = data[starts[has]], (ends - starts)[has]
    sizes = _SIZE_OF[first]
    # Truncated values, and values with a wrong length, stay.
    long = first == 16 << 2
    sizes[long] = 5 + numbers_at(data, starts[has][long] + 1, np.full(int(long.sum()), 4), ends[has][long])
    kinds[has] = np.where((sizes == 0) | (sizes == lengths), _KIND_OF[first], 0)
    return kinds


def _shape(values: pa.Array, names: Names, keys: Numbers, column: str, depth: int) -> Shape | None:
    count = len(values) - values.null_count
    kinds = _kinds_of(values)
    often = np.bincount(kinds, minlength=2)
    often[0] = 0
    kind = int(often.argmax())
    if not count or often[kind] < _ALIKE * count:
        return None
    if kind != _OBJECT:
        return Shape(kind)
    if not depth:
        return None
    fields = fields_of(values, np.flatnonzero(kinds == _OBJECT), names, keys, column)
    common = np.bincount(fields.ranks, minlength=1)
    ranks = [r for r in np.argsort(-common, kind="stable")[:_MOST_FIELDS].tolist() if common[r] >= _COMMON * count]
    inside = []
    for rank in sorted(ranks):
        at = np.flatnonzero(fields.ranks == rank)
        part = _shape(fields.values.take(pa.array(at)), names, keys[fields.rows[at]], column, depth - 1)
        if part is not None:
            inside.append((names.ordered[rank].as_py().decode(), part))
    return Shape(kind, tuple(inside)) if inside else None


def _shred(values: pa.Array, names: Names, keys: Numbers, shape: Shape, column: str) -> tuple[pa.Array, pa.Array]:
    """The ``value`` and ``typed_value`` of each row; both null if the value is missing."""
    rows = np.flatnonzero(_kinds_of(values) == shape.kind)
    if shape.kind == _OBJECT:
        return _shred_objects(values, rows, names, keys, shape, column)
    typed_values = _decoded(values.take(pa.array(rows)), shape.kind, column)
    is_typed = np.zeros(len(values), bool)
    is_typed[rows] = True
    return pc.if_else(pa.array(is_typed), None, values), _spread(typed_values, rows, len(values))


def _shred_objects(
    values: pa.Array, rows: Numbers, names: Names, keys: Numbers, shape: Shape, column: str
) -> tuple[pa.Array, pa.Array]:
    object_fields = fields_of(values, rows, names, keys, column)
    remaining = np.ones(len(object_fields.rows), bool)
    parts = []
    for name, inside in shape.fields:
        rank, _ = names.ids_of(name)
        at = np.flatnonzero(object_fields.ranks == rank)
        remaining[at] = False
        part = _spread(object_fields.values.take(pa.array(at)), object_fields.rows[at], len(values))
        parts.append(pa.StructArray.from_arrays(_shred(part, names, keys, inside, column), fields=inside._group))
    is_object = np.zeros(len(values), bool)
    is_object[rows] = True
    rest = _objects(object_fields, np.flatnonzero(remaining))
    with_rest = np.unique(object_fields.rows[remaining])
    value = pc.if_else(pa.array(is_object), _spread(rest, with_rest, len(values)), values)
    fields = [pa.field(n, p.type, False) for (n, _), p in zip(shape.fields, parts, strict=True)]
    return value, pa.StructArray.from_arrays(parts, fields=fields, mask=pa.array(~is_object))


def _objects(fields: Fields, at: Numbers) -> pa.Array:
    """Objects of some fields, for rows that have any."""
    at = at[np.lexsort((fields.ranks[at], fields.rows[at]))]
    counts = np.bincount(fields.rows[at], minlength=1)
    return Body(counts[counts > 0], fields.values.take(pa.array(at))).encoded(fields.ids[at])


def _spread(values: pa.Array, rows: Numbers, count: int) -> pa.Array:
    """Spread values over their rows; others are null."""
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _decoded(values: pa.Array, kind: int, column: str) -> pa.Array:
    data, starts, ends = bytes_of(values)
    first = data[starts].astype(np.int64)
    if kind == _BOOLEAN:
        return pa.array(first == 1 << 2)
    if kind == _TEXT:
        short = first & 3 == 1
        begin = starts + np.where(short, 1, 5)
        stop = begin + np.where(short, first >> 2, numbers_at(data, starts + 1, np.where(short, 0, 4), ends))
        return binary_slices(values, begin, stop, ends, column).cast(pa.string())
    size = {_INTEGER: 1 << (first >> 2) - 3, _DATE: np.full(len(first), 4)}.get(kind, np.full(len(first), 8))
    numbers = numbers_at(data, starts + 1, size, ends)
    if kind == _DOUBLE:
        return pa.array(numbers.view(np.float64))
    unused = 64 - 8 * size
    numbers = numbers << unused >> unused  # with the sign
    return pa.array(numbers.astype(np.int32) if kind == _DATE else numbers).cast(_TYPES[kind])
