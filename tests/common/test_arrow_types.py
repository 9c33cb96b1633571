"""Transforms of nested Arrow types keep everything they do not change."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trilake.common.arrow_types import leaf_count, mapped, nulls, parts, types_in, with_parts

_FIELD = pa.field("x", pa.int8(), False, {"k": "v"})
_NESTED = [
    pa.struct([_FIELD, pa.field("y", pa.string())]),
    pa.list_(_FIELD),
    pa.large_list(_FIELD),
    pa.list_(_FIELD, 3),
    pa.list_view(_FIELD),
    pa.large_list_view(_FIELD),
    pa.map_(pa.field("k", pa.string(), False), _FIELD, keys_sorted=True),
]


@pytest.mark.parametrize("t", _NESTED, ids=str)
def test_transform_keeps_unchanged_parts(t: pa.DataType) -> None:
    assert with_parts(t, parts(t)) is t
    assert mapped(t, lambda inner: inner) is t
    wider = mapped(t, lambda inner: pa.int64() if inner == pa.int8() else inner)
    [changed] = [f for f in parts(wider) if f.type == pa.int64()]
    assert changed.equals(_FIELD.with_type(pa.int64()), check_metadata=True)
    assert mapped(wider, lambda inner: pa.int8() if inner == pa.int64() else inner).equals(t)
    assert wider.id == t.id
    assert leaf_count(t) == len(parts(t))


def test_types_are_visited_parents_first() -> None:
    inner = pa.struct([("a", pa.int8())])
    assert list(types_in(pa.list_(inner))) == [pa.list_(inner), inner, pa.int8()]


@pytest.mark.parametrize("t", [*_NESTED, pa.struct([("s", _NESTED[0])]), pa.int8(), pa.null()], ids=str)
def test_nulls_of_any_type_can_be_written(t: pa.DataType) -> None:
    array = nulls(2, t)
    assert array.to_pylist() == [None, None]
    assert array.type == t
    array.validate(full=True)
    if not any(kind in str(t) for kind in ("view", "fixed_size")):
        pq.write_table(pa.table({"c": array}), pa.BufferOutputStream())
    assert len(nulls(0, t)) == 0
