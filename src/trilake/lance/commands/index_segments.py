"""Optimize indices, and build them in segments.

Each worker indexes some of the fragments, and one commit adds all segments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pyroaring import FrozenBitMap

from trilake.errors import InvalidArgumentError
from trilake.lance.commands import vector_indices
from trilake.lance.commands.indices import (
    SCALAR_KINDS,
    check_name,
    checked_column,
    find,
    kind_of,
    of_fragments,
    parts,
    scalar_kind,
    trained,
    with_zones,
)
from trilake.lance.commands.replan import replanned
from trilake.lance.commands.vector_indices import VECTOR_KINDS, VectorIndexPlan
from trilake.lance.file.errors import CommitConflictError, UnsupportedIndexError
from trilake.lance.index.ivf_pq import by_partition
from trilake.lance.index.zonemap import ZoneMapIndex
from trilake.lance.scan.fragment_reader import ROW_ADDRESS
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import IndexMetadata, Manifest


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
        format does not support, unless updates may have moved indexed rows: then all segments are merged.

    Raises ``UnknownIndexError`` for an unknown name, and ``InvalidArgumentError`` for an unsupported
    ``num_indices_to_merge``.
    """
    append = num_indices_to_merge is not None and num_indices_to_merge < 1
    if append and snapshot.manifest.storage_version.is_legacy:
        raise InvalidArgumentError(
            f"num_indices_to_merge={num_indices_to_merge} is not supported: a legacy index has only one segment",
            help="leave it out: the new rows are added to the index",
        )
    requested = None if names is None else frozenset([names] if isinstance(names, str) else names)

    def plan(current: Snapshot) -> op.Operation | None:
        for name in sorted(requested or ()):
            find(current, name)
        new: list[IndexMetadata] = []
        old: list[IndexMetadata] = []
        for name in dict.fromkeys(index.name for index in current.manifest.indices):
            if requested is not None and name not in requested:
                continue
            same = parts(current, name)
            # A new segment is not enough beside one with rows that have moved: pylance 14 would find these in both.
            by_id = current.manifest.has_stable_row_ids and not all(index.by_address for index in same)
            beside = append and not retrain and not by_id and all(index.moved is None for index in same)
            renewed = _part(current, same) if beside else _renewed(current, same, retrain=retrain)
            if renewed is not None:
                new += [*(same if beside else ()), renewed]
                old += same
        return op.CreateIndex(tuple(new), tuple(old)) if new else None

    return replanned(snapshot, plan)


def _renewed(snapshot: Snapshot, same: list[IndexMetadata], *, retrain: bool) -> IndexMetadata | None:
    """Return the replacement for the segments of an index; ``None`` to keep them."""
    index = max(same, key=lambda i: len(i.fragment_bitmap or ()))
    column = _column(snapshot, index)
    is_complete = not {f.id for f in snapshot.manifest.fragments} - set(index.fragment_bitmap or ())
    if column is None or (is_complete and len(same) == 1 and not retrain):
        return None
    vectors = snapshot.indices.vector(index)
    if vectors is None:
        return _trained_first(snapshot, column, index)
    if retrain:
        model = vectors.model
        plan = VectorIndexPlan(
            column,
            index.name,
            model.metric,
            model.dimension,
            len(model.centroids),
            model.pieces,
            replace=True,
            kind=model.kind,
            numbers=model.numbers,
            bits=model.bits,
        )
        return vector_indices.build(snapshot, plan)
    return vector_indices.extended(snapshot, column, index, vectors)


def _part(snapshot: Snapshot, same: list[IndexMetadata]) -> IndexMetadata | None:
    """Build a segment for the uncovered fragments; ``None`` if there are none."""
    covered = frozenset().union(*(i.fragment_bitmap or () for i in same))
    uncovered = {f.id for f in snapshot.manifest.fragments} - covered
    column = _column(snapshot, same[0])
    if column is None or not uncovered:
        return None
    rows = of_fragments(snapshot, uncovered)
    vectors = snapshot.indices.vector(same[0])
    if vectors is None:
        return _trained_first(rows, column, same[0])
    new = by_partition(vectors.model, *vector_indices.encoded(rows, column, vectors.model))
    return vector_indices.write_index(rows, column, same[0].name, vectors.model, new)


def _trained_first(snapshot: Snapshot, column: str, index: IndexMetadata) -> IndexMetadata | None:
    """Build a scalar index, or train a vector index that has no rows yet; ``None`` if it cannot be built."""
    if kind_of(snapshot, index).upper() in SCALAR_KINDS:
        return scalar_like(snapshot, column, index)
    plan = vector_indices.plan_of_untrained(snapshot, column, index)
    return vector_indices.build(snapshot, plan) if plan is not None and snapshot.count() else None


def _column(snapshot: Snapshot, index: IndexMetadata) -> str | None:
    """Return the column of an index, or ``None`` if the index cannot be updated."""
    names = snapshot.manifest.schema.names_of(index.fields)
    if len(index.fields) != 1 or not names or kind_of(snapshot, index).upper() not in {*SCALAR_KINDS, *VECTOR_KINDS}:
        return None
    return names[0]


def scalar_like(snapshot: Snapshot, column: str, index: IndexMetadata) -> IndexMetadata:
    """Build an index of the same kind for all rows."""
    opened = snapshot.indices.scalar(index)
    rows_per_zone = opened.rows_per_zone if isinstance(opened, ZoneMapIndex) else None
    kind = with_zones(SCALAR_KINDS[kind_of(snapshot, index).upper()], rows_per_zone)
    # pylance rejects segments with ids next to ones with addresses.
    if index.by_address and kind.row_key != ROW_ADDRESS:
        kind = replace(kind, row_key=ROW_ADDRESS, version=index.index_version or 0)
    return trained(snapshot, column, index.name, kind)


_AGAIN = "rebuild the segments with create_index_uncommitted"


def build_scalar(
    snapshot: Snapshot,
    column: str,
    index_type: str,
    name: str | None,
    fragment_ids: Collection[int],
    rows_per_zone: int | None,
) -> IndexMetadata:
    """Build a scalar index of some fragments without a commit.

    Raises ``InvalidArgumentError`` and its subclasses, see
    :func:`~trilake.lance.commands.indices.create_scalar_index`.
    """
    kind = scalar_kind(_segmented(snapshot), index_type, rows_per_zone)
    column, called = checked_column(snapshot, column, kind, name)
    return trained(of_fragments(snapshot, fragment_ids), column, called, kind)


def build_vector(snapshot: Snapshot, plan: VectorIndexPlan, fragment_ids: Collection[int]) -> IndexMetadata:
    """Build a vector index of some fragments without a commit.  Raises ``InvalidArgumentError``."""
    return vector_indices.build(of_fragments(_segmented(snapshot), fragment_ids), plan)


def merge(snapshot: Snapshot, segments: Sequence[IndexMetadata]) -> IndexMetadata:
    """Merge segments into one that covers all their fragments.

    Vectors are encoded with the centroids and codebook of the first segment.  Raises ``InvalidArgumentError`` if the
    segments have different columns or kinds, or share a fragment.
    """
    _check(segments)
    first = segments[0]
    names = snapshot.manifest.schema.names_of(first.fields)
    if not names:
        raise InvalidArgumentError(
            f"the column indexed by the segments of {first.name!r} no longer exists", help=_AGAIN
        )
    rows = of_fragments(snapshot, {id for s in segments for id in s.fragment_bitmap or ()})
    vectors = snapshot.indices.vector(first)
    if vectors is None:
        return scalar_like(rows, names[0], first)
    if vectors.kind not in VECTOR_KINDS:
        raise UnsupportedIndexError(
            f"segments of type {vectors.kind} cannot be merged",
            help="commit the segments without merging them: a search uses all segments",
        )
    return vector_indices.extended(rows, names[0], first, vectors)


def commit(snapshot: Snapshot, name: str, column: str, segments: Sequence[IndexMetadata]) -> Snapshot:
    """Commit segments of an index; its segments of other fragments are kept.

    Raises ``ConflictError`` if the indexed rows were moved or changed, and ``InvalidArgumentError`` if a segment has
    another column, if two share a fragment, or if the segments replace only a part of another one.
    """
    _check(segments)
    check_name(snapshot, name, column, replace=True)
    field = snapshot.view.schema.field(snapshot.view.schema.spelled(column))
    if segments[0].fields != (field.id,):
        raise InvalidArgumentError(f"the segments do not index column {column!r}", help="pass the column they index")
    _check_unmoved(snapshot, segments)
    same = [index for index in snapshot.manifest.indices if index.name == name]
    kept = _beside(snapshot, same, segments)
    return snapshot.commit(op.CreateIndex((*kept, *(replace(s, name=name) for s in segments)), tuple(same)))


def _check_unmoved(snapshot: Snapshot, segments: Sequence[IndexMetadata]) -> None:
    """Raise ``ConflictError`` unless the indexed values are in the same files as when the segments were built."""
    (field,) = segments[0].fields
    now = _files_by_fragment(snapshot.manifest, field)
    for built in sorted({s.dataset_version for s in segments} - {snapshot.version}):
        then = _files_by_fragment(transaction.load(snapshot.store, built), field)
        covered = (s.fragment_bitmap or () for s in segments if s.dataset_version == built)
        moved = min((id for ids in covered for id in ids if id in then and then[id] != now.get(id)), default=None)
        if moved is not None:
            raise CommitConflictError(
                f"the rows of fragment {moved} were moved or changed after version {built}, in which they were indexed",
                help=_AGAIN,
                file=snapshot.store.uri,
                version=snapshot.version,
            )


def _files_by_fragment(manifest: Manifest, field: int) -> dict[int, list[str]]:
    """Return the paths of the files with a field, by fragment."""
    return {f.id: [file.path for file in f.files if field in file.fields] for f in manifest.fragments}


def _beside(snapshot: Snapshot, same: list[IndexMetadata], new: Sequence[IndexMetadata]) -> list[IndexMetadata]:
    """Return the segments of an index that stay beside new ones."""
    present = FrozenBitMap(f.id for f in snapshot.manifest.fragments)
    covered = FrozenBitMap.union(*(s.fragment_bitmap or FrozenBitMap() for s in new))
    kept = []
    for segment in same:
        fragments = (segment.fragment_bitmap or FrozenBitMap()) & present
        is_other = _kind(segment) != _kind(new[0])
        if fragments - covered and (fragments & covered or is_other):
            what = "has another kind and" if is_other else "also"
            raise InvalidArgumentError(
                f"a segment of the index {segment.name!r} {what} covers fragment {min(fragments - covered)}",
                help="include its fragments in the new segments, or drop the index",
            )
        if fragments - covered:
            kept.append(segment)
    return kept


def _kind(segment: IndexMetadata) -> str | None:
    return None if segment.details is None else segment.details.type_url


def _segmented(snapshot: Snapshot) -> Snapshot:
    if snapshot.manifest.storage_version.is_legacy:
        raise UnsupportedIndexError("the legacy format does not support index segments", help="use create_index")
    return snapshot


def _check(segments: Sequence[IndexMetadata]) -> None:
    if not segments:
        raise InvalidArgumentError(
            "segments must not be empty", help="pass those that create_index_uncommitted returned"
        )
    kinds = {(s.fields, _kind(s)) for s in segments}
    if len(kinds) > 1:
        raise InvalidArgumentError("the segments have different columns or kinds", help=_AGAIN)
    covered = [s.fragment_bitmap or FrozenBitMap() for s in segments]
    if len(FrozenBitMap.union(*covered)) < sum(map(len, covered)):
        raise InvalidArgumentError("two segments cover the same fragment", help=_AGAIN)
