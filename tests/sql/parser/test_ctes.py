"""Statements with common table expressions."""

from __future__ import annotations

import pytest

from trilake.sql.parser.changes import parse_delete, parse_merge, parse_update
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.statements import behind_ctes, kind, without_ctes
from trilake.sql.parser.tokens import tokenize

_A = "WITH a AS (SELECT 1 x)"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("WITH a AS (SELECT 1), b (x, y) AS (SELECT (2), 3) UPDATE t SET x = 1", "UPDATE"),
        ("WITH a (SELECT 1) DELETE FROM t", "DELETE"),
        ("with recursive a (n) max recursion level 5 as (select 1) merge into t using a on true", "MERGE"),
        ("WITH a AS (SELECT 1) MERGE WITH SCHEMA EVOLUTION INTO t USING a ON true", "MERGE"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT"),
        ("WITH a AS (SELECT 1) FROM a INSERT INTO t SELECT *", "INSERT"),
        ("WITH update AS (SELECT 1) SELECT * FROM update", "WITH"),
        ("WITH a AS (SELECT 1) SELECT 1 AS delete FROM a", "WITH"),
        ("WITH a AS (SELECT 1", "WITH"),
        ("WITH", "WITH"),
        ("SELECT 1", "SELECT"),
    ],
)
def test_statement_kind_is_found_after_the_ctes(text: str, word: str) -> None:
    assert kind(tokenize(text)) == word


def test_each_subquery_gets_the_ctes_once() -> None:
    text = f"{_A}, b AS (SELECT x FROM a)\nDELETE FROM t WHERE x IN (SELECT x FROM (SELECT * FROM b)) OR y = (TABLE a)"
    clause = f"{_A}, b AS (SELECT x FROM a)"
    assert without_ctes(text)[0] == (
        f"DELETE FROM t WHERE x IN ({clause} SELECT x FROM (SELECT * FROM b)) OR y = ({clause} TABLE a)"
    )
    assert without_ctes(text)[1].names == {"a", "b"}


@pytest.mark.parametrize(
    ("clause", "inner", "merged"),
    [
        (_A, "WITH b AS (SELECT 2) SELECT 1", f"{_A}, b AS (SELECT 2) SELECT 1"),
        (_A, "WITH RECURSIVE b AS (SELECT 2) SELECT 1", "WITH RECURSIVE a AS (SELECT 1 x), b AS (SELECT 2) SELECT 1"),
        (
            "WITH RECURSIVE a AS (SELECT 1)",
            "WITH b AS (SELECT 2) SELECT 1",
            "WITH RECURSIVE a AS (SELECT 1), b AS (SELECT 2) SELECT 1",
        ),
    ],
)
def test_subquery_with_its_own_ctes_gets_both(clause: str, inner: str, merged: str) -> None:
    assert without_ctes(f"{clause} UPDATE t SET x = ({inner})")[0] == f"UPDATE t SET x = ({merged})"


def test_statement_without_ctes_is_unchanged() -> None:
    for text in ("DELETE FROM t WHERE x IN (SELECT 1)", "", "WITH a AS (SELECT 1)"):
        assert without_ctes(text)[0] == text
    assert behind_ctes(tokenize("DELETE FROM t")) == 0


def test_parsed_changes_include_the_ctes() -> None:
    assert (
        parse_delete(Cursor(f"{_A} DELETE FROM t AS u WHERE x = (SELECT x FROM a)")).condition
        == f"x = ({_A} SELECT x FROM a)"
    )
    update = parse_update(Cursor(f"{_A} UPDATE t SET y = (SELECT x FROM a)"))
    assert (update.parts, update.values) == (("t",), ((("y",), f"({_A} SELECT x FROM a)"),))
    rest = "ON t.x = s.x WHEN MATCHED THEN DELETE"
    for source, alias in (("A", "A"), ("a AS s", "s"), ("a s", "s")):
        merge = parse_merge(Cursor(f"{_A} MERGE INTO t USING {source} {rest}"))
        assert (merge.source, merge.source_parts, merge.source_alias) == (
            f"({_A} SELECT * FROM {source[0]})",
            None,
            alias,
        )
    other = parse_merge(Cursor(f"{_A} MERGE INTO t USING db.a {rest}"))
    assert (other.source, other.source_parts) == ("db.a", ("db", "a"))
    inside = parse_merge(Cursor(f"{_A} MERGE INTO t USING (SELECT * FROM a) s {rest}"))
    assert inside.source == f"({_A} SELECT * FROM a)"
