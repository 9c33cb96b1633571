"""Parsed trees keep function calls as written, with any build of sqlglot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp
from sqlglot.generator import Generator
from sqlglot.parser import Parser

import trilake.sql.duckdb.query  # noqa: F401  # so that all classes of ours are there
from trilake.expr.sql.dialect import statements


def _below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


@pytest.mark.parametrize("kind", [Parser, Generator, exp.Expr])
def test_dialect_does_not_subclass_compiled_sqlglot_classes(kind: type) -> None:
    """With ``sqlglot[c]``, such classes cannot be instantiated."""
    assert [c for c in _below(kind) if c.__module__.startswith("trilake")] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("upper(a)", "upper"),
        ("Date_Trunc('year', a)", "Date_Trunc"),
        ("`upper`(a)", "upper"),
        ("exists(a, x -> x > 1)", "exists"),
        ("left(a, 2)", "left"),
        ("mine(a)", "mine"),
        ("any_value(a)", "any_value"),
    ],
)
def test_function_calls_keep_their_names(text: str, name: str) -> None:
    [tree] = statements(text)
    assert isinstance(tree, exp.Anonymous)
    assert tree.name == name
    assert "\ue000" not in repr(tree)


def test_other_identifiers_keep_their_names() -> None:
    text = "WITH sum(max) AS (SELECT 'sum' AS min /* min( */) SELECT /*+ COALESCE(1) */ sum (max) FROM sum"
    [tree] = statements(text)
    assert tree is not None
    assert [i.name for i in tree.find_all(exp.Identifier)].count("sum") == 2
    assert [c.name for c in tree.find_all(exp.Anonymous)] == ["sum"]
    assert tree.find(exp.Hint) is None
    assert "\ue000" not in repr(tree)


def test_marker_character_in_user_sql() -> None:
    [tree] = statements("upper('\ue000upper') = `\ue000sum`")
    assert isinstance(tree, exp.EQ)
    assert (tree.this.name, tree.this.expressions[0].name, tree.expression.name) == (
        "upper",
        "\ue000upper",
        "\ue000sum",
    )
