"""Indices of a dataset: listed, created, and moved by a compaction.

An index is a folder of files and an entry in the manifest that says which fragments it covers.  Rows of other fragments
are looked at one by one, deleted rows are left out, so an index never needs to be complete.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
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
from trilake.lance.index import bitmap, btree, zonemap
from trilake.lance.index.bitmap import BitmapIndex
from trilake.lance.index.btree import BTreeIndex
from trilake.lance.index.ivf_pq import RowIds
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID, FragmentReader
from trilake.lance.scan.scan import ScanPlan
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import (
    BITMAP_DETAILS,
    BTREE_DETAILS,
    LABEL_LIST_DETAILS,
    VECTOR_DETAILS,
    ZONE_MAP_DETAILS,
    IndexDetails,
    IndexMetadata,
)

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


@dataclass(frozen=True)
class ScalarKind:
    """A kind of scalar index that is built here.

    ``train`` writes its files of values and row ids, or addresses, as ``place`` says; ``of_lists`` is whether it is of
    the items of lists; ``version`` is that of its files.
    """

    name: str
    train: Callable[..., tuple[tuple[str, int], ...]]
    details: IndexDetails
    place: str = ROW_ID
    of_lists: bool = False
    version: int = 0


#: By the name of a kind, without underscores.
TRAINED = {
    kind.name.replace("_", ""): kind
    for kind in (
        ScalarKind("BTREE", btree.train, BTREE_DETAILS),
        ScalarKind("BITMAP", bitmap.train, BITMAP_DETAILS),
        ScalarKind("LABEL_LIST", bitmap.train_lists, LABEL_LIST_DETAILS, of_lists=True, version=1),
        ScalarKind("ZONEMAP", zonemap.train, ZONE_MAP_DETAILS, place=ROW_ADDRESS),
    )
}
#: Kinds that are listed and kept, and what finds the same rows.
_NOT_BUILT = {
    **dict.fromkeys(
        ["INVERTED", "FTS", "NGRAM"],
        "filter by contains(column, 'words') or regexp_match; an index that pylance built is kept, not searched",
    ),
    "BLOOMFILTER": "build a BTREE or a ZONEMAP, which find the rows of a value too",
}


def scalar_kind(snapshot: Snapshot, index_type: str) -> ScalarKind:
    """The kind of a scalar index by its name.  Raises ``UnsupportedIndexError``, which says what to use."""
    kind = str(index_type).upper()
    built = TRAINED.get(kind.replace("_", ""))
    if built is not None and (built.name == "BTREE" or not snapshot.manifest.storage_version.is_first):
        return built
    if kind in _NOT_BUILT:
        raise UnsupportedIndexError(f"an index of type {index_type!r} cannot be made", help=_NOT_BUILT[kind])
    kinds = "BTREE" if snapshot.manifest.storage_version.is_first else "BTREE, BITMAP, LABEL_LIST and ZONEMAP"
    raise UnsupportedIndexError(
        f"an index of type {index_type!r} cannot be made", help=f"scalar indices of this dataset are {kinds}"
    )


def create_scalar_index(
    snapshot: Snapshot,
    column: str,
    index_type: str = "BTREE",
    name: str | None = None,
    *,
    replace: bool = True,
    with_rows: bool = True,
    rows_per_zone: int | None = None,
) -> Snapshot:
    """Index the live rows of a column of single values, or of lists, and return the version that has the index.

    ``with_rows`` says whether it covers the rows that there are, or none until it is renewed; ``rows_per_zone`` is of
    a ZONEMAP.

    Raises ``InvalidArgumentError`` for other columns and kinds, and where an index of the name is there and must not be
    replaced, or is of another column.
    """
    flag("train", with_rows)
    kind = scalar_kind(snapshot, index_type)
    column, called = checked_column(snapshot, column, kind, name)

    def plan(current: Snapshot) -> op.Operation:
        check_name(current, called, column, replace=replace)
        rows = current if with_rows else of_fragments(current, ())
        return op.CreateIndex((trained(rows, column, called, kind, rows_per_zone),))

    return replanned(snapshot, plan)


def checked_column(snapshot: Snapshot, column: str, kind: ScalarKind, name: str | None = None) -> tuple[str, str]:
    """A column as the schema spells it, and the name of its index.

    Raises ``UnknownColumnError``, and ``WrongTypeError`` where the kind cannot index it.
    """
    if not isinstance(column, str):
        raise WrongTypeError(f"column is {column!r}", help="it is a name")
    column = snapshot.view.schema.spelled(column)
    _indexable(snapshot, column, kind)
    return column, name or f"{column}_idx"


def of_fragments(snapshot: Snapshot, ids: Collection[int]) -> Snapshot:
    """The version with some of its fragments alone, so that an index of it covers these.

    Raises ``InvalidArgumentError`` for a fragment that is not there.
    """
    fragments = tuple(f for f in snapshot.manifest.fragments if f.id in ids)
    missing = sorted(set(ids) - {f.id for f in fragments})
    if missing:
        raise InvalidArgumentError(
            f"fragment {missing[0]} is not in version {snapshot.version}",
            help="get_fragments lists the fragments there are",
            file=snapshot.store.uri,
        )
    return snapshot.at(dataclasses.replace(snapshot.manifest, fragments=fragments))


def trained(
    snapshot: Snapshot, column: str, name: str, kind: ScalarKind, rows_per_zone: int | None = None
) -> IndexMetadata:
    """Write an index of all live rows; the entry that makes it count."""
    schema, field = snapshot.view.schema, _indexable(snapshot, column, kind)
    path = schema.path_of(field)
    plan = ScanPlan(snapshot.view, schema.project([column]), places=(kind.place,))
    rows = pa.Table.from_batches(snapshot.scan(plan), schema=plan.schema)
    values = rows.column(0) if len(path) == 1 else pc.struct_field(rows.column(0), path[1:])
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    uuid = UUID(snapshot.runtime.new_id())
    modern = kind.name != "BTREE" or not snapshot.manifest.storage_version.is_first
    version, details = file_version(snapshot, modern=modern), kind.details
    more: dict[str, Any] = {}
    if kind.train is zonemap.train:
        more = {"rows_per_zone": rows_per_zone or zonemap.ROWS_PER_ZONE}
        details = dataclasses.replace(details, value=zonemap.details(**more))
    of = pa.table({"values": values, kind.place: rows.column(kind.place)})
    files = kind.train(snapshot.store, f"_indices/{uuid}", of, version, **more)
    covered = FrozenBitMap([f.id for f in snapshot.manifest.fragments])
    entry = IndexMetadata(uuid, (field.id,), name, snapshot.version, covered)
    if version.is_first:
        return entry
    return described(snapshot, dataclasses.replace(entry, details=details, index_version=kind.version), files)


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
    pa.types.is_decimal,
    pa.types.is_fixed_size_binary,
)


def _indexable(snapshot: Snapshot, column: str, index: ScalarKind) -> Field:
    """A column, or a field in structs, that a scalar index can be made of.

    Raises ``UnknownColumnError`` and ``WrongTypeError``.
    """
    schema = snapshot.view.schema
    field = schema.find(column)
    if field is None:
        raise UnknownColumnError(f"{column} not found in schema", help=f"there are {', '.join(snapshot.schema.names)}")
    kind = field.arrow_type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    in_list = any(f.logical_type in LISTS for f in schema.above(field))
    if index.of_lists:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise WrongTypeError(
                f"the column is of type {kind}", help="a LABEL_LIST indexes lists of single values", column=column
            )
        kind = kind.value_type
    if in_list or pa.types.is_float16(kind) or not any(is_(kind) for is_ in _INDEXABLE):
        raise WrongTypeError(
            f"the column is of type {kind}{' in a list' if in_list else ''}",
            help="index integers, decimals, floats, doubles, booleans, texts, bytes, dates or times",
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
    version = 1 if is_vector else entry.index_version or 0
    return dataclasses.replace(entry, index_version=version, files=files, created_at_ms=snapshot.runtime.clock_ms())


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
        snapshot.check_indexed(ids, by_address=True)
        at = np.minimum(np.searchsorted(before, ids), max(len(before) - 1, 0))
        hit = before[at] == ids if len(before) else np.zeros(len(ids), bool)
        moved = np.where(hit, after[at], ids) if len(before) else ids
        return moved, hit | ~np.isin(ids >> np.uint64(32), rewritten_ids)

    rewritten_indices = []
    for index in snapshot.manifest.indices:
        if index.fragment_bitmap is None or not rewritten.intersection(index.fragment_bitmap):
            continue
        if snapshot.manifest.has_stable_row_ids and not index.by_address:
            continue
        uuid = UUID(snapshot.runtime.new_id())
        new = f"_indices/{uuid}"
        scalar, vector = snapshot.indices.scalar(index), snapshot.indices.vector(index)
        if isinstance(scalar, BTreeIndex | BitmapIndex) and not scalar.answers_items:
            kind = TRAINED[scalar.kind.upper()]
            train, details = kind.train, kind.details
            rows = scalar.read()
            ids, keep = move(rows["row_ids"].to_numpy())
            rows = rows.set_column(1, "row_ids", pa.array(ids)).filter(pa.array(keep))
            # In the format that the index has: an index without nulls would say that there are none.
            train(snapshot.store, new, rows, file_version(snapshot, modern=scalar.has_nulls))
        elif vector is not None and vector.kind == vector.model.kind:
            details = VECTOR_DETAILS
            version = file_version(snapshot, modern=vector.model.modern)
            vector.write_with(snapshot.store, new, move=move, version=version)
        else:
            _log.warning(
                "index %s of %s cannot follow its rows: it does not cover the compacted rows; %s",
                index.name,
                snapshot.store.uri,
                "optimize_indices adds them" if scalar is not None else "build it again",
            )
            continue
        rewritten_indices.append(
            op.RewrittenIndex(index.uuid, uuid, index.details or details, index.index_version or 0)
        )
    return tuple(rewritten_indices)
