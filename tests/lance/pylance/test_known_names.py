"""API of pylance 0.8.19: modules, names, and helpers for tables, vectors and samples."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.lance.pylance.known import TABLE, vectors
from trilake import lance
from trilake.lance.cache import CachedDataset
from trilake.lance.sampler import maybe_sample, reservoir_sampling
from trilake.lance.vector import vec_to_table

# --- modules ----------------------------------------------------------------------------------------------------------


def test_modules_can_be_imported_either_way() -> None:
    code = (
        "import trilake.lance as lance; from trilake.lance.dataset import LanceDataset;"
        "assert callable(lance.dataset) and lance.util.KMeans and lance.vector.vec_to_table and lance.arrow.BFloat16;"
        "assert lance.progress.FragmentWriteProgress and lance.optimize.Compaction and lance.fragment.LanceFragment;"
        "assert lance.schema.schema_to_json is lance.schema_to_json and lance.cleanup.cleanup_partial_writes;"
        "assert lance.dataset('memory://known-names').count_rows() == 1 and lance.__version__"
    )
    prepare = "import trilake.lance as l, pyarrow as pa; l.write_dataset(pa.table({'a':[1]}), 'memory://known-names');"
    subprocess.run([sys.executable, "-c", prepare + code], check=True)


# --- helpers ----------------------------------------------------------------------------------------------------------


def test_vector_tables() -> None:
    rows = np.random.default_rng(1).normal(size=(10, 8))
    plain = vec_to_table(rows)
    assert plain.schema == pa.schema({"vector": pa.list_(pa.float32(), 8)})
    assert vec_to_table(list(rows)) == plain
    keyed = vec_to_table(dict(zip(range(10), rows)), names=["k", "v"])
    assert (keyed.column_names, keyed["v"].to_pylist()) == (["k", "v"], plain["vector"].to_pylist())
    with pytest.raises(ValueError, match="dimensions"):
        vec_to_table([[1, 2], [3]])
    with pytest.raises(NotImplementedError):
        vec_to_table(3)  # type: ignore[arg-type]


def test_schemas_as_json() -> None:
    schema = pa.schema([pa.field("e", pa.list_(pa.float32(), 32), False), pa.field("id", pa.int64())])
    item = {"name": "item", "type": {"type": "float"}, "nullable": True}
    vector = {"type": "fixed_size_list", "fields": [item], "length": 32}
    found = lance.schema_to_json(schema)
    assert found == {
        "fields": [
            {"name": "e", "type": vector, "nullable": False},
            {"name": "id", "type": {"type": "int64"}, "nullable": True},
        ]
    }
    assert lance.json_to_schema(found) == schema
    deep = pa.schema(
        {
            "s": pa.struct([pa.field("l", pa.list_(pa.string())), pa.field("t", pa.timestamp("us", "UTC"))]),
            "d": pa.dictionary(pa.int8(), pa.string()),
            "n": pa.large_list(pa.int8()),
        }
    ).with_metadata({"k": "v"})
    assert lance.json_to_schema(json.loads(json.dumps(lance.schema_to_json(deep)))).equals(deep, check_metadata=True)
    for bad in ({"x": 1}, {"fields": [{"name": "a", "type": {"type": "foo"}, "nullable": True}]}, {"fields": [3]}):
        with pytest.raises(ValueError):
            lance.json_to_schema(bad)


def test_kmeans() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
    model = lance.util.KMeans(32, metric_type="cosine")
    centres: Any = model.centroids
    assert centres is None
    model.fit(rows)
    centres = model.centroids
    centroids = np.stack(centres.to_numpy(zero_copy_only=False))
    cosine = 1 - rows @ centroids.T / np.linalg.norm(rows, axis=1)[:, None] / np.linalg.norm(centroids, axis=1)
    assert np.array_equal(model.predict(rows).to_numpy(), cosine.argmin(1))
    for bad, text in (
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((9, 4, 2), np.float32)), "must be a 1-D array"),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((9, 4))), "must be float32 type, got: double"),
        (np.zeros(4, np.float32), "must be a 2-D array"),
    ):
        with pytest.raises(ValueError, match=text):
            model.fit(bad)
    with pytest.raises(ValueError):
        lance.util.KMeans(3, "hamming")


def test_kmeans_uses_given_centroids() -> None:
    rows = np.array([[0, 0], [0, 1], [9, 9], [9, 8]], np.float32)
    centroids = pa.FixedSizeListArray.from_arrays(pa.array([8, 8, 1, 1], pa.float32()), 2)
    model = lance.util.KMeans(2, "euclidean", centroids=centroids)
    assert model.predict(rows).to_pylist() == [1, 1, 0, 0]
    for _ in range(2):
        model.fit(rows)
        assert model.centroids.to_numpy_ndarray().tolist() == [[9, 8.5], [0, 0.5]]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="expected 3 centroids, got 2"):
        lance.util.KMeans(3, centroids=centroids)


def test_maybe_sample_returns_distinct_rows(tmp_path: Path) -> None:
    dataset = lance.write_dataset(vectors(5000), tmp_path)
    for takes in (512, 32):
        (found,) = maybe_sample(dataset, 128, ["id"], max_takes=takes)
        assert (found.num_rows, found.schema) == (128, pa.schema({"id": pa.int64()}))
        assert len(set(found["id"].to_pylist())) == 128
    assert sum(b.num_rows for b in maybe_sample(str(tmp_path), 10_000, "id")) == 5000
    assert sum(b.num_rows for b in maybe_sample(dataset, 4999, "id", batch_size=100)) == 4999
    assert len(set(reservoir_sampling(iter(range(100)), 10))) == 10


def test_cached_dataset() -> None:
    kept = CachedDataset(iter(TABLE.to_batches(max_chunksize=30)))
    first = [b.num_rows for b in kept]
    assert first == [b.num_rows for b in kept] == [30, 30, 30, 10]
    kept.close()
    with pytest.raises(ValueError):
        CachedDataset([], cache=3)  # type: ignore[arg-type]


def test_extension_types(tmp_path: Path) -> None:
    """In a separate process: another library with these types may be loaded in this one."""
    code = f"""
import numpy as np, pandas as pd, pyarrow as pa, re
import trilake.lance as lance
from trilake.lance.arrow import *
arr = bfloat16_array([1.1, None, 3.4])
assert isinstance(arr, BFloat16Array) and arr.to_pylist() == [BFloat16(1.1), None, BFloat16(3.4)]
assert str(BFloat16(1.124565)) == "1.125" and BFloat16(1.1) > BFloat16(1.0) and BFloat16(1.1) != BFloat16(1.0)
assert re.match(r"<lance.arrow.BFloat16Array object at 0x[\\w\\d]+>\\n\\[\\n  1.1015625,\\n  None,\\n  3.4", repr(arr))
series = arr.to_pandas()
assert series[0] == BFloat16(1.1) and series[1] is None and str(series.dtype) == "lance.bfloat16"
pd.testing.assert_series_equal(series, pd.Series(series, dtype="lance.bfloat16"))
assert pa.array(series) == arr
bfloat16 = type("bfloat16", (float,), {{}})  # as in ml_dtypes
assert arr[0] == BFloat16(1.1) and arr[0] == arr[0] and arr[0] == bfloat16(1.1) and arr[1] != arr[0] != 1.1
assert hash(arr[0]) == hash(BFloat16(1.1))
pd.testing.assert_series_equal(pa.array(series).to_pandas(), series)
tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(60, dtype=np.float32).reshape(10, 2, 3))
uris = ImageURIArray.from_uris(["a.png"] * 10)
for names in pa.array(["a.png"]), pa.array(["a.png"], pa.large_string()):
    made = ImageURIArray.from_uris(names)
    assert made.storage == names and made == ImageArray.from_array(names) and made.type == ImageURIType(names.type)
large = ImageArray.from_array(pa.array([b"x"], pa.large_binary()))
assert large.type == EncodedImageType(pa.large_binary()) != EncodedImageType() and large[0].as_py() == b"x"
open({str(tmp_path / "a.png")!r}, "wb").write(b"xyz")
read = ImageURIArray.from_uris([{str(tmp_path / "a.png")!r}]).read_uris(pa.large_binary())
assert read.storage.type == pa.large_binary() and read.to_pylist() == [b"xyz"]
for kind in ImageURIType, EncodedImageType:
    try:
        kind(pa.int8())
    except ValueError as e:
        assert "got int8" in str(e)
    else:
        raise AssertionError
table = pa.table({{
    "s": [str(i) for i in range(10)], "h": pa.array(np.arange(10, dtype=np.float16)),
    "b": bfloat16_array([1 + i / 10 for i in range(10)]), "t": tensor, "u": uris,
    "l": ImageArray.from_array(pa.array([b"x"] * 10, pa.large_binary())),
}})
made = lance.write_dataset(table, {str(tmp_path / "t")!r})
assert made.to_table() == table, made.to_table()
assert made.take([0, 2])["t"].to_pylist() == tensor.take(pa.array([0, 2])).to_pylist()
assert ImageArray.from_array(["x"]).to_pylist() == ["x"] and ImageArray.from_array(uris) is uris
pixels = ImageArray.from_array(pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 1, 1, 4), np.uint8)))
assert pixels.to_numpy().shape == (2, 1, 1, 4) and pixels.type.shape == (1, 1, 4)
encoded = pixels.to_encoded(lambda p: pa.array([bytes(x.ravel()) for x in p], pa.binary()))
decode = lambda images: np.stack([np.frombuffer(i, np.uint8).reshape(1, 1, 4) for i in images.to_pylist()])
assert encoded.to_tensor(decode) == pixels
assert pixels.to_encoded(lambda p: encoded.storage, pa.large_binary()).to_tensor(decode) == pixels
assert isinstance(uris[0], ImageURIScalar) and uris[0].as_py() == "a.png"
assert isinstance(encoded[0], EncodedImageScalar) and encoded[0].as_py() == bytes(4)
assert isinstance(pixels[0], FixedShapeImageTensorScalar) and isinstance(pixels[0], ImageScalar)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_trace_to_chrome(tmp_path: Path) -> None:
    code = "from trilake.lance.tracing import trace_to_chrome; trace_to_chrome(); trace_to_chrome(file='x.json')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert len(list(tmp_path.glob("trace-*.json"))) == 1
    assert json.loads((tmp_path / "x.json").read_text()) == []
    with pytest.raises(ValueError):
        lance.tracing.trace_to_chrome(level="invalid")


def test_set_logger(tmp_path: Path) -> None:
    code = """
import logging, os, sys, trilake.lance as lance
from trilake.lance.log import LOGGER, set_logger
os.chdir(sys.argv[1])
assert lance.set_logger is set_logger and not LOGGER.handlers
set_logger()
set_logger("debug.log", level="DEBUG", format_string="%(levelname)s: %(message)s")
LOGGER.info("hello")
logging.getLogger("trilake.lance").debug("world")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert (tmp_path / "debug.log").read_text() == "INFO: hello\nDEBUG: world\n"
    assert (tmp_path / "pylance.log").read_text().endswith("trilake [INFO] <string>:8 <module> : hello\n")


def test_imported_names_exist() -> None:
    from trilake.lance import CommitLock, sanitize_ts
    from trilake.lance.dataset import (
        CleanupStats,
        Compaction,
        CompactionMetrics,
        DatasetOptimizer,
        DatasetStats,
        FragmentMetadata,
        LanceFragment,
        LanceStats,
        ReaderLike,
        td_to_micros,
    )
    from trilake.lance.fragment import FragmentWriteProgress, NoopFragmentWriteProgress
    from trilake.lance.lance import TraceGuard

    assert all(
        name is not None
        for name in (
            CommitLock,
            CleanupStats,
            Compaction,
            CompactionMetrics,
            DatasetOptimizer,
            DatasetStats,
            ReaderLike,
        )
    )
    assert (LanceFragment, FragmentMetadata) == (lance.LanceFragment, lance.FragmentMetadata)
    assert issubclass(NoopFragmentWriteProgress, FragmentWriteProgress)
    assert LanceStats.__name__ == "LanceStats"
    assert td_to_micros(dt.timedelta(seconds=1)) == 1_000_000
    assert sanitize_ts("2024-01-01").year == 2024
    assert callable(TraceGuard.finish_tracing)


def test_imported_names_of_later_releases_exist() -> None:
    from trilake.lance.dataset import BatchUDF, MergeInsertBuilder, Tags, batch_udf
    from trilake.lance.udf import batch_udf as same

    ds = lance.write_dataset(pa.table({"a": [1]}), "memory://later-names", mode="overwrite")
    assert isinstance(ds.merge_insert("a"), MergeInsertBuilder)
    assert isinstance(ds.tags, Tags)
    assert same is batch_udf is lance.batch_udf
    assert (BatchUDF, lance.udf.BatchUDF) == (lance.BatchUDF, lance.BatchUDF)


def test_missing_argument_names_the_method_of_the_dataset() -> None:
    dataset = lance.write_dataset(pa.table({"a": [1]}), "memory://missing-argument", mode="overwrite")
    with pytest.raises(TypeError, match=r"^LanceDataset\.take\(\) missing"):
        dataset.take()
