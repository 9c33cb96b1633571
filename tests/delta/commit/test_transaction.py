"""Commits: conflicts, lost replies, crashes, races."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import add, fixed_runtime, lines, log_of, metadata, protocol, remove, rows, write
from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.analyze import compute_statistics
from trilake.delta.commands.maintenance.restore import restore
from trilake.delta.commands.write.delete import delete_rows
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import WriteResult, write_arrow
from trilake.delta.commit.conflicts import ReadSet, Winner, check
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.actions import parse_commits
from trilake.delta.protocol.partitions import PartitionKeys
from trilake.delta.protocol.schema import PrimitiveType, StructField, from_arrow
from trilake.delta.scan.scan import parse_table_filter
from trilake.delta.standard import standard_engine
from trilake.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConflictError,
    CorruptLogError,
    FeatureInUseError,
    InvalidArgumentError,
    MetadataChangedError,
    ProtocolChangedError,
    StorageError,
    TableExistsError,
    UnknownOutcomeError,
)
from trilake.expr.terms.engine import query
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore

ONE = pa.table({"a": [1]})


def _write(store: Store, data: pa.Table = ONE, *, runtime: Runtime | None = None, **request: Any) -> WriteResult:
    return write(DeltaLog(store, standard_engine(runtime=runtime)), data, **request)


def _rows(store: Store) -> int:
    count: int = trilake.open(store.uri).to_arrow().num_rows
    return count


# --- conflicts, pure -------------------------------------------------------------------------------------------------


def _winner(*actions: dict[str, Any], **info: Any) -> Winner:
    content = lines([{"commitInfo": {"operation": "WRITE", **info}}, *actions])
    return Winner(7, parse_commits([(7, "7.json", pa.py_buffer(content))], query))


_BLIND = {"isBlindAppend": True}
_P = {"partitionValues": {"p": "1"}}
_Q = {"partitionValues": {"p": "2"}}
_NULL: dict[str, Any] = {"partitionValues": {"p": None}}
BLIND = ReadSet()
WHOLE = ReadSet(whole_table=True, removed=frozenset({"x"}))


def _partition(value: str | None) -> tuple[PartitionKeys]:
    return (PartitionKeys.of_actions([{"p": value}], [StructField("p", PrimitiveType("string"))]),)


PART = ReadSet(partitions=_partition("1"), removed=frozenset({"x"}))


@pytest.mark.parametrize(
    ("read", "winner", "error"),
    [
        (BLIND, _winner(add("f"), **_BLIND), None),
        (BLIND, _winner(add("f"), remove("x")), None),
        (BLIND, _winner(protocol()), ProtocolChangedError),
        (BLIND, _winner(metadata()), MetadataChangedError),
        (BLIND, _winner(protocol(), metadata()), ProtocolChangedError),
        (WHOLE, _winner(add("f"), **_BLIND), None),
        (WHOLE, _winner(add("f")), ConcurrentAppendError),
        (WHOLE, _winner(add("f"), isBlindAppend="true"), ConcurrentAppendError),
        (ReadSet(whole_table=True, changes_metadata=True), _winner(add("f"), **_BLIND), ConcurrentAppendError),
        (WHOLE, _winner(remove("y")), ConcurrentDeleteReadError),
        (WHOLE, _winner(), None),
        (PART, _winner(add("f", **_P)), ConcurrentAppendError),
        (PART, _winner(add("f", **_P), **_BLIND), None),
        (PART, _winner(add("f", **_Q)), None),
        (PART, _winner(add("f", **_NULL)), None),
        (PART, _winner(remove("y", **_P)), ConcurrentDeleteReadError),
        (PART, _winner(remove("y", **_Q)), None),
        (PART, _winner(remove("y")), ConcurrentDeleteReadError),
        (PART, _winner(remove("x", **_Q)), ConcurrentDeleteDeleteError),
        (ReadSet(partitions=_partition(None)), _winner(add("f", **_NULL)), ConcurrentAppendError),
        (ReadSet(partitions=_partition(None)), _winner(add("f", partitionValues={"p": ""})), ConcurrentAppendError),
        (ReadSet(partitions=_partition(None)), _winner(add("f", **_P)), None),
        (ReadSet(partitions=()), _winner(add("f", **_P)), None),
        (ReadSet(removed=frozenset({"x"})), _winner(remove("x")), ConcurrentDeleteDeleteError),
        (ReadSet(removed=frozenset({"x"})), _winner(remove("y")), None),
        (ReadSet(app_ids=frozenset({"s"})), _winner({"txn": {"appId": "s", "version": 2}}), ConcurrentTransactionError),
        (ReadSet(app_ids=frozenset({"t"})), _winner({"txn": {"appId": "s", "version": 2}}), None),
    ],
)
def test_conflict_check(read: ReadSet, winner: Winner, error: type[ConflictError] | None) -> None:
    result = check(read, winner)
    assert type(result) is (error or type(None))
    if result is not None:
        assert result.context["version"] == 7
        assert result.help


def test_long_file_list_is_truncated() -> None:
    result = check(WHOLE, _winner(*(add(f"f{i}") for i in range(50))))
    assert result is not None
    assert "and 47 more" in str(result)


# --- races -----------------------------------------------------------------------------------------------------------


def _raced(winner: list[dict[str, Any]], **request: Any) -> tuple[Store, WriteResult]:
    """A write that loses its version to ``winner``."""
    inner = MemoryStore()
    _write(inner, pa.table({"a": [1, 2], "p": ["x", "y"]}), partition_by=("p",))
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(1) and not done:
            done.append(1)
            inner.put_if_absent(key, lines(winner))

    store = FaultStore(inner, before=before)
    return inner, _write(store, pa.table({"a": [3], "p": ["x"]}), **request)


def test_blind_append_passes_any_data_change() -> None:
    store, result = _raced([{"commitInfo": {}}, remove("f")])
    assert result.version == 2
    assert _rows(store) == 3


def test_append_conflicts_with_new_metadata() -> None:
    with pytest.raises(MetadataChangedError, match="schema or properties"):
        _raced([metadata()])


def test_overwrite_conflicts_with_appends() -> None:
    with pytest.raises(ConcurrentAppendError):
        _raced([{"commitInfo": {"isBlindAppend": False}}, add("f", partitionValues={"p": "x"})], mode="overwrite")
    _, result = _raced(
        [{"commitInfo": {"isBlindAppend": True}}, {"txn": {"appId": "x", "version": 1}}], mode="overwrite"
    )
    assert result.version == 2


def test_replaced_partitions_conflict_by_partition() -> None:
    request = {"mode": "overwrite", "replace_where": "p = 'x'"}
    with pytest.raises(ConcurrentAppendError):
        _raced([{"commitInfo": {}}, add("f", partitionValues={"p": "x"})], **request)
    store, result = _raced([{"commitInfo": {}}, remove("f", partitionValues={"p": "y"})], **request)
    assert result.version == 2
    assert rows(trilake.open(store.uri).to_arrow()) == [{"a": 2, "p": "y"}, {"a": 3, "p": "x"}]


def test_missing_version_is_not_skipped() -> None:
    inner = MemoryStore()
    _write(inner)

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(1):
            for version in (1, 3):
                inner.put(commit_key(version), lines([{"commitInfo": {"isBlindAppend": True}}]))

    assert _write(FaultStore(inner, before=before)).version == 2


def test_only_commits_without_reads_are_blind_appends() -> None:
    store = MemoryStore()
    _write(store)
    _write(store)
    _write(store, mode="overwrite")
    trilake.open(store.uri).delete("a = 1")
    log = DeltaLog(store, standard_engine())
    assert [log.commit_info(v)["isBlindAppend"] for v in (1, 2, 3)] == [True, False, False]


def test_domain_metadata_is_set_and_removed() -> None:
    store = MemoryStore()
    _write(store, properties={"delta.feature.domainMetadata": "supported"})
    log = DeltaLog(store, standard_engine())
    for version, value in ((1, "{}"), (2, None)):
        assert commit(log, log.head(), CommitPlan("NOTE", {}, (), domains={"d": value})) == version
        assert log.snapshot().state.domains.get("d", {}).get("configuration") == value


def _after(store: MemoryStore, other: Callable[[], object]) -> DeltaLog:
    """The table's log, for a command whose first commit loses to ``other``."""
    others = [other]

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and others:
            others.pop()()

    return DeltaLog(FaultStore(store, before=before), standard_engine())


def test_changed_columns_conflict_with_new_clustering_columns() -> None:
    store = MemoryStore()
    columns = {"a": "int", "b": "int", "c": "int"}
    trilake.create(store.uri, columns, cluster_by="a", properties={"delta.columnMapping.mode": "name"})
    log = DeltaLog(store, standard_engine())
    with pytest.raises(InvalidArgumentError, match="clustered by this column"):
        Alter(_after(store, lambda: Alter(log).cluster_by("b"))).drop_columns("b")
    Alter(log).cluster_by("a")
    assert Alter(_after(store, lambda: Alter(log).cluster_by("c"))).drop_columns("b") == 4
    assert clustering_columns(log.head()) == [("c",)]
    Alter(log).add_columns({"d": "int"})
    with pytest.raises(MetadataChangedError, match="domain"):
        restore(_after(store, lambda: Alter(log).cluster_by("d")), version=0)


def test_moved_identity_marks_ignore_new_clustering_columns() -> None:
    store = MemoryStore()
    trilake.create(store.uri, {"id": "bigint", "a": "bigint"}, identity=["id"], cluster_by="a")
    other = _after(store, lambda: Alter(DeltaLog(store, standard_engine())).cluster_by("id"))
    assert write(other, ONE).version == 2


def test_dropped_domain_metadata_conflicts_with_a_new_domain() -> None:
    store = MemoryStore()
    _write(store, properties={"delta.feature.domainMetadata": "supported"})
    log = DeltaLog(store, standard_engine())

    def other() -> None:
        commit(log, log.head(), CommitPlan("NOTE", {}, (), domains={"d": "{}"}))

    with pytest.raises(FeatureInUseError, match="metadata domains d"):
        Alter(_after(store, other)).drop_feature("domainMetadata")


def test_retried_metadata_names_the_version_of_its_commit() -> None:
    store = MemoryStore()
    preview = {"delta.enableTypeWidening": "true", "delta.feature.typeWidening-preview": "supported"}
    trilake.create(store.uri, {"a": "int", "b": "int"}, properties=preview)
    log = DeltaLog(store, standard_engine())

    def empty() -> None:
        commit(log, log.head(), CommitPlan("NOTE", {}, ()))

    assert Alter(log).change_type("a", "bigint") == 1
    assert Alter(_after(store, empty)).change_type("b", "bigint") == 3
    noted = [log.head().schema.field(name).metadata["delta.typeChanges"][0]["tableVersion"] for name in "ab"]
    assert noted == [1, 3]
    base, key = log.head(), "delta.requireCheckpointProtectionBeforeVersion"
    plan = CommitPlan("DROP FEATURE", {}, (), metadata=replace(base.metadata, configuration={key: "4"}))
    assert commit(_after(store, empty), base, plan) == 5
    assert log.head().metadata.configuration == {key: "5"}


def test_no_commit_follows_the_last_possible_time() -> None:
    """Its time would not be a 64-bit number, which no reader accepts."""
    store = MemoryStore()
    trilake.write(ONE, store.uri, properties={"delta.enableInCommitTimestamps": "true"})
    log = DeltaLog(store, standard_engine())
    time = str(log.commit_info(0)["inCommitTimestamp"]).encode()
    content = store.read(commit_key(0)).to_pybytes()
    store.put(commit_key(0), content.replace(time, str(2**63 - 2).encode(), 1))
    assert write(log, ONE).version == 1
    assert log.commit_info(1)["inCommitTimestamp"] == 2**63 - 1
    with pytest.raises(CorruptLogError, match=str(2**63 - 1)):
        write(log, ONE)
    assert log.head().version == 1


_ENABLED = {
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointPolicy": "v2",
    "delta.feature.rowTracking": "supported",
    "delta.feature.domainMetadata": "supported",
}


@pytest.mark.parametrize("key", [*_ENABLED, None])
def test_writes_pass_newly_enabled_features(key: str | None) -> None:
    enabled = _ENABLED if key is None else {key: _ENABLED[key]}
    store = MemoryStore()
    trilake.create(store.uri, {"id": "bigint", "a": "bigint"}, identity=["id"])
    _write(store, pa.table({"a": [1, 2]}))
    log = DeltaLog(store, standard_engine())

    def enable() -> None:
        Alter(log).set_properties(enabled)
        _write(store)

    racing = _after(store, enable)
    assert write(racing, ONE).version == 4
    switch = {k: v for k, v in enabled.items() if "feature" not in k}
    assert switch.items() <= log.head().metadata.configuration.items()
    assert sorted(trilake.open(store.uri).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert ("inCommitTimestamp" in log.commit_info(4)) == ("delta.enableInCommitTimestamps" in enabled)
    new = [a["baseRowId"] for a in log.snapshot().adds.to_pylist() if a["defaultRowCommitVersion"] is not None]
    assert sorted(new) == ([0, 1] if "delta.feature.rowTracking" in enabled else [])
    other = _after(store, lambda: Alter(log).add_feature("vacuumProtocolCheck"))
    delete_rows(other, log.snapshot(), parse_table_filter("a = 2", log.snapshot()))
    assert sorted(trilake.open(store.uri).to_arrow()["id"].to_pylist()) == [1, 3, 4]


@pytest.mark.parametrize(
    "changed",
    [
        {"delta.appendOnly": "true"},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.enableDeletionVectors": "false"},
        {"delta.feature.materializePartitionColumns": "supported"},
        {"delta.enableRowTracking": "true"},
        {"owner": "me"},
    ],
)
def test_writes_conflict_with_other_changes_of_the_table(changed: dict[str, str]) -> None:
    store = MemoryStore()
    _write(store, properties={"delta.enableDeletionVectors": "true"})
    other = _after(store, lambda: Alter(DeltaLog(store, standard_engine())).set_properties(changed))
    with pytest.raises((MetadataChangedError, ProtocolChangedError)):
        write(other, ONE)


def test_commits_that_keep_the_metadata_ignore_identity_marks() -> None:
    store = MemoryStore()
    trilake.create(store.uri, {"id": "bigint", "a": "bigint"}, identity=["id"])
    _write(store)
    assert compute_statistics(_after(store, lambda: _write(store)), everything=True).version == 3
    base = DeltaLog(store, standard_engine()).head()
    assert commit(_after(store, lambda: _write(store)), base, CommitPlan("NOTE", {}, ())) == 5


@pytest.mark.parametrize("mode", ["append", "error"])
def test_concurrent_table_creation(mode: str) -> None:
    inner = MemoryStore()

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(0):
            _write(inner)

    if mode == "append":
        assert _write(FaultStore(inner, before=before)).version == 1
    else:
        with pytest.raises(TableExistsError, match="just created"):
            _write(FaultStore(inner, before=before), mode=mode)
    assert _rows(inner) == (2 if mode == "append" else 1)


def test_many_concurrent_winners_are_passed() -> None:
    inner = MemoryStore()
    lost: list[str] = []
    _write(inner)

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and len(lost) < 8:
            lost.append(key)
            inner.put_if_absent(key, lines([{"commitInfo": {"isBlindAppend": True}}]))

    waits: list[float] = []
    runtime = replace(SYSTEM_RUNTIME, sleep=waits.append)
    assert _write(FaultStore(inner, before=before), runtime=runtime).version == 9
    assert waits
    assert max(waits) <= 0.5


def _append(uri: str, count: int, writer: int) -> None:
    for i in range(count):
        trilake.write(pa.table({"a": [writer * 1000 + i]}), uri, mode="append")


def _all_landed(uri: str, writers: int, each: int) -> None:
    table = trilake.open(uri)
    assert sorted(table.to_arrow()["a"].to_pylist()) == sorted(
        [-1, *(w * 1000 + i for w in range(writers) for i in range(each))]
    )
    assert table.version == writers * each
    assert DeltaLog(open_store(uri), standard_engine()).snapshot().segment.checkpoint_version is not None


def test_appends_from_threads_all_succeed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    trilake.write(pa.table({"a": [-1]}), uri)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda w: _append(uri, 5, w), range(4)))
    _all_landed(uri, 4, 5)


def test_appends_from_processes_all_succeed(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    trilake.write(pa.table({"a": [-1]}), uri)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append, args=(uri, 5, w)) for w in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert [w.exitcode for w in workers] == [0, 0, 0]
    _all_landed(uri, 3, 5)


# --- lost replies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_lost_reply_of_a_landed_commit_is_a_success(version: int) -> None:
    inner = MemoryStore()
    if version:
        _write(inner)
    store = FaultStore(inner, [Fault("put_if_absent", "_delta_log/*.json", when="after")])
    assert _write(store).version == version
    assert _rows(inner) == version + 1


def _unknown() -> UnknownOutcomeError:
    return UnknownOutcomeError("no reply", file="x")


def test_lost_reply_of_a_missing_commit_is_unknown() -> None:
    inner = MemoryStore()
    _write(inner)
    store = FaultStore(inner, [Fault("put_if_absent", "_delta_log/*.json", error=_unknown())])
    with pytest.raises(UnknownOutcomeError, match="version 1"):
        _write(store)
    assert store.count("delete") == 0
    assert len([o for o in inner.list() if o.key.endswith(".parquet")]) == 2  # the commit may still land
    assert _rows(inner) == 1


def test_lost_reply_with_another_winner_is_retried() -> None:
    inner = MemoryStore()
    _write(inner)

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(1):
            inner.put_if_absent(key, lines([{"commitInfo": {"txnId": "other", "isBlindAppend": True}}]))

    store = FaultStore(inner, [Fault("put_if_absent", "_delta_log/*1.json", error=_unknown())], before=before)
    assert _write(store).version == 2


def test_retried_request_recognizes_its_first_attempt() -> None:
    inner = MemoryStore()
    _write(inner)

    class Retrying(FaultStore):
        def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
            if key.endswith(".json"):
                inner.put_if_absent(key, data)
            super().put_if_absent(key, data)

    assert _write(Retrying(inner)).version == 1
    assert _rows(inner) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_lost_reply_with_an_unreadable_log_is_unknown(when: Any) -> None:
    inner = MemoryStore()
    _write(inner)
    faults = [
        Fault("put_if_absent", "_delta_log/*1.json", when=when, error=_unknown()),
        Fault("read*", "_delta_log/*1.json"),
    ]
    with pytest.raises(UnknownOutcomeError):
        _write(FaultStore(inner, faults))
    assert _rows(inner) == (2 if when == "after" else 1)


def test_damaged_winner_is_a_typed_error() -> None:
    for content in (b'{"commitInfo":{"txnId":', b"", b"[]"):
        inner = MemoryStore()
        _write(inner)

        def before(op: str, key: str, inner: Store = inner, content: bytes = content) -> None:
            if op == "put_if_absent" and key == commit_key(1):
                inner.put(key, content)

        with pytest.raises(CorruptLogError, match=r"00001\.json"):
            _write(FaultStore(inner, before=before))


# --- crashes and failures --------------------------------------------------------------------------------------------


def _steps(store: FaultStore, **request: Any) -> int:
    _write(store, **request)
    return len(store.calls)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["crash", "fail"])
def test_failure_at_any_call_leaves_a_readable_table(mode: str, when: Any, kind: Any) -> None:
    begin = MemoryStore()
    for _ in range(10):  # the next commit writes a checkpoint
        _write(begin)

    def table() -> MemoryStore:
        inner = MemoryStore()
        for object in begin.list():
            inner.put(object.key, begin.read(object.key))
        return inner

    total = _steps(FaultStore(table()), mode=mode)
    assert total > 5
    old, new = 10, 11 if mode == "append" else 1
    for n in range(1, total + 1):
        inner = table()
        store = FaultStore(inner, [Fault(nth=n, kind=kind, when=when)])
        try:
            result = _write(store, mode=mode)
        except (SimulatedCrash, StorageError) as e:
            failed: BaseException | None = e
        else:
            assert result.version == 10
            assert _rows(inner) == new
            failed = None
        landed = _rows(inner) == new and trilake.open(inner.uri).version == 10
        assert landed or _rows(inner) == old
        if landed and isinstance(failed, StorageError):
            assert isinstance(failed, UnknownOutcomeError), f"call {n}: {failed!r} though it landed"
        _write(inner)
        assert _rows(inner) in (old + 1, new + 1)


def test_failed_write_commits_nothing_and_cleans_up() -> None:
    inner = MemoryStore()
    _write(inner)

    def batches() -> Any:
        yield from pa.table({"a": [1, 2]}).to_batches()
        raise RuntimeError("the source broke")

    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(RuntimeError, match="source broke"):
        write_arrow(
            DeltaLog(inner, standard_engine()),
            schema,
            batches(),
            WriteRequest(mode="append", schema=from_arrow(schema)),
        )
    assert trilake.open(inner.uri).version == 0
    assert len([o for o in inner.list() if o.key.endswith(".parquet")]) == 1


def test_failed_checkpoint_is_written_by_the_next_commit(caplog: pytest.LogCaptureFixture) -> None:
    inner = MemoryStore()
    for _ in range(10):
        _write(inner)
    assert _write(FaultStore(inner, [Fault("put*", "*checkpoint*")])).version == 10
    assert "checkpoint failed" in caplog.text
    assert not DeltaLog(inner, standard_engine()).listing().checkpoints
    assert _write(inner).version == 11
    assert [v for v, _ in DeltaLog(inner, standard_engine()).listing().checkpoints] == [11]
    for _ in range(9):
        _write(inner)
    assert DeltaLog(inner, standard_engine()).listing().checkpoints[-1][0] in (20, 21)


# --- reproducible ----------------------------------------------------------------------------------------------------


def test_fixed_clock_and_ids_are_reproducible() -> None:
    contents = []
    for _ in range(2):
        store, runtime = MemoryStore(), fixed_runtime()
        for i in range(12):
            data = pa.table({"a": [i, i + 1], "p": ["x", None]})
            _write(store, data, runtime=runtime, partition_by=("p",) if i == 0 else None)
        contents.append({o.key: bytes(store.read(o.key)) for o in store.list()})
    assert contents[0] == contents[1]
    info = json.loads(contents[0][commit_key(0)].split(b"\n")[0])["commitInfo"]
    assert 1_600_000_000_000 <= info["timestamp"] < 1_600_000_100_000


def test_commit_without_files() -> None:
    log = log_of([])
    plan = CommitPlan("SET TRANSACTION", {}, [{"txn": {"appId": "s", "version": 3}}])
    assert commit(log, log.snapshot(), plan) == 1
    assert log.snapshot().state.txns["s"]["version"] == 3
    info = log.commit_info(1)
    assert info["isBlindAppend"] is False
    assert info["readVersion"] == 0
