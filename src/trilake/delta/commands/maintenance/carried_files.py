"""Files that a commit takes over from another version or table, whether they exist, and FSCK REPAIR TABLE."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.maintenance.vacuum_files import vector_files
from trilake.delta.commands.maintenance.vacuum_listing import list_files
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit, remove_action
from trilake.delta.log.clustering import DOMAIN
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot, decoded_paths, file_keys, vector_ids
from trilake.delta.protocol.features import check_writable
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.identity import identity_columns, updated_schema
from trilake.delta.scan.read import locate
from trilake.errors import ObjectNotFoundError
from trilake.storage.base import Store
from trilake.storage.uri import is_absolute

#: Above this many files, listing the folder is cheaper than one request per file.
_ASK = 500
_CHUNK = 50


def logical_keys(adds: pa.Table) -> pa.ChunkedArray:
    """Keys of files with their vectors, comparable between any two tables."""
    vectors = pc.fill_null(vector_ids(adds["deletionVector"]), "")
    place = adds.schema.get_field_index("deletionVector")
    none = pa.nulls(adds.num_rows, adds.schema.field(place).type)
    paths = file_keys(adds.set_column(place, "deletionVector", none))
    return pc.binary_join_element_wise(paths, vectors, "\x00")


def without(files: pa.Table, others: pa.Table) -> pa.Table:
    """The files that are not among ``others``, or have another vector there."""
    return files.filter(pc.invert(pc.is_in(logical_keys(files), pc.unique(logical_keys(others)))))


def _missing(store: Store, paths: Sequence[str]) -> list[str]:
    absent = []
    for path in paths:
        place, key = locate(store, path)
        try:
            place.head(key)
        except ObjectNotFoundError:
            absent.append(path)
    return absent


def missing_files(store: Store, adds: pa.Table, run: Runner, *, ask: int = _ASK) -> list[str]:
    """The missing data files and deletion vector files of ``adds``, as decoded paths."""
    paths = pc.unique(decoded_paths(adds["path"]))
    inside, outside, _ = vector_files(adds["deletionVector"])
    required = sorted({*paths.to_pylist(), *inside.to_pylist(), *decoded_paths(outside).to_pylist()})
    relative = [p for p in required if not is_absolute(p)]
    if len(relative) > ask:
        there = pc.is_in(pa.array(relative, pa.string()), list_files(store)["path"])
        # A listing may omit hidden or odd names, so check each of these by itself.
        doubtful = pa.array(relative, pa.string()).filter(pc.invert(there)).to_pylist()
        required = [*doubtful, *(p for p in required if is_absolute(p))]
    chunks = [required[i : i + _CHUNK] for i in range(0, len(required), _CHUNK)]
    return sorted(path for absent in run(partial(_missing, store), chunks) for path in absent)


def with_marks_of(schema: StructType, other: StructType) -> StructType:
    """The schema, with high-water marks of identity columns at least as high as those of ``other``.

    Protocol: *Identity Columns*.
    """
    marks = {c.name: c.mark for c in identity_columns(other) if c.mark is not None}
    return updated_schema(schema, [marks]) if marks else schema


def clustering_configuration(snapshot: Snapshot) -> str | None:
    """The configuration of the clustering domain."""
    domain = snapshot.state.domains.get(DOMAIN)
    return None if domain is None or domain.get("removed") else str(domain.get("configuration") or "")


def total_size(files: pa.Table) -> int:
    """The total bytes of some files."""
    return int(pc.sum(files["size"]).as_py() or 0)


def fsck(log: DeltaLog, *, dry_run: bool = False, run: Runner = run_here) -> list[str]:
    """Remove the data files that do not exist from the newest version; return their decoded paths.

    Their rows are already lost; without the references, the table becomes readable again.  With ``dry_run``, only lists
    these files.  Raises a ``ConflictError`` if another writer has removed one of the files.
    """
    snapshot = log.snapshot()
    check_writable(snapshot.protocol, uri=snapshot.uri, version=snapshot.version)
    paths = decoded_paths(snapshot.adds["path"])
    absent = pa.array(missing_files(log.store, snapshot.adds, run), pa.string())
    is_gone = pc.is_in(paths, absent)
    missing: list[str] = paths.filter(is_gone).to_pylist()
    if not missing or dry_run:
        return missing
    now = log.engine.runtime.clock_ms()
    missing_adds = snapshot.adds.filter(is_gone)
    plan = CommitPlan(
        operation="FSCK",
        parameters={},
        file_actions=[remove_action(a, now) for a in missing_adds.to_pylist()],
        metadata=None,
        protocol=None,
        metrics={"numRemovedFiles": len(missing)},
        read=ReadSet(removed=frozenset(missing_adds["path"].to_pylist())),
    )
    commit(log, snapshot, plan)
    return missing
