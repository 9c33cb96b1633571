"""Extreme times: nanoseconds, years before 1900 and beyond 9999, and files of other writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import opened
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.expr.terms.literals import format_timestamp, parse_timestamp

TEXTS = [
    "0001-01-01 00:00:00",
    "1582-10-04 23:00:00",
    "1582-10-15 00:00:00",
    "1677-01-01 00:00:00",
    "1899-12-31 23:59:59.999999",
    "1969-12-31 23:59:59.999999",
    "2262-04-12 00:00:00",
    "9999-12-31 23:59:59.999999",
]
FAR = [
    *TEXTS,
    "+10000-01-01 00:00:00",
    "+123456-07-08 09:10:11.5",
    "0000-01-01 00:00:00",
    "-0005-03-01 00:00:00.000001",
]


def micros(strings: list[str]) -> list[int]:
    return [v for t in strings if (v := parse_timestamp(t, with_zone=True)) is not None]


@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}], ids=["micros", "int96"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_of_other_writers_are_read_unchanged(tmp_path: Path, zone: str | None, options: dict[str, bool]) -> None:
    values = micros(TEXTS)
    data = pa.table({"i": range(len(values)), "t": pa.array(values, pa.int64()).cast(pa.timestamp("us", zone))})
    pq.write_table(data, tmp_path / "f.parquet", row_group_size=1, **options)
    trilake.convert_to_delta(str(tmp_path))
    result = opened(tmp_path).to_arrow().sort_by("i")["t"]
    assert result.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() == values
    word = "TIMESTAMP" if result.type.tz else "TIMESTAMP_NTZ"
    for i, text in enumerate(TEXTS):
        assert opened(tmp_path).to_arrow(filter=f"t = {word} '{text}'")["i"].to_pylist() == [i]


@pytest.mark.parametrize("partition_by", [None, "t", "d"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_years_outside_pythons_range_round_trip(tmp_path: Path, zone: str | None, partition_by: str | None) -> None:
    """Spark writes years below 0 and above 9999 in rows, statistics and partition values."""
    values = micros(FAR)
    assert [format_timestamp(v) for v in values] == FAR
    days = [v // 86_400_000_000 for v in values]
    data = pa.table(
        {
            "i": range(len(values)),
            "t": pa.array(values, pa.int64()).cast(pa.timestamp("us", zone)),
            "d": pa.array(days, pa.int32()).cast(pa.date32()),
        }
    )
    trilake.write(data, str(tmp_path), partition_by=partition_by)
    result = opened(tmp_path).to_arrow().sort_by("i")
    assert result["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() == values
    assert result["d"].cast(pa.int32()).to_pylist() == days
    word = "TIMESTAMP" if zone else "TIMESTAMP_NTZ"
    for i, text in enumerate(FAR):
        assert opened(tmp_path).to_arrow(filter=f"t = {word} '{text}'")["i"].to_pylist() == [i]
        assert i in opened(tmp_path).to_arrow(filter=f"d = DATE '{text[: text.index(' ')]}'")["i"].to_pylist()


def test_nanoseconds_are_rounded_down(tmp_path: Path) -> None:
    lossy = pd.DataFrame({"t": pd.to_datetime([1, 1_000, -1], unit="ns")})
    trilake.write(lossy, str(tmp_path))
    trilake.write(pa.Table.from_pandas(lossy), str(tmp_path), mode="append", schema_mode="merge")
    opened(tmp_path).merge(lossy, "target.t = source.t").when_matched_delete().execute()
    assert opened(tmp_path).count() == 0
    nanos = pa.timestamp("ns")
    nested = pa.table({"t": pa.array([-1_500], nanos), "l": pa.array([[1_500]], pa.list_(nanos))})
    trilake.write(nested, str(tmp_path), mode="append", schema_mode="merge")
    assert opened(tmp_path).to_arrow()["l"].cast(pa.list_(pa.int64())).to_pylist() == [[1]]
    assert opened(tmp_path).to_arrow()["t"].cast(pa.int64()).to_pylist() == [-2]
    for finer in (pd.Timestamp(1_999), np.datetime64(1_999, "ns"), pa.scalar(1_999, pa.timestamp("ns"))):
        opened(tmp_path).update({"t": finer})
        assert opened(tmp_path).to_arrow()["t"].cast(pa.int64()).to_pylist() == [1]


def test_nanoseconds_are_rejected_without_rounding(tmp_path: Path) -> None:
    lossy = pd.DataFrame({"t": pd.to_datetime([1, 1_000, -1], unit="ns")})
    whole = pd.DataFrame({"t": pd.to_datetime([1_000, -3_000], unit="ns")})
    with pytest.raises(SchemaMismatchError, match="Spark's microseconds cannot represent"):
        trilake.write(lossy, str(tmp_path), round_times=False)
    trilake.write(whole, str(tmp_path), round_times=False)
    with pytest.raises(SchemaMismatchError, match="Spark's microseconds cannot represent"):
        trilake.write(lossy, str(tmp_path), mode="append", round_times=False)
    assert sorted(opened(tmp_path).to_arrow()["t"].cast(pa.int64()).to_pylist()) == [-3, 1]


@pytest.mark.parametrize("kind", ["arrow", "batch", "reader", "pandas", "polars"])
def test_merge_rounds_down_nanoseconds_of_any_source(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"i": [1, 2], "t": pa.array([1_999, -1], pa.timestamp("ns"))})
    kinds: dict[str, Any] = {
        "arrow": lambda: rows,
        "batch": lambda: rows.to_batches()[0],
        "reader": rows.to_reader,
        "pandas": rows.to_pandas,
        "polars": lambda: polars.from_arrow(rows),
    }
    source = kinds[kind]
    trilake.write(pa.table({"i": [1], "t": pa.array([0], pa.timestamp("us"))}), str(tmp_path))
    merge = opened(tmp_path).merge(source(), "target.i = source.i", round_times=False)
    with pytest.raises(SchemaMismatchError, match=r"column t has a time that.*round_times=False"):
        merge.when_matched_update_all().execute()
    merge = opened(tmp_path).merge(source(), "target.i = source.i")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert sorted(opened(tmp_path).to_arrow()["t"].cast(pa.int64()).to_pylist()) == [-1, 1]


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_formats_with_nanoseconds_reject_round_times(tmp_path: Path, format: str) -> None:
    data = pa.table({"t": pa.array([1, 1_000, -1], pa.timestamp("ns"))})
    with pytest.raises(InvalidArgumentError, match="round_times"):
        trilake.write(data, str(tmp_path / "t"), format=format, round_times=True)
    trilake.write(data, str(tmp_path / "t"), format=format)
    assert trilake.open(str(tmp_path / "t")).to_arrow()["t"].cast(pa.int64()).to_pylist() == [1, 1_000, -1]
