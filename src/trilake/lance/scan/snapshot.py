"""``Snapshot``: a dataset at one version, with its open readers and indices.

Rows are identified in three ways: by rank, which counts live rows in the order of the fragments; by address, which is
the fragment's id and the offset in it; and by row id, which is the address, unless the dataset has stable row ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.errors import CorruptFileError, CorruptLogError, MissingFileError
from trilake.expr import Filter
from trilake.lance.file.errors import UnknownRowError, WrongTypeError
from trilake.lance.file.schema import TOMBSTONE, LanceSchema
from trilake.lance.file.view import View
from trilake.lance.scan import scalar_search, scan
from trilake.lance.scan.blob_bytes import BlobLocation
from trilake.lance.scan.fragment_reader import (
    ROW_ADDRESS,
    FragmentReader,
    Ids,
    Rows,
    addresses,
    by_fragment,
    one_batch,
)
from trilake.lance.scan.id_conditions import condition_schema, id_columns
from trilake.lance.scan.joined_reader import joined, together
from trilake.lance.scan.open_indices import OpenIndices
from trilake.lance.scan.parse_sql import filter_of
from trilake.lance.scan.scalar_search import IndexQuery
from trilake.lance.scan.scan import ScanPlan
from trilake.lance.versions import transaction
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.effects import carried
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.operations import Operation
from trilake.storage.base import Store
from trilake.table.table import FilterLike

#: An address that no row has.
_NOWHERE = np.uint64(2**64 - 1)


class Snapshot:
    """The rows of one version; can be shared between threads."""

    def __init__(self, store: Store, manifest: Manifest, runtime: Runtime, index_cache_size: int | None = None) -> None:
        #: Clock, ids and lock for commits on this version.
        self.runtime = runtime
        self.store, self.manifest = store, manifest
        self.view = View(manifest.schema)
        #: Locations of its files.
        self.bases = Bases(store, manifest.base_paths)
        #: Open indices, of this and other versions.
        self.indices = OpenIndices(self.bases, index_cache_size)
        self._answered: tuple[Filter, dict[int, Rows] | None, bool] | None = None

    @classmethod
    def open(
        cls, store: Store, runtime: Runtime, version: int | None = None, index_cache_size: int | None = None
    ) -> Snapshot:
        """Open a version of the dataset at the root of ``store``, by default the newest.

        ``index_cache_size`` is the ``size`` of :class:`~trilake.lance.scan.open_indices.OpenIndices`.  Raises
        ``TableNotFoundError``, ``VersionNotFoundError``, ``CorruptLogError`` or ``UnsupportedProtocolError``.
        """
        return cls(store, transaction.load(store, version), runtime, index_cache_size)

    def at(self, manifest: Manifest) -> Snapshot:
        """Return the snapshot of another version, which shares the readers of fragments that both have."""
        same = manifest.schema == self.manifest.schema and not manifest.schema.dictionaries
        if same:
            manifest = replace(manifest, schema=self.manifest.schema)  # readers of both versions can be joined
        other = Snapshot(self.store, manifest, self.runtime)
        if manifest.base_paths == self.manifest.base_paths:
            other.indices = self.indices
        if same:
            other.view = self.view
            readers = {reader.fragment: reader for reader in self.readers}
            shared = (copy(readers[f]) if f in readers else other.reader(f) for f in manifest.fragments)
            other.__dict__["readers"] = other._ranked(shared)
        return other

    @property
    def version(self) -> int:
        return self.manifest.version

    @property
    def schema(self) -> pa.Schema:
        return self.view.arrow

    def reader(self, fragment: Fragment) -> FragmentReader:
        """Create a reader for a fragment of this version, or for a changed one."""
        return FragmentReader(self.store, fragment, self.manifest.schema, self.bases)

    @cached_property
    def readers(self) -> tuple[FragmentReader, ...]:
        """A reader for each fragment, in order."""
        return self._ranked(map(self.reader, self.manifest.fragments))

    def _ranked(self, readers: Iterable[FragmentReader]) -> tuple[FragmentReader, ...]:
        ranked = tuple(readers)
        for i, reader in enumerate(ranked):
            reader.first_rank = partial(lambda i: int(self.rank_offsets[i]), i)
        return ranked

    @cached_property
    def by_id(self) -> dict[int, FragmentReader]:
        """The readers by the ids of their fragments."""
        return {reader.fragment.id: reader for reader in self.readers}

    # --- scanning ----------------------------------------------------------------------------------------------------

    def filter(self, filter: FilterLike | Filter | None) -> Filter | None:
        """Bind a condition to the columns, and to id columns.  Raises ``FilterError``."""
        if filter is None or isinstance(filter, Filter):
            return filter
        return filter_of(filter, condition_schema(self.schema, filter))

    def names_ids(self, filter: Filter | None) -> bool:
        """Whether a condition reads row ids, which may differ in other versions."""
        return filter is not None and bool(id_columns(filter, self.schema))

    @cached_property
    def rows_view(self) -> View:
        """The columns with blobs as bytes, for rewriting rows."""
        return replace(self.view, blob_bytes=True)

    def plan(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterLike | Filter | None = None,
        *,
        view: View | None = None,
        **more: Any,
    ) -> ScanPlan:
        """Plan a scan; further arguments are those of :class:`~trilake.lance.scan.scan.ScanPlan`."""
        view = view or self.view
        return self.indexed(ScanPlan(view, view.columns(columns), self.filter(filter), **more))

    def index_query(self, filter: Filter | None) -> IndexQuery | None:
        """The part of a filter that scalar indices can answer."""
        return scalar_search.index_query(filter, self.manifest, self.view.schema, self.indices, self.stable_ids)

    def candidates(self, filter: Filter) -> tuple[dict[int, Rows] | None, bool]:
        """Find the rows that may match, by fragment id, and whether all of them do.

        Fragments that no index covers are missing; ``None`` means to scan all fragments.
        """
        query = self.index_query(filter)
        rows = scalar_search.candidates(query, self.indexed_addresses, int(self.rank_offsets[-1]))
        return rows, query is not None and query.certain

    def indexed(self, plan: ScanPlan) -> ScanPlan:
        """Restrict a plan to the rows that indices find, if they help."""
        if plan.filter is None or not plan.use_index or plan.include_deleted:
            return plan
        if not self.manifest.indices and not self.names_ids(plan.filter):
            return plan
        last = self._answered
        if last is None or last[0] is not plan.filter:
            # Keep the last answer: commands plan fragment by fragment.
            last = self._answered = plan.filter, *self.candidates(plan.filter)
        return plan if last[1] is None else replace(plan, candidates=last[1], certain=last[2])

    def scan(self, plan: ScanPlan, readers: Iterable[FragmentReader] | None = None) -> Iterator[pa.RecordBatch]:
        return scan.scan(plan, self.readers if readers is None else readers)

    def count(self, filter: FilterLike | None = None) -> int:
        return scan.count(self.plan([], filter) if filter is not None else self.plan(), self.readers)

    # --- single rows -------------------------------------------------------------------------------------------------

    @cached_property
    def rank_offsets(self) -> Rows:
        """The rank at which each fragment begins, then the number of rows."""
        return np.cumsum([0, *(reader.num_rows for reader in self.readers)], dtype=np.int64)

    def take(self, ranks: npt.ArrayLike, columns: LanceSchema, *, row_metadata: Sequence[str] = ()) -> pa.Table:
        """Take the rows at these ranks, in this order.  Raises ``UnknownRowError`` for a rank out of range."""
        return self.take_addresses(self.addresses_at(np.asarray(ranks, np.int64)), columns, row_metadata=row_metadata)

    def addresses_at(self, ranks: Rows) -> Ids:
        """Convert ranks to addresses.  Raises ``UnknownRowError`` for a rank out of range."""
        total = int(self.rank_offsets[-1])
        bad = ranks[(ranks < 0) | (ranks >= total)]
        if len(bad):
            raise UnknownRowError(f"row {bad[0]} is out of range: the dataset has {total} rows", file=self.store.uri)
        fragments = np.searchsorted(self.rank_offsets, ranks, "right") - 1
        rows = np.empty(len(ranks), np.uint64)
        for i in np.unique(fragments).tolist():
            chosen, reader = fragments == i, self.readers[i]
            offsets = reader.offsets_of_live(ranks[chosen] - self.rank_offsets[i])
            rows[chosen] = addresses(reader.fragment.id, offsets)
        return rows

    def take_rows(self, ids: npt.ArrayLike, columns: LanceSchema, *, row_metadata: Sequence[str] = ()) -> pa.Table:
        """Take the rows with these row ids, in this order.

        Raises ``UnknownRowError`` for an id that does not exist, or whose row is deleted.
        """
        return self.take_addresses(self.addresses_of(np.asarray(ids, np.uint64)), columns, row_metadata=row_metadata)

    def take_addresses(self, addresses: Ids, columns: LanceSchema, *, row_metadata: Sequence[str] = ()) -> pa.Table:
        """Take the rows at these addresses, in this order.  Raises ``UnknownRowError``."""
        plan = ScanPlan(self.view, columns, row_metadata=tuple(row_metadata))
        stored = self.view.stored(columns)

        def rows_of(reader: FragmentReader, offsets: Rows) -> pa.RecordBatch:
            return scan.finish(plan, reader, one_batch(reader.take(offsets, stored)), offsets)

        groups = list(by_fragment(addresses))
        if not groups:
            return pa.Table.from_batches([], plan.schema)
        readers = [self._reader_of_live(id, offsets) for id, _, offsets in groups]
        if len(groups) == 1:
            return pa.Table.from_batches([rows_of(readers[0], groups[0][2])])
        parts = (offsets for *_, offsets in groups)
        each = [
            partial(rows_of, one, one.joined_offsets(list(islice(parts, len(one.readers)))))
            for one in joined(together(readers), [stored])
        ]
        batches = self.store.at_once(each)
        table = pa.Table.from_batches(batches, schema=batches[0].schema)
        order = np.empty(len(addresses), np.int64)
        order[np.concatenate([at for _, at, _ in groups])] = np.arange(len(addresses))
        return scan.rows_at(table, pa.array(order)).combine_chunks()

    def _reader_of_live(self, fragment_id: int, offsets: Rows) -> FragmentReader:
        """Return the reader of a fragment.  Raises ``UnknownRowError`` unless all of these rows are live."""
        reader = self.by_id.get(fragment_id)
        if reader is None or not reader.is_live(offsets).all():
            raise UnknownRowError("a row id does not exist in this version", file=self.store.uri)
        return reader

    @cached_property
    def _located(self) -> tuple[Ids, Ids]:
        """The stable row ids of all live rows, sorted, and the address of each."""
        ids, where = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for reader in self.readers:
            offsets = reader.live_offsets
            ids.append(reader.ids_of(offsets))
            where.append(addresses(reader.fragment.id, offsets))
        every, at = np.concatenate(ids), np.concatenate(where)
        order = np.argsort(every, kind="stable")
        return every[order], at[order]

    def addresses_of(self, ids: Ids) -> Ids:
        """Convert row ids to addresses; an id that does not exist gets an impossible address."""
        if not self.manifest.has_stable_row_ids:
            return ids
        stable, where = self._located
        if not len(stable):
            return np.full(len(ids), _NOWHERE)
        at = np.minimum(np.searchsorted(stable, ids), len(stable) - 1)
        return np.where(stable[at] == ids, where[at], _NOWHERE)

    def moved(
        self, fragments: Sequence[Fragment], rows: Iterable[tuple[int, Rows]], *, unchanged: bool = False
    ) -> tuple[Fragment, ...]:
        """Give new fragments the stable ids of the rows of this version that they begin with.

        ``rows`` are the fragments and offsets of these rows, in their order in the new fragments; ``unchanged`` rows
        also keep the version of their last update.
        """
        if not self.manifest.has_stable_row_ids:
            return tuple(fragments)
        ids, created, updated = ([np.empty(0, np.uint64)] for _ in range(3))
        for fragment_id, offsets in rows:
            reader = self.by_id[fragment_id]
            ids.append(reader.ids_of(offsets))
            created.append(reader.created[offsets])
            updated += [reader.updated[offsets]] if unchanged else []
        versions = np.concatenate(updated) if unchanged else None
        return carried(fragments, np.concatenate(ids), np.concatenate(created), versions)

    def blobs(self, addresses: Ids, column: str) -> list[BlobLocation | None]:
        """Locate the blobs at these addresses, in this order; ``None`` for a null.

        Raises ``WrongTypeError`` for a column without blobs, and ``UnknownRowError``.
        """
        field = self.view.schema.field(column)
        above = self.view.schema.above(field)
        if not field.is_blob or any(f.logical_type != "struct" for f in above):
            raise WrongTypeError(
                f"{column!r} is not a blob column: its type is {(*above, field)[0].arrow_type}", column=column
            )
        locations: list[BlobLocation | None] = [None] * len(addresses)
        for fragment_id, at, offsets in by_fragment(addresses):
            blobs = self._reader_of_live(fragment_id, offsets).blobs(offsets, field)
            for row, location in zip(at.tolist(), blobs, strict=True):
                locations[row] = location
        return locations

    def live_rows(self, addresses: Ids) -> npt.NDArray[np.bool_]:
        """Whether the row at each address is live."""
        live = np.zeros(len(addresses), bool)
        for fragment_id, at, offsets in by_fragment(addresses):
            reader = self.by_id.get(fragment_id)
            if reader is not None:
                live[at] = reader.is_live(offsets)
        return live

    def indexed_addresses(self, ids: Ids) -> Ids:
        """Convert the row ids of an index to sorted addresses.

        Raises ``CorruptFileError`` for an id that no row can have, or have had.
        """
        self.check_indexed(ids)
        if not self.manifest.has_stable_row_ids:
            return ids
        current = self.addresses_of(ids)
        return np.sort(current[current != _NOWHERE])

    def stable_ids(self, addresses: Ids) -> Ids:
        """Convert the addresses of an index to sorted stable ids."""
        self.check_indexed(addresses, by_address=True)
        ids = [self.by_id[id].ids_of(offsets) for id, _, offsets in by_fragment(addresses) if id in self.by_id]
        return np.unique(np.concatenate([np.empty(0, np.uint64), *ids]))

    def check_indexed(self, ids: Ids, *, by_address: bool = False) -> None:
        """Raise ``CorruptFileError`` for a row id of an index that no row can have, or have had.

        An index may have deleted rows, and rows of removed fragments, but not rows after the end of a fragment.
        """
        if self.manifest.has_stable_row_ids and not by_address:
            return  # ids of removed rows are not recorded elsewhere
        for number, _, offsets in by_fragment(ids):
            reader, last = self.by_id.get(number), int(offsets.max())
            if number > self.manifest.max_fragment_id or (reader is not None and last >= reader.physical_rows):
                raise CorruptFileError(
                    f"an index refers to row {last} of fragment {number}, which does not exist",
                    help="build the index again: pass replace=True",
                    file=self.store.uri,
                    version=self.version,
                )

    # --- for commands ------------------------------------------------------------------------------------------------

    def matching(
        self, filter: Filter | None, readers: Iterable[FragmentReader] | None = None, *, use_index: bool = True
    ) -> Ids:
        """Find the addresses of the live rows of these fragments, by default of all, that match a filter."""
        plan = self.indexed(
            ScanPlan(self.view, LanceSchema(()), filter, row_metadata=(ROW_ADDRESS,), use_index=use_index)
        )
        batches = [b.column(0).to_numpy(zero_copy_only=False) for b in self.scan(plan, readers)]
        return np.concatenate([np.empty(0, np.uint64), *batches])

    def validate(self) -> None:
        """Check fields, fragments, data files, deletion files and the files of indices.

        Pages are not decoded; reading does that.  Raises ``CorruptLogError``, ``CorruptFileError``,
        ``MissingFileError`` or ``DeletionVectorError``.
        """
        manifest, uri = self.manifest, self.store.uri
        ids = manifest.schema.field_ids
        if len(set(ids)) < len(ids):
            raise CorruptLogError("two fields have the same id", file=uri, version=manifest.version)
        for reader in self.readers:
            self.validate_fragment(reader)
        for index in manifest.indices:
            store, folder = self.bases.index_folder(index)
            if not index.may_lack_files and next(iter(store.list(folder)), None) is None:
                raise MissingFileError(f"the files of index {index.name!r} are missing", file=f"{store.uri}/{folder}")

    def validate_fragment(self, reader: FragmentReader) -> None:
        """Check one fragment; see :meth:`validate`."""
        fragment, uri = reader.fragment, self.store.uri
        fields = [id for f in fragment.files for id in f.fields if id != TOMBSTONE]
        if len(set(fields)) < len(fields):
            raise CorruptLogError("two data files of a fragment have the same field", file=uri, fragment=fragment.id)
        offsets = [reader.file(entry).batch_offsets for entry in fragment.files]
        if any(not np.array_equal(o, offsets[0]) for o in offsets):
            raise CorruptLogError("the data files of a fragment have different batches", file=uri, fragment=fragment.id)
        if len(reader.deleted_set) > reader.physical_rows:
            raise CorruptLogError("a fragment has more deleted rows than rows", file=uri, fragment=fragment.id)

    def commit(
        self, operation: Operation, read_version: int | None = None, *, properties: Mapping[str, str] | None = None
    ) -> Snapshot:
        """Commit an operation that was made for ``read_version``, by default this version; return the new snapshot."""
        made_for = self.version if read_version is None else read_version
        begun = transaction.begin(made_for, operation, self.runtime, properties)
        base = self.manifest if begun.read_version == self.version else None
        return self.at(transaction.commit(self.store, begun, self.runtime, base=base))
