"""Lists of files: every file is read, independent of its name, logged size, and session settings."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.spark.native_files import SparkError, chunk, listed, numbered, rows, settings, write
from trilake.spark.scan.manifest import FileKey, NativeScanError, manifest, scan_options, unreadable
from trilake.spark.scan.scan import native_frame

some_paths = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).map("/".__add__),
    min_size=1,
    max_size=20,
)


@given(some_paths)
def test_manifest_lists_every_file_in_order(paths: list[str]) -> None:
    count = len(paths)
    text = manifest(chunk(paths), chunk(range(count)), np.arange(count) * 7)
    version, *lines = text.decode("ascii").split("\n")
    assert version == "v1"
    entries = [json.loads(line) for line in lines]
    assert [unquote(e["path"], errors="strict") for e in entries] == [f"file://{p}" for p in paths]
    assert [(e["size"], e["modificationTime"]) for e in entries] == [(i, i * 7) for i in range(count)]


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/a+b/%20", "file:///a%2Bb/%2520"),
        ("file:/a b", "file:/a%20b"),
        ("file:///a b", "file:///a%20b"),
        ("s3://bucket/a b/é", "s3a://bucket/a%20b/%C3%A9"),
        ("hdfs://host:9000/p=1:2/x", "hdfs://host:9000/p%3D1%3A2/x"),
    ],
)
def test_paths_are_encoded_as_uris(path: str, uri: str) -> None:
    text = manifest(chunk([path]), chunk([1]), np.zeros(1, np.int64))
    assert json.loads(text.split(b"\n")[1])["path"] == uri


parts = st.lists(st.integers(0, 2**17 - 1), min_size=4, max_size=4)


@given(st.dictionaries(st.sampled_from("abc"), parts, min_size=1), st.none() | st.integers(-1, 2**41))
def test_file_key_round_trips_and_is_near_the_time(parts: dict[str, list[int]], time: int | None) -> None:
    key = FileKey({n: np.array(v) for n, v in parts.items()})
    packed = key.packed(4, None if time is None else np.full(4, time))
    assert packed.max() < 1 << 53
    width = sum(max(v).bit_length() for v in parts.values())
    if time is not None and width <= 20:
        assert abs(packed - max(time, 0)).max() < 1 << width
    seen = packed * 1000 >> 3  # in microseconds, with three trailing zeros
    for values in parts.values():
        bits = max(values).bit_length()
        assert (seen & ((1 << bits) - 1)).tolist() == values
        seen >>= bits


def test_too_wide_key_is_rejected() -> None:
    with pytest.raises(NativeScanError, match="too many files with partition values and deletion vectors"):
        FileKey({"a": np.array([2**27]), "b": np.array([2**27])}).packed(1)


def test_options_cannot_select_files() -> None:
    options = {"header": "true", "pathGlobFilter": "x*", "modifiedAfter": "2020-01-01", "ignoreMissingFiles": "true"}
    found = scan_options(options, hive=False)
    assert found["header"] == "true"
    assert found["ignoreMissingFiles"] == "false"
    assert not {"pathGlobFilter", "modifiedAfter"} & set(found)


def test_corrupt_page_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(pa.table({"n": range(10_000)}), path, **plain)
    frame = native_frame(spark, listed(tmp_path, [str(path)]))
    assert frame.count() == 10_000
    data = bytearray(path.read_bytes())
    data[5_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"(?i)checksum|crc"):
        native_frame(spark, listed(tmp_path, [str(path)])).selectExpr("sum(n)").collect()


_ODD = r"a b|100%|%20|{x}|*|[a]|#1|ü日本|😀|q?x|it's|back\slash|c+d|a&b=c|~|_hidden|.dot|semi;colon|%zz|caret^|<t>|$v"
ODD_NAMES = [*_ODD.split("|"), 'say "hi"', "tab\t", "new\nline"]


def test_unusual_file_names_are_read(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "a ta%ble #1"
    paths = [write(root / name / f"{name}.parquet", pa.table({"n": [i]})) for i, name in enumerate(ODD_NAMES)]
    paths.append(write(root / "x:y" / "x.parquet", pa.table({"n": [-1]})))
    assert rows(native_frame(spark, listed(root, paths))) == sorted(((i,) for i in range(-1, len(ODD_NAMES))), key=repr)


@pytest.mark.parametrize("name", ["_metadata.parquet", "x:y.parquet"])
def test_names_that_spark_ignores_are_rejected(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with pytest.raises(NativeScanError, match=rf"does not read files with such a name.*{name}"):
        native_frame(spark, listed(tmp_path, [write(tmp_path / name)]))


@pytest.mark.parametrize(("version", "found"), [("4.2.1", "/t/.x"), ("4.3.0", None)])
def test_hidden_names_are_read_since_spark_4_3(version: str, found: str | None) -> None:
    assert unreadable(chunk(["/t/_x/part", "/t/_x=1.parquet", "/a:b/x", "s3://b/x:y", "/t/.x"]), version) == found


def test_duplicate_file_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet")
    with pytest.raises(NativeScanError, match="lists a file twice"):
        native_frame(spark, listed(tmp_path, [path, path]))


def test_missing_and_damaged_files_are_always_errors(spark: SparkSession, tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 this is none PAR1")
    (tmp_path / "empty.parquet").write_bytes(b"")
    lax = {
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoredPathSegmentRegex": "good",
    }
    with settings(spark, lax):
        assert native_frame(spark, listed(tmp_path, [good])).count() == 3
        for name in ("missing", "bad", "empty"):
            files = listed(tmp_path, [good, str(tmp_path / f"{name}.parquet")])
            with pytest.raises(SparkError, match=f"{name}.parquet"):
                native_frame(spark, files).collect()


@pytest.mark.parametrize("size", [None, 0, 100, 10_000, 10**9])
def test_wrong_size_loses_no_rows(spark: SparkSession, tmp_path: Path, size: int | None) -> None:
    path = write(tmp_path / "x.parquet", pa.table({"n": range(10_000)}), row_group_size=1000)
    assert native_frame(spark, listed(tmp_path, [path], sizes=chunk([size], pa.int64()))).count() == 10_000


def test_remote_file_without_a_size_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NativeScanError, match="has no size"):
        native_frame(spark, listed(tmp_path, ["hdfs://host/x"], sizes=chunk([None], pa.int64())))


def test_scan_of_no_files_has_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    df = native_frame(spark, listed(tmp_path, []), address=("file", "row"))
    assert (df.count(), df.dtypes) == (0, [("n", "bigint"), ("file", "int"), ("row", "bigint")])


def test_files_of_many_folders_are_scanned(spark: SparkSession, tmp_path: Path) -> None:
    paths = numbered(tmp_path, ["a", "a/b", "c=1", "a/b/c/d", "."])
    assert rows(native_frame(spark, listed(tmp_path, paths))) == [(i,) for i in range(5)]
