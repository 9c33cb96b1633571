"""Action reconciliation: compared with a plain dictionary, on every path to the same state."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.delta.tables import add, lines, log_of, remove
from tests.runtimes import runtime_in_ms
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import NewerFiles, Snapshot, decoded_paths, file_keys
from trilake.delta.protocol import actions
from trilake.delta.protocol.actions import FILE_ACTIONS, no_rows
from trilake.errors import CorruptLogError, TrilakeError
from trilake.storage.memory import MemoryStore

_VECTORS: list[dict[str, Any] | None] = [
    None,
    {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 4, "cardinality": 1},
    {"storageType": "u", "pathOrInlineDv": "ab", "offset": 2, "sizeInBytes": 4, "cardinality": 2},
    {"storageType": "i", "pathOrInlineDv": "ab", "sizeInBytes": 4, "cardinality": 1},
]
#: Spellings of a few files; each row is one file.
_SPELLINGS = [
    ["a", "%61"],
    ["p=1/b c", "p=1/b%20c", "p%3D1/b%20c"],
    ["/x/y", "file:/x/y", "file:///x/y", "file:///x/%79"],
    ["/x/é", "file:/x/%C3%A9"],
    ["a+b", "a%2Bb"],
    ["a%2520b"],
    ["s3://b/k"],
]
_FILE = st.sampled_from([s for group in _SPELLINGS for s in group])
_STEP = st.tuples(st.booleans(), _FILE, st.integers(0, 3), st.integers(0, 99))


@st.composite
def _histories(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Valid commits: no two actions on one logical file, and a file that gets another vector is removed with its old
    one.
    """
    out = []
    live: dict[str, tuple[str, int]] = {}
    for _ in range(draw(st.integers(1, 5))):
        seen: set[tuple[str, int]] = set()
        commit: list[dict[str, Any]] = [{"commitInfo": {}}]
        for is_add, path, vector, size in draw(st.lists(_STEP, max_size=6)):
            if (_canonical(path), vector) in seen:
                continue
            name = _canonical(path)
            spelling, had = live.get(name, (path, vector))
            if is_add and had != vector:
                if (name, had) in seen:
                    continue
                seen.add((name, had))
                gone = {} if _VECTORS[had] is None else {"deletionVector": _VECTORS[had]}
                commit.append(remove(spelling, size=size, **gone))
            if is_add:
                live[name] = (path, vector)
            elif had == vector:
                live.pop(name, None)
            seen.add((name, vector))
            extra = {} if _VECTORS[vector] is None else {"deletionVector": _VECTORS[vector]}
            commit.append(add(path, size=size, **extra) if is_add else remove(path, size=size, **extra))
        out.append(commit)
    return out


def _canonical(path: str) -> str:
    plain = unquote(path)
    return "/" + plain.removeprefix("file:").lstrip("/") if plain.startswith("file:") else plain


def _key(action: dict[str, Any]) -> tuple[str, str]:
    dv = action.get("deletionVector")
    if not dv:
        return _canonical(action["path"]), ""
    offset = "" if dv.get("offset") is None else f"@{dv['offset']}"
    return _canonical(action["path"]), f"{dv['storageType']}{dv['pathOrInlineDv']}{offset}"


Files = dict[tuple[str, str], tuple[str, int]]


def _oracle(history: list[list[dict[str, Any]]]) -> tuple[Files, Files]:
    """The protocol's rules, one action at a time."""
    adds: Files = {}
    removes: Files = {}
    for commit in history:
        for a in commit[1:]:
            (kind, body) = next(iter(a.items()))
            mine, other = (adds, removes) if kind == "add" else (removes, adds)
            other.pop(_key(body), None)
            mine[_key(body)] = (body["path"], body["size"])
    return adds, removes


def _files(table: pa.Table) -> Files:
    result = {_key(r): (r["path"], r["size"]) for r in table.to_pylist()}
    assert len(result) == table.num_rows
    return result


def _assert_state(log: DeltaLog, snapshot: Snapshot, expected: tuple[Files, Files]) -> None:
    assert _files(snapshot.adds) == expected[0]
    assert _files(log.tombstones(snapshot)) == expected[1]


_KEEP_ALL = runtime_in_ms(lambda: 0)


@settings(max_examples=examples(25))
@given(_histories(), st.data())
def test_every_path_to_a_state_gives_the_same_result(history: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    expected = _oracle(history)
    log = log_of(*history)
    last = len(history) - 1
    _assert_state(log, log.snapshot(), expected)
    old = log.snapshot(data.draw(st.integers(0, last)))
    _assert_state(log, log.update(old), expected)
    at = data.draw(st.integers(0, last))
    write_checkpoint(log, log.snapshot(at), _KEEP_ALL)
    through = log.snapshot()
    assert through.segment.checkpoint_version == at
    _assert_state(log, through, expected)
    if at < last:
        _assert_state(log, log.update(log.snapshot(at)), expected)


@settings(max_examples=20)
@given(_histories())
def test_columnar_parser_gives_the_same_state(history: list[list[dict[str, Any]]]) -> None:
    few = actions._FEW_LINES
    actions._FEW_LINES = -1
    try:
        log = log_of(*history)
        _assert_state(log, log.snapshot(), _oracle(history))
    finally:
        actions._FEW_LINES = few


def test_new_vector_makes_another_logical_file() -> None:
    dv = _VECTORS[1]
    log = log_of([add("a")], [remove("a"), add("a", deletionVector=dv)])
    adds = log.snapshot().adds
    assert adds.num_rows == 1
    assert adds["deletionVector"][0].as_py()["cardinality"] == 1
    log.store.put(commit_key(2), lines([remove("a", deletionVector=dv)]))
    assert log.snapshot().adds.num_rows == 0


def test_repeated_add_keeps_the_newest() -> None:
    snapshot = log_of([add("a", size=1)], [add("a", size=2)]).snapshot()
    assert snapshot.adds["size"].to_pylist() == [2]


def test_remove_of_an_unknown_file() -> None:
    log = log_of([remove("ghost"), add("a")], [remove("ghost")])
    assert log.snapshot().adds["path"].to_pylist() == ["a"]
    assert log.tombstones(log.snapshot())["path"].to_pylist() == ["ghost"]


def test_newest_transactions_and_domains_win() -> None:
    log = log_of(
        [{"txn": {"appId": "x", "version": 1}}, {"domainMetadata": {"domain": "d", "configuration": "1"}}],
        [{"txn": {"appId": "x", "version": 2}}, {"txn": {"appId": "y", "version": 9}}],
        [{"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}],
        [{"domainMetadata": {"domain": "e", "configuration": "2", "removed": False}}],
    )
    for checkpoint in (None, 0, 1, 2):
        if checkpoint is not None:
            write_checkpoint(log, log.snapshot(checkpoint), _KEEP_ALL)
        state = log.snapshot().state
        assert {k: v["version"] for k, v in state.txns.items()} == {"x": 2, "y": 9}
        assert {k: v["configuration"] for k, v in state.domains.items()} == {"e": "2"}
    assert set(log.snapshot(1).state.domains) == {"d"}


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), max_size=5))
def test_paths_are_decoded_exactly_once(paths: list[str]) -> None:
    encoded = pa.chunked_array([[quote(p, safe="/+") for p in paths]], pa.string())
    assert decoded_paths(encoded).to_pylist() == paths
    twice = pa.chunked_array([[quote(quote(p)) for p in paths]], pa.string())
    assert decoded_paths(twice).to_pylist() == [quote(p) for p in paths]


@pytest.mark.parametrize("path", ["a%", "a%2", "a%zz", "%", "100%25%"])
def test_lone_percent_sign_is_literal(path: str) -> None:
    assert decoded_paths(pa.chunked_array([[path]])).to_pylist() == [unquote(path)]


def test_invalid_utf8_path_in_a_log_is_a_typed_error() -> None:
    log = log_of([add("a%FF%FE")])
    try:
        snapshot = log.snapshot()
    except TrilakeError:
        return
    assert snapshot.adds.num_rows == 1


def test_file_keys_keep_row_order() -> None:
    log = log_of([add("a", deletionVector=_VECTORS[1]), add("%62"), add("file:/c")], store=MemoryStore())
    assert file_keys(log.snapshot().adds).to_pylist() == ["a\0uab@1", "b", "/c"]


def test_slices_are_decoded_like_the_whole_column() -> None:
    whole = pa.array([None, "a%20b", "c", None, "d%20e"])
    for start in range(6):
        for length in range(6 - start):
            some = whole.slice(start, length)
            expected = [None if p is None else unquote(p) for p in some.to_pylist()]
            assert decoded_paths(pa.chunked_array([some], pa.string())).to_pylist() == expected


@given(st.lists(st.tuples(_FILE, st.integers(0, 3)), max_size=8), st.lists(st.tuples(_FILE, st.integers(0, 3))))
@settings(deadline=None)
def test_files_with_newer_actions_are_omitted(old: list[tuple[str, int]], new: list[tuple[str, int]]) -> None:
    def actions(files: list[tuple[str, int]]) -> pa.Table:
        none = no_rows(pa.schema(list(FILE_ACTIONS["add"])))
        rows = [{"path": p, "deletionVector": _VECTORS[v]} for p, v in files]
        return pa.concat_tables([none, pa.Table.from_pylist(rows, none.schema)])

    touched = {(_canonical(p), v) for p, v in new}
    expected = [p for p, v in old if (_canonical(p), v) not in touched]
    result = NewerFiles(actions(new[:2]), actions([]), actions(new[2:])).without_newer(actions(old))
    assert result["path"].to_pylist() == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["%zz", "%4", "a%", "%%41", "%2541", "%4g", "%"], ["%zz", "%4", "a%", "%A", "%41", "%4g", "%"]),
        (["a%2", "5b%41", "%", "41"], ["a%2", "5bA", "%", "41"]),
        (["é%20%C3%A9", None, "", "+%2B"], ["é é", None, "", "++"]),
    ],
)
def test_only_complete_escapes_are_decoded(paths: list[str | None], expected: list[str | None]) -> None:
    whole = pa.array(["x%41", *paths], pa.string())
    assert decoded_paths(pa.chunked_array([whole[1:], whole[:0]])).to_pylist() == expected


def test_invalid_utf8_path_is_rejected() -> None:
    with pytest.raises(CorruptLogError, match="cannot be decoded"):
        decoded_paths(pa.chunked_array([["a", "%ff"]]))
