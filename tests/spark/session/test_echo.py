"""PySpark's error log omits jobs whose errors trilake raises in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import WriteFailedError


def test_failed_cast_logs_no_json(sql: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    trilake.write({"n": [1], "s": ["a"]}, uri)
    rows = sql.range(3).selectExpr("CAST(concat('x', id) AS bigint) AS n", "'q' AS s")
    for change in (
        lambda: sql.sql(f"INSERT INTO delta.`{uri}` VALUES ('x', 'q')"),
        lambda: trilake.write(rows, uri, mode="append"),
        lambda: trilake.DeltaTable.forPath(sql, uri).update(set={"n": "CAST(s AS bigint)"}),
        lambda: sql.sql(f"UPDATE delta.`{uri}` SET n = s"),
    ):
        with pytest.raises(WriteFailedError, match="CAST_INVALID_INPUT"):
            change()
        assert "QueryContextLogger" not in capfd.readouterr().err
