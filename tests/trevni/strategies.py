"""Arbitrary Arrow types and tables of them, for property tests."""

from __future__ import annotations

import decimal

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


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> pa.DataType:
    """An Arrow type, nested up to ``depth`` levels."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from(list(LEAVES)))
    inner = types(depth - 1)
    match draw(st.integers(0, 6)):
        case 0:
            return pa.list_(draw(fields(st.sampled_from(["item", "x"]), inner)))
        case 1:
            return pa.large_list(draw(inner))
        case 2:
            return pa.list_(draw(inner), draw(st.integers(1, 3)))
        case 3:
            return pa.map_(draw(st.sampled_from([pa.string(), pa.int64(), pa.date32()])), draw(inner))
        case 4:
            leaf = draw(st.sampled_from([pa.string(), pa.int64(), pa.float64()]))
            return pa.dictionary(pa.int32(), leaf)
        case _:
            names = draw(st.lists(st.sampled_from(["a", "b", "value", "key", "a.b"]), max_size=3, unique=True))
            return pa.struct([draw(fields(st.just(name), inner)) for name in names])


@st.composite
def fields(draw: st.DrawFn, names: st.SearchStrategy[str], types_: st.SearchStrategy[pa.DataType]) -> pa.Field:
    """A field, which may hold nulls or not."""
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
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        found = st.lists(values(type_.value_type, type_.value_field.nullable), max_size=4)
    else:
        found = LEAVES[type_]
    return st.one_of(found, st.none()) if nullable else found


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
            # Often without nulls at first: then the first null comes in a later batch.
            nullable = draw(st.booleans())
            rows_of = [draw(values(f.type, nullable)) for _ in range(rows)]
            arrays.append(pa.array(rows_of, f.type))
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema=schema)
