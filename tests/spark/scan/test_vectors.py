"""Deletion vectors in Spark's plan: exactly the deleted rows are removed, and Spark still skips and prunes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.native_files import listed, numbered, plan, rows, settings, write
from trilake.spark.scan import vectors as native_vectors
from trilake.spark.scan.manifest import NativeScanError
from trilake.spark.scan.scan import native_frame
from trilake.spark.scan.vectors import Words, pack


def unpack(words: Words) -> list[list[int]]:
    """The row numbers of packed vectors, by a simple decoder."""
    out: list[list[int]] = []
    for slot, bits in enumerate(words.words.to_pylist()):
        found = [w * 64 + b for w, word in enumerate(bits) if word for b in range(64) if word >> b & 1]
        if words.pages is not None:
            table = {at: page for page, at in enumerate(words.pages[slot].as_py()) if at >= 0}
            found = sorted(table[r // 4096] * 4096 + r % 4096 for r in found)
        out.append(found)
    return out


row_sets = st.lists(st.sets(st.integers(0, 50_000) | st.integers(0, 130), max_size=40), min_size=1, max_size=5)


@pytest.mark.parametrize("dense", [True, False])
@given(sets=row_sets)
def test_packed_vectors(dense: bool, sets: list[set[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not dense:
            patch.setattr(native_vectors, "_DENSE_WORDS", -1)
        bitmaps, arrays = [BitMap64(s) for s in sets], [np.array(sorted(s), np.uint32) for s in sets]
        assert unpack(pack(bitmaps)) == unpack(pack(arrays)) == [sorted(s) for s in sets]
        assert (pack(bitmaps).pages is None) == dense


def test_scattered_rows_take_little_memory() -> None:
    found = pack([BitMap64([0, 2**29])] * 50)  # 3 GB uncompressed
    assert found.count == 50 * 2 * 64
    assert found.pages is not None
    assert unpack(Words(found.words.slice(0, 1), found.pages.slice(0, 1))) == [[0, 2**29]]


@pytest.mark.parametrize("last", [2**45, 2**50, 2**63, 2**64 - 1])
def test_too_large_row_numbers_are_rejected(last: int) -> None:
    with pytest.raises(NativeScanError, match="too large"):
        pack([BitMap64([1, last])])


COUNT = 20_000
VECTORS = {
    0: BitMap64([0, 1, 63, 64, 2999, 3000, 4095, 4096, COUNT - 1]),
    2: BitMap64(range(5, COUNT, 7)),
}
LEFT = {0: COUNT - len(VECTORS[0]), 1: COUNT, 2: COUNT - len(VECTORS[2])}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three files whose rows contain the file number and the row number, in many row groups of several pages."""
    folder = tmp_path_factory.mktemp("vectors")
    options = {"row_group_size": 3000, "data_page_size": 2000, "write_page_index": True, "use_dictionary": False}
    return [
        write(
            folder / f"{i}.parquet",
            pa.table({"file": pa.array([i] * COUNT, pa.int32()), "row": range(COUNT), "text": ["x" * 20] * COUNT}),
            **options,
        )
        for i in range(3)
    ]


@pytest.mark.parametrize("form", ["carried", "join", "paged join"])
@pytest.mark.parametrize("reader", ["vectorized", "row by row"])
def test_deleted_rows_are_not_read(
    spark: SparkSession, paths: list[str], monkeypatch: pytest.MonkeyPatch, form: str, reader: str
) -> None:
    if form != "carried":
        monkeypatch.setattr(native_vectors, "_CARRIED_WORDS", -1)
    if "paged" in form:
        monkeypatch.setattr(native_vectors, "_DENSE_WORDS", -1)
    conf = {
        "spark.sql.files.maxPartitionBytes": "20000",
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.parquet.enableVectorizedReader": str(reader == "vectorized").lower(),
    }
    with settings(spark, conf):
        df = native_frame(spark, listed(Path(paths[0]).parent, paths, pq.read_schema(paths[0]), vectors=VECTORS))
        found = df.select("file", "row", F.input_file_block_start().alias("start")).toArrow()
        assert len(found["start"].unique()) > 3, "files are split"
        for i in range(3):
            there = found.filter(pa.compute.equal(found["file"], i))["row"].to_pylist()
            assert sorted(there) == [r for r in range(COUNT) if r not in VECTORS.get(i, ())]
        assert df.count() == sum(LEFT.values())
        some = df.where("row BETWEEN 4090 AND 4100 AND file = 0").select("row")
        assert [r[0] for r in rows(some)] == [r for r in range(4090, 4101) if r not in (4095, 4096)]
        text = plan(some)
        assert "GreaterThanOrEqual(row,4090)" in text
        assert "text" not in text.split("ReadSchema: ")[1].split(">")[0]
        assert ("LeftAnti" in text) == ("join" in form)


def test_row_addresses(spark: SparkSession, paths: list[str]) -> None:
    files = listed(Path(paths[0]).parent, paths, pq.read_schema(paths[0]), vectors=VECTORS)
    df = native_frame(spark, files, address=("at file", "at row"))
    assert df.columns == ["file", "row", "text", "at file", "at row"]
    assert df.where("file != `at file` OR row != `at row`").count() == 0
    assert df.count() == sum(LEFT.values())


def test_vectors_partition_values_and_addresses_share_the_key(spark: SparkSession, paths: list[str]) -> None:
    values = pa.array([Decimal("1.5"), None, Decimal("1.5")])
    files = listed(Path(paths[0]).parent, paths, pq.read_schema(paths[0]), {"p": values}, vectors=VECTORS)
    df = native_frame(spark, files, address=("f", "r"))
    found = {(r.p, r.file): r.n for r in df.groupBy("p", "file").agg(F.count("*").alias("n")).collect()}
    assert found == {(values[i].as_py(), i): n for i, n in LEFT.items()}
    assert df.where("f != file").count() == 0


def test_vectors_in_inferred_partitions(spark: SparkSession, tmp_path: Path) -> None:
    files = listed(
        tmp_path,
        numbered(tmp_path, ["p=1", "p=2", "p=3"]),
        partitions={"p": pa.array([1, 2, 3])},
        vectors={1: BitMap64([0])},
    )
    df = native_frame(spark, files)
    assert rows(df) == [(0, 1), (2, 3)]
    assert "p#" in plan(df.where("p < 3")).split("PartitionFilters: [")[1].split("]")[0]


def test_empty_vector(spark: SparkSession, tmp_path: Path) -> None:
    files = listed(tmp_path, numbered(tmp_path, ["."] * 2), vectors={0: BitMap64(), 1: BitMap64([0])})
    assert rows(native_frame(spark, files)) == [(0,)]


def test_spark_without_row_numbers_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    files = listed(tmp_path, [write(tmp_path / "x.parquet", pa.table({"m": [1]}))])
    df = native_frame(spark, files)  # the column `n` is missing in the file, as the row index would be
    with pytest.raises(Exception, match="does not number the rows"):
        native_vectors.alive(spark, df, native_vectors.pack([BitMap64([0])]), "0", number="n").collect()
