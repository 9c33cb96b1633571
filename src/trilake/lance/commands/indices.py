"""Indices of a dataset: listed, created, and moved by a compaction.

An index is a folder of files and an entry in the manifest that says which fragments it covers.  Rows of other fragments
are looked at one by one, deleted rows are left out, so an index never needs to be complete.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap

from trilake.common.arguments import flag
from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.lance.commands.index_names import check_name
from trilake.lance.commands.replan import replanned
from trilake.lance.file.errors import (
    UnknownColumnError,
    UnknownIndexError,
    UnsupportedIndexError,
    WrongTypeError,
)
from trilake.lance.file.schema import Field
from trilake.lance.file.storage_version import FIRST, STABLE, StorageVersion
from trilake.lance.file.types import LISTS
from trilake.lance.index import bitmap, btree
from trilake.lance.index.bitmap import BitmapIndex
from trilake.lance.index.btree import BTreeIndex
from trilake.lance.index.ivf_pq import RowIds
from trilake.lance.scan.fragment_reader import ROW_ID, FragmentReader
from trilake.lance.scan.scan import ScanPlan
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import BITMAP_DETAILS, BTREE_DETAILS, VECTOR_DETAILS, IndexMetadata

_log = logging.getLogger("trilake.lance")


def find(snapshot: Snapshot, name: str) -> IndexMetadata:
    """The index of a name, the first of its parts.  Raises ``UnknownIndexError`` where there is none."""
    return parts(snapshot, name)[0]


def parts(snapshot: Snapshot, name: str) -> list[IndexMetadata]:
    """The index of a name, in all its parts, of which newer writers make several.  Raises ``UnknownIndexError``."""
    found = [index for index in snapshot.manifest.indices if index.name == name]
    if found:
        return found
    names = ", ".join(i.name for i in snapshot.manifest.indices)
    raise UnknownIndexError(f'Index "{name}" not found', help=f"there are {names or 'none'}", file=snapshot.store.uri)


def list_indices(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The indices of a version, as dictionaries."""
    rows = []
    for index in snapshot.manifest.indices:
        fields = [snapshot.manifest.schema.by_id(id) for id in index.fields]
        rows.append(
            {
                "name": index.name,
                "type": kind_of(snapshot, index),
                "uuid": str(index.uuid),
                "fields": [snapshot.manifest.schema.name_of(f) for f in fields if f is not None],
                "version": index.dataset_version,
                "fragment_ids": set(index.fragment_bitmap or ()),
                "base_id": index.base_id,
            }
        )
    return rows


def statistics(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """What an index says of itself, and which rows and fragments it covers.

    ``name``, ``uuid``, ``index_type``, the numbers of rows and fragments, and for IVF_PQ ``metric_type``,
    ``num_partitions``, ``sub_index`` and ``partitions``.  Where the index has several parts, these are of the first;
    ``indices``, which is ``segments``, too, has an entry for each.  Raises ``UnknownIndexError``.
    """
    indices = parts(snapshot, name)
    each = [{**_own(snapshot, index), "uuid": str(index.uuid)} for index in indices]
    by_part = [[r for r in snapshot.readers if r.fragment.id in (i.fragment_bitmap or ())] for i in indices]
    covered = frozenset(r.fragment.id for readers in by_part for r in readers)
    has, lacks = [[r for r in snapshot.readers if (r.fragment.id in covered) is one] for one in (True, False)]
    return {
        **each[0],
        "name": name,
        **dict.fromkeys(("num_indices", "num_segments"), len(indices)),
        **dict.fromkeys(("indices", "segments"), each),
        **_sizes("indexed", has),
        **_sizes("unindexed", lacks),
        "num_indexed_rows_per_delta": [sum(r.num_rows for r in readers) for readers in by_part],
    }


def _own(snapshot: Snapshot, index: IndexMetadata) -> dict[str, Any]:
    """What the files of an index say of it; of a kind that is not known here, no more than its name."""
    opened = snapshot.indices.vector(index) or snapshot.indices.scalar(index)
    return {"index_type": kind_of(snapshot, index)} if opened is None else opened.statistics()


def kind_of(snapshot: Snapshot, index: IndexMetadata) -> str:
    """The kind of an index, as its writer or its files say it: ``BTree``, ``IVF_PQ``, ``Bitmap`` and so on."""
    said = "" if index.details is None else index.details.type_url.rpartition(".")[2].removesuffix("IndexDetails")
    if said in ("", "Vector"):
        with suppress(CorruptFileError):  # of a damaged one no more is known
            opened = snapshot.indices.vector(index) or snapshot.indices.scalar(index)
            said = said if opened is None else opened.kind
    return said or "Unknown"


def _sizes(kind: str, readers: list[FragmentReader]) -> dict[str, int]:
    """The numbers of fragments and of their rows."""
    return {f"num_{kind}_fragments": len(readers), f"num_{kind}_rows": sum(r.num_rows for r in readers)}


def own_statistics(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """The :func:`statistics` of an index without what is covered, and its name."""
    more = {"name", "num_indices", "num_segments", "indices", "segments", "num_indexed_rows_per_delta"}
    more |= {*_sizes("indexed", []), *_sizes("unindexed", [])}
    return {key: value for key, value in statistics(snapshot, name).items() if key not in more}


def prewarm(snapshot: Snapshot, name: str, segments: Collection[str] | None = None) -> None:
    """Open an index, or some of its parts by their ids, and read the partitions of one of vectors.

    Raises ``UnknownIndexError``.
    """
    for index in parts(snapshot, name):
        if segments is not None and str(index.uuid) not in segments:
            continue
        vector = snapshot.indices.vector(index)
        if vector is not None:
            vector.prewarm()
        else:
            snapshot.indices.scalar(index)


def centroids(snapshot: Snapshot, name: str | None, column: str | None) -> pa.FixedSizeListArray:
    """The centres of the partitions of an index of vectors, by its name or its column.

    Raises ``InvalidArgumentError`` where neither is given, and ``UnknownIndexError``.
    """
    if name is None and column is None:
        raise InvalidArgumentError("no index is named", help="pass index_name or column")
    field = None if column is None else snapshot.view.schema.find(column)
    of_column = [] if field is None else [i for i in snapshot.manifest.indices if i.fields == (field.id,)]
    for entry in of_column if name is None else [find(snapshot, name)]:
        opened = snapshot.indices.vector(entry)
        if opened is not None:
            centres = opened.model.centroids
            return pa.FixedSizeListArray.from_arrays(pa.array(centres.reshape(-1)), centres.shape[1])
    raise UnknownIndexError(
        f"column {column!r} has no index of vectors" if name is None else f"{name} is not an index of vectors"
    )


# --- making ----------------------------------------------------------------------------------------------------------


def create_scalar_index(
    snapshot: Snapshot,
    column: str,
    index_type: str = "BTREE",
    name: str | None = None,
    *,
    replace: bool = True,
    with_rows: bool = True,
) -> Snapshot:
    """Index the live rows of a column of single values, and return the version that has the index.

    ``with_rows`` says whether it covers the rows that there are, or none until it is renewed.

    Raises ``InvalidArgumentError`` for other columns and kinds, and where an index of the name is there and must not be
    replaced, or is of another column.
    """
    flag("train", with_rows)
    kind = str(index_type).upper()
    first = snapshot.manifest.storage_version.is_first
    if kind not in TRAINED or (first and kind != "BTREE"):
        kinds = "BTREE" if first else "BTREE and BITMAP"
        raise UnsupportedIndexError(
            f"an index of type {index_type!r} cannot be made", help=f"scalar indices of this dataset are {kinds}"
        )
    if not isinstance(column, str):
        raise WrongTypeError(f"column is {column!r}", help="it is a name")
    column = snapshot.view.schema.spelled(column)
    called = name or f"{column}_idx"
    _indexable(snapshot, column)

    def plan(current: Snapshot) -> op.Operation:
        check_name(current, called, column, replace=replace)
        return op.CreateIndex((trained(current, column, called, kind, with_rows=with_rows),))

    return replanned(snapshot, plan)


#: By the name of a kind: what writes it, and what a manifest says of it.
TRAINED = {"BTREE": (btree.train, BTREE_DETAILS), "BITMAP": (bitmap.train, BITMAP_DETAILS)}


def trained(
    snapshot: Snapshot, column: str, name: str, kind: str = "BTREE", *, with_rows: bool = True
) -> IndexMetadata:
    """Write an index of all live rows of a column of single values, or of none; the entry that makes it count."""
    schema, field = snapshot.view.schema, _indexable(snapshot, column)
    path = schema.path_of(field)
    plan = ScanPlan(snapshot.view, schema.project([column]), places=(ROW_ID,))
    readers = snapshot.readers if with_rows else ()
    rows = pa.Table.from_batches(snapshot.scan(plan, readers), schema=plan.schema)
    values = rows.column(0) if len(path) == 1 else pc.struct_field(rows.column(0), path[1:])
    uuid = UUID(snapshot.runtime.new_id())
    train, details = TRAINED[kind]
    version = snapshot.manifest.storage_version
    files = train(
        snapshot.store, f"_indices/{uuid}", pa.table({"values": values, ROW_ID: rows.column(ROW_ID)}), version
    )
    covered = FrozenBitMap([r.fragment.id for r in readers])
    if version.is_first:
        return IndexMetadata(uuid, (field.id,), name, snapshot.version, covered)
    return described(snapshot, IndexMetadata(uuid, (field.id,), name, snapshot.version, covered, details), files)


#: Kinds of columns that have an order, and values that an index's file keeps.
_INDEXABLE = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_temporal,
    pa.types.is_decimal128,
    pa.types.is_fixed_size_binary,
)


def _indexable(snapshot: Snapshot, column: str) -> Field:
    """A column, or a field in structs, that a scalar index can be made of.

    Raises ``UnknownColumnError`` and ``WrongTypeError``.
    """
    schema = snapshot.view.schema
    field = schema.find(column)
    if field is None:
        raise UnknownColumnError(f"{column} not found in schema", help=f"there are {', '.join(snapshot.schema.names)}")
    kind = field.arrow_type
    in_list = any(f.logical_type in LISTS for f in schema.above(field))
    if in_list or pa.types.is_float16(kind) or not any(is_(kind) for is_ in _INDEXABLE):
        raise WrongTypeError(
            f"the column is of type {kind}{' in a list' if in_list else ''}",
            help="index integers, decimals of up to 38 digits, floats, doubles, booleans, texts, bytes, dates or times",
            column=column,
        )
    return field


def file_version(snapshot: Snapshot, *, modern: bool) -> StorageVersion:
    """The version of new files of an index that has files of 2.x, or of the first format."""
    newest = snapshot.manifest.storage_version
    return FIRST if not modern else STABLE if newest.is_first else newest


def described(snapshot: Snapshot, entry: IndexMetadata, files: tuple[tuple[str, int], ...]) -> IndexMetadata:
    """The entry as today's format has it: with the version of its files, their sizes, and the time."""
    is_vector = entry.details is not None and entry.details.type_url == VECTOR_DETAILS.type_url
    version = 1 if is_vector else 0
    return replace(entry, index_version=version, files=files, created_at_ms=snapshot.runtime.clock_ms())


def drop_index(snapshot: Snapshot, name: str) -> Snapshot:
    """Take an index out of the dataset, all parts of it; its files stay for older versions.

    Raises ``UnknownIndexError``.
    """

    def plan(current: Snapshot) -> op.Operation:
        find(current, name)
        return op.CreateIndex((), tuple(i for i in current.manifest.indices if i.name == name))

    return replanned(snapshot, plan)


# --- moving ----------------------------------------------------------------------------------------------------------


def remap(snapshot: Snapshot, before: RowIds, after: RowIds, rewritten: set[int]) -> tuple[op.RewrittenIndex, ...]:
    """Write indices anew whose rows have moved from the row ids ``before`` to those ``after``.

    Rows of the fragments ``rewritten`` that are not among them are gone.  Returns what a transaction says of each index
    that was written; the others do not cover the new fragments, which the log says.
    """
    order = np.argsort(before)
    before, after = before[order], after[order]
    rewritten_ids = np.array(sorted(rewritten), np.uint64)

    def move(ids: RowIds) -> tuple[RowIds, npt.NDArray[np.bool_]]:
        snapshot.check_indexed(ids)
        at = np.minimum(np.searchsorted(before, ids), max(len(before) - 1, 0))
        hit = before[at] == ids if len(before) else np.zeros(len(ids), bool)
        moved = np.where(hit, after[at], ids) if len(before) else ids
        return moved, hit | ~np.isin(ids >> np.uint64(32), rewritten_ids)

    rewritten_indices = []
    for index in snapshot.manifest.indices:
        if index.fragment_bitmap is None or not rewritten.intersection(index.fragment_bitmap):
            continue
        uuid = UUID(snapshot.runtime.new_id())
        new = f"_indices/{uuid}"
        scalar, vector = snapshot.indices.scalar(index), snapshot.indices.vector(index)
        if isinstance(scalar, BTreeIndex | BitmapIndex) and scalar.kind.upper() in TRAINED:
            train, details = TRAINED[scalar.kind.upper()]
            rows = scalar.read()
            ids, keep = move(rows["row_ids"].to_numpy())
            rows = rows.set_column(1, "row_ids", pa.array(ids)).filter(pa.array(keep))
            # In the format that the index has: an index without nulls would say that there are none.
            train(snapshot.store, new, rows, file_version(snapshot, modern=scalar.has_nulls))
        elif vector is not None and vector.kind == "IVF_PQ":
            details = VECTOR_DETAILS
            version = file_version(snapshot, modern=vector.model.modern)
            vector.write_with(snapshot.store, new, move=move, version=version)
        else:
            _log.warning(
                "index %s of %s cannot follow its rows: it does not cover the compacted rows; make it again",
                index.name,
                snapshot.store.uri,
            )
            continue
        rewritten_indices.append(
            op.RewrittenIndex(index.uuid, uuid, index.details or details, index.index_version or 0)
        )
    return tuple(rewritten_indices)
