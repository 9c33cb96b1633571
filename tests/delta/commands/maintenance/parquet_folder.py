"""Folders of Parquet files in memory, and tables converted from them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.delta.tables import rows
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore


def put(store: Store, key: str, table: pa.Table, **options: Any) -> None:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    store.put(key, sink.getvalue())


def folder(*keys: str) -> MemoryStore:
    """A store with a file of one row for each key; ``n`` counts them."""
    store = MemoryStore()
    for n, key in enumerate(keys):
        put(store, key, pa.table({"n": [n]}))
    return store


def read(store: Store, **options: Any) -> list[dict[str, Any]]:
    return rows(ArrowDeltaTable(store, standard_engine()).to_arrow(**options))


def types(store: Store) -> dict[str, str]:
    return {f.name: str(f.type) for f in ArrowDeltaTable(store, standard_engine()).snapshot.schema.fields}
