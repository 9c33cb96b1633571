"""Nanoseconds become microseconds only without loss, or if the caller allows rounding."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trilake.errors import SchemaMismatchError
from trilake.expr.terms.datatypes import normal_type
from trilake.expr.views import in_microseconds, microseconds_schema, microseconds_type, without_views_type

NS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("type_", "wrap"),
    [
        (NS, lambda v: v),
        (pa.timestamp("ns", "Asia/Tokyo"), lambda v: v),
        (pa.list_(NS), lambda v: [v]),
        (pa.large_list(NS), lambda v: [v]),
        (pa.list_(NS, 1), lambda v: [v]),
        (pa.struct({"a": NS, "b": "i4"}), lambda v: {"a": v, "b": 1}),
        (pa.map_("string", NS), lambda v: [("k", v)]),
        (pa.list_(pa.struct({"a": pa.list_(NS)})), lambda v: [{"a": [v]}]),
    ],
    ids=lambda v: str(v) if isinstance(v, pa.DataType) else "wrapped",
)
def test_timestamp_is_kept_rejected_or_rounded_down(type_: pa.DataType, wrap: object) -> None:
    assert callable(wrap)
    fine = [5_000, -3_000, None]
    rows = pa.record_batch({"t": pa.array([wrap(v) for v in fine] + [None], type_)})
    for part in (rows, rows.slice(1)):
        kept = in_microseconds(part)
        kept.validate(full=True)
        assert "[ns" not in str(kept.schema)
        assert kept.column("t").cast(rows.schema.field("t").type).equals(part.column("t"))
    lossy = pa.record_batch({"t": pa.array([wrap(v) for v in (5_001, -1)], type_)})
    with pytest.raises(SchemaMismatchError, match="Spark's microseconds cannot represent") as rejected:
        in_microseconds(lossy)
    assert rejected.value.context["column"] == "t"
    expected = pa.record_batch({"t": pa.array([wrap(v) for v in (5_000, -1_000)], type_)})
    assert in_microseconds(lossy, round_down=True).column("t").cast(type_).equals(expected.column("t"))


def test_other_units_are_unchanged() -> None:
    rows = pa.record_batch({"t": pa.array([1], pa.timestamp("ms")), "n": [1]})
    assert in_microseconds(rows) is rows
    assert microseconds_schema(rows.schema) is rows.schema


class _Made(pa.ExtensionType):  # type: ignore[misc]
    """A user-defined type without a hash."""

    def __init__(self) -> None:
        super().__init__(pa.binary(2), "tests.made")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> _Made:
        return cls()


def test_user_defined_type_needs_no_hash() -> None:
    made = _Made()
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
    assert microseconds_type(made) is made
    assert without_views_type(made) is made
    assert normal_type(made) == pa.binary()
    nested = pa.struct({"a": made, "t": NS})
    assert microseconds_type(nested) == pa.struct({"a": made, "t": pa.timestamp("us")})
