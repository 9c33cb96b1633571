"""Redundant information about a checkpoint: lost lines and duplicate files are detected."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.delta.tables import add, fixed_runtime, lines, log_of, metadata, protocol, remove, table_of
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.checksum import of_snapshot, write_checksum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LAST_CHECKPOINT, LOG, SIDECARS, checksum_key, commit_key
from trilake.errors import CorruptLogError
from trilake.storage import open_store

V2 = {
    "delta__checkpointPolicy": "v2",
    "trilake__checkpoint__topLevelFormat": "json",
    "trilake__checkpoint__partSize": "2",
}
FEATURES = ["v2Checkpoint"]
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def _v2() -> tuple[DeltaLog, str]:
    """A log with a v2 checkpoint of four files in two sidecars, and the key of its top-level file."""
    first = protocol(3, 7, readerFeatures=FEATURES, writerFeatures=FEATURES)
    log = log_of([first, metadata(**V2), add("a"), add("b")], [add("c"), add("d")])
    snapshot = log.snapshot()
    write_checkpoint(log, snapshot, fixed_runtime())
    write_checksum(log.store, 1, of_snapshot(snapshot, {}))
    log.store.delete([commit_key(0), commit_key(1)])
    (key,) = [o.key for o in log.store.list(LOG) if ".checkpoint." in o.key]
    assert len(list(log.store.list(SIDECARS))) == 2
    assert log.snapshot().adds.num_rows == 4
    return log, key


def _edit(log: DeltaLog, key: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    actions = [json.loads(line) for line in bytes(log.store.read(key)).splitlines()]
    log.store.put(key, lines(change(actions)))


def _without_sidecar(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = next(a for a in actions if "sidecar" in a)
    return [a for a in actions if a is not first]


def _without_tags(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"checkpointMetadata": {"version": 1}} if "checkpointMetadata" in a else a for a in actions]


@pytest.mark.parametrize("kept", ["tags", "hint", "checksum"])
def test_missing_sidecar_line_is_an_error(kept: str) -> None:
    log, key = _v2()
    _edit(log, key, _without_sidecar)
    if kept != "tags":
        _edit(log, key, _without_tags)
    if kept != "hint":
        log.store.delete([LAST_CHECKPOINT])
    if kept != "checksum":
        log.store.delete([checksum_key(1)])
    with pytest.raises(CorruptLogError, match=r"does not match its hint.*(not '?2|does not name 1)"):
        log.snapshot()


def test_sidecar_with_another_size_is_an_error() -> None:
    log, key = _v2()

    def shorter(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"sidecar": {**a["sidecar"], "sizeInBytes": 5}} if "sidecar" in a else a for a in actions]

    _edit(log, key, shorter)
    with pytest.raises(CorruptLogError, match="bytes, but the checkpoint says 5"):
        log.snapshot()


def test_checkpoint_metadata_of_another_version_is_an_error() -> None:
    log, key = _v2()
    _edit(log, key, lambda actions: [{"checkpointMetadata": {"version": 7}}, *actions[1:]])
    with pytest.raises(CorruptLogError, match="version 7"):
        log.snapshot()


@pytest.mark.parametrize("name", ["numOfAddFiles", "sizeInBytes"])
def test_checkpoint_must_match_its_hint(name: str) -> None:
    log = log_of([add("a"), add("b")])
    write_checkpoint(log, log.snapshot(), fixed_runtime())
    hint = json.loads(bytes(log.store.read(LAST_CHECKPOINT)))
    del hint["checksum"]
    log.store.put(LAST_CHECKPOINT, json.dumps({**hint, name: hint[name] + 1}).encode())
    assert log.snapshot().segment.checkpoint_version is None  # the commits are used instead
    log.store.delete([commit_key(0)])
    with pytest.raises(CorruptLogError, match=name):
        log.snapshot()
    for none in (-1, "x", None, 1.5, [], True):
        log.store.put(LAST_CHECKPOINT, json.dumps({**hint, name: none}).encode())
        assert log.snapshot().adds.num_rows == 2


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_version_may_have_checkpoints_with_different_part_counts(sizes: tuple[int, int]) -> None:
    """Two writers may differ if one omits expired tombstones: the hint states the size of one of them."""
    log = log_of([protocol(), metadata(), add("a"), add("b"), add("c"), add("d")])
    for size in sizes:
        write_checkpoint(log, log.snapshot(), fixed_runtime(), part_size=size)
    assert len([o for o in log.store.list(LOG) if ".checkpoint." in o.key]) == 6
    assert log.snapshot().adds.num_rows == 4


@pytest.mark.parametrize(
    "twice",
    [
        [add("a"), add("a", deletionVector=VECTOR)],
        [add("a", deletionVector={**VECTOR, "pathOrInlineDv": "y"}), add("a", deletionVector=VECTOR)],
        [add("a"), add("file:{root}/a")],
        [add("{root}/a"), add("a", deletionVector=VECTOR)],
        [add("file://{root}/b%20c"), add("b%20c")],
    ],
)
def test_duplicate_file_in_commits_is_an_error(twice: list[dict[str, Any]], tmp_path: Any) -> None:
    features = ["deletionVectors"]
    first = [protocol(3, 7, readerFeatures=features, writerFeatures=features), metadata()]
    spelled = json.loads(json.dumps(twice).replace("{root}", str(tmp_path)))
    log = log_of([*first, spelled[0]], [spelled[1]], store=open_store(tmp_path))
    before = log.snapshot(0)
    with pytest.raises(CorruptLogError, match="twice"):
        log.snapshot()
    with pytest.raises(CorruptLogError, match="twice"):
        log.update(before)


def test_replaced_vector_is_not_a_duplicate_file() -> None:
    features = ["deletionVectors"]
    first = [protocol(3, 7, readerFeatures=features, writerFeatures=features), metadata()]
    log = log_of([*first, add("a")], [remove("a"), add("a", deletionVector=VECTOR)])
    assert log.snapshot().adds.num_rows == 1


def test_negative_num_records_is_ignored() -> None:
    table = table_of(pa.table({"a": [1, 2]}), fields=[{"stats": '{"numRecords":-5}'}])
    assert table.count() == 2


@pytest.mark.parametrize("also", [{}, {"deletionVector": VECTOR}, {"path": "%61"}])
def test_duplicate_file_in_a_checkpoint_is_an_error(also: dict[str, Any]) -> None:
    features = ["deletionVectors"]
    log = log_of([protocol(3, 7, readerFeatures=features, writerFeatures=features), metadata(), add("b")])
    write_checkpoint(log, log.snapshot(), fixed_runtime())
    log.store.delete([LAST_CHECKPOINT, commit_key(0)])
    (key,) = [o.key for o in log.store.list(LOG) if ".checkpoint." in o.key]
    once = {k: v for k, v in also.items() if k != "path"}
    actions = [protocol(3, 7, readerFeatures=features, writerFeatures=features), metadata(), add("a", **once)]
    name = key.replace("checkpoint.parquet", "checkpoint.0e0f7c2e-0000-4000-8000-000000000000.json")
    log.store.delete([key])
    stated = {"checkpointMetadata": {"version": 0}}
    log.store.put(name, lines([*actions, stated]))
    assert log.snapshot().adds.num_rows == 1
    log.store.put(name, lines([*actions, add(also.get("path", "a"), **once), stated]))
    with pytest.raises(CorruptLogError, match="twice"):
        log.snapshot()
