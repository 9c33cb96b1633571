"""JVM calls of a Delta read do not grow with its columns, and repeated reads make almost none.

Counts instead of times, because counts are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trilake


@pytest.fixture
def calls(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Counts the JVM calls of an action."""
    sent = [0]
    client: Any = type(spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]
    send = client.send_command

    def counted(self: Any, command: str, *args: Any, **more: Any) -> Any:
        sent[0] += not command.startswith("m\nd\n")  # release of unused Python references
        return send(self, command, *args, **more)

    monkeypatch.setattr(client, "send_command", counted)

    def count(action: Callable[[], object]) -> int:
        before = sent[0]
        action()
        return sent[0] - before

    return count


def _table(folder: Path, name: str, columns: int, *, vectors: bool) -> str:
    uri = str(folder / name)
    rows = pa.table({f"c{i} `x`": range(10) for i in range(columns)})
    on = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    for part in rows.slice(0, 5), rows.slice(5):
        trilake.write(part, uri, mode="append", properties=on if not Path(uri).exists() else None)
    if vectors:
        trilake.open(uri).delete("`c0 ``x``` IN (1, 7)")
    return uri


@pytest.mark.parametrize("vectors", [False, True])
def test_wide_table_makes_as_many_calls_as_a_narrow_one(
    spark: SparkSession, tmp_path: Path, vectors: bool, calls: Callable[[Callable[[], object]], int]
) -> None:
    trilake.register(spark)
    narrow, again, wide = (_table(tmp_path, f"t{n}{i}", n, vectors=vectors) for i, n in enumerate((2, 2, 60)))

    def read(uri: str) -> DataFrame:
        return spark.read.format("delta").load(uri)

    calls(lambda: read(narrow))  # session-level lookups
    first = calls(lambda: read(again))
    assert calls(lambda: read(wide)) == first
    second = calls(lambda: read(wide))
    assert second < first / 2
    assert sorted(r[0] for r in read(wide).select("`c59 ``x```").collect()) == [
        i for i in range(10) if not vectors or i not in (1, 7)
    ]


def test_frame_of_the_same_version_detects_a_truncated_file(spark: SparkSession, tmp_path: Path) -> None:
    trilake.register(spark)
    uri = _table(tmp_path, "t", 2, vectors=False)
    assert spark.read.format("delta").load(uri).count() == 10
    cut = next(Path(uri).glob("*.parquet"))
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(Exception, match=r"(?i)parquet|damaged|corrupt"):
        spark.read.format("delta").load(uri).collect()


def test_column_named_metadata_is_a_data_column(spark: SparkSession, tmp_path: Path) -> None:
    trilake.register(spark)
    uri = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2, 3], "_metadata": [{"file_modification_time": i} for i in range(3)]})
    trilake.write(rows, uri, properties={"delta.enableDeletionVectors": "true"})
    trilake.open(uri).delete("id = 2")
    found = spark.read.format("delta").load(uri).orderBy("id").collect()
    assert [(r.id, r["_metadata"].file_modification_time) for r in found] == [(1, 0), (3, 2)]
