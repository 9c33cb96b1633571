"""ALTER TABLE in a case-sensitive session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import InvalidArgumentError, SchemaMismatchError

_OTHER_CASE = (
    "DROP COLUMN A",
    "DROP COLUMNS (a, B)",
    "RENAME COLUMN A TO c",
    "ALTER COLUMN A COMMENT 'x'",
    "ALTER COLUMN A DROP NOT NULL",
    "CHANGE COLUMN A A INT AFTER b",
    "ALTER COLUMN a AFTER B",
    "ADD COLUMN q INT AFTER A",
    "ADD COLUMN S.y INT",
)


def test_alter_matches_column_names_by_case(
    sql: SparkSession, tmp_path: Path, conf: Callable[[str, str], None]
) -> None:
    table = f"delta.`{tmp_path}`"
    columns = "a INT, b INT, s STRUCT<x: INT>"
    sql.sql(f"CREATE TABLE {table} ({columns}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    conf("spark.sql.caseSensitive", "true")
    for change in _OTHER_CASE:
        with pytest.raises(SchemaMismatchError) as e:
            sql.sql(f"ALTER TABLE {table} {change}")
        assert e.value.condition == "FIELD_NOT_FOUND"
    with pytest.raises(InvalidArgumentError, match="column a already exists"):
        sql.sql(f"ALTER TABLE {table} ADD COLUMN A INT")
    for change in (
        "DROP COLUMN IF EXISTS B",
        "ADD COLUMNS (q INT AFTER a, r INT AFTER q, s.y INT)",
        "RENAME COLUMN a TO A",
        "ADD CONSTRAINT c CHECK (b > 0)",
    ):
        sql.sql(f"ALTER TABLE {table} {change}")
    assert trilake.open(str(tmp_path)).schema.names == ["A", "q", "r", "b", "s"]
    conf("spark.sql.caseSensitive", "false")
    sql.sql(f"ALTER TABLE {table} DROP COLUMN Q")
    assert trilake.open(str(tmp_path)).schema.names == ["A", "r", "b", "s"]
