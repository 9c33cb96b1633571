"""Compaction with concurrent writers: conflicts, and what is still committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.commands.optimize.optimize_tables import VECTORS, append, delete, ids, small_files
from tests.delta.tables import new_uri, opened
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.optimize.optimize import OptimizeRequest, optimize
from trilake.delta.commands.rows.row_changes import run_here
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import ConcurrentDeleteReadError, ConflictError, CorruptFileError, ProtocolChangedError
from trilake.storage import open_store


def optimize_with_race(uri: str, other: Callable[[], None], request: OptimizeRequest | None = None) -> Any:
    """Optimize, while another writer commits after the files were read."""
    log = DeltaLog(open_store(uri), standard_engine())

    def run(function: Any, tasks: Any) -> Any:
        result = list(run_here(function, tasks))
        other()
        return result

    return optimize(log, request or OptimizeRequest(), run=run)


def data_files(uri: str) -> set[str]:
    return {o.key for o in open_store(uri).list() if o.key.endswith(".parquet") and not o.key.startswith("_")}


def test_concurrent_append_is_not_a_conflict() -> None:
    uri = new_uri()
    small_files(uri, files=2)
    Alter(opened(uri).log).set_properties({"delta.isolationLevel": "Serializable"})
    done = optimize_with_race(uri, lambda: small_files(uri, files=1))
    assert done.version == 4
    assert opened(uri).files().num_rows == 2
    assert ids(uri) == [0, 0, 1, 1, 2, 2, 3, 4, 5]


def test_concurrent_identity_append_is_not_a_conflict() -> None:
    uri = new_uri()
    trilake.create(uri, {"id": "bigint", "v": "bigint"}, identity=["id"])
    for n in range(2):
        append(uri, pa.table({"v": [n]}))
    optimize_with_race(uri, lambda: append(uri, pa.table({"v": [2]})))
    append(uri, pa.table({"v": [3]}))
    assert ids(uri) == [1, 2, 3, 4]
    assert opened(uri).files().num_rows == 3

    def both() -> None:
        append(uri, pa.table({"v": [4]}))
        Alter(opened(uri).log).set_properties({"team": "x"})

    assert optimize_with_race(uri, both).files_removed == 3
    assert ids(uri) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_concurrent_delete_in_all_bins_is_a_conflict(properties: dict[str, str]) -> None:
    uri = new_uri()
    small_files(uri, files=2, properties=properties)
    before = data_files(uri)
    with pytest.raises(ConcurrentDeleteReadError):
        optimize_with_race(uri, lambda: delete(uri, "id in (1, 4)"))
    assert ids(uri) == [0, 2, 3, 5]
    left = data_files(uri) - before - set(opened(uri).files()["path"].to_pylist())
    assert left == set(), "the files of the optimization are deleted"


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_unaffected_bins_are_committed(properties: dict[str, str]) -> None:
    uri = new_uri()
    small_files(uri, files=3, partition_by=["p"], properties=properties)
    done = optimize_with_race(uri, lambda: delete(uri, "p = 'p1' and id = 1"))
    assert (done.files_removed, done.files_added, done.metrics.partitions_optimized) == (3, 1, 1)
    assert ids(uri) == [0, *range(2, 9)]
    live = set(opened(uri).files()["path"].to_pylist())
    assert {p for p in data_files(uri) if p.startswith("p=p1")} >= {p for p in live if p.startswith("p=p1")}
    assert opened(uri).count("p = 'p0'") == 5


def test_concurrently_emptied_table_is_a_conflict() -> None:
    uri = new_uri()
    small_files(uri, files=2)
    with pytest.raises(ConflictError):
        optimize_with_race(uri, lambda: delete(uri, "id >= 0"))
    assert ids(uri) == []


def test_concurrent_vector_in_another_partition_is_allowed() -> None:
    uri = new_uri()
    small_files(uri, files=3, each=4, partition_by=["p"], properties=VECTORS)
    done = optimize_with_race(uri, lambda: delete(uri, "id = 1"))
    assert opened(uri).snapshot.adds["deletionVector"].null_count == 3
    assert (done.files_removed, done.files_added, done.metrics.partitions_optimized) == (3, 1, 1)
    assert ids(uri) == [0, *range(2, 12)]


def test_only_schema_changes_conflict() -> None:
    uri = new_uri()
    small_files(uri, files=2)
    assert optimize_with_race(uri, lambda: _ignore(Alter(opened(uri).log).set_properties({"team": "x"}))).version == 3
    small_files(uri, files=1)
    with pytest.raises(ConflictError):
        optimize_with_race(uri, lambda: _ignore(Alter(opened(uri).log).add_columns({"c": "int"})))
    assert opened(uri).optimize().files_added == 1


def test_newly_materialized_partition_columns_conflict() -> None:
    uri = new_uri()
    small_files(uri, files=2, partition_by=["p"])
    with pytest.raises(ProtocolChangedError):
        optimize_with_race(uri, lambda: _ignore(Alter(opened(uri).log).add_feature("materializePartitionColumns")))
    assert opened(uri).files().num_rows == 4


def _ignore(_: object) -> None:
    """Discard the version."""


def test_one_of_two_optimizations_wins() -> None:
    uri = new_uri()
    small_files(uri, files=3)
    with pytest.raises(ConflictError):
        optimize_with_race(uri, lambda: _ignore(opened(uri).optimize()))
    assert opened(uri).files().num_rows == 1
    assert ids(uri) == list(range(9))


def test_delete_conflicts_with_a_finished_optimize() -> None:
    """A delete that read the files before an optimization removed them must not commit."""
    uri = new_uri()
    small_files(uri, files=2)
    log = opened(uri).log
    stale = log.snapshot()
    (first, _) = stale.adds.to_pylist()
    opened(uri).optimize()
    read = ReadSet(files=frozenset([first["path"]]), removed=frozenset([first["path"]]))
    with pytest.raises(ConflictError):
        commit(log, stale, CommitPlan("DELETE", {}, [remove_action(first, 0)], read=read))


def test_unreadable_file_leaves_nothing_behind() -> None:
    uri = new_uri()
    small_files(uri, files=4, partition_by=["p"])
    store = open_store(uri)
    broken = next(p for p in opened(uri).files()["path"].to_pylist() if p.startswith("p=p1"))
    store.put(broken, b"PAR1 no file PAR1")
    before = data_files(uri)
    with pytest.raises(CorruptFileError):
        opened(uri).optimize()
    assert data_files(uri) == before
    assert opened(uri).version == 3
