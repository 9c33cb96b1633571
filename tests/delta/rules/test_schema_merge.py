"""Schema evolution by writes: merged and replaced schemas."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delta.tables import fresh_id
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.column_mapping import MAX_COLUMN_ID, mapped
from trilake.delta.protocol.schema import StructField, StructType, from_arrow, parse_primitive
from trilake.delta.protocol.schema_edit import nested_fields
from trilake.delta.protocol.type_widening import AutomaticWidening, WideningMode, type_changes
from trilake.delta.rules.schema_merge import merge, merged_metadata, overwritten_metadata
from trilake.errors import InvalidArgumentError, SchemaMismatchError


def s(**columns: pa.DataType) -> StructType:
    return from_arrow(pa.schema(list(columns.items())))


def struct(**columns: pa.DataType) -> pa.DataType:
    return pa.struct(list(columns.items()))


#: No Arrow schema converts to this one.
TWO_NAMES = StructType((StructField("b", parse_primitive("long")), StructField("B", parse_primitive("string"))))
I8, I32, I64, TEXT = pa.int8(), pa.int32(), pa.int64(), pa.string()


@pytest.mark.parametrize(
    ("table", "rows", "expected"),
    [
        (s(a=I64), s(a=I64), "struct<a:long>"),
        (s(a=I64, b=TEXT), s(B=TEXT, c=I32), "struct<a:long,b:string,c:integer>"),
        (s(a=struct(x=I64)), s(A=struct(y=TEXT, X=I64)), "struct<a:struct<x:long,y:string>>"),
        (s(a=pa.list_(struct(x=I64))), s(a=pa.list_(struct(y=I64))), "struct<a:array<struct<x:long,y:long>>>"),
        (
            s(m=pa.map_(struct(k=TEXT), struct(x=I64))),
            s(m=pa.map_(struct(k=TEXT, l=TEXT), struct(x=I64, y=I64))),
            "struct<m:map<struct<k:string,l:string>,struct<x:long,y:long>>>",
        ),
        # Narrower rows, and rows that are checked one by one.
        (s(a=I64), s(a=I32), "struct<a:long>"),
        (s(a=I32), s(a=I64), "struct<a:integer>"),
        (s(a=pa.decimal128(10, 2)), s(a=pa.float64()), "struct<a:decimal(10,2)>"),
        # void accepts any type and keeps the other.
        (s(a=pa.null()), s(a=struct(x=I64)), "struct<a:struct<x:long>>"),
        (s(a=I64), s(a=pa.null(), b=pa.null()), "struct<a:long,b:void>"),
        (s(a=pa.list_(pa.null())), s(a=pa.list_(I64)), "struct<a:array<long>>"),
    ],
)
def test_merge_schemas(table: StructType, rows: StructType, expected: str) -> None:
    assert str(merge(table, rows)) == expected
    assert merge(merge(table, rows), rows) == merge(table, rows)


def test_new_fields_are_nullable_and_others_unchanged() -> None:
    old = StructType((StructField("a", parse_primitive("long"), False, {"comment": "first"}),))
    rows = from_arrow(
        pa.schema([pa.field("a", I64), pa.field("b", pa.struct([pa.field("x", I64, False)]), nullable=False)])
    )
    merged = merge(old, rows)
    assert merged.fields[0] == old.fields[0]
    assert all(f.nullable for f in nested_fields(merged)[1:])


@pytest.mark.parametrize(
    ("table", "rows", "problem"),
    [
        (s(a=TEXT), s(a=I64), "column a is long, but the table has string"),
        (s(a=struct(x=I64)), s(a=I64), "column a is long, but the table has struct<x:long>"),
        (s(a=pa.list_(struct(x=I64))), s(a=pa.list_(struct(x=TEXT))), "column a.element.x is string"),
        (s(a=I64), TWO_NAMES, "two columns b and B"),
    ],
)
def test_merge_conflict_shows_both_schemas(table: StructType, rows: StructType, problem: str) -> None:
    with pytest.raises(SchemaMismatchError, match=problem) as caught:
        merge(table, rows)
    assert str(table) in str(caught.value)
    assert str(rows) in str(caught.value)


def test_cast_values_may_have_different_primitive_types() -> None:
    old = s(a=I32, b=struct(x=I32), c=pa.list_(struct(x=I32)), d=pa.map_(struct(x=I32), I32))
    rows = s(a=TEXT, b=struct(x=TEXT, y=I64), c=pa.list_(struct(x=TEXT)), d=pa.map_(struct(x=TEXT), pa.binary()))
    expected = (
        "struct<a:integer,b:struct<x:integer,y:long>,c:array<struct<x:integer>>,d:map<struct<x:integer>,integer>>"
    )
    assert str(merge(old, rows, converted=True)) == expected
    for other in (s(a=struct(x=I32)), s(b=I32), s(c=struct(x=I32)), s(d=pa.list_(I32))):
        with pytest.raises(SchemaMismatchError, match="cannot be merged"):
            merge(old, other, converted=True)


def test_types_widen_if_allowed() -> None:
    old = s(a=I8, b=pa.list_(pa.float32()), c=pa.decimal128(10, 2), d=I32, e=I32)
    rows = s(a=I64, b=pa.list_(pa.float64()), c=pa.decimal128(12, 3), d=pa.float64(), e=I8)
    assert (
        str(merge(old, rows, widening=AutomaticWidening("same_family_type")))
        == "struct<a:long,b:array<double>,c:decimal(12,3),d:integer,e:integer>"
    )


def test_string_length_limits_are_merged() -> None:
    limit = {TYPE_STRING: "struct<x:varchar(5)>"}
    old = StructType((replace(s(a=struct(x=TEXT)).fields[0], metadata=limit),))
    merged = merge(old, s(a=struct(y=TEXT)))
    assert merged.field("a").metadata == {TYPE_STRING: "struct<x:varchar(5),y:string>"}
    assert str(merged) == "struct<a:struct<x:string,y:string>>"
    assert merge(s(b=I64), old).field("a") == old.field("a")


def table(schema: StructType, *partitions: str, **configuration: str) -> Metadata:
    return Metadata(
        "t", schema.json(), partitions, {f"delta.{k.replace('__', '.')}": v for k, v in configuration.items()}
    )


def test_merged_metadata_with_mapping_and_widening() -> None:
    numbers = count(1)
    start = mapped(
        table(s(a=I8), columnMapping__mode="name", enableTypeWidening="true"), new_id=lambda: str(next(numbers))
    )
    protocol = Protocol(3, 7, ("columnMapping", "typeWidening"), ("columnMapping", "typeWidening"))
    after, new = merged_metadata(
        protocol, start, s(a=I32, t=pa.timestamp("us")), version=5, new_id=lambda: str(next(numbers))
    )
    assert type_changes(new.schema.field("a")) == [{"fromType": "byte", "toType": "integer"}]
    assert new.schema.field("a").physical_name == "col-1"
    assert (new.schema.field("t").column_id, new.schema.field("t").physical_name) == (2, "col-2")
    assert new.configuration[MAX_COLUMN_ID] == "2"
    assert after.reader_features == ("columnMapping", "timestampNtz", "typeWidening")
    assert merged_metadata(after, new, s(T=pa.timestamp("us")), version=6, new_id=fresh_id) == (after, new)


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        ("checked", "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"),
        ("base", "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH"),
        ("nested", "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"),
        ("listed", "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"),
        ("id", "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"),
        ("free", None),
    ],
)
def test_columns_that_rules_use_are_not_widened(column: str, condition: str | None) -> None:
    """Types were widened, so existing rows could violate the rule: ``hash(base)`` differs for another type."""
    generated = StructField("g", parse_primitive("integer"), True, {"delta.generationExpression": "hash(base)"})
    identity = StructField("id", parse_primitive("long"), True, {"delta.identity.start": 1, "delta.identity.step": 1})
    columns = s(checked=I32, base=I32, nested=struct(x=I32, y=I32), listed=pa.list_(I32), free=I32).fields
    rules = {"constraints__a": "checked > 0", "constraints__b": "nested.x > 0", "constraints__c": "listed[0] > 0"}
    start = table(StructType((*columns, generated, identity)), enableTypeWidening="true", **rules)
    decimal = pa.decimal128(20, 0)
    rows = {"nested": s(nested=struct(x=I64)), "listed": s(listed=pa.list_(I64)), "id": s(id=decimal)}
    protocol = Protocol(3, 7, ("typeWidening",), ("typeWidening", "checkConstraints", "generatedColumns"))

    def merge_rows(rows: StructType) -> Metadata:
        return merged_metadata(protocol, start, rows, version=1, new_id=fresh_id)[1]

    if condition is None:
        assert merge_rows(s(free=I64, nested=struct(y=I64))).schema.field("free").type == parse_primitive("long")
        return
    with pytest.raises(InvalidArgumentError) as e:
        merge_rows(rows.get(column, s(**{column: I64})))
    assert e.value.condition == condition


def test_widening_preview_records_the_version() -> None:
    preview = ("typeWidening-preview",)
    start = table(s(a=I8), enableTypeWidening="true")
    protocol, new = merged_metadata(Protocol(3, 7, preview, preview), start, s(a=I32), version=5, new_id=fresh_id)
    assert type_changes(new.schema.field("a")) == [{"tableVersion": 5, "fromType": "byte", "toType": "integer"}]
    assert protocol.reader_features == preview


def test_columns_of_another_mapped_table_get_new_ids() -> None:
    other = mapped(table(s(x=I64), columnMapping__mode="name"), new_id=fresh_id).schema
    _, plain = merged_metadata(Protocol(1, 2), table(s(a=I64)), other, version=1, new_id=fresh_id)
    assert plain.schema.field("x").metadata == {}
    start = mapped(table(s(a=I64), columnMapping__mode="name"), new_id=fresh_id)
    _, new = merged_metadata(Protocol(2, 5), start, other, version=1, new_id=fresh_id)
    assert new.schema.field("x").column_id == 2


def test_replaced_schema_keeps_matching_columns() -> None:
    start = mapped(table(s(a=I64, p=TEXT, b=I64), "p", columnMapping__mode="name"), new_id=fresh_id)
    first = start.schema.field("a")
    start = replace(
        start,
        schema_string=StructType(
            (replace(first, metadata={**first.metadata, "comment": "kept"}), *start.schema.fields[1:])
        ).json(),
    )
    rows = from_arrow(pa.schema([pa.field("P", TEXT, False), ("c", I64), ("a", I64), ("b", TEXT)]))
    protocol, new = overwritten_metadata(Protocol(2, 5), start, rows, new_id=fresh_id)
    assert protocol == Protocol(2, 5)
    assert new.schema.names == ["P", "c", "a", "b"]
    assert new.partition_columns == ("P",)
    assert new.schema.field("a") == start.schema.field("a")
    assert new.schema.field("P").physical_name == start.schema.field("p").physical_name
    assert new.schema.field("P").nullable
    # Another type under the old name is a different column.
    assert sorted(f.column_id or 0 for f in new.schema.fields) == [1, 2, 4, 5]
    assert new.configuration[MAX_COLUMN_ID] == "5"


def test_replaced_schema_keeps_its_partition_columns() -> None:
    start = table(s(a=I64, p=TEXT), "p")
    with pytest.raises(SchemaMismatchError, match="lacks the partition columns p"):
        overwritten_metadata(Protocol(1, 2), start, s(a=I64, b=I64), new_id=fresh_id)
    _, new = overwritten_metadata(Protocol(1, 2), start, s(a=I64, b=I64), partition_columns=["B"], new_id=fresh_id)
    assert new.partition_columns == ("b",)
    with pytest.raises(InvalidArgumentError, match="q"):
        overwritten_metadata(Protocol(1, 2), start, s(a=I64), partition_columns=["q"], new_id=fresh_id)
    protocol, _ = overwritten_metadata(Protocol(1, 2), start, s(p=TEXT, t=pa.timestamp("us")), new_id=fresh_id)
    assert protocol.reader_features == ("timestampNtz",)


types = st.recursive(
    st.sampled_from([I8, I32, I64, TEXT, pa.null(), pa.float64()]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(lambda d: struct(**d)),
        inner.map(pa.list_),
        inner.map(lambda t: pa.map_(TEXT, t)),
    ),
    max_leaves=5,
)
schemas = st.dictionaries(st.sampled_from("abcd"), types, min_size=1).map(lambda d: s(**d))


@given(schemas, schemas, st.builds(AutomaticWidening, st.sampled_from(get_args(WideningMode))))
def test_merge_is_lossless_and_stable(old: StructType, rows: StructType, widening: AutomaticWidening) -> None:
    try:
        merged = merge(old, rows, widening=widening)
    except SchemaMismatchError:
        return
    assert merged.names[: len(old.fields)] == old.names
    assert {n.lower() for n in merged.names} == {n.lower() for n in (*old.names, *rows.names)}
    assert merge(merged, rows, widening=widening) == merged
    assert merge(merged, old, widening=widening) == merged
    assert merge(old, old, widening=widening) == old
