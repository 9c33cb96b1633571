"""Every schema change rejects change feed column names on a table with a change feed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import trilake
from trilake.errors import InvalidArgumentError

_ON = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
_ROWS = {"id": [1], "n": [2]}
_CHANGES: dict[str, Callable[[str], object]] = {
    "add": lambda uri: trilake.alter(uri).add_columns({"_change_type": "string"}),
    "add in another case": lambda uri: trilake.alter(uri).add_columns({"_Commit_Version": "long"}),
    "rename": lambda uri: trilake.alter(uri).rename_column("n", "_commit_version"),
    "ADD COLUMN": lambda uri: trilake.sql(f"ALTER TABLE delta.`{uri}` ADD COLUMN _commit_timestamp TIMESTAMP"),
    "REPLACE COLUMNS": lambda uri: trilake.sql(
        f"ALTER TABLE delta.`{uri}` REPLACE COLUMNS (id BIGINT, _change_type INT)"
    ),
    "merge": lambda uri: trilake.write({**_ROWS, "_change_type": ["x"]}, uri, mode="append", schema_mode="merge"),
    "overwrite": lambda uri: trilake.write(
        {"id": [1], "_commit_version": [2]}, uri, mode="overwrite", schema_mode="overwrite"
    ),
    "MERGE": lambda uri: trilake.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{uri}` t USING (SELECT 9 AS id, 1 AS n, 'x' AS _change_type) s"
        " ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    ),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_change_feed_column_names_are_rejected(tmp_path: Path, change: str) -> None:
    uri = str(tmp_path / "t")
    trilake.write(_ROWS, uri, properties=_ON)
    files = sorted(p.name for p in (tmp_path / "t").rglob("*.parquet"))
    with pytest.raises(InvalidArgumentError, match="change data feed") as rejected:
        _CHANGES[change](uri)
    assert rejected.value.condition == "RESERVED_CDC_COLUMNS_ON_WRITE"
    table = trilake.open(uri)
    assert table.version == 0
    assert table.schema.names == ["id", "n"]
    assert sorted(p.name for p in (tmp_path / "t").rglob("*.parquet")) == files


def test_nested_fields_may_use_change_feed_names(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    trilake.write({"s": [{"a": 1}]}, uri, properties=_ON)
    trilake.alter(uri).add_columns({"s._change_type": "string"})
    trilake.alter(uri).set_properties({"delta.enableChangeDataFeed": "false"})
    trilake.alter(uri).add_columns({"_change_type": "string"})
    with pytest.raises(InvalidArgumentError) as rejected:
        trilake.alter(uri).set_properties({"delta.enableChangeDataFeed": "true"})
    assert rejected.value.condition == "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"
