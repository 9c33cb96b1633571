"""Without Spark a query gives what Spark gives, row by row and type by type, or an error of the library."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import trilake
from tests.sql.duckdb.queries.cases import ANSWERS, T, U, queries, shown
from trilake.errors import TrilakeError
from trilake.expr.sql.functions import FUNCTIONS
from trilake.sql.duckdb.queries.aggregates import AGGREGATES
from trilake.sql.duckdb.queries.expressions import GENERATORS
from trilake.sql.duckdb.queries.functions import MORE_FUNCTIONS, OF_UNITS
from trilake.sql.duckdb.queries.lambdas import LAMBDAS
from trilake.sql.duckdb.queries.windows import RANKINGS

RECORDED: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text())
#: What Spark answers and we refuse.
REFUSED = frozenset((Path(__file__).parent / "refused.sql").read_text().splitlines())
#: What Spark refuses and we answer: a key that DISTINCT has, which Spark looks for under another name; a number that is
#: a name in Spark.
LENIENT = frozenset(("SELECT DISTINCT b, i % 2 FROM {t} ORDER BY b, (i % 2)", "SELECT 0x1F"))


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tables' names in statements."""
    folder = tmp_path_factory.mktemp("answers")
    for name, rows in (("t", T), ("u", U)):
        trilake.write(rows, folder / name)
    return {name: f"delta.`{folder}/{name}`" for name in ("t", "u")}


def test_every_query_has_an_answer_and_every_exception_is_needed() -> None:
    assert set(RECORDED) == set(queries())
    assert all("error" not in RECORDED[q] for q in REFUSED)
    assert all("error" in RECORDED[q] for q in LENIENT)
    answered = sum("error" not in a for a in RECORDED.values())
    assert len(REFUSED) < answered / 15


@pytest.mark.parametrize("query", list(queries()))
def test_agrees_with_spark(query: str, names: dict[str, str]) -> None:
    text, answer = _named(query, names), RECORDED[query]
    if query in REFUSED or ("error" in answer and query not in LENIENT):
        with pytest.raises(TrilakeError) as refused:
            trilake.sql(text)
        message = str(refused.value)
        assert not re.search(r"__trilake|sqlglot|\bfilters?\b|#\d", message)
        assert len(message.splitlines()) == 1 or "== SQL ==" in message
        return
    found = trilake.sql(text)
    if query not in LENIENT:
        assert shown(found, query) == answer


def _named(query: str, names: dict[str, str]) -> str:
    return query.replace("{t}", names["t"]).replace("{u}", names["u"])


def test_the_documentation_names_every_function() -> None:
    text = (Path(__file__).parents[4] / "docs/internals/sql.md").read_text()
    names = {*MORE_FUNCTIONS, *OF_UNITS, *LAMBDAS, *AGGREGATES, *RANKINGS, *GENERATORS} - set(FUNCTIONS)
    assert {n for n in names if f"`{n}`" not in text} == set()


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("count(*)", "count(1)"),
        ("i + 1", "(i + 1)"),
        ("st.x", "x"),
        ("upper(s)", "upper(s)"),
        ("CAST(i AS STRING)", "i"),
        ("CAST(i + 1 AS STRING)", "CAST((i + 1) AS STRING)"),
        ("CASE WHEN b THEN 1 END", "CASE WHEN b THEN 1 END"),
        ("s LIKE 'a%'", "s LIKE a%"),
        ("i IS NOT NULL", "(i IS NOT NULL)"),
        ("DATE'2024-01-01'", "DATE '2024-01-01'"),
        ("round(f)", "round(f, 0)"),
        ("id IN (SELECT id FROM {u})", "(id IN (listquery()))"),
    ],
)
def test_columns_without_a_name_have_spark_s(item: str, name: str, names: dict[str, str]) -> None:
    assert trilake.sql(_named(f"SELECT {item} FROM {{t}}", names)).column_names == [name]
