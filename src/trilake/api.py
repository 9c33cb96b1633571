"""What users call: one set of names for every format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trilake.delta.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable, TimestampLike
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table import Table


def open_table(
    uri: str | Path,
    *,
    format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    store = open_store(str(uri), dict(storage_options or {}))
    return ArrowDeltaTable(store, version=version, timestamp=timestamp)
