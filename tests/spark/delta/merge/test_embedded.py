"""MERGE of a large source by the embedded engine: same rows, changes and errors as by Spark jobs."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.conftest import SOAK
from tests.delta.tables import opened
from tests.spark.delta.merge.test_merge import EVERYTHING, _cases, _like_the_oracle
from trilake import DeltaTable
from trilake.errors import ConstraintViolatedError
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


def _values(path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in opened(path).to_arrow().to_pylist())


@pytest.mark.parametrize("number", range(24 if SOAK else 6))
def test_merges_equal_the_oracle(number: int, session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    properties = EVERYTHING if number % 3 != 2 else {"delta.enableChangeDataFeed": "true"}
    _like_the_oracle(session, tmp_path, _cases(24)[number], properties)
    assert reasons() == []


def _letters(path: Path, **properties: str) -> None:
    trilake.write(pa.table({"key": ["a", "b", "c", "d"], "value": [1, 2, 3, 4]}), path, properties=properties)


def test_column_expressions_and_history_match_spark(
    session: SparkSession, tmp_path: Path, reasons: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = []
    for name in ("embedded", "spark"):
        _letters(tmp_path / name, **EVERYTHING)
        source = session.createDataFrame([("a", -1), ("e", -5), ("f", -6)], ["key", "value"]).alias("s")
        (
            DeltaTable.forPath(session, str(tmp_path / name))
            .alias("t")
            .merge(source, F.col("s.key") == F.col("t.key"))
            .whenMatchedUpdate(set={"t.value": F.col("s.value") + F.col("t.value")})
            .whenNotMatchedInsert(F.col("s.key") == "e", {"key": "s.key", "value": F.lit(7)})
            .whenNotMatchedBySourceUpdate(F.expr("key = 'c'"), {"value": F.col("value") * 10})
            .execute()
        )
        assert len(reasons()) == len(operations)
        monkeypatch.setattr(embedded, "_MOST_CORES", 0)
        operations.append(opened(tmp_path / name).log.commit_info(1))
    assert _values(tmp_path / "embedded") == [("a", 0), ("b", 2), ("c", 30), ("d", 4), ("e", 7)]
    assert _values(tmp_path / "spark") == _values(tmp_path / "embedded")
    assert operations[0]["operationParameters"] == operations[1]["operationParameters"]
    counts = [{k: v for k, v in t["operationMetrics"].items() if k.endswith("Rows")} for t in operations]
    assert counts[0] == counts[1]


def test_every_source_type_is_preserved(session: SparkSession, tmp_path: Path, reasons: Any, monkeypatch: Any) -> None:
    source = session.sql(
        "SELECT id, CAST(id AS DECIMAL(9, 2)) AS exact, DATE '1582-10-10' AS day, TIMESTAMP '1500-01-01' AS at,"
        " array(id, NULL) AS list, map('k', id) AS map, named_struct('a', id, 'b', NULL) AS struct,"
        " CAST('x' AS BINARY) AS bytes, CAST('NaN' AS DOUBLE) AS real FROM range(1, 4)"
    )
    for name in ("embedded", "spark"):
        trilake.write(source.where("id < 3"), tmp_path / name)
        merge = DeltaTable.forPath(session, str(tmp_path / name)).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdate(set={"exact": "s.exact + t.exact"}).whenNotMatchedInsertAll().execute()
        monkeypatch.setattr(embedded, "_MOST_CORES", 0)
    assert len(reasons()) == 1
    assert repr(_values(tmp_path / "embedded")) == repr(_values(tmp_path / "spark"))
    assert _values(tmp_path / "embedded")[0][1] == Decimal("2.00")


def test_source_is_computed_once(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    _letters(tmp_path)
    counter = session.sparkContext.accumulator(0)

    def note(key: str) -> str:
        counter.add(1)
        return key

    source = session.createDataFrame([("a", 5), ("x", 6)], ["k", "v"]).select(F.udf(note)("k").alias("k"), "v")
    merge = DeltaTable.forPath(session, str(tmp_path)).merge(source, "key = k").whenMatchedUpdate(set={"value": "v"})
    merge.whenNotMatchedInsert(values={"key": "k", "value": "v"}).execute()
    assert reasons() == []
    assert counter.value == 2
    assert _values(tmp_path) == [("a", 5), ("b", 2), ("c", 3), ("d", 4), ("x", 6)]


def test_merge_with_transaction_and_schema_evolution(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    _letters(tmp_path)
    source = session.createDataFrame([("a", 5, 1.5)], ["key", "value", "more"]).alias("s")
    merge = DeltaTable.forPath(session, str(tmp_path)).alias("t").merge(source, "t.key = s.key AND t.value < 3")
    merge.whenMatchedUpdateAll().withSchemaEvolution().withTransaction("app", 3).execute()
    assert reasons() == []
    assert opened(tmp_path).snapshot.state.txns["app"]["version"] == 3
    assert _values(tmp_path)[0] == ("a", 5, 1.5)


def test_table_rules_are_enforced(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    _letters(tmp_path)
    trilake.alter(tmp_path).add_constraint("few", "value < 100")
    source = session.createDataFrame([("a", 500)], ["key", "value"]).alias("s")
    table = DeltaTable.forPath(session, str(tmp_path)).alias("t")
    before = sorted(p.name for p in tmp_path.glob("*.parquet"))
    with pytest.raises(ConstraintViolatedError, match="few"):
        table.merge(source, "t.key = s.key").whenMatchedUpdate(set={"value": "s.value"}).execute()
    assert reasons() == []
    twice = source.union(source).alias("s")
    with pytest.raises(UnsupportedOperationException, match="multiple source rows"):
        table.merge(twice, "t.key = s.key").whenMatchedUpdate(set={"value": "1"}).execute()
    assert reasons() == []
    assert sorted(p.name for p in tmp_path.glob("*.parquet")) == before
    assert opened(tmp_path).version == 1


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        ("soundex(s.key)", None),  # not supported by the engine
        ("plus_one(s.value)", None),
        ("(SELECT max(id) FROM range(3))", None),
        ("1", ("spark.sql.session.timeZone", "Europe/Rome")),
        ("1", ("spark.sql.ansi.enabled", "false")),
    ],
)
def test_merges_that_fall_back_to_spark(
    value: str, setting: tuple[str, str] | None, session: SparkSession, tmp_path: Path, reasons: Any
) -> None:
    _letters(tmp_path)
    session.udf.register("plus_one", lambda x: x + 1, "long")
    source = session.createDataFrame([("a", 5)], ["key", "value"]).alias("s")
    old = None if setting is None else session.conf.get(setting[0])
    if setting is not None:
        session.conf.set(*setting)
    try:
        merge = DeltaTable.forPath(session, str(tmp_path)).alias("t").merge(source, "t.key = s.key")
        column = "key" if "soundex" in value else "value"
        if "SELECT" in value:
            merge = merge.whenMatchedUpdate(f"t.value < {value}", {"value": "9"})
        else:
            merge = merge.whenMatchedUpdate(set={column: value})
        merge.execute()
    finally:
        if setting is not None:
            session.conf.set(setting[0], old)
    assert len(reasons()) == 1
    assert opened(tmp_path).version == 1


def test_failing_value_raises_the_error_of_spark(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    _letters(tmp_path)
    source = session.createDataFrame([("a", 0)], ["key", "value"]).alias("s")
    merge = DeltaTable.forPath(session, str(tmp_path)).alias("t").merge(source, "t.key = s.key")
    with pytest.raises(trilake.TrilakeError, match=r"(?i)DIVIDE_BY_ZERO|division by zero"):
        merge.whenMatchedUpdate(set={"value": "t.value div s.value"}).execute()
    assert len(reasons()) == 1
    assert opened(tmp_path).version == 0


@pytest.mark.parametrize("limit", ["_MOST_BYTES", "_MOST_ROWS", "_MOST_PAIRS"])
def test_too_large_source_falls_back_to_spark(
    limit: str, session: SparkSession, tmp_path: Path, reasons: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trilake.write(pa.table({"key": ["a"] * 9 + ["b"], "value": range(10)}), tmp_path)
    before = set(tmp_path.glob("*.parquet"))
    source = session.createDataFrame([("a", 5), ("c", 6)], ["key", "value"]).repartition(2).alias("s")
    monkeypatch.setattr(embedded, limit, (1, 1) if limit == "_MOST_PAIRS" else -1)
    merge = DeltaTable.forPath(session, str(tmp_path)).alias("t").merge(source, "t.key = s.key")
    merge.whenMatchedUpdate(set={"value": "s.value + t.value"}).whenNotMatchedInsertAll().execute()
    assert len(reasons()) == 1
    assert _values(tmp_path) == [*(("a", 5 + i) for i in range(9)), ("b", 9), ("c", 6)]
    assert (
        set(tmp_path.glob("*.parquet")) - before
        == {tmp_path / name for name in opened(tmp_path).files()["path"].to_pylist()} - before
    )


def test_skewed_key(session: SparkSession, tmp_path: Path, reasons: Any) -> None:
    """A source larger than the target, and a key of half the target's rows."""
    keys = [0 if i % 2 else i for i in range(200)]
    trilake.write(pa.table({"key": keys, "value": range(200)}), tmp_path, properties=EVERYTHING)
    source = session.range(5000).selectExpr("id AS key", "id * 10 AS value").alias("s")
    merge = DeltaTable.forPath(session, str(tmp_path)).alias("t").merge(source, "t.key = s.key")
    merge = merge.whenMatchedUpdate("t.value % 3 = 0", {"value": "s.value + t.value"}).whenMatchedDelete("t.value = 1")
    result = merge.whenNotMatchedInsertAll("s.key < 4999").execute().collect()[0]
    assert reasons() == []
    old = [(k, k * 10 + v if v % 3 == 0 else v) for k, v in zip(keys, range(200), strict=True) if v != 1]
    assert _values(tmp_path) == sorted([*old, *((k, k * 10) for k in range(4999) if k not in keys)])
    assert (result.num_updated_rows, result.num_deleted_rows) == (67, 1)
