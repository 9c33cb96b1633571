"""Columns of a change feed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.delta.tables import add, log_of, metadata, parquet
from trilake.delta.scan.changes import plan_changes
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable

ON = {"delta__enableChangeDataFeed": "true"}
NAMED = {**ON, "delta__columnMapping__mode": "name"}


def _schema(*columns: tuple[str, Any]) -> str:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    return json.dumps({"type": "struct", "fields": fields})


def _struct(*columns: tuple[str, Any]) -> Any:
    return json.loads(_schema(*columns))


A, B = ("a", "long"), ("b", "string")
CASES = [
    # old columns, current columns, and columns of a feed that starts before the change
    (_schema(A), _schema(A, B), ["a", "b"]),
    (_schema(A), _schema(B, A), ["b", "a"]),
    (_schema(A, B), _schema(A), ["a", "b"]),
    (_schema(A), _schema(("a", "string")), ["a"]),
    (_schema(("s", _struct(A))), _schema(("s", _struct(A, B)), B), ["s", "b"]),
    (_schema(("s", _struct(A, B))), _schema(("s", _struct(A)), B), ["s"]),
]


@pytest.mark.parametrize(("before", "after", "columns"), CASES)
def test_newest_columns_are_used_if_compatible(before: str, after: str, columns: list[str]) -> None:
    log = log_of([metadata(before, **ON)], [add("f0")], [metadata(after, **ON)])
    scan = plan_changes(log, 0, 1)
    assert list(scan.plan.output) == columns
    assert scan.schema.names == [*columns, "_change_type", "_commit_version", "_commit_timestamp"]
    assert list(plan_changes(log, 0).plan.output) == [f["name"] for f in json.loads(after)["fields"]]


def test_every_schema_in_the_range_is_considered() -> None:
    log = log_of(
        [metadata(_schema(A, B), **ON)], [metadata(_schema(A), **ON)], [metadata(_schema(A, ("c", "long")), **ON)]
    )
    assert list(plan_changes(log, 1, 1).plan.output) == ["a", "c"]
    assert list(plan_changes(log, 0, 1).plan.output) == ["a"]


def test_mapped_tables_use_the_last_columns_of_the_range() -> None:
    log = log_of([metadata(_schema(A), **NAMED)], [metadata(_schema(A, B), **NAMED)])
    assert list(plan_changes(log, 0, 0).plan.output) == ["a"]


def test_changed_partitioning_uses_the_last_columns() -> None:
    log = log_of([metadata(_schema(A, B), **ON)], [metadata(_schema(A, B, ("c", "long")), ["b"], **ON)])
    assert list(plan_changes(log, 0, 0).plan.output) == ["a", "b"]


def test_column_added_after_the_range_is_null() -> None:
    log = log_of([metadata(_schema(A), **ON)], [add("f0")], [metadata(_schema(A, B), **ON)])
    log.store.put("f0", parquet(pa.table({"a": [1, 2]})))
    changes = ArrowDeltaTable(log.store, standard_engine()).changes(0, 1)
    assert changes.select(["a", "b"]).to_pydict() == {"a": [1, 2], "b": [None, None]}
