"""``REPLACE COLUMNS`` in SQL."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError

ROW = {"a": 1, "s": {"x": 1, "y": "b"}, "l": [{"x": 2, "y": "c"}], "m": [("k", {"x": 3})]}
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
TYPES = pa.schema(
    [
        ("a", pa.int32()),
        ("s", STRUCT),
        ("l", pa.list_(STRUCT)),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
    ]
)
S = "s STRUCT<x: INT, y: STRING>"
L = "l ARRAY<STRUCT<x: INT, y: STRING>>"
M = "m MAP<STRING, STRUCT<x: INT>>"


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = str(tmp_path / "t")
    trilake.write(pa.Table.from_pylist([ROW], TYPES), where)
    return where


def _replace(path: str, columns: str) -> None:
    trilake.sql(f"ALTER TABLE delta.`{path}` REPLACE COLUMNS ({columns})")


def _fields(path: str) -> tuple[StructField, ...]:
    table = trilake.open(path)
    assert isinstance(table, ArrowDeltaTable)
    return table.metadata.schema.fields


def _row(path: str) -> dict[str, object]:
    rows: list[dict[str, object]] = trilake.open(path).to_arrow().to_pylist()
    return rows[0]


def test_fields_are_moved_and_added_at_every_depth(path: str) -> None:
    _replace(
        path,
        "m MAP<STRING, STRUCT<z: INT, x: INT>>, s STRUCT<y: STRING, x: INT, w: STRUCT<q: INT>>, "
        "l ARRAY<STRUCT<y: STRING, v: DOUBLE, x: INT>>, n DATE, a INT",
    )
    assert list(_row(path).items()) == [
        ("m", [("k", {"z": None, "x": 3})]),
        ("s", {"y": "b", "x": 1, "w": None}),
        ("l", [{"y": "c", "v": None, "x": 2}]),
        ("n", None),
        ("a", 1),
    ]
    assert trilake.open(path).history()["operation"][0].as_py() == "REPLACE COLUMNS"


def test_field_comments_are_set_and_kept(path: str) -> None:
    _replace(path, f"a INT COMMENT 'an a', s STRUCT<x: INT COMMENT 'an x', y: STRING> COMMENT 'an s', {L}, {M}")
    _replace(path, f"a INT, s STRUCT<x: INT, y: STRING COMMENT 'a y'>, {L}, {M}")
    a, s, *_ = _fields(path)
    assert isinstance(s.type, StructType)
    assert [f.metadata.get("comment") for f in (a, s, *s.type.fields)] == ["an a", "an s", "an x", "a y"]


def test_fields_are_dropped_only_with_column_mapping(path: str) -> None:
    fewer = f"a INT, s STRUCT<y: STRING>, l ARRAY<STRUCT<x: INT>>, {M}"
    with pytest.raises(InvalidArgumentError, match="cannot drop a column"):
        _replace(path, fewer)
    trilake.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    _replace(path, fewer)
    assert _row(path) == {"a": 1, "s": {"y": "b"}, "l": [{"x": 2}], "m": [("k", {"x": 3})]}
    _replace(path, f"a INT, {S}, l ARRAY<STRUCT<x: INT>>, {M}")
    assert _row(path)["s"] == {"x": None, "y": "b"}  # a new x that the file does not have
    _replace(path, "b INT")
    assert _row(path) == {"b": None}


def test_types_widen_only_if_enabled(path: str) -> None:
    wider = "a BIGINT, s STRUCT<x: BIGINT, y: STRING>, l ARRAY<STRUCT<x: BIGINT, y: STRING>>, " + M
    with pytest.raises(InvalidArgumentError, match="only with type widening") as e:
        _replace(path, wider)
    assert e.value.condition == "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"
    trilake.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    _replace(path, wider)
    assert _row(path) == ROW
    assert trilake.open(path).schema.field("s").type.field("x").type == pa.int64()
    with pytest.raises(InvalidArgumentError, match="cannot change from long to string") as e:
        _replace(path, wider.replace("a BIGINT", "a STRING"))
    assert e.value.condition == "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"


def test_not_null_can_be_dropped_but_not_added(tmp_path: Path) -> None:
    path = str(tmp_path / "n")
    trilake.sql(f"CREATE TABLE delta.`{path}` (a INT NOT NULL, b INT) USING delta")
    with pytest.raises(InvalidArgumentError, match="column b is nullable"):
        _replace(path, "a INT, b INT NOT NULL")
    _replace(path, "a INT NOT NULL, b INT")
    assert [f.nullable for f in _fields(path)] == [False, True]
    _replace(path, "a INT, b INT")
    assert [f.nullable for f in _fields(path)] == [True, True]
