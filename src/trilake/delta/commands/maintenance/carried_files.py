"""Files that a commit carries over from another version or another table, and whether they are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.maintenance.vacuum_files import vector_files
from trilake.delta.commands.maintenance.vacuum_listing import list_files
from trilake.delta.commands.rows.row_changes import Runner
from trilake.delta.log.replay import decoded_paths, file_keys, vector_ids
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.identity import identity_columns, updated_schema
from trilake.delta.scan.read import locate
from trilake.errors import ObjectNotFoundError
from trilake.storage.base import Store
from trilake.storage.uri import is_absolute

#: Above this many files one listing of the folder costs less than asking for each.
_ASK = 500
_CHUNK = 50


def logical_keys(adds: pa.Table) -> pa.ChunkedArray:
    """What tells files with their vectors apart, comparable between any two tables."""
    vectors = pc.fill_null(vector_ids(adds["deletionVector"]), "")
    paths = file_keys(adds.set_column(adds.schema.get_field_index("deletionVector"), "deletionVector", _none(adds)))
    return pc.binary_join_element_wise(paths, vectors, "\x00")


def _none(adds: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(adds.num_rows, adds.schema.field("deletionVector").type)])


def without(files: pa.Table, others: pa.Table) -> pa.Table:
    """The files that are not among ``others``, or there with another vector."""
    return files.filter(pc.invert(pc.is_in(logical_keys(files), pc.unique(logical_keys(others)))))


@dataclass(frozen=True)
class _FindMissing:
    """Looks for some files, wherever it runs."""

    store: Store

    def __call__(self, paths: Sequence[str]) -> list[str]:
        return [p for p in paths if not self._is_there(p)]

    def _is_there(self, path: str) -> bool:
        store, key = locate(self.store, path)
        try:
            store.head(key)
        except ObjectNotFoundError:
            return False
        return True


def missing_files(store: Store, adds: pa.Table, run: Runner, *, ask: int = _ASK) -> list[str]:
    """The data files and files of vectors that ``adds`` name and that are not there, as decoded paths."""
    paths = pc.unique(decoded_paths(adds["path"]))
    inside, outside, _ = vector_files(adds["deletionVector"])
    wanted = sorted({*paths.to_pylist(), *inside.to_pylist(), *decoded_paths(outside).to_pylist()})
    relative = [p for p in wanted if not is_absolute(p)]
    absent: list[str] = []
    if len(relative) > ask:
        there = pc.is_in(pa.array(relative, pa.string()), list_files(store)["path"])
        # A listing decides nothing alone: hidden or odd names may be missing from it.
        doubtful = pa.array(relative, pa.string()).filter(pc.invert(there)).to_pylist()
        wanted = [*doubtful, *(p for p in wanted if is_absolute(p))]
    chunks = [wanted[i : i + _CHUNK] for i in range(0, len(wanted), _CHUNK)]
    for missing in run(_FindMissing(store), chunks):
        absent += missing
    return sorted(absent)


def with_marks_of(schema: StructType, other: StructType) -> StructType:
    """The schema, with the high-water marks of its identity columns not behind those that ``other`` has.

    Protocol: *Identity Columns*.
    """
    marks = {c.name: c.mark for c in identity_columns(other) if c.mark is not None}
    return updated_schema(schema, [marks]) if marks else schema


def total_size(files: pa.Table) -> int:
    """Bytes of some files."""
    return int(pc.sum(files["size"]).as_py() or 0)
