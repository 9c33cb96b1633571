"""ALTER TABLE with concurrent writers: merged changes, repeated checks, and conflicts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from tests.delta.commands.alter.alter_case import Case
from tests.delta.tables import with_runtime
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.log import DeltaLog
from trilake.errors import ConstraintViolatedError, InvalidArgumentError


def with_intruder(t: Case, *rows: dict[str, Any], change: Any = None) -> DeltaLog:
    """The table's log, in which another writer commits once, right before this commit."""
    left = [1]

    def new_id() -> str:
        if left:
            left.clear()
            if change is not None:
                change(Alter(t.log))
            else:
                t.append(*rows)
        return str(uuid4())

    return with_runtime(t.log, replace(SYSTEM_RUNTIME, new_id=new_id))


def test_concurrent_append_is_not_a_conflict() -> None:
    t = Case()
    assert Alter(with_intruder(t, {"id": 3, "p": "u"})).add_columns({"n": "int"}) == 2
    assert t.rows("id", "n")[2] == {"id": 3, "n": None}


def test_concurrently_added_rows_are_checked() -> None:
    t = Case()
    with pytest.raises(ConstraintViolatedError, match="id = -3"):
        Alter(with_intruder(t, {"id": -3, "p": "u"})).add_constraint("c", "id > 0")
    assert t.head.version == 1
    t = Case()
    assert Alter(with_intruder(t, {"id": 3, "p": "u"})).add_constraint("c", "id > 0") == 2


def test_concurrent_schema_change_is_merged() -> None:
    t = Case()
    other = Alter(with_intruder(t, change=lambda a: a.add_columns({"theirs": "int"})))
    assert other.add_columns({"ours": "int"}) == 2
    assert t.head.schema.names[-2:] == ["theirs", "ours"]
    t = Case()
    with pytest.raises(InvalidArgumentError, match="already"):
        Alter(with_intruder(t, change=lambda a: a.add_columns({"n": "int"}))).add_columns({"N": "int"})


def test_concurrently_suspended_row_tracking_is_not_resumed() -> None:
    t = Case()
    off = {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"}
    with pytest.raises(InvalidArgumentError, match="cannot both be true"):
        Alter(with_intruder(t, change=lambda a: a.set_properties(off))).set_properties(
            {"delta.enableRowTracking": "true"}
        )
    assert t.head.metadata.configuration == off


def test_many_concurrent_schema_changes() -> None:
    t = Case()
    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(lambda i: Alter(t.log).add_columns({f"c{i}": "int"}), range(12)))
    assert sorted(versions) == list(range(1, 13))
    assert sorted(t.head.schema.names[5:]) == sorted(f"c{i}" for i in range(12))
