"""Tables with files in Spark's old calendar: every read and rewrite gives dates of the current calendar."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import opened
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.table import ArrowDeltaTable

NOTES = {b"org.apache.spark.version": b"2.4.8", b"org.apache.spark.timeZone": b"America/Los_Angeles"}
#: Days as stored in such a file, and their dates.
STORED = [-171_664, -171_655, -141_428, -141_427, 0]
DATES = ["1499-12-23", "1500-01-01", "1582-10-04", "1582-10-15", "1970-01-01"]
#: An instant of 1883 before standard time: seven minutes and two seconds earlier than it seems.
BEFORE, AFTER = -2_745_532_800_000_000, -2_745_532_800_000_000 - 422_000_000


def folder(path: Path, **options: object) -> Path:
    """Make a folder with one file and one row per row group."""
    path.mkdir()
    days = pa.array(STORED, pa.int32()).cast(pa.date32())
    times = pa.array([BEFORE, BEFORE, BEFORE, 0, None]).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"n": range(5), "d": days, "t": times}).replace_schema_metadata(NOTES)
    pq.write_table(rows, path / "x.parquet", row_group_size=1, **options)
    return path


def converted(tmp_path: Path, **options: object) -> ArrowDeltaTable:
    trilake.convert_to_delta(folder(tmp_path / "t", **options))
    return opened(tmp_path / "t")


def dates(rows: pa.Table) -> dict[int, str]:
    return {r["n"]: str(r["d"]) for r in rows.select(["n", "d"]).to_pylist()}


EXPECTED = dict(enumerate(DATES))


def test_every_read_path_rebases_dates(tmp_path: Path) -> None:
    table = converted(tmp_path)
    result = table.to_arrow()
    assert dates(result) == EXPECTED
    assert result["t"].cast(pa.int64()).to_pylist() == [AFTER, AFTER, AFTER, 0, None]
    assert dates(table.to_duckdb().to_arrow_table()) == EXPECTED
    assert dates(table.to_pyarrow_dataset().to_table()) == EXPECTED
    assert dates(trilake.sql(f"SELECT n, d FROM delta.`{tmp_path / 't'}`")) == EXPECTED
    plain = trilake.convert(folder(tmp_path / "p"), tmp_path / "copy", format="delta")
    assert plain.rows == 5
    assert dates(trilake.open(tmp_path / "copy").to_arrow()) == EXPECTED


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize("day", DATES)
def test_old_calendar_bounds_lose_no_row(tmp_path: Path, day: str, int96: bool) -> None:
    table = converted(tmp_path, use_deprecated_int96_timestamps=int96)
    (number,) = (n for n, d in EXPECTED.items() if d == day)
    for condition in (f"d = DATE'{day}'", f"d <= DATE'{day}' AND n >= {number}", f"d IN (DATE'{day}')"):
        result = table.to_arrow(filter=condition)
        assert dates(result) == {number: day}, condition
    instant = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=AFTER)
    assert table.to_arrow(filter=f"t = TIMESTAMP'{instant}'").num_rows == 3


def test_bounds_of_recent_values_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.mkdir()
    days = pa.array([1, 2], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"d": days}).replace_schema_metadata(NOTES), path / "x.parquet")
    pq.write_table(pa.table({"d": [dt.date(1500, 1, 1), None]}).replace_schema_metadata(NOTES), path / "y.parquet")
    trilake.convert_to_delta(path)
    stats = [json.loads(text) for text in opened(tmp_path / "t").snapshot.adds["stats"].to_pylist()]
    assert sorted(json.dumps(s["minValues"]) for s in stats) == ['{"d": "1970-01-02"}', "{}"]
    assert sorted(s["nullCount"]["d"] for s in stats) == [0, 1]


def test_rewritten_rows_use_the_new_calendar(tmp_path: Path) -> None:
    table = converted(tmp_path)
    table.delete("n = 3")
    table.update({"n": "n + 10"}, "d = DATE'1500-01-01'")
    rows = pa.table({"n": [0, 7], "d": pa.array([dt.date(1400, 1, 1), None])})
    table.merge(rows, "target.n = source.n").when_matched_update({"n": "target.n + 20"}).execute()
    expected = {20: "1499-12-23", 11: "1500-01-01", 2: "1582-10-04", 4: "1970-01-01"}
    assert dates(opened(tmp_path / "t").to_arrow()) == expected
    table.optimize()
    current = opened(tmp_path / "t")
    assert dates(current.to_arrow()) == expected
    (path,) = current.snapshot.adds["path"].to_pylist()
    written = pq.read_table(tmp_path / "t" / path)
    assert dates(written) == expected
    assert not any(key.startswith(b"org.apache.spark") for key in written.schema.metadata or {})
    assert {n: dates(current.to_arrow(filter=f"d = DATE'{d}'")) for n, d in expected.items()} == {
        n: {n: d} for n, d in expected.items()
    }


def test_checkpoint_statistics_are_rebased(tmp_path: Path) -> None:
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
    rows = pa.table({"d": [dt.date(1500, 1, 10)]})
    trilake.write(rows, tmp_path / "t", properties=properties)
    write_checkpoint(opened(tmp_path / "t").log, opened(tmp_path / "t").snapshot, SYSTEM_RUNTIME)
    (file,) = (tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")
    stored = pq.read_table(file)
    pq.write_table(stored.replace_schema_metadata(NOTES), file)
    (tmp_path / "t" / "_delta_log" / "_last_checkpoint").unlink()
    (stats,) = opened(tmp_path / "t").snapshot.adds["stats"].to_pylist()
    assert json.loads(stats)["minValues"] == json.loads(stats)["maxValues"] == {"d": "1500-01-01"}
    assert opened(tmp_path / "t").to_arrow(filter="d = DATE'1500-01-10'").num_rows == 0
