"""Clones have the rows of their source, by reference or by copy."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as OtherTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.delta.tables import add, clocked, log_of, rows, write
from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.clone import CloneResult, clone
from trilake.delta.commands.maintenance.restore import restore
from trilake.delta.commands.maintenance.vacuum import vacuum
from trilake.delta.commands.write.create import TableDescription, create_table, with_rules
from trilake.delta.files.new_location import COPY_MARK
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.features import features_of
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ConcurrentAppendError,
    ConflictError,
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    TableExistsError,
    TrilakeError,
)
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

VECTORS = {"delta.enableDeletionVectors": "true"}


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64()), "p": pa.array([v % 2 for v in values], pa.int64())})


def read(log: DeltaLog, version: int | None = None) -> list[int]:
    return sorted(ArrowDeltaTable(log.store, standard_engine(), version=version).to_arrow()["n"].to_pylist())


def source(**properties: str) -> DeltaLog:
    """A partitioned table, with deletion vectors if the properties enable them."""
    log = DeltaLog(MemoryStore(), standard_engine())
    write(log, numbers(1, 2, 3, 4), properties=properties, partition_by=("p",))
    write(log, numbers(5, 6))
    write(log, numbers(), "overwrite", replace_where="n = 1 OR n = 6")
    return log


def target() -> DeltaLog:
    return DeltaLog(MemoryStore(), standard_engine())


def files(log: DeltaLog) -> dict[str, bytes]:
    return {o.key: bytes(log.store.read(o.key)) for o in log.store.list() if not o.key.startswith("_delta_log/")}


def original(key: str) -> str:
    """The original key of a copied file, whose name is prefixed with the mark of its clone."""
    folder, _, name = key.rpartition("/")
    name = re.sub(f"^{COPY_MARK}", "", name)
    return f"{folder}/{name}" if folder else name


def run(log: DeltaLog, into: DeltaLog, version: int | None = None, **options: Any) -> CloneResult:
    return clone(log.snapshot(version), log, into, **options)


# --- shallow ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_shallow_clone_references_source_files(properties: dict[str, str]) -> None:
    log, into = source(**properties), target()
    done = run(log, into, shallow=True)
    assert (done.version, done.source_version, done.num_copied_files, done.copied_files_size) == (0, 2, 0, 0)
    assert done.source_num_of_files == log.snapshot().adds.num_rows
    assert files(into) == {}
    adds = into.snapshot().adds.to_pylist()
    assert all(a["path"].startswith(f"{log.store.uri}/p=") for a in adds)
    kinds = {a["deletionVector"]["storageType"] for a in adds if a["deletionVector"]}
    assert kinds == ({"p"} if properties else set())
    assert read(into) == read(log) == [2, 3, 4, 5]
    # It can be written independently.
    write(into, numbers(7))
    write(into, numbers(), "overwrite", replace_where="n = 4")
    assert read(into) == [2, 3, 5, 7]
    assert read(log) == [2, 3, 4, 5]
    before = files(log)
    vacuum(clocked(into, lambda: 10**14), retention_hours=0, enforce_retention=False)
    assert files(log) == before, "files of the source are none of the clone's"
    assert read(into) == [2, 3, 5, 7]


def test_clone_of_a_clone() -> None:
    log, first, second, third = source(**VECTORS), target(), target(), target()
    run(log, first, shallow=True)
    write(first, numbers(8))
    run(first, second, shallow=True)
    assert read(second) == [2, 3, 4, 5, 8]
    done = run(second, third)
    assert done.num_copied_files == done.source_num_of_files
    log.store.delete(list(files(log)))
    first.store.delete(list(files(first)))
    assert read(third) == [2, 3, 4, 5, 8]
    again = run(second, third, replace_target=True)
    assert (again.num_copied_files, again.num_removed_files) == (0, 0), "found in place"
    kinds = {a["deletionVector"]["storageType"] for a in third.snapshot().adds.to_pylist() if a["deletionVector"]}
    assert kinds == {"u"}


# --- deep ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_deep_clone_is_independent_of_its_source(properties: dict[str, str]) -> None:
    log, into = source(**properties), target()
    done = run(log, into)
    expected = log.snapshot().adds
    assert (done.num_copied_files, done.source_num_of_files) == (expected.num_rows, expected.num_rows)
    assert done.copied_files_size == done.source_table_size == sum(expected["size"].to_pylist())
    live = set(expected["path"].to_pylist())
    assert {original(k) for k in files(into) if "deletion_vector" not in k} == live, "only the files of the version"
    assert into.snapshot().adds["stats"].to_pylist() == expected["stats"].to_pylist()
    log.store.delete([o.key for o in log.store.list()])
    assert read(into) == [2, 3, 4, 5]


def test_repeated_deep_clone_copies_only_new_files() -> None:
    log, into = source(**VECTORS), target()
    run(log, into)
    before = files(into)
    write(log, numbers(9))
    write(log, numbers(), "overwrite", replace_where="n = 2")
    done = run(log, into, replace_target=True)
    # One file is new, and one has another vector.
    assert (done.num_copied_files, done.num_removed_files, done.version) == (1, 1, 1)
    assert read(into) == [3, 4, 5, 9]
    assert read(into, 0) == [2, 3, 4, 5], "its own history stays readable"
    assert before.items() <= files(into).items(), "no file was written again"
    again = run(log, into, replace_target=True)
    assert (again.num_copied_files, again.num_removed_files) == (0, 0)
    into.store.delete(into.snapshot().adds["path"].to_pylist()[:1])
    assert run(log, into, replace_target=True).num_copied_files == 1, "what is gone is copied again"
    assert read(into) == [3, 4, 5, 9]


def test_copied_file_does_not_overwrite_an_existing_one() -> None:
    log, into = DeltaLog(MemoryStore(), standard_engine()), target()
    for place, n in (log, 1), (into, 2):
        write(place, numbers(n), partition_by=("p",))
    (mine,), (theirs,) = (p.snapshot().adds["path"].to_pylist() for p in (into, log))
    into.store.put(theirs, b"other's")
    done = run(log, into, replace_target=True)
    assert (done.num_copied_files, done.num_removed_files) == (1, 1)
    assert bytes(into.store.read(theirs)) == b"other's"
    assert (read(into), read(into, 0)) == ([1], [2])
    assert mine in files(into)


def test_clone_of_an_older_version() -> None:
    log = source()
    for version, expected in ((0, [1, 2, 3, 4]), (1, [1, 2, 3, 4, 5, 6])):
        into = target()
        assert run(log, into, version, shallow=True).source_version == version
        assert read(into) == expected


def test_missing_or_truncated_source_file_leaves_nothing() -> None:
    log, into = source(), target()
    path = log.snapshot().adds["path"].to_pylist()[0]
    content = bytes(log.store.read(path))
    log.store.delete([path])
    with pytest.raises(MissingFileError) as caught:
        run(log, into)
    assert path in str(caught.value)
    log.store.put(path, content[:-1])
    with pytest.raises(CorruptFileError, match="bytes"):
        run(log, into)
    assert [*into.store.list()] == []


# --- metadata and protocol -------------------------------------------------------------------------------------------


def test_properties_and_features_are_copied_and_overridable() -> None:
    log, into = source(**{"delta.enableChangeDataFeed": "true", "owner": "a", "team": "x"}), target()
    Alter(log).add_constraint("positive", "n > 0")
    requested = {"owner": "b", "delta.enableDeletionVectors": "true", "delta.feature.clustering": "supported"}
    run(log, into, properties=requested)
    head, before = into.head(), log.head()
    expected = {**before.metadata.configuration, "owner": "b", "delta.enableDeletionVectors": "true"}
    assert head.metadata.configuration == expected
    assert head.metadata.id != before.metadata.id
    assert head.metadata.partition_columns == ("p",)
    assert features_of(before.protocol) | {"deletionVectors", "clustering"} <= features_of(head.protocol)
    with pytest.raises(TrilakeError, match="positive"):
        write(into, numbers(-1))
    with pytest.raises(TrilakeError, match="unknown"):
        run(log, target(), properties={"delta.nonsense": "1"})
    with pytest.raises(InvalidArgumentError, match="column mapping"):
        run(log, target(), properties={"delta.columnMapping.mode": "name"})


@pytest.mark.parametrize("shallow", [True, False])
def test_column_rules_are_copied(shallow: bool) -> None:
    log, into = DeltaLog(MemoryStore(), standard_engine()), target()
    columns = {"id": "bigint", "n": "bigint", "half": "bigint", "double": "bigint"}
    schema = with_rules(columns, {"double": "half * 2"}, ["id"], {"half": "21"})
    create_table(log, TableDescription(schema, properties={"delta.columnMapping.mode": "name"}, cluster_by=("n",)))
    write(log, numbers(1, 2).select(["n"]))
    Alter(log).rename_column("n", "m")
    run(log, into, shallow=shallow)
    write(into, pa.table({"m": [5]}))
    result = rows(ArrowDeltaTable(into.store, standard_engine()).to_arrow())
    assert sorted((r["id"], r["m"], r["double"]) for r in result) == [(1, 1, 42), (2, 2, 42), (3, 5, 42)]
    assert clustering_columns(into.head()) == [("m",)]


def test_clone_assigns_new_row_ids() -> None:
    log, into = source(**{"delta.enableRowTracking": "true"}), target()
    run(log, into)
    adds = into.snapshot().adds.to_pylist()
    assert min(a["baseRowId"] for a in adds) == 0
    assert {a["defaultRowCommitVersion"] for a in adds} == {0}
    key = "delta.rowTracking.materializedRowIdColumnName"
    assert into.head().metadata.configuration[key] != log.head().metadata.configuration[key]
    run(log, into, replace_target=True)
    assert into.snapshot().adds.to_pylist() == adds


def test_files_get_row_ids_when_tracking_is_enabled() -> None:
    log, into = source(), target()
    run(log, into)
    run(log, into, replace_target=True, properties={"delta.enableRowTracking": "true"})
    assert into.snapshot().adds["baseRowId"].null_count == 0
    assert read(into) == read(log)


def test_in_commit_timestamps_restart_in_the_clone() -> None:
    log, into = source(), target()
    Alter(log).set_properties({"delta.enableInCommitTimestamps": "true"})
    since = "delta.inCommitTimestampEnablementVersion"
    assert since in log.head().metadata.configuration
    run(log, into)
    assert since not in into.head().metadata.configuration
    assert len(into.commit_times(into.commits(), into.head().metadata)) == 1


# --- existing targets ------------------------------------------------------------------------------------------------


def test_existing_target_is_replaced_only_on_request() -> None:
    log, into = source(), target()
    write(into, pa.table({"x": ["a"]}), properties={"delta.enableDeletionVectors": "true"})
    before = into.head()
    with pytest.raises(TableExistsError, match="replace"):
        run(log, into)
    done = run(log, into, replace_target=True, shallow=True)
    assert (done.version, done.num_removed_files) == (1, 1)
    head = into.head()
    assert head.metadata.id == before.metadata.id
    assert "deletionVectors" in features_of(head.protocol)
    assert read(into) == read(log)
    entry = ArrowDeltaTable(into.store, standard_engine()).history(1).to_pylist()[0]
    assert entry["operation"] == "CLONE"
    assert dict(entry["operationParameters"]) == {
        "source": f"delta.`{log.store.uri}`",
        "sourceVersion": "2",
    }
    metrics = dict(entry["operationMetrics"])
    assert sorted(metrics) == [
        "copiedFilesSize",
        "numCopiedFiles",
        "numRemovedFiles",
        "removedFilesSize",
        "sourceNumOfFiles",
        "sourceTableSize",
    ]
    restore(into, version=0)
    assert ArrowDeltaTable(into.store, standard_engine()).to_arrow()["x"].to_pylist() == ["a"]


def test_append_only_target_is_not_replaced() -> None:
    log, into = source(), target()
    write(into, numbers(1), properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        run(log, into, replace_target=True)


@pytest.mark.parametrize("place", ["", "/inside", "/.."])
def test_clone_into_an_overlapping_location_is_rejected(tmp_path: Path, place: str) -> None:
    log = DeltaLog(open_store(str(tmp_path / "a" / "t")), standard_engine())
    write(log, numbers(1))
    with pytest.raises(InvalidArgumentError, match="cloned into"):
        run(log, DeltaLog(open_store(f"{tmp_path}/a/t{place}"), standard_engine()))


def test_lost_race_removes_copied_files() -> None:
    log, into = source(), target()
    run(log, into, shallow=True)

    def other(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(1):
            write(into, numbers(100))

    racing = DeltaLog(FaultStore(into.store, before=other), standard_engine())
    with pytest.raises(ConcurrentAppendError):
        run(log, racing, replace_target=True)
    assert len(files(into)) == 1
    assert read(into) == [*read(log), 100]


@pytest.mark.parametrize("properties", [{}, VECTORS])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("moment", [("put", "close"), ("put_if_absent",)])
def test_losing_clone_removes_no_file_of_the_winner(
    properties: dict[str, str], replaced: bool, moment: tuple[str, ...]
) -> None:
    """Both copy the same files to the same location, and the loser removes its copies."""
    log, into = source(**properties), target()
    if replaced:
        write(into, numbers(100), partition_by=("p",))
    done: list[str] = []

    def other(op: str, key: str) -> None:
        if op in moment and not key.startswith("_delta_log/_") and not done:
            done.append(key)
            run(log, into, replace_target=replaced)

    racing = DeltaLog(FaultStore(into.store, before=other), standard_engine())
    with pytest.raises((ConflictError, TableExistsError)):
        run(log, racing, replace_target=replaced)
    assert done
    assert read(into) == read(log)


@pytest.mark.parametrize("shallow", [True, False])
def test_concurrently_created_table_is_replaced_on_request(shallow: bool) -> None:
    """CREATE OR REPLACE does not fail because the table now exists."""
    log, into = source(), target()
    done: list[str] = []

    def other(op: str, key: str) -> None:
        if op == "put_if_absent" and key == commit_key(0) and not done:
            done.append(key)
            write(into, numbers(100), partition_by=("p",))

    racing = DeltaLog(FaultStore(into.store, before=other), standard_engine())
    assert run(log, racing, shallow=shallow, replace_target=True).version == 1
    assert done
    assert read(into) == read(log)


def test_crash_at_any_call_leaves_the_old_or_new_table() -> None:
    nth, crashed = 0, True
    while crashed:
        nth += 1
        log, into = source(**VECTORS), target()
        write(into, numbers(77))
        store = FaultStore(into.store, [Fault(nth=nth, kind="crash")])
        try:
            run(log, DeltaLog(store, standard_engine()), replace_target=True)
            crashed = False
        except SimulatedCrash:
            pass
        assert read(into) in ([77], [2, 3, 4, 5])
    assert nth > 8


@settings(max_examples=examples(8))
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "where", "overwrite", "deep", "shallow"]), st.integers(0, 9)), max_size=9
    ),
    st.booleans(),
)
def test_repeated_clones_match_their_source(steps: list[tuple[str, int]], vectors: bool) -> None:
    log, deep, shallow = source(**(VECTORS if vectors else {})), target(), target()
    expected: dict[str, list[int]] = {}
    for kind, n in [*steps, ("deep", 0), ("shallow", 0)]:
        if kind == "append":
            write(log, numbers(n, n + 1))
        elif kind == "overwrite":
            write(log, numbers(n), "overwrite")
        elif kind == "where":
            write(log, numbers(), "overwrite", replace_where=f"n % 3 = {n % 3}")
        else:
            run(log, deep if kind == "deep" else shallow, shallow=kind == "shallow", replace_target=True)
            expected[kind] = read(log)
        for name, into in (("deep", deep), ("shallow", shallow)):
            if name in expected:
                assert read(into) == expected[name]


# --- on disk, other readers ------------------------------------------------------------------------------------------


def test_deltalake_reads_both_kinds_of_clone(tmp_path: Path) -> None:
    log = DeltaLog(open_store(str(tmp_path / "a table ü")), standard_engine())
    write(log, numbers(1, 2, 3), partition_by=("p",))
    for name, shallow in (("deep", False), ("shallow", True)):
        run(log, DeltaLog(open_store(str(tmp_path / name)), standard_engine()), shallow=shallow)
        assert read(DeltaLog(open_store(str(tmp_path / name)), standard_engine())) == [1, 2, 3]
    assert sorted(OtherTable(str(tmp_path / "deep")).to_pyarrow_table()["n"].to_pylist()) == [1, 2, 3]
    # deltalake reads no files outside the table folder: compare what the log says instead.
    uris = OtherTable(str(tmp_path / "shallow")).file_uris()
    assert all("a table" in u or "a%20table" in u for u in uris)


def test_clone_of_an_empty_table() -> None:
    log, into = log_of([]), target()
    assert run(log, into).source_num_of_files == 0
    assert ArrowDeltaTable(into.store, standard_engine()).count() == 0


def test_files_with_special_paths_are_copied() -> None:
    store = MemoryStore()
    names = ["a b.parquet", "p=%20/x.parquet", "ü+.parquet", "_p=1/y.parquet"]
    escaped = ["a%20b.parquet", "p=%2520/x.parquet", "%C3%BC+.parquet", "_p=1/y.parquet"]
    for n in names:
        store.put(n, b"x")
    log, into = log_of([add(p) for p in escaped], store=store), target()
    run(log, into)
    assert sorted(map(original, files(into))) == sorted(names)


REAL = [
    "dv-partitioned-with-checkpoint",
    "k-cdf-table-with-cdc-and-dvs",
    "log-replay-special-characters-b",
    "log-replay-dv-key-cases",
    "table-with-columnmapping-mode-id",
    "data-reader-partition-values",
    "rs-table-with-dv-small",
    "k-v2-checkpoints-parquet-with-sidecars",
    "data-skipping-basic-stats-all-types-columnmapping-id",
    "canonicalized-paths-normal-a",
    "dat-multi_partitioned_2",
]


@pytest.mark.parametrize("name", REAL)
def test_golden_tables_can_be_cloned(shared: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(shared / "corpus" / "delta" / "golden" / name / "delta", tmp_path / "t")
    log = DeltaLog(open_store(str(tmp_path / "t")), standard_engine())
    before = {p: p.stat().st_size for p in tmp_path.rglob("*")}
    try:
        expected = rows(ArrowDeltaTable(log.store, standard_engine()).to_arrow())
    except MissingFileError:
        with pytest.raises(MissingFileError):
            run(log, DeltaLog(open_store(str(tmp_path / "deep")), standard_engine()))
        return
    for kind in "shallow", "deep":
        into = DeltaLog(open_store(str(tmp_path / kind)), standard_engine())
        run(log, into, shallow=kind == "shallow")
        assert rows(ArrowDeltaTable(into.store, standard_engine()).to_arrow()) == expected
    assert {p: p.stat().st_size for p in before} == before
    vacuum(log, retention_hours=0, enforce_retention=False, dry_run=True)
    assert rows(ArrowDeltaTable(log.store, standard_engine()).to_arrow()) == expected
