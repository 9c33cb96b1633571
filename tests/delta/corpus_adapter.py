"""Adapters of each API for the corpus runner."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.storage import open_store


def _open(path: str, **kw: Any) -> ArrowDeltaTable:
    return ArrowDeltaTable(open_store(path), standard_engine(), **kw)


def arrow() -> dict[str, Any]:
    """The adapter without Spark."""

    def read_cdf(path: str, start: int, end: int | None) -> pa.Table:
        return _open(path).changes(start, end)

    return {
        "read": lambda path, version=None: _open(path, version=version).to_arrow(),
        "read_cdf": read_cdf,
        "files": lambda path: _open(path).files()["path"].to_pylist(),
        "read_where": lambda path, sql: _open(path).to_arrow(filter=sql),
        "read_asof": lambda path, ts: _open(path, timestamp=ts).to_arrow(),
    }
