"""Compaction and purge: which files are rewritten, and the reported metrics."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import trilake
from tests.delta.commands.optimize.optimize_tables import VECTORS, actions, append, ids, small_files
from tests.delta.tables import new_uri, opened
from trilake.common.progress import progress
from trilake.delta.commands.optimize.bins import packed
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.errors import CorruptFileError, InvalidArgumentError, MissingFileError, TrilakeError
from trilake.storage import open_store

# --- compaction ------------------------------------------------------------------------------------------------------


def test_small_files_are_compacted() -> None:
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


def test_rows_keep_the_order_of_their_files() -> None:
    uri = new_uri()
    small_files(uri, files=5)
    opened(uri).optimize()
    (path,) = opened(uri).files()["path"].to_pylist()
    assert pq.read_table(pa.BufferReader(opened(uri).log.store.read(path)))["id"].to_pylist() == list(range(15))


def many_files(uri: str, files: int) -> None:
    """Write files with three rows each in one commit."""
    trilake.create(uri, pa.schema([("id", pa.int64()), ("p", pa.string())]), properties=VECTORS)
    transaction = trilake.Transaction(open_store(uri))
    for n in range(files):
        transaction.write(pa.table({"id": pa.array(range(3 * n, 3 * n + 3), pa.int64()), "p": ["p", None, "q"]}))
    transaction.commit("WRITE")


def test_many_files_keep_their_rows_and_order() -> None:
    """Hundreds of files are read at a time, and files with deleted rows separately."""
    uri = new_uri()
    many_files(uri, 1_000)
    opened(uri).delete("id in (100, 101, 2000)")
    files = opened(uri).files()
    expected = opened(uri).to_arrow()
    opened(uri).optimize()
    store = opened(uri).log.store
    (path,) = opened(uri).files()["path"].to_pylist()
    result = pq.read_table(pa.BufferReader(store.read(path)))
    assert result.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()
    firsts = [json.loads(s)["minValues"]["id"] // 3 for s in files["stats"].to_pylist()]
    order = list(dict.fromkeys(i // 3 for i in result["id"].to_pylist()))
    assert order == firsts


@pytest.mark.parametrize("kind", ["missing", "damaged"])
def test_bad_file_is_named_and_nothing_is_committed(kind: str) -> None:
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


def test_optimize_without_work_does_not_commit() -> None:
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


def test_optimize_metrics() -> None:
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


def test_files_are_chosen_and_packed_by_size() -> None:
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


def test_target_size_comes_from_the_table() -> None:
    uri = new_uri()
    small_files(uri, properties={"delta.targetFileSize": "1"})
    assert opened(uri).optimize().files_added == 0
    assert opened(uri).optimize(target_size=1 << 20).files_added == 1


@given(sizes=st.lists(st.integers(0, 1 << 62), max_size=40), limit=st.integers(1, 1 << 62))
@example(sizes=[18014398509481470, 0, 515], limit=513)
@example(sizes=[0, 9008888089006237], limit=9008888079997347)
def test_bins_never_exceed_the_limit(sizes: list[int], limit: int) -> None:
    bins = packed(np.array(sizes, dtype=np.int64), limit)
    assert [i for b in bins for i in range(b.start, b.stop)] == list(range(len(sizes)))
    for b in bins:
        # Sizes are summed as doubles to avoid overflow.
        assert b.stop == b.start + 1 or sum(sizes[b]) <= limit * (1 + 1e-9) + 1


# --- partitions ------------------------------------------------------------------------------------------------------


def test_where_selects_partitions() -> None:
    uri = new_uri()
    small_files(uri, partition_by=["p"])
    done = opened(uri).optimize("p = 'p1'")
    assert (done.files_removed, done.files_added, done.metrics.total_considered_files) == (4, 1, 4)
    assert sorted(opened(uri).files()["num_records"].to_pylist()) == [1, 1, 2, 2, 6]
    assert json.loads(actions(uri)[0]["commitInfo"]["operationParameters"]["predicate"]) == ["p = 'p1'"]
    assert ids(uri) == list(range(12))


@pytest.mark.parametrize(("partition", "columns"), [((), "[]"), (("p",), "[p]")])
def test_where_on_data_columns_is_rejected(partition: tuple[str, ...], columns: str) -> None:
    uri = new_uri()
    small_files(uri, partition_by=partition)
    with pytest.raises(InvalidArgumentError) as e:
        opened(uri).optimize("id = 1")
    assert (
        "Predicate references non-partition column 'id'. "
        f"Only the partition columns may be referenced: {columns}" in str(e.value)
    )


def test_partition_value_spelling_is_kept() -> None:
    """Values spelled differently by another writer are copied, not parsed and reformatted."""
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
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], says: str) -> None:
    uri = new_uri()
    small_files(uri, files=2)
    with pytest.raises(InvalidArgumentError, match=says):
        opened(uri).optimize(**arguments)


def test_append_only_table_can_be_optimized() -> None:
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

    monkeypatch.setattr("trilake.delta.commands.optimize.rewrite.progress", watched)
    uri = new_uri()
    small_files(uri, partition_by=["p"])
    opened(uri).optimize()
    assert seen == [(8, 8)]


def test_repr_of_results_shows_the_work() -> None:
    uri = "memory://optimize-shows"
    for n in range(3):
        trilake.write(pa.table({"n": [n]}), uri, mode="append")
    table: Any = trilake.open(uri)
    assert re.match(r"<OPTIMIZE version 3: 3 files -> 1, [\d.]+ k?B -> [\d.]+ k?B; ", repr(table.optimize()))
    assert repr(table.optimize()) == "<OPTIMIZE version 3: nothing to do>"
    planned = repr(table.vacuum(0, enforce_retention=False))
    assert re.fullmatch(r"<VACUUM: 3 files, [\d.]+ k?B would be deleted>", planned)
    done = repr(table.vacuum(0, dry_run=False, enforce_retention=False))
    assert re.search(r": 3 files, [\d.]+ k?B deleted>$", done)
