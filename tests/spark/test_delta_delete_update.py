"""DELETE and UPDATE through ``DeltaTable``: arguments, Spark expressions, both scan paths, table rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import trilake
from tests.connect_session import run_apart
from tests.delta.tables import opened, rows
from trilake import DeltaTable
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.errors import (
    ConstraintViolatedError,
    ExpressionError,
    InvalidArgumentError,
    SchemaMismatchError,
    TrilakeError,
    WriteFailedError,
)
from trilake.spark.delta import row_addresses
from trilake.spark.delta.row_addresses import FILE, ROW, addressed_rows, bitmaps
from trilake.spark.delta.row_changes import delete_rows
from trilake.spark.scan.columns import read_condition

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
_NO_NATIVE = "spark.sql.streaming.fileStreamSink.ignoreMetadata"


def _table(session: SparkSession, path: Path, **options: Any) -> DeltaTable:
    """Ten rows in two files: id, v as a string, p."""
    data = pa.table({"id": pa.array(range(10), pa.int64()), "v": [str(i) for i in range(10)], "p": ["a", "b"] * 5})
    trilake.write(data.slice(0, 5), path, **options)
    trilake.write(data.slice(5), path, mode="append")
    return DeltaTable.forPath(session, str(path))


def _ids(path: Path) -> list[int]:
    return sorted(opened(path).to_arrow()["id"].to_pylist())


def _values(path: Path, name: str = "v") -> dict[int, Any]:
    return {r["id"]: r[name] for r in rows(opened(path).to_arrow())}


def _metrics(table: DeltaTable) -> dict[str, str]:
    found: dict[str, str] = table.history(1).collect()[0].operationMetrics
    return found


# --- arguments --------------------------------------------------------------------------------------------------------


def test_delete_as_in_delta_spark_documentation(session: SparkSession, tmp_path: Path) -> None:
    table = _table(session, tmp_path)
    assert table.delete("id = 0") is None  # type: ignore[func-returns-value]
    table.delete(F.col("id") == F.lit(1))
    assert _ids(tmp_path) == list(range(2, 10))
    with pytest.raises(TypeError, match="must be a Spark SQL Column or a string"):
        table.delete(condition=1)  # type: ignore[arg-type]
    table.alias("t").delete("t.id > 7 AND t.p = 'a'")
    assert 8 not in _ids(tmp_path)
    version = opened(tmp_path).version
    table.delete("id = 100")
    table.delete("id % 7 = 8")  # without statistics
    table.update("id % 7 = 8", {"v": "'x'"})
    assert opened(tmp_path).version == version
    table.delete()
    assert _ids(tmp_path) == []
    (first, *_) = table.history().collect()
    assert (first.operation, first.operationParameters) == ("DELETE", {"predicate": '["true"]'})


def test_update_as_in_delta_spark_documentation(session: SparkSession, tmp_path: Path) -> None:
    table = _table(session, tmp_path)
    table.update("id = 0 or id = 1", {"v": "'x'"})
    table.update(F.expr("id = 2"), {"v": F.lit("y"), "p": F.concat("p", F.lit("!"))})
    found = _values(tmp_path)
    assert [found[i] for i in range(4)] == ["x", "x", "y", "3"]
    table.alias("t").update("t.id = 3", {"t.v": "concat(t.v, t.p)"})
    assert _values(tmp_path)[3] == "3b"
    table.update(set={"v": "200"})
    assert set(_values(tmp_path).values()) == {"200"}
    with pytest.raises(ValueError, match="cannot be None"):
        table.update({"v": "200"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be None"):
        table.update(condition="id = 1")
    with pytest.raises(TypeError, match="must be a dict"):
        table.update(set=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a Spark SQL Column or a string"):
        table.update(1, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Values of dict in .* must contain only"):
        table.update(set={"v": 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"Keys of dict in .* must contain only"):
        table.update(set={1: ""})  # type: ignore[dict-item]


def test_rejected_change_changes_nothing(session: SparkSession, tmp_path: Path) -> None:
    table = _table(session, tmp_path)
    with pytest.raises(AnalysisException, match="nope"):
        table.delete("nope = 1")
    with pytest.raises(AnalysisException, match="nope"):
        table.delete(F.col("nope") == 1)
    with pytest.raises(AnalysisException, match="nope"):
        table.update(set={"v": "nope"})
    with pytest.raises(SchemaMismatchError, match="no column nope") as error:
        table.update(set={"nope": "1"})
    assert isinstance(error.value, AnalysisException)
    with pytest.raises(InvalidArgumentError, match="conflict from these SET columns"):
        table.update(set={"v": "1", "V": "2"})
    with pytest.raises(WriteFailedError, match=r"no files remain.*CAST_INVALID_INPUT"):
        table.update(set={"id": "p"})
    assert (opened(tmp_path).version, len(list(tmp_path.glob("*.parquet")))) == (1, 2)
    trilake.alter(str(tmp_path)).set_properties({"delta.appendOnly": "true"})
    for run in (table.delete, lambda: table.update(set={"v": "1"})):
        with pytest.raises(InvalidArgumentError, match="only allow appends"):
            run()


# --- both scan paths, with and without vectors ------------------------------------------------------------------------


@pytest.mark.parametrize("native", [True, False], ids=["native", "arrow"])
@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "copies"])
def test_changed_rows_files_feed_and_row_ids(
    session: SparkSession, tmp_path: Path, conf: Any, native: bool, vectors: bool
) -> None:
    if not native:
        conf(_NO_NATIVE, "true")
    properties = {**(VECTORS if vectors else {}), **FEED, "delta.enableRowTracking": "true"}
    table = _table(session, tmp_path, partition_by=["p"], properties=properties)
    double = F.udf(lambda s: s + s, "string")
    table.update(
        F.col("id").isin(1, 2, 7), {"v": double("v"), "p": F.when(F.col("id") == 7, "c").otherwise(F.col("p"))}
    )
    assert _values(tmp_path) == {i: str(i) * (2 if i in (1, 2, 7) else 1) for i in range(10)}
    assert _values(tmp_path, "p")[7] == "c"
    metrics = _metrics(table)
    assert (metrics["numUpdatedRows"], metrics["numCopiedRows"]) == ("3", "0" if vectors else "5")
    assert metrics["numDeletionVectorsAdded"] == ("3" if vectors else "0")
    changes = sorted((c["id"], c["_change_type"], c["v"], c["p"]) for c in opened(tmp_path).changes(2).to_pylist())
    assert changes[-2:] == [(7, "update_postimage", "77", "c"), (7, "update_preimage", "7", "b")]
    assert len(changes) == 6
    is_even = F.udf(lambda i: i % 2 == 0, "boolean")
    table.delete(is_even("id") & (F.col("id") > 3))
    assert _ids(tmp_path) == [0, 1, 2, 3, 5, 7, 9]
    found = [(c["id"], c["_change_type"]) for c in opened(tmp_path).changes(3).to_pylist()]
    assert sorted(found) == [(4, "delete"), (6, "delete"), (8, "delete")]
    assert _row_ids(tmp_path) == _ids(tmp_path)  # each row was written in the order of its id


def _row_ids(path: Path) -> list[int]:
    """The row ids of the remaining rows, by ``id`` (the first files had them in another order)."""
    table = opened(path)
    name = table.metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]
    origin: dict[int, int] = {}
    for version in (1, table.version):
        found: dict[int, int] = {}
        snapshot = table.log.snapshot(version)
        for add in snapshot.adds.to_pylist():
            data = pq.read_table(path / add["path"], partitioning=None).to_pylist()
            for i, row in enumerate(data):
                row_id = row.get(name)
                found.setdefault(row["id"], add["baseRowId"] + i if row_id is None else row_id)
        origin = origin or found
    return [i for i in _ids(path) if found[i] == origin[i]]


def test_fully_deleted_files_are_not_read(session: SparkSession, tmp_path: Path) -> None:
    table = _table(session, tmp_path, partition_by=["p"], properties=FEED)
    for file in tmp_path.rglob("p=a/*.parquet"):
        file.unlink()
    table.delete(F.col("p") == "a")
    assert (_metrics(table)["numRemovedFiles"], _metrics(table)["numDeletedRows"]) == ("2", "5")
    assert _ids(tmp_path) == [1, 3, 5, 7, 9]


def test_deleted_rows_of_many_files_are_collected_as_bitmaps(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_addresses, "_MANY_ROWS", 0)
    data = pa.table({"id": pa.array(range(100_000), pa.int64())})
    trilake.write(data, tmp_path, properties=VECTORS)
    result = delete_rows(session, opened(tmp_path), "id % 1000 = 0 or id between 32766 and 32770 or id = 65536")
    expected = {i for i in range(100_000) if i % 1000 == 0 or 32766 <= i <= 32770 or i == 65536}
    assert result.rows == len(expected)
    assert set(_ids(tmp_path)) == set(range(100_000)) - expected


def test_row_addresses_belong_to_the_snapshot(session: SparkSession, tmp_path: Path) -> None:
    _table(session, tmp_path, properties=VECTORS)
    opened(tmp_path).delete("id in (0, 7)")
    table = opened(tmp_path)
    found = addressed_rows(session, table, range(table.snapshot.adds.num_rows))
    got = {(r[FILE], r[ROW]): r["id"] for r in found.frame.collect()}
    first = [0 if '"minValues":{"id":0' in s else 5 for s in table.snapshot.adds["stats"].to_pylist()]
    assert {first[found.files[f]] + row: i for (f, row), i in got.items()} == {i: i for i in _ids(tmp_path)}
    one = addressed_rows(session, table, [1], columns=["id"])
    assert one.collect(one.frame.where("id % 2 = 1")) == {
        1: BitMap64([i - first[1] for i in _ids(tmp_path) if i % 2 == 1 and first[1] <= i < first[1] + 5])
    }
    pairs = pa.table({"f": pa.array([2, 0, 2], pa.int32()), "r": pa.array([5, 1, 3], pa.int64())})
    assert bitmaps(pairs) == {0: BitMap64([1]), 2: BitMap64([3, 5])}
    assert bitmaps(pairs.slice(0, 0)) == {}


# --- Spark semantics --------------------------------------------------------------------------------------------------


def test_casts_never_lose_a_value(session: SparkSession, tmp_path: Path, conf: Any) -> None:
    trilake.write(pa.table({"id": [1, 2], "b": pa.array([1, 2], pa.int8())}), tmp_path)
    table = DeltaTable.forPath(session, str(tmp_path))
    for ansi in ("true", "false"):
        conf("spark.sql.ansi.enabled", ansi)
        with pytest.raises(WriteFailedError, match=r"CAST_OVERFLOW|column b does not fit"):
            table.update(set={"b": "id * 100 + 100"})
        table.update("id = 1", {"b": "id + 1.9D"})
        assert _values(tmp_path, "b") == {1: 2, 2: 2}


def test_nested_fields(session: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("o", pa.struct([("a", pa.int64()), ("b c", pa.struct([("d", pa.string())]))]))]
    )
    rows = pa.Table.from_pylist([{"id": 1}, {"id": 2, "o": {"a": 5}}], schema=schema)
    trilake.write(rows, tmp_path, properties={"delta.columnMapping.mode": "name"})
    table = DeltaTable.forPath(session, str(tmp_path))
    table.update(set={"o.`b c`.d": "'x'", "id": "id * 10"})
    table.update("id = 20", {"O.A": "o.a + 1"})
    assert _values(tmp_path, "o") == {10: {"a": None, "b c": {"d": "x"}}, 20: {"a": 6, "b c": {"d": "x"}}}
    table.update("id = 20", {"o": "named_struct('b c', named_struct('d', 'y'), 'a', 7)"})
    assert _values(tmp_path, "o")[20] == {"a": 7, "b c": {"d": "y"}}


def test_column_named_like_the_alias(session: SparkSession, tmp_path: Path) -> None:
    """The alias was removed twice, and another column was changed."""
    kind = pa.struct([("v", pa.int32()), ("w", pa.int32())])
    data = pa.table({"t": pa.array([{"v": 1, "w": 2}], kind), "v": pa.array([3], pa.int32())})
    trilake.write(data, tmp_path)
    table = DeltaTable.forPath(session, str(tmp_path)).alias("t")
    table.update("t.v = 3", {"t.t.v": "t.v + 10", "t.w": "t.t.v + 20"})
    assert rows(opened(tmp_path).to_arrow()) == [{"t": {"v": 13, "w": 21}, "v": 3}]
    with pytest.raises(InvalidArgumentError, match="conflict"):
        table.update(set={"t.v": "1", "v": "2"})
    source = session.createDataFrame([(3,)], "k INT").alias("s")
    table.merge(source, "s.k = t.v").whenMatchedUpdate(set={"t.t.v": "s.k", "t.v": "t.v + 1"}).execute()
    assert rows(opened(tmp_path).to_arrow()) == [{"t": {"v": 3, "w": 21}, "v": 4}]


def test_timestamps_use_the_session_time_zone(session: SparkSession, tmp_path: Path, conf: Any) -> None:
    times = pa.array([0, 3_600_000_000 * 5], pa.timestamp("us", "UTC"))
    for i in range(2):
        trilake.write(pa.table({"id": [i], "t": times.slice(i, 1)}), tmp_path, mode="append")
    conf("spark.sql.session.timeZone", "America/New_York")
    DeltaTable.forPath(session, str(tmp_path)).delete("t = timestamp'1970-01-01 00:00:00'")  # five hours behind
    assert _ids(tmp_path) == [0]


def test_conditions_as_sql_and_filter(session: SparkSession) -> None:
    schema = StructType((StructField("n", PrimitiveType("long")), StructField("s", PrimitiveType("string"))))

    def upper(s: str) -> str:
        return s

    known = {
        "n > 5": F.col("n") > 5,
        "(s = 't.x''')": F.col("s") == "t.x'",
    }
    for column in known.values():
        found = read_condition(session, column, schema)
        assert found.filter is not None
        assert found.filter.columns < {"n", "s"}
    aliased = read_condition(session, "t.n > 1 AND t.s = 't.s'", schema, alias="t")
    assert aliased.filter is not None
    batch = pa.table({"n": [1, 2], "s": ["t.s", "t.s"]})
    assert aliased.filter.mask(batch).to_pylist() == [False, True]
    for unknown in (F.udf(upper, "string")("s") == "a", F.expr("current_date() > date'2020-01-01'")):
        assert read_condition(session, unknown, schema).filter is None
    assert read_condition(session, "n > 5", schema).sql == "n > 5"
    named = StructType((StructField("uuid", PrimitiveType("string")),))
    assert read_condition(session, "uuid = 'now'", named).filter is not None


def test_nondeterministic_conditions_are_rejected(session: SparkSession, tmp_path: Path) -> None:
    """As on delta-spark, even without rows; values of an update may be nondeterministic."""
    trilake.create(str(tmp_path), {"id": "long"})
    table = DeltaTable.forPath(session, str(tmp_path))
    frame = session.createDataFrame([(1,)], "id long")
    chance = F.udf(lambda: True, "boolean").asNondeterministic()
    for condition in ("id > 1 AND rand() > 0.5", F.rand() > 0.5, "input_file_name() = ''", chance()):
        for change in (
            table.delete,
            lambda c: table.update(c, {"id": F.lit(1)}),
            lambda c: frame.writeTo(f"delta.`{tmp_path}`").overwrite(F.expr(c) if isinstance(c, str) else c),
        ):
            with pytest.raises(AnalysisException, match="must be deterministic") as e:
                change(condition)
            assert e.value.getCondition() == "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
    table.delete("current_timestamp() > timestamp'2020-01-01'")


# --- rules that only Spark knows --------------------------------------------------------------------------------------


def test_table_rules_are_enforced(session: SparkSession, tmp_path: Path) -> None:
    trilake.create(
        str(tmp_path),
        StructType(
            (
                StructField("id", PrimitiveType("long"), False),
                StructField("h", PrimitiveType("string"), True, {"delta.generationExpression": "soundex(v)"}),
                StructField("v", PrimitiveType("string")),
            )
        ),
    )
    trilake.write(session.createDataFrame([(1, "Robert"), (2, "Ann")], "id long, v string"), tmp_path, mode="append")
    table = DeltaTable.forPath(session, str(tmp_path))
    table.update("id = 2", {"v": "'Rupert'"})
    assert _values(tmp_path, "h") == {1: "R163", 2: "R163"}
    trilake.alter(str(tmp_path)).add_constraint("short", "length(v) < 10")
    version, files = opened(tmp_path).version, set(tmp_path.glob("*.parquet"))
    with pytest.raises(ConstraintViolatedError, match="short"):
        table.update(set={"v": "repeat(v, 5)"})
    with pytest.raises(ConstraintViolatedError, match="id"):
        table.update(set={"id": "NULL"})
    assert (opened(tmp_path).version, set(tmp_path.glob("*.parquet"))) == (version, files)


def test_nondeterministic_values_are_computed_once(session: SparkSession, tmp_path: Path) -> None:
    trilake.write(
        pa.table({"id": pa.array(range(50), pa.int64()), "x": pa.array([0.0] * 50)}),
        tmp_path,
        properties={**FEED, **VECTORS},
    )
    DeltaTable.forPath(session, str(tmp_path)).update("id >= 10", {"x": F.rand()})
    images = {
        c["id"]: c["x"] for c in opened(tmp_path).changes(1).to_pylist() if c["_change_type"] == "update_postimage"
    }
    assert {i: x for i, x in _values(tmp_path, "x").items() if i >= 10} == images
    assert len(set(images.values())) == 40
    assert np.isclose(min(_values(tmp_path, "x").values()), 0.0)


# --- Spark Connect ----------------------------------------------------------------------------------------------------

_CONNECT = """
import sys
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
import trilake
from tests.connect_session import connect_session

spark = connect_session()
trilake.register(spark)
data = pa.table({"id": pa.array(range(10), pa.int64()), "v": [str(i) for i in range(10)]})
for name, properties in (("vectors", {"delta.enableDeletionVectors": "true"}), ("copies", {})):
    path = f"{sys.argv[1]}/{name}"
    trilake.write(data, path, properties={**properties, "delta.enableChangeDataFeed": "true"})
    table = trilake.DeltaTable.forPath(spark, path)
    table.delete("id = 1")
    table.delete(F.col("id") == 2)
    table.delete(F.udf(lambda i: i == 3, "boolean")("id"))
    table.update("id = 4", {"v": F.lit("x")})
    table.alias("t").update(F.col("t.id") == 5, {"t.v": "concat(v, v)"})
    rows = trilake.open(path).to_arrow().to_pydict()
    found = dict(zip(rows["id"], rows["v"]))
    assert found == {0: "0", 4: "x", 5: "55", 6: "6", 7: "7", 8: "8", 9: "9"}, found
    kinds = trilake.open(path).changes(1)["_change_type"].to_pylist()
    assert (kinds.count("delete"), kinds.count("update_postimage")) == (3, 2), kinds
    rows = spark.createDataFrame([(6, "new")], "id bigint, v string")
    for condition in (F.col("id") == 6, F.expr("v = 'new'"), F.col("id").isin(6, 7) & (F.col("v") != "x")):
        before = trilake.open(path).count()
        rows.writeTo(f"delta.`{path}`").overwrite(condition)
        assert {"id": 6, "v": "new"} in trilake.open(path).to_arrow().to_pylist()
    assert trilake.open(path).count() == before - 1, "7 went, too"
    try:
        rows.writeTo(f"delta.`{path}`").overwrite(F.udf(lambda i: i == 3, "boolean")("id"))
    except AnalysisException as e:
        assert "does not support the condition" in str(e), e
    others = spark.createDataFrame([(8, "x")], rows.schema)
    rows.union(others).writeTo(f"delta.`{path}`").overwrite(F.lit(True))
    table.delete(F.col("id") == 6)
    assert trilake.open(path).to_arrow().to_pylist() == [{"id": 8, "v": "x"}]
    shown = str(trilake.open(path).history(1)["operationParameters"].to_pylist())
    assert "(`id` = 6)" in shown, shown
    frame, other = table.toDF(), spark.createDataFrame([(8, "y"), (9, "z")], rows.schema)
    table.update(frame["id"] == 8, {"v": F.concat(frame["v"], F.lit("!"))})
    merge = table.merge(other, frame["id"] == other["id"])
    merge = merge.whenMatchedUpdate(frame["v"] == "x!", {"v": F.concat(frame["v"], other["v"])})
    merge.whenNotMatchedInsertAll().execute()
    frame = table.toDF()  # over Connect a frame keeps its version
    same = frame.where(frame["id"] > 8).select((frame["id"] - 1).alias("id"), frame["v"].alias("v"))
    table.alias("t").merge(same.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"v": F.col("s.v")}).execute()
    assert sorted(trilake.open(path).to_arrow()["v"].to_pylist()) == ["z", "z"]
    table.delete(frame["id"] == 9)
    assert trilake.open(path).count() == 1
    for call in (lambda: table.delete("nope = 1"), lambda: table.update(set={"v": "nope"})):
        try:
            call()
        except AnalysisException:
            continue
        raise AssertionError("no error")
print("all is well")
spark.stop()
"""


@pytest.mark.soak
def test_connect_session_changes_rows(tmp_path: Path) -> None:
    # A soak test in a separate process, as in test_connect.py.
    done = run_apart(_CONNECT, str(tmp_path))
    assert done.stdout.splitlines()[-1:] == ["all is well"], done.stderr[-4000:]


@pytest.mark.parametrize("condition", ["n > 100", "false", None], ids=["no file", "false", "no row at all"])
def test_mismatched_value_is_rejected_without_matching_rows(
    session: SparkSession, tmp_path: Path, condition: str | None
) -> None:
    path = str(tmp_path / "t")
    made = session.range(1).selectExpr("id n", "named_struct('a', id, 'b', 'x') s", "array(id) l", "cast(id AS int) i")
    (made.limit(0) if condition is None else made).write.format("delta").save(path)
    table, misfits = (
        DeltaTable.forPath(session, path),
        {"s": "named_struct('a', 1, 'c', 'x')", "l": "5", "i": "array(1)"},
    )
    for column, value in misfits.items():
        for rejected in (
            lambda column=column, value=value: table.update(condition, {column: value}),
            lambda column=column, value=value: table.update(condition, {column: F.expr(value)}),
            lambda column=column, value=value: trilake.open(path).update({column: value}, condition),
        ):
            with pytest.raises(TrilakeError) as found:
                rejected()
            assert column in str(found.value)
    table.update(condition, {"i": "7L", "s": "named_struct('b', 'y', 'a', 1)"})
    with pytest.raises(ExpressionError, match="nope"):
        table.update(condition, {"i": "nope"})
    assert len(table.history().collect()) == 1


@pytest.mark.parametrize("vectors", [False, True])
def test_conditions_on_partitions_that_spark_does_not_infer(sql: SparkSession, tmp_path: Path, vectors: bool) -> None:
    """Spark pushes the anti join of NOT EXISTS below the terms for these partition values."""
    name, other = f"delta.`{tmp_path}/t`", f"delta.`{tmp_path}/other`"
    options = f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{vectors}')"
    sql.sql(f"CREATE TABLE {name} (f FLOAT, p INT, n INT) USING delta PARTITIONED BY (f, p) {options}")
    sql.sql(f"INSERT INTO {name} VALUES (1, 1, 0), (1, 1, 5), (2, 2, 0), (NULL, NULL, 0)")
    sql.sql(f"CREATE TABLE {other} USING delta AS SELECT 1 AS p")
    absent = f"NOT EXISTS (SELECT 1 FROM {other} o WHERE o.p <=> t.p)"
    sql.sql(f"UPDATE {name} t SET n = 7 WHERE {absent}")
    sql.sql(f"DELETE FROM {name} t WHERE {absent} AND p IS NULL OR n = 5")
    assert sorted(map(tuple, sql.table(name).collect())) == [(1, 1, 0), (2, 2, 7)]
