"""The target of INSERT, and which word is its name."""

from __future__ import annotations

import pytest

from trilake.sql.parser.changes import parse_inserts


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("INSERT INTO table VALUES (1)", "table"),
        ("INSERT INTO table SELECT 1", "table"),
        ("INSERT INTO table (a) SELECT 1", "table"),
        ("INSERT INTO table BY NAME SELECT 1 AS a", "table"),
        ("INSERT OVERWRITE table PARTITION (p = 1) SELECT 1", "table"),
        ("INSERT INTO table REPLACE WHERE p = 1 SELECT 1", "table"),
        ("INSERT INTO TABLE t VALUES (1)", "t"),
        ("INSERT INTO TABLE table VALUES (1)", "table"),
        ("INSERT INTO TABLE map SELECT 1", "map"),
        ("INSERT INTO t VALUES (1)", "t"),
    ],
)
def test_insert_target_named_table(sql: str, name: str) -> None:
    [insert] = parse_inserts(sql)
    assert insert.parts == (name,)
    assert insert.query.split()[0] in ("VALUES", "SELECT")
