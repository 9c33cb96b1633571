"""Index segments: workers build them for some fragments each, and one commit adds all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pyroaring import FrozenBitMap

from trilake.errors import InvalidArgumentError
from trilake.lance.commands import vector_indices
from trilake.lance.commands.index_names import check_name
from trilake.lance.commands.index_renewal import scalar_like
from trilake.lance.commands.indices import checked_column, of_fragments, scalar_kind, trained
from trilake.lance.commands.vector_indices import VECTOR_KINDS, VectorIndexPlan
from trilake.lance.file.errors import UnsupportedIndexError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import IndexMetadata

_AGAIN = "rebuild the segments with create_index_uncommitted"


def build_scalar(
    snapshot: Snapshot,
    column: str,
    index_type: str,
    name: str | None,
    fragment_ids: Collection[int],
    rows_per_zone: int | None = None,
) -> IndexMetadata:
    """Build a scalar index of some fragments without a commit.

    Raises ``InvalidArgumentError`` and its subclasses, see
    :func:`~trilake.lance.commands.indices.create_scalar_index`.
    """
    kind = scalar_kind(_segmented(snapshot), index_type)
    column, called = checked_column(snapshot, column, kind, name)
    return trained(of_fragments(snapshot, fragment_ids), column, called, kind, rows_per_zone)


def build_vector(snapshot: Snapshot, plan: VectorIndexPlan, fragment_ids: Collection[int]) -> IndexMetadata:
    """Build a vector index of some fragments without a commit.

    Raises ``InvalidArgumentError``.
    """
    return vector_indices.build(of_fragments(_segmented(snapshot), fragment_ids), plan)


def merge(snapshot: Snapshot, segments: Sequence[IndexMetadata]) -> IndexMetadata:
    """Merge segments into one that covers all their fragments.

    Vectors are encoded with the centroids and codebook of the first segment.  Raises ``InvalidArgumentError`` if the
    segments have different columns or kinds, or share a fragment.
    """
    _check(segments)
    first = segments[0]
    field = snapshot.manifest.schema.by_id(first.fields[0])
    if field is None:
        raise InvalidArgumentError(f"the column of the segments of {first.name!r} no longer exists", help=_AGAIN)
    column = snapshot.view.schema.name_of(field)
    rows = of_fragments(snapshot, {id for s in segments for id in s.fragment_bitmap or ()})
    vectors = snapshot.indices.vector(first)
    if vectors is None:
        return scalar_like(rows, column, first)
    if vectors.kind not in VECTOR_KINDS:
        raise UnsupportedIndexError(
            f"segments of type {vectors.kind} cannot be merged", help="commit them as they are: all are searched"
        )
    return vector_indices.extended(rows, column, first, vectors)


def commit(snapshot: Snapshot, name: str, column: str, segments: Sequence[IndexMetadata]) -> Snapshot:
    """Commit segments as one index, replacing an index of that name.

    Conflicts with commits that moved or changed the indexed rows.  Raises ``ConflictError``, and
    ``InvalidArgumentError`` if a segment has another column, or if two share a fragment.
    """
    _check(segments)
    check_name(snapshot, name, column, replace=True)
    field = snapshot.view.schema.field(snapshot.view.schema.spelled(column))
    if segments[0].fields != (field.id,):
        raise InvalidArgumentError(f"the segments do not index column {column!r}", help="pass the column they index")
    oldest = min(s.dataset_version for s in segments)
    base = snapshot if oldest == snapshot.version else snapshot.at(transaction.load(snapshot.store, oldest))
    return base.commit(op.CreateIndex(tuple(replace(s, name=name) for s in segments)))


def _segmented(snapshot: Snapshot) -> Snapshot:
    if snapshot.manifest.storage_version.is_first:
        raise UnsupportedIndexError("the first format does not support index segments", help="use create_index")
    return snapshot


def _check(segments: Sequence[IndexMetadata]) -> None:
    if not segments:
        raise InvalidArgumentError("segments is empty", help="pass what create_index_uncommitted returned")
    kinds = {(s.fields, None if s.details is None else s.details.type_url) for s in segments}
    if len(kinds) > 1:
        raise InvalidArgumentError("the segments have different columns or kinds", help=_AGAIN)
    covered = [s.fragment_bitmap or FrozenBitMap() for s in segments]
    if len(FrozenBitMap.union(*covered)) < sum(map(len, covered)):
        raise InvalidArgumentError("two segments cover the same fragment", help=_AGAIN)
