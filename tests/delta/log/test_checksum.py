"""Version checksum files: computed from snapshots and commits, read, and compared with the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import VECTOR, add, log_of, metadata, new_uri, protocol, remove
from trilake.delta.log.checksum import (
    VersionChecksum,
    differences,
    following,
    of_snapshot,
    read_checksum,
    write_checksum,
)
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import checksum_key, commit_key
from trilake.delta.protocol.actions import parse_commits
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError
from trilake.expr.terms.engine import query
from trilake.storage import open_store


def _following(log: DeltaLog, before: VersionChecksum | None, version: int) -> VersionChecksum | None:
    key = commit_key(version)
    return following(before, parse_commits([(version, key, log.store.read(key))], query))


def test_checksum_of_a_snapshot() -> None:
    log = log_of(
        [add("a", size=5), add("b", size=7, deletionVector={**VECTOR, "cardinality": 3})],
        [remove("a", size=5), {"txn": {"appId": "x", "version": 3}}],
    )
    result = json.loads(of_snapshot(log.snapshot(), {"inCommitTimestamp": 9, "txnId": "t"}).to_json())
    assert result == {
        "txnId": "t",
        "tableSizeBytes": 7,
        "numFiles": 1,
        "numDeletedRecordsOpt": 3,
        "numDeletionVectorsOpt": 1,
        "numMetadata": 1,
        "numProtocol": 1,
        "inCommitTimestampOpt": 9,
        "setTransactions": [{"appId": "x", "version": 3}],
        "domainMetadata": [],
        "metadata": metadata()["metaData"],
        "protocol": protocol()["protocol"],
    }


def test_checksum_round_trips_and_is_never_replaced() -> None:
    log = log_of([add("a", size=5)], [add("b", size=1)])
    first, second = (of_snapshot(log.snapshot(v), {}) for v in (0, 1))
    write_checksum(log.store, 0, first)
    write_checksum(log.store, 0, second)
    assert read_checksum(log.store, 0) == first
    assert read_checksum(log.store, 1) is None


# --- from commit to commit -------------------------------------------------------------------------------------------


@st.composite
def _histories(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Commits that add new files and remove existing ones, as trilake's writers do."""
    live: dict[str, dict[str, Any]] = {}
    number, history = 0, []
    for _ in range(draw(st.integers(1, 6))):
        commit: list[dict[str, Any]] = [{"commitInfo": {}}]
        for path in draw(st.sets(st.sampled_from(sorted(live)), max_size=3)) if live else ():
            old = live.pop(path)
            commit.append(remove(path, size=old["size"], deletionVector=old.get("deletionVector")))
            if draw(st.booleans()):  # some of its rows are deleted
                number += 1
                vector = {**VECTOR, "offset": number, "cardinality": draw(st.integers(1, 5))}
                commit.append(add(path, size=old["size"], deletionVector=vector))
                live[path] = commit[-1]["add"]
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            commit.append(add(f"f{number}", size=draw(st.integers(0, 2**40))))
            live[f"f{number}"] = commit[-1]["add"]
        if draw(st.booleans()):
            commit.append({"txn": {"appId": draw(st.sampled_from("xy")), "version": number}})
        if draw(st.booleans()):
            removed = draw(st.booleans())
            commit.append({"domainMetadata": {"domain": "d", "configuration": f"{number}", "removed": removed}})
        if draw(st.booleans()):
            commit[0] = {"commitInfo": {"inCommitTimestamp": number, "txnId": f"t{number}"}}
        history.append(commit)
    return history


@settings(max_examples=40, deadline=None)
@given(_histories())
def test_incremental_checksum_matches_the_snapshot(history: list[list[dict[str, Any]]]) -> None:
    log = log_of(*history)
    checksum = None
    for version in range(len(history)):
        checksum = _following(log, checksum, version)
        assert checksum is not None
        snapshot = log.snapshot(version)
        expected = of_snapshot(snapshot, log.commit_info(version))
        assert orjson.loads(checksum.to_json()) == orjson.loads(expected.to_json())
        assert differences(checksum, snapshot) == []
        assert VersionChecksum.from_json(checksum.to_json(), version=version) == checksum


@pytest.mark.parametrize(
    "commit",
    [
        [add("a", dataChange=False)],  # possibly an existing file with recomputed statistics
        [remove("a")],  # unknown size
        [remove("a", size=5), remove("b", size=5)],  # more than exists
        [remove("a", size=99)],
    ],
)
def test_unknown_totals_are_not_written(commit: list[dict[str, Any]]) -> None:
    log = log_of([add("a", size=5)], commit)
    assert _following(log, _following(log, None, 0), 1) is None


def test_first_commit_without_protocol_has_no_checksum() -> None:
    batch = parse_commits([(0, "x", b'{"commitInfo":{}}')], query)
    assert following(None, batch) is None


def test_missing_fields_stay_unknown() -> None:
    log = log_of([add("a", size=5)], [add("b", size=6), {"txn": {"appId": "x", "version": 1}}])
    first = json.loads(of_snapshot(log.snapshot(0), {}).to_json())
    for key in ("setTransactions", "domainMetadata", "numDeletedRecordsOpt"):
        del first[key]
    before = VersionChecksum.from_json(orjson.dumps(first), version=0)
    result = _following(log, before, 1)
    assert result is not None
    assert (result.num_files, result.table_size_bytes) == (2, 11)
    assert (result.txns, result.domains, result.num_deletion_vectors) == (None, None, None)
    assert differences(result, log.snapshot()) == []


def test_checksum_without_protocol_and_metadata_is_valid() -> None:
    """Checksums of 2020 have only sizes and counts."""
    content = {"tableSizeBytes": 5, "numFiles": 1, "numMetadata": 1, "numProtocol": 1, "numTransactions": 0}
    for size, found in ((5, []), (6, ["tableSizeBytes is 6, but the log gives 5"])):
        log = log_of([add("a", size=5)], [add("b", size=6)])
        log.store.put(checksum_key(0), orjson.dumps({**content, "tableSizeBytes": size}))
        old = read_checksum(log.store, 0)
        assert old is not None
        assert differences(old, log.snapshot(0)) == found
        assert _following(log, old, 1) is None
        assert orjson.loads(old.to_json())["numFiles"] == 1


def test_checksums_go_on_after_one_without_protocol_and_metadata() -> None:
    uri = new_uri()
    trilake.write(pa.table({"n": [0]}), uri, properties={"trilake.checksums": "commit"})
    trilake.write(pa.table({"n": [1]}), uri, mode="append")
    store = open_store(uri)
    kept = orjson.loads(bytes(store.read(checksum_key(1))))
    store.put(checksum_key(1), orjson.dumps({k: v for k, v in kept.items() if k not in ("protocol", "metadata")}))
    trilake.write(pa.table({"n": [2]}), uri, mode="append")
    new = read_checksum(store, 2)
    assert new is not None
    assert new.metadata is not None
    assert (new.num_files, differences(new, DeltaLog(store, standard_engine()).snapshot())) == (3, [])
    assert trilake.verify(uri).ok


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"numFiles": 3}, "numFiles is 3, but the log gives 1"),
        ({"tableSizeBytes": 0}, "tableSizeBytes"),
        ({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, "protocol"),
        ({"metadata": {**metadata()["metaData"], "id": "other"}}, "metadata"),
        ({"setTransactions": [{"appId": "x", "version": 1}]}, "setTransactions"),
        ({"domainMetadata": [{"domain": "d", "configuration": "", "removed": False}]}, "domainMetadata"),
    ],
)
def test_checksum_differences_are_named(change: dict[str, Any], named: str) -> None:
    log = log_of([add("a", size=5)])
    right = json.loads(of_snapshot(log.snapshot(), {}).to_json())
    for data, expected in ((right, ""), ({**right, **change}, named)):
        found = differences(VersionChecksum.from_json(orjson.dumps(data), version=0), log.snapshot())
        assert expected in "".join(found)
        assert bool(found) == bool(expected)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"tableSizeBytes":1,"numFiles":-1,"numMetadata":1,"numProtocol":1}',
        b'{"tableSizeBytes":1,"numFiles":1,"numMetadata":2,"numProtocol":1}',
        b'{"tableSizeBytes":"1","numFiles":1,"numMetadata":1,"numProtocol":1,"protocol":{},"metadata":{}}',
    ],
)
def test_damaged_checksum_is_ignored(content: bytes) -> None:
    log = log_of([add("a", size=5)])
    log.store.put(checksum_key(0), content)
    assert read_checksum(log.store, 0) is None
    with pytest.raises(CorruptLogError, match="version checksum file is damaged"):
        VersionChecksum.from_json(content, version=0)


@pytest.mark.parametrize(
    "name",
    [
        "k-v2-checkpoints-json-with-last-checkpoint",
        "rs-simple_table_with_cdc",
        "k-v2-checkpoints-parquet-with-sidecars",
    ],
)
def test_checksums_of_other_writers_match_the_replay(shared: Path, name: str) -> None:
    log = DeltaLog(open_store(str(shared / "corpus/delta/golden" / name / "delta")), standard_engine())
    versions = sorted(log.listing().checksums)
    assert versions
    for version in versions:
        checksum = read_checksum(log.store, version)
        assert checksum is not None
        assert differences(checksum, log.snapshot(version)) == []
