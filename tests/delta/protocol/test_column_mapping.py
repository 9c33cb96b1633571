"""Column mapping: ids, physical names, and rows under them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import LONG_A, Action, fresh_id, new_uri, protocol, table_of
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.column_mapping import (
    MAX_COLUMN_ID,
    assign,
    change_mode,
    check_can_rename,
    check_names,
    mapped,
    max_column_id,
    parse_mode,
    physical_schema,
    reuse,
    to_physical,
)
from trilake.delta.protocol.schema import COLUMN_ID, PHYSICAL_NAME, StructType, from_arrow
from trilake.delta.protocol.schema_edit import nested_fields, strip
from trilake.errors import CorruptLogError, InvalidArgumentError, UnsupportedProtocolError

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("s", INNER),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), pa.list_(INNER))),
    ]
)
SCHEMA = from_arrow(ARROW)
ROWS = [
    {"id": 1, "s": {"x": 1, "y": "a"}, "l": [{"x": 2, "y": None}, None], "m": [("k", [{"x": 3, "y": "b"}])]},
    {"id": 2, "s": None, "l": None, "m": None},
    {"id": 3, "s": {"x": None, "y": None}, "l": [], "m": [("k", None), ("n", [])]},
]


def numbered() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{next(numbers):04d}"


def metadata(schema: StructType = SCHEMA, **configuration: str) -> Metadata:
    return Metadata("t", schema.json(), configuration={k.replace("__", "."): v for k, v in configuration.items()})


def test_new_table_gets_ids_and_names_at_every_depth() -> None:
    schema, top = assign(SCHEMA, mode="name", new_id=numbered())
    fields = nested_fields(schema)
    assert [(f.name, f.column_id) for f in fields] == [
        (n, i + 1) for i, n in enumerate(["id", "s", "x", "y", "l", "x", "y", "m", "x", "y"])
    ]
    assert [f.physical_name for f in fields] == [f"col-{i:04d}" for i in range(1, 11)]
    assert top == 10


def test_existing_table_keeps_its_names() -> None:
    schema, top = assign(SCHEMA, mode="name", existing=True, new_id=fresh_id)
    assert [f.physical_name for f in nested_fields(schema)] == [f.name for f in nested_fields(SCHEMA)]
    assert top == 10


def test_mapped_columns_are_kept_and_new_ids_are_higher() -> None:
    first, top = assign(SCHEMA, mode="id", new_id=numbered())
    assert assign(first, mode="id", new_id=fresh_id) == (first, top)
    grown = StructType((*first.fields, *from_arrow(pa.schema([("new", INNER)])).fields))
    second, top = assign(grown, mode="id", max_id=40, new_id=fresh_id)
    assert second.fields[:-1] == first.fields
    assert [f.column_id for f in nested_fields(second)[-3:]] == [41, 42, 43]
    assert top == 43
    assert len({f.physical_name for f in nested_fields(second)}) == 13


def test_mode_none_changes_nothing() -> None:
    assert assign(SCHEMA, mode="none", max_id=3, new_id=fresh_id) == (SCHEMA, 3)
    assert mapped(metadata(), new_id=fresh_id) == metadata()
    table = pa.Table.from_pylist(ROWS, schema=ARROW)
    assert to_physical(table, SCHEMA, "none") is table
    assert physical_schema(SCHEMA, "none") == SCHEMA.to_arrow_schema()


@pytest.mark.parametrize(("key", "what"), [(COLUMN_ID, "the id 1"), (PHYSICAL_NAME, "the physical name 'col-0001'")])
def test_duplicate_id_or_physical_name_is_an_error(key: str, what: str) -> None:
    schema, _ = assign(from_arrow(pa.schema([("a", pa.int64()), ("b", pa.int64())])), mode="name", new_id=numbered())
    a, b = schema.fields
    twice = StructType((a, type(b)(b.name, b.type, True, {**b.metadata, key: a.metadata[key]})))
    with pytest.raises(CorruptLogError, match=what):
        assign(twice, mode="name", new_id=fresh_id)


def test_physical_names_may_repeat_in_different_structs() -> None:
    """Enabling it on an existing table keeps the names of nested fields."""
    assert assign(SCHEMA, mode="name", existing=True, new_id=fresh_id)[0].field("l") is not None


def test_max_column_id_property() -> None:
    new = mapped(metadata(delta__columnMapping__mode="name"), new_id=numbered())
    assert new.configuration[MAX_COLUMN_ID] == "10"
    assert max_column_id(new) == 10
    assert mapped(new, new_id=fresh_id) is new
    with pytest.raises(CorruptLogError, match="maxColumnId is 'many'"):
        max_column_id(metadata(delta__columnMapping__maxColumnId="many"))


def test_enable_mapping_on_a_table_with_files() -> None:
    plain = metadata()
    named = change_mode(plain, metadata(delta__columnMapping__mode="name"), new_id=fresh_id)
    assert [f.physical_name for f in named.schema.fields] == SCHEMA.names
    assert named.configuration[MAX_COLUMN_ID] == "10"
    assert change_mode(named, named, new_id=fresh_id) is named
    for old, new in [(plain, metadata(delta__columnMapping__mode="id")), (named, plain)]:
        with pytest.raises(InvalidArgumentError, match="cannot be changed from"):
            change_mode(old, new, new_id=fresh_id)


def test_enabling_discards_earlier_physical_names() -> None:
    copied, _ = assign(SCHEMA, mode="name", new_id=numbered())
    assert metadata(copied).schema == SCHEMA
    named = change_mode(metadata(copied), metadata(copied, delta__columnMapping__mode="name"), new_id=fresh_id)
    assert [f.physical_name for f in named.schema.fields] == SCHEMA.names


def test_names_and_modes_are_checked() -> None:
    assert parse_mode(" NAME ") == "name"
    with pytest.raises(InvalidArgumentError, match="none, name, id"):
        parse_mode("names")
    odd = from_arrow(pa.schema([("a b", pa.int64())]))
    check_names(odd, "name")
    with pytest.raises(InvalidArgumentError, match=r"delta\.columnMapping\.mode"):
        check_names(odd, "none")
    check_can_rename(metadata(delta__columnMapping__mode="id"), "rename")
    with pytest.raises(InvalidArgumentError, match=r"cannot rename a column.*delta\.columnMapping\.mode to 'name'"):
        check_can_rename(metadata(), "rename")


@pytest.mark.parametrize("mode", ["nmae", "", "name,id"])
def test_unknown_mapping_mode_is_rejected(mode: str) -> None:
    # Columns of its files may have any names; a lookup by table names would give nulls only.
    with pytest.raises(UnsupportedProtocolError, match=f"mode {mode!r}"):
        table_of(pa.table({"c1": [1]}), schema=LONG_A, configuration={"delta.columnMapping.mode": mode})


@pytest.mark.parametrize(
    ("action", "reads"),
    [
        (protocol(1, 2), True),
        (protocol(2, 5), True),
        (protocol(2, 7, writerFeatures=[]), True),
        (protocol(1, 7, writerFeatures=[]), False),
        (protocol(3, 7, readerFeatures=["timestampNtz"], writerFeatures=["timestampNtz"]), False),
        (protocol(3, 7, readerFeatures=["columnMapping"], writerFeatures=["columnMapping"]), True),
    ],
)
def test_mapping_not_listed_in_the_protocol_is_rejected(action: Action, reads: bool) -> None:
    # deltalake 1.6.6 writes such tables for columns without a time zone or with deletion vectors: its files use the
    # names of the table, not the physical names of the schema, so a lookup by physical names would give nulls only.
    mapped = {"delta.columnMapping.mode": "name"}
    with nullcontext() if reads else pytest.raises(UnsupportedProtocolError, match="does not list columnMapping"):
        table_of(pa.table({"c1": [1]}), schema=LONG_A, configuration=mapped, protocol_action=action)


def test_replaced_schema_reuses_matching_columns() -> None:
    old, _ = assign(SCHEMA, mode="name", new_id=numbered())
    new = reuse(from_arrow(pa.schema([("s", INNER), ("id", pa.string()), ("l", pa.list_(INNER))])), old)
    assert new.field("s") == old.field("s")
    assert new.field("l") == old.field("l")
    assert new.field("id").column_id is None
    assert strip(old) == SCHEMA


@pytest.mark.parametrize("mode", ["name", "id"])
def test_to_physical_keeps_rows(mode: str) -> None:
    schema, _ = assign(SCHEMA, mode=mode, new_id=fresh_id)
    table = pa.concat_tables([pa.Table.from_pylist(ROWS, schema=SCHEMA.to_arrow_schema())] * 2).slice(1, 4)
    physical = to_physical(table, schema, mode)
    physical.validate(full=True)
    assert physical.schema.equals(physical_schema(schema, mode), check_metadata=True)
    old, new = table["s"].chunk(0), physical[schema.field("s").physical_name].chunk(0)
    assert new.field(0).buffers()[1].address == old.field(0).buffers()[1].address
    back = pa.Table.from_batches([pa.record_batch(b.columns, physical.schema) for b in physical.to_batches()])
    assert back.column(0).to_pylist() == table.column(0).to_pylist()
    assert [len(r) for r in back[2].to_pylist() if r] == [len(r) for r in table[2].to_pylist() if r]


def test_parquet_files_have_field_ids() -> None:
    schema, _ = assign(SCHEMA, mode="id", new_id=fresh_id)
    table = to_physical(pa.Table.from_pylist(ROWS, schema=SCHEMA.to_arrow_schema()), schema, "id")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False)
    read = pq.read_schema(pa.BufferReader(sink.getvalue()))
    assert [f.metadata[b"PARQUET:field_id"] for f in read] == [b"1", b"2", b"5", b"8"]
    assert [f.metadata[b"PARQUET:field_id"] for f in read.field(1).type] == [b"3", b"4"]
    element = read.field(2).type.value_field
    assert b"PARQUET:field_id" not in (element.metadata or {})
    assert [f.metadata[b"PARQUET:field_id"] for f in element.type] == [b"6", b"7"]


@pytest.mark.parametrize("mode", ["none", "name"])
def test_null_struct_with_required_fields_is_written(mode: str) -> None:
    deep = pa.struct([pa.field("d", pa.struct([pa.field("x", pa.int64(), False)]), False)])
    kind = pa.schema(
        [
            ("s", deep),
            pa.field("r", pa.struct([pa.field("x", pa.int64(), False)]), False),
            ("l", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int64(), False)])))),
        ]
    )
    schema, _ = assign(from_arrow(kind), mode=mode, new_id=fresh_id)
    rows: list[dict[str, Any]] = [
        {"s": None, "r": {"x": 1}, "l": [None]},
        {"s": {"d": {"x": 1}}, "r": {"x": 2}, "l": [{"x": 1}]},
    ]
    table = pa.Table.from_pylist(rows, schema=schema.to_arrow_schema())
    physical = to_physical(table, schema, mode)
    assert physical.schema.equals(physical_schema(schema, mode), check_metadata=True)
    assert not physical.schema.field(1).type.field(0).nullable
    sink = pa.BufferOutputStream()
    pq.write_table(physical, sink, store_schema=False)
    back = pq.read_table(pa.BufferReader(sink.getvalue()))
    assert [c.to_pylist()[0] is None for c in back.columns] == [True, False, False]
    if mode == "none":
        assert back.to_pylist() == rows


def test_to_physical_with_a_subset_and_extra_columns() -> None:
    schema, _ = assign(SCHEMA, mode="name", new_id=numbered())
    table = pa.table({"_change_type": ["insert"], "id": [1]})
    assert to_physical(table, schema, "name").column_names == ["_change_type", "col-0001"]
    empty = to_physical(SCHEMA.to_arrow_schema().empty_table(), schema, "name")
    assert empty.schema.equals(physical_schema(schema, "name"), check_metadata=True)


def test_rows_with_another_structure_are_rejected() -> None:
    schema, _ = assign(SCHEMA, mode="name", new_id=fresh_id)
    for wrong in (pa.table({"s": [{"y": "a", "x": 1}]}), pa.table({"s": [1]}), pa.table({"l": [[1]]})):
        with pytest.raises(InvalidArgumentError, match="but the table has struct"):
            to_physical(wrong, schema, "name")


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_listed_files_have_partition_values_by_column_name(mode: str) -> None:
    uri = new_uri()
    rows = pa.table({"n": [1, 2, 3], "p": ["a", None, "c"], "q": [7, 8, 9]})
    trilake.write(rows, uri, partition_by=["q", "p"], properties={"delta.columnMapping.mode": mode})
    if mode != "none":
        trilake.alter(uri).rename_column("q", "Q r")
    table = trilake.open(uri)
    name = "q" if mode == "none" else "Q r"
    assert sorted(table.files()["partition_values"].to_pylist()) == [
        [(name, "7"), ("p", "a")],
        [(name, "8"), ("p", None)],
        [(name, "9"), ("p", "c")],
    ]
    assert table.files(f"`{name}` = 9")["partition_values"].to_pylist() == [[(name, "9"), ("p", "c")]]
    assert table.files("p = 'x'").num_rows == 0
