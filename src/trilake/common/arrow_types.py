"""Traverse nested Arrow types; all other modules use these functions, so that a new nested type is added once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

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


def types_in(t: pa.DataType) -> Iterator[pa.DataType]:
    """The type and all types inside it, parents first."""
    yield t
    for f in parts(t):
        yield from types_in(f.type)


def leaf_count(t: pa.DataType) -> int:
    """The number of Parquet columns for a type."""
    return sum(not parts(inner) for inner in types_in(t))
