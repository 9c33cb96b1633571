"""Indices brought up to date: rows that came since join them, or they are learned anew."""

from __future__ import annotations

from collections.abc import Collection

from trilake.errors import InvalidArgumentError
from trilake.lance.commands import vector_indices
from trilake.lance.commands.indices import TRAINED, find, kind_of, trained
from trilake.lance.commands.replan import replanned
from trilake.lance.commands.vector_indices import VectorIndexPlan
from trilake.lance.index.ivf_pq import Model
from trilake.lance.index.ivf_pq_index import VectorIndex
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
    num_indices_to_merge: how many of one name become one with the new rows; 1 or more, as there is one in this format.

    Raises ``UnknownIndexError`` for a name that is not there, ``InvalidArgumentError`` for new rows in an index of
    their own.
    """
    if num_indices_to_merge is not None and num_indices_to_merge < 1:
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
            renewed = _renewed(current, same, retrain=retrain) if wanted is None or same[0].name in wanted else None
            if renewed is not None:
                new.append(renewed)
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
    fields = [snapshot.manifest.schema.by_id(id) for id in index.fields]
    field = fields[0] if len(fields) == 1 else None
    vectors = snapshot.indices.vector(index)
    kind = kind_of(snapshot, index).upper()
    if field is None or kind not in {*TRAINED, "IVF_PQ"}:
        return None
    is_complete = not {f.id for f in snapshot.manifest.fragments} - set(index.fragment_bitmap or ())
    if is_complete and len(same) == 1 and not retrain:
        return None
    if vectors is None:
        return trained(snapshot, snapshot.view.schema.name_of(field), index.name, kind)
    if retrain:
        return vector_indices.made(snapshot, _plan_of(field.name, index.name, vectors))
    return vector_indices.extended(snapshot, field.name, index, vectors)


def _plan_of(column: str, name: str, index: VectorIndex) -> VectorIndexPlan:
    """The plan of an index like the one that there is."""
    model = index.model
    assert isinstance(model, Model)
    size, partitions, pieces = model.dimension, len(model.centroids), len(model.words)
    return VectorIndexPlan(column, name, model.metric, size, partitions, pieces, replace=True)
