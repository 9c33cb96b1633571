"""Spark's native scan: columns and their types, formats, lifetime of frames, and unsupported cases."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from tests.spark.native_files import listed, numbered, plan, rows, settings, write
from trilake.spark.scan import manifest as native_manifest
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.obstacles import native_obstacle
from trilake.spark.scan.scan import NativeFiles, native_frame

at = dt.datetime.fromisoformat


# --- columns ----------------------------------------------------------------------------------------------------------


def by_id(name: str, type_: pa.DataType, id_: int) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(id_)})


def with_id(name: str, type_: T.DataType, id_: int) -> T.StructField:
    return T.StructField(name, type_, True, {"parquet.field.id": id_})


def swapped(folder: Path) -> dict[str, Any]:
    """A file with swapped column names, at both levels, in a table with column mapping by id."""
    inner = pa.struct([by_id("u", pa.int64(), 4), by_id("v", pa.int64(), 5)])
    schema = pa.schema([by_id("x", pa.int64(), 1), by_id("y", pa.int64(), 2), by_id("s", inner, 3)])
    table = pa.table([[1, 2], [10, 20], [{"u": 5, "v": 50}, {"u": 6, "v": 60}]], schema=schema)
    long = T.LongType()
    nested = T.StructType([with_id("v", long, 4), with_id("u", long, 5)])
    read = [with_id("y", long, 1), with_id("x", long, 2), with_id("s", nested, 3), with_id("n", long, 9)]
    output = T.StructType.fromDDL("y bigint, x bigint, s struct<v:bigint,u:bigint>, n bigint")
    return {
        "root": folder,
        "paths": [write(folder / "x.parquet", table)],
        "schema": T.StructType(read),
        "output": list(zip(output.names, output.fields, strict=True)),
        "id_mode": True,
    }


@pytest.mark.parametrize("vectors", [{}, {0: BitMap64([0])}])
def test_columns_are_matched_by_id_not_by_name(
    spark: SparkSession, tmp_path: Path, vectors: dict[int, BitMap64]
) -> None:
    files = swapped(tmp_path)
    df = native_frame(spark, listed(**files, vectors=vectors))
    assert df.schema == T.StructType([f for _, f in files["output"]]), "no ids in the result"
    expected = [(1, 10, (5, 50), None), (2, 20, (6, 60), None)]
    assert rows(df) == expected[len(vectors) :]
    # Spark would check `y` against the statistics of the file's column with that name.
    assert df.where("y = 2").count() == 1
    assert df.where("s.v = 6 AND x = 20").count() == 1


def test_nested_fields_are_renamed_by_position(spark: SparkSession, tmp_path: Path) -> None:
    struct = pa.struct([("c1", pa.int64()), ("c2", pa.string())])
    table = pa.table(
        {
            "p1": pa.array([{"c1": 1, "c2": "a"}, None, {"c1": None, "c2": None}], struct),
            "p2": pa.array([[{"c1": 1, "c2": "a"}], [], None], pa.list_(struct)),
            "p3": pa.array([[("k", {"c1": 1, "c2": "a"})], [], None], pa.map_(pa.string(), struct)),
        }
    )
    named = "struct<number:bigint,text:string>"
    logical = T.StructType.fromDDL(f"s {named} COMMENT 'a struct', l array<{named}>, m map<string,{named}>")
    output = list(zip(table.column_names, logical.fields, strict=True))
    df = native_frame(spark, listed(tmp_path, [write(tmp_path / "x.parquet", table)], table.schema, output=output))
    assert df.schema == logical
    one = {"number": 1, "text": "a"}
    assert [r.asDict(recursive=True) for r in df.collect()] == [
        {"s": one, "l": [one], "m": {"k": one}},
        {"s": None, "l": [], "m": {}},
        {"s": {"number": None, "text": None}, "l": None, "m": None},
    ]


def test_missing_void_and_extra_columns(spark: SparkSession, tmp_path: Path) -> None:
    old = write(tmp_path / "old.parquet", pa.table({"foreign": [1], "s": [{"a": 1}], "A": [7]}))
    gone = write(tmp_path / "gone.parquet", pa.table({"s": pa.array([{"z": 1}, None], pa.struct([("z", pa.int64())]))}))
    read = T.StructType.fromDDL("a bigint, later string, s struct<a:bigint,b:string,v:void>, nothing void")
    never = ("never", T.StructField("never", T.DateType()))
    output = [("nothing", read["nothing"]), never, *((n, read[n]) for n in ("s", "later", "a"))]
    df = native_frame(spark, listed(tmp_path, [old, gone], read, output=output))
    assert df.schema == T.StructType([f for _, f in output])
    found = [
        (r.s and tuple(r.s), r.a) for r in df.where("nothing IS NULL AND never IS NULL AND later IS NULL").collect()
    ]
    assert found == [((1, None, None), 7), ((None, None, None), None), (None, None)], "null, or a struct of nulls"


def test_column_metadata(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"n": [1], "s": [{"a": 1}], "c": ["ab   "]})
    inner = T.StructType([T.StructField("a", T.LongType(), True, {"comment": "within"})])
    fields = [
        T.StructField("c", T.StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}),
        T.StructField("n", T.LongType(), False, {"comment": "a number", "other": 1}),
        T.StructField("s", inner),
    ]
    output = [(f.name, f) for f in fields]
    df = native_frame(spark, listed(tmp_path, [write(tmp_path / "x.parquet", table)], table.schema, output=output))
    assert df.schema == T.StructType([T.StructField(f.name, f.dataType, True, f.metadata) for f in fields])
    assert df.where("c = 'ab'").count() == 1, "a char column compares without its padding"
    assert "cast(" not in plan(df)


@pytest.mark.parametrize(
    ("source", "values", "target"),
    [
        (pa.int32(), [1, -(2**31)], "bigint"),
        (pa.int16(), [1, -5], "int"),
        (pa.float32(), [1.5, -2.0], "double"),
        (pa.int32(), [1, -5], "double"),
        (pa.date32(), [dt.date(2020, 1, 1), dt.date(1, 1, 1)], "timestamp_ntz"),
        (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-3.25")], "decimal(12,4)"),
        (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-3.25")], "decimal(30,10)"),
    ],
)
def test_widened_types(
    spark: SparkSession, tmp_path: Path, source: pa.DataType, values: list[Any], target: str
) -> None:
    table = pa.table({"x": pa.array(values, source)})
    for integers in (True, False):
        path = write(tmp_path / f"{integers}.parquet", table, store_decimal_as_integer=integers)
        found = {
            r.x for r in native_frame(spark, listed(tmp_path, [path], T.StructType.fromDDL(f"x {target}"))).collect()
        }
        assert found == {at(v.isoformat()) if isinstance(v, dt.date) else v for v in values}


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_every_timestamp_encoding(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    texts = ["0001-01-01", "1582-10-10T12:00", "2020-07-01T01:02:03.456789", "9999-12-31T23:59:59.999999"]
    local = pa.array([*map(at, texts), None], pa.timestamp("us"))
    table = pa.table(
        {
            "us": local.cast(pa.timestamp("us", "UTC")),
            "ms": pc.cast(local, pa.timestamp("ms", "UTC"), safe=False),
            "ntz": local,
            "day": pc.cast(local, pa.date32(), safe=False),
        }
    )
    read = T.StructType.fromDDL("us timestamp, ms timestamp, ntz timestamp_ntz, day date")
    path = write(tmp_path / "x.parquet", table)
    recent = pa.table({"i": table["us"].slice(2, 1)})
    old_form = write(tmp_path / "y.parquet", recent, use_deprecated_int96_timestamps=True)
    legacy = {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY", "spark.sql.session.timeZone": zone}
    with settings(spark, legacy):
        found = native_frame(spark, listed(tmp_path, [path], read)).toArrow()
        instants = native_frame(spark, listed(tmp_path, [old_form], T.StructType.fromDDL("i timestamp"))).toArrow()
    for name in table.column_names:
        assert found[name].cast(table[name].type).equals(table[name]), name
    assert instants["i"].cast(recent["i"].type).equals(recent["i"])


@pytest.mark.parametrize("provider", ["orc", "json", "csv", "text"])
def test_other_formats(spark: SparkSession, tmp_path: Path, provider: str) -> None:
    path = tmp_path / "p=1" / "_part.x"
    path.parent.mkdir()
    texts = {"json": '{"b":"x","a":1}\n{"a":2,"b":"y"}\n', "csv": "a,b\n1,x\n2,y\n", "text": "x\ny\n"}
    if provider == "orc":
        orc.write_table(pa.table({"b": ["x", "y"], "a": [1, 2]}), path)
    else:
        path.write_text(texts[provider])
    schema = T.StructType.fromDDL("value string" if provider == "text" else "a bigint, b string")
    options = {"header": "true", "pathGlobFilter": "nothing"} if provider == "csv" else {}
    files = listed(tmp_path, [str(path)], schema, {"p": pa.array([1])}, provider=provider, options=options)
    df = native_frame(spark, files)
    assert rows(df) == ([("x", 1), ("y", 1)] if provider == "text" else [(1, "x", 1), (2, "y", 1)])
    assert df.where("p = 2").count() == 0
    with pytest.raises(NativeScanError, match="does not provide for"):
        native_frame(spark, listed(tmp_path, [str(path)], schema, provider=provider, vectors={0: BitMap64([1])}))


# --- frames -----------------------------------------------------------------------------------------------------------


def test_frames_of_one_list_can_be_joined(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    path = write(tmp_path / "x.parquet")
    first = native_frame(spark, listed(tmp_path, [path]))
    second = native_frame(spark, listed(tmp_path, [path]))
    assert first.join(second, first.n == second.n).count() == 3
    assert first.unionAll(second).count() == 6
    assert native_frame(spark, listed(tmp_path, [path], vectors={0: BitMap64([0])})).count() == 2
    other = spark.newSession()
    assert native_frame(other, listed(tmp_path, [path])).sparkSession is other
    assert not list(temporary.iterdir()), "a classic session needs the manifest no longer than it takes to read it"


def test_scans_are_released(spark: SparkSession) -> None:
    for i in range(20):
        native_manifest.cache_value(spark, bytes([i]), object(), 1)
    assert len(native_manifest._recent.values) <= 16


def test_cached_frame_keeps_its_version(spark: SparkSession, tmp_path: Path) -> None:
    one, two = write(tmp_path / "1.parquet"), write(tmp_path / "2.parquet")
    old = native_frame(spark, listed(tmp_path, [one])).cache()
    try:
        assert old.count() == 3
        assert native_frame(spark, listed(tmp_path, [one, two])).count() == 6
    finally:
        old.unpersist()


def test_view_keeps_its_scan_alive(spark: SparkSession, tmp_path: Path) -> None:
    paths = numbered(tmp_path, ["p=1", "p=2"])
    native_frame(spark, listed(tmp_path, paths, partitions={"p": pa.array([1, 2])})).createOrReplaceTempView("natively")
    native_manifest._recent.values.clear()
    assert [r.s for r in spark.sql("SELECT sum(n) s FROM natively WHERE p > 1").collect()] == [1]
    spark.catalog.dropTempView("natively")


def test_long_list_is_identified_by_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_manifest, "CHECKED_SIZES", 0)
    path = tmp_path / "t"
    trilake.write(pa.table({"n": [1, 2, 3], "p": ["a", "b", "b"]}), path, partition_by="p")
    first = trilake.read(spark, path)
    assert len(rows(first)) == 3, "the list is read when the first query is planned"
    assert rows(trilake.read(spark, path, version=0)) == rows(first), "a version by its number is known for itself"
    with monkeypatch.context() as patch:
        # The JVM requests the list, and py4j callbacks only survive an Exception, which pytest.fail does not raise.
        patch.setattr(native_manifest, "mkdtemp", Mock(side_effect=AssertionError("the list was read again")))
        again = trilake.read(spark, path)
        assert rows(again) == rows(first) == [(1, "a"), (2, "b"), (3, "b")]
        assert first.join(again, first.n == again.n).count() == 3
        trilake.write(pa.table({"n": [4], "p": ["a"]}), path, mode="append")
        assert rows(trilake.read(spark, path, version=0)) == rows(first)
    assert rows(trilake.read(spark, path, filter="p = 'a'")) == [(1, "a"), (4, "a")]
    assert len(rows(trilake.read(spark, path))) == 4, "another list"
    other = spark.newSession()
    assert trilake.read(other, path).sparkSession is other


def test_long_list_with_deletion_vectors(spark: SparkSession, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_manifest, "CHECKED_SIZES", 0)
    path = shared / "corpus" / "delta" / "golden" / "dv-partitioned-with-checkpoint" / "delta"
    for version in (None, 1, None):
        expected = trilake.open(path, version=version).to_arrow().to_pylist()
        found = trilake.read(spark, path, version=version).toArrow().to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))


def with_vectors(folder: Path, names: list[str]) -> NativeFiles:
    """Files of 10 rows each, with ``n`` ascending across files and renamed, some rows deleted."""
    paths = [
        write(folder / name, pa.table({"n": range(i * 10, i * 10 + 10)}), row_group_size=3)
        for i, name in enumerate(names)
    ]
    number = T.StructField("number", T.LongType())
    return listed(folder, paths, output=[("n", number)], vectors={0: BitMap64([0, 4, 9]), 2: BitMap64(range(10))})


def test_unusual_names_with_vectors_and_addresses(spark: SparkSession, tmp_path: Path) -> None:
    scan = with_vectors(tmp_path / "t %+", ["a b.parquet", "c#{*}%20.parquet", "gone.parquet", "_hidden.parquet"])
    df = native_frame(spark, scan, address=("file", "row"))
    kept = [n for n in range(40) if n not in (0, 4, 9) and not 20 <= n < 30]
    assert {tuple(r) for r in df.collect()} == {(n, n // 10, n % 10) for n in kept}
    # Row numbers count all rows of a file, even if a filter skips row groups.
    assert rows(df.where("number = 18")) == [(18, 1, 8)]


# --- errors -----------------------------------------------------------------------------------------------------------


def test_unsupported_scans_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path.as_uri()
    assert native_obstacle(uri, "parquet", vectors=True) is None
    assert native_obstacle(uri, "parquet", spark=spark) is None
    assert "no file system for s3" in (native_obstacle("s3://b/t", "parquet") or "")
    assert "no scan for trevni" in (native_obstacle(uri, "trevni") or "")
    assert "does not provide for orc" in (native_obstacle(uri, "orc", vectors=True) or "")
    assert "cannot read s3a: " in (native_obstacle("s3://b/t", "parquet", spark=spark) or "")
    assert "cannot read memory: " in (native_obstacle("memory://b/t", "parquet", spark=spark) or "")


@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.sql.streaming.fileStreamSink.ignoreMetadata", "true"), ("spark.sql.sources.useV1SourceList", "orc")],
)
def test_settings_that_would_lose_rows_are_rejected(spark: SparkSession, tmp_path: Path, key: str, value: str) -> None:
    files = listed(tmp_path, [write(tmp_path / "x.parquet")])
    with settings(spark, {key: value}):
        assert key in (native_obstacle(tmp_path.as_uri(), "parquet", spark=spark) or "")
        with pytest.raises(NativeScanError, match=key):
            native_frame(spark, files)
    assert native_frame(spark, files).count() == 3


def test_unsupported_tables_are_read_through_arrow(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(pa.table({"n": [1, 2]}), path)
    (file,) = path.glob("*.parquet")
    file.rename(path / "_metadata")
    log = path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace(file.name, "_metadata"))
    assert sorted(r.n for r in trilake.read(spark, path).collect()) == [1, 2]
