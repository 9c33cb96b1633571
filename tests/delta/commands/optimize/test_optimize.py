"""Compaction and purge: which files are taken, that no row changes, and what happens beside other writers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as TheirTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import rows
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.optimize.bins import packed
from trilake.delta.commands.optimize.footers import purgeable
from trilake.delta.commands.optimize.optimize import OptimizeRequest, optimize
from trilake.delta.commands.rows.row_changes import run_here
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.commit.transaction import commit, remove_action
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine
from trilake.errors import (
    ConcurrentDeleteReadError,
    ConflictError,
    CorruptFileError,
    InvalidArgumentError,
    MissingFileError,
    TrilakeError,
)
from trilake.progress import progress
from trilake.storage import open_store

VECTORS = {"delta.enableDeletionVectors": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def new_uri() -> str:
    return f"memory://optimize-{uuid4()}"


def opened(uri: str) -> ArrowDeltaTable:
    table = trilake.open(uri)
    assert isinstance(table, ArrowDeltaTable)
    return table


def append(uri: str, data: pa.Table, **more: Any) -> None:
    trilake.write(data, uri, mode="append", **more)


def delete(uri: str, where: str) -> None:
    trilake.write(opened(uri).schema.empty_table(), uri, mode="overwrite", replace_where=where)


def small_files(uri: str, files: int = 4, each: int = 3, **more: Any) -> None:
    for n in range(files):
        ids = range(n * each, (n + 1) * each)
        append(uri, pa.table({"id": pa.array(ids, pa.int64()), "p": [f"p{i % 2}" for i in ids]}), **more)
        more.pop("properties", None)


def ids(uri: str) -> list[int]:
    return sorted(opened(uri).to_arrow(["id"])["id"].to_pylist())


def actions(uri: str, version: int | None = None) -> list[dict[str, Any]]:
    table = opened(uri)
    number = table.version if version is None else version
    return [json.loads(line) for line in bytes(table.log.store.read(f"_delta_log/{number:020d}.json")).splitlines()]


# --- what is done ----------------------------------------------------------------------------------------------------


def test_small_files_become_one() -> None:
    uri = new_uri()
    small_files(uri)
    done = opened(uri).optimize()
    assert (done.version, done.files_removed, done.files_added) == (4, 4, 1)
    assert ids(uri) == list(range(12))
    info, *rest = actions(uri)
    assert all(next(iter(a.values()))["dataChange"] is False for a in rest)
    assert [next(iter(a)) for a in rest] == ["remove"] * 4 + ["add"]
    stats = json.loads(rest[-1]["add"]["stats"])
    assert (stats["numRecords"], stats["minValues"]["id"], stats["maxValues"]["id"]) == (12, 0, 11)
    commit_info = info["commitInfo"]
    assert commit_info["operation"] == "OPTIMIZE"
    assert commit_info["isolationLevel"] == "SnapshotIsolation"
    assert commit_info["isBlindAppend"] is False
    assert commit_info["operationParameters"] == {
        "predicate": "[]",
        "zOrderBy": "[]",
        "clusterBy": "[]",
        "auto": "false",
    }
    assert commit_info["operationMetrics"]["numRemovedFiles"] == "4"
    assert commit_info["operationMetrics"]["numAddedFiles"] == "1"


def test_rows_stay_in_the_order_of_their_files() -> None:
    uri = new_uri()
    small_files(uri, files=5)
    opened(uri).optimize()
    (path,) = opened(uri).files()["path"].to_pylist()
    assert pq.read_table(pa.BufferReader(opened(uri).log.store.read(path)))["id"].to_pylist() == list(range(15))


def many_files(uri: str, files: int) -> None:
    """Files of three rows each, in one commit."""
    trilake.create(uri, pa.schema([("id", pa.int64()), ("p", pa.string())]), properties=VECTORS)
    transaction = trilake.Transaction(open_store(uri))
    for n in range(files):
        transaction.write(pa.table({"id": pa.array(range(3 * n, 3 * n + 3), pa.int64()), "p": ["p", None, "q"]}))
    transaction.commit("WRITE")


def test_very_many_files_keep_their_rows_and_order() -> None:
    """They are read some hundreds at a time, and files with deleted rows among them one by one."""
    uri = new_uri()
    many_files(uri, 1_000)
    opened(uri).delete("id in (100, 101, 2000)")
    files = opened(uri).files()
    expected = opened(uri).to_arrow()
    opened(uri).optimize()
    store = opened(uri).log.store
    (path,) = opened(uri).files()["path"].to_pylist()
    found = pq.read_table(pa.BufferReader(store.read(path)))
    assert found.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()
    firsts = [json.loads(s)["minValues"]["id"] // 3 for s in files["stats"].to_pylist()]
    order = list(dict.fromkeys(i // 3 for i in found["id"].to_pylist()))
    assert order == firsts


@pytest.mark.parametrize("kind", ["missing", "damaged"])
def test_one_bad_file_of_very_many_is_named_and_nothing_is_committed(kind: str) -> None:
    uri = new_uri()
    many_files(uri, 600)
    table = opened(uri)
    bad = table.files()["path"].to_pylist()[321]
    store = table.log.store
    if kind == "missing":
        store.delete([bad])
    else:
        data = bytearray(store.read(bad))
        data[30:50] = bytes(20)
        store.put(bad, bytes(data))
    error: type[TrilakeError] = MissingFileError if kind == "missing" else CorruptFileError
    before = sorted(m.key for m in store.list())
    with pytest.raises(error, match=bad):
        table.optimize()
    assert sorted(m.key for m in store.list()) == before


def test_nothing_to_do_is_no_commit() -> None:
    uri = new_uri()
    small_files(uri)
    opened(uri).optimize()
    done = opened(uri).optimize()
    assert done.version == 4
    assert (done.files_added, done.metrics.total_considered_files, done.metrics.total_files_skipped) == (0, 1, 1)
    assert done.metrics.files_added.min is None
    empty = new_uri()
    append(empty, pa.table({"id": pa.array([], pa.int64())}))
    assert opened(empty).optimize().version == 0


def test_metrics() -> None:
    uri = new_uri()
    small_files(uri, files=3, partition_by=["p"])
    before = opened(uri).files()["size"].to_pylist()
    m = opened(uri).optimize().metrics
    assert (m.num_files_removed, m.num_files_added, m.partitions_optimized, m.num_batches) == (6, 2, 2, 2)
    assert m.files_removed.total_size == sum(before)
    assert (m.files_removed.min, m.files_removed.max) == (min(before), max(before))
    assert m.files_added.avg == m.files_added.total_size / 2
    assert (m.num_table_columns, m.num_table_columns_with_stats) == (2, 2)
    assert m.z_order_stats is None
    assert m.clustering_stats is None
    assert m.start_time_ms <= m.end_time_ms


def test_sizes_choose_files_and_fill_bins() -> None:
    uri = new_uri()
    rng = np.random.default_rng(1)
    for count in (20_000, 100, 100, 100, 100, 20_000):
        append(uri, pa.table({"id": pa.array(rng.integers(0, 1 << 60, count))}))
    sizes = sorted(opened(uri).files()["size"].to_pylist())
    done = opened(uri).optimize(target_size=2 * sizes[0] + sizes[0] // 2)
    assert (done.files_removed, done.files_added) == (4, 2), "two bins of two small files each"
    assert done.metrics.total_files_skipped == 2
    whole = opened(uri).optimize(min_file_size=sizes[-1] // 2)
    assert (whole.files_removed, whole.files_added) == (2, 1), "large files are left alone"


def test_the_table_says_its_size() -> None:
    uri = new_uri()
    small_files(uri, properties={"delta.targetFileSize": "1"})
    assert opened(uri).optimize().files_added == 0
    assert opened(uri).optimize(target_size=1 << 20).files_added == 1


@given(sizes=st.lists(st.integers(0, 1 << 62), max_size=40), limit=st.integers(1, 1 << 62))
@example(sizes=[18014398509481470, 0, 515], limit=513)
@example(sizes=[0, 9008888089006237], limit=9008888079997347)
def test_bins_are_full_and_not_overfull(sizes: list[int], limit: int) -> None:
    bins = packed(np.array(sizes, dtype=np.int64), limit)
    assert [i for b in bins for i in range(b.start, b.stop)] == list(range(len(sizes)))
    for b in bins:
        # Sizes are added as doubles, as they must not wrap around.
        assert b.stop == b.start + 1 or sum(sizes[b]) <= limit * (1 + 1e-9) + 1


# --- partitions ------------------------------------------------------------------------------------------------------


def test_a_condition_chooses_partitions() -> None:
    uri = new_uri()
    small_files(uri, partition_by=["p"])
    done = opened(uri).optimize("p = 'p1'")
    assert (done.files_removed, done.files_added, done.metrics.total_considered_files) == (4, 1, 4)
    assert sorted(opened(uri).files()["num_records"].to_pylist()) == [1, 1, 2, 2, 6]
    assert json.loads(actions(uri)[0]["commitInfo"]["operationParameters"]["predicate"]) == ["p = 'p1'"]
    assert ids(uri) == list(range(12))


@pytest.mark.parametrize(("partition", "columns"), [((), "[]"), (("p",), "[p]")])
def test_a_condition_on_other_columns_is_refused(partition: tuple[str, ...], columns: str) -> None:
    uri = new_uri()
    small_files(uri, partition_by=partition)
    with pytest.raises(InvalidArgumentError) as e:
        opened(uri).optimize("id = 1")
    assert (
        "Predicate references non-partition column 'id'. "
        f"Only the partition columns may be referenced: {columns}" in str(e.value)
    )


def test_partition_values_stay_as_they_are_spelled() -> None:
    """Values that another writer spells in its own way are not read and written, but kept."""
    uri = new_uri()
    when = pa.table({"id": pa.array([1, 2]), "t": pa.array([0, None], pa.timestamp("us", "UTC"))})
    for _ in range(2):
        append(uri, when, partition_by=["t"])
    log = opened(uri).log
    snapshot = log.snapshot()
    adds = snapshot.adds.to_pylist()
    spelled = [
        {**{k: v for k, v in a.items() if v is not None}, "tags": {}, "partitionValues": {"t": "1970-01-01T00:00:00Z"}}
        for a in adds
        if dict(a["partitionValues"])["t"] is not None
    ]
    changes = [{"add": a} for a in spelled]
    commit(log, snapshot, CommitPlan("TEST", {}, [*(remove_action(a, 0) for a in spelled), *changes]))
    assert opened(uri).optimize().files_added == 2
    values = {dict(v)["t"] for v in opened(uri).files()["partition_values"].to_pylist()}
    assert values == {None, "1970-01-01T00:00:00Z"}
    assert sorted(opened(uri).to_arrow(filter="t = timestamp '1970-01-01 00:00:00Z'")["id"].to_pylist()) == [1, 1]


# --- rows are what they were -----------------------------------------------------------------------------------------


def test_deleted_rows_go_for_good() -> None:
    uri = new_uri()
    small_files(uri, files=2, each=10, properties=VECTORS)
    delete(uri, "id in (1, 2, 11)")
    done = opened(uri).optimize()
    assert done.metrics.deletion_vector_stats is not None
    assert done.metrics.deletion_vector_stats.num_deletion_vectors_removed == 2
    assert done.metrics.deletion_vector_stats.num_deletion_vector_rows_removed == 3
    (add,) = opened(uri).snapshot.adds.to_pylist()
    assert add["deletionVector"] is None
    assert json.loads(add["stats"])["numRecords"] == 17
    assert ids(uri) == [i for i in range(20) if i not in (1, 2, 11)]
    (removed, *_) = [a["remove"] for a in actions(uri) if "remove" in a]
    assert removed["deletionVector"]["cardinality"] == 2


@pytest.mark.parametrize(("share", "written"), [(0.05, 1), (0.5, 0)])
def test_a_lone_file_is_written_again_for_many_deleted_rows(share: float, written: int) -> None:
    uri = new_uri()
    small_files(uri, files=1, each=10, properties=VECTORS)
    delete(uri, "id < 3")
    assert opened(uri).optimize(deleted_share=share).files_added == written


def test_purge_takes_files_with_deleted_rows_alone() -> None:
    uri = new_uri()
    small_files(uri, files=3, each=100, properties=VECTORS)
    delete(uri, "id = 5")
    done = opened(uri).purge()
    assert (done.files_removed, done.files_added) == (1, 1)
    info = actions(uri)[0]["commitInfo"]
    assert info["operation"] == "REORG"
    assert info["operationParameters"] == {"predicate": "[]", "applyPurge": "true"}
    assert opened(uri).snapshot.adds["deletionVector"].null_count == 3
    assert opened(uri).purge().version == done.version
    assert ids(uri) == [i for i in range(300) if i != 5]


def test_purge_takes_dropped_columns_out() -> None:
    uri = new_uri()
    small_files(uri, files=2, properties={**TRACKED, "delta.columnMapping.mode": "name"})
    table = opened(uri)
    dropped = next(f.physical_name for f in table.snapshot.schema.fields if f.name == "p")
    Alter(table.log).drop_columns("p")
    append(uri, pa.table({"id": [100]}))
    snapshot = table.log.snapshot()
    assert len(purgeable(table.log.store, snapshot)) == 2
    assert opened(uri).purge().files_removed == 2
    assert opened(uri).purge().files_removed == 0, "columns with ids of rows are no dropped columns"
    for path in opened(uri).files()["path"].to_pylist():
        assert dropped not in pq.read_schema(pa.BufferReader(table.log.store.read(path))).names
    assert ids(uri) == [*range(6), 100]


def test_rows_keep_their_ids() -> None:
    uri = new_uri()
    small_files(uri, files=3, properties=TRACKED)
    opened(uri).optimize()
    small_files(uri, files=1)
    opened(uri).optimize()
    snapshot = opened(uri).snapshot
    (add,) = snapshot.adds.to_pylist()
    names = [snapshot.metadata.configuration[k] for k in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN)]
    raw = pq.read_table(pa.BufferReader(opened(uri).log.store.read(add["path"])))
    # The first optimization took ids 9 to 17 for its file, which no row of it uses.
    assert raw[names[0]].to_pylist() == [*range(9), 18, 19, 20]
    assert raw[names[1]].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert add["defaultRowCommitVersion"] == 5


def test_the_change_feed_has_nothing_of_it() -> None:
    uri = new_uri()
    small_files(uri, files=3, properties={**FEED, **VECTORS})
    delete(uri, "id = 1")
    before = opened(uri).changes(0).num_rows
    version = opened(uri).optimize().version
    opened(uri).purge()
    assert opened(uri).changes(version).num_rows == 0
    assert opened(uri).changes(0).num_rows == before == 10


def test_identity_values_and_rules_are_left_alone() -> None:
    uri = new_uri()
    trilake.create(uri, {"id": "bigint", "v": "bigint"}, identity=["id"])
    for n in range(3):
        append(uri, pa.table({"v": [n, n]}))
    before, metadata = rows(opened(uri).to_arrow()), opened(uri).metadata
    assert opened(uri).optimize().files_removed == 3
    assert rows(opened(uri).to_arrow()) == before
    assert opened(uri).metadata == metadata


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns(mode: str) -> None:
    uri = new_uri()
    small_files(uri, files=2, partition_by=["p"], properties={"delta.columnMapping.mode": mode})
    Alter(opened(uri).log).rename_column("id", "number")
    Alter(opened(uri).log).add_columns({"note": "string"})
    append(uri, pa.table({"number": [50], "p": ["p0"], "note": ["x"]}))
    before = rows(opened(uri).to_arrow())
    assert opened(uri).optimize().files_added == 2
    assert rows(opened(uri).to_arrow()) == before
    assert opened(uri).count("number = 50 and note = 'x'") == 1
    assert sorted(opened(uri).files("number = 50")["num_records"].to_pylist()) == [4]


def test_files_older_than_a_column_and_a_type() -> None:
    uri = new_uri()
    append(uri, pa.table({"n": pa.array([1, 2], pa.int32())}), properties={"delta.enableTypeWidening": "true"})
    Alter(opened(uri).log).change_type("n", "bigint")
    Alter(opened(uri).log).add_columns({"s": "struct<a: int, b: array<string>>"})
    nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    append(uri, pa.table({"n": [1 << 40], "s": pa.array([{"a": 1, "b": ["x", None]}], nested)}))
    before = rows(opened(uri).to_arrow())
    opened(uri).optimize()
    assert rows(opened(uri).to_arrow()) == before
    (path,) = opened(uri).files()["path"].to_pylist()
    assert pq.read_schema(pa.BufferReader(opened(uri).log.store.read(path))).field("n").type == pa.int64()


def test_nan_comes_to_rest() -> None:
    """A file with a NaN has no bounds of its column; files with and without become one, once."""
    uri = new_uri()
    columns = {"x": 1.0, "y": 1.0, "z": None}
    schema = pa.schema([(n, pa.float64()) for n in columns])
    for n in range(4):
        found = {**columns, "y": float("nan") if n == 2 else float(n)}
        append(uri, pa.Table.from_pylist([found], schema))
    assert opened(uri).optimize().files_added == 1
    (text,) = opened(uri).files()["stats"].to_pylist()
    assert set(json.loads(text)["maxValues"]) == {"x"}
    assert opened(uri).optimize().files_added == 0
    assert sorted(map(str, opened(uri).to_arrow()["y"].to_pylist())) == ["0.0", "1.0", "3.0", "nan"]
    assert opened(uri).count("y > 2") == 2, "NaN is greater than all else"


@pytest.mark.parametrize("provider", ["trevni", "lance"])
def test_files_of_another_format(provider: str) -> None:
    uri = new_uri()
    small_files(uri, files=3, data_format=provider)
    assert opened(uri).optimize().files_added == 1
    assert ids(uri) == list(range(9))
    assert opened(uri).optimize(zorder_by="id").files_removed == 1
    (path,) = opened(uri).files()["path"].to_pylist()
    assert path.endswith(provider)
    assert ids(uri) == list(range(9))


#: A step of a random history: append so many rows, delete a remainder, or optimize in some way.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 20)),
        st.tuples(st.just("delete"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["optimize", "purge", "zorder"]), st.integers(1, 5000)),
    ),
    min_size=3,
    max_size=8,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    vectors=st.booleans(),
    tracked=st.booleans(),
    mapped=st.sampled_from(["none", "name"]),
    partitioned=st.booleans(),
)
def test_random_tables_keep_their_rows(
    steps: list[tuple[str, int]], vectors: bool, tracked: bool, mapped: str, partitioned: bool
) -> None:
    uri = new_uri()
    properties = {**(VECTORS if vectors else {}), **(TRACKED if tracked else {}), "delta.columnMapping.mode": mapped}
    expected: list[dict[str, Any]] = []

    def more(count: int) -> None:
        start = len(expected) * 7
        new = [
            {"id": start + i, "p": None if i % 3 == 0 else f"p/{i % 3}", "x": None if i % 5 == 0 else i / 3}
            for i in range(count)
        ]
        schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("x", pa.float64())])
        append(
            uri,
            pa.Table.from_pylist(new, schema),
            partition_by=["p"] if partitioned else None,
            properties=None if expected or opened_once else properties,
        )
        opened_once.append(1)
        expected.extend(new)

    opened_once: list[int] = []
    more(5)
    for kind, number in steps:
        if kind == "append":
            more(number)
        elif kind == "delete":
            delete(uri, f"id % 7 = {number}")
            expected[:] = [r for r in expected if r["id"] % 7 != number]
        elif kind == "optimize":
            opened(uri).optimize(target_size=number)
        elif kind == "zorder":
            opened(uri).optimize(zorder_by=("id", "x"), target_size=number)
        else:
            opened(uri).purge()
        assert rows(opened(uri).to_arrow()) == sorted(expected, key=repr)
    version = opened(uri).optimize(target_size=1 << 20).version
    assert opened(uri).optimize(target_size=1 << 20).version == version, "a second run finds nothing to do"
    assert rows(opened(uri).to_arrow()) == sorted(expected, key=repr)


def test_others_read_what_is_written(tmp_path: Any) -> None:
    uri = str(tmp_path)
    small_files(uri, files=3, partition_by=["p"])
    opened(uri).optimize()
    append(uri, pa.table({"id": [100], "p": ["p0"]}))
    opened(uri).optimize(zorder_by="id")
    expected = rows(opened(uri).to_arrow())
    assert rows(TheirTable(uri).to_pyarrow_table()) == expected
    assert rows(pl.read_delta(uri).to_arrow().cast(opened(uri).schema)) == expected
    assert TheirTable(uri).history(1)[0]["operation"] == "OPTIMIZE"


def test_what_they_optimized_is_read(tmp_path: Any) -> None:
    uri = str(tmp_path)
    small_files(uri, files=3)
    TheirTable(uri).optimize.compact()
    assert ids(uri) == list(range(9))
    assert opened(uri).optimize().files_added == 0


# --- beside other writers --------------------------------------------------------------------------------------------


def meanwhile(uri: str, other: Callable[[], None], request: OptimizeRequest | None = None) -> Any:
    """Optimize, while another writer commits after the files were read."""
    log = DeltaLog(open_store(uri), standard_engine())

    def run(function: Any, tasks: Any) -> Any:
        found = list(run_here(function, tasks))
        other()
        return found

    return optimize(log, request or OptimizeRequest(), run=run)


def data_files(uri: str) -> set[str]:
    return {o.key for o in open_store(uri).list() if o.key.endswith(".parquet") and not o.key.startswith("_")}


def test_an_append_is_no_conflict() -> None:
    uri = new_uri()
    small_files(uri, files=2)
    Alter(opened(uri).log).set_properties({"delta.isolationLevel": "Serializable"})
    done = meanwhile(uri, lambda: small_files(uri, files=1))
    assert done.version == 4
    assert opened(uri).files().num_rows == 2
    assert ids(uri) == [0, 0, 1, 1, 2, 2, 3, 4, 5]


def test_an_append_that_takes_identity_values_is_no_conflict() -> None:
    uri = new_uri()
    trilake.create(uri, {"id": "bigint", "v": "bigint"}, identity=["id"])
    for n in range(2):
        append(uri, pa.table({"v": [n]}))
    meanwhile(uri, lambda: append(uri, pa.table({"v": [2]})))
    append(uri, pa.table({"v": [3]}))
    assert ids(uri) == [1, 2, 3, 4]
    assert opened(uri).files().num_rows == 3

    def both() -> None:
        append(uri, pa.table({"v": [4]}))
        Alter(opened(uri).log).set_properties({"team": "x"})

    assert meanwhile(uri, both).files_removed == 3
    assert ids(uri) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_a_delete_of_all_that_was_read_is_a_conflict(properties: dict[str, str]) -> None:
    uri = new_uri()
    small_files(uri, files=2, properties=properties)
    before = data_files(uri)
    with pytest.raises(ConcurrentDeleteReadError):
        meanwhile(uri, lambda: delete(uri, "id in (1, 4)"))
    assert ids(uri) == [0, 2, 3, 5]
    left = data_files(uri) - before - set(opened(uri).files()["path"].to_pylist())
    assert left == set(), "the files of the optimization are gone"


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_bins_that_nobody_touched_are_committed(properties: dict[str, str]) -> None:
    uri = new_uri()
    small_files(uri, files=3, partition_by=["p"], properties=properties)
    done = meanwhile(uri, lambda: delete(uri, "p = 'p1' and id = 1"))
    assert (done.files_removed, done.files_added, done.metrics.partitions_optimized) == (3, 1, 1)
    assert ids(uri) == [0, *range(2, 9)]
    live = set(opened(uri).files()["path"].to_pylist())
    assert {p for p in data_files(uri) if p.startswith("p=p1")} >= {p for p in live if p.startswith("p=p1")}
    assert opened(uri).count("p = 'p0'") == 5


def test_a_table_that_was_emptied_is_a_conflict() -> None:
    uri = new_uri()
    small_files(uri, files=2)
    with pytest.raises(ConflictError):
        meanwhile(uri, lambda: delete(uri, "id >= 0"))
    assert ids(uri) == []


def test_a_vector_elsewhere_does_not_matter() -> None:
    uri = new_uri()
    small_files(uri, files=3, each=4, partition_by=["p"], properties=VECTORS)
    done = meanwhile(uri, lambda: delete(uri, "id = 1"))
    assert opened(uri).snapshot.adds["deletionVector"].null_count == 3
    assert (done.files_removed, done.files_added, done.metrics.partitions_optimized) == (3, 1, 1)
    assert ids(uri) == [0, *range(2, 12)]


def test_properties_may_change_and_columns_may_not() -> None:
    uri = new_uri()
    small_files(uri, files=2)
    assert meanwhile(uri, lambda: _ignore(Alter(opened(uri).log).set_properties({"team": "x"}))).version == 3
    small_files(uri, files=1)
    with pytest.raises(ConflictError):
        meanwhile(uri, lambda: _ignore(Alter(opened(uri).log).add_columns({"c": "int"})))
    assert opened(uri).optimize().files_added == 1


def _ignore(_: object) -> None:
    """A version that is of no interest."""


def test_two_optimizations_do_not_both_win() -> None:
    uri = new_uri()
    small_files(uri, files=3)
    with pytest.raises(ConflictError):
        meanwhile(uri, lambda: _ignore(opened(uri).optimize()))
    assert opened(uri).files().num_rows == 1
    assert ids(uri) == list(range(9))


def test_rows_changed_by_others_are_a_conflict_for_them_too() -> None:
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


def test_a_file_that_cannot_be_read_leaves_nothing_behind() -> None:
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


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"target_size": 0}, "target_size"),
        ({"min_file_size": -1}, "min_file_size"),
        ({"deleted_share": 2.0}, "deleted_share"),
        ({"full": True}, "clustering columns"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], says: str) -> None:
    uri = new_uri()
    small_files(uri, files=2)
    with pytest.raises(InvalidArgumentError, match=says):
        opened(uri).optimize(**arguments)


def test_append_only_tables_are_optimized() -> None:
    uri = new_uri()
    small_files(uri, properties={"delta.appendOnly": "true"})
    assert opened(uri).optimize().files_added == 1


def test_progress_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int | None]] = []

    def watched(label: str, total: int | None = None, **more: Any) -> Any:
        manager = progress(label, total, file=io.StringIO(), **more)

        class Watched:
            def __enter__(self) -> Any:
                self.bar = manager.__enter__()
                return self.bar

            def __exit__(self, *error: Any) -> Any:
                seen.append((self.bar.done, self.bar.total))
                return manager.__exit__(*error)

        return Watched()

    monkeypatch.setattr("trilake.delta.commands.optimize.run.progress", watched)
    uri = new_uri()
    small_files(uri, partition_by=["p"])
    opened(uri).optimize()
    assert seen == [(8, 8)]


def test_a_result_shows_what_it_did() -> None:
    uri = "memory://optimize-shows"
    for n in range(3):
        trilake.write(pa.table({"n": [n]}), uri, mode="append")
    table: Any = trilake.open(uri)
    assert repr(table.optimize()).startswith("<OPTIMIZE version 3: 3 files became 1, 0.0 MB became 0.0 MB; ")
    assert repr(table.optimize()) == "<OPTIMIZE version 3: nothing to do>"
    table.vacuum(dry_run=True)
    assert repr(table.vacuum(0, dry_run=True, enforce_retention=False)) == "<VACUUM: 3 files, 0.0 MB would be deleted>"
    assert repr(table.vacuum(0, enforce_retention=False)).endswith(": 3 files, 0.0 MB deleted>")
