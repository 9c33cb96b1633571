"""Rules for new columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from trilake.errors import InvalidArgumentError, SchemaMismatchError

_CHANGES: dict[str, Callable[[str], object]] = {
    "merge": lambda uri: (
        trilake.open(uri, format="delta")
        .merge(pa.table({"id": [1, 2], "a b": [1, 2]}), "t.id = s.id", "s", "t")
        .when_not_matched_insert_all()
        .with_schema_evolution()
        .execute()
    ),
    "append": lambda uri: trilake.write({"id": [2], "a b": [1]}, uri, mode="append", schema_mode="merge"),
    "overwrite": lambda uri: trilake.write({"a b": [1]}, uri, mode="overwrite", schema_mode="overwrite"),
    "add": lambda uri: trilake.alter(uri).add_columns({"a b": "int"}),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_invalid_parquet_names_are_rejected(change: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    trilake.write({"id": [1]}, uri)
    with pytest.raises(InvalidArgumentError, match="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"):
        _CHANGES[change](uri)
    assert trilake.open(uri).to_arrow().to_pylist() == [{"id": 1}]


def test_only_binary_collations_are_accepted(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    for text in ("s STRING COLLATE UTF8_LCASE", "s ARRAY<STRING COLLATE UNICODE_CI>"):
        with pytest.raises(InvalidArgumentError, match=r"collation [uU].* is not supported"):
            trilake.sql(f"CREATE TABLE delta.`{uri}` (id INT, {text}) USING delta")
    plain = "s STRING COLLATE UTF8_BINARY, l ARRAY<STRING COLLATE utf8_binary>"  # as in Spark's SHOW CREATE TABLE
    trilake.sql(f"CREATE TABLE delta.`{uri}` ({plain}) USING delta DEFAULT COLLATION UTF8_BINARY")
    with pytest.raises(InvalidArgumentError, match="collation unicode"):
        trilake.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMN z STRING COLLATE unicode")
    assert trilake.open(uri).schema.names == ["s", "l"]


@pytest.mark.parametrize("names", [["a", "a"], ["a", "A"]])
@pytest.mark.parametrize("inside", ["struct", "list", "map"])
def test_duplicate_struct_fields_are_rejected(inside: str, names: list[str], tmp_path: Path) -> None:
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names)
    offsets = pa.array([0, 1], pa.int32())
    column = {
        "struct": lambda: struct,
        "list": lambda: pa.ListArray.from_arrays(offsets, struct),
        "map": lambda: pa.MapArray.from_arrays(offsets, pa.array(["k"]), struct),
    }[inside]()
    uri = str(tmp_path / "t")
    with pytest.raises(SchemaMismatchError, match=r"v.*a") as caught:
        trilake.write(pa.table({"v": column}), uri)
    assert caught.value.context["condition"] == "DELTA_DUPLICATE_COLUMNS_FOUND"
    trilake.write({"id": [1]}, uri)
    with pytest.raises(SchemaMismatchError):
        trilake.alter(uri).add_columns(pa.schema([("v", column.type)]))
    with pytest.raises(SchemaMismatchError):
        trilake.write(pa.table({"v": column}), uri, mode="overwrite", schema_mode="overwrite")


def test_existing_duplicate_fields_allow_other_changes(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    trilake.write({"v": [{"a": 1, "b": 2}]}, uri)
    log = tmp_path / "t" / "_delta_log" / "00000000000000000000.json"
    log.write_text(log.read_text().replace('\\"name\\":\\"b\\"', '\\"name\\":\\"A\\"'))
    for old in log.parent.glob("*.crc"):
        old.unlink()
    trilake.alter(uri).add_columns({"more": "int"})
    assert trilake.open(uri).schema.names == ["v", "more"]
