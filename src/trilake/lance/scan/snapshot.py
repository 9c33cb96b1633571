"""``Snapshot``: a dataset at one version, with what is open of it.

Rows are named in three ways: by rank, which counts the rows that live in the order of the fragments; by address, which
is the fragment's id and the offset in it; and by row id, which is the address, unless the dataset keeps ids of its own
that stay when rows move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
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
from trilake.lance.scan.blob_bytes import BlobPlace
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, FragmentReader, Ids, Rows, addresses, split
from trilake.lance.scan.id_conditions import asked_ids, condition_schema
from trilake.lance.scan.open_indices import OpenIndices
from trilake.lance.scan.scalar_search import IndexQuery
from trilake.lance.scan.scan import ScanPlan
from trilake.lance.scan.sql_text import filter_of
from trilake.lance.versions import transaction
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.effects import carried
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.operations import Operation
from trilake.storage.base import Store
from trilake.table.table import FilterLike

#: The address of no row.
_NOWHERE = np.uint64(2**64 - 1)


class Snapshot:
    """The rows of one version.  May be used by several threads."""

    def __init__(self, store: Store, manifest: Manifest, runtime: Runtime, index_cache_size: int | None = None) -> None:
        #: What commits on this version take from the world.
        self.runtime = runtime
        self.store, self.manifest = store, manifest
        self.view = View(manifest.schema)
        #: Where its files are.
        self.bases = Bases(store, manifest.base_paths)
        #: Indices that are open, of this and other versions.
        self.indices = OpenIndices(store, index_cache_size)
        self._answered: tuple[Filter, dict[int, Rows] | None, bool] | None = None

    @classmethod
    def open(
        cls, store: Store, runtime: Runtime, version: int | None = None, index_cache_size: int | None = None
    ) -> Snapshot:
        """A version of the dataset at the root of ``store``, or its newest.

        ``index_cache_size`` is that of :class:`~trilake.lance.scan.open_indices.OpenIndices`.
        Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``CorruptLogError`` or ``UnsupportedProtocolError``.
        """
        return cls(store, transaction.load(store, version), runtime, index_cache_size)

    def at(self, manifest: Manifest) -> Snapshot:
        """The snapshot of another version, which shares the readers of fragments that both have."""
        other = Snapshot(self.store, manifest, self.runtime)
        other.indices = self.indices
        if manifest.schema == self.manifest.schema and not manifest.schema.dictionaries:
            other.view = self.view
            readers = {reader.fragment: reader for reader in self.readers}
            shared = (copy(readers[f]) if f in readers else other.reader(f) for f in manifest.fragments)
            other.__dict__["readers"] = other._ranked(shared)
        return other

    @property
    def version(self) -> int:
        """Its version."""
        return self.manifest.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.view.arrow

    def reader(self, fragment: Fragment) -> FragmentReader:
        """A reader for a fragment of this version, or for one like it."""
        return FragmentReader(self.store, fragment, self.manifest.schema, self.bases)

    @cached_property
    def readers(self) -> tuple[FragmentReader, ...]:
        """A reader for each fragment, in order."""
        return self._ranked(map(self.reader, self.manifest.fragments))

    def _ranked(self, readers: Iterable[FragmentReader]) -> tuple[FragmentReader, ...]:
        ranked = tuple(readers)
        for i, reader in enumerate(ranked):
            reader.first_rank = partial(self._first_rank, i)
        return ranked

    def _first_rank(self, i: int) -> int:
        return int(self.rank_offsets[i])

    @cached_property
    def _by_id(self) -> dict[int, FragmentReader]:
        return {reader.fragment.id: reader for reader in self.readers}

    def reader_of(self, fragment_id: int) -> FragmentReader | None:
        """The reader of the fragment with an id."""
        return self._by_id.get(fragment_id)

    # --- scanning ----------------------------------------------------------------------------------------------------

    def filter(self, filter: FilterLike | Filter | None) -> Filter | None:
        """A condition bound to the columns, and to ``_rowid`` and ``_rowaddr``.  Raises ``FilterError``."""
        if filter is None or isinstance(filter, Filter):
            return filter
        return filter_of(filter, condition_schema(self.schema, filter))

    def names_ids(self, filter: Filter | None) -> bool:
        """Whether a condition is one of row ids, which are those of this version."""
        return filter is not None and bool(asked_ids(filter, self.schema))

    @cached_property
    def rows_view(self) -> View:
        """The columns with blobs as bytes, as rows are written again."""
        return replace(self.view, blob_bytes=True)

    def plan(
        self,
        columns: Sequence[str] | None = None,
        filter: FilterLike | Filter | None = None,
        *,
        view: View | None = None,
        **more: Any,
    ) -> ScanPlan:
        """A scan; further arguments are those of :class:`~trilake.lance.scan.scan.ScanPlan`."""
        view = view or self.view
        return self.indexed(ScanPlan(view, view.columns(columns), self.filter(filter), **more))

    def index_query(self, filter: Filter | None) -> IndexQuery | None:
        """What scalar indices can say about a filter."""
        return scalar_search.index_query(filter, self.manifest, self.view.schema, self.indices)

    def candidates(self, filter: Filter) -> tuple[dict[int, Rows] | None, bool]:
        """For each fragment that indices cover the rows that may match, and whether these do; ``None`` to scan all."""
        query = self.index_query(filter)
        found = scalar_search.candidates(query, self.indexed_addresses, int(self.rank_offsets[-1]))
        return found, query is not None and query.certain

    def indexed(self, plan: ScanPlan) -> ScanPlan:
        """A scan that looks only at the rows which indices have found, where they help."""
        if plan.filter is None or not plan.use_index or plan.include_deleted:
            return plan
        if not self.manifest.indices and not self.names_ids(plan.filter):
            return plan
        last = self._answered
        if last is None or last[0] is not plan.filter:
            # One answer is kept: commands ask fragment by fragment.
            last = self._answered = plan.filter, *self.candidates(plan.filter)
        return plan if last[1] is None else replace(plan, candidates=last[1], certain=last[2])

    def scan(self, plan: ScanPlan, readers: Iterable[FragmentReader] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a scan."""
        return scan.scan(plan, self.readers if readers is None else readers)

    def count(self, filter: FilterLike | None = None) -> int:
        """Number of rows for which ``filter`` is true."""
        return scan.count(self.plan([], filter) if filter is not None else self.plan(), self.readers)

    # --- single rows -------------------------------------------------------------------------------------------------

    @cached_property
    def rank_offsets(self) -> Rows:
        """The rank at which each fragment begins, and the number of rows at the end."""
        return np.cumsum([0, *(reader.num_rows for reader in self.readers)], dtype=np.int64)

    def take(self, ranks: npt.ArrayLike, columns: LanceSchema, *, places: Sequence[str] = ()) -> pa.Table:
        """The rows at some ranks, in the order asked for.  Raises ``UnknownRowError`` for one out of range."""
        wanted = np.asarray(ranks, np.int64)
        at = self._fragments_of(wanted)

        def offsets(i: int, of_fragment: npt.NDArray[np.bool_] | slice) -> Rows:
            return self.readers[i].offsets_of_live(wanted[of_fragment] - self.rank_offsets[i])

        return self._gathered(at, offsets, columns, places)

    def _fragments_of(self, ranks: Rows) -> Rows:
        """The place of the fragment of each rank among the readers."""
        total = int(self.rank_offsets[-1])
        if len(ranks) and (ranks.min() < 0 or ranks.max() >= total):
            bad = ranks[(ranks < 0) | (ranks >= total)][0]
            raise UnknownRowError(f"row {bad} is beyond the dataset", help=f"it has {total} rows", file=self.store.uri)
        return np.searchsorted(self.rank_offsets, ranks, "right") - 1

    def take_rows(self, ids: npt.ArrayLike, columns: LanceSchema, *, places: Sequence[str] = ()) -> pa.Table:
        """The rows with some row ids, in the order asked for.

        Raises ``UnknownRowError`` for one that is not there, or is deleted.
        """
        return self.take_addresses(self.addresses_of(np.asarray(ids, np.uint64)), columns, places=places)

    def take_addresses(self, addresses: Ids, columns: LanceSchema, *, places: Sequence[str] = ()) -> pa.Table:
        """The rows at some addresses; errors as :meth:`take_rows`."""
        of, low = split(addresses)
        known = {reader.fragment.id: i for i, reader in enumerate(self.readers)}
        unique, inverse = np.unique(of, return_inverse=True)
        at = np.array([known.get(int(f), -1) for f in unique], np.int64)[inverse] if len(unique) else of

        def offsets(i: int, of_fragment: npt.NDArray[np.bool_] | slice) -> Rows:
            offsets = low[of_fragment]
            if i < 0 or not self.readers[i].is_live(offsets).all():
                raise UnknownRowError("a row id names a row that is not there", file=self.store.uri)
            return offsets

        return self._gathered(at, offsets, columns, places)

    @cached_property
    def _located(self) -> tuple[Ids, Ids]:
        """The stable row ids of all rows that live, sorted, and the address of each."""
        ids, where = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for reader in self.readers:
            offsets = reader.offsets_of_live(np.arange(reader.num_rows, dtype=np.int64))
            ids.append(reader.ids_of(offsets))
            where.append(addresses(reader.fragment.id, offsets))
        every, at = np.concatenate(ids), np.concatenate(where)
        order = np.argsort(every, kind="stable")
        return every[order], at[order]

    def addresses_of(self, ids: Ids) -> Ids:
        """The address of each row id; that of no row for one that is not there."""
        if not self.manifest.has_stable_row_ids:
            return ids
        known, where = self._located
        if not len(known):
            return np.full(len(ids), _NOWHERE)
        at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return np.where(known[at] == ids, where[at], _NOWHERE)

    def moved(self, fragments: Sequence[Fragment], rows: Iterable[tuple[int, Rows]]) -> tuple[Fragment, ...]:
        """New fragments that begin with some rows of this version, which keep their stable ids.

        ``rows`` are the fragment and the offsets of these rows, in the order in which they are there.
        """
        if not self.manifest.has_stable_row_ids:
            return tuple(fragments)
        ids, created = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for fragment_id, offsets in rows:
            reader = self._by_id[fragment_id]
            ids.append(reader.ids_of(offsets))
            created.append(reader.created[offsets])
        return carried(fragments, np.concatenate(ids), np.concatenate(created))

    def blobs(self, addresses: Ids, column: str) -> list[BlobPlace | None]:
        """Where the bytes of blobs are at some addresses, in the order asked for; ``None`` for a null.

        Raises ``WrongTypeError`` for a column of anything else, and ``UnknownRowError``.
        """
        field = self.view.schema.field(column)
        above = self.view.schema.above(field)
        if not field.is_blob or any(f.logical_type != "struct" for f in above):
            raise WrongTypeError(
                f"{column!r} is not a blob column, but of {(*above, field)[0].arrow_type}", column=column
            )
        of, offsets = split(addresses)
        places: list[BlobPlace | None] = [None] * len(addresses)
        for fragment_id in np.unique(of).tolist():
            reader, rows = self._by_id.get(fragment_id), np.flatnonzero(of == fragment_id)
            if reader is None or not reader.is_live(offsets[rows]).all():
                raise UnknownRowError("a row id names a row that is not there", file=self.store.uri)
            for row, place in zip(rows.tolist(), reader.blobs(offsets[rows], field), strict=True):
                places[row] = place
        return places

    def addresses_at(self, ranks: Rows) -> Ids:
        """The addresses of the rows at some ranks.  Raises ``UnknownRowError`` for one out of range."""
        at = self._fragments_of(ranks)
        found = np.empty(len(ranks), np.uint64)
        for i in np.unique(at).tolist():
            rows, reader = at == i, self.readers[i]
            found[rows] = addresses(reader.fragment.id, reader.offsets_of_live(ranks[rows] - self.rank_offsets[i]))
        return found

    def live_rows(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """For each row id whether it names a row that is there and lives."""
        live = np.zeros(len(ids), bool)
        of, offsets = split(self.addresses_of(ids))
        for fragment_id in np.unique(of):
            reader = self._by_id.get(int(fragment_id))
            if reader is not None:
                of_fragment = of == fragment_id
                live[of_fragment] = reader.is_live(offsets[of_fragment])
        return live

    def indexed_addresses(self, ids: Ids) -> Ids:
        """The sorted addresses of row ids that an index has.

        Raises ``CorruptFileError`` where one of them cannot be, or have been, that of a row.
        """
        self.check_indexed(ids)
        if not self.manifest.has_stable_row_ids:
            return ids
        found = self.addresses_of(ids)
        return np.sort(found[found != _NOWHERE])

    def check_indexed(self, ids: Ids) -> None:
        """Raise ``CorruptFileError`` unless all row ids that an index has can be, or have been, those of rows.

        An index may know fragments that are gone, and rows that are deleted, but no row behind the end of a fragment.
        """
        if self.manifest.has_stable_row_ids:
            return  # ids of rows that are gone are known to nothing else
        of = ids >> np.uint64(32)
        for number in np.unique(of).tolist():
            reader = self._by_id.get(number)
            last = int((ids[of == number] & np.uint64(0xFFFFFFFF)).max())
            if number > self.manifest.max_fragment_id or (reader is not None and last >= reader.physical_rows):
                raise CorruptFileError(
                    f"an index names row {last} of fragment {number}, which there is not",
                    help="build the index again: pass replace=True",
                    file=self.store.uri,
                    version=self.version,
                )

    def _gathered(
        self,
        at: Rows,
        offsets: Callable[[int, npt.NDArray[np.bool_] | slice], Rows],
        columns: LanceSchema,
        places: Sequence[str],
    ) -> pa.Table:
        """Rows of several fragments, put into the order of ``at``, which says the fragment of each."""
        plan = ScanPlan(self.view, columns, places=tuple(places))
        stored = self.view.stored(columns)
        fragments = np.unique(at).tolist()

        def rows_of(i: int, of_fragment: npt.NDArray[np.bool_] | slice) -> pa.RecordBatch:
            rows = offsets(i, of_fragment)
            batch = scan.one_batch(self.readers[i].take(rows, stored))
            return scan.finish(plan, self.readers[i], batch, rows)

        if not fragments:
            return pa.Table.from_batches([], plan.schema)
        if len(fragments) == 1:
            return pa.Table.from_batches([rows_of(fragments[0], slice(None))])
        chosen = [at == i for i in fragments]
        tables = self.store.at_once([partial(rows_of, *one) for one in zip(fragments, chosen, strict=True)])
        masks = [np.flatnonzero(mask) for mask in chosen]
        table = pa.Table.from_batches(tables, schema=tables[0].schema)
        order = np.empty(len(at), np.int64)
        order[np.concatenate(masks)] = np.arange(len(at))
        return scan.rows_at(table, pa.array(order)).combine_chunks()

    # --- what commands need ------------------------------------------------------------------------------------------

    def matching(self, filter: Filter | None, reader: FragmentReader, *, use_index: bool = True) -> Rows:
        """The offsets of a fragment's live rows for which ``filter`` is true."""
        plan = self.indexed(ScanPlan(self.view, LanceSchema(()), filter, places=(ROW_ADDRESS,), use_index=use_index))
        found = [b.column(0).to_numpy(zero_copy_only=False) for b in self.scan(plan, [reader])]
        return split(np.concatenate([np.empty(0, np.uint64), *found]))[1]

    def validate(self) -> None:
        """Check fields, fragments, data files, deletion files and the files of indices: all are there and as they must.

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
            if not index.is_note and next(iter(self.store.list(f"_indices/{index.uuid}")), None) is None:
                raise MissingFileError(
                    f"the files of index {index.name!r} are not there", file=f"{uri}/_indices/{index.uuid}"
                )

    def validate_fragment(self, reader: FragmentReader) -> None:
        """Check one fragment, as :meth:`validate` does all."""
        fragment, uri = reader.fragment, self.store.uri
        fields = [id for f in fragment.files for id in f.fields if id != TOMBSTONE]
        if len(set(fields)) < len(fields):
            raise CorruptLogError("two data files of a fragment have the same field", file=uri, fragment=fragment.id)
        offsets = [reader.file(entry).batch_offsets for entry in fragment.files]
        if any(not np.array_equal(o, offsets[0]) for o in offsets):
            raise CorruptLogError(
                "the data files of a fragment are cut into different batches", file=uri, fragment=fragment.id
            )
        if len(reader.deleted_set) > reader.physical_rows:
            raise CorruptLogError("more rows are deleted than there are", file=uri, fragment=fragment.id)

    def commit(self, operation: Operation, read_version: int | None = None) -> Snapshot:
        """The version that an operation makes, which was made for this version or ``read_version``.

        Raises as :func:`trilake.lance.versions.transaction.commit` does.
        """
        begun = transaction.begin(self.version if read_version is None else read_version, operation, self.runtime)
        base = self.manifest if begun.read_version == self.version else None
        return self.at(transaction.commit(self.store, begun, self.runtime, base=base))
