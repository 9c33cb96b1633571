"""Optimize indices: add new rows, or retrain."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trilake.errors import InvalidArgumentError
from trilake.lance.commands import vector_indices
from trilake.lance.commands.indices import TRAINED, find, kind_of, of_fragments, trained
from trilake.lance.commands.replan import replanned
from trilake.lance.commands.vector_indices import VECTOR_KINDS, VectorIndexPlan
from trilake.lance.index.ivf_pq import Model
from trilake.lance.index.ivf_pq_index import VectorIndex
from trilake.lance.index.zonemap import ZoneMapIndex
from trilake.lance.scan.fragment_reader import ROW_ADDRESS
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import IndexMetadata


def optimize(
    snapshot: Snapshot,
    names: Collection[str] | None = None,
    *,
    retrain: bool = False,
    num_indices_to_merge: int | None = None,
) -> Snapshot:
    """Update indices that do not cover all fragments, as one commit.

    Scalar indices are rebuilt.  Vector indices add the new rows with their existing centroids and codebook, which is
    fast, but less accurate if the new vectors are distributed differently.  Several segments of an index are merged
    into one.  There is no commit if all indices are complete.  Indices of unknown kinds do not change.

    Parameters
    ----------
    names: names of indices, by default all.
    retrain: retrain vector indices with the same number of partitions and sub-vectors, even if they are complete.
    num_indices_to_merge: how many segments to merge with the new rows; 0 makes a new segment for them, which the first
        format does not support.

    Raises ``UnknownIndexError`` for an unknown name, and ``InvalidArgumentError`` for an unsupported
    ``num_indices_to_merge``.
    """
    append = num_indices_to_merge is not None and num_indices_to_merge < 1
    if append and snapshot.manifest.storage_version.is_first:
        raise InvalidArgumentError(
            f"num_indices_to_merge={num_indices_to_merge} is not supported: the first format has one segment per index",
            help="leave it out: the new rows are added to the index",
        )
    requested = None if names is None else frozenset([names] if isinstance(names, str) else names)

    def plan(current: Snapshot) -> op.Operation | None:
        for name in sorted(requested or ()):
            find(current, name)
        new: list[IndexMetadata] = []
        old: list[IndexMetadata] = []
        for same in _by_name(current):
            if requested is not None and same[0].name not in requested:
                continue
            renewed = _part(current, same) if append and not retrain else _renewed(current, same, retrain=retrain)
            if renewed is not None:
                new += [*(same if append and not retrain else ()), renewed]
                old += same
        return op.CreateIndex(tuple(new), tuple(old)) if new else None

    return replanned(snapshot, plan)


def _by_name(snapshot: Snapshot) -> list[list[IndexMetadata]]:
    named: dict[str, list[IndexMetadata]] = {}
    for index in snapshot.manifest.indices:
        named.setdefault(index.name, []).append(index)
    return list(named.values())


def _renewed(snapshot: Snapshot, same: list[IndexMetadata], *, retrain: bool) -> IndexMetadata | None:
    """Return the replacement for the segments of an index; ``None`` to keep them."""
    index = max(same, key=lambda i: len(i.fragment_bitmap or ()))
    column = _column(snapshot, index)
    is_complete = not {f.id for f in snapshot.manifest.fragments} - set(index.fragment_bitmap or ())
    if column is None or (is_complete and len(same) == 1 and not retrain):
        return None
    vectors = snapshot.indices.vector(index)
    if vectors is None:
        return scalar_like(snapshot, column, index)
    if retrain:
        return vector_indices.build(snapshot, _plan_of(column, index.name, vectors))
    return vector_indices.extended(snapshot, column, index, vectors)


def _part(snapshot: Snapshot, same: list[IndexMetadata]) -> IndexMetadata | None:
    """Build a segment for the uncovered fragments; ``None`` if there are none."""
    covered = frozenset().union(*(i.fragment_bitmap or () for i in same))
    new = {f.id for f in snapshot.manifest.fragments} - covered
    column = _column(snapshot, same[0])
    if column is None or not new:
        return None
    rows = of_fragments(snapshot, new)
    vectors = snapshot.indices.vector(same[0])
    if vectors is None:
        return scalar_like(rows, column, same[0])
    encoded = vector_indices.encoded(rows, column, vectors.model)
    return vector_indices.write_index(rows, column, same[0].name, vectors.model, encoded)


def _column(snapshot: Snapshot, index: IndexMetadata) -> str | None:
    """Return the column of an index, or ``None`` if the index cannot be updated."""
    fields = [snapshot.manifest.schema.by_id(id) for id in index.fields]
    if len(fields) != 1 or fields[0] is None or kind_of(snapshot, index).upper() not in {*TRAINED, *VECTOR_KINDS}:
        return None
    return snapshot.view.schema.name_of(fields[0])


def scalar_like(snapshot: Snapshot, column: str, index: IndexMetadata) -> IndexMetadata:
    """Build an index of the same kind for all rows."""
    opened = snapshot.indices.scalar(index)
    rows_per_zone = opened.rows_per_zone if isinstance(opened, ZoneMapIndex) else None
    kind = TRAINED[kind_of(snapshot, index).upper()]
    if index.by_address and kind.place != ROW_ADDRESS:  # pylance rejects segments with ids next to ones with addresses
        kind = replace(kind, place=ROW_ADDRESS, version=index.index_version or 0)
    return trained(snapshot, column, index.name, kind, rows_per_zone)


def _plan_of(column: str, name: str, index: VectorIndex) -> VectorIndexPlan:
    model = index.model
    pieces = len(model.words) if isinstance(model, Model) else 1
    partitions = len(model.centroids)
    return VectorIndexPlan(
        column,
        name,
        model.metric,
        model.dimension,
        partitions,
        pieces,
        replace=True,
        kind=model.kind,
        numbers=model.numbers,
    )
