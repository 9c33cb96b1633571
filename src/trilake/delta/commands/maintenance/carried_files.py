"""Files that a commit carries over from another version or another table: their actions, and whether they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

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


def add_action(row: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The ``add`` action of a row of a snapshot's files, with some of its fields changed; ``None`` drops a field."""
    out = {**row, "partitionValues": dict(row["partitionValues"] or ()), **changes}
    if row["tags"] is not None:
        out["tags"] = dict(row["tags"])
    if out["deletionVector"] is not None:
        out["deletionVector"] = {k: v for k, v in out["deletionVector"].items() if v is not None}
    return {"add": {k: v for k, v in out.items() if v is not None}}


def add_actions(files: pa.Table, **changes: Any) -> list[dict[str, Any]]:
    """The ``add`` actions of a snapshot's files, each with the same fields changed; columns without a value cost
    nothing."""
    names, columns, gaps = list[str](), list[Sequence[Any]](), False
    for name in files.column_names:
        nulls = files[name].null_count
        if name in changes or (nulls == files.num_rows and name != "partitionValues"):
            continue
        values = files[name].to_pylist()
        if name == "partitionValues":
            values = [dict(v or ()) for v in values]
        elif name == "tags":
            values = [None if v is None else dict(v) for v in values]
        elif name == "deletionVector":
            values = [None if v is None else {k: x for k, x in v.items() if x is not None} for v in values]
        names.append(name)
        columns.append(values)
        gaps = gaps or (nulls > 0 and name != "partitionValues")
    names += changes
    rows = zip(*columns, *map(repeat, changes.values()))
    if gaps:
        return [{"add": {k: v for k, v in zip(names, row) if v is not None}} for row in rows]
    return [{"add": dict(zip(names, row))} for row in rows]


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
