"""SQL scripts over trilake tables run as over Spark's tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import trilake


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.sql("CREATE DATABASE scripts")
    spark.sql("USE scripts")
    # The same script runs over a trilake table and over a Spark table.
    spark.sql("CREATE TABLE ours (id INT, what STRING) USING delta")
    spark.sql("CREATE TABLE theirs (id INT, what STRING) USING parquet")
    yield spark
    spark.sql("USE default")
    spark.sql("DROP DATABASE scripts CASCADE")
    trilake.uninstall(spark)


CASES = {
    "while and assignment": """
        BEGIN
          DECLARE n INT DEFAULT 0;
          WHILE n < 3 DO INSERT INTO {t} VALUES (n, 'w'); SET n = n + 1; END WHILE;
          SELECT count(*), max(id) FROM {t};
        END""",
    "scopes, labels and shadows": """
        BEGIN
          outer_one: BEGIN
            DECLARE n INT DEFAULT 1;
            inner_one: BEGIN
              DECLARE n INT DEFAULT 10;
              INSERT INTO {t} VALUES (n, 'inner');
            END inner_one;
            INSERT INTO {t} VALUES (outer_one.n, 'outer');
            SELECT * FROM {t} ORDER BY id;
          END outer_one;
        END""",
    "if and case": """
        BEGIN
          INSERT INTO {t} VALUES (5, 'x');
          IF (SELECT count(*) FROM {t}) = 0 THEN INSERT INTO {t} VALUES (0, 'none');
          ELSEIF EXISTS (SELECT 1 FROM {t} WHERE id = 5) THEN
            CASE (SELECT max(id) FROM {t}) WHEN 4 THEN INSERT INTO {t} VALUES (4, 'four');
              WHEN 5 THEN INSERT INTO {t} VALUES (6, CASE WHEN 1 = 1 THEN 'after five' END);
              ELSE SELECT 1; END CASE;
          ELSE SELECT 2; END IF;
          SELECT * FROM {t} ORDER BY id;
        END""",
    "repeat, loop, leave and iterate": """
        BEGIN
          DECLARE n INT DEFAULT 0;
          REPEAT INSERT INTO {t} VALUES (n, 'r'); SET n = n + 1; UNTIL n >= 2 END REPEAT;
          again: LOOP
            SET n = n + 1;
            IF n = 4 THEN ITERATE again; END IF;
            IF n > 5 THEN LEAVE again; END IF;
            INSERT INTO {t} VALUES (n, 'l');
          END LOOP again;
          SELECT id, what FROM {t} ORDER BY id;
        END""",
    "for each row": """
        BEGIN
          INSERT INTO {t} VALUES (1, 'a'), (2, 'b');
          FOR each_row AS SELECT id AS k, what AS w FROM {t} ORDER BY id DO
            INSERT INTO {t} SELECT each_row.k * 10, w || '!';
          END FOR;
          SELECT * FROM {t} ORDER BY id;
        END""",
    "an exit handler": """
        BEGIN
          DECLARE EXIT HANDLER FOR DIVIDE_BY_ZERO BEGIN
            INSERT INTO {t} VALUES (-1, 'handled'); SELECT id, what FROM {t} ORDER BY id; END;
          INSERT INTO {t} VALUES (1, 'before');
          SELECT 1 / 0;
          INSERT INTO {t} VALUES (2, 'after');
        END""",
    "the nearest handler, by SQLSTATE": """
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION SELECT 'far' AS which, count(*) AS n FROM {t};
          BEGIN
            DECLARE EXIT HANDLER FOR SQLSTATE '22012' INSERT INTO {t} VALUES (7, 'near');
            SELECT 1 / 0;
          END;
          SELECT 'went on' AS which, count(*) AS n FROM {t};
        END""",
}


@pytest.mark.parametrize("name", CASES)
def test_script_over_trilake_table_matches_spark(sql: SparkSession, name: str) -> None:
    answers = []
    for table in ("theirs", "ours"):
        sql.sql(f"TRUNCATE TABLE {table}")
        frame = sql.sql(CASES[name].format(t=table))
        answers.append((frame.columns, [tuple(r) for r in frame.collect()]))
    assert answers[0][1], "Spark alone answers the script"
    assert answers[1] == answers[0]
    with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
        sql.sql("SELECT n").collect()


def test_session_variables_are_restored(sql: SparkSession) -> None:
    sql.sql("DECLARE OR REPLACE VARIABLE n STRING DEFAULT 'mine'")
    try:
        sql.sql("BEGIN DECLARE n INT DEFAULT 1; INSERT INTO ours VALUES (n, 'x'); END")
        assert sql.sql("SELECT n").collect()[0][0] == "mine"
    finally:
        sql.sql("DROP TEMPORARY VARIABLE n")


def test_parameters_apply_to_all_statements(sql: SparkSession) -> None:
    sql.sql("TRUNCATE TABLE ours")
    frame = sql.sql(
        "BEGIN INSERT INTO ours VALUES (:k, :w); SELECT * FROM ours WHERE id = :k; END", {"k": 3, "w": "é;'"}
    )
    assert [tuple(r) for r in frame.collect()] == [(3, "é;'")]


def test_unhandled_error_is_raised_and_leaves_no_variable(sql: SparkSession) -> None:
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        sql.sql("BEGIN DECLARE n INT DEFAULT 0; INSERT INTO ours VALUES (1, 'x'); SELECT 1 / n; END")
    with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
        sql.sql("SELECT n").collect()


def test_script_creates_a_trilake_table(sql: SparkSession) -> None:
    frame = sql.sql("BEGIN CREATE TABLE made (a INT) USING delta; INSERT INTO made VALUES (1); SELECT * FROM made; END")
    assert [tuple(r) for r in frame.collect()] == [(1,)]


def test_invalid_script_is_rejected_by_spark(sql: SparkSession) -> None:
    with pytest.raises(PySparkException, match="PARSE_SYNTAX_ERROR"):
        sql.sql("BEGIN INSERT INTO ours VALUES (9, 'x') SELECT 1; END")
