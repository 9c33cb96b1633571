"""Indices of a dataset: list, create, drop and remap.

An index is a folder of files and a manifest entry with the fragments it covers.  Queries scan the rows of other
fragments and ignore deleted rows, so an index may be incomplete.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap

from trilake.common.arguments import flag
from trilake.common.text import columns_help
from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.lance.commands.replan import replanned
from trilake.lance.file.errors import (
    IndexExistsError,
    UnknownColumnError,
    UnknownIndexError,
    UnsupportedIndexError,
    WrongTypeError,
)
from trilake.lance.file.schema import Field
from trilake.lance.file.storage_version import LEGACY, STABLE, StorageVersion
from trilake.lance.file.types import LISTS
from trilake.lance.index import bitmap, btree, zonemap
from trilake.lance.index.ivf_files import Details
from trilake.lance.index.ivf_pq import RowIds
from trilake.lance.index.vector_index import Move, write_index_files
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID
from trilake.lance.scan.scan import ScanPlan
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import (
    BITMAP_DETAILS,
    BTREE_DETAILS,
    LABEL_LIST_DETAILS,
    VECTOR_DETAILS,
    IndexDetails,
    IndexMetadata,
)

_log = logging.getLogger("trilake.lance")


def check_name(snapshot: Snapshot, name: str, column: str, *, replace: bool) -> None:
    """Raise ``IndexExistsError`` if the name is taken, and ``UnknownColumnError`` if the column does not exist.

    A commit replaces indices of the same name, so without this check the index of another column would be lost.
    """
    flag("replace", replace)
    field = snapshot.view.schema.find(column)
    ids = () if field is None else (field.id,)
    for index in snapshot.manifest.indices:
        if index.name != name:
            continue
        if field is None:  # dropped or renamed by a concurrent commit
            raise UnknownColumnError(f"{column} not found in schema", help=columns_help(column, snapshot.schema.names))
        if tuple(index.fields) != ids:
            raise IndexExistsError(f"the index {name!r} already exists on another column", help="choose another name")
        if not replace:
            raise IndexExistsError(f"the index {name!r} already exists", help="pass replace=True")


def default_name(snapshot: Snapshot, column: str, kind: ScalarKind | None) -> str:
    """Return ``<column>_idx``, with a number if an index of another column or kind has that name.

    Without a ``kind``, the index is a vector index of any kind.
    """
    field = snapshot.view.schema.field(column)

    def would_be_replaced(index: IndexMetadata) -> bool:
        present = kind_of(snapshot, index).upper()
        same_kind = present.startswith(("IVF", "VECTOR")) if kind is None else present == kind.name.replace("_", "")
        return index.fields == (field.id,) and (same_kind or present == "UNKNOWN")

    taken = {index.name for index in snapshot.manifest.indices if not would_be_replaced(index)}
    names = (f"{column}_idx", *(f"{column}_idx_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def find(snapshot: Snapshot, name: str) -> IndexMetadata:
    """Return the first segment of an index.  Raises ``UnknownIndexError``."""
    return parts(snapshot, name)[0]


def parts(snapshot: Snapshot, name: str) -> list[IndexMetadata]:
    """Return all segments of an index.  Raises ``UnknownIndexError``."""
    segments = [index for index in snapshot.manifest.indices if index.name == name]
    if segments:
        return segments
    names = ", ".join(i.name for i in snapshot.manifest.indices)
    raise UnknownIndexError(f'Index "{name}" not found', help=f"indices are {names or 'none'}", file=snapshot.store.uri)


def list_indices(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Describe the indices of a version as dictionaries."""
    schema = snapshot.manifest.schema
    return [
        {
            "name": index.name,
            "type": kind_of(snapshot, index),
            "uuid": str(index.uuid),
            "fields": schema.names_of(index.fields),
            "version": index.dataset_version,
            "fragment_ids": set(index.fragment_bitmap or ()),
            "base_id": index.base_id,
        }
        for index in snapshot.manifest.indices
    ]


def kind_of(snapshot: Snapshot, index: IndexMetadata) -> str:
    """Return the kind of an index from its manifest entry or its files: ``BTree``, ``IVF_PQ``, ``Bitmap``, ..."""
    kind = "" if index.details is None else index.details.type_url.rpartition(".")[2].removesuffix("IndexDetails")
    if kind in ("", "Vector"):
        with suppress(CorruptFileError):  # describe a damaged index by its manifest entry
            opened = snapshot.indices.any(index)
            kind = kind if opened is None else opened.kind
    if kind == "Vector" and index.details is not None:
        details = Details.parse(index.details.value)
        kind = kind if details is None else details.kind
    return kind or "Unknown"


# --- create ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScalarKind:
    """A kind of scalar index that trilake can build.

    ``train`` writes its files from values and row ids or addresses (``row_key``); ``of_lists`` indicates whether it
    indexes the items of lists; ``version`` is the version of its files.
    """

    name: str
    train: Callable[..., tuple[tuple[str, int], ...]]
    details: IndexDetails
    row_key: str = ROW_ID
    of_lists: bool = False
    version: int = 0


#: Scalar kinds that trilake can build, by uppercase name without underscores.
SCALAR_KINDS = {
    kind.name.replace("_", ""): kind
    for kind in (
        ScalarKind("BTREE", btree.train, BTREE_DETAILS),
        ScalarKind("BITMAP", bitmap.train, BITMAP_DETAILS),
        ScalarKind("LABEL_LIST", bitmap.train_lists, LABEL_LIST_DETAILS, of_lists=True, version=1),
        ScalarKind("ZONEMAP", zonemap.train, zonemap.DETAILS, row_key=ROW_ADDRESS),
    )
}
#: Kinds that trilake preserves but cannot build, each with an alternative.
_NOT_BUILT = {
    **dict.fromkeys(
        ["INVERTED", "FTS", "NGRAM"],
        "filter by contains(column, 'words') or regexp_match; indices built by pylance are preserved, but not searched",
    ),
    "BLOOMFILTER": "build a BTREE or ZONEMAP index, which also finds rows by value",
}


def with_zones(kind: ScalarKind, rows_per_zone: int | None) -> ScalarKind:
    """Return a kind with this number of rows per zone; kinds without zones stay as they are."""
    if kind.name != "ZONEMAP" or not rows_per_zone:
        return kind
    train = partial(zonemap.train, rows_per_zone=rows_per_zone)
    return dataclasses.replace(kind, train=train, details=zonemap.details(rows_per_zone))


def scalar_kind(snapshot: Snapshot, index_type: str, rows_per_zone: int | None = None) -> ScalarKind:
    """Return the kind of a scalar index by name.  Raises ``UnsupportedIndexError`` with an alternative."""
    kind = str(index_type).upper()
    built = SCALAR_KINDS.get(kind.replace("_", ""))
    if built is not None and (built.name == "BTREE" or not snapshot.manifest.storage_version.is_legacy):
        return with_zones(built, rows_per_zone)
    if kind in _NOT_BUILT:
        raise UnsupportedIndexError(f"index type {index_type!r} is not supported", help=_NOT_BUILT[kind])
    kinds = "BTREE" if snapshot.manifest.storage_version.is_legacy else "BTREE, BITMAP, LABEL_LIST and ZONEMAP"
    raise UnsupportedIndexError(
        f"index type {index_type!r} is not supported", help=f"scalar index types of this dataset are {kinds}"
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
    """Create a scalar index on a column or list column, and return the new version.

    Without ``with_rows``, the index stays empty until it is optimized.  ``rows_per_zone`` is for ZONEMAP.  Raises
    ``InvalidArgumentError`` for unsupported columns and kinds, and for an existing name without ``replace``.
    """
    flag("train", with_rows)
    kind = scalar_kind(snapshot, index_type, rows_per_zone)
    column, called = checked_column(snapshot, column, kind, name)

    def plan(current: Snapshot) -> op.Operation:
        check_name(current, called, column, replace=replace)
        rows = current if with_rows else of_fragments(current, ())
        return op.CreateIndex((trained(rows, column, called, kind),))

    return replanned(snapshot, plan)


def checked_column(snapshot: Snapshot, column: str, kind: ScalarKind, name: str | None = None) -> tuple[str, str]:
    """Return a column as spelled in the schema, and the name of its index.

    Raises ``UnknownColumnError``, and ``WrongTypeError`` if the kind does not support its type.
    """
    if not isinstance(column, str):
        raise WrongTypeError(f"column must be a column name, got {column!r}")
    column = snapshot.view.schema.spelled(column)
    _indexable(snapshot, column, kind)
    return column, name or default_name(snapshot, column, kind)


def of_fragments(snapshot: Snapshot, ids: Collection[int]) -> Snapshot:
    """Restrict a snapshot to some fragments.  Raises ``InvalidArgumentError`` for an unknown fragment."""
    fragments = tuple(f for f in snapshot.manifest.fragments if f.id in ids)
    missing = sorted(set(ids) - {f.id for f in fragments})
    if missing:
        raise InvalidArgumentError(
            f"fragment {missing[0]} is not in version {snapshot.version}",
            help="get_fragments lists the fragments",
            file=snapshot.store.uri,
        )
    return snapshot.at(dataclasses.replace(snapshot.manifest, fragments=fragments))


def trained(snapshot: Snapshot, column: str, name: str, kind: ScalarKind) -> IndexMetadata:
    """Write an index of all live rows, and return its manifest entry."""
    schema, field = snapshot.view.schema, _indexable(snapshot, column, kind)
    path = schema.path_of(field)
    plan = ScanPlan(snapshot.view, schema.project([column]), row_metadata=(kind.row_key,))
    rows = pa.Table.from_batches(snapshot.scan(plan), schema=plan.schema)
    values = rows.column(0) if len(path) == 1 else pc.struct_field(rows.column(0), path[1:])
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.cast(values.type.storage_type)
    uuid = UUID(snapshot.runtime.new_id())
    legacy = kind.name == "BTREE" and snapshot.manifest.storage_version.is_legacy
    version = file_version(snapshot, legacy=legacy)
    of = pa.table({"values": values, kind.row_key: rows.column(kind.row_key)})
    files = kind.train(snapshot.store, f"_indices/{uuid}", of, version)
    covered = FrozenBitMap([f.id for f in snapshot.manifest.fragments])
    entry = IndexMetadata(uuid, (field.id,), name, snapshot.version, covered)
    if version.is_legacy:
        return entry
    return described(snapshot, dataclasses.replace(entry, details=kind.details, index_version=kind.version), files)


#: Types of values that are ordered and can be stored in an index.
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
    """Return the column or nested field to index.  Raises ``UnknownColumnError`` and ``WrongTypeError``."""
    schema = snapshot.view.schema
    field = schema.find(column)
    if field is None:
        raise UnknownColumnError(f"{column} not found in schema", help=columns_help(column, snapshot.schema.names))
    kind = field.arrow_type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    in_list = any(f.logical_type in LISTS for f in schema.above(field))
    if index.of_lists:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise WrongTypeError(
                f"the column is of type {kind}", help="LABEL_LIST supports lists of scalar values", column=column
            )
        kind = kind.value_type
    if in_list or pa.types.is_float16(kind) or not any(is_(kind) for is_ in _INDEXABLE):
        raise WrongTypeError(
            f"the column is of type {kind}{' in a list' if in_list else ''}",
            help="index integers, decimals, floats, doubles, booleans, strings, binaries, dates or timestamps",
            column=column,
        )
    return field


def file_version(snapshot: Snapshot, *, legacy: bool) -> StorageVersion:
    """Return the version for new files of an index."""
    newest = snapshot.manifest.storage_version
    return LEGACY if legacy else STABLE if newest.is_legacy else newest


def described(snapshot: Snapshot, entry: IndexMetadata, files: tuple[tuple[str, int], ...]) -> IndexMetadata:
    """Add index version, file sizes and creation time to an entry, as newer pylance releases do."""
    is_vector = entry.details is not None and entry.details.type_url == VECTOR_DETAILS.type_url
    version = 1 if is_vector else entry.index_version or 0
    return dataclasses.replace(entry, index_version=version, files=files, created_at_ms=snapshot.runtime.clock_ms())


def drop_index(snapshot: Snapshot, name: str) -> Snapshot:
    """Drop an index with all its segments; its files stay for older versions.  Raises ``UnknownIndexError``."""

    def plan(current: Snapshot) -> op.Operation:
        find(current, name)
        return op.CreateIndex((), tuple(i for i in current.manifest.indices if i.name == name))

    return replanned(snapshot, plan)


# --- remap -----------------------------------------------------------------------------------------------------------


def remap(snapshot: Snapshot, before: RowIds, after: RowIds, rewritten: set[int]) -> tuple[op.RewrittenIndex, ...]:
    """Rewrite indices whose rows moved from the row ids ``before`` to ``after``.

    Rows of the fragments ``rewritten`` that are not in ``before`` were deleted.  Returns the rewritten indices; the
    others no longer cover the new fragments, which is logged.
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
        if index.is_note or index.fragment_bitmap is None or not rewritten.intersection(index.fragment_bitmap):
            continue
        if snapshot.manifest.has_stable_row_ids and not index.by_address:
            continue
        uuid = UUID(snapshot.runtime.new_id())
        details = _write_moved(snapshot, index, f"_indices/{uuid}", move)
        if details is not None:
            version = index.index_version or 0
            rewritten_indices.append(op.RewrittenIndex(index.uuid, uuid, index.details or details, version))
    return tuple(rewritten_indices)


def _write_moved(snapshot: Snapshot, index: IndexMetadata, folder: str, move: Move) -> IndexDetails | None:
    """Write an index with other row ids, and return its details; ``None`` if it is of a kind that cannot be moved."""
    scalar, vector = snapshot.indices.scalar(index), snapshot.indices.vector(index)
    if scalar is not None and not scalar.answers_items and (rows := scalar.read()) is not None:
        kind = SCALAR_KINDS[scalar.kind.upper()]
        ids, keep = move(rows["row_ids"].to_numpy())
        rows = rows.set_column(1, "row_ids", pa.array(ids)).filter(pa.array(keep))
        # Keep the file version of the index, as some versions cannot store nulls.
        kind.train(snapshot.store, folder, rows, file_version(snapshot, legacy=not scalar.has_nulls))
        return kind.details
    if vector is not None and vector.kind == vector.model.kind:
        write_index_files(
            snapshot.store,
            folder,
            vector.model,
            vector.moved(move),
            file_version(snapshot, legacy=vector.model.legacy),
            name=index.name,
            column=snapshot.manifest.schema.names_of(index.fields)[0],
            dataset_version=index.dataset_version,
        )
        return VECTOR_DETAILS
    _log.warning(
        "index %s on %s cannot be remapped: it does not cover the compacted rows; %s",
        index.name,
        snapshot.store.uri,
        "optimize_indices adds them" if scalar is not None else "rebuild it",
    )
    return None
