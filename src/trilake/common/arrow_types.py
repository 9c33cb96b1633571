"""Traverse nested Arrow types; all other modules use these functions, so that a new nested type is added once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.compute import pc

_T = pa.types
_OF = pa.int8()
#: All list types, by Arrow's type ids.
_LISTS = frozenset(
    t.id for t in (pa.list_(_OF), pa.large_list(_OF), pa.list_(_OF, 1), pa.list_view(_OF), pa.large_list_view(_OF))
)


def is_list(t: pa.DataType) -> bool:
    """Whether a type is any kind of list: large, fixed-size and views, but not maps.

    >>> is_list(pa.list_(pa.int8(), 2)), is_list(pa.map_(pa.string(), pa.int8()))
    (True, False)
    """
    return t.id in _LISTS


def is_string(t: pa.DataType) -> bool:
    """Whether a type is any kind of string."""
    return bool(_T.is_string(t) or _T.is_large_string(t) or _T.is_string_view(t))


def is_binary(t: pa.DataType) -> bool:
    """Whether a type is any kind of binary."""
    return any(is_(t) for is_ in (_T.is_binary, _T.is_large_binary, _T.is_binary_view, _T.is_fixed_size_binary))


def elements_of(array: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The elements of lists or the entries of maps, and the offsets of each list, from 0 and including the end.

    >>> elements, offsets = elements_of(pa.array([[1], [2, 3]])[1:])
    >>> elements.to_pylist(), offsets.tolist()
    ([2, 3], [0, 2])
    """
    t = array.type
    if _T.is_fixed_size_list(t):
        size = t.list_size
        return array.values.slice(array.offset * size, len(array) * size), np.arange(len(array) + 1) * size
    if _T.is_list_view(t) or _T.is_large_list_view(t):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
        return array.flatten(), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    offsets = np.asarray(array.offsets).astype(np.int64)
    if not len(offsets):
        return array.values.slice(0, 0), np.zeros(1, np.int64)
    return array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), offsets - offsets[0]


def parts(t: pa.DataType) -> list[pa.Field]:
    """The fields directly inside a struct, list or map; none for other types.

    >>> [f.name for f in parts(pa.map_(pa.string(), pa.int8()))], parts(pa.int8())
    (['key', 'value'], [])
    """
    if _T.is_struct(t):
        return list(t)
    if _T.is_map(t):
        return [t.key_field, t.item_field]
    return [t.value_field] if is_list(t) else []


def with_parts(t: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The type with other fields, in the order of :func:`parts`; ``t`` itself if they are the same."""
    if all(a is b or a.equals(b, check_metadata=True) for a, b in zip(parts(t), fields, strict=True)):
        return t
    if _T.is_struct(t):
        return pa.struct(fields)
    if _T.is_map(t):
        return pa.map_(fields[0], fields[1], t.keys_sorted)
    if _T.is_fixed_size_list(t):
        return pa.list_(fields[0], t.list_size)
    if _T.is_list_view(t):
        return pa.list_view(fields[0])
    if _T.is_large_list_view(t):
        return pa.large_list_view(fields[0])
    return pa.large_list(fields[0]) if _T.is_large_list(t) else pa.list_(fields[0])


def mapped(t: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Transform a type and all types inside it, outermost first.

    >>> mapped(pa.list_(pa.int8()), lambda t: pa.int16() if t == pa.int8() else t)
    ListType(list<item: int16>)
    """
    t = change(t)
    fields = parts(t)
    return with_parts(t, [f.with_type(mapped(f.type, change)) for f in fields]) if fields else t


def rebuilt(array: pa.Array, target: pa.DataType, convert: Callable[[pa.Array, pa.Field], pa.Array]) -> pa.Array:
    """Rebuild a struct, map or list as type ``target``: ``convert`` converts the parts to those of the target."""
    t, fields = array.type, parts(target)
    if _T.is_struct(t):
        children = [convert(array.field(i), field) for i, field in enumerate(fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if _T.is_map(t):
        children = [convert(part, field) for part, field in zip((array.keys, array.items), fields, strict=True)]
        child = pa.StructArray.from_arrays(children, fields=fields)
    else:
        child = convert(array.values, fields[0])
    # Whole children and the same offsets preserve slices.
    buffers = array.buffers()[: 1 if _T.is_fixed_size_list(t) else 2]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, array.offset, [child])


def types_in(t: pa.DataType) -> Iterator[pa.DataType]:
    """The type and all types inside it, parents first."""
    yield t
    for f in parts(t):
        yield from types_in(f.type)


def values_at(rows: pa.Table | pa.RecordBatch, path: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """The values of a column, or of a field inside structs, which are null where a struct is.

    >>> values_at(pa.table({"s": [{"a": 1}, None]}), ["s", "a"]).to_pylist()
    [1, None]
    """
    values = rows.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, [name])
    return values


def nulls(length: int, t: pa.DataType) -> pa.Array:
    """Nulls like ``pa.nulls``, but with empty values in the required fields of null structs, such as variants.

    pyarrow 26 writes and casts a null struct only if its required fields are not null.

    >>> parts = pa.struct([pa.field("a", pa.int8(), False)])
    >>> pa.nulls(2, parts).field("a").null_count, nulls(2, parts).field("a").null_count
    (2, 0)
    """
    if not parts(t):
        return pa.nulls(length, t)
    return pa.array([None], t).take(np.zeros(length, np.int64))


def type_at(schema: pa.Schema | pa.DataType, path: Sequence[str]) -> pa.DataType:
    """The type of a column, or of a field inside structs."""
    t = schema
    for name in path:
        t = t.field(name).type
    return t


def leaf_count(t: pa.DataType) -> int:
    """The number of Parquet columns for a type."""
    return sum(not parts(inner) for inner in types_in(t))


def leaves_of(schema: pa.Schema | pa.DataType, path: tuple[str, ...] = ()) -> Iterator[list[tuple[str, ...] | None]]:
    """The paths of the Parquet columns of each field outside structs; ``None`` for those of a list or map.

    >>> item = pa.struct([("b", pa.int8()), ("c", pa.int8())])
    >>> list(leaves_of(pa.schema([("a", pa.int8()), ("s", item), ("l", pa.list_(item))])))
    [[('a',)], [('s', 'b')], [('s', 'c')], [None, None]]
    """
    if isinstance(schema, pa.Schema) or _T.is_struct(schema):
        for f in schema:
            yield from leaves_of(f.type, (*path, f.name))
    else:
        yield [None] * leaf_count(schema) if parts(schema) else [path]


def leaf_paths(schema: pa.Schema | pa.DataType) -> list[tuple[str, ...] | None]:
    """The path of each Parquet column; ``None`` inside lists and maps."""
    return [path for leaves in leaves_of(schema) for path in leaves]
