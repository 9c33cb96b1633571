"""Expressions stored in a table run no code of the machine and read no files, on either engine."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import LONG_A, log_of, metadata, protocol
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.rules.constraints import RowSession
from trilake.delta.rules.row_rules import RowRules, reject_foreign_calls
from trilake.errors import ExpressionError, TrilakeError, UnsupportedExpressionError
from trilake.expr.terms.engine import query

CALLS = [
    "reflect('java.lang.System', 'exit', 0) is null",
    "a > 0 or Java_Method('java.lang.Runtime', 'x') = 'y'",
    "`reflect` ('java.lang.System', 'getenv', 'HOME') = 'x'",
    "builtin.try_reflect/* a */ -- b\n ('java.lang.System', 'getenv') is null",
    "IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 0) is null",
    "reflect /* /* */ */ ('java.lang.System', 'exit', 0) is null",
]
READERS = [
    *CALLS,
    "length(read_text('/etc/hostname')) > 0",
    "a > (select count(*) from read_csv('/etc/passwd'))",
    "getenv('HOME') = 'x'",
    "current_setting('home_directory') = 'x'",
    "a in (select a from t)",
    "exists(select 1)",
]
ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.parametrize("kind", ["constraint", "default", "generated column"])
def test_spark_expressions_calling_java_are_rejected(text: str, kind: str) -> None:
    schema, configuration = json.loads(LONG_A), {}
    if kind == "constraint":
        configuration["delta__constraints__c"] = text
    else:
        key = "CURRENT_DEFAULT" if kind == "default" else "delta.generationExpression"
        schema["fields"].append({"name": "b", "type": "boolean", "nullable": True, "metadata": {key: text}})
    table = Metadata.from_json(metadata(json.dumps(schema), **configuration)["metaData"], version=0)
    with pytest.raises(ExpressionError) as caught:
        RowRules.of(table, from_arrow(ROWS.schema), uri="x", query=query, now_ms=0, session=RowSession())
    assert not isinstance(caught.value, UnsupportedExpressionError)


@pytest.mark.parametrize("text", CALLS)
def test_every_spelling_of_a_java_call_is_detected(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"constraint c calls .* which runs Java code"):
        reject_foreign_calls(text, "constraint c")


@pytest.mark.parametrize("text", READERS)
def test_hostile_constraint_is_an_error(text: str) -> None:
    store = log_of([protocol(1, 3), metadata(delta__constraints__c=text)]).store
    with pytest.raises(TrilakeError):
        trilake.write(ROWS, store.uri, mode="append")
    assert trilake.open(store.uri).version == 0


@pytest.mark.parametrize(
    "text", ["reflected > 1", "a > 0 and reflect > 1", "upper(java_method) = 'X'", "identifier = 3"]
)
def test_similar_names_are_allowed(text: str) -> None:
    reject_foreign_calls(text, "constraint c")
