"""Batches sent from a Python data source to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from trilake.spark.session.sources.rows_source import BATCH_ROWS, Piece, RowsReader, short_batches


class _Reader(RowsReader):
    def pieces(self) -> list[Any]:
        return [250_000]

    def rows_of(self, piece: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array(range(piece), pa.int64())})


def test_long_batches_are_split() -> None:
    reader = _Reader(T.StructType([T.StructField("id", T.LongType())]), pa.schema({"id": pa.int64()}), None)
    batches = list(reader.read(Piece(250_000)))
    assert max(batch.num_rows for batch in batches) == BATCH_ROWS
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(250_000))


@pytest.mark.parametrize("rows", [0, 1, BATCH_ROWS, BATCH_ROWS + 1])
def test_batches_keep_their_rows(rows: int) -> None:
    batch = pa.record_batch({"id": range(rows)})
    short = list(short_batches(batch))
    assert pa.Table.from_batches(short) == pa.Table.from_batches([batch])
    assert len(short) == max(1, -(-rows // BATCH_ROWS))


def test_batches_of_large_rows_are_small() -> None:
    batch = pa.record_batch({"text": ["x" * 10_000_000] * 10})
    assert [b.num_rows for b in short_batches(batch)] == [3, 3, 3, 1]
