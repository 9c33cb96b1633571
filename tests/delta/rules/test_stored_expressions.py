"""Expressions are parsed when they are stored: a text that is no SQL is refused before it can break later writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import trilake
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.errors import ExpressionError

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.int64())])
NO_SQL = ["1 +", "foo(1", "1 2", "case when true then 1", "'x", ""]


def _with_invariant(text: str) -> StructField:
    rule = orjson.dumps({"expression": {"expression": text}}).decode()
    return StructField("c", PrimitiveType("long"), metadata={"delta.invariants": rule})


@pytest.mark.parametrize("text", NO_SQL)
@pytest.mark.parametrize(
    "store",
    [
        lambda place, text: trilake.create(place, COLUMNS, defaults={"a": text}),
        lambda place, text: trilake.create(place, COLUMNS, generated={"a": text}),
        lambda place, text: trilake.create(place, StructType((_with_invariant(text),))),
        lambda place, text: trilake.alter(_made(place)).set_default("a", text),
        lambda place, text: trilake.alter(_made(place)).add_constraint("positive", text),
        lambda place, text: trilake.alter(_made(place)).add_columns([_with_invariant(text)]),
    ],
    ids=["default", "generated", "invariant", "alter default", "constraint", "added invariant"],
)
def test_a_text_that_is_no_sql_is_not_stored(tmp_path: Path, store: Callable[[str, str], Any], text: str) -> None:
    place = str(tmp_path / "t")
    with pytest.raises(ExpressionError):
        store(place, text)
    assert not Path(place).exists() or trilake.open(place).version == 0


def _made(place: str) -> str:
    trilake.create(place, COLUMNS)
    return place


def test_what_only_spark_can_evaluate_is_stored(tmp_path: Path) -> None:
    trilake.create(tmp_path / "t", COLUMNS, defaults={"a": "size(map('x', 1))"})
    assert trilake.alter(tmp_path / "t").set_default("b", "cardinality(array(1))") == 1
