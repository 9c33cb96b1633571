"""INSERT without Spark casts values to the column types by Spark's store assignment rules."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from trilake.errors import ConflictError, SchemaMismatchError
from trilake.sql.duckdb.query import rows_to_write

_COLUMNS = "i INT, l BIGINT, f DOUBLE, d DECIMAL(10, 2), s STRING, day DATE, at TIMESTAMP, b BOOLEAN"


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        ("i", "2.7", 2),
        ("i", "'5'", 5),
        ("i", "CAST(-3.9 AS DOUBLE)", -3),
        ("l", "1", 1),
        ("f", "'2.5'", 2.5),
        ("d", "1.005", Decimal("1.01")),
        ("d", "7", Decimal("7.00")),
        ("s", "DATE'2024-01-01'", "2024-01-01"),
        ("s", "1.50", "1.50"),
        ("s", "1e10", "1.0E10"),
        ("day", "'2024-02-03'", dt.date(2024, 2, 3)),
        ("day", "TIMESTAMP'2024-02-03 23:59:59'", dt.date(2024, 2, 3)),
        ("at", "'2024-02-03 04:05:06'", dt.datetime(2024, 2, 3, 4, 5, 6, tzinfo=dt.UTC)),
        ("at", "DATE'2024-02-03'", dt.datetime(2024, 2, 3, tzinfo=dt.UTC)),
        ("b", "'yes'", True),
        ("i", "NULL", None),
    ],
)
def test_value_is_cast_to_the_column_type(tmp_path: Path, column: str, value: str, stored: object) -> None:
    name = f"delta.`{tmp_path}/t`"
    trilake.sql(f"CREATE TABLE {name} ({_COLUMNS})")
    trilake.sql(f"INSERT INTO {name} ({column}) VALUES ({value})")
    assert trilake.sql(f'SELECT "{column}" FROM {name}').column(0).to_pylist() == [stored]


@pytest.mark.parametrize(
    ("column", "value", "condition"),
    [
        ("i", "'x'", "CAST_INVALID_INPUT"),
        ("i", "3000000000", "CAST_OVERFLOW_IN_TABLE_INSERT"),
        ("d", "123456789012.5", "CAST_OVERFLOW_IN_TABLE_INSERT"),
        ("day", "'2024-02-30'", "CAST_INVALID_INPUT"),
    ],
)
def test_value_that_does_not_fit_is_rejected(tmp_path: Path, column: str, value: str, condition: str) -> None:
    name = f"delta.`{tmp_path}/t`"
    trilake.sql(f"CREATE TABLE {name} ({_COLUMNS})")
    with pytest.raises(SchemaMismatchError, match=f"does not fit column {column}") as rejected:
        trilake.sql(f"INSERT INTO {name} ({column}) VALUES ({value})")
    assert rejected.value.condition == condition
    assert trilake.open(tmp_path / "t").count() == 0


def test_structs_match_by_name_if_no_cast_is_needed(tmp_path: Path) -> None:
    """As on Spark: structs match by name if columns have the table's names and types, else by position."""
    table, swapped = (f"delta.`{tmp_path}/{name}`" for name in ("t", "swapped"))
    value, other = "{'a': 1::BIGINT, 'b': 1::BIGINT}", "{'b': 6::BIGINT, 'a': 5::BIGINT}"
    for name, s in ((table, value), (swapped, other)):
        trilake.sql(
            f"CREATE TABLE {name} USING delta AS SELECT 1::BIGINT AS id, {s} AS s, [{s}] AS l, MAP {{'k': {s}}} AS m"
        )

    def last() -> list[object]:
        row = trilake.open(tmp_path / "t").to_arrow().to_pylist()[-1]
        return [row["s"], *row["l"], row["m"][0][1]]

    trilake.sql(f"INSERT OVERWRITE {table} SELECT * FROM {swapped}")
    assert last() == [{"a": 5, "b": 6}] * 3
    for columns in ("CAST(id AS INT) AS id, s, l, m", "id AS other, s, l, m"):
        trilake.sql(f"INSERT OVERWRITE {table} SELECT {columns} FROM {swapped}")
        assert last() == [{"a": 6, "b": 5}] * 3
    more = f"SELECT 1::BIGINT AS id, {{'z': 9::BIGINT, 'b': 6::BIGINT, 'a': 5::BIGINT}} AS s, l, m FROM {swapped}"
    trilake.sql(f"INSERT WITH SCHEMA EVOLUTION OVERWRITE {table} {more}")
    assert last() == [{"a": 5, "b": 6, "z": 9}, {"a": 5, "b": 6}, {"a": 5, "b": 6}]


def test_only_inserts_from_other_tables_are_blind_appends(tmp_path: Path) -> None:
    name, other = f"delta.`{tmp_path}/t`", f"delta.`{tmp_path}/other`"
    for n in (name, other):
        trilake.sql(f"CREATE TABLE {n} (i INT)")
    inserts = [
        "VALUES (1)",
        f"SELECT * FROM {other}",
        f"SELECT * FROM {name} VERSION AS OF 0",
        f"SELECT max(i) FROM {name}",
        f"SELECT i FROM {other} WHERE i NOT IN (SELECT i FROM delta.`{tmp_path}/other/../t`)",
    ]
    for insert in inserts:
        trilake.sql(f"INSERT INTO {name} {insert}")
    history = trilake.open(f"{tmp_path}/t").history().to_pylist()
    assert [h["isBlindAppend"] for h in history[-2::-1]] == [True, True, True, False, False]


@pytest.mark.parametrize("how", ["INTO", "OVERWRITE"])
def test_insert_from_itself_detects_concurrent_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path, name = f"{tmp_path}/t", f"delta.`{tmp_path}/t`"
    trilake.write(pa.table({"i": [1, 2]}), path)
    place = "trilake.sql.duckdb.changes.rows_to_write"

    def then(meanwhile: str) -> None:
        def late(*args: Any) -> pa.Table:
            rows = rows_to_write(*args)
            monkeypatch.setattr(place, rows_to_write)
            trilake.sql(meanwhile)
            return rows

        monkeypatch.setattr(place, late)

    then(f"DELETE FROM {name} WHERE i = 1")
    with pytest.raises(ConflictError):
        trilake.sql(f"INSERT {how} {name} SELECT i + 10 FROM {name}")
    then(f"INSERT INTO {name} VALUES (5)")
    trilake.sql(f"INSERT {how} {name} SELECT i + 10 FROM {name}")
    kept = [2] if how == "INTO" else []
    assert sorted(trilake.open(path).to_arrow()["i"].to_pylist()) == [*kept, 5, 12]


def test_absent_partition_columns_are_null(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}`"
    trilake.create(str(tmp_path), {"a": "int", "p": "string"}, partition_by="p")
    trilake.sql(f"INSERT INTO {name} (a) VALUES (1)")
    trilake.sql(f"INSERT INTO {name} (p) VALUES ('x')")
    rows = trilake.open(str(tmp_path)).to_arrow().to_pylist()
    assert sorted(rows, key=str) == [{"a": 1, "p": None}, {"a": None, "p": "x"}]
