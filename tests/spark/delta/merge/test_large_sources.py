"""MERGE that writes all columns of a large source: correct rows, of every type, and nothing left after an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from tests.delta.tables import opened
from trilake import DeltaTable
from trilake.errors import AmbiguousMergeError, ConstraintViolatedError
from trilake.spark.delta.merge import embedded


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    trilake.register(spark)
    monkeypatch.setattr(embedded, "FEW_BYTES", -1)  # treat each source as large
    return spark


@pytest.fixture
def reasons(logged: Callable[[str], Callable[[], list[str]]]) -> Callable[[], list[str]]:
    """Why the embedded engine did not merge, since the last call."""
    return logged("is not merged by the embedded engine")


def _rows(path: Path) -> Counter[str]:
    return Counter(map(repr, opened(path).to_arrow().to_pylist()))


def _files(path: Path) -> list[str]:
    return sorted(p.name for p in path.glob("*.parquet"))


def _merge(session: SparkSession, path: Path, source: DataFrame, on: Any = "t.id = s.id", **more: Any) -> Any:
    merge = DeltaTable.forPath(session, str(path)).alias("t").merge(source.alias("s"), on)
    if more.get("evolve"):
        merge = merge.withSchemaEvolution()
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().collect()[0]


def _table(path: Path, ids: Any, **properties: str) -> Path:
    """Two files of rows ``id, v``."""
    ids = list(ids)
    for part in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
        rows = pa.table({"id": pa.array(part, pa.int64()), "v": pa.array(["old"] * len(part))})
        trilake.write(rows, path, mode="append", properties=properties if not path.exists() else None)
    return path


def _source(session: SparkSession, ids: Any) -> DataFrame:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([f"new {i}" for i in range(len(ids))])})
    return session.createDataFrame(rows)


@pytest.mark.parametrize(
    ("properties", "on"),
    [
        ({}, "t.id = s.id"),
        ({}, "t.id + 0 = s.id"),
        ({"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}, "s.ID = t.id AND t.id = s.id"),
    ],
)
def test_source_rows_replace_matching_rows(
    session: SparkSession, tmp_path: Path, reasons: Any, properties: dict[str, str], on: str
) -> None:
    path = _table(tmp_path / "t", [*range(100), None], **properties)
    result = _merge(session, path, _source(session, [5, 60, None, 200, 200, 201]), on)
    assert reasons() == []
    # Null equals nothing, and two rows with the same new key are two new rows.
    expected = [(i, "old") for i in [*range(100), None] if i not in (5, 60)]
    expected += [(5, "new 0"), (60, "new 1"), (None, "new 2"), (200, "new 3"), (200, "new 4"), (201, "new 5")]
    assert _rows(path) == Counter(repr({"id": i, "v": v}) for i, v in expected)
    assert (result.num_updated_rows, result.num_inserted_rows, result.num_deleted_rows) == (2, 4, 0)
    entry = DeltaTable.forPath(session, str(path)).history(1).collect()[0]
    assert entry.operation == "MERGE"
    metrics = entry.operationMetrics
    assert [int(metrics[n]) for n in ("numSourceRows", "numTargetRowsMatchedUpdated", "numTargetRowsInserted")] == [
        6,
        2,
        4,
    ]


def test_every_type_is_preserved(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    """The oracle is the same merge without Spark."""
    types = {
        "id": pa.array([1, 2, 3], pa.int32()),
        "text": ["a", None, "ü"],
        "bytes": [b"\x00", None, b"x"],
        "number": [float("nan"), -0.0, None],
        "exact": pa.array([Decimal("1.50"), None, Decimal("-9.99")], pa.decimal128(9, 2)),
        "day": pa.array([0, None, -1], pa.date32()),
        "at": pa.array([datetime(1900, 1, 1, tzinfo=UTC), None, datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC)]),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1, "b": None}, None, {"a": None, "b": "x"}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    table = pa.table(types)
    newer = table.set_column(0, "id", pa.array([2, 3, 4], pa.int32()))
    for name in ("spark", "here"):
        trilake.write(table, tmp_path / name)
    _merge(session, tmp_path / "spark", session.createDataFrame(newer))
    assert reasons() == []
    here = opened(tmp_path / "here").merge(newer, "t.id = s.id", "s", "t")
    here.when_matched_update_all().when_not_matched_insert_all().execute()
    assert _rows(tmp_path / "spark") == _rows(tmp_path / "here")


_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "a", "A", "a ", "ü", "u\u0308", None]),
    "exact": (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("1.50"), None]),
    "day": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(2026, 1, 1), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime(1500, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), None]),
    "truth": (pa.bool_(), [True, False, None]),
    "number": (pa.int16(), [-(2**15), 0, 2**15 - 1, None]),
    "real": (pa.float64(), [float("nan"), -0.0, 0.5, None]),
}


@pytest.mark.parametrize("kind", _KEYS)
def test_key_equality_matches_spark(
    kind: str, session: SparkSession, tmp_path: Path, reasons: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two key columns with all pairs of values, a quarter of them in both tables."""
    type_, values = _KEYS[kind]
    pairs = [(a, n) for a in values for n in range(8)]
    rows = pa.table(
        {"k": pa.array([a for a, _ in pairs], type_), "n": [n for _, n in pairs], "v": ["old"] * len(pairs)}
    )
    newer = rows.set_column(2, "v", pa.array([f"new {i}" for i in range(len(pairs))]))
    newer = newer.set_column(1, "n", pc.multiply(rows["n"], 4))
    for name in ("here", "spark"):
        trilake.write(rows, tmp_path / name)
        _merge(session, tmp_path / name, session.createDataFrame(newer), "t.k = s.k AND t.n = s.n")
        assert len(reasons()) == (name == "spark")
        monkeypatch.setattr(embedded, "_MOST_CORES", 0)
    assert _rows(tmp_path / "here") == _rows(tmp_path / "spark")


def test_clauses_may_name_each_column(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    path = _table(tmp_path, range(10))
    values = {"id": "s.key", "v": "s.`text`"}
    source = _source(session, [3, 30]).toDF("key", "text").alias("s")
    merge = DeltaTable.forPath(session, str(path)).alias("t").merge(source, F.expr("t.id = s.key"))
    merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(values=values).execute()
    assert reasons() == []
    assert [r["v"] for r in opened(path).to_arrow().sort_by("id").to_pylist() if r["id"] in (3, 30)] == [
        "new 0",
        "new 1",
    ]


def test_random_keys_match_their_written_rows(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    path = _table(tmp_path, range(100))
    source = session.range(1000).select(F.floor(F.rand() * 200).alias("id"), F.lit("new").alias("v")).distinct()
    result = _merge(session, path, source)
    assert reasons() == []
    ids = Counter(opened(path).to_arrow()["id"].to_pylist())
    assert set(ids.values()) == {1}
    assert len(ids) == 100 + result.num_inserted_rows


def test_new_source_columns_are_added(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    path = _table(tmp_path, range(4))
    source = _source(session, [3, 4]).withColumn("more", F.lit(1.5))
    _merge(session, path, source, evolve=True)
    assert reasons() == []
    rows = opened(path).to_arrow().sort_by("id").to_pylist()
    assert [(r["id"], r["more"]) for r in rows] == [(0, None), (1, None), (2, None), (3, 1.5), (4, 1.5)]


def test_nested_values_are_cast_like_flat_ones(session: SparkSession, tmp_path: Path) -> None:
    def row(a: str) -> list[str]:
        one = f"named_struct('a', {a})"
        return [f"{a} AS n", f"{one} AS s", f"map({one}, array({one})) AS m"]

    session.range(1, 2, 1, 1).selectExpr("id", *row("1")).write.format("delta").save(str(tmp_path))
    rows = session.range(1, 3, 1, 1).selectExpr("id", *row("'7'"), "'x' AS more")
    _merge(session, tmp_path, rows, evolve=True)
    found = opened(tmp_path).to_arrow().sort_by("id").to_pylist()
    same = {"n": 7, "s": {"a": 7}, "m": [({"a": 7}, [{"a": 7}])], "more": "x"}
    assert found == [{"id": 1, **same}, {"id": 2, **same}]


def test_merge_into_empty_table(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    trilake.write(pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())}), tmp_path)
    _merge(session, tmp_path, _source(session, [1, 1]))
    assert reasons() == []
    assert opened(tmp_path).count() == 2
    version = opened(tmp_path).version
    _merge(session, tmp_path, _source(session, []))
    assert reasons() == []
    assert (opened(tmp_path).count(), opened(tmp_path).version) == (2, version)


def test_source_row_with_two_matches_changes_both(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    path = _table(tmp_path, [1, 1, 2])
    _merge(session, path, _source(session, [1, 3]))
    assert reasons() == []
    rows = sorted((r["id"], r["v"]) for r in opened(path).to_arrow().to_pylist())
    assert rows == [(1, "new 0"), (1, "new 0"), (2, "old"), (3, "new 1")]


def test_skewed_keys_are_not_joined_pairwise(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    path = _table(tmp_path, [0] * 1_000)
    with pytest.raises(AmbiguousMergeError):
        _merge(session, path, _source(session, [0] * 20))
    assert reasons() == []


def test_duplicate_source_matches_are_rejected(session: SparkSession, tmp_path: Path) -> None:
    path = _table(tmp_path, [1, 2])
    before = _files(path)
    with pytest.raises(AmbiguousMergeError):
        _merge(session, path, _source(session, [1, 1]))
    assert _files(path) == before
    assert opened(path).version == 1


def test_not_null_violation_leaves_nothing(session: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    trilake.write(pa.table({"id": [1], "v": ["old"]}, schema=schema), tmp_path)
    before = _files(tmp_path)
    source = _source(session, [1, 2]).withColumn("v", F.when(F.col("id") == 1, F.col("v")))
    with pytest.raises(ConstraintViolatedError):
        _merge(session, tmp_path, source)
    assert _files(tmp_path) == before
    assert _rows(tmp_path) == Counter([repr({"id": 1, "v": "old"})])
