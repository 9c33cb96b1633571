"""Logical types and schemas: Arrow to Lance and back, ids, projections, and invalid schemas in manifests."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trilake.errors import CorruptLogError, InvalidArgumentError, SchemaMismatchError, UnsupportedProtocolError
from trilake.lance.file import types
from trilake.lance.file.extensions import restore_batch
from trilake.lance.file.schema import LanceSchema
from trilake.lance.proto import format_pb2

NESTED = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False, metadata={"k": "v"}),
        pa.field("l", pa.list_(pa.struct([("q", pa.int8()), ("r", pa.large_list(pa.string()))]))),
        pa.field("s", pa.struct([pa.field("x", pa.float32()), pa.field("y", pa.struct([("z", pa.bool_())]))])),
        pa.field("t", pa.fixed_shape_tensor(pa.float32(), (2, 2))),
        pa.field("u", pa.list_(pa.uuid())),
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
    ],
    metadata={"whole": "schema"},
)


@pytest.mark.parametrize(
    ("name", "arrow"),
    [
        ("null", pa.null()),
        ("halffloat", pa.float16()),
        ("date64:ms", pa.date64()),
        ("time32:ms", pa.time32("ms")),
        ("time64:ns", pa.time64("ns")),
        ("timestamp:us:-", pa.timestamp("us")),
        ("timestamp:ns:+05:30", pa.timestamp("ns", "+05:30")),
        ("duration:s", pa.duration("s")),
        ("decimal:128:20:2", pa.decimal128(20, 2)),
        ("decimal:256:40:-2", pa.decimal256(40, -2)),
        ("fixed_size_binary:3", pa.binary(3)),
        ("fixed_size_list:timestamp:us:-:4", pa.list_(pa.timestamp("us"), 4)),
        ("dict:string:uint16:false", pa.dictionary(pa.uint16(), pa.string())),
    ],
)
def test_logical_type_names(name: str, arrow: pa.DataType) -> None:
    assert types.arrow_type(name) == arrow
    assert types.logical_type(arrow) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "int128",
        "struct",
        "timestamp:us:",
        "decimal:128:99:2",
        "fixed_size_list:null:3",
        "fixed_size_list:float:0",
        "fixed_size_list:float:99999999999",
        "fixed_size_binary:4294967295",
        "dict:struct:int8:false",
        "dict:string:float:false",
    ],
)
def test_unknown_type_name_is_rejected(name: str) -> None:
    with pytest.raises(UnsupportedProtocolError):
        types.arrow_type(name)


@pytest.mark.parametrize(
    "arrow",
    [
        pa.map_(pa.string(), pa.int8(), keys_sorted=True),
        pa.string_view(),
        pa.list_(pa.string(), 2),
        pa.month_day_nano_interval(),
        pa.dictionary(pa.int8(), pa.timestamp("us")),
    ],
)
def test_unsupported_arrow_type_is_rejected(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedProtocolError) as e:
        LanceSchema.from_arrow(pa.schema([pa.field("deep", pa.struct([("x", arrow)]))]))
    assert e.value.context["column"] == "deep"


def test_arrow_to_protobuf_round_trip() -> None:
    schema = LanceSchema.from_arrow(NESTED)
    assert list(schema.field_ids) == list(range(14))
    assert {f.name: f.parent_id for f in schema.walk()}["z"] == schema.field("s.y").id
    again = LanceSchema.from_proto(schema.to_proto(), schema.metadata_to_proto())
    assert again == schema
    assert again.to_arrow().equals(NESTED, check_metadata=True)
    batch = pa.RecordBatch.from_arrays(
        [pa.nulls(2, t) for t in schema.storage_schema.types], schema=schema.storage_schema
    )
    assert restore_batch(batch).schema.field("t").type == NESTED.field("t").type


def test_field_ids_continue_from_the_first() -> None:
    assert LanceSchema.from_arrow(pa.schema({"a": pa.int8(), "b": pa.int8()}), first_id=7).field_ids == (7, 8)


def test_projection_keeps_ids_and_requested_order() -> None:
    schema = LanceSchema.from_arrow(NESTED)
    cut = schema.project(["s.y.z", "a", "l.q"])
    assert cut.names == ["s", "a", "l"]
    assert cut.field("s.y.z").id == schema.field("s.y.z").id
    assert str(cut.field("l").arrow_type) == "list<item: struct<q: int8>>"
    assert schema.project_ids([f.id for f in cut.walk()]).field_ids == tuple(sorted(cut.field_ids))
    with pytest.raises(InvalidArgumentError, match="not found"):
        schema.project(["s.nothing"])


def test_incompatible_schema_names_the_difference() -> None:
    a = LanceSchema.from_arrow(pa.schema({"x": pa.struct([("y", pa.int8())])}))
    b = LanceSchema.from_arrow(pa.schema({"x": pa.struct([("y", pa.int16())])}))
    with pytest.raises(SchemaMismatchError, match=r"x\.y is int16, not int8"):
        a.check_compatible(b)
    assert a.differences(a) == []


def message(id: int, parent: int, kind: str = "int8", name: str = "f") -> format_pb2.Field:
    return format_pb2.Field(name=name, id=id, parent_id=parent, logical_type=kind, nullable=True)


@pytest.mark.parametrize(
    "fields",
    [
        [message(0, -1), message(0, -1)],
        [message(0, 0)],
        [message(1, 2, "struct"), message(2, 1, "struct")],
        [message(-5, -1)],
        [message(0, -1, "list")],
        [message(0, -1), message(1, 0)],
        [message(0, -1, "struct"), *(message(i, i - 1, "struct") for i in range(1, 100))],
    ],
)
def test_fields_that_form_no_tree_are_rejected(fields: list[format_pb2.Field]) -> None:
    with pytest.raises(CorruptLogError):
        LanceSchema.from_proto(fields)


def test_field_ids_may_start_at_one() -> None:
    schema = LanceSchema.from_proto([message(1, 0, "struct", "s"), message(2, 1, name="x")])
    assert schema.to_arrow() == pa.schema({"s": pa.struct([("x", pa.int8())])})
