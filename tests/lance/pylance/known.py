"""Datasets as programs written for pylance 0.8.19 create them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from trilake.lance.vector import vec_to_table

TABLE = pa.table({"a": range(100), "b": range(100)})


def vectors(rows: int = 300, size: int = 8, low: float = 0.0) -> pa.Table:
    mat = np.random.default_rng(rows).uniform(low, low + 1, (rows, size))
    return vec_to_table(mat).append_column("id", pa.array(range(rows)))
