"""Tables changed through SQL views that show all rows of one table, even if they rename its
columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.spark.catalog.named_tables import default_location

VIEWS = {
    "renamed": "SELECT id AS k, text AS w FROM seen",
    "swapped": "SELECT t.text AS id, t.id AS text FROM seen AS t",
    "fewer": "SELECT id FROM seen",
    "moved": "SELECT text, id FROM seen",
    "named": "SELECT id, text FROM seen",
    "aliased": "SELECT * FROM seen s",
    "nested": "SELECT * FROM (SELECT * FROM seen AS t1) AS t2",
    "twice": "SELECT w AS v, t2.k FROM (SELECT id AS k, text AS w FROM seen AS t1) AS t2",
    "some_rows": "SELECT * FROM seen WHERE id > 1",
    "computed": "SELECT id + 1 AS id, text FROM seen",
    "more": "SELECT id, text, 1 FROM seen",
}


@pytest.fixture(scope="module", params=["VIEW", "TEMP VIEW"])
def views(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.sql("CREATE TABLE seen (id INT, text STRING) USING delta")
    spark.sql("INSERT INTO seen VALUES (1, 'a'), (2, 'b')")
    for name, query in VIEWS.items():
        spark.sql(f"CREATE {request.param} {name} AS {query}")
    spark.sql(f"CREATE {request.param} listed (x, y) AS SELECT * FROM seen")
    yield spark
    for name in (*VIEWS, "listed"):
        spark.sql(f"DROP VIEW {name}")
    spark.sql("DROP TABLE seen")
    trilake.uninstall(spark)


@pytest.fixture
def sql(views: SparkSession) -> Iterator[SparkSession]:
    table = trilake.open(default_location(views, "seen"))
    yield views
    if trilake.open(table.uri).version > table.version:
        trilake.open(table.uri).restore(1)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE renamed SET w = renamed.w || k WHERE renamed.k = 1", [(1, "a1"), (2, "b")]),
        ("UPDATE renamed r SET r.w = upper(r.w), k = k + 10 WHERE w = 'b'", [(1, "a"), (12, "B")]),
        ("UPDATE swapped SET text = length(id) + text WHERE id = 'b'", [(1, "a"), (3, "b")]),
        ("UPDATE fewer SET id = id + 1", [(2, "a"), (3, "b")]),
        ("UPDATE moved SET text = 'x' WHERE id = 1", [(1, "x"), (2, "b")]),
        ("UPDATE listed SET y = 'x' WHERE listed.x = 1", [(1, "x"), (2, "b")]),
        ("DELETE FROM renamed WHERE k = 1 AND renamed.w = 'a'", [(2, "b")]),
        ("DELETE FROM listed AS l WHERE l.x = 2", [(1, "a")]),
        ("DELETE FROM aliased WHERE aliased.id = 1", [(2, "b")]),
        ("DELETE FROM named WHERE named.id = 1", [(2, "b")]),
        ("DELETE FROM nested WHERE nested.id = 1", [(2, "b")]),
        ("UPDATE twice SET v = v || k WHERE k = 1", [(1, "a1"), (2, "b")]),
        (
            (
                "MERGE INTO renamed r USING (SELECT 2 AS k, 'z' AS w UNION SELECT 3, 'c') s ON r.k = s.k "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ),
            [(1, "a"), (2, "z"), (3, "c")],
        ),
        (
            (
                "MERGE INTO swapped USING (SELECT 'b' AS text) s ON swapped.id = s.text "
                "WHEN MATCHED AND swapped.text > 1 THEN UPDATE SET id = upper(s.text) "
                "WHEN NOT MATCHED BY SOURCE AND text = 1 THEN UPDATE SET swapped.id = id || text"
            ),
            [(1, "a1"), (2, "B")],
        ),
        (
            (
                "MERGE INTO twice USING (SELECT 1 AS id, 'q' AS text) s ON k = id "
                "WHEN MATCHED THEN UPDATE SET v = s.text || v WHEN NOT MATCHED THEN INSERT (k) VALUES (id)"
            ),
            [(1, "qa"), (2, "b")],
        ),
        ("INSERT INTO named VALUES (3, 'c')", [(1, "a"), (2, "b"), (3, "c")]),
        ("MERGE INTO named n USING (SELECT 1 AS id) s ON n.id = s.id WHEN MATCHED THEN DELETE", [(2, "b")]),
    ],
)
def test_table_is_changed_through_a_view(sql: SparkSession, statement: str, expected: list[tuple[int, str]]) -> None:
    sql.sql(statement)
    assert sorted(map(tuple, sql.table("seen").collect())) == expected


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE fewer SET id = 9 WHERE text = 'a'",
        "UPDATE fewer SET text = 'x'",
        "UPDATE renamed SET text = 'x'",
        "DELETE FROM renamed WHERE renamed.id = 1",
        "DELETE FROM listed WHERE id = 1",
        "MERGE INTO renamed r USING (SELECT 1 AS x) s ON r.id = s.x WHEN MATCHED THEN DELETE",
        "MERGE INTO renamed r USING (SELECT 1 AS x) s ON r.k = x WHEN MATCHED THEN UPDATE SET text = 'x'",
        "MERGE INTO renamed r USING (SELECT 1 AS x) s ON r.k = x WHEN NOT MATCHED THEN INSERT (id) VALUES (9)",
    ],
)
def test_hidden_column_of_a_view_is_unknown(sql: SparkSession, statement: str) -> None:
    with pytest.raises(SchemaMismatchError, match="not found in the view"):
        sql.sql(statement)
    assert sorted(map(tuple, sql.table("seen").collect())) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE some_rows SET text = 'x'",
        "DELETE FROM some_rows",
        "DELETE FROM computed WHERE id = 2",
        "DELETE FROM more WHERE id = 2",
        "INSERT INTO renamed VALUES (3, 'c')",
        "INSERT INTO moved VALUES ('c', 3)",
        "MERGE INTO renamed r USING (SELECT 1 AS k) s ON k = s.k WHEN MATCHED THEN DELETE",
        "MERGE INTO some_rows r USING (SELECT 1 AS id) s ON r.id = s.id WHEN MATCHED THEN DELETE",
        "UPDATE renamed SET w = (SELECT max(text) FROM seen)",
    ],
)
def test_change_through_unsupported_view_is_rejected(sql: SparkSession, statement: str) -> None:
    with pytest.raises(InvalidArgumentError, match="view"):
        sql.sql(statement)
    assert sorted(map(tuple, sql.table("seen").collect())) == [(1, "a"), (2, "b")]
