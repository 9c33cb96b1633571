"""Checks of indices: files, fields, and agreement with the rows."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.errors import TrilakeError
from trilake.lance.file.types import is_variable
from trilake.lance.index.vector_index import VectorIndex
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID, split
from trilake.lance.verify.context import LanceContext
from trilake.lance.versions.manifest import IndexMetadata
from trilake.table.checksum import checksum
from trilake.table.findings import Finding, unreadable

#: The repair step that drops an index.
DROP = "lance.drop-index"
_HELP = "build the index again, or drop it with trilake.repair: no rows are lost"


def _finding(table: LanceContext, code: str, message: str, entry: IndexMetadata) -> Finding:
    where: dict[str, Any] = {"file": f"_indices/{entry.uuid}", "repair": DROP, "details": {"index": entry.name}}
    return table.finding(f"index-{code}", f"index {entry.name!r}: {message}", help=_HELP, **where)


def entries(table: LanceContext) -> Generator[Finding, None, int]:
    """Every index has existing fields, and only fragment ids that have been used."""
    manifest = table.manifest
    field_ids = set(manifest.schema.field_ids)
    for entry in manifest.indices:
        lost = [n for n in entry.fields if n not in field_ids]
        if lost or not (entry.fields or entry.is_note):
            yield _finding(
                table, "entry-wrong", f"it indexes the fields {list(entry.fields)}, which do not exist", entry
            )
        if entry.fragment_bitmap and max(entry.fragment_bitmap) > manifest.max_fragment_id:
            yield _finding(
                table, "entry-wrong", f"it covers fragment {max(entry.fragment_bitmap)}, which never existed", entry
            )
    return len(manifest.indices)


def present(table: LanceContext) -> Generator[Finding, None, int]:
    """All files of every index that covers rows exist."""
    for entry in table.manifest.indices:
        store, folder = table.snapshot.bases.index_folder(entry)
        if not entry.may_lack_files and next(iter(store.list(folder)), None) is None:
            yield _finding(table, "missing", "its files are missing", entry)
    return len(table.manifest.indices)


def readable(table: LanceContext) -> Generator[Finding, None, int]:
    """Every index is readable and matches its checksums."""
    for entry in table.manifest.indices:
        try:
            index = table.snapshot.indices.any(entry)
            if isinstance(index, VectorIndex):
                for number in range(len(index.centroids)):
                    index.partition(number)
            elif index is not None:
                index.read()
        except (TrilakeError, OSError, ValueError) as e:
            yield _finding(table, "unreadable", unreadable("", e).message, entry)
    return len(table.manifest.indices)


def agree_with_rows(table: LanceContext) -> Generator[Finding, None, int]:
    """Every scalar index has the values of its fragments, and every vector index has each row once.

    Rows with lists of vectors occur once for each vector.
    """
    for entry in table.manifest.indices:
        if entry.fragment_bitmap is None or not set(entry.fields) <= set(table.manifest.schema.field_ids):
            continue
        try:
            index = table.snapshot.indices.any(entry)
            wrong = None
            if isinstance(index, VectorIndex):
                ids = [index.partition(number)[1] for number in range(len(index.centroids))]
                wrong = _ids_differ(table, entry, np.concatenate(ids))
            elif index is not None and not index.answers_items and (rows := index.read()) is not None:
                wrong = _values_differ(table, entry, rows, has_nulls=index.has_nulls)
        except (TrilakeError, OSError, ValueError):
            continue  # reported by another check
        if wrong is not None:
            yield _finding(table, "differs", wrong, entry)
    return len(table.manifest.indices)


def _ids_differ(table: LanceContext, entry: IndexMetadata, ids: npt.NDArray[np.uint64]) -> str | None:
    """Describe rows of a vector index that never existed or occur twice; null vectors are not indexed."""
    try:
        table.snapshot.check_indexed(ids, by_address=entry.by_address)
    except TrilakeError as e:
        return e.message
    field = table.manifest.schema.by_id(entry.fields[0])
    if field is not None and pa.types.is_list(field.arrow_type):
        return None
    twice = len(ids) - len(np.unique(ids))
    return f"{twice:,} rows occur more than once" if twice else None


def _as_stored(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert nulls as the file stores them: null strings and binaries become empty."""
    return values.fill_null(pa.scalar(b"", pa.binary()).cast(values.type)) if is_variable(values.type) else values


def _values_differ(table: LanceContext, entry: IndexMetadata, index: pa.Table, *, has_nulls: bool) -> str | None:
    snapshot, fragments = table.snapshot, entry.fragment_bitmap or ()
    name = next(f.name for f in table.manifest.schema.walk() if f.id == entry.fields[0])
    if name not in snapshot.schema.names:
        return None  # nested fields are not compared
    ids = index["row_ids"].to_numpy()
    wrong = _ids_differ(table, entry, ids)
    if wrong is not None:
        return wrong
    row_key = ROW_ADDRESS if entry.by_address else ROW_ID
    plan = snapshot.plan([name], row_metadata=(row_key,))
    readers = [r for r in snapshot.readers if r.fragment.id in fragments]
    rows = pa.Table.from_batches(snapshot.scan(plan, readers), plan.schema)
    at = ids if entry.by_address else snapshot.addresses_of(ids)
    covered = np.isin(split(at)[0], np.array(fragments, np.int64))
    entries = index.filter(pa.array(snapshot.live_rows(at) & covered))
    values = rows[name]
    if not has_nulls and values.null_count and not is_variable(values.type):
        # Other nulls are zeros in the file, or missing in the index if they have a companion.
        rows = rows.filter(values.is_valid())
        entries = entries.filter(pa.array(np.isin(entries["row_ids"].to_numpy(), rows[row_key].to_numpy())))
    if len(entries) != len(rows):
        return f"it has {len(entries):,} rows, but its fragments have {len(rows):,}"
    stored = [v if has_nulls else _as_stored(v) for v in (entries["values"], rows[name])]
    sum_of_index = checksum(pa.table({"v": stored[0], "i": entries["row_ids"]}))
    sum_of_rows = checksum(pa.table({"v": stored[1], "i": rows[row_key]}))
    return None if sum_of_index == sum_of_rows else "its values differ from those of the rows"
