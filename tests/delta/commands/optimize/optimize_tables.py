"""Tables of small files in memory, for the tests of compaction."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

import trilake
from tests.delta.tables import opened

VECTORS = {"delta.enableDeletionVectors": "true"}


def append(uri: str, data: pa.Table, **more: Any) -> None:
    trilake.write(data, uri, mode="append", **more)


def delete(uri: str, where: str) -> None:
    trilake.write(opened(uri).schema.empty_table(), uri, mode="overwrite", replace_where=where)


def small_files(uri: str, files: int = 4, each: int = 3, **more: Any) -> None:
    for n in range(files):
        ids = range(n * each, (n + 1) * each)
        append(uri, pa.table({"id": pa.array(ids, pa.int64()), "p": [f"p{i % 2}" for i in ids]}), **more)
        more.pop("properties", None)


def ids(uri: str) -> list[int]:
    return sorted(opened(uri).to_arrow(["id"])["id"].to_pylist())


def actions(uri: str, version: int | None = None) -> list[dict[str, Any]]:
    table = opened(uri)
    number = table.version if version is None else version
    return [json.loads(line) for line in bytes(table.log.store.read(f"_delta_log/{number:020d}.json")).splitlines()]
