"""Log compaction files: written, and read instead of their commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import add, lines, log_of, metadata, protocol, remove, rows
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_compaction import compact_log, json_lines
from trilake.delta.log.segment import commit_key, compacted_key
from trilake.delta.log.snapshot import Snapshot, apply, empty_state
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, InvalidArgumentError, LogGapError, VersionNotFoundError
from trilake.storage import open_store

VECTOR = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40}
DOMAIN = {"domain": "d", "configuration": "{}", "removed": False}


def _actions(log: DeltaLog, start: int, end: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bytes(log.store.read(compacted_key(start, end))).splitlines()]


def _content(s: Snapshot) -> Any:
    return (
        rows(s.adds),
        sorted(s.state.removes["path"].to_pylist()),
        s.protocol,
        s.metadata,
        dict(s.state.txns),
        dict(s.state.domains),
    )


def test_compaction_file_content() -> None:
    changed = metadata(delta__appendOnly="true")
    log = log_of(
        [add("a"), {"domainMetadata": DOMAIN}],
        [{"commitInfo": {"operation": "X"}}, add("b"), add("c", partitionValues={"p": None, "q": "1"}), protocol(1, 3)],
        [remove("b"), remove("a", size=4), {"txn": {"appId": "x", "version": 1}}, {"cdc": {"path": "z"}}],
        [changed, {"txn": {"appId": "x", "version": 2}}, {"domainMetadata": {**DOMAIN, "removed": True}}],
    )
    assert compact_log(log, 1, 3) == f"_delta_log/{1:020d}.{3:020d}.compacted.json"
    actions = _actions(log, 1, 3)
    assert sorted(k for a in actions for k in a) == [
        "add", "domainMetadata", "metaData", "protocol", "remove", "remove", "txn",
    ]  # fmt: skip
    by_kind = {k: v for a in actions for k, v in a.items()}
    assert by_kind["add"] == add("c", partitionValues={"p": None, "q": "1"})["add"]
    assert by_kind["txn"] == {"appId": "x", "version": 2}
    assert by_kind["domainMetadata"]["removed"] is True  # it cancels entries before the range
    assert by_kind["metaData"] == changed["metaData"]
    assert {a["remove"]["path"] for a in actions if "remove" in a} == {"a", "b"}


def test_readers_use_a_compaction_instead_of_commits() -> None:
    log = log_of([add("a")], [add("b")], [remove("a")], [add("c")])
    before = [_content(log.snapshot(v)) for v in range(4)]
    compact_log(log, 1, 2)
    assert [(a, b) for a, b, _ in log.snapshot().segment.commits] == [(0, 0), (1, 2), (3, 3)]
    assert [_content(log.snapshot(v)) for v in range(4)] == before
    assert log.head().metadata == log.snapshot().metadata
    log.store.put(commit_key(1), lines([add("never")]))  # never read
    assert _content(log.snapshot(3)) == before[3]
    assert log.commit_info(2) == {}


@pytest.mark.parametrize(
    "actions",
    [
        [add("a"), add("b"), remove("a")],
        [remove("a"), add("b"), add("a")],
        [add("b"), add("b", size=2), remove("a")],
        [remove("a"), remove("a"), add("b")],
        [add("b"), remove("a"), metadata(), metadata()],
        [add("b"), remove("a"), {"txn": {"appId": "x", "version": 2}}, {"txn": {"appId": "x", "version": 1}}],
    ],
)
def test_unreconciled_compaction_is_ignored(actions: list[dict[str, Any]]) -> None:
    log = log_of([add("a")], [add("b"), {"txn": {"appId": "x", "version": 1}}], [remove("a")], [add("c")])
    before = _content(log.snapshot())
    log.store.put(compacted_key(1, 2), lines(actions))
    assert _content(log.snapshot()) == before
    assert log.head().metadata == log.snapshot().metadata
    assert log.tombstones(log.snapshot())["path"].to_pylist() == ["a"]


def test_unreconciled_compaction_without_commits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([add("a")], [add("b")], [remove("a")])
    log.store.put(compacted_key(1, 2), lines([add("a"), add("b"), remove("a"), metadata(), metadata()]))
    segment = log.segment()
    log.store.delete([commit_key(1)])
    with pytest.raises(LogGapError):
        log.snapshot()
    monkeypatch.setattr(log, "segment", lambda _: segment)  # it vanishes between listing and reading
    for read in (log.snapshot, log.head):
        with pytest.raises(CorruptLogError, match="not reconciled"):
            read()


@pytest.mark.parametrize("content", [b'{"add":{"path"', b"\x00\x01", lines([{"add": {"path": 7}}])])
def test_commits_replace_a_damaged_compaction(content: bytes) -> None:
    """It failed every read, although its commits have the same content."""
    log = log_of([add("a")], [add("b")], [remove("a")], [add("c")], [add("d")])
    before = [_content(log.snapshot(v)) for v in range(5)]
    log.store.put(compacted_key(1, 2), content)
    log.store.put(compacted_key(3, 4), content)
    assert [_content(log.snapshot(v)) for v in range(5)] == before
    assert log.head(3).metadata == log.snapshot(3).metadata
    log.store.delete([commit_key(1)])
    with pytest.raises((CorruptLogError, LogGapError)):
        log.snapshot(3)


def test_existing_compaction_is_not_replaced() -> None:
    log = log_of([add("a")], [add("b")])
    log.store.put(compacted_key(0, 1), b"theirs")
    compact_log(log, 0, 1)
    assert bytes(log.store.read(compacted_key(0, 1))) == b"theirs"


def test_commits_without_changes_are_not_compacted() -> None:
    log = log_of([add("a")], [{"commitInfo": {}}], [{"commitInfo": {}}])
    assert compact_log(log, 1, 2) is None
    assert log.listing().compactions == ()


@pytest.mark.parametrize(("start", "end"), [(1, 1), (2, 1), (-1, 1)])
def test_invalid_range_is_rejected(start: int, end: int) -> None:
    with pytest.raises(InvalidArgumentError, match="at least two versions"):
        compact_log(log_of([add("a")], [add("b")], [add("c")]), start, end)


@pytest.mark.parametrize(("start", "end"), [(0, 3), (2, 5)])
def test_range_with_missing_commits_is_rejected(start: int, end: int) -> None:
    log = log_of([add("a")], [add("b")], [add("c")])
    with pytest.raises(VersionNotFoundError, match="does not have all commits"):
        compact_log(log, start, end)


_paths = st.sampled_from(["a", "b%20c", "d", "e"])
_action = st.one_of(
    st.builds(add, _paths, size=st.integers(0, 9), tags=st.none() | st.just({"k": "v"})),
    st.builds(add, _paths, deletionVector=st.just({**VECTOR, "cardinality": 6})),
    st.builds(remove, _paths),
    st.builds(remove, _paths, deletionVector=st.just({**VECTOR, "cardinality": 6})),
    st.builds(lambda v: {"txn": {"appId": "x", "version": v}}, st.integers(0, 9)),
    st.builds(lambda r: {"domainMetadata": {**DOMAIN, "removed": r}}, st.booleans()),
    st.builds(lambda v: metadata(k=v), st.sampled_from("xy")),
)
#: A valid commit: no duplicate files and no actions that reconcile with each other.
_commit = st.lists(_action, max_size=5, unique_by=lambda a: next(a.get(k, {}).get("path", k) for k in a))


def _with_each_file_once(history: list[list[Any]]) -> list[list[Any]]:
    """The history without adds that would make a file live twice, with and without a vector."""
    live: dict[str, Any] = {}
    out = []
    for commit in history:
        kept = []
        for action in commit:
            kind, body = next(iter(action.items()))
            path, vector = body.get("path"), body.get("deletionVector")
            if kind == "add":
                if live.get(path, vector) != vector:
                    continue
                live[path] = vector
            elif kind == "remove" and path in live and live[path] == vector:
                del live[path]
            kept.append(action)
        out.append(kept)
    return out


def test_lines_are_the_actions_without_nulls() -> None:
    actions = [
        add("é%20 'b'", partitionValues={"p": None, 'q"': "日"}, stats='{"numRecords":1}', tags={"t": None}),
        add("b", deletionVector=VECTOR | {"cardinality": 3}, baseRowId=2**62, defaultRowCommitVersion=0),
        remove("c", size=4, deletionVector=VECTOR, partitionValues={}, extendedFileMetadata=True),
        remove("d", dataChange=False),
    ]
    batch = log_of([protocol(), metadata()], actions).parse(log_of([protocol(), metadata()], actions).commits(0, 1))
    result = apply(empty_state(), batch)
    for kind, table in (("add", result.adds), ("remove", result.removes)):
        assert [json.loads(line) for line in json_lines(kind, table)] == [a for a in actions if kind in a]


@settings(max_examples=20, deadline=None)
@given(st.lists(_commit, min_size=2, max_size=6), st.data())
def test_any_history_reads_the_same_with_compactions(history: list[list[Any]], data: st.DataObject) -> None:
    history = [[{"commitInfo": {}}, *commit] for commit in _with_each_file_once(history)]
    plain, compacted = log_of(*history), log_of(*history)
    last = len(history) - 1
    ranges = st.tuples(st.integers(0, last), st.integers(0, last)).filter(lambda r: r[0] < r[1])
    for start, end in data.draw(st.lists(ranges, min_size=1, max_size=3)):
        compact_log(compacted, start, end)
    for version in range(len(history)):
        assert _content(compacted.snapshot(version)) == _content(plain.snapshot(version))


def test_deltalake_reads_a_compacted_log(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for i in range(4):
        trilake.write(pa.table({"a": [i], "p": [str(i)]}), path, mode="append", partition_by=["p"] if i == 0 else None)
    trilake.write(pa.table({"a": [9], "p": ["1"]}), path, mode="overwrite", replace_where="p = '1'")
    compact_log(DeltaLog(open_store(path), standard_engine()), 1, 4)
    expected = rows(trilake.open(path).to_arrow())
    assert [r["a"] for r in expected] == [0, 2, 3, 9]
    assert rows(pa.table(deltalake.DeltaTable(path).to_pyarrow_table())) == expected
