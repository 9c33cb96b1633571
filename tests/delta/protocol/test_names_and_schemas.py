"""Unusual names, types and schemas: illegal ones raise errors with a hint, legal ones are read."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import add, lines, metadata, new_uri, opened, protocol
from trilake.errors import InvalidArgumentError, SchemaMismatchError


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{b", "a}b", "a(b", "a)b", "a\nb", "a\tb", "a=b"])
def test_invalid_parquet_names_suggest_column_mapping(tmp_path: Path, name: str) -> None:
    """At table creation and when a write adds a column, nested names too; column mapping allows all names."""
    for rows in (pa.table({name: [1]}), pa.table({"s": [{name: 1}]})):
        with pytest.raises(InvalidArgumentError, match=r"columnMapping\.mode"):
            trilake.write(rows, str(tmp_path / "t"))
        assert not (tmp_path / "t" / "_delta_log").exists()
    trilake.write(pa.table({"n": [1]}), str(tmp_path / "t"))
    for schema_mode, mode in (("merge", "append"), ("overwrite", "overwrite")):
        with pytest.raises(InvalidArgumentError, match=r"columnMapping\.mode"):
            trilake.write(pa.table({"n": [1], name: [2]}), str(tmp_path / "t"), mode=mode, schema_mode=schema_mode)
    mapped = {"delta.columnMapping.mode": "name"}
    trilake.write(pa.table({name: [1], "s": [{name: 1}]}), str(tmp_path / "m"), properties=mapped)
    assert trilake.open(str(tmp_path / "m")).to_arrow().column_names == [name, "s"]


@pytest.mark.parametrize("name", [".f", "..", ".f[0]", "[0]"])
def test_fields_of_structs_have_any_name(name: str) -> None:
    """pyarrow reads a string that begins with a dot as a path of fields."""
    uri = new_uri()
    field, merged = f"s.`{name}`", [{"s": {name: 5.0, "k": 1}}]
    trilake.write([{"s": {name: 1.5, "k": 1}}, {"s": {name: float("nan"), "k": 2}}], uri)
    table = opened(uri)
    assert table.count(f"{field} = 1.5") == 1
    assert table.count(f"{field} + 1 = 2.5") == 1
    assert table.update({field: f"{field} * 2"}, f"{field} = 1.5").rows == 1
    table.merge(merged, f"t.s.k = u.s.k and t.{field} < 4", "u", "t").when_matched_update_all().execute()
    trilake.sql(f"ANALYZE TABLE delta.`{uri}` COMPUTE DELTA STATISTICS")
    assert table.refresh().count(f"{field} = 5") == 1
    trilake.alter(uri).add_constraint("positive", f"{field} > 0")
    assert trilake.verify(uri).ok


@pytest.mark.parametrize("type_", ["interval", "interval day to second", "INTERVAL YEAR TO MONTH"])
def test_interval_types_are_rejected(tmp_path: Path, type_: str) -> None:
    with pytest.raises(InvalidArgumentError, match="does not support interval types"):
        trilake.create(str(tmp_path / "t"), {"n": "bigint", "i": type_})


def test_identity_column_must_be_bigint(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="an identity column must be bigint"):
        trilake.create(str(tmp_path / "t"), {"s": "string"}, identity=["s"])


@pytest.mark.parametrize("given", ["missing", None])
def test_table_without_a_schema_has_no_columns(tmp_path: Path, given: str | None) -> None:
    """Databricks commits such a version before it adds the columns."""
    action = metadata()
    if given == "missing":
        del action["metaData"]["schemaString"]
    else:
        action["metaData"]["schemaString"] = given
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_bytes(lines([protocol(), action]))
    table = trilake.open(str(tmp_path))
    assert table.schema == pa.schema([])
    assert table.to_arrow().num_rows == 0
    (log / f"{1:020}.json").write_bytes(lines([metadata()]))
    assert trilake.open(str(tmp_path)).schema.names == ["a"]


def test_parquet_json_columns_are_strings(tmp_path: Path) -> None:
    """Like in Spark: bounds in the log are strings, filters compare strings, and rows can be changed."""
    storage = pa.array(['{"a":1}', None, "2"])
    for i, column in enumerate((pa.ExtensionArray.from_storage(pa.json_(), storage), storage)):
        folder = tmp_path / str(i)
        folder.mkdir()
        pq.write_table(pa.table({"i": [0, 1, 2], "j": column}), folder / "f.parquet")
        trilake.convert_to_delta(str(folder))
        table = opened(str(folder))
        assert table.to_arrow().schema.field("j").type == pa.string()
        assert table.to_arrow(filter="j = '2'")["i"].to_pylist() == [2]
        table.delete("i = 2")
        assert table.refresh().to_arrow()["j"].to_pylist() == ['{"a":1}', None]


def test_parquet_uuid_columns_are_rejected_like_in_spark(tmp_path: Path) -> None:
    """The folder stays unchanged; a table that already has such a file is read as binary."""
    values = [uuid.uuid4().bytes, None]
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    pq.write_table(pa.table({"u": column}), tmp_path / "f.parquet")
    with pytest.raises(SchemaMismatchError, match=r"column u has the Parquet type UUID.*strings"):
        trilake.convert_to_delta(str(tmp_path))
    assert not (tmp_path / "_delta_log").exists()
    log = tmp_path / "_delta_log"
    log.mkdir()
    size = (tmp_path / "f.parquet").stat().st_size
    schema = '{"type":"struct","fields":[{"name":"u","type":"binary","nullable":true,"metadata":{}}]}'
    (log / f"{0:020}.json").write_bytes(lines([protocol(), metadata(schema), add("f.parquet", size=size)]))
    assert trilake.open(str(tmp_path)).to_arrow()["u"].to_pylist() == values
