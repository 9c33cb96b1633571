"""Names that pylance has got since 0.8.19, where they fit datasets of the first format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trilake import lance
from trilake.errors import InvalidArgumentError, StorageError, TrilakeError
from trilake.lance import LanceDataset, LanceOperation

ROWS = pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]})


@pytest.fixture
def made(tmp_path: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2, max_rows_per_group=2)


def test_insert(made: LanceDataset) -> None:
    made.insert(ROWS)
    assert (made.version, made.count_rows()) == (2, 8)
    made.insert(iter(pa.table({"id": [9], "name": ["z"]}).to_batches()), schema=ROWS.schema, max_rows_per_group=16)
    assert made.take([8]).to_pylist() == [{"id": 9, "name": "z"}]
    made.insert(ROWS.slice(0, 1), mode="overwrite")
    assert lance.dataset(made.uri).to_table().equals(ROWS.slice(0, 1))
    with pytest.raises(TypeError, match="max_rows"):
        made.insert(ROWS, max_rows=3)
    with pytest.raises(InvalidArgumentError, match="mode"):
        made.insert(ROWS, mode="upsert")  # type: ignore[arg-type]
    masked = lance.write_dataset(pa.table({"n": [1]}), "memory://later-insert", mode="overwrite", nulls="mask")
    masked.nulls = "mask"
    masked.insert(pa.table({"n": pa.array([None], pa.int64())}))
    assert masked.to_table()["n"].to_pylist() == [1, None]


def test_drop_index(made: LanceDataset) -> None:
    made.create_scalar_index("id", "BTREE")
    made.create_scalar_index("name", "BTREE")
    made.drop_index("id_idx")
    assert [i["name"] for i in made.list_indices()] == ["name_idx"]
    assert made.to_table(filter="id = 3")["name"].to_pylist() == ["c"]
    with pytest.raises(KeyError, match="id_idx"):
        made.drop_index("id_idx")


def test_merge_columns_of_fragments(made: LanceDataset) -> None:
    def value_func(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pc.multiply(batch["id"], 10)], ["ten"])

    parts = [f.merge_columns(value_func, ["id"]) for f in made.get_fragments()]
    merged = LanceDataset.commit(made.uri, LanceOperation.Merge([p[0] for p in parts], parts[0][1]), made.version)
    assert merged.to_table(["id", "ten"]).to_pydict() == {"id": [1, 2, 3, 4], "ten": [10, 20, 30, 40]}


def test_functions_of_batches(made: LanceDataset) -> None:
    @lance.batch_udf()
    def frame(batch: pa.RecordBatch) -> Any:
        return pd.DataFrame({"more": batch["id"].to_pandas() + 0.5})

    made.add_columns(frame, read_columns=["id"])

    @lance.batch_udf(output_schema=pa.schema([pa.field("small", pa.int8(), nullable=False)]))
    def narrow(batch: pa.RecordBatch) -> Any:
        return pd.DataFrame({"small": batch["id"].to_pandas()})

    made.add_columns(narrow)
    assert made.to_table(["more", "small"]).to_pydict() == {"more": [1.5, 2.5, 3.5, 4.5], "small": [1, 2, 3, 4]}
    assert made.schema.field("small").type == pa.int8()

    @lance.batch_udf(output_schema=pa.schema([("x", pa.int8())]))
    def wrong(batch: pa.RecordBatch) -> Any:
        return pa.record_batch([batch["id"]], ["x"])

    with pytest.raises(InvalidArgumentError, match="x int64 instead of x int8"):
        made.add_columns(wrong)
    with pytest.raises(InvalidArgumentError, match="pandas frame"):
        made.add_columns(lance.batch_udf()(lambda batch: 5))


def test_an_interrupted_function_goes_on(made: LanceDataset, tmp_path: Path) -> None:
    seen: list[int] = []
    stop = [3]

    def costly(batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = batch["id"].to_numpy()
        if stop[0] in ids:
            raise ArithmeticError("out of credit")
        seen.extend(ids.tolist())
        return pa.record_batch([pa.array(np.square(ids))], ["square"])

    schema = pa.schema([("square", pa.int64())])
    udf = lance.batch_udf(schema, checkpoint_file=tmp_path / "kept.sqlite")(costly)
    with pytest.raises((ArithmeticError, TrilakeError), match="out of credit"):
        made.add_columns(udf)
    stop[0] = -1
    made.add_columns(udf)
    assert sorted(seen) == [1, 2, 3, 4]
    assert made.to_table(["square"])["square"].to_pylist() == [1, 4, 9, 16]
    (tmp_path / "kept.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="checkpoint"):
        udf(pa.record_batch([[1]], ["id"]))


@pytest.mark.parametrize(
    ("nearest", "message"),
    [
        ({"column": "v", "q": [1, 2], "approximate": True}, "no option 'approximate'"),
        ({"column": "v", "q": [1, 2], "ef": 50}, "no option 'ef'"),
        ({"column": "v"}, "does not say its 'q'"),
        ("v", "nearest is 'v'"),
    ],
)
def test_searches_that_are_not_known(nearest: Any, message: str) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 2)
    made = lance.write_dataset(pa.table({"v": vectors}), "memory://later-searches", mode="overwrite")
    with pytest.raises(TypeError, match=message) as error:
        made.to_table(nearest=nearest)
    assert isinstance(error.value, TrilakeError)
