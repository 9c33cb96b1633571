"""Rows like those of TPC-H's ``lineitem``: 16 columns with types and widths typical of warehouses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.harness import data

_BATCH = 250_000
_MONEY = pa.decimal128(15, 2)
_WORDS = ["carefully", "final", "deposits", "sleep", "furiously", "above", "quickly", "ironic", "requests", "accounts"]


def lineitem(rows: int = 2_000_000, *, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """The rows in batches, the same for the same seed."""
    random = np.random.default_rng(seed)
    for start in range(0, rows, _BATCH):
        yield _batch(random, start, min(_BATCH, rows - start))


def lineitem_files(rows: int = 2_000_000, *, files: int = 4) -> Path:
    """A folder of Parquet files with those rows."""

    def build(folder: Path) -> None:
        table = pa.Table.from_batches(lineitem(rows))
        size = -(-rows // files)
        for number in range(files):
            pq.write_table(
                table.slice(number * size, size),
                folder / f"part-{number}.parquet",
                store_schema=False,
                store_decimal_as_integer=True,
            )

    return data(f"lineitem-{rows}-{files}", build)


def _batch(random: np.random.Generator, start: int, count: int) -> pa.RecordBatch:
    def pick(words: list[str]) -> pa.Array:
        return pa.array(words).take(pa.array(random.integers(0, len(words), count)))

    def cents(low: int, high: int) -> pa.Array:
        # A decimal is its unscaled value in 128 bits, low half first.
        halves = np.zeros((count, 2), dtype="<i8")
        halves[:, 0] = random.integers(low, high, count)
        return pa.Array.from_buffers(_MONEY, count, [None, pa.py_buffer(halves)])

    def day(offset: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
        return pa.array((8035 + offset).astype(np.int32)).cast(pa.date32())

    order = np.arange(start, start + count) // 4
    shipped = random.integers(0, 2500, count)
    comment = pc.binary_join_element_wise(*(pick(_WORDS) for _ in range(5)), " ")
    return pa.RecordBatch.from_pydict(
        {
            "l_orderkey": pa.array(order * 8 % 12_000_000 + order % 8),
            "l_partkey": pa.array(random.integers(1, 400_000, count)),
            "l_suppkey": pa.array(random.integers(1, 20_000, count)),
            "l_linenumber": pa.array((np.arange(start, start + count) % 4 + 1).astype(np.int32)),
            "l_quantity": cents(100, 5001),
            "l_extendedprice": cents(90_000, 10_500_000),
            "l_discount": cents(0, 11),
            "l_tax": cents(0, 9),
            "l_returnflag": pick(["A", "N", "R"]),
            "l_linestatus": pick(["F", "O"]),
            "l_shipdate": day(shipped),
            "l_commitdate": day(shipped + random.integers(-60, 60, count)),
            "l_receiptdate": day(shipped + random.integers(1, 31, count)),
            "l_shipinstruct": pick(["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]),
            "l_shipmode": pick(["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]),
            "l_comment": comment,
        }
    )
