"""Random Arrow types and tables for property tests."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)

#: Leaf type -> values.
LEAVES: dict[pa.DataType, st.SearchStrategy] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint8(): st.integers(0, 255),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.integers(0, 2**10).map(float),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.string_view(): _TEXT,
    pa.binary(): st.binary(max_size=8),
    pa.large_binary(): st.binary(max_size=8),
    pa.binary_view(): st.binary(max_size=20),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=0)),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ns", "Europe/Paris"): st.integers(-(2**62), 2**62),
    pa.duration("s"): st.integers(-(2**31), 2**31),
    pa.decimal32(7, 2): st.decimals(-99999, 99999, places=2),
    pa.decimal64(15, 3): st.decimals(-(10**11), 10**11, places=3),
    pa.decimal128(5, 1): st.decimals(-9999, 9999, places=1),
    pa.decimal128(18, 0): st.integers(-(10**18) + 1, 10**18 - 1).map(decimal.Decimal),
    pa.decimal128(38, 4): st.integers(-(10**33), 10**33).map(lambda i: decimal.Decimal(i).scaleb(-4)),
    pa.decimal256(76, 0): st.integers(-(10**27), 10**27).map(decimal.Decimal),
    pa.month_day_nano_interval(): st.tuples(*[st.integers(-1000, 1000)] * 3),
    pa.null(): st.none(),
}
#: Types with the Python values of their storage.
STORED: dict[pa.DataType, pa.DataType] = {pa.bool8(): pa.int8(), pa.json_(): pa.string()}


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> pa.DataType:
    """An Arrow type, nested up to ``depth`` levels."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(list(LEAVES)))
    inner = types(depth - 1)
    match draw(st.integers(0, 10)):
        case 0:
            return pa.list_(draw(fields(st.sampled_from(["item", "x"]), inner)))
        case 1:
            return pa.large_list(draw(inner))
        case 2:
            return pa.list_(draw(inner), draw(st.integers(1, 3)))
        case 3:
            return pa.map_(draw(st.sampled_from([pa.string(), pa.int64(), pa.date32()])), draw(inner))
        case 6:
            kind = draw(st.sampled_from([pa.list_view, pa.large_list_view]))
            return kind(draw(inner))
        case 7:
            return pa.run_end_encoded(draw(st.sampled_from([pa.int16(), pa.int32(), pa.int64()])), draw(inner))
        case 8:
            return draw(st.sampled_from(list(STORED)))
        case 9 | 10:
            branches = draw(st.lists(fields(st.sampled_from(["a", "b", "x/y"]), inner), min_size=1, max_size=3))
            codes = draw(st.lists(st.integers(0, 127), min_size=len(branches), max_size=len(branches), unique=True))
            return pa.union(branches, draw(st.sampled_from(["dense", "sparse"])), codes)
        case 4:
            leaf = draw(st.sampled_from([pa.string(), pa.int64(), pa.float64()]))
            return pa.dictionary(pa.int32(), leaf)
        case _:
            names = draw(st.lists(st.sampled_from(["a", "b", "value", "key", "a.b"]), max_size=3, unique=True))
            return pa.struct([draw(fields(st.just(name), inner)) for name in names])


@st.composite
def fields(draw: st.DrawFn, names: st.SearchStrategy[str], types_: st.SearchStrategy[pa.DataType]) -> pa.Field:
    """A field, nullable or not."""
    type_ = draw(types_)
    return pa.field(draw(names), type_, nullable=pa.types.is_null(type_) or draw(st.booleans()))


def values(type_: pa.DataType, nullable: bool = True) -> st.SearchStrategy:
    """Python values of a type."""
    if pa.types.is_dictionary(type_):
        found = values(type_.value_type, False)
    elif pa.types.is_struct(type_):
        found = st.fixed_dictionaries({f.name: values(f.type, f.nullable) for f in type_})
    elif pa.types.is_map(type_):
        pairs = st.tuples(values(type_.key_type, False), values(type_.item_type))
        found = st.lists(pairs, max_size=3)
    elif pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        found = st.lists(values(type_.value_type, type_.value_field.nullable), min_size=size, max_size=size)
    elif pa.types.is_run_end_encoded(type_):
        found = values(type_.value_type)
    elif pa.types.is_union(type_):
        # None is a null of the first branch: unions have no validity bitmap.
        nullable = False
        found = st.one_of(*(st.tuples(st.just(i), values(f.type)) for i, f in enumerate(_branches(type_))))
    elif type_ in STORED:
        found = values(STORED[type_], False)
    elif hasattr(type_, "value_field"):
        found = st.lists(values(type_.value_type, type_.value_field.nullable), max_size=4)
    else:
        found = LEAVES[type_]
    return st.one_of(found, st.none()) if nullable else found


def _branches(type_: pa.DataType) -> list[pa.Field]:
    return [type_.field(i) for i in range(type_.num_fields)]


def array(items: list[Any], type_: pa.DataType) -> pa.Array:
    """Python values as an array, including types that ``pa.array`` does not support.

    Values of unions are ``(number of the branch, value)``.
    """
    mask = pa.array([item is None for item in items], pa.bool_())
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, array(items, type_.storage_type))
    if pa.types.is_run_end_encoded(type_):
        # Two equal consecutive values stay one run in half of the cases.
        runs = [i for i in range(len(items)) if i % 2 == 0 or items[i] != items[i - 1] or items[i] != items[i]]
        ends = pa.array([*runs[1:], len(items)] if items else [], type_.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, array([items[i] for i in runs], type_.value_type), type=type_)
    if pa.types.is_union(type_):
        chosen = [item or (0, None) for item in items]
        codes = pa.array([type_.type_codes[i] for i, _ in chosen], pa.int8()).buffers()[1]
        if type_.mode == "sparse":
            parts = [[v if i == k else None for i, v in chosen] for k in range(type_.num_fields)]
            buffers: list[pa.Buffer | None] = [None, codes]
        else:
            parts = [[v for i, v in chosen if i == k] for k in range(type_.num_fields)]
            offsets = [sum(i == k for i, _ in chosen[:at]) for at, (k, _) in enumerate(chosen)]
            buffers = [None, codes, pa.array(offsets, pa.int32()).buffers()[1]]
        children = [array(part, f.type) for part, f in zip(parts, _branches(type_), strict=True)]
        return pa.Array.from_buffers(type_, len(items), buffers, children=children)
    if pa.types.is_struct(type_):
        parts = [[None if item is None else item[f.name] for item in items] for f in type_]
        children = [array(part, f.type) for part, f in zip(parts, type_, strict=True)]
        if not children:
            return pa.array(items, type_)
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_fixed_size_list(type_):
        inner = [v for item in items for v in ([None] * type_.list_size if item is None else item)]
        return pa.FixedSizeListArray.from_arrays(array(inner, type_.value_type), type=type_, mask=mask)
    if not pa.types.is_map(type_) and not hasattr(type_, "value_field"):
        return pa.array(items, type_)
    lengths = [0 if item is None else len(item) for item in items]
    ends = [sum(lengths[:i]) for i in range(len(items) + 1)]
    inner = [v for item in items for v in item or []]
    if pa.types.is_map(type_):
        keys, values_ = array([k for k, _ in inner], type_.key_type), array([v for _, v in inner], type_.item_type)
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, values_, type_, mask=mask)
    child = array(inner, type_.value_type)
    wide = pa.int64() if _is_large(type_) else pa.int32()
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        kind = pa.LargeListViewArray if _is_large(type_) else pa.ListViewArray
        return kind.from_arrays(pa.array(ends[:-1], wide), pa.array(lengths, wide), child, type=type_, mask=mask)
    plain = pa.LargeListArray if _is_large(type_) else pa.ListArray
    return plain.from_arrays(pa.array(ends, wide), child, type=type_, mask=mask)


def _is_large(type_: pa.DataType) -> bool:
    return bool(pa.types.is_large_list(type_) or pa.types.is_large_list_view(type_))


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 12) -> pa.Table:
    """A table of arbitrary columns, in one to three chunks."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c", "a?", "x.y", "é"]), min_size=1, max_size=3, unique=True))
    columns = [pa.field(n, draw(types()), nullable=True) for n in names]
    schema = pa.schema(columns, metadata=draw(st.sampled_from([None, {b"k": b"v"}])))
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, max_rows))
        arrays = []
        for f in columns:
            # Often without nulls at first, so that the first null is in a later batch.
            nullable = draw(st.booleans())
            rows_of = [draw(values(f.type, nullable)) for _ in range(rows)]
            arrays.append(array(rows_of, f.type))
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema=schema)
