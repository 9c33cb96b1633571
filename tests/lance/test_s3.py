"""Datasets in an object store: all commands, few requests, and one winner."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping

import pyarrow as pa
import pytest

from tests.fault_store import FaultStore
from tests.s3_server import S3Server
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import StorageError, TrilakeError, WriteFailedError
from trilake.lance.scan.snapshot import Snapshot
from trilake.storage import open_store
from trilake.storage.object import UploadWriter

ROWS = pa.table({"id": pa.array(range(20_000), pa.int64()), "t": [f"text {i}" for i in range(20_000)]})


def test_dataset_in_a_bucket(s3_options: Mapping[str, str]) -> None:
    uri = "s3://lake/lance/t"
    ds = lance.write_dataset(ROWS, uri, max_rows_per_file=8000, storage_options=s3_options)
    ds.delete("id % 4 = 0")
    ds.update({"t": "'new'"}, "id = 7")
    ds.add_columns({"n": "id + 1"})
    ds = lance.dataset(uri, storage_options=s3_options)
    assert ds.count_rows() == 15_000
    assert ds.to_table(filter="id = 7").to_pylist() == [{"id": 7, "t": "new", "n": 8}]
    assert ds.take([0, 14_000], ["n"])["n"].to_pylist() == [
        2,
        ds.to_table(["n"], offset=14_000, limit=1)["n"][0].as_py(),
    ]
    before = ds.to_table().to_pydict()
    ds.optimize.compact_files()
    assert ds.to_table().to_pydict() == before
    assert lance.dataset(uri, 1, storage_options=s3_options).to_table().equals(ROWS)
    ds.validate()


def test_few_requests(s3_options: Mapping[str, str]) -> None:
    uri = "s3://lake/lance/few"
    lance.write_dataset(ROWS, uri, storage_options=s3_options)
    store = FaultStore(open_store(uri, dict(s3_options)))
    snapshot = Snapshot.open(store, SYSTEM_RUNTIME)
    assert store.counts() == {"list": 1, "read": 1}
    columns = snapshot.view.columns(None)
    found = snapshot.take([19_999, 3, 12_000], columns)
    assert found["t"].to_pylist() == ["text 19999", "text 3", "text 12000"]
    assert len(store.calls) <= 7
    store.forget()
    assert snapshot.take([5, 17_000], columns).num_rows == 2
    assert len(store.calls) <= 2


def test_metadata_of_many_columns_is_read_with_one_request(s3_options: Mapping[str, str], s3: S3Server) -> None:
    """Each column took a request, one after another."""
    uri = "s3://lake/lance/wide"
    rows = pa.table({f"column {i}": [i, i + 1] for i in range(600)})
    lance.write_dataset(rows, uri, storage_options=s3_options)
    dataset = lance.dataset(uri, storage_options=s3_options)
    before = len(s3.requests)
    assert dataset.to_table().equals(rows)
    assert len(s3.requests) - before <= 6


@pytest.mark.parametrize("failing", [1, 3])
def test_failed_put_aborts_the_write(
    s3_options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The last file is uploaded together with the transaction file, which then names no committed files."""
    uri = f"s3://lake/lance/fails-{failing}"
    lance.write_dataset(ROWS.slice(0, 10), uri, storage_options=s3_options)
    store = open_store(uri, dict(s3_options))
    before = [m.key for m in store.list("data")]
    publish, count = UploadWriter._publish, itertools.count(1)

    def fails(self: UploadWriter) -> None:
        if next(count) == failing:
            raise StorageError("the bucket is full")
        publish(self)

    monkeypatch.setattr(UploadWriter, "_publish", fails)
    with pytest.raises(WriteFailedError, match="full"):
        lance.write_dataset(
            ROWS, uri, mode="append", max_rows_per_file=8000, max_rows_per_group=1000, storage_options=s3_options
        )
    assert [m.key for m in store.list("data")] == before
    assert lance.dataset(uri, storage_options=s3_options).version == 1


def test_concurrent_appends(s3_options: Mapping[str, str]) -> None:
    uri = "s3://lake/lance/race"
    lance.write_dataset(ROWS.slice(0, 10), uri, storage_options=s3_options)
    errors: list[TrilakeError] = []

    def append(start: int) -> None:
        try:
            lance.write_dataset(ROWS.slice(start, 10), uri, mode="append", storage_options=s3_options)
        except TrilakeError as e:
            errors.append(e)

    threads = [threading.Thread(target=append, args=(100 * (i + 1),)) for i in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    ds = lance.dataset(uri, storage_options=s3_options)
    assert (ds.version, ds.count_rows()) == (6, 60)
