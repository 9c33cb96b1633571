"""Rules that use a column."""

from __future__ import annotations

import pytest

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.dependents import check_free_of_rules, dependents
from trilake.errors import InvalidArgumentError

LONG = PrimitiveType("long")


def table(*fields: StructField, **configuration: str) -> Metadata:
    return Metadata(
        "t",
        StructType(fields).json(),
        configuration={f"delta.{k.replace('__', '.')}": v for k, v in configuration.items()},
    )


def test_dependents_of_a_column() -> None:
    m = table(
        StructField("a", LONG, metadata={"delta.invariants": '{"expression":{"expression":"a > 3"}}'}),
        StructField("b", LONG, metadata={"delta.generationExpression": "year(`D ate`) + 1"}),
        StructField("D ate", PrimitiveType("date")),
        StructField("s", StructType((StructField("a", LONG), StructField("c", LONG)))),
        constraints__one="b <> 'a' and s.c > 0",
    )
    result = {p: len(dependents(m, p)) for p in [("a",), ("b",), ("D ate",), ("s",), ("s", "a"), ("s", "c"), ("c",)]}
    assert result == {("a",): 1, ("b",): 1, ("D ate",): 1, ("s",): 1, ("s", "a"): 0, ("s", "c"): 1, ("c",): 1}


def test_dependents_of_a_deltalake_constraint() -> None:
    m = table(StructField("Price", LONG), StructField("b", LONG), constraints__one='"Price" >= 0')
    assert [len(dependents(m, (c,))) for c in ("Price", "b")] == [1, 0]


def test_condition_names_the_kind_of_rule() -> None:
    generated = {"delta.generationExpression": "a + 1"}
    m = table(StructField("a", LONG), StructField("b", LONG), StructField("c", LONG, metadata=generated))
    with pytest.raises(InvalidArgumentError, match=r"cannot drop column a: it is used by generated column c") as e:
        check_free_of_rules(m, ("a",), "drop")
    assert e.value.condition == "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"
    m = table(StructField("a", LONG), constraints__one="a > 0")
    with pytest.raises(InvalidArgumentError) as e:
        check_free_of_rules(m, ("a",), "widen", conflict="DATA_TYPE_MISMATCH")
    assert e.value.condition == "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"
