"""User metadata of Arrow fields, such as comments, round trips through the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import opened
from trilake.delta.protocol.arrow_types import arrow_notes, is_users, notes_of
from trilake.delta.table import ArrowDeltaTable

NOTED = pa.schema(
    [
        pa.field("a", pa.int64(), metadata={"comment": "how many", "unit": "m"}),
        pa.field("s", pa.struct([pa.field("x", pa.int64(), metadata={"comment": "inner"})])),
        pa.field("l", pa.list_(pa.field("element", pa.struct([pa.field("y", pa.int32(), metadata={"k": "v"})])))),
        pa.field("m", pa.map_(pa.string(), pa.field("value", pa.struct([pa.field("z", pa.date32())])))),
    ]
)
ROWS = [{"a": 1, "s": {"x": 2}, "l": [{"y": 3}], "m": []}]


def notes(table: ArrowDeltaTable) -> dict[str, Any]:
    return {f.name: dict(f.metadata) for f in table.metadata.schema.fields if f.metadata}


def test_field_metadata_round_trips_at_every_depth(tmp_path: Path) -> None:
    trilake.write(pa.Table.from_pylist(ROWS, NOTED), tmp_path / "t")
    table = opened(tmp_path / "t")
    assert table.schema.equals(NOTED, check_metadata=True)
    for rows in (table.to_arrow(), table.to_pyarrow_dataset().to_table(), table.to_arrow(filter="a = 5")):
        assert rows.schema.equals(NOTED, check_metadata=True)
        rows.validate(full=True)
    assert table.to_arrow(["s"]).schema.equals(pa.schema([NOTED.field("s")]), check_metadata=True)
    trilake.create(tmp_path / "copy", table.schema)
    assert opened(tmp_path / "copy").schema.equals(NOTED, check_metadata=True)
    trilake.convert(tmp_path / "t", tmp_path / "converted", format="delta")
    assert opened(tmp_path / "converted").schema.equals(NOTED, check_metadata=True)


def test_rows_with_other_field_metadata_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(pa.Table.from_pylist(ROWS, NOTED), path)
    other = pa.struct([pa.field("x", pa.int64(), metadata={"comment": "another"})])
    fields = [
        NOTED.field("a").with_metadata({"comment": "late"}),
        pa.field("s", other),
        NOTED.field("l"),
        NOTED.field("m"),
    ]
    bare = pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.struct([("x", pa.int64())]))])
    for schema in (pa.schema(fields), bare, NOTED):
        data = pa.Table.from_pylist(ROWS, schema)
        trilake.write(data, path, mode="append")
        trilake.write(data, path, mode="append", schema_mode="merge")
        trilake.write(data, path, mode="overwrite")
        assert opened(path).schema.equals(NOTED, check_metadata=True)
        merge = opened(path).merge(data, "target.a = source.a")
        merge.when_matched_update({"s": "source.s"}).when_not_matched_insert(
            {"a": "source.a", "s": "source.s"}
        ).execute()
    opened(path).update({"a": "a + 8"})
    assert opened(path).to_arrow(["a", "s"]).to_pylist() == [{"a": 9, "s": {"x": 2}}]
    assert opened(path).schema.equals(NOTED, check_metadata=True)


def test_new_columns_keep_their_field_metadata(tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(pa.table({"a": [1]}), path, properties={"delta.columnMapping.mode": "name"})
    trilake.alter(path).add_columns(
        [pa.field("b", pa.string(), metadata={"comment": "bee", "delta.columnMapping.id": "7"})]
    )
    fields = [pa.field("a", pa.int64()), pa.field("c", pa.int64(), metadata={"comment": "see"})]
    trilake.write(pa.table({"a": [1], "c": [1]}).cast(pa.schema(fields)), path, mode="append", schema_mode="merge")
    result = {f.name: f.metadata for f in opened(path).schema}
    assert result == {"a": None, "b": {b"comment": b"bee"}, "c": {b"comment": b"see"}}
    over = pa.table({"c": [1]}).cast(pa.schema([pa.field("c", pa.int64(), metadata={"comment": "sea"})]))
    trilake.write(over, path, mode="overwrite", schema_mode="overwrite")
    assert opened(path).schema.field("c").metadata == {b"comment": b"sea"}


@pytest.mark.parametrize(
    "name",
    [
        "delta.generationExpression",
        "delta.columnMapping.id",
        "delta.columnMapping.physicalName",
        "delta.identity.start",
        "delta.invariants",
        "delta.typeChanges",
        "Delta.x",
        "__CHAR_VARCHAR_TYPE_STRING",
        "CURRENT_DEFAULT",
        "EXISTS_DEFAULT",
        "PARQUET:field_id",
        "parquet.field.id",
        "ARROW:extension:name",
        "spark.sql.catalyst.type",
        "lance-schema:dict-id",
        "",
    ],
)
def test_reserved_field_metadata_is_dropped(tmp_path: Path, name: str) -> None:
    assert not is_users(name)
    inner = pa.struct([pa.field("x", pa.int64(), metadata={name: "1", "comment": "in"})])
    schema = pa.schema([pa.field("a", pa.int64(), metadata={name: "1", "comment": "c"}), pa.field("s", inner)])
    rows = pa.Table.from_pylist([{"a": 5, "s": {"x": 1}}], schema)
    trilake.write(rows, tmp_path / "t")
    table = opened(tmp_path / "t")
    assert notes(table) == {"a": {"comment": "c"}}
    assert name == "" or name not in table.metadata.schema_string
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 2)


def test_non_string_field_metadata_is_dropped() -> None:
    assert notes_of({b"comment": b"\xff", b"\xff": b"x", b"k": "ä".encode()}) == {"k": "ä"}
    assert notes_of(None) == {}
    assert arrow_notes({"n": 5, "o": {"a": 1}, "comment": "c", "delta.columnMapping.id": 1}) == {"comment": "c"}
    assert arrow_notes({"n": 5}) is None
