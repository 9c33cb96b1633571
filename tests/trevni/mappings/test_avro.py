"""Avro records: columns, bytes and rows of the reference, projections, and round trips of random records."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trevni.corpus import AVRO, CORPUS, needs_corpus
from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.trevni import TrevniFile
from trilake.trevni.mappings.avro import columns, read_avro, write_avro
from trilake.trevni.mappings.avro_schema import AvroSchema


def from_json(schema: AvroSchema, part: Any, value: Any) -> Any:
    """A value of Avro's JSON encoding, with unions as pairs of branch and value."""
    part = schema.resolve(part)
    match schema.kind(part):
        case "union":
            if value is None:
                return None
            ((tag, inner),) = value.items()
            branch = next(b for b in part if schema.full_name(b) == tag)
            return tag, from_json(schema, branch, inner)
        case "record":
            return {f["name"]: from_json(schema, f["type"], value[f["name"]]) for f in part["fields"]}
        case "array":
            return [from_json(schema, part["items"], item) for item in value]
        case "map":
            return {key: from_json(schema, part["values"], item) for key, item in value.items()}
        case "bytes" | "fixed":
            return value.encode("latin-1")
    return value


def there_and_back(records: list[Any], schema: Any, **options: Any) -> list[Any]:
    sink = io.BytesIO()
    assert write_avro(records, schema, sink) == len(records)
    return list(read_avro(sink.getvalue(), **options))


@needs_corpus
@pytest.mark.parametrize("path", AVRO, ids=lambda p: p.stem)
def test_reference_files(path: Path) -> None:
    text = path.with_suffix(".avsc").read_text()
    schema, file = AvroSchema(text), TrevniFile(path)
    assert schema.as_json().encode() == file.metadata["avro.schema"]
    assert [(c.name, c.type.value, c.array) for c in columns(text)] == [(c.name, c.type, c.array) for c in file.columns]
    records = [from_json(schema, schema.root, json.loads(line)) for line in path.with_suffix(".jsonl").open()]
    assert list(read_avro(file, tagged=True)) == records
    sink = io.BytesIO()
    codec, checksum = (file.metadata.get(f"trevni.{k}", b"").decode() or None for k in ("codec", "checksum"))
    write_avro(records, text, sink, codec=codec, checksum=checksum)
    if codec in (None, "deflate"):
        assert sink.getvalue() == path.read_bytes()
    assert list(read_avro(sink.getvalue(), tagged=True)) == records


@needs_corpus
def test_projection_of_the_reference() -> None:
    path = CORPUS / "avro" / "full"
    want = [json.loads(line) for line in path.with_suffix(".read.jsonl").open()]
    assert list(read_avro(path.with_suffix(".trv"), path.with_suffix(".read.avsc").read_text())) == want


SCHEMA = {
    "type": "record",
    "name": "R",
    "namespace": "n",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "u", "type": ["null", "string", "long", {"type": "array", "items": ["null", "boolean"]}]},
        {"name": "m", "type": {"type": "map", "values": {"type": "map", "values": "bytes"}}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "es", "type": {"type": "array", "items": "E"}},
        {"name": "fs", "type": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 2}}},
        {"name": "nothing", "type": ["null"], "default": None},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "empty", "type": {"type": "array", "items": {"type": "record", "name": "None0", "fields": []}}},
    ],
}
RECORDS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "u": st.none()
        | st.text(max_size=3)
        | st.integers(-(2**63), 2**63 - 1)
        | st.lists(st.none() | st.booleans(), max_size=3),
        "m": st.dictionaries(
            st.text(max_size=2), st.dictionaries(st.text(max_size=2), st.binary(max_size=3), max_size=2), max_size=2
        ),
        "e": st.sampled_from(["A", "B"]),
        "es": st.lists(st.sampled_from(["A", "B"]), max_size=3),
        "fs": st.lists(st.binary(min_size=2, max_size=2), max_size=2),
        "nothing": st.none(),
        "nulls": st.lists(st.none(), max_size=3),
        "empty": st.lists(st.just({}), max_size=2),
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(RECORDS, max_size=8))
def test_arbitrary_records_round_trip(records: list[Any]) -> None:
    assert there_and_back(records, SCHEMA) == records


def test_schema_without_columns_has_rows() -> None:
    assert there_and_back([{}, {}], {"type": "record", "name": "Z", "fields": []}) == [{}, {}]


@pytest.mark.parametrize("schema", ["null", '"null"'])
def test_null_as_the_name_of_a_type(schema: str) -> None:
    assert [(c.name, c.type.value) for c in columns(schema)] == [("null", "null")]
    assert there_and_back([None, None], schema) == [None, None]


def test_projections() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "u", "type": ["null", "int", "string"]}],
    }
    sink = io.BytesIO()
    write_avro([{"a": 1, "u": 5}, {"a": 2, "u": None}, {"a": 3, "u": "x"}], schema, sink)

    def read(*fields: dict[str, Any]) -> list[Any]:
        return list(read_avro(sink.getvalue(), {"type": "record", "name": "R", "fields": list(fields)}))

    # Missing fields may be anywhere, also before complex ones.
    new = {"name": "new", "type": {"type": "array", "items": "bytes"}, "default": ["\u00ff"]}
    assert read(new, {"name": "a", "type": "double"}) == [{"new": [b"\xff"], "a": float(i)} for i in (1, 2, 3)]
    with pytest.raises(SchemaMismatchError, match="default"):
        read({"name": "z", "type": "int"})
    with pytest.raises(SchemaMismatchError, match="schema expects"):
        read({"name": "a", "type": "string"})
    with pytest.raises(SchemaMismatchError, match="branch"):
        read({"name": "u", "type": ["null", "int"]})


def test_logical_types_are_python_values() -> None:
    schema = {
        "type": "record",
        "name": "L",
        "fields": [
            {"name": "d", "type": {"type": "int", "logicalType": "date"}},
            {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        ],
    }
    record = {"d": dt.date(2020, 2, 3), "t": dt.datetime(2021, 1, 1, tzinfo=dt.UTC), "n": decimal.Decimal("-1.25")}
    assert there_and_back([record], schema) == [record]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]},
        {"type": "record", "name": "T", "fields": [{"name": "kids", "type": {"type": "array", "items": "T"}}]},
        {"type": "recrod", "name": "T"},
        "nothing",
    ],
)
def test_unsupported_schemas_raise(schema: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        columns(schema)


@pytest.mark.parametrize("record", [{"e": "C"}, {"i": "x"}, {"fs": [b"abc"]}, {"u": 1.5}, {"m": 3}, 7])
def test_records_of_another_schema_raise(record: Any) -> None:
    good = {"i": 1, "u": None, "m": {}, "e": "A", "es": [], "fs": [], "nothing": None, "nulls": [], "empty": []}
    with pytest.raises(SchemaMismatchError):
        write_avro([{**good, **record} if isinstance(record, dict) else record], SCHEMA, io.BytesIO())


def test_column_with_another_parent_raises() -> None:
    """Its elements would not match the schema."""
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "map", "values": "int"}},
        {"name": "b", "type": {"type": "map", "values": "int"}},
    ]}  # fmt: skip
    sink = io.BytesIO()
    write_avro([{"a": {"x": 1}, "b": {"y": 2}}], schema, sink)
    data = sink.getvalue()
    parent = b"\x1atrevni.parent\x04"
    assert data.count(parent + b"b>") == 2
    with pytest.raises(SchemaMismatchError, match="different parents"):
        list(read_avro(data.replace(parent + b"b>", parent + b"a>")))


@pytest.mark.parametrize(
    ("base", "logical", "value"),
    [
        ("int", {"logicalType": "date"}, 2**31 - 1),
        ("int", {"logicalType": "date"}, -(2**31)),
        ("int", {"logicalType": "time-millis"}, 2**31 - 1),
        ("long", {"logicalType": "timestamp-millis"}, 2**62),
        ("long", {"logicalType": "local-timestamp-micros"}, -(2**63)),
        ("string", {"logicalType": "uuid"}, "no uuid"),
        ("bytes", {"logicalType": "decimal"}, b"x"),
    ],
)
def test_values_outside_their_logical_type_raise(base: str, logical: dict[str, Any], value: Any) -> None:
    """Other writers store any value of the primitive type."""
    sink = io.BytesIO()
    fields = [{"name": "a", "type": {"type": base, **logical}}, {"name": "b", "type": ["null", base]}]
    plain = {"type": "record", "name": "R", "fields": [{"name": "a", "type": base}, fields[1]]}
    write_avro([{"a": value, "b": value}], plain, sink)
    with pytest.raises(CorruptFileError, match=f"cannot be read as a {logical['logicalType']}") as error:
        list(read_avro(sink.getvalue(), {"type": "record", "name": "R", "fields": fields}))
    assert error.value.context["column"] == "a"
    assert list(read_avro(sink.getvalue())) == [{"a": value, "b": value}]
