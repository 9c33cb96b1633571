"""Type widening: allowed changes and their metadata."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.schema import StructField, StructType, from_arrow, parse_primitive
from trilake.delta.protocol.schema_edit import without_keys
from trilake.delta.protocol.type_widening import (
    TYPE_CHANGES,
    AutomaticWidening,
    can_widen,
    check_type_changes,
    has_type_changes,
    only_preview,
    record_changes,
    type_changes,
)
from trilake.errors import UnsupportedProtocolError

TYPES = [
    *("byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string", "boolean"),
    *("decimal(5,2)", "decimal(10,0)", "decimal(12,2)", "decimal(12,4)", "decimal(20,0)", "decimal(22,2)", "void"),
]
#: Copied by hand from the protocol's list.
WIDER = {
    "byte": "short integer long double decimal(10,0) decimal(12,2) decimal(20,0) decimal(22,2)",
    "short": "integer long double decimal(10,0) decimal(12,2) decimal(20,0) decimal(22,2)",
    "integer": "long double decimal(10,0) decimal(12,2) decimal(20,0) decimal(22,2)",
    "long": "decimal(20,0) decimal(22,2)",
    "float": "double",
    "date": "timestamp_ntz",
    "decimal(5,2)": "decimal(12,2) decimal(12,4) decimal(22,2)",
    "decimal(10,0)": "decimal(12,2) decimal(20,0) decimal(22,2)",
    "decimal(12,2)": "decimal(22,2)",
    "decimal(20,0)": "decimal(22,2)",
}


@pytest.mark.parametrize("old", TYPES)
def test_allowed_type_changes(old: str) -> None:
    result = [new for new in TYPES if can_widen(parse_primitive(old), parse_primitive(new))]
    assert sorted(result) == sorted(WIDER.get(old, "").split())


@pytest.mark.parametrize("old", TYPES)
def test_automatic_type_changes(old: str) -> None:
    def allowed(automatic: AutomaticWidening) -> list[str]:
        return sorted(new for new in TYPES if automatic.allows(parse_primitive(old), parse_primitive(new)))

    wider, integers = sorted(WIDER.get(old, "").split()), ("byte", "short", "integer", "long")
    same_family = [t for t in wider if old not in integers or t in integers]
    assert allowed(AutomaticWidening()) == wider
    assert allowed(AutomaticWidening("same_family_type")) == same_family
    assert allowed(AutomaticWidening("never")) == []
    # Iceberg keeps the scale of decimals, and dates.
    scales = {t: t.split(",")[1] for t in TYPES if "," in t}
    kept = [t for t in same_family if old != "date" and scales.get(t) == scales.get(old)]
    assert allowed(AutomaticWidening(iceberg_only=True)) == kept


def schema(number: pa.DataType, key: pa.DataType) -> StructType:
    nested = pa.map_(key, pa.list_(pa.list_(number)))
    return from_arrow(pa.schema([("a", number), ("s", pa.struct([("m", nested), ("x", pa.string())]))]))


def test_type_changes_are_recorded_at_the_nearest_field() -> None:
    first = record_changes(schema(pa.int8(), pa.int8()), schema(pa.int16(), pa.int32()))
    assert first.field("a").metadata == {TYPE_CHANGES: [{"fromType": "byte", "toType": "short"}]}
    struct = first.field("s")
    assert isinstance(struct.type, StructType)
    assert struct.metadata == {}
    assert type_changes(struct.type.field("m")) == [
        {"fromType": "byte", "toType": "integer", "fieldPath": "key"},
        {"fromType": "byte", "toType": "short", "fieldPath": "value.element.element"},
    ]
    assert type_changes(struct.type.field("x")) == []
    assert has_type_changes(first)


def test_later_type_changes_are_appended() -> None:
    small, middle = from_arrow(pa.schema([("a", pa.int8())])), from_arrow(pa.schema([("a", pa.int16())]))
    first = record_changes(small, middle, version=3)
    large = StructType((type(first.fields[0])("A", parse_primitive("long"), True, first.fields[0].metadata),))
    assert type_changes(record_changes(first, large, version=7).field("a")) == [
        {"tableVersion": 3, "fromType": "byte", "toType": "short"},
        {"tableVersion": 7, "fromType": "short", "toType": "long"},
    ]
    assert record_changes(first, first) == first
    assert without_keys(first, (TYPE_CHANGES,)) == middle
    assert not has_type_changes(middle)


def test_only_the_preview_feature() -> None:
    assert only_preview(Protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",)))
    both = ("typeWidening", "typeWidening-preview")
    assert not only_preview(Protocol(3, 7, both, both))
    assert not only_preview(Protocol(1, 2))


def changed(kind: str, old: str, new: str, path: str | None = None) -> Metadata:
    """Metadata whose column ``s.a`` has this type, and records that change."""
    change = {"fromType": old, "toType": new} | ({"fieldPath": path} if path else {})
    field = StructField("a", parse_primitive(kind), True, {TYPE_CHANGES: [change]})
    return Metadata("t", StructType((StructField("s", StructType((field,))),)).json())


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("long", "integer", "long"),
        ("decimal(4,1)", "byte", "decimal(4,1)"),
        ("decimal(6,1)", "short", "decimal(6,1)"),
        ("string", "char(4)", "varchar(4)"),
        ("date", "date", "date"),
    ],
)
def test_tables_with_supported_type_changes_can_be_read(kind: str, old: str, new: str) -> None:
    check_type_changes(changed(kind, old, new), uri="t", version=1)


def test_tables_with_unsupported_type_changes_are_rejected() -> None:
    """Files of the older type were read as if the change were allowed."""
    with pytest.raises(UnsupportedProtocolError, match=r"s\.a was changed from integer to boolean") as e:
        check_type_changes(changed("boolean", "integer", "boolean"), uri="t", version=1)
    assert e.value.condition == "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"
    with pytest.raises(UnsupportedProtocolError, match=r"s\.a\.element was changed from long to integer"):
        check_type_changes(changed("integer", "long", "integer", "element"), uri="t", version=1)
