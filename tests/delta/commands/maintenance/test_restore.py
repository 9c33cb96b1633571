"""Restore: the rows of an older version as a new version; ids, marks and features never move back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as OtherTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.delta.tables import add, log_of, metadata, protocol, remove, rows, write
from tests.fault_store import FaultStore
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.restore import missing_files, restore, restored_metadata
from trilake.delta.commands.rows.row_changes import run_here
from trilake.delta.commands.write.create import TableDescription, create_table, with_rules
from trilake.delta.commit.row_tracking import high_water_mark
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.features import features_of
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.rules.identity import identity_columns
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ConcurrentAppendError,
    InvalidArgumentError,
    MissingFileError,
    UnsupportedProtocolError,
    VersionNotFoundError,
)
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore
from trilake.tools.verify import verify


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def read(log: DeltaLog, version: int | None = None) -> list[dict[str, Any]]:
    return rows(ArrowDeltaTable(log.store, standard_engine(), version=version).to_arrow())


def three_versions(store: Any = None, **properties: str) -> DeltaLog:
    log = DeltaLog(store or MemoryStore(), standard_engine())
    write(log, numbers(1, 2), properties=properties)
    write(log, numbers(3))
    write(log, numbers(9), "overwrite")
    return log


def test_restore_returns_old_rows_and_metrics() -> None:
    log = three_versions()
    sizes = log.snapshot(1).adds["size"].to_pylist()
    (newest,) = log.snapshot(2).adds["size"].to_pylist()
    done = restore(log, version=1)
    assert (done.version, done.restored_version) == (3, 1)
    assert read(log) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert (done.num_restored_files, done.num_removed_files, done.num_of_files_after_restore) == (2, 1, 2)
    assert (done.restored_files_size, done.removed_files_size, done.table_size_after_restore) == (
        sum(sizes),
        newest,
        sum(sizes),
    )
    (entry,) = ArrowDeltaTable(log.store, standard_engine()).history(1).to_pylist()
    assert (entry["operation"], entry["readVersion"], entry["isBlindAppend"]) == ("RESTORE", 2, False)
    assert dict(entry["operationParameters"]) == {"version": "1", "timestamp": None}
    assert entry["isolationLevel"] == "Serializable"
    assert dict(entry["operationMetrics"]) == {
        "tableSizeAfterRestore": str(sum(sizes)),
        "numOfFilesAfterRestore": "2",
        "numRemovedFiles": "1",
        "numRestoredFiles": "2",
        "removedFilesSize": str(newest),
        "restoredFilesSize": str(sum(sizes)),
    }
    assert log.snapshot().metadata == log.snapshot(1).metadata
    assert read(log, 2) == [{"n": 9}]


def test_files_in_both_versions_are_kept() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1))
    write(log, numbers(2))
    done = restore(log, version=0)
    assert (done.num_restored_files, done.num_removed_files) == (0, 1)
    batch = log.parse(log.commits(2))
    assert (batch.add.num_rows, batch.remove.num_rows) == (0, 1)
    assert batch.remove["dataChange"].to_pylist() == [True]
    assert read(log) == [{"n": 1}]


def test_restore_by_timestamp() -> None:
    now = [10_000]
    log = DeltaLog(MemoryStore(clock=lambda: now[0]), standard_engine())
    for n in range(3):
        write(log, numbers(n), "overwrite")
        now[0] += 10_000
    assert restore(log, timestamp_ms=20_500).restored_version == 1
    assert read(log) == [{"n": 1}]
    (entry,) = ArrowDeltaTable(log.store, standard_engine()).history(1).to_pylist()
    assert dict(entry["operationParameters"]) == {"version": None, "timestamp": "1970-01-01 00:00:20.500Z"}
    with pytest.raises(VersionNotFoundError):
        restore(log, timestamp_ms=9_999)
    with pytest.raises(InvalidArgumentError, match="newest"):
        restore(log, timestamp_ms=10**12)


@pytest.mark.parametrize("options", [{}, {"version": 0, "timestamp_ms": 0}])
def test_exactly_one_of_version_and_timestamp_is_required(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="either"):
        restore(three_versions(), **options)  # type: ignore[arg-type]


def test_newest_or_unknown_version_is_rejected() -> None:
    log = three_versions()
    with pytest.raises(InvalidArgumentError, match="newest"):
        restore(log, version=2)
    for version in (-1, 3):
        with pytest.raises(VersionNotFoundError):
            restore(log, version=version)
    assert log.head().version == 2


def test_missing_files_are_listed_and_nothing_is_committed() -> None:
    log = three_versions()
    paths = log.snapshot(1).adds["path"].to_pylist()
    log.store.delete(paths)
    with pytest.raises(MissingFileError) as caught:
        restore(log, version=1)
    assert all(p in str(caught.value) for p in paths)
    assert log.head().version == 2
    assert restore(log, version=1, ignore_missing=True).num_restored_files == 2
    with pytest.raises(MissingFileError):
        read(log)


def test_missing_deletion_vector_is_reported() -> None:
    log = three_versions(**{"delta.enableDeletionVectors": "true"})
    write(log, numbers(1, 2, 3, 4), "overwrite")
    write(log, numbers(2), "overwrite", replace_where="n = 2")
    before = read(log)
    write(log, numbers(7), "overwrite")
    (vector,) = [o.key for o in log.store.list() if "deletion_vector" in o.key]
    content = log.store.read(vector)
    log.store.delete([vector])
    with pytest.raises(MissingFileError, match="deletion_vector"):
        restore(log, version=4)
    log.store.put(vector, content)
    assert restore(log, version=4).num_removed_files == 1
    assert read(log) == before
    assert restore(log, version=3).num_restored_files == 1, "the same file, without its vector"
    assert len(read(log)) == 4


def test_many_files_are_checked_with_a_listing() -> None:
    store = MemoryStore()
    log = log_of([*(add(f"d/f{i}%20x") for i in range(8)), add("_odd/x"), add(f"{store.uri}/abs")], store=store)
    for i in range(7):
        store.put(f"d/f{i} x", b"x")
    store.put("_odd/x", b"x")
    adds = log.snapshot().adds
    expected = ["d/f7 x", f"{store.uri}/abs"]
    assert missing_files(store, adds, run_here, ask=0) == expected == missing_files(store, adds, run_here)
    store.put("abs", b"x")
    assert missing_files(store, adds, run_here, ask=0) == ["d/f7 x"]


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_restore_keeps_protocol_features() -> None:
    log = three_versions()
    Alter(log).set_properties({"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"})
    newest = log.head().protocol
    restore(log, version=1)
    head = log.head()
    assert head.protocol == newest
    assert head.metadata.configuration == {}
    Alter(log).set_properties({"delta.enableRowTracking": "true"})
    write(log, numbers(5), "overwrite")
    restore(log, version=3)
    assert {"rowTracking", "deletionVectors"} <= features_of(log.head().protocol)
    assert read(log) == [{"n": 9}]


def test_identity_high_water_marks_are_kept() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    schema = with_rules({"id": "bigint", "down": "bigint", "n": "bigint"}, {}, {"id": (1, 1), "down": (0, -10)}, {})
    create_table(log, TableDescription(schema))
    write(log, numbers(1))
    write(log, numbers(2, 3))
    marks = {c.name: c.mark for c in identity_columns(log.head().schema)}
    restore(log, version=1)
    assert {c.name: c.mark for c in identity_columns(log.head().schema)} == marks
    write(log, numbers(4))
    result = sorted((r["id"], r["down"], r["n"]) for r in read(log))
    assert result == [(1, 0, 1), (4, -30, 4)]


def test_row_ids_and_high_water_mark_are_kept() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2), properties={"delta.enableRowTracking": "true"})
    write(log, numbers(3), "overwrite")
    ids = log.snapshot(0).adds["baseRowId"].to_pylist()
    restore(log, version=0)
    snapshot = log.snapshot()
    assert snapshot.adds["baseRowId"].to_pylist() == ids
    assert snapshot.adds["defaultRowCommitVersion"].to_pylist() == [0]
    assert high_water_mark(snapshot.state) == 2
    write(log, numbers(4))
    assert sorted(log.snapshot().adds["baseRowId"].to_pylist()) == [0, 3]


def test_restored_rows_get_their_row_ids_back() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2), properties={"delta.enableRowTracking": "true"})
    write(log, numbers(3))
    write(log, numbers(4))
    ArrowDeltaTable(log.store, standard_engine()).delete("n = 4")
    Alter(log).set_properties({"delta.enableRowTracking": "false"})
    Alter(log).drop_feature("rowTracking")
    write(log, numbers(5))
    ArrowDeltaTable(log.store, standard_engine()).delete("n = 3")
    restore(log, version=3)
    snapshot = log.snapshot()
    assert "rowTracking" in features_of(snapshot.protocol)
    assert sorted(snapshot.adds["baseRowId"].to_pylist()) == [0, 2]
    assert high_water_mark(snapshot.state) == 3
    write(log, numbers(6))
    assert sorted(log.snapshot().adds["baseRowId"].to_pylist()) == [0, 2, 4]
    assert sorted(r["n"] for r in read(log)) == [1, 2, 3, 6]
    assert verify(ArrowDeltaTable(log.store, standard_engine())).ok


def test_row_ids_of_an_earlier_tracking_period_are_not_reused() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2), properties={"delta.enableRowTracking": "true"})
    write(log, numbers(3))
    write(log, numbers(4))
    Alter(log).set_properties({"delta.enableRowTracking": "false"})
    Alter(log).drop_feature("rowTracking")
    ArrowDeltaTable(log.store, standard_engine()).delete("n < 4")
    Alter(log).set_properties({"delta.enableRowTracking": "true"})
    assert log.snapshot().adds["baseRowId"].to_pylist() == [0]
    restore(log, version=2)
    snapshot = log.snapshot()
    assert sorted(snapshot.adds["baseRowId"].to_pylist()) == [0, 2, 3]
    assert snapshot.metadata.configuration == log.snapshot(2).metadata.configuration
    assert high_water_mark(snapshot.state) == 3
    write(log, numbers(6))
    assert sorted(log.snapshot().adds["baseRowId"].to_pylist()) == [0, 2, 3, 4]
    assert sorted(r["n"] for r in read(log)) == [1, 2, 3, 4, 6]
    assert verify(ArrowDeltaTable(log.store, standard_engine())).ok


def test_column_ids_are_not_reused() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1), properties={"delta.columnMapping.mode": "name"})
    Alter(log).add_columns({"m": "string"})
    Alter(log).drop_columns(["m"])
    restore(log, version=0)
    Alter(log).add_columns({"k": "string"})
    assert [f.column_id for f in log.head().schema.fields] == [1, 3]
    assert read(log) == [{"n": 1, "k": None}]


def test_timestamp_and_checkpoint_properties_stay_current() -> None:
    key, since = "delta.requireCheckpointProtectionBeforeVersion", "delta.inCommitTimestampEnablementVersion"
    on = {"delta.enableInCommitTimestamps": "true", since: "5", "delta.inCommitTimestampEnablementTimestamp": "77"}
    schema = from_arrow(numbers().schema).json()
    now = Metadata("now", schema, configuration={**on, key: "9"})
    old = Metadata(
        "old", schema, configuration={"delta.enableInCommitTimestamps": "true", since: "2", key: "1", "a": "b"}
    )
    restored = restored_metadata(now, old)
    assert restored.id == "now"
    assert restored.configuration == {**on, key: "9", "a": "b"}
    plain = Metadata("old", schema)
    assert restored_metadata(now, plain).configuration == {key: "9"}


def test_restore_resets_clustering() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    create_table(log, TableDescription(from_arrow(numbers().schema), cluster_by=("n",)))
    Alter(log).cluster_by()
    assert clustering_columns(log.head()) == []
    restore(log, version=0)
    assert clustering_columns(log.head()) == [("n",)]
    restore(log, version=1)
    assert clustering_columns(log.head()) == []


def test_append_only_table_cannot_remove_files() -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1))
    write(log, numbers(2))
    Alter(log).set_properties({"delta.appendOnly": "true"})
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        restore(log, version=0)
    assert restore(log, version=1).num_removed_files == 0


def test_unwritable_table_is_not_restored() -> None:
    unknown = protocol(1, 7, writerFeatures=["new"])
    log = log_of([unknown, metadata()], [add("f")])
    with pytest.raises(UnsupportedProtocolError):
        restore(log, version=0)


# --- other writers and readers ---------------------------------------------------------------------------------------


def test_concurrent_change_is_a_conflict() -> None:
    log = three_versions()

    def other(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(3):
            write(log, numbers(100))

    racing = DeltaLog(FaultStore(log.store, before=other), standard_engine())
    with pytest.raises(ConcurrentAppendError):
        restore(racing, version=0)
    assert read(log) == [{"n": 100}, {"n": 9}]


def test_change_feed_shows_the_restore() -> None:
    log = three_versions(**{"delta.enableChangeDataFeed": "true"})
    restore(log, version=0)
    changes = ArrowDeltaTable(log.store, standard_engine()).changes(3).select(["n", "_change_type"])
    assert rows(changes) == [
        {"n": 1, "_change_type": "insert"},
        {"n": 2, "_change_type": "insert"},
        {"n": 9, "_change_type": "delete"},
    ]


def test_deltalake_reads_the_restored_table(tmp_path: Path) -> None:
    log = three_versions(open_store(str(tmp_path / "t")))
    restore(log, version=1)
    table = OtherTable(str(tmp_path / "t")).to_pyarrow_table()
    assert sorted(table["n"].to_pylist()) == [1, 2, 3]


def test_file_under_two_spellings_is_one_file() -> None:
    store = MemoryStore()
    log = log_of(
        [add("a%20b"), add("file:///x/y")],
        [remove("a b"), remove("file:/x/y")],
        [add("a%20b"), add("/x/y")],
        store=store,
    )
    base, old = log.snapshot(2), log.snapshot(0)
    assert (base.adds.num_rows, old.adds.num_rows) == (2, 2)
    done = restore(log, version=0, ignore_missing=True)
    assert (done.num_restored_files, done.num_removed_files) == (0, 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "overwrite", "where", "checkpoint", "restore"]), st.integers(0, 9)), max_size=9
)


@settings(max_examples=examples(12))
@given(STEPS, st.booleans())
def test_histories_with_restores_match_an_oracle(steps: list[tuple[str, int]], vectors: bool) -> None:
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(0, 1, 2), properties={"delta.enableDeletionVectors": str(vectors).lower()})
    oracle = [[0, 1, 2]]
    for kind, n in steps:
        now = oracle[-1]
        if kind == "append":
            write(log, numbers(n, n + 1))
            oracle.append([*now, n, n + 1])
        elif kind == "overwrite":
            write(log, numbers(n), "overwrite")
            oracle.append([n])
        elif kind == "where":
            write(log, numbers(), "overwrite", replace_where=f"n % 3 = {n % 3}")
            oracle.append([v for v in now if v % 3 != n % 3])
        elif kind == "checkpoint":
            write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
        elif len(oracle) > 1:
            version = n % (len(oracle) - 1)
            restore(log, version=version)
            oracle.append(oracle[version])
    for version, expected in enumerate(oracle):
        assert sorted(r["n"] for r in read(log, version)) == sorted(expected)


# --- tables of other writers -----------------------------------------------------------------------------------------

REAL = [
    "basic-with-inserts-overwrite-restore",
    "basic-with-inserts-updates",
    "k-cdf-table-with-cdc-and-dvs",
    "snapshot-repartitioned",
    "basic-with-vacuum-protocol-check-feature",
    "dv-partitioned-with-checkpoint",
]


@pytest.mark.parametrize("name", REAL)
def test_golden_tables_restore_every_version(shared: Path, tmp_path: Path, name: str) -> None:
    source = shared / "corpus" / "delta" / "golden" / name / "delta"
    if not source.is_dir():
        pytest.fail(f"the corpus has no table {name}")
    shutil.copytree(source, tmp_path / "t")
    log = DeltaLog(open_store(str(tmp_path / "t")), standard_engine())
    newest, rejected = log.head().version, 0
    for version in range(newest):
        try:
            expected = read(log, version)
        except (MissingFileError, VersionNotFoundError):
            rejected += 1
            with pytest.raises((MissingFileError, VersionNotFoundError)):
                restore(log, version=version)
            continue
        if version != log.head().version:
            restore(log, version=version)
        assert read(log) == expected
    assert log.head().version > newest or rejected
