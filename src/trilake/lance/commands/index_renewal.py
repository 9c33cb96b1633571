"""Indices brought up to date: rows that came since join them, or they are learned anew."""

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
    """Bring indices up to date that do not cover all fragments, as one commit.

    Scalar indices are made anew.  Into those of vectors the new rows are put with the partitions and words that there
    are, which is quick, and less exact the more the new vectors differ from those it was learned from.  Of several
    indices of one name, as newer writers make them, one is left.  Nothing is committed where all are complete; kinds
    that are not known stay as they are.

    Parameters
    ----------
    names: of the indices; all of them by default.
    retrain: learn those of vectors anew, as many partitions and pieces as they have, also where they are complete.
    num_indices_to_merge: how many parts of one index become one with the new rows; 0 gives these a part of their own,
        which the first format has not.

    Raises ``UnknownIndexError`` for a name that is not there, ``InvalidArgumentError`` for new rows in an index of
    their own.
    """
    append = num_indices_to_merge is not None and num_indices_to_merge < 1
    if append and snapshot.manifest.storage_version.is_first:
        raise InvalidArgumentError(
            f"num_indices_to_merge is {num_indices_to_merge}: new rows cannot have an index of their own",
            help="leave it out: they join the index that there is, which is the one of its name in this format",
        )
    wanted = None if names is None else frozenset([names] if isinstance(names, str) else names)

    def plan(current: Snapshot) -> op.Operation | None:
        for name in sorted(wanted or ()):
            find(current, name)
        new: list[IndexMetadata] = []
        old: list[IndexMetadata] = []
        for same in _by_name(current):
            if wanted is not None and same[0].name not in wanted:
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
    """What takes the place of the indices of one name; ``None`` where they stay as they are."""
    index = max(same, key=lambda i: len(i.fragment_bitmap or ()))
    column = _column(snapshot, index)
    is_complete = not {f.id for f in snapshot.manifest.fragments} - set(index.fragment_bitmap or ())
    if column is None or (is_complete and len(same) == 1 and not retrain):
        return None
    vectors = snapshot.indices.vector(index)
    if vectors is None:
        return scalar_like(snapshot, column, index)
    if retrain:
        return vector_indices.made(snapshot, _plan_of(column, index.name, vectors))
    return vector_indices.extended(snapshot, column, index, vectors)


def _part(snapshot: Snapshot, same: list[IndexMetadata]) -> IndexMetadata | None:
    """A part of an index for the fragments that its parts do not cover; ``None`` where they cover all."""
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
    """The column of an index that can be renewed."""
    fields = [snapshot.manifest.schema.by_id(id) for id in index.fields]
    if len(fields) != 1 or fields[0] is None or kind_of(snapshot, index).upper() not in {*TRAINED, *VECTOR_KINDS}:
        return None
    return snapshot.view.schema.name_of(fields[0])


def scalar_like(snapshot: Snapshot, column: str, index: IndexMetadata) -> IndexMetadata:
    """An index of all rows, of the kind of another one."""
    opened = snapshot.indices.scalar(index)
    rows_per_zone = opened.rows_per_zone if isinstance(opened, ZoneMapIndex) else None
    kind = TRAINED[kind_of(snapshot, index).upper()]
    if index.by_address and kind.place != ROW_ADDRESS:  # pylance refuses parts with ids beside parts with addresses
        kind = replace(kind, place=ROW_ADDRESS, version=index.index_version or 0)
    return trained(snapshot, column, index.name, kind, rows_per_zone)


def _plan_of(column: str, name: str, index: VectorIndex) -> VectorIndexPlan:
    """The plan of an index like the one that there is."""
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
