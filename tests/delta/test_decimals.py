"""Decimals of 38 digits and both signs: writes, pruning, filters, updates, merges, constraints and defaults."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import opened
from tests.expr.test_decimals import LONG, neighbours, numbers, string_value
from trilake.errors import ConstraintViolatedError

TYPE = pa.decimal128(38, 10)
OTHER = LONG.copy_negate()


@pytest.mark.parametrize("partition_by", [None, "m"])
@settings(max_examples=10, deadline=None)
@given(numbers())
@example((LONG, TYPE))
@example((OTHER, TYPE))
@example((Decimal(-(10**38) + 1), pa.decimal128(38, 0)))
@example((Decimal("-0.00000000000000000000000000000000000001"), pa.decimal128(38, 38)))
def test_every_file_with_the_decimal_is_read(partition_by: str | None, number: tuple[Decimal, pa.DataType]) -> None:
    """One file per value: files skipped by statistics or partition values have no matching row."""
    value, type_ = number
    uri = "memory://decimals-files"
    rows = neighbours(value, type_)
    rows = rows.append_column("id", pa.array(range(rows.num_rows)))
    for i in range(rows.num_rows):
        trilake.write(
            rows.slice(i, 1),
            uri,
            mode="append" if i else "overwrite",
            partition_by=partition_by,
            schema_mode=None if i else "overwrite",
        )
    stored = [v for v in rows["m"].to_pylist() if v is not None]
    table = opened(uri)
    for op, expected in (
        ("=", [v for v in stored if v == value]),
        ("<=", [v for v in stored if v <= value]),
        (">", [v for v in stored if v > value]),
        ("!=", [v for v in stored if v != value]),
    ):
        result = table.to_arrow(filter=f"m {op} {string_value(value)}")["m"].to_pylist()
        assert sorted(result) == sorted(expected), op
        assert table.count(f"m {op} {string_value(value)}") == len(expected)


@pytest.mark.parametrize("value", [LONG, OTHER])
@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true"}])
def test_update_delete_and_merge_keep_every_digit(value: Decimal, properties: dict[str, str]) -> None:
    uri = f"memory://decimals-dml-{len(properties)}"
    data = pa.table({"id": [1, 2], "m": pa.array([value, Decimal(0)], TYPE)})
    trilake.write(data, uri, mode="overwrite", properties=properties, schema_mode="overwrite")
    assert opened(uri).update({"m": string_value(value)}, f"m = 0 AND m != {string_value(value)}").rows == 1
    assert opened(uri).to_arrow()["m"].to_pylist() == [value, value]
    merged = (
        opened(uri)
        .merge(pa.table({"m": pa.array([value], TYPE)}), f"target.m = source.m AND target.m = {string_value(value)}")
        .when_matched_update({"id": "target.id + 10"}, f"source.m <= {string_value(value)}")
        .execute()
    )
    assert merged.num_updated_rows == 2
    assert sorted(opened(uri).to_arrow()["id"].to_pylist()) == [11, 12]
    assert opened(uri).delete(f"m = {string_value(value)}").rows == 2


@pytest.mark.parametrize("value", [LONG, OTHER])
def test_column_rules_keep_every_digit(value: Decimal) -> None:
    uri = f"memory://decimals-rules-{'n' if value < 0 else 'p'}"
    columns = {"id": "bigint", "m": "decimal(38,10)", "g": "decimal(38,10)"}
    trilake.create(
        uri,
        columns,
        defaults={"m": string_value(value)},
        generated={"g": f"CASE WHEN id > 0 THEN {string_value(value)} ELSE {string_value(value.copy_negate())} END"},
    )
    trilake.alter(uri).add_constraint("exactly", f"m = {string_value(value)}")
    trilake.write(pa.table({"id": [1]}), uri, mode="append")
    trilake.write(pa.table({"id": [0], "m": pa.array([value], TYPE)}), uri, mode="append")
    assert sorted(map(str, opened(uri).to_arrow()["m"].to_pylist())) == [str(value)] * 2
    assert sorted(opened(uri).to_arrow()["g"].to_pylist()) == sorted([value, value.copy_negate()])
    wrong = pa.table({"id": [2], "m": pa.array([Decimal(str(value)[:-1] + "2")], TYPE)})
    with pytest.raises(ConstraintViolatedError, match="exactly"):
        trilake.write(wrong, uri, mode="append")


@settings(max_examples=10, deadline=None)
@given(st.lists(numbers(), min_size=1, max_size=1))
@example([(LONG, TYPE)])
def test_log_statistics_enclose_the_decimal(decimals: list[tuple[Decimal, pa.DataType]]) -> None:
    """Bounds are JSON numbers: after a round trip they must still enclose the values of the file."""
    ((value, type_),) = decimals
    uri = "memory://decimals-bounds"
    trilake.write(pa.table({"m": pa.array([value], type_)}), uri, mode="overwrite", schema_mode="overwrite")
    explained = opened(uri).explain(f"m = {string_value(value)}")
    assert len(explained.kept) == 1
