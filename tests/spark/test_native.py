"""Spark's own scan: what a manifest says, which layouts Spark may infer, and files it must not be given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import trilake
from trilake.spark.native import NativeFiles, NativeScanError, native_frame, native_refusal
from trilake.spark.native_manifest import FileKey, manifest
from trilake.spark.native_partitions import hive_columns
from trilake.spark.native_vectors import pack

ODD = ["/a b/%20.parquet", '/q"\\/{x}*[1]#?+&.parquet', "/ü/日本.parquet", "/p=a%3Db/x.parquet"]


def chunked(values: list[object], type_: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type_)])


def test_a_manifest_names_odd_files_exactly() -> None:
    from urllib.parse import unquote, urlsplit

    text = manifest(chunked(list(ODD)), chunked([1, 2, 3, 4]), np.array([7, 8, 9, 10])).decode()
    head, *lines = text.split("\n")
    assert head == "v1"
    entries = [json.loads(line) for line in lines]
    assert [unquote(urlsplit(e["path"]).path) for e in entries] == ODD
    assert [e["size"] for e in entries] == [1, 2, 3, 4]
    assert [e["modificationTime"] for e in entries] == [7, 8, 9, 10]
    assert all(e["action"] == "add" and e["isDir"] is False for e in entries)


def test_a_key_that_does_not_fit_is_refused() -> None:
    with pytest.raises(NativeScanError, match="too many to number"):
        FileKey({"a": np.array([1 << 40]), "b": np.array([1 << 40])}).packed(1)


def layout(root: str, folders: list[str], values: dict[str, pa.ChunkedArray]) -> dict[str, str] | None:
    paths = chunked([f"{root}/{f}/x.parquet" for f in folders])
    return hive_columns(f"file://{root}", paths, values, {n: n for n in values})


def test_layouts_that_spark_infers() -> None:
    assert layout("/t", ["p=1", "p=2"], {"p": chunked([1, 2], pa.int32())}) == {"p": "p"}
    both = {"d": chunked([18262], pa.int32()).cast(pa.date32()), "s": chunked(["a/b"])}
    assert layout("/t", ["d=2020-01-01/s=a%2Fb"], both) == {"d": "d", "s": "s"}
    null = chunked([None], pa.int32())
    assert layout("/t", ["p=__HIVE_DEFAULT_PARTITION__"], {"p": null}) == {"p": "p"}


@pytest.mark.parametrize(
    ("root", "folder", "value"),
    [
        ("/t", "p=2", 1),  # the folder says something else than the log
        ("/t", "data", 1),  # no folder of Hive's
        ("/t/x=1", "p=1", 1),  # Spark would take the table's own folder for a partition
        ("/t", "q=1", 1),  # another column
        ("/t", "p=1/more", 1),
    ],
)
def test_layouts_that_spark_must_not_infer(root: str, folder: str, value: int) -> None:
    assert layout(root, [folder], {"p": chunked([value], pa.int32())}) is None


def test_refusals() -> None:
    assert native_refusal("file:///t", "parquet") is None
    assert "file system" in (native_refusal("s3://b/t", "parquet") or "")
    assert "trevni" in (native_refusal("file:///t", "trevni") or "")
    assert "orc" in (native_refusal("file:///t", "orc", vectors=True) or "")


def test_vectors_far_into_a_file_stay_small() -> None:
    far = BitMap64([0, 63, 64, 5_000_000_000])
    words = pack([far, BitMap64([1])])
    # As a plain bitmap, five billion rows are 625 MB.
    assert sum(a.nbytes for a in vars(words).values() if isinstance(a, pa.Array)) < 16 << 20


def files(folder: Path, names: list[str]) -> NativeFiles:
    """Files of 10 rows each, n counting on from file to file."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i, name in enumerate(names):
        path = folder / name
        pq.write_table(pa.table({"n": range(i * 10, i * 10 + 10)}), path, row_group_size=3)
        paths.append(path)
    n = T.StructField("n", T.LongType())
    return NativeFiles(
        root=folder.as_uri(),
        paths=chunked([str(p) for p in paths]),
        sizes=chunked([p.stat().st_size for p in paths]),
        read_schema=T.StructType([n]),
        partition_columns={},
        partition_types=T.StructType([]),
        output=[("n", T.StructField("number", T.LongType()))],
        vectors={0: BitMap64([0, 4, 9]), 2: BitMap64(range(10))},
    )


def test_a_scan_of_odd_names_with_vectors_and_addresses(spark: SparkSession, tmp_path: Path) -> None:
    scan = files(tmp_path / "t %+", ["a b.parquet", "c#{*}%20.parquet", "gone.parquet", "_hidden.parquet"])
    df = native_frame(spark, scan, address=("file", "row"))
    rows = {(r["number"], r["file"], r["row"]) for r in df.collect()}
    kept = [n for n in range(40) if n not in (0, 4, 9) and not 20 <= n < 30]
    assert rows == {(n, n // 10, n % 10) for n in kept}
    # Row numbers count all rows of a file, whatever row groups a filter skips.
    assert [(r["number"], r["row"]) for r in df.where("number = 18").collect()] == [(18, 8)]


def test_files_that_spark_would_pass_over_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NativeScanError, match="passes over"):
        native_frame(spark, files(tmp_path, ["_metadata", "b", "c"]))


def test_what_the_scan_cannot_do_goes_through_arrow(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    trilake.write(pa.table({"n": [1, 2]}), path)
    (file,) = path.glob("*.parquet")
    file.rename(path / "_metadata")
    log = path / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace(file.name, "_metadata"))
    assert sorted(r.n for r in trilake.read(spark, path).collect()) == [1, 2]
