"""Delta tables on S3, against a real server on loopback: conditional puts decide who commits."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa

import trilake


def test_table_on_s3(s3_options: Mapping[str, str]) -> None:
    uri = "s3://lake/delta/a table=1"
    rows = pa.table({"n": [1, 2, 3], "p": ["a", "b", None]})
    trilake.write(rows, uri, partition_by="p", storage_options=s3_options)
    for _ in range(11):
        trilake.write(rows, uri, mode="append", storage_options=s3_options)
    trilake.write(rows, uri, mode="overwrite", storage_options=s3_options)
    table = trilake.open(uri, storage_options=s3_options)
    assert (table.version, table.count()) == (12, 3)
    assert trilake.open(uri, version=10, storage_options=s3_options).count() == 33
    assert table.to_arrow(filter="p = 'b'")["n"].to_pylist() == [2]
    peer = deltalake.DeltaTable("s3://lake/delta/a%20table=1", storage_options=dict(s3_options))
    assert peer.version() == 12
    assert sorted(peer.to_pyarrow_table()["n"].to_pylist()) == [1, 2, 3]


def test_concurrent_appends_all_succeed(s3_options: Mapping[str, str]) -> None:
    uri = "s3://lake/delta/race"
    trilake.write(pa.table({"n": [-1]}), uri, storage_options=s3_options)

    def append(n: int) -> int:
        return trilake.write(pa.table({"n": [n]}), uri, mode="append", storage_options=s3_options).version

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(append, range(16)))
    assert sorted(versions) == list(range(1, 17))
    assert sorted(trilake.open(uri, storage_options=s3_options).to_arrow()["n"].to_pylist()) == list(range(-1, 16))
