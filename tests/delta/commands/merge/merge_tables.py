"""Tables for merge tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import new_uri, opened
from trilake.delta.table import ArrowDeltaTable

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
KINDS = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])


def table(rows: pa.Table, properties: Mapping[str, str] | None = None, **more: Any) -> ArrowDeltaTable:
    uri = new_uri()
    trilake.write(rows, uri, properties=properties, **more)
    return opened(uri)


def rows(t: ArrowDeltaTable, by: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = t.refresh().to_arrow().sort_by(by).to_pylist()
    return result


def pairs(t: ArrowDeltaTable) -> list[tuple[Any, Any]]:
    result = t.refresh().to_arrow()
    return sorted(zip(result["key"].to_pylist(), result["value"].to_pylist(), strict=True))


def letters(properties: Mapping[str, str] | None = None) -> ArrowDeltaTable:
    return table(pa.table({"key": ["a", "b", "c", "d"], "value": [1, 2, 3, 4]}), properties)


SOURCE = pa.table({"k": ["a", "b", "e", "f"], "v": [-1, 0, -5, -6]})


def info(t: ArrowDeltaTable) -> dict[str, Any]:
    return t.log.commit_info(t.refresh().version)
