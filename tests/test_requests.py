"""Requests of table operations on an object store, counted at the server.

Each number is the smallest so far.  A larger one is a regression; record a smaller one here and in
docs/internals/benchmarks.md.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from bench.logs.delta_logs import long_table
from tests.s3_server import Request, S3Server
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.table import ArrowDeltaTable
from trilake.lance.commands import write
from trilake.storage import open_store
from trilake.storage.base import ObjectMeta
from trilake.storage.object import ObjectStore, UploadWriter

_UNIQUE = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|[0-9a-f]{24,}")


def rows(count: int, first: int = 0) -> pa.Table:
    """``id`` ascending, ``x`` incompressible, a string, and a number below 100."""
    random = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    x = random.random(count)
    return pa.table({"id": ids, "x": x, "s": x.astype("U12"), "k": ids % 100})


class Trace:
    """The server's requests since the last :meth:`of`."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.options = dict(server.options)
        self.requests: list[Request] = []

    def of(self, call: Callable[[], Any]) -> Any:
        """The result of a call, after recording its requests."""
        self.server.requests.clear()
        result = call()
        self.requests = list(self.server.requests)
        return result

    @property
    def counts(self) -> dict[str, int]:
        """Requests by kind."""
        return dict(Counter(r.kind for r in self.requests))

    @property
    def text(self) -> list[str]:
        """Each request as a string without random name parts, in an order that does not depend on the timing of
        parallel requests."""
        return sorted(f"{r.kind} {_UNIQUE.sub('*', r.key.partition('/')[2])}" for r in self.requests)

    @property
    def fetched(self) -> int:
        """Object bytes read."""
        return sum(r.size for r in self.requests if r.kind == "GET")


@pytest.fixture
def trace(s3: S3Server) -> Trace:
    return Trace(s3)


@pytest.fixture(scope="module")
def table(s3: S3Server) -> str:
    """A Delta table of thirteen commits, with a checkpoint at the eleventh."""
    uri = "s3://lake/requests-delta"
    for i in range(13):
        trilake.write(rows(1000, i * 1000), uri, mode="append", storage_options=dict(s3.options))
    return uri


def _open(uri: str, trace: Trace, **how: Any) -> ArrowDeltaTable:
    return trace.of(lambda: trilake.open(uri, storage_options=trace.options, **how))


OPEN = [
    "GET _delta_log/00000000000000000010.checkpoint.parquet",
    "GET _delta_log/00000000000000000011.json",
    "GET _delta_log/00000000000000000012.json",
    "GET _delta_log/_last_checkpoint",
    "LIST _delta_log/",
]


@pytest.mark.parametrize("format", ["delta", None])
def test_open_delta_table_fetches_each_log_file_once(table: str, trace: Trace, format: str | None) -> None:
    _open(table, trace, format=format)
    assert trace.text == OPEN
    ours = len(trace.requests)
    trace.of(lambda: deltalake.DeltaTable(table, storage_options=trace.options))
    assert ours <= len(trace.requests)


def _meet(monkeypatch: pytest.MonkeyPatch, of: dict[str, str], count: int) -> list[str]:
    """Block store methods for keys that contain a string until ``count`` calls arrived; the keys that did."""
    barrier, met = threading.Barrier(count), []

    def waiting(method: str, text: str) -> None:
        call = getattr(ObjectStore, method)

        def meet(self: ObjectStore, key: str, *args: Any, **how: Any) -> Any:
            if text in key:
                barrier.wait(10)
                met.append(key)
            return call(self, key, *args, **how)

        monkeypatch.setattr(ObjectStore, method, meet)

    for method, text in of.items():
        waiting(method, text)
    return met


def test_checkpoint_and_later_commits_are_fetched_in_parallel(
    table: str, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = _meet(monkeypatch, {"read": "/000", "read_sized": ".checkpoint."}, 3)
    _open(table, trace)
    assert trace.text == OPEN
    assert len(met) == 3


def test_reading_a_store_creates_one_client(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make = obstore.store.from_url
    monkeypatch.setattr(obstore.store, "from_url", lambda *args, **how: made.append(1) or make(*args, **how))
    options = {**s3.options, "user_agent": "a client of this test alone"}
    store = open_store("s3://lake/requests-clients", options)
    assert list(store.list()) == []
    store.put("x", b"x")
    assert len(made) == 1
    store.put_if_absent("y", b"y")
    store.put_if_absent("z", b"z")
    assert len(made) == 2
    assert len(list(open_store("s3://lake/requests-clients", options).list())) == 3
    assert len(made) == 2


def test_partition_files_are_uploaded_in_parallel(s3: S3Server, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, count = "s3://lake/requests-partitions", ObjectStore.writes_at_once
    barrier, put = threading.Barrier(count), UploadWriter._publish

    def publish(self: UploadWriter) -> None:
        barrier.wait(10)
        put(self)

    monkeypatch.setattr(UploadWriter, "_publish", publish)
    rows = pa.table({"p": range(2 * count), "x": range(2 * count)})
    trace.of(lambda: trilake.write(rows, uri, partition_by="p", storage_options=trace.options))
    assert trace.counts["PUT"] == 2 * count + 1


def test_small_partitions_are_optimized_in_parallel(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition per processor was optimized at a time, and most of the time waited for requests."""
    uri, count = "s3://lake/requests-optimize", 8
    rows = pa.table({"p": range(2 * count), "x": range(2 * count)})
    for _ in range(2):
        trilake.write(rows, uri, mode="append", partition_by="p", storage_options=s3.options)
    barrier, put = threading.Barrier(count), UploadWriter._publish

    def publish(self: UploadWriter) -> None:
        barrier.wait(10)
        put(self)

    monkeypatch.setattr(UploadWriter, "_publish", publish)
    table = trilake.open(uri, format="delta", storage_options=s3.options)
    table.optimize()
    assert table.refresh().files().num_rows == 2 * count


def test_restored_files_are_checked_in_parallel(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, count = "s3://lake/requests-restore", 8
    rows = pa.table({"p": range(count), "x": range(count)})
    trilake.write(rows, uri, partition_by="p", storage_options=s3.options)
    table = trilake.open(uri, format="delta", storage_options=s3.options)
    table.delete("p >= 0")
    barrier, head = threading.Barrier(count), ObjectStore.head

    def meet(self: ObjectStore, key: str) -> ObjectMeta:
        if key.endswith(".parquet"):
            barrier.wait(10)
        return head(self, key)

    monkeypatch.setattr(ObjectStore, "head", meet)
    table.restore(0)
    assert table.to_arrow().num_rows == count


def test_old_version_is_read_without_later_commits(table: str, trace: Trace) -> None:
    _open(table, trace, format="delta", version=3)
    assert trace.counts == {"GET": 5, "LIST": 1}  # the hint, and four commits


def test_refresh_lists_once_and_reads_new_commits(table: str, trace: Trace) -> None:
    opened = _open(table, trace)
    trace.of(opened.refresh)
    assert trace.text == ["LIST _delta_log/"]


def test_counts_and_plans_need_no_requests(table: str, trace: Trace) -> None:
    opened = _open(table, trace)
    trace.of(opened.count)
    trace.of(lambda: opened.files("id = 5005"))
    assert trace.requests == []
    assert trace.of(lambda: opened.to_arrow(["x"], "id = 5005")).num_rows == 1
    assert trace.counts == {"GET": 1}


def test_history_reads_only_shown_commits(table: str, trace: Trace) -> None:
    opened = _open(table, trace)
    trace.of(lambda: opened.history(2))
    assert trace.text == [
        "GET _delta_log/00000000000000000011.json",
        "GET _delta_log/00000000000000000012.json",
        "LIST _delta_log/",
    ]


def test_append_reads_the_snapshot_and_writes_two_objects(s3: S3Server, trace: Trace) -> None:
    uri = "s3://lake/requests-append"
    for i in range(11):
        trilake.write(rows(10, i), uri, mode="append", storage_options=trace.options)
    trace.of(lambda: trilake.write(rows(10), uri, mode="append", storage_options=trace.options))
    assert trace.text == [
        "GET _delta_log/00000000000000000010.checkpoint.parquet",
        "GET _delta_log/_last_checkpoint",
        "HEAD _delta_log/00000000000000000010.checkpoint.parquet",  # is it still that table?
        "LIST _delta_log/",
        next(t for t in trace.text if t.startswith("PUT _delta_log/00000000000000000011.json")),
        next(t for t in trace.text if t.startswith("PUT part-")),
    ]
    commits = [r for r in trace.requests if r.key.endswith("11.json")]
    assert [r.condition for r in commits] == ["if absent"]
    ours = len(trace.requests)
    trace.of(lambda: deltalake.write_deltalake(uri, rows(10), mode="append", storage_options=trace.options))
    assert ours <= len(trace.requests)


def test_append_to_many_files_fetches_no_file_actions(s3: S3Server, trace: Trace, tmp_path: Path) -> None:
    uri = "s3://lake/requests-many"
    long_table(tmp_path, files=100_000, commits=1, added=3)
    store = open_store(uri, trace.options)
    for file in (tmp_path / "_delta_log").iterdir():
        store.put(f"_delta_log/{file.name}", file.read_bytes())
    size = (tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet").stat().st_size
    row = pa.table({"a": pa.array([1], pa.int64()), "s": ["x"], "month": pa.array([1], pa.int32())})
    trace.of(lambda: trilake.write(row, uri, mode="append", storage_options=trace.options))
    of_checkpoint = [r for r in trace.requests if r.key.endswith(".checkpoint.parquet")]
    assert len(of_checkpoint) <= 2
    assert sum(r.size for r in of_checkpoint) < 300_000 < size / 5
    opened = _open(uri, trace)
    ours = len(trace.requests)
    assert opened.files("a = 50000").num_rows == 1001
    trace.of(lambda: deltalake.DeltaTable(uri, storage_options=trace.options))
    assert ours <= len(trace.requests)


# --- a large file -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(s3: S3Server) -> str:
    """A table of one file of 200,000 rows in five row groups, and with deletion vectors."""
    uri, options = "s3://lake/requests-large", dict(s3.options)
    sink = pa.BufferOutputStream()
    pq.write_table(rows(200_000), sink, row_group_size=40_000)
    open_store(uri, options).put("part-0.parquet", sink.getvalue())
    properties = {"delta.enableDeletionVectors": "true"}
    trilake.convert_to_delta(uri, properties=properties, storage_options=options)
    return uri


def test_scan_fetches_the_footer_and_requested_columns(large: str, trace: Trace) -> None:
    opened = _open(large, trace)
    size = opened.files()["size"][0].as_py()
    assert size > 4_000_000
    assert trace.of(lambda: opened.to_arrow(["k"])).num_rows == 200_000
    first, *others = trace.requests
    assert first.condition == "bytes=-262144"
    assert len(others) <= 5
    assert trace.fetched < 262_144 + size // 8
    assert trace.of(lambda: opened.to_arrow(["x"], "id = 70000")).num_rows == 1
    assert trace.counts == {"GET": 2}  # the two columns of the only matching row group are adjacent
    assert trace.fetched < 262_144 + size // 5


def test_delete_by_vectors_reads_one_column(large: str, trace: Trace) -> None:
    opened = _open(large, trace)
    assert trace.of(lambda: opened.delete("id % 1000 = 7")).rows == 200
    assert Counter(r.kind for r in trace.requests if r.kind != "GET") == {"HEAD": 1, "LIST": 1, "PUT": 2}
    assert len([r for r in trace.requests if r.kind == "GET"]) <= 6
    assert sum(r.size for r in trace.requests if r.kind == "PUT") < 10_000
    opened = opened.refresh()
    trace.of(lambda: opened.count("k = 1"))
    vectors = [r for r in trace.requests if "deletion_vector" in r.key]
    assert [r.kind for r in vectors] == ["GET"]


def test_merge_lists_the_log_once_and_reads_join_columns(large: str, trace: Trace) -> None:
    opened = _open(large, trace).refresh()
    source = pa.table({"id": [1, 2, 10**9], "x": [0.0, 0.0, 0.0], "s": ["", "", ""], "k": [0, 0, 0]})
    merge = opened.merge(source, "source.id = target.id").when_matched_update_all().when_not_matched_insert_all()
    assert trace.of(merge.execute).num_inserted_rows == 1
    assert trace.counts["LIST"] == 1
    assert trace.counts["PUT"] == 3
    assert trace.counts["HEAD"] == 1  # is it still that table?
    assert not any(r.key.endswith("_last_checkpoint") for r in trace.requests)


# --- Lance ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dataset(s3: S3Server) -> str:
    uri = "s3://lake/requests-lance"
    lance.write_dataset(rows(20_000), uri, storage_options=dict(s3.options))
    return uri


def test_open_dataset_lists_and_reads_a_manifest(dataset: str, trace: Trace) -> None:
    trace.of(lambda: lance.dataset(dataset, storage_options=trace.options))
    assert trace.text == ["GET _versions/18446744073709551614.manifest", "LIST _versions/"]
    trace.of(lambda: trilake.open(dataset, storage_options=trace.options))
    assert trace.text == [
        "GET _delta_log/_last_checkpoint",
        "GET _versions/18446744073709551614.manifest",
        "LIST _delta_log/",
        "LIST _versions/",
    ]


def test_take_needs_two_rounds_after_the_file_footer(dataset: str, trace: Trace) -> None:
    opened = lance.dataset(dataset, storage_options=trace.options)
    trace.of(lambda: opened.take([1, 5000, 19_999]))
    assert trace.counts["GET"] <= 7
    assert set(trace.counts) == {"GET"}
    assert trace.of(lambda: opened.take([2, 6000], ["x"])).num_rows == 2
    assert trace.counts == {"GET": 1}


def test_take_reads_several_fragments_in_parallel(s3: S3Server, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "s3://lake/requests-lance-fragments"
    for i in range(3):
        lance.write_dataset(rows(1000, 1000 * i), uri, mode="append", storage_options=dict(s3.options))
    opened = lance.dataset(uri, storage_options=trace.options)
    met = _meet(monkeypatch, {"read_sized": ".lance"}, 3)
    assert opened.take([2500, 7, 1500, 8])["id"].to_pylist() == [2500, 7, 1500, 8]
    assert len(met) == 3


def test_dataset_append_checks_while_writing_transaction(
    s3: S3Server, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = "s3://lake/requests-lance-beside"
    lance.write_dataset(rows(100), uri, storage_options=dict(s3.options))
    store = open_store(uri, trace.options)
    plan = write.plan_write(store, "append", SYSTEM_RUNTIME)
    target, group = plan.target(rows(10).schema), store.write_group()
    beside = {"put_if_absent": "_transactions", "list": "_versions", "read": "_versions", "_upload": "data/"}
    met = _meet(monkeypatch, beside, 4)
    fragments = write.write_fragments(
        store, rows(10).to_batches(), target, plan.options, SYSTEM_RUNTIME, together=group
    )
    trace.of(lambda: write.commit_write(store, plan, target, fragments, group))
    assert len(met) == 4
    assert trace.counts == {"GET": 1, "LIST": 1, "PUT": 3}
    monkeypatch.undo()
    assert lance.dataset(uri, storage_options=trace.options).count_rows() == 110


def test_dataset_append_after_lost_race_reads_the_newest(s3: S3Server, trace: Trace) -> None:
    uri, options = "s3://lake/requests-lance-overtaken", dict(s3.options)
    lance.write_dataset(rows(100), uri, storage_options=options)
    store = open_store(uri, options)
    plan = write.plan_write(store, "append", SYSTEM_RUNTIME)
    lance.write_dataset(rows(10), uri, mode="append", storage_options=options)
    target = plan.target(rows(1).schema)
    fragments = write.write_fragments(store, rows(1).to_batches(), target, plan.options, SYSTEM_RUNTIME)
    assert write.commit_write(store, plan, target, fragments).version == 3
    assert lance.dataset(uri, storage_options=options).count_rows() == 111


def test_dataset_column_is_fetched_in_many_batches_at_once(dataset: str, trace: Trace) -> None:
    opened = lance.dataset(dataset, storage_options=trace.options)
    assert trace.of(lambda: opened.to_table(["x"])).num_rows == 20_000
    assert trace.counts["GET"] <= 4
    assert set(trace.counts) == {"GET"}


def test_dataset_append(s3: S3Server, trace: Trace) -> None:
    uri = "s3://lake/requests-lance-append"
    lance.write_dataset(rows(10), uri, storage_options=trace.options)
    trace.of(lambda: lance.write_dataset(rows(10), uri, mode="append", storage_options=trace.options))
    assert trace.counts == {"LIST": 2, "GET": 2, "PUT": 3}


# --- Trevni -----------------------------------------------------------------------------------------------------------


def test_open_trevni_file_needs_one_request(s3: S3Server, trace: Trace) -> None:
    uri = "s3://lake/requests-trevni"
    trilake.write(rows(20_000), uri, format="trevni", storage_options=trace.options)
    opened = trace.of(lambda: trilake.open(uri, format="trevni", storage_options=trace.options))
    assert trace.counts == {"LIST": 2}  # equal listings show that no write is in progress
    trace.of(lambda: opened.schema)
    assert trace.counts == {"GET": 1}
    assert trace.of(lambda: opened.to_arrow(["x"])).num_rows == 20_000
    assert set(trace.counts) == {"GET"}
    assert trace.counts["GET"] <= 3
    assert trace.fetched < 500_000
