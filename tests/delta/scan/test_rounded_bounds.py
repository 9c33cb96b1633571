"""Timestamp bounds rounded by other writers never hide a row."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import table_of
from trilake.delta.table import ArrowDeltaTable

#: Zones that once had offsets of fractional minutes, east and west of UTC, and the last instant to test there.
ZONES = {
    "Europe/Amsterdam": 1937,
    "Europe/Paris": 1911,
    "Asia/Kolkata": 1906,
    "America/New_York": 1883,
    "Africa/Monrovia": 1971,
}
UTC = pa.timestamp("us", "UTC")


def _cut(instant: dt.datetime, zone: str) -> str:
    """Return the instant as delta-spark 3.2 writes it: in milliseconds, with an offset in minutes."""
    local = instant.astimezone(ZoneInfo(zone))
    offset = local.utcoffset()
    assert offset is not None
    seconds = abs(int(offset.total_seconds()))
    sign = "-" if offset < dt.timedelta() else "+"
    return f"{local:%Y-%m-%dT%H:%M:%S}.{local.microsecond // 1000:03}{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}"


def _table(instant: dt.datetime, low: str, high: str, type_: pa.DataType = UTC) -> ArrowDeltaTable:
    stats = {"numRecords": 1, "minValues": {"ts": low}, "maxValues": {"ts": high}, "nullCount": {"ts": 0}}
    rows = pa.table({"ts": pa.array([instant], type_), "other": [1]})
    return table_of(rows, rows, fields=[{"stats": json.dumps(stats)}, {"stats": json.dumps({"numRecords": 1})}])


@pytest.mark.parametrize("zone", ZONES)
def test_offsets_truncated_to_minutes_lose_no_row(zone: str) -> None:
    for year in range(1830, ZONES[zone] + 1, 20):
        instant = dt.datetime(year, 6, 1, 10, 11, 12, 345678, dt.UTC)
        bound = _cut(instant, zone)
        table = _table(instant, bound, bound)
        text = f"{instant:%Y-%m-%d %H:%M:%S.%f}"
        for condition in ("ts = {}", "ts <= {}", "ts >= {}", "ts IN ({})", "ts BETWEEN {0} AND {0}"):
            result = table.to_arrow(filter=condition.format(f"timestamp'{text}Z'"))
            assert result.num_rows == 2, (condition, bound)
        table.delete(f"ts = timestamp'{text}Z'")
        assert trilake.open(table.uri).count() == 0


def test_milliseconds_truncated_towards_1970_lose_no_row() -> None:
    instant = dt.datetime(1969, 12, 31, 23, 59, 59, 999_400)  # noqa: DTZ001 - a local time
    table = _table(instant, "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.000", pa.timestamp("us"))
    assert table.to_arrow(filter="ts = timestamp_ntz'1969-12-31 23:59:59.9994'").num_rows == 2
    assert table.to_arrow(filter="ts < timestamp_ntz'1970-01-01 00:00:00'").num_rows == 2


def test_files_are_still_skipped_at_minute_precision() -> None:
    instant = dt.datetime(1870, 6, 1, 10, 11, 12, tzinfo=dt.UTC)
    table = _table(instant, _cut(instant, "Europe/Amsterdam"), _cut(instant, "Europe/Amsterdam"))
    assert len(table.explain("ts > timestamp'1870-06-01T10:14:00Z'").skipped) == 1
    later = dt.datetime(2024, 6, 1, 10, 11, 12, tzinfo=dt.UTC)
    recent = _table(later, "2024-06-01T12:11:12.000+02:00", "2024-06-01T12:11:12.000+02:00")
    assert len(recent.explain("ts < timestamp'2024-06-01T10:11:12Z'").skipped) == 1


def test_truncated_offset_in_the_corpus_loses_no_row(shared: Path) -> None:
    table = trilake.open(shared / "corpus" / "faults" / "bounds_cut_offset")
    assert table.to_arrow(filter="ts = timestamp'1870-06-01T10:11:12Z'").num_rows == 1
