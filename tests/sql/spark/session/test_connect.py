"""Relations of a query, found with sqlglot and trilake's tokens because Spark's parser is not available."""

from __future__ import annotations

import pytest

from trilake.sql.spark.session.connect import relations


@pytest.mark.parametrize(
    ("moment", "behind"),
    [
        ("TIMESTAMP AS OF current_timestamp() - INTERVAL 2 SECONDS", ""),
        ("TIMESTAMP AS OF current_timestamp() - INTERVAL 2 SECONDS", " x WHERE x.a > 0"),
        ("TIMESTAMP AS OF (current_timestamp() - INTERVAL 1 DAY)", " WHERE a > 0"),
        ("FOR SYSTEM_TIME AS OF timestamp'2024-01-01' - INTERVAL 1 MINUTE", " JOIN u USING (a)"),
        ("TIMESTAMP AS OF now() - INTERVAL '1-2' YEAR TO MONTH", " y"),
        ("TIMESTAMP AS OF now() - INTERVAL 1 DAY 2 HOURS", " y"),
        ("TIMESTAMP AS OF now() - INTERVAL 1 DAY - INTERVAL -2 HOURS", " y"),
        ("TIMESTAMP AS OF INTERVAL '1 day' + now()", ""),
        ("TIMESTAMP AS OF CASE WHEN true THEN CASE 1 WHEN 1 THEN now() END END", " y"),
        ("TIMESTAMP AS OF '2024-01-01'", " AS y"),
        ("TIMESTAMP AS OF array(now())[0] - 2 * INTERVAL 1 DAY", " y"),
        ("TIMESTAMP AS OF '2024-01-01'::timestamp", " y"),
        ("TIMESTAMP AS OF db.`f`('2024')", " y"),
        ("TIMESTAMP AS OF :moment", " y"),
        ("VERSION AS OF 0", " y"),
        ("FOR SYSTEM_VERSION AS OF 0", ""),
        ("FOR SYSTEM_VERSION AS OF '1'", " y"),
        ("SYSTEM_VERSION AS OF 0", " GROUP BY a"),
        ("for system_version as of 0", " TABLESAMPLE (5 ROWS) y"),
    ],
)
def test_version_expression_ends_at_its_last_token(moment: str, behind: str) -> None:
    text = f"SELECT count(*) FROM db.t {moment}{behind}"
    [found] = [r for r in relations(text) if r.parts == ("db", "t")]
    assert text[found.start : found.end] == "db.t"
    assert found.travel_end is not None
    assert text[found.end : found.travel_end].strip() == moment
    assert found.aliased == ("y" in behind.split() or "x" in behind.split())


@pytest.mark.parametrize(
    "text",
    [
        "TABLE db.t",
        "TABLE db.t ORDER BY a LIMIT 1",
        "SELECT 1 UNION ALL TABLE db.t",
        "SELECT * FROM (TABLE db.t) x",
        "WITH q AS (TABLE db.t) SELECT * FROM q",
        "WITH q AS (SELECT 1) TABLE db.t",
        "SELECT * FROM u WHERE a IN (TABLE db.t)",
    ],
)
def test_query_of_a_whole_table_names_the_table(text: str) -> None:
    [found] = [r for r in relations(text) if r.parts == ("db", "t")]
    assert text[found.start : found.end] == "db.t"
    assert found.travel_end is None


@pytest.mark.parametrize(
    "name", ["STREAM(db.t)", "STREAM db.t", "stream ( db . t ) AS u", "STREAM(`db`.`t`)", "u, STREAM db.t"]
)
def test_stream_names_its_table(name: str) -> None:
    text = f"SELECT * FROM {name} WHERE a > 0"
    [found] = [r for r in relations(text) if r.parts == ("db", "t")]
    assert text[found.start : found.end] in ("db.t", "db . t", "`db`.`t`")


def test_table_named_stream() -> None:
    for text in ("SELECT * FROM stream", "SELECT * FROM stream WHERE a", "SELECT stream FROM stream ORDER BY 1"):
        assert [r.parts for r in relations(text)] == [("stream",)]
