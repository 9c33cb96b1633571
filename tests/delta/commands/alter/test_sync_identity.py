"""SYNC IDENTITY: generated values continue after the existing ones."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import opened
from trilake.delta.metadata.column_changes import sync_identity
from trilake.delta.protocol.actions import Protocol
from trilake.delta.rules.identity import HIGH_WATER_MARK, identity_columns
from trilake.errors import InvalidArgumentError, SchemaMismatchError


def _without_mark(path: Path) -> None:
    """Rewrite the last commit as a writer that ignores explicit values would leave it."""
    commit = max((path / "_delta_log").glob("*.json"))
    lines = [orjson.loads(line) for line in commit.read_bytes().splitlines()]
    for line in lines:
        if "metaData" in line:
            schema = orjson.loads(line["metaData"]["schemaString"])
            for field in schema["fields"]:
                field["metadata"].pop(HIGH_WATER_MARK, None)
            line["metaData"]["schemaString"] = orjson.dumps(schema).decode()
    commit.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    (path / "_delta_log" / f".{commit.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(("start", "step", "given", "mark"), [(1, 1, 50, 50), (1, 10, 50, 51), (100, -10, 85, 80)])
def test_new_values_follow_the_highest_existing_value(
    tmp_path: Path, start: int, step: int, given: int, mark: int
) -> None:
    trilake.create(tmp_path, {"id": "bigint", "n": "int"}, identity={"id": (start, step)}, identity_takes_values=True)
    trilake.write(pa.table({"id": [given], "n": pa.array([1], pa.int32())}), tmp_path, mode="append")
    _without_mark(tmp_path)
    trilake.alter(tmp_path).sync_identity("id")
    [column] = identity_columns(opened(tmp_path).snapshot.schema)
    assert column.mark == mark
    version = opened(tmp_path).version
    assert trilake.alter(tmp_path).sync_identity("ID") == version  # nothing to do
    trilake.write(pa.table({"n": pa.array([2], pa.int32())}), tmp_path, mode="append")
    assert mark + step in opened(tmp_path).to_arrow()["id"].to_pylist()


def test_off_step_high_water_mark_is_rounded(tmp_path: Path) -> None:
    """An explicit value off the step has already moved the mark."""
    trilake.create(tmp_path, {"id": "bigint", "n": "int"}, identity={"id": (1, 10)}, identity_takes_values=True)
    for given in (25, 50):
        trilake.write(pa.table({"id": [given], "n": pa.array([1], pa.int32())}), tmp_path, mode="append")
        trilake.alter(tmp_path).sync_identity("id")
        trilake.write(pa.table({"n": pa.array([2], pa.int32())}), tmp_path, mode="append")
    assert sorted(opened(tmp_path).to_arrow()["id"].to_pylist()) == [25, 41, 50, 61]


def test_high_water_mark_never_moves_back(tmp_path: Path) -> None:
    trilake.create(tmp_path, {"id": "bigint", "n": "int"}, identity=["id"])
    trilake.write(pa.table({"n": pa.array([1, 2, 3], pa.int32())}), tmp_path, mode="append")
    head = opened(tmp_path).snapshot
    for reached in (None, 1, 3):
        change = sync_identity(Protocol(1, 6), head.metadata, "id", reached)
        assert identity_columns(change.metadata.schema)[0].mark == 3


def test_non_identity_column_is_rejected(tmp_path: Path) -> None:
    trilake.create(tmp_path, {"id": "bigint", "n": "int"}, identity=["id"])
    with pytest.raises(InvalidArgumentError, match="not an identity column"):
        trilake.alter(tmp_path).sync_identity("n")
    with pytest.raises(SchemaMismatchError):
        trilake.alter(tmp_path).sync_identity("nope")
