"""Values of the old calendar are rebased at every depth, according to the file metadata."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from trilake.parquet.files import open_parquet
from trilake.parquet.old_calendar import old_values, rebasing_of, rebasing_of_orc

RELEASE = {b"org.apache.spark.version": b"4.3.0"}
OLD = {**RELEASE, b"org.apache.spark.legacyDateTime": b"", b"org.apache.spark.timeZone": b"America/Los_Angeles"}


def file_of(path: Path, table: pa.Table, notes: dict[bytes, bytes], **options: object) -> pq.ParquetFile:
    pq.write_table(table.replace_schema_metadata(notes), path, **options)
    return open_parquet(pa.OSFile(str(path)))


def days(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32()).cast(pa.date32())


def instants(*values: int | None, unit: str = "us") -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp(unit, "UTC"))


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, (False, False)),
        ({b"org.apache.spark.legacyDateTime": b""}, (False, False)),  # Spark checks the release first
        ({b"org.apache.spark.version": b"2.4.8"}, (True, True)),
        ({b"org.apache.spark.version": b"3.0.3"}, (False, True)),
        (RELEASE, (False, False)),
        ({**RELEASE, b"org.apache.spark.legacyDateTime": b""}, (True, False)),
        ({**RELEASE, b"org.apache.spark.legacyINT96": b""}, (False, True)),
    ],
)
def test_old_files_are_recognized_by_metadata(notes: dict[bytes, bytes], expected: tuple[bool, bool]) -> None:
    assert old_values(notes) == expected
    assert old_values(None) == (False, False)


def test_values_are_rebased_at_every_depth(tmp_path: Path) -> None:
    # 1499-12-23 and 1883-01-01 in Los Angeles; the switch from local mean time there was on 1883-11-18.
    old, mean, recent = -14_831_741_221_000_000, -2_745_532_800_000_000, 0
    structs = pa.StructArray.from_arrays(
        [days(-171_664, 0, None), instants(mean, None, recent)], ["d", "t"], mask=pa.array([False, True, False])
    )
    lists = pa.array([[-171_664, None], None, [18_000]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), days(-171_664, 1, 2), instants(old, mean, None))
    table = pa.table(
        {"n": [1, 2, 3], "s": structs, "l": lists, "m": maps, "local": pa.array([old] * 3, pa.timestamp("us"))}
    )
    file = file_of(tmp_path / "x.parquet", table, OLD)
    rebasing = rebasing_of(file)
    assert rebasing is not None
    assert rebasing.changes.keys() == {"s", "l", "m"}
    batch = next(file.iter_batches())
    for rows in (rebasing.rows(batch), pa.concat_batches([rebasing.rows(batch.slice(i, 1)) for i in range(3)])):
        rows.validate(full=True)
        assert rows["s"].is_null().to_pylist() == [False, True, False]
        assert pc.struct_field(rows["s"], "d").cast(pa.int32()).to_pylist() == [-171_673, None, None]
        assert pc.struct_field(rows["s"], "t").cast(pa.int64()).to_pylist() == [mean - 422_000_000, None, recent]
        assert rows["l"].cast(pa.list_(pa.int32())).to_pylist() == [[-171_673, None], None, [18_000]]
        plain = rows["m"].cast(pa.map_(pa.int32(), pa.int64())).to_pylist()
        assert plain == [[(-171_673, old - 778_022_000_000)], [], [(1, mean - 422_000_000), (2, None)]]
        assert rows["local"].equals(batch["local"])
        assert rows.select(["n"]).equals(batch.select(["n"]))


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_rebase_keeps_the_timestamp_unit(tmp_path: Path, unit: str) -> None:
    per_second = {"ms": 1_000, "us": 1_000_000}[unit]
    table = pa.table({"t": instants(-12_219_292_801 * per_second, -12_219_292_800 * per_second, None, unit=unit)})
    notes = {**OLD, b"org.apache.spark.timeZone": b"UTC"}
    file = file_of(tmp_path / "x.parquet", table, notes)
    rebasing = rebasing_of(file)
    assert rebasing is not None
    result = rebasing.rows(next(file.iter_batches()))["t"].cast(pa.int64()).to_pylist()
    assert result == [(-12_219_292_801 - 864_000) * per_second, -12_219_292_800 * per_second, None]


def test_int96_times_follow_their_own_metadata_key(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([-14_831_741_221_000_000], pa.timestamp("us")), "d": days(-171_664)})
    notes = {**RELEASE, b"org.apache.spark.legacyINT96": b""}
    file = file_of(tmp_path / "x.parquet", table, notes, use_deprecated_int96_timestamps=True)
    rebasing = rebasing_of(file)
    assert rebasing is not None
    assert rebasing.changes.keys() == {"t"}
    result = rebasing.rows(next(file.iter_batches()))["t"].cast(pa.int64()).to_pylist()
    assert result == [-14_831_741_221_000_000 - 777_600_000_000]


def test_only_orc_dates_from_spark_are_rebased() -> None:
    schema = pa.schema([("s", pa.struct([("n", pa.int32()), ("d", pa.date32())])), ("t", pa.timestamp("ns"))])
    assert rebasing_of_orc(schema) is None
    rebasing = rebasing_of_orc(schema.with_metadata(RELEASE))
    assert rebasing is not None
    value = pa.StructArray.from_arrays([pa.array([1], pa.int32()), days(-171_664)], fields=list(schema.field("s").type))
    rows = rebasing.rows(pa.record_batch([value, pa.array([-5_000_000_000], pa.timestamp("ns"))], ["s", "t"]))
    assert pc.struct_field(rows["s"], "d").cast(pa.int32()).to_pylist() == [-171_673]
    assert rows["t"].cast(pa.int64()).to_pylist() == [-5_000_000_000]


def test_only_bounds_before_the_last_switch_are_doubtful(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2], "d": days(-171_664, 5), "later": days(7, 8), "t": instants(0, None)})
    file = file_of(tmp_path / "x.parquet", table, OLD, row_group_size=1)
    rebasing = rebasing_of(file)
    assert rebasing is not None
    assert rebasing.doubtful(file.metadata) == [1]
    assert list(rebasing.leaves) == [1, 2, 3]


def test_files_without_old_values_have_no_rebase(tmp_path: Path) -> None:
    table = pa.table({"d": days(-171_664), "n": [1]})
    assert rebasing_of(file_of(tmp_path / "x.parquet", table, RELEASE)) is None
    assert rebasing_of(file_of(tmp_path / "y.parquet", table.select(["n"]), OLD)) is None
