"""The SQL and Python of Delta's documentation on small tables: each kind of statement once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from trilake import DeltaTable
from trilake.errors import ConstraintViolatedError, InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def docs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with a temporary database."""
    trilake.install(spark)
    spark.sql(f"CREATE DATABASE docs LOCATION '{tmp_path_factory.mktemp('docs')}'")
    spark.sql("USE docs")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", str(before))
    spark.sql("USE default")
    for row in spark.sql("SHOW TABLES IN docs").collect():
        spark.sql(f"DROP VIEW {row.tableName}" if row.isTemporary else f"DROP TABLE docs.{row.tableName}")
    spark.sql("DROP DATABASE docs")
    trilake.uninstall(spark)


@pytest.fixture
def run(docs: SparkSession) -> Run:
    """Run statements; returns the sorted rows of the last one."""

    def run(*texts: str) -> list[tuple[Any, ...]]:
        for text in texts[:-1]:
            docs.sql(text)
        return sorted(map(tuple, docs.sql(texts[-1]).collect()), key=repr)

    return run


# --- creating tables --------------------------------------------------------------------------------------------------


def test_table_with_comments_partitions_and_properties(run: Run) -> None:
    run(
        "CREATE TABLE IF NOT EXISTS people (id INT NOT NULL COMMENT 'who', born DATE, land STRING) USING DELTA"
        " PARTITIONED BY (land) COMMENT 'all of them' TBLPROPERTIES ('delta.appendOnly' = 'true')"
    )
    run("CREATE TABLE IF NOT EXISTS people (other INT) USING DELTA")
    [detail] = run("DESCRIBE DETAIL people")
    assert detail[0] == "delta"
    assert detail[3] == "all of them"
    run("INSERT INTO people VALUES (1, DATE'2001-02-03', 'no')")
    with pytest.raises(Exception, match="appendOnly"):
        run("DELETE FROM people")
    with pytest.raises(ConstraintViolatedError):
        run("INSERT INTO people VALUES (NULL, NULL, 'no')")
    run("CREATE TABLE people2 LIKE people")
    assert run("SELECT * FROM people2") == []
    assert ("delta.appendOnly", "true") in run("SHOW TBLPROPERTIES people2")


def test_generated_identity_and_default_columns(run: Run) -> None:
    run(
        "CREATE OR REPLACE TABLE made (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5),"
        " at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(at AS DATE)), state STRING DEFAULT 'new',"
        " CONSTRAINT known CHECK (state IN ('new', 'old'))) USING DELTA PARTITIONED BY (day)"
        " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    run("INSERT INTO made (at) VALUES (TIMESTAMP'2024-05-06 07:08:09')")
    run("INSERT INTO made (at, state) VALUES (TIMESTAMP'2024-05-07 00:00:00', 'old')")
    found = run("SELECT id, day, state FROM made ORDER BY id")
    assert found == [(10, dt.date(2024, 5, 6), "new"), (15, dt.date(2024, 5, 7), "old")]
    run("UPDATE made SET state = DEFAULT")
    assert run("SELECT DISTINCT state FROM made") == [("new",)]
    with pytest.raises(ConstraintViolatedError, match="known"):
        run("INSERT INTO made (at, state) VALUES (now(), 'lost')")
    with pytest.raises(Exception, match="day"):
        run("INSERT INTO made (at, day) VALUES (TIMESTAMP'2024-05-06 07:08:09', DATE'1999-01-01')")


def test_tables_of_queries_and_clustered_tables(run: Run, tmp_path: Path) -> None:
    run(f"CREATE TABLE squares USING DELTA LOCATION '{tmp_path}/s' AS SELECT id, id * id AS s FROM range(5)")
    assert len(run("SELECT * FROM squares")) == 5
    run("CREATE OR REPLACE TABLE near (a INT, b STRUCT<c: INT>) USING DELTA CLUSTER BY (a, b.c)")
    run("INSERT INTO near SELECT id, named_struct('c', id % 3) FROM range(100)")
    run("OPTIMIZE near")
    run("ALTER TABLE near CLUSTER BY (a)")
    assert [r[0] for r in run("DESCRIBE near")][:1] == ["# Clustering Information"]
    run("OPTIMIZE near FULL")
    run("ALTER TABLE near CLUSTER BY NONE")
    assert len(run("SELECT * FROM near")) == 100
    run("DROP TABLE squares")
    assert trilake.open(f"{tmp_path}/s").count() == 5


def test_session_defaults_for_table_properties(run: Run, docs: SparkSession) -> None:
    docs.conf.set("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")
    try:
        run("CREATE OR REPLACE TABLE by_default (a INT) USING DELTA")
    finally:
        docs.conf.unset("spark.databricks.delta.properties.defaults.enableChangeDataFeed")
    assert run("SHOW TBLPROPERTIES by_default (delta.enableChangeDataFeed)") == [("delta.enableChangeDataFeed", "true")]


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_insert_update_and_delete(run: Run) -> None:
    run("CREATE OR REPLACE TABLE events (id INT, day DATE, note STRING) USING DELTA PARTITIONED BY (day)")
    run("INSERT INTO events SELECT id, DATE'2024-01-01' + CAST(id % 2 AS INT), 'a' FROM range(4)")
    run("INSERT INTO events BY NAME SELECT 'b' AS note, 9 AS id, DATE'2024-01-01' AS day")
    run("UPDATE events SET note = upper(note) WHERE id > 1")
    run("DELETE FROM events e WHERE e.id IN (SELECT max(id) FROM events)")
    assert run("SELECT id, note FROM events") == [(0, "a"), (1, "a"), (2, "A"), (3, "A")]
    run("INSERT INTO events REPLACE WHERE day = '2024-01-01' SELECT 7, DATE'2024-01-01', 'r'")
    assert [r[0] for r in run("SELECT id FROM events")] == [1, 3, 7]
    run("INSERT OVERWRITE events PARTITION (day = '2024-01-02') SELECT 8, 'p'")
    assert [r[0] for r in run("SELECT id FROM events")] == [7, 8]
    run("INSERT OVERWRITE events VALUES (5, DATE'2024-01-03', 'o')")
    assert [r[0] for r in run("SELECT id FROM events")] == [5]
    run("TRUNCATE TABLE events")
    assert run("SELECT * FROM events") == []


def test_merges(run: Run) -> None:
    run("CREATE OR REPLACE TABLE stock USING DELTA AS SELECT id, 'old' AS state, id * 10 AS n FROM range(4)")
    run(
        "CREATE OR REPLACE TEMPORARY VIEW news AS"
        " SELECT * FROM VALUES (1L, 'new', 11L), (8L, 'new', 88L) AS v(id, state, n)"
    )
    # Update and insert; delete matched rows; delete rows missing in the source.
    run(
        "MERGE INTO stock t USING news s ON t.id = s.id"
        " WHEN MATCHED AND s.n > 10 THEN UPDATE SET t.n = s.n, state = s.state"
        " WHEN NOT MATCHED THEN INSERT (id, state, n) VALUES (s.id, s.state, s.n)"
        " WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET state = 'gone'"
    )
    assert run("SELECT * FROM stock") == [(0, "gone", 0), (1, "new", 11), (2, "gone", 20), (8, "new", 88)]
    # Only new rows, for deduplication.
    run("MERGE INTO stock USING (SELECT * FROM news) AS s ON stock.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert len(run("SELECT * FROM stock")) == 4
    # Changes of another table, the last one of each key.
    run(
        "MERGE INTO stock t USING (SELECT id, latest.gone AS gone, latest.n AS n FROM (SELECT id,"
        " max(struct(at, gone, n)) AS latest FROM VALUES (1L, 1, false, 5L), (1L, 2, true, 6L), (2L, 1, false, 7L)"
        " AS c(id, at, gone, n) GROUP BY id)) s ON s.id = t.id WHEN MATCHED AND s.gone THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, n) VALUES (id, n)"
    )
    assert run("SELECT id, n FROM stock") == [(0, 0), (2, 7), (8, 88)]
    # A new column.
    run(
        "MERGE WITH SCHEMA EVOLUTION INTO stock t USING (SELECT 2L AS id, 'x' AS state, 9L AS n, true AS seen) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert run("SELECT id, seen FROM stock WHERE seen") == [(2, True)]


@pytest.mark.soak
def test_slowly_changing_dimension(run: Run) -> None:
    run("CREATE OR REPLACE TABLE homes (who INT, place STRING, current BOOLEAN, since INT, until INT) USING DELTA")
    run("INSERT INTO homes VALUES (1, 'a', true, 1, NULL), (2, 'b', true, 1, NULL)")
    run(
        "CREATE OR REPLACE TEMPORARY VIEW moves AS"
        " SELECT * FROM VALUES (1, 'c', 5), (3, 'd', 5) AS m(who, place, since)"
    )
    run(
        "MERGE INTO homes h USING (SELECT who AS k, moves.* FROM moves UNION ALL SELECT NULL AS k, moves.* FROM moves"
        " JOIN homes ON moves.who = homes.who WHERE homes.current AND homes.place <> moves.place) s ON h.who = s.k"
        " WHEN MATCHED AND h.current AND h.place <> s.place THEN UPDATE SET current = false, until = s.since"
        " WHEN NOT MATCHED THEN INSERT (who, place, current, since) VALUES (s.who, s.place, true, s.since)"
    )
    assert run("SELECT who, place, current, until FROM homes") == [
        (1, "a", False, 5),
        (1, "c", True, None),
        (2, "b", True, None),
        (3, "d", True, None),
    ]


# --- other versions ---------------------------------------------------------------------------------------------------


def test_versions_changes_and_clones(run: Run, docs: SparkSession, tmp_path: Path) -> None:
    run("CREATE OR REPLACE TABLE v (a INT) USING DELTA TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    run("INSERT INTO v VALUES (1)", "INSERT INTO v VALUES (2)", "UPDATE v SET a = 3 WHERE a = 2")
    first = docs.sql("DESCRIBE HISTORY v").where("version = 1").collect()[0].timestamp
    assert run("SELECT * FROM v VERSION AS OF 2") == [(1,), (2,)]
    assert run(f"SELECT * FROM v TIMESTAMP AS OF '{first}'") == [(1,)]
    place = docs.sql("DESCRIBE DETAIL v").collect()[0].location.removeprefix("file:")
    assert run(f"SELECT * FROM delta.`{place}@v1`") == [(1,)]
    assert docs.read.option("versionAsOf", 1).table("v").count() == 1
    changes = "SELECT a, _change_type, _commit_version FROM table_changes('v', 2)"
    assert run(changes) == [(2, "insert", 2), (2, "update_preimage", 3), (3, "update_postimage", 3)]
    assert len(run(f"SELECT * FROM table_changes_by_path('{place}', 1, 2)")) == 2
    feed = docs.read.option("readChangeFeed", "true").option("startingVersion", 3).table("v")
    assert feed.count() == 2
    run("CREATE OR REPLACE TABLE shallow SHALLOW CLONE v VERSION AS OF 1")
    run(f"CREATE TABLE delta.`{tmp_path}/deep` DEEP CLONE v TBLPROPERTIES ('who' = 'me')")
    assert (run("SELECT * FROM shallow"), run(f"SELECT * FROM delta.`{tmp_path}/deep`")) == ([(1,)], [(1,), (3,)])
    run("RESTORE TABLE v TO VERSION AS OF 1")
    assert run("SELECT * FROM v") == [(1,)]
    run(f"RESTORE v TO TIMESTAMP AS OF '{first}'")
    assert [r.operation for r in docs.sql("DESCRIBE HISTORY v LIMIT 2").collect()] == ["RESTORE", "RESTORE"]


def test_parquet_files_are_cloned(run: Run, docs: SparkSession, tmp_path: Path) -> None:
    """By path, which gives no partition columns, and by a catalog name, which does."""
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "plain" / "x.parquet")
    run(f"CREATE TABLE of_files SHALLOW CLONE parquet.`{tmp_path}/plain`", "INSERT INTO of_files VALUES (3)")
    assert run("DELETE FROM of_files WHERE a = 1", "SELECT a FROM of_files") == [(2,), (3,)]
    assert pq.read_table(tmp_path / "plain").num_rows == 2
    last = docs.sql("DESCRIBE HISTORY of_files").where("version = 0").collect()[0]
    assert (last.operation, last.operationParameters["source"]) == ("CLONE", f"parquet.`file://{tmp_path}/plain`")
    with pytest.raises(InvalidArgumentError, match="no versions"):
        run(f"CREATE TABLE later SHALLOW CLONE parquet.`{tmp_path}/plain` VERSION AS OF 1")
    pq.write_to_dataset(pa.table({"a": [1, 2], "p": [7, 8]}), tmp_path / "parts", partition_cols=["p"])
    with pytest.raises(InvalidArgumentError, match=r"(?i)expecting 0 partition column"):
        run(f"CREATE TABLE later SHALLOW CLONE parquet.`{tmp_path}/parts`")
    run(f"CREATE TABLE parts (a BIGINT, p STRING) USING parquet PARTITIONED BY (p) LOCATION '{tmp_path}/parts'")
    run("MSCK REPAIR TABLE parts", "CREATE TABLE of_parts DEEP CLONE parts TBLPROPERTIES ('who' = 'me')")
    assert run("SELECT a FROM of_parts WHERE p = '8'") == [(2,)]
    with pytest.raises(InvalidArgumentError, match="Parquet files can be cloned"):
        run("CREATE TABLE texts (a INT) USING csv", "CREATE TABLE later SHALLOW CLONE texts")


# --- the schema, rules and features -----------------------------------------------------------------------------------


def test_add_move_rename_and_drop_columns(run: Run) -> None:
    run("CREATE OR REPLACE TABLE c (a INT, s STRUCT<x: INT>) USING DELTA", "INSERT INTO c VALUES (1, struct(2))")
    run("ALTER TABLE c ADD COLUMNS (first STRING COMMENT 'f' FIRST, s.y INT AFTER x)")
    run("ALTER TABLE c ALTER COLUMN a COMMENT 'number'", "ALTER TABLE c CHANGE COLUMN first first STRING AFTER a")
    run("ALTER TABLE c SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')")
    run("ALTER TABLE c RENAME COLUMN first TO last", "ALTER TABLE c RENAME COLUMN s.y TO z")
    run("ALTER TABLE c ALTER COLUMN a TYPE BIGINT", "ALTER TABLE c DROP COLUMN s.x")
    assert run("SELECT * FROM c") == [(1, None, (None,))]
    assert [(r[0], r[1]) for r in run("DESCRIBE TABLE c")] == [
        ("a", "bigint"),
        ("last", "string"),
        ("s", "struct<z:int>"),
    ]
    run("ALTER TABLE c RENAME TO c2", "COMMENT ON TABLE c2 IS 'named again'")
    assert run("DESCRIBE DETAIL c2")[0][3] == "named again"


def test_constraints_properties_and_features(run: Run) -> None:
    run("CREATE OR REPLACE TABLE r (a INT NOT NULL, b INT) USING DELTA", "INSERT INTO r VALUES (1, 1)")
    run("ALTER TABLE r ALTER COLUMN a DROP NOT NULL", "ALTER TABLE r ADD CONSTRAINT low CHECK (b < 10)")
    with pytest.raises(ConstraintViolatedError, match="low"):
        run("INSERT INTO r VALUES (2, 20)")
    with pytest.raises(ConstraintViolatedError):
        run("ALTER TABLE r ADD CONSTRAINT lower CHECK (b < 1)")
    run("ALTER TABLE r DROP CONSTRAINT low", "ALTER TABLE r DROP CONSTRAINT IF EXISTS low")
    run("ALTER TABLE r SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'team' = 'x')")
    run(
        "ALTER TABLE r UNSET TBLPROPERTIES ('team')", "INSERT INTO r VALUES (2, 2), (3, 3)", "DELETE FROM r WHERE a = 2"
    )
    run("REORG TABLE r APPLY (PURGE)", "ALTER TABLE r DROP FEATURE deletionVectors")
    assert run("SELECT * FROM r") == [(1, 1), (3, 3)]
    assert not [k for k, _ in run("SHOW TBLPROPERTIES r") if "deletionVectors" in k or k == "team"]


# --- maintenance ------------------------------------------------------------------------------------------------------


def test_maintenance(run: Run, docs: SparkSession, tmp_path: Path) -> None:
    run("CREATE OR REPLACE TABLE u (a INT, d DATE) USING DELTA PARTITIONED BY (d)")
    for i in range(3):
        run(f"INSERT INTO u VALUES ({i}, DATE'2024-01-01'), ({i}, DATE'2024-01-02')")
    run("OPTIMIZE u WHERE d >= '2024-01-02'", "OPTIMIZE u ZORDER BY (a)", "ANALYZE TABLE u COMPUTE DELTA STATISTICS")
    docs.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        assert len(run("VACUUM u RETAIN 0 HOURS DRY RUN")) > 5
        run("VACUUM u RETAIN 0 HOURS")
    finally:
        docs.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert len(run("SELECT * FROM u")) == 6
    run("GENERATE symlink_format_manifest FOR TABLE u")
    assert run("FSCK REPAIR TABLE u DRY RUN") == []
    run(f"CREATE TABLE pq (a INT) USING parquet LOCATION '{tmp_path}/p'", "INSERT INTO pq VALUES (1)")
    run(f"CONVERT TO DELTA parquet.`{tmp_path}/p`", "DROP TABLE pq")
    assert run(f"SELECT * FROM delta.`{tmp_path}/p`") == [(1,)]
    history = docs.sql("DESCRIBE HISTORY u").collect()
    made = history[-1].operationParameters
    assert (made["isManaged"], made["description"]) == ("true", None), "it was false, and empty"
    operations = {r.operation for r in history}
    assert operations >= {"CREATE OR REPLACE TABLE", "WRITE", "OPTIMIZE", "COMPUTE STATS", "VACUUM START", "VACUUM END"}


# --- Python -----------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_python_examples(docs: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    docs.range(4).selectExpr("id", "id % 2 AS p").write.format("delta").partitionBy("p").save(path)
    new = docs.range(10, 12).selectExpr("id", "0L AS p")
    new.write.format("delta").mode("overwrite").option("replaceWhere", "p = 0").save(path)
    more = new.selectExpr("id", "p", "'m' AS more")
    more.write.format("delta").mode("append").option("mergeSchema", "true").option("userMetadata", "more").save(path)
    assert docs.read.format("delta").load(path).where("more = 'm'").count() == 2
    table = DeltaTable.forPath(docs, path)
    table.update("id = 1", {"id": "id + 100"})
    source = docs.createDataFrame([(101, 1), (200, 1)], "id long, p long")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id AND t.p = s.p")
    merge.whenMatchedDelete().whenNotMatchedInsert(values={"id": "s.id", "p": "s.p"}).execute()
    assert sorted(r.id for r in table.toDF().where("p = 1").collect()) == [3, 200]
    made = DeltaTable.createIfNotExists(docs).tableName("by_builder").addColumn("id", "BIGINT", comment="key")
    made.addColumn("twice", "BIGINT", generatedAlwaysAs="id * 2").property("k", "v").execute()
    docs.range(2).write.format("delta").mode("append").saveAsTable("by_builder")
    assert sorted(map(tuple, docs.table("by_builder").collect())) == [(0, 0), (1, 2)]
    assert table.history(1).collect()[0].operation == "MERGE"
