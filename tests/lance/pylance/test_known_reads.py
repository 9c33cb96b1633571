"""API of pylance 0.8.19: versions, take and sample, scans and SQL."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.lance.pylance.known import TABLE
from trilake import lance
from trilake.lance import LanceDataset
from trilake.lance.dataset import LanceScanner, ScannerBuilder


def test_versions_and_times(uri: Path, dataset: LanceDataset) -> None:
    before = dt.datetime.now()  # noqa: DTZ005 - times of versions are local ones
    newer = lance.write_dataset(pa.table({"s": ["x"]}), uri, mode="overwrite")
    assert (dataset.version, dataset.latest_version, newer.version, newer.latest_version) == (1, 2, 2, 2)
    first, second = newer.versions()
    assert isinstance(first["timestamp"], dt.datetime)
    assert (first["version"], first["timestamp"] < second["timestamp"]) == (1, True)
    assert first["metadata"]["total_rows"] == str(len(TABLE))
    for asof in (before, pd.Timestamp(before), str(before)):
        assert lance.dataset(uri, asof=asof).version == 1
    for bad in ({"version": 99}, {"version": "no-tag"}, {"asof": "2000-01-01 00:00:00"}):
        with pytest.raises(ValueError):
            lance.dataset(uri, **bad)
    for nowhere in (99, "no-tag"):
        with pytest.raises(OSError):
            newer.checkout_version(nowhere)
    old = lance.dataset(uri, version=1)
    old.restore()
    assert (old.version, old.count_rows()) == (3, 100)
    stats = old.cleanup_old_versions(older_than=dt.timedelta(0))
    assert (stats.old_versions, stats.bytes_removed > 0) == (2, True)


def test_take_sample_and_head(dataset: LanceDataset) -> None:
    assert dataset.take([5, 3, 5])["a"].to_pylist() == [5, 3, 5]
    assert dataset.take([], columns=["a"]).num_rows == 0
    assert dataset.sample(4, columns=["a"]).column_names == ["a"]
    assert dataset.sample(3, columns=["a"], sorted=True).num_rows == 3
    assert dataset.head(3, columns=["b"]).to_pydict() == {"b": [0, 1, 2]}
    with pytest.raises(OSError, match="row 1000 is out of range"):
        dataset.take([1000])
    with pytest.raises(OSError):
        dataset._take_rows([2**40])
    with pytest.raises(ValueError):
        dataset.sample(1000)


def test_scanner_returns_the_requested_rows_and_columns(dataset: LanceDataset) -> None:
    assert dataset.to_table(limit=10, offset=10) == TABLE.slice(10, 10)
    assert dataset.to_table(filter=pc.field("b") > 50, columns=["a"])["a"].to_pylist() == list(range(51, 100))
    assert [b.num_rows for b in dataset.scanner(batch_size=16).to_batches()][:6] == [16] * 6
    assert dataset.scanner(columns=["a"]).projected_schema == pa.schema({"a": pa.int64()})
    assert dataset.scanner().dataset_schema == dataset.schema
    assert dataset.count_rows(filter="a < 10") == dataset.scanner(filter="a < 10").count_rows() == 10
    parts = iter(dataset.get_fragments())
    assert dataset.scanner(fragments=parts, scan_in_order=False).to_table() == TABLE
    assert pickle.loads(pickle.dumps(dataset)).to_table() == TABLE
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("a") == 3).collect().height == 1
    counted: Any = duckdb.query("SELECT count(*) FROM dataset WHERE a < 3")
    assert counted.fetchall() == [(3,)]
    built = (
        ScannerBuilder(dataset)
        .columns(["a"])
        .filter("a > 97")
        .with_row_id()
        .batch_readahead(4)
        .io_buffer_size(1 << 20)
        .late_materialization(True)
        .to_scanner()
    )
    assert isinstance(built, LanceScanner)
    assert built.to_table().column_names == ["a", "_rowid"]
    for bad in ({"limit": -1}, {"offset": -1}, {"filter": "zz > 1"}, {"filter": "a >"}, {"columns": ["q"]}):
        with pytest.raises(ValueError):
            dataset.to_table(**bad)
    with pytest.raises(TypeError, match="iterable of LanceFragment"):
        dataset.scanner(fragments=[1])  # type: ignore[list-item]
    assert "LanceRead" in dataset.scanner().explain_plan()


def test_supported_sql_filters(tmp_path: Path) -> None:
    start = dt.datetime.fromisoformat("2021-01-01")
    rows = pa.table(
        {
            "n": pa.array(range(100), pa.int64()),
            "f": pa.array(np.arange(100) * 2 / 3, pa.float32()),
            "r": pa.StructArray.from_arrays(
                [
                    pa.array(np.arange(100) < 50),
                    pa.array([start.date() + dt.timedelta(i) for i in range(100)]),
                    pa.array([start + dt.timedelta(hours=i) for i in range(100)]),
                ],
                names=["flag", "date", "dt"],
            ),
            "s": ["aa" if i % 4 == 0 else "bb" if i % 4 == 1 else "cab" for i in range(100)],
            "dec": pa.array([Decimal(i) for i in range(100)], pa.decimal128(6, 3)),
            "silly :name": range(100),
            "CAPS": range(100),
        }
    )
    dataset = lance.write_dataset(rows, tmp_path)
    for text, count in (
        ("n >= 50", 50),
        ("n == 50", 1),
        ("n != 50", 99),
        ("f < 30.0", 45),
        ("s in ('aa', 'bb')", 50),
        ("s LIKE 'a%'", 25),
        ("s NOT LIKE 'a%'", 75),
        ("regexp_match(s, 'c.+')", 50),
        ("r.flag", 50),
        ("r.date = cast('2021-01-01' as date)", 1),
        ("r.date = DATE '2021-01-01'", 1),
        ("r.date >= cast('2021-01-31' as date)", 70),
        ("cast(r.date as string) = '2021-01-01'", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as timestamp)", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as timestamp(6))", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as datetime)", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as datetime(6))", 1),
        ("r.dt = TIMESTAMP '2021-01-01 00:00:00'", 1),
        ("r.dt = TIMESTAMP(6) '2021-01-01 00:00:00'", 1),
        ("dec = DECIMAL(5,3) '12.000'", 1),
        ("dec >= DECIMAL(5,3) '50.000'", 50),
        ("`silly :name` > 97", 2),
        ("`CAPS` == 0", 1),
        ("n = 1 * -1 + 4", 1),
        ("n <= 2 + -2", 1),
        ("n % 10 = 0 AND n < 50", 5),
        ("true", 100),
        ("n IS NOT NULL", 100),
    ):
        assert dataset.count_rows(text) == count, text
