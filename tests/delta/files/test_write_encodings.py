"""Column encodings of data files, and round trips."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import finish_write, plan_write
from trilake.delta.files.file_writer import dictionary_columns
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

COUNT = 150_000


def _rows() -> pa.Table:
    random = np.random.default_rng(3)
    few = pa.array(["red", "green", "blue"]).take(pa.array(random.integers(0, 3, COUNT)))
    return pa.table(
        {
            "unique": np.arange(COUNT),
            "runs": np.arange(COUNT) // 2 * 2,
            "thousands": random.integers(0, 5000, COUNT),
            "few": few,
            "flag": pc.equal(few, "red"),
            "s": pc.make_struct(few, pa.array(np.arange(COUNT)), field_names=["a", "b"]),
            "l": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(COUNT)), 1).cast(pa.list_(pa.int64())),
            "none": pa.nulls(COUNT, pa.string()),
        }
    )


def test_only_columns_with_small_dictionaries_use_them() -> None:
    rows = _rows()
    chosen = dictionary_columns(rows)
    assert chosen == ["thousands", "few", "flag", "s.a", "s.b", "l.list.element", "none"]
    # Small data always uses dictionaries.
    assert dictionary_columns(rows.slice(0, 1000)) is True


def test_dictionary_paths_match_the_file() -> None:
    rows = _rows().append_column("m", pa.array([[("k", 1)]] * COUNT, pa.map_(pa.string(), pa.int64())))
    chosen = dictionary_columns(rows)
    assert isinstance(chosen, list)
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_dictionary=chosen, store_schema=False)
    meta = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
    assert set(chosen) < {meta.schema.column(i).path for i in range(meta.num_columns)}
    encodings = {meta.schema.column(i).path: meta.row_group(0).column(i).encodings for i in range(meta.num_columns)}
    assert "RLE_DICTIONARY" in encodings["few"]
    assert "RLE_DICTIONARY" not in encodings["unique"]


def test_elements_that_are_all_null_have_no_dictionary(tmp_path: Path) -> None:
    pair = pa.struct({"x": pa.string(), "y": pa.int64()})
    data = {
        "none": pa.array([[None], [], None], pa.list_(pa.int64())),
        "some": pa.array([[None], [2], None], pa.list_(pa.int64())),
        "empty": pa.array([[], [], None], pa.list_(pa.int64())),
        "pairs": pa.array([[{"x": None, "y": 1}], None, []], pa.list_(pair)),
        "m": pa.array([[("k", None)], None, []], pa.map_(pa.string(), pa.int64())),
        "top": pa.nulls(3, pa.string()),
    }
    uri = str(tmp_path)
    trilake.write(pa.table(data), uri)
    (path,) = tmp_path.glob("*.parquet")
    meta = pq.read_metadata(path)
    columns = [meta.row_group(0).column(i) for i in range(meta.num_columns)]
    without = {c.path_in_schema for c in columns if "RLE_DICTIONARY" not in c.encodings}
    assert without == {"none.list.element", "pairs.list.element.x", "m.key_value.value"}
    assert trilake.open(uri).to_arrow().to_pylist() == pa.table(data).to_pylist()


def test_rows_of_many_batches_reach_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two batch sizes, so that rows are split while they arrive and at the end.
    monkeypatch.setattr("trilake.delta.files.write_files._SPLIT_SIZE", 40_000)
    rows = _rows().select(["unique", "few"])
    batches = rows.to_batches(max_chunksize=999)
    store = open_store("memory://encodings-partitions")
    result = trilake.write(iter(batches), store.uri, mode="overwrite", partition_by="few")
    assert (result.files_added, result.rows_added) == (3, COUNT)
    assert trilake.open(store.uri).to_arrow().sort_by("unique").select(["unique", "few"]).equals(rows)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.decimals("-9999.99", "9999.99", places=2)), min_size=1),
    st.sampled_from([6, 18, 30]),
)
def test_decimals_and_their_bounds_round_trip(values: list[Decimal | None], precision: int) -> None:
    rows = pa.table({"d": pa.array(values, pa.decimal128(precision, 2))})
    uri = f"memory://encodings-decimal-{precision}"
    trilake.write(rows, uri, mode="overwrite")
    table = trilake.open(uri)
    assert table.to_arrow().equals(rows)
    bound = max((v for v in values if v is not None), default=None)
    if bound is not None:
        assert table.count(f"d >= {bound}") == sum(v is not None and v >= bound for v in values)


@pytest.mark.parametrize("partition_by", [None, "p"])
def test_buffered_rows_respect_the_target_file_size(partition_by: str | None) -> None:
    uri = MemoryStore().uri
    rows = pa.table({"x": np.random.default_rng(1).random(400_000), "p": [n // 200_000 for n in range(400_000)]})
    trilake.write(rows, uri, properties={"delta.targetFileSize": "500kb"}, partition_by=partition_by)
    table = trilake.open(uri)
    sizes = table.files()["size"].to_pylist()
    assert len(sizes) in range(6, 9)
    assert max(sizes) < 1 << 20
    assert table.to_arrow().sort_by("x").equals(rows.sort_by("x"))
    assert table.optimize().files_added == 0


def test_streamed_rows_respect_the_target_file_size() -> None:
    uri = MemoryStore().uri
    rows = pa.table({"x": np.random.default_rng(1).random(400_000)})
    schema, batches = rows.schema, rows.to_batches(max_chunksize=20_000)
    log = DeltaLog(open_store(uri), standard_engine())
    request = WriteRequest("error", from_arrow(schema), properties={"delta.targetFileSize": "1mb"})
    plan = plan_write(log, request)
    finish_write(log, plan, [write_files(log.store, replace(plan.files, buffer_size=1 << 19), batches)])
    sizes = trilake.open(uri).files()["size"].to_pylist()
    assert len(sizes) == 3
    assert max(sizes) < 2 << 20
