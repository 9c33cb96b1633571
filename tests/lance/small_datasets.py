"""Datasets of 300 rows in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake import lance
from trilake.lance import LanceDataset

ROWS = pa.table({"id": pa.array(range(300), pa.int64()), "t": [f"t{i % 7}" for i in range(300)]})
numbers = iter(range(10**6))


def begun(rows: pa.Table = ROWS, **more: Any) -> LanceDataset:
    uri = f"memory://lance-commands-{next(numbers)}"
    return lance.write_dataset(rows, uri, **{"max_rows_per_file": 100, "max_rows_per_group": 20, **more})


def rows_of(ds: LanceDataset) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.to_table().to_pylist()
    return found
