"""Checks of deletion vectors: readable, with the stated number of rows, all inside the file."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import pyarrow.compute as pc

from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.delta.scan.statistics import record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.footers import THREADS, stored_files
from trilake.errors import TrilakeError
from trilake.storage.base import Store
from trilake.table.findings import Finding, unreadable

_HELP = (
    "restore the file of the deletion vector, or a version of the table without it: otherwise reads would miss rows"
    " or return deleted ones"
)


@dataclass(frozen=True)
class Loaded:
    """One vector: how many rows it deletes and which one is the last, or the error."""

    file: str
    stated: int
    rows: int | None
    count: int = 0
    last: int = -1
    error: Exception | None = None


def loaded(table: DeltaContext) -> list[Loaded]:
    """The vectors of the version, read once."""
    if table.vectors is None:
        adds = table.adds
        has = pc.is_valid(pc.struct_field(adds["deletionVector"], "storageType"))
        files = adds.filter(has)
        counts: list[int | None] = record_counts(files, table.engine.query).to_pylist()
        if table.depth != "log":
            true = [o.rows for o, has_vector in zip(stored_files(table), has.to_pylist(), strict=True) if has_vector]
            counts = [t if t is not None else c for t, c in zip(true, counts, strict=True)]
        vectors = [DeletionVectorDescriptor.from_json(v) for v in files["deletionVector"].to_pylist()]
        with ThreadPoolExecutor(min(THREADS, max(1, len(vectors))), "trilake-verify") as pool:
            table.vectors = list(pool.map(_load, repeat(table.store), files["file"].to_pylist(), vectors, counts))
    loaded_vectors: list[Loaded] = table.vectors
    return loaded_vectors


def _load(store: Store, file: str, vector: DeletionVectorDescriptor | None, rows: int | None) -> Loaded:
    assert vector is not None
    try:
        bitmap = vector.stored(store)
        return Loaded(file, vector.cardinality, rows, len(bitmap), int(bitmap.max()) if len(bitmap) else -1)
    except (TrilakeError, OSError) as e:
        return Loaded(file, vector.cardinality, rows, error=e)


def readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every deletion vector can be read: its file, magic number, size and CRC are right."""
    for vector in loaded(table):
        if vector.error is not None:
            failure = unreadable("delta.deletion-vector-unreadable", vector.error)
            where = {} if failure.file is None else {"vector": failure.file}
            yield table.finding(
                failure.code, failure.message, _HELP, file=vector.file, details={**failure.details, **where}
            )
    return len(loaded(table))


def counted(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every deletion vector deletes as many rows as its cardinality states."""
    for vector in loaded(table):
        if vector.error is None and vector.count != vector.stated:
            yield table.finding(
                "delta.deletion-vector-cardinality",
                f"the deletion vector deletes {vector.count:,} rows, but the log says {vector.stated:,}",
                _HELP,
                file=vector.file,
            )
    return len(loaded(table))


def inside(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every deletion vector deletes rows that its file has."""
    for vector in loaded(table):
        if vector.rows is not None and vector.last >= vector.rows:
            yield table.finding(
                "delta.deletion-vector-position",
                f"the deletion vector deletes row {vector.last:,} of a file with {vector.rows:,} rows",
                _HELP,
                file=vector.file,
            )
    return len(loaded(table))
