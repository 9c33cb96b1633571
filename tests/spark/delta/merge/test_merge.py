"""MERGE on Spark: shared cases against the oracle of the engine without Spark, names, rules, plans and failures."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trilake
from tests.conftest import SOAK
from tests.delta.commands.merge.test_merge_oracle import (
    _BOTH,
    _CHANGES,
    _INSERTS,
    _SOURCE,
    _TARGET,
    _UPDATES,
    Clause,
    Row,
    _rows,
    _table,
    oracle,
)
from tests.delta.tables import opened
from trilake import DeltaTable
from trilake.errors import (
    AmbiguousMergeError,
    ConstraintViolatedError,
    ExpressionError,
    FilterError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnsupportedProtocolError,
)
from trilake.spark.delta import row_addresses
from trilake.spark.delta.merge import job as merge_job
from trilake.spark.delta.merge import run as merge_run
from trilake.spark.delta.merge import source as merge_source

EVERYTHING = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
}


def _letters(path: Path, **properties: str) -> str:
    trilake.write(pa.table({"key": ["a", "b", "c", "d"], "value": [1, 2, 3, 4]}), path, properties=properties)
    return str(path)


def _values(path: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in trilake.open(path).to_arrow().to_pylist())


def _source(session: SparkSession) -> DataFrame:
    return session.createDataFrame([("a", -1), ("b", 0), ("e", -5), ("f", -6)], ["k", "v"])


# --- against the oracle -----------------------------------------------------------------------------------------------


def _cases(count: int) -> list[tuple[list[list[Row]], list[Row], str, list[Clause]]]:
    """Deterministic merges with clauses of all kinds and conditions."""
    pick = random.Random(5)

    def row() -> Row:
        return (pick.choice([None, *range(8)]), pick.choice(["x", "y", None]), pick.choice([None, *range(6)]))

    out = []
    joins = ["t.id = s.id", "t.id <=> s.id", "t.id = s.id AND t.p = 'x'", "s.id = t.id + 1"]
    for i in range(count):
        unique = {r[0]: r for r in (row() for _ in range(8))}
        clauses = [
            Clause("matched", "update", pick.choice(_BOTH), pick.choice(_UPDATES)),
            Clause("matched", "delete", pick.choice([None, *_BOTH])),
            Clause("not", "insert", pick.choice(_SOURCE), pick.choice(_INSERTS)),
            Clause("not", "insert", None, pick.choice(_INSERTS)),
            Clause("by_source", "update", pick.choice(_TARGET), pick.choice(_CHANGES)),
            Clause("by_source", "delete", pick.choice(_TARGET)),
        ]
        if i % 3 == 1:
            clauses = [c for c in clauses if c.kind != "by_source"]
        if i % 3 == 2:
            clauses = [c for c in clauses if c.kind == "not"]
        files = [[row() for _ in range(5)] for _ in range(3)]
        out.append((files, list(unique.values()), joins[i % len(joins)], clauses))
    return out


def _merged(table: DeltaTable, source: DataFrame, on: str, clauses: list[Clause]) -> Any:
    builder = table.alias("t").merge(source.alias("s"), on)
    for c in clauses:
        condition = None if c.condition is None else c.condition[0]
        values: Any = None if c.values is None else c.values[0]
        if c.kind == "matched" and c.action == "delete":
            builder = builder.whenMatchedDelete(condition)
        elif c.kind == "matched":
            builder = (
                builder.whenMatchedUpdateAll(condition)
                if values is None
                else builder.whenMatchedUpdate(condition, values)
            )
        elif c.kind == "not":
            builder = (
                builder.whenNotMatchedInsertAll(condition)
                if values is None
                else builder.whenNotMatchedInsert(condition, values)
            )
        elif c.action == "delete":
            builder = builder.whenNotMatchedBySourceDelete(condition)
        else:
            builder = builder.whenNotMatchedBySourceUpdate(condition, values)
    return builder.execute().collect()[0]


def _like_the_oracle(session: SparkSession, path: Path, case: Any, properties: dict[str, str]) -> None:
    """Run a case of :func:`_cases`, and compare rows, counts and the change feed."""
    files, source, on, clauses = case
    for rows in files:
        trilake.write(_table(rows), path, mode="append", properties=properties if rows is files[0] else None)
    expected = oracle([r for f in files for r in f], source, on, clauses)
    frame = session.createDataFrame(_table(source))
    table = DeltaTable.forPath(session, str(path))
    if expected.ambiguous:
        with pytest.raises(AmbiguousMergeError):
            _merged(table, frame, on, clauses)
        return
    result = _merged(table, frame, on, clauses)
    after = opened(path)
    assert _rows(after.to_arrow()) == Counter(expected.rows)
    assert result.num_updated_rows == sum(n for (k, _), n in expected.feed.items() if k == "update_preimage")
    assert result.num_deleted_rows == sum(n for (k, _), n in expected.feed.items() if k == "delete")
    assert result.num_inserted_rows == sum(n for (k, _), n in expected.feed.items() if k == "insert")
    changes = after.changes(after.version)
    rows_of = zip(*(changes[n].to_pylist() for n in ("id", "p", "a")), strict=True)
    assert Counter(zip(changes["_change_type"].to_pylist(), rows_of, strict=True)) == expected.feed


@pytest.mark.parametrize("number", range(4 if SOAK else 2))
def test_merges_equal_the_oracle(number: int, session: SparkSession, tmp_path: Path, monkeypatch: Any) -> None:
    if number % 2:
        # Treat the source as large: key bounds, a shuffled join, inserts in tasks.
        for name in ("_BROADCAST_BYTES", "_FEW_INSERTS"):
            monkeypatch.setattr(merge_job, name, -1)
        for name in ("FEW_BYTES", "MOST_KEYS"):
            monkeypatch.setattr(merge_source, name, -1)
    properties = EVERYTHING if number != 2 else {"delta.enableChangeDataFeed": "true"}
    _like_the_oracle(session, tmp_path, _cases(4)[number], properties)


# --- names and values -------------------------------------------------------------------------------------------------


def test_columns_resolve_in_both_tables(session: SparkSession, tmp_path: Path) -> None:
    path = _letters(tmp_path, **EVERYTHING)
    source = _source(session).toDF("key", "value")
    (
        DeltaTable.forPath(session, path)
        .alias("t")
        .merge(source, source["key"] == F.col("t.key"))
        .whenMatchedUpdate(set={"t.value": source.value + F.col("t.value")})
        .whenNotMatchedInsert(F.col("key") == "e", {"key": source.key, "value": F.lit("7")})
        .whenNotMatchedBySourceUpdate(F.expr("key = 'c'"), {"value": F.col("value") * 10})
        .execute()
    )
    assert _values(path) == [("a", 0), ("b", 2), ("c", 30), ("d", 4), ("e", 7)]
    parameters = opened(path).log.commit_info(1)["operationParameters"]
    assert set(parameters) == {
        "predicate",
        "matchedPredicates",
        "notMatchedPredicates",
        "notMatchedBySourcePredicates",
    }
    # Names without an alias resolve in the only table that has them; a table may be merged into itself.
    table = DeltaTable.forPath(session, path)
    again = table.toDF().withColumnRenamed("key", "k").where("k < 'c'")
    table.merge(again, "key = k").whenMatchedUpdate(set={"key": "concat(k, key)"}).execute()
    assert _values(path)[:2] == [("aa", 0), ("bb", 2)]


def test_nested_columns_and_schema_evolution(session: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "st": [{"a": 1, "b": {"c": "x"}}, None], "l": [[{"p": 1, "q": 2}]] * 2})
    trilake.write(rows, tmp_path)
    table = DeltaTable.forPath(session, str(tmp_path)).alias("t")
    source = session.sql(
        "SELECT 2L AS id, named_struct('b', named_struct('c', 'new'), 'a', 5L) AS st,"
        " array(named_struct('q', 20L, 'p', 10L)) AS l, 1.5D AS extra"
    ).alias("s")
    table.merge(source, "t.id = s.id").whenMatchedUpdate(set={"st.b.c": "'part'"}).execute()
    found = {r["id"]: r for r in trilake.open(tmp_path).to_arrow().to_pylist()}
    assert found[2]["st"] == {"a": None, "b": {"c": "part"}}
    table.merge(source, "t.id = s.id").whenMatchedUpdateAll().withSchemaEvolution().execute()
    found = {r["id"]: r for r in trilake.open(tmp_path).to_arrow().to_pylist()}
    assert found[1] == {"id": 1, "st": {"a": 1, "b": {"c": "x"}}, "l": [{"p": 1, "q": 2}], "extra": None}
    assert found[2] == {"id": 2, "st": {"a": 5, "b": {"c": "new"}}, "l": [{"p": 10, "q": 20}], "extra": 1.5}
    # Fields missing in the source are kept if its struct is null.
    less = session.sql("SELECT id, CAST(NULL AS struct<a: bigint, z: int>) AS st FROM range(1, 3)").alias("s")
    table.merge(less, "t.id = s.id").whenMatchedUpdateAll().withSchemaEvolution().execute()
    assert {r["id"]: r["st"] for r in trilake.open(tmp_path).to_arrow().to_pylist()} == {
        1: {"a": None, "b": {"c": "x"}, "z": None},
        2: {"a": None, "b": {"c": "new"}, "z": None},
    }


def test_feed_records_updates_of_a_not_null_key(session: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    session.range(2).selectExpr("id", "'a' AS v").write.format("delta").save(place)
    trilake.alter(place).set_not_null("id")
    trilake.alter(place).set_properties({"delta.enableChangeDataFeed": "true"})
    t = DeltaTable.forPath(session, place).alias("t")
    source = session.createDataFrame([(1, "n"), (3, "m")], "id long, v string").alias("s")
    t.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    feed = trilake.open(place).changes(3).select(["id", "_change_type"]).to_pylist()
    assert sorted((r["id"], r["_change_type"]) for r in feed) == [
        (1, "update_postimage"),
        (1, "update_preimage"),
        (3, "insert"),
    ]


def test_session_enables_schema_evolution(session: SparkSession, tmp_path: Path) -> None:
    path = _letters(tmp_path)
    session.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        source = _source(session).toDF("key", "value").withColumn("y", F.lit(1)).alias("s")
        merge = DeltaTable.forPath(session, path).alias("t").merge(source, "t.key = s.key")
        merge.whenMatchedUpdate(set={"t.value": "t.value + 1"}).whenNotMatchedInsertAll().execute()
    finally:
        session.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    assert _values(path)[-2:] == [("e", -5, 1), ("f", -6, 1)]
    assert _values(path)[0] == ("a", 2, None)


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        (
            "WHEN MATCHED AND t.value < 2 THEN DELETE WHEN MATCHED THEN UPDATE SET value = 12 div (t.value - 1)",
            {"b": 12, "c": 3, "d": 4},
        ),
        (
            "WHEN MATCHED AND t.value > 1 THEN UPDATE SET value = 12 div (t.value - 1) WHEN NOT MATCHED THEN INSERT *",
            {"a": 1, "b": 12, "c": 3, "d": 4, "e": -5, "f": -6},
        ),
        (
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET value = 12 div (t.value - 1)",
            {"a": 1, "b": 2, "c": 6, "d": 4},
        ),
        (
            "WHEN NOT MATCHED BY SOURCE AND 12 div (value - 1) > 5 THEN UPDATE SET value = 0",
            {"a": 1, "b": 2, "c": 0, "d": 4},
        ),
        (
            (
                "WHEN NOT MATCHED BY SOURCE AND t.value > 3 THEN DELETE"
                " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET value = 12 div (t.value - 4)"
            ),
            {"a": 1, "b": 2, "c": -12},
        ),
        (
            (
                "WHEN MATCHED THEN UPDATE SET value = 12 div (s.value - 3) WHEN NOT MATCHED BY SOURCE AND key = 'c'"
                " THEN UPDATE SET key = concat(key, '!'), value = 12 div (value - 2)"
            ),
            {"a": -3, "b": -4, "c!": 12, "d": 4},
        ),
        (
            (
                "WHEN NOT MATCHED AND s.value > -6 THEN INSERT (key, value) VALUES (s.key, 12 div (s.value + 6))"
                " WHEN NOT MATCHED THEN INSERT (value, key) VALUES (12 div (s.value + 5), s.key)"
            ),
            {"a": 1, "b": 2, "c": 3, "d": 4, "e": 12, "f": -12},
        ),
    ],
)
def test_values_are_computed_only_for_the_rows_of_their_clause(
    sql: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clauses: str, expected: dict[str, int]
) -> None:
    """Divisions failed for rows of other clauses, or of none."""
    monkeypatch.setattr(merge_run, "STRATEGIES", (merge_run.JoinedRows,))
    _source(sql).toDF("key", "value").createOrReplaceTempView("lazy_source")
    path = _letters(tmp_path)
    sql.sql(f"MERGE INTO delta.`{path}` t USING lazy_source s ON t.key = s.key {clauses}")
    assert dict(_values(path)) == expected


@pytest.mark.parametrize("strategy", merge_run.STRATEGIES)
def test_insert_without_a_required_column_fails_only_for_rows(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: Any
) -> None:
    """The clause was an error even if it inserted nothing."""
    monkeypatch.setattr(merge_run, "STRATEGIES", (strategy,))
    path = _letters(tmp_path)
    trilake.alter(path).set_not_null("value")
    merge = DeltaTable.forPath(session, path).merge(_source(session), "key = k").whenMatchedUpdate(set={"value": "v"})
    merge.whenNotMatchedInsert("v > 0", {"key": "k"}).execute()
    assert _values(path) == [("a", -1), ("b", 0), ("c", 3), ("d", 4)]
    with pytest.raises(ConstraintViolatedError, match="NOT NULL constraint violated for column: value"):
        merge.whenNotMatchedInsert(values={"key": "k"}).execute()


def test_rules_that_only_spark_evaluates(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    (
        DeltaTable.create(session)
        .location(path)
        .addColumn("key", "string")
        .addColumn("n", "int", nullable=False)
        .addColumn("hash", "string", generatedAlwaysAs="md5(cast(key AS binary))")
        .addColumn("id", "bigint", generatedAlwaysAs=trilake.IdentityGenerator())
        .addColumn("made", "string", default="soundex('robert')")
        .execute()
    )
    trilake.write(session.sql("SELECT 'a' AS key, 1 AS n"), path, mode="append")
    table = DeltaTable.forPath(session, path)
    source = session.sql("SELECT * FROM VALUES ('a', 5), ('b', 6), ('c', 7) AS v(k, m)")
    merge = table.merge(source, "key = k").whenMatchedUpdate(set={"key": "upper(k)", "n": "m"})
    merge.whenNotMatchedInsert(values={"key": "k", "n": "m"}).execute()
    found = {r["key"]: r for r in trilake.open(path).to_arrow().to_pylist()}
    assert set(found) == {"A", "b", "c"}
    assert [found[k]["made"] for k in "Abc"] == ["R163"] * 3
    assert found["A"]["id"] == 1
    assert len({r["id"] for r in found.values()}) == 3
    hashes = session.sql("SELECT k, md5(cast(k AS binary)) h FROM VALUES ('A'), ('b'), ('c') AS v(k)").collect()
    assert {k: r["hash"] for k, r in found.items()} == {r.k: r.h for r in hashes}
    with pytest.raises(ConstraintViolatedError):
        table.merge(source, "lower(key) = k").whenMatchedUpdate(set={"n": "NULL"}).execute()


@pytest.mark.parametrize("assigned", ["key", "key, name"])
def test_rules_of_spark_read_unassigned_columns(sql: SparkSession, tmp_path: Path, assigned: str) -> None:
    """They read null instead of a default, and failed for a column that no clause assigns."""
    t = f"delta.`{tmp_path}`"
    sql.sql(
        f"CREATE TABLE {t} (key INT, name STRING DEFAULT 'n', more STRING,"
        " short STRING GENERATED ALWAYS AS (left(name, 9)),"
        " hash STRING GENERATED ALWAYS AS (md5(CAST(concat(name, coalesce(more, '')) AS BINARY)))) USING delta"
        " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    sql.sql(f"ALTER TABLE {t} ADD CONSTRAINT known CHECK (soundex(name) = soundex(short))")
    sql.sql(f"INSERT INTO {t} (key, name) VALUES (1, 'n')")
    source = "(SELECT id AS key, 'n' AS name FROM range(1, 4))"
    sql.sql(
        f"MERGE INTO {t} t USING {source} s ON t.key = s.key WHEN MATCHED THEN UPDATE SET t.name = 'o'"
        f" WHEN NOT MATCHED THEN INSERT ({assigned}) VALUES ({', '.join('s.' + n for n in assigned.split(', '))})"
    )
    found = {tuple(r) for r in sql.sql(f"SELECT key, name, hash = md5(CAST(name AS BINARY)) FROM {t}").collect()}
    assert found == {(1, "o", True), (2, "n", True), (3, "n", True)}


def test_rows_moved_between_partitions_keep_their_ids(session: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]})
    trilake.write(rows, tmp_path, partition_by=["p"], properties=EVERYTHING)
    table = DeltaTable.forPath(session, str(tmp_path))
    source = session.sql("SELECT * FROM VALUES (1L), (3L) AS v(k)")
    table.merge(source, "id = k").whenMatchedUpdate(set={"p": "'c'"}).execute()
    assert _values(str(tmp_path)) == [(1, "c"), (2, "a"), (3, "c")]
    table.merge(source, "id = k AND p = 'c'").whenMatchedUpdate("k = 3", {"p": "'d'"}).execute()
    after = opened(tmp_path)
    name = after.metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]
    moved = [a for a in after.snapshot.adds.to_pylist() if a["path"].startswith("p=d")]
    with after.log.store.open_input(moved[0]["path"]) as file:
        kept = pa.parquet.read_table(file)[name].to_pylist()
    first = next(a for a in opened(tmp_path, version=0).snapshot.adds.to_pylist() if a["path"].startswith("p=b"))
    assert kept == [first["baseRowId"]]


# --- how it runs ------------------------------------------------------------------------------------------------------


def test_source_is_read_once(session: SparkSession, tmp_path: Path) -> None:
    path = _letters(tmp_path, **EVERYTHING)
    counter = session.sparkContext.accumulator(0)

    def note(key: str) -> str:
        counter.add(1)
        return key

    source = session.range(4).select(
        F.udf(note)(F.element_at(F.array(*map(F.lit, "abxy")), (F.col("id") + 1).cast("int"))).alias("k"),
        F.rand().alias("r"),
    )
    merge = DeltaTable.forPath(session, path).merge(source, "key = k").whenMatchedUpdate(set={"value": "100 * r"})
    cached = set(session.sparkContext._jsc.getPersistentRDDs())  # by other tests
    merge.whenNotMatchedInsert(values={"key": "k", "value": "r * 0"}).execute()
    assert counter.value == 4
    assert [k for k, _ in _values(path)] == ["a", "b", "c", "d", "x", "y"]
    assert set(session.sparkContext._jsc.getPersistentRDDs()) <= cached


def test_only_files_that_can_match_are_scanned(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        rows = pa.table({"id": range(10 * n, 10 * n + 10), "p": [n % 2] * 10})
        trilake.write(rows, tmp_path, mode="append", partition_by=["p"])
    seen: list[int] = []
    real = row_addresses.addressed_rows

    def spy(spark: Any, table: Any, files: Any, **more: Any) -> Any:
        seen.append(len(files))
        return real(spark, table, files, **more)

    monkeypatch.setattr(merge_job, "addressed_rows", spy)
    table = DeltaTable.forPath(session, str(tmp_path)).alias("t")
    source = session.sql("SELECT * FROM VALUES (12L, 1), (35L, 1) AS v(id, p)").alias("s")
    for on in ("t.id = s.id", F.expr("t.id = s.id"), "t.p = s.p", "t.id = s.id + 0 AND t.p = 1"):
        table.merge(source, on).whenNotMatchedInsertAll().execute()
    with monkeypatch.context() as large:
        large.setattr(merge_source, "FEW_BYTES", -1)
        large.setattr(merge_source, "MOST_KEYS", -1)
        table.merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()  # by bounds
    assert seen == [2, 2, 2, 2, 3]
    table.merge(source, "t.id = s.id").whenNotMatchedBySourceDelete("t.id < 5").execute()
    assert seen[-1] == 3
    table.merge(source, "t.id = s.id").whenNotMatchedBySourceDelete().execute()
    assert seen[-1] == 4
    assert sorted(trilake.open(tmp_path).to_arrow()["id"].to_pylist()) == [12, 35]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_conflicting_source_rows_are_shown(session: SparkSession, tmp_path: Path) -> None:
    path = _letters(tmp_path)
    twice = _source(session).union(session.sql("SELECT 'a', 9L"))
    table = DeltaTable.forPath(session, path)
    with pytest.raises(UnsupportedOperationException, match=r"multiple source rows matched.*'v': (-1|9).*'v': (-1|9)"):
        table.merge(twice, "key = k").whenMatchedUpdate(set={"value": "v"}).execute()
    assert {o.key for o in opened(path).log.store.list() if o.key.endswith(".parquet")} == set(
        opened(path).files()["path"].to_pylist()
    )
    table.merge(twice, "key = k").whenMatchedUpdate("v = 9", {"value": "v"}).execute()
    assert table.merge(twice, "key = k").whenMatchedDelete().execute().collect()[0].num_deleted_rows == 2
    assert _values(path) == [("c", 3), ("d", 4)]


def test_invalid_clauses_fail_in_analysis(session: SparkSession, tmp_path: Path) -> None:
    path = _letters(tmp_path)
    table = DeltaTable.forPath(session, path).alias("t")
    source = _source(session).toDF("key", "other").alias("s")
    m = table.merge(source, "t.key = s.key")
    wrong = [
        (m, "at least one WHEN"),
        (m.whenMatchedDelete().whenMatchedUpdate(set={"value": "1"}), "only the last one can omit"),
        (m.whenMatchedUpdate(set={"nothing": "1"}), "nothing"),
        (m.whenMatchedUpdate(set={"value": "1", "t.value": "2"}), "conflict"),
        (m.whenMatchedUpdate(set={"value": "nothing"}), "nothing"),
        (m.whenMatchedUpdate(set={"t.key": "key"}), "(?i)ambiguous"),
        (m.whenMatchedUpdateAll(), "value"),
        (m.whenNotMatchedInsert(values={"value": "value"}), "value"),
        (m.whenNotMatchedBySourceUpdate(set={"value": "other"}), "other"),
        (table.merge(source, "t.key = s.nothing").whenMatchedDelete(), "nothing"),
    ]
    for builder, text in wrong:
        with pytest.raises(AnalysisException, match=text):
            builder.execute()
    assert opened(path).version == 0
    with pytest.raises((InvalidArgumentError, SchemaMismatchError)):
        m.whenMatchedUpdateAll().execute()


def _obstacle(action: Callable[[], object]) -> str:
    """The message of a trilake error that is also an AnalysisException."""
    with pytest.raises(AnalysisException) as rejected:
        action()
    assert isinstance(rejected.value, ExpressionError)
    # Handlers in SQL scripts use the condition names of Spark and delta-spark.
    known = r"DELTA_MERGE_UNRESOLVED_EXPRESSION|UNRESOLVED_COLUMN|AMBIGUOUS_REFERENCE|DATATYPE_MISMATCH"
    assert re.match(known, rejected.value.getCondition())
    assert rejected.value.getSqlState().startswith("42")
    return str(rejected.value)


def test_names_resolve_in_the_tables_visible_to_a_clause(session: SparkSession, tmp_path: Path) -> None:
    path = _letters(tmp_path)
    table = DeltaTable.forPath(session, path)
    source = _source(session).toDF("key", "other")
    m = table.alias("t").merge(source.alias("s"), "t.key = s.key")
    both = "the reference to key is ambiguous: t and s both have it (condition: AMBIGUOUS_REFERENCE). Help: write t.key"
    help = "(condition: DELTA_MERGE_UNRESOLVED_EXPRESSION). Help: the columns are"
    of_target = f"WHEN NOT MATCHED clauses can only use columns of the source {help} s: "
    of_source = f"WHEN NOT MATCHED BY SOURCE clauses can only use columns of the target {help} t"
    wrong = [
        (table.alias("t").merge(source.alias("s"), "key = s.key").whenMatchedDelete(), both),
        (m.whenMatchedUpdate(set={"value": "length(key)"}), both),
        (m.whenMatchedUpdate(F.col("key") == "a", {"value": "1"}), both),
        (m.whenMatchedUpdate(set={"value": "s.valu"}), "cannot resolve s.valu: s has no column valu"),
        (
            m.whenNotMatchedInsert(values={"value": "value"}),
            f"resolve value: {of_target}",
        ),
        (
            m.whenNotMatchedInsert("t.value > 1", {"key": "key"}),
            f"resolve t.value: {of_target}",
        ),
        (m.whenNotMatchedBySourceDelete("other = 1"), f"resolve other: {of_source}"),
        (table.merge(source, "key = key").whenMatchedDelete(), "the target and the source both have it"),
        (m.whenMatchedUpdate("s.other + 1", {"value": "1"}), "is not a boolean"),
    ]
    for builder, text in wrong:
        message = _obstacle(builder.execute)
        assert text in message
        assert "\n" not in message
    assert opened(path).version == 0
    # A name resolves if only one table has it, or if only one visible table has it.
    m.whenMatchedUpdate("other < 0", {"value": "value + other"}).whenNotMatchedInsert(
        values={"key": "key", "value": "other"}
    ).whenNotMatchedBySourceDelete("key = 'd'").execute()
    assert _values(path)[0] == ("a", 0)


def test_names_are_resolved_even_without_rows(session: SparkSession, tmp_path: Path) -> None:
    trilake.write(pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.int64())}), tmp_path)
    table = DeltaTable.forPath(session, str(tmp_path)).alias("t")
    merge = table.merge(_source(session).alias("s"), "t.key = s.k")
    assert "cannot resolve nosuch" in _obstacle(merge.whenMatchedUpdate(set={"value": "nosuch"}).execute)
    for change in (lambda: table.delete("nosuch = 1"), lambda: table.update("t.nosuch = 1", {"value": "1"})):
        with pytest.raises(
            FilterError, match=r"column 'nosuch' not found in the table .*Help: the columns are key, value$"
        ):
            change()
    assert "column 'nosuch' not found" in _obstacle(lambda: table.update(set={"value": "nosuch + 1"}))
    assert opened(tmp_path).version == 0


def test_pandas_and_arrow_sources(session: SparkSession, tmp_path: Path) -> None:
    trilake.write(pa.table({"id": [1], "t": pa.array([0], pa.timestamp("us"))}), tmp_path)
    table = DeltaTable.forPath(session, str(tmp_path)).alias("target")
    rows = pa.table({"id": pa.array([1, 2], pa.uint32()), "t": pa.array([1_999, -1], pa.timestamp("ns"))})
    for source in (rows, rows.to_pandas(), polars.from_arrow(rows)):
        with pytest.raises(SchemaMismatchError, match=r"column t has a time that.*round_times=False"):
            table.merge(source, "target.id = source.id", round_times=False)
    merge = table.merge(rows.to_pandas(), "target.id = source.id")
    assert merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().first()["num_affected_rows"] == 2
    assert sorted(opened(tmp_path).to_arrow()["t"].cast(pa.int64()).to_pylist()) == [-1, 1]


def test_sources_have_columns_that_tables_cannot_have(session: SparkSession, tmp_path: Path) -> None:
    """An interval in the source, used or not, was refused as if the table would store it."""
    path = str(tmp_path / "t")
    trilake.write(session.sql("SELECT 1 AS id, TIMESTAMP'2024-01-01' AS at"), path)
    source = session.sql("SELECT * FROM VALUES (1, INTERVAL 1 DAY), (2, INTERVAL 2 DAY) AS v(id, x)")
    source = source.selectExpr("id", "x", "make_ym_interval(1) AS y", "array(x) AS z").alias("s")
    merge = DeltaTable.forPath(session, path).alias("t").merge(source, "t.id = s.id AND t.at + s.x > t.at")
    merge = merge.whenMatchedUpdate(set={"at": "t.at + s.x"})
    merge.whenNotMatchedInsert(values={"id": "s.id", "at": "TIMESTAMP'2024-01-01' + s.y + s.z[0]"}).execute()
    rows = session.read.format("delta").load(path).selectExpr("id", "CAST(at AS STRING)")
    assert {tuple(r) for r in rows.collect()} == {(1, "2024-01-02 00:00:00"), (2, "2025-01-03 00:00:00")}
    with pytest.raises(UnsupportedProtocolError, match="interval"):
        DeltaTable.forPath(session, path).alias("t").merge(
            source, "t.id = s.id"
        ).withSchemaEvolution().whenNotMatchedInsertAll().execute()
