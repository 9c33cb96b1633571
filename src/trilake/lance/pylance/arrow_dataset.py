"""``ArrowDataset``: a version of a dataset as one of Arrow's datasets, which is scanned and taken from."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import input_rows
from trilake.lance.commands.fragment_writer import NullPolicy
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.fragment import LanceFragment
from trilake.lance.fragment_reads import check_head
from trilake.lance.pylance.scan_options import OF_ROWS, check_names
from trilake.lance.pylance.scanner import LanceScanner, ScannerBuilder
from trilake.lance.scan.blob_bytes import BlobFile, read_parts
from trilake.lance.scan.ordering import ColumnOrdering
from trilake.lance.scan.projection import ColumnsLike, Selection
from trilake.lance.scan.skipping import candidate_groups
from trilake.lance.scan.snapshot import Snapshot
from trilake.table.table import FilterLike


class ArrowDataset(pa.dataset.Dataset):  # type: ignore[misc]
    """Reads of a dataset at one version, by the names that users of Arrow and of the format know."""

    snapshot: Snapshot
    nulls: NullPolicy
    _uri: str
    _options: dict[str, str]
    #: What scans do unless they are told otherwise.
    _scan_options: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(cls, snapshot: Snapshot, uri: str | os.PathLike[str], nulls: NullPolicy = "error") -> Self:
        """A dataset that is open already.

        Parameters
        ----------
        snapshot: its version.
        uri: where it is.
        nulls: what becomes of nulls that the format cannot hold.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-of")
        >>> type(made).of(made.snapshot, made.uri).count_rows()
        3
        """
        dataset = cls.__new__(cls)
        dataset._uri, dataset._options, dataset.nulls = os.fspath(uri), dict(snapshot.store.options), nulls
        dataset.snapshot = snapshot
        return dataset

    def _beside(self, snapshot: Snapshot) -> Self:
        """The dataset at another version, or with other caches, as another object."""
        other = self.of(snapshot, self._uri, self.nulls)
        other._scan_options = self._scan_options
        return other

    def moved(self, snapshot: Snapshot) -> None:
        """Show another version, that of ``snapshot``, from now on.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-moved")
        >>> made.moved(made.snapshot)
        >>> made.version
        1
        """
        self.snapshot = snapshot

    def _set_scan_options(self, options: Mapping[str, Any] | None) -> None:
        """Scan by these options from now on, unless a scan says another value.  Raises as :meth:`scanner` does."""
        if options:
            checked = dict(options)
            ScannerBuilder(self).apply_defaults(checked)
            self._scan_options = MappingProxyType(checked)

    def __len__(self) -> int:
        return self.count_rows()

    @property
    def uri(self) -> str:
        """The path or URI of the dataset."""
        return self._uri

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        return self.snapshot.schema

    # --- scans -------------------------------------------------------------------------------------------------------

    def scanner(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        fragments: Iterable[LanceFragment] | None = None,
        *,
        prefilter: bool | None = None,
        with_row_id: bool | None = None,
        with_row_address: bool | None = None,
        use_stats: bool | None = None,
        use_scalar_index: bool | None = None,
        include_deleted_rows: bool | None = None,
        strict_batch_size: bool | None = None,
        order_by: Iterable[str | ColumnOrdering] | None = None,
        **arrow: Any,
    ) -> LanceScanner:
        """Describe a scan; what is not said here is what the dataset was opened with, see ``default_scan_options``.

        Parameters
        ----------
        columns: to return, all by default; ``"struct.field"`` is a part of one.  ``_rowid``, ``_rowaddr``,
            ``_rowoffset`` and, where ``nearest`` is given, ``_distance`` may be among them.
            A mapping has SQL expressions by the name of the
            column that each makes; they may name ``_rowid`` and ``_distance``.
        filter: SQL text, or a pyarrow expression; it may name ``_rowid``, which finds such rows at once.
        limit, offset: rows to return at most, and rows to pass over first.
        nearest: ``{"column", "q", "k", "metric", "nprobes", "refine_factor", "use_index", "distance_range"}``: the rows
            nearest to the vector ``q``, with their distance in the column ``_distance``; ``distance_range`` is the
            least distance and the one that all stay below, ``None`` for no bound.  Where ``q`` is several vectors, the
            rows nearest to each, with its place in the column ``query_index``.  ``nprobes``
            partitions of an index are looked into; without it six, or ``minimum_nprobes`` if that is more, and then
            further ones until ``k`` rows are found, at most ``maximum_nprobes``.
        batch_size: rows of a batch at most.
        batch_readahead, fragment_readahead, scan_in_order: hints; rows always come in order.
        fragments: only these, in this order.
        prefilter: with ``nearest``, whether the filter comes first.
        with_row_id, with_row_address: return a column ``_rowid`` or ``_rowaddr`` too; they are the same unless the
            dataset keeps stable row ids.
        use_stats: whether statistics may skip row groups.
        use_scalar_index: whether scalar indices may be asked which rows match the filter.
        include_deleted_rows: return deleted rows too, as far as their files still have them; their ``_rowid``, which
            must be asked for, is null.
        strict_batch_size: whether all batches but the last have ``batch_size`` rows, 8,192 where it is not said.
        order_by: names of columns, or :class:`~trilake.lance.scan.ordering.ColumnOrdering`, in whose order the rows
            come; the limit counts in this order.
        arrow: ``fast_search``, to leave out rows that the index of the search, or of the filter, does not cover;
            ``batch_size_bytes``, the bytes of a batch at most; and options of Arrow's scanners and hints of other
            implementations, such as ``use_threads``, which change nothing.

        Raises ``UnknownColumnError`` for a column that is not there, ``FilterError`` for a filter that does not fit the
        dataset, ``InvalidArgumentError`` for other values that cannot be.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-scanner")
        >>> made.scanner(["s"], "id > 1", limit=1, with_row_id=True).to_table().to_pylist()
        [{'s': 'y', '_rowid': 1}]

        The rows nearest to a vector:

        >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array([0, 0, 3, 4, 6, 8], pa.float32()), 2)
        >>> points = write_dataset(pa.table({"id": [1, 2, 3], "v": vectors}), "memory://doc-lance-nearest")
        >>> points.scanner(["id"], nearest={"column": "v", "q": [0, 0], "k": 2}).to_table()["id"].to_pylist()
        [1, 2]
        """
        said = {
            "columns": columns,
            "filter": filter,
            "limit": limit,
            "offset": offset,
            "nearest": nearest,
            "batch_size": batch_size,
            "batch_readahead": batch_readahead,
            "fragment_readahead": fragment_readahead,
            "scan_in_order": scan_in_order,
            "fragments": fragments,
            "prefilter": prefilter,
            "with_row_id": with_row_id,
            "with_row_address": with_row_address,
            "use_stats": use_stats,
            "use_scalar_index": use_scalar_index,
            "include_deleted_rows": include_deleted_rows,
            "strict_batch_size": strict_batch_size,
            "order_by": order_by,
        }
        options = {**self._scan_options, **{n: v for n, v in said.items() if v is not None}, **arrow}
        return ScannerBuilder(self).apply_defaults(options).to_scanner()

    def to_table(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        **more: Any,
    ) -> pa.Table:
        """The rows as a table.  Parameters are those of :meth:`scanner`, ``more`` among them; it raises as that does.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-to-table")
        >>> made.to_table(["s"], filter="id >= 2").to_pydict()
        {'s': ['y', 'z']}
        """
        return self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            batch_readahead,
            fragment_readahead,
            scan_in_order,
            **more,
        ).to_table()

    def to_batches(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        **more: Any,
    ) -> Iterator[pa.RecordBatch]:
        """The rows as batches.  Parameters are those of :meth:`scanner`, ``more`` among them; it raises as that does.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-to-batches")
        >>> [batch.num_rows for batch in made.to_batches(batch_size=2)]
        [2, 1]
        """
        return self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            batch_readahead,
            fragment_readahead,
            scan_in_order,
            **more,
        ).to_batches()

    def count_rows(self, filter: FilterLike | None = None, **more: Any) -> int:
        """Number of rows for which ``filter`` is true; without one, from the manifest alone.

        What scans do by default is left out of account where no other option is given; ``more`` are those of
        :meth:`scanner`. Raises ``FilterError`` for a filter that does not fit the dataset.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-count")
        >>> made.count_rows(), made.count_rows("a > 1")
        (3, 2)
        """
        if not more:
            return self.snapshot.count(filter)
        return self.scanner(filter=filter, **more).count_rows()

    def head(self, num_rows: int, **more: Any) -> pa.Table:
        """The first ``num_rows`` rows; ``more`` are arguments of :meth:`scanner`, without a limit.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-head")
        >>> made.head(2)["a"].to_pylist()
        [1, 2]
        """
        check_head(more)
        return self.to_table(**{**more, "limit": num_rows})

    def take(self, indices: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any) -> pa.Table:
        """The rows at some places among those that live, in the order asked for.  Only their bytes are read.

        Parameters
        ----------
        indices: the places, from 0 on.
        columns: to return; all by default.
        more: ``with_row_id`` and ``with_row_address``, and hints of other implementations.

        Raises ``UnknownRowError`` for a place behind the last row.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-take")
        >>> made.take([2, 0])["a"].to_pylist()
        [3, 1]
        """
        chosen = self._selection(columns, more)
        ranks = input_rows.numbers(indices)
        return chosen.show(self.snapshot.take(ranks, chosen.columns, places=chosen.places))

    def _selection(self, columns: ColumnsLike | None, options: Mapping[str, Any]) -> Selection:
        check_names(options, OF_ROWS)
        ids, addresses = (flag(n, options.get(n, False)) for n in ("with_row_id", "with_row_address"))
        return Selection.of(self.snapshot.view, columns, with_row_id=ids, with_row_address=addresses)

    def _take_rows(
        self, row_ids: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any
    ) -> pa.Table:
        """The rows with some row ids, in the order asked for."""
        chosen = self._selection(columns, more)
        ids = input_rows.numbers(row_ids, np.uint64)
        return chosen.show(self.snapshot.take_rows(ids, chosen.columns, places=chosen.places))

    def take_blobs(
        self,
        blob_column: str,
        ids: npt.ArrayLike | pa.Array | None = None,
        addresses: npt.ArrayLike | pa.Array | None = None,
        indices: npt.ArrayLike | pa.Array | None = None,
        *,
        buffer_size: int = 512 << 10,
    ) -> list[BlobFile | None]:
        """Blobs as files to read, whose bytes are fetched when they are read; ``None`` for a null.

        Parameters
        ----------
        blob_column: the column.
        ids, addresses, indices: the rows, by row id, by address, or by place; one of these is given.
        buffer_size: bytes that are fetched at least where a file is read on; 0 for no more than is asked for.

        Raises ``InvalidArgumentError`` where not one of the three is given, ``WrongTypeError`` for a column of
        anything else, and ``UnknownRowError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        >>> table = pa.table([pa.array([b"abc", None], pa.large_binary())], schema=pa.schema([blob]))
        >>> made = write_dataset(table, "memory://doc-lance-blobs", data_storage_version="2.1")
        >>> [None if file is None else file.read() for file in made.take_blobs("b", indices=[0, 1])]
        [b'abc', None]
        """
        places = self.snapshot.blobs(self._selected(ids, addresses, indices), blob_column)
        size = count("buffer_size", buffer_size, other_type=WrongTypeError)
        return [None if place is None else BlobFile(place, size) for place in places]

    def read_blobs(
        self,
        blob_column: str,
        ids: npt.ArrayLike | pa.Array | None = None,
        addresses: npt.ArrayLike | pa.Array | None = None,
        indices: npt.ArrayLike | pa.Array | None = None,
        **hints: Any,
    ) -> list[tuple[int, bytes | None]]:
        """The bytes of blobs, each with the address of its row; parameters are those of :meth:`take_blobs`.

        ``hints`` of other implementations change nothing.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        >>> table = pa.table([pa.array([b"abc", b"de"], pa.large_binary())], schema=pa.schema([blob]))
        >>> made = write_dataset(table, "memory://doc-lance-read-blobs", data_storage_version="2.1")
        >>> made.read_blobs("b", indices=[1])
        [(1, b'de')]
        """
        del hints
        rows = self._selected(ids, addresses, indices)
        places = self.snapshot.blobs(rows, blob_column)
        data = [None if place is None else place.read(0, place.length) for place in places]
        return list(zip(rows.tolist(), data, strict=True))

    def read_blob_ranges(
        self, blob_column: str, requests: Sequence[tuple[int, int, int]], *, selector: str, **hints: Any
    ) -> list[tuple[int, int, bytes | None]]:
        """Parts of blobs: for each request its number, the address of its row, and the bytes, ``None`` of a null.

        Parameters
        ----------
        blob_column: the column.
        requests: of each the row, the offset in its blob, and the number of bytes.
        selector: what rows are named by: ``"ids"``, ``"addresses"`` or ``"indices"``.
        hints: of other implementations, which change nothing.

        Raises ``InvalidArgumentError`` for bytes that are not in the blob, and as :meth:`take_blobs` does.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        >>> table = pa.table([pa.array([b"abc", b"de"], pa.large_binary())], schema=pa.schema([blob]))
        >>> made = write_dataset(table, "memory://doc-lance-blob-ranges")
        >>> made.read_blob_ranges("b", [(1, 1, 1), (0, 0, 2)], selector="indices")
        [(0, 1, b'e'), (1, 0, b'ab')]
        """
        del hints
        if selector not in ("ids", "addresses", "indices"):
            raise InvalidArgumentError(f"selector must be one of ids, addresses and indices, got {selector!r}")
        rows = self._selected(
            **{"ids": None, "addresses": None, "indices": None, selector: [r for r, _, _ in requests]}
        )
        places = self.snapshot.blobs(rows, blob_column)
        data = read_parts(places, [(offset, length) for _, offset, length in requests])
        return list(zip(range(len(data)), rows.tolist(), data, strict=True))

    def _selected(self, ids: Any, addresses: Any, indices: Any) -> npt.NDArray[np.uint64]:
        """The addresses of rows that are named in one of three ways."""
        given = [one for one in (ids, addresses, indices) if one is not None]
        if len(given) != 1:
            raise InvalidArgumentError(
                f"Exactly one of ids, indices, or addresses must be specified, got {len(given)}",
                help="say in one of these ways which rows",
            )
        if indices is not None:
            return self.snapshot.addresses_at(input_rows.numbers(indices))
        if addresses is not None:
            return input_rows.numbers(addresses, np.uint64)
        return self.snapshot.addresses_of(input_rows.numbers(ids, np.uint64))

    def sample(
        self, num_rows: int, columns: ColumnsLike | None = None, randomize_order: bool = True, **more: Any
    ) -> pa.Table:
        """Rows chosen at random, each at most once.

        Parameters
        ----------
        num_rows: how many.
        columns: to return; all by default.
        randomize_order: whether they come in an order of chance, or in that of the dataset.
        more: as :meth:`take`.

        Raises ``InvalidArgumentError`` for more rows than there are.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sample")
        >>> made.sample(2).num_rows, made.sample(3, randomize_order=False)["a"].to_pylist()
        (2, [1, 2, 3])
        """
        flag("randomize_order", randomize_order)
        total = self.count_rows()
        if not 0 <= num_rows <= total:
            raise InvalidArgumentError(f"{num_rows} of {total} rows cannot be chosen", file=self._uri)
        chosen = random.sample(range(total), num_rows)
        return self.take(chosen if randomize_order else sorted(chosen), columns, **more)

    def get_fragments(self, filter: pc.Expression | None = None) -> list[LanceFragment]:
        """All fragments; with a ``filter`` of pyarrow, those that can hold a matching row.

        Files of the first format have statistics that say so; those of 2.x have none.

        >>> import pyarrow as pa, pyarrow.compute as pc
        >>> from trilake.lance import write_dataset
        >>> rows = pa.table({"a": [1, 2, 3]})
        >>> made = write_dataset(rows, "memory://doc-lance-fragments", data_storage_version="legacy")
        >>> made.insert(pa.table({"a": [10]}))
        >>> [f.fragment_id for f in made.get_fragments()], len(made.get_fragments(pc.field("a") > 5))
        ([0, 1], 1)
        """
        readers = self.snapshot.readers
        if filter is not None:
            bound = self.snapshot.filter(filter)
            assert bound is not None
            readers = tuple(r for r in readers if candidate_groups(r, bound, self.snapshot.view))
        return [LanceFragment(self, None, fragment=r) for r in readers]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with the id ``fragment_id``, if there is one.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-fragment")
        >>> made.get_fragment(0).count_rows(), made.get_fragment(7)
        (3, None)
        """
        reader = self.snapshot.reader_of(fragment_id)
        return None if reader is None else LanceFragment(self, None, fragment=reader)

    # --- what Arrow's datasets do besides, most of it in memory ------------------------------------------------------

    @property
    def partition_expression(self) -> pc.Expression:
        """True: Lance has no partitions."""
        return pc.scalar(True)

    def replace_schema(self, schema: pa.Schema) -> pa.dataset.Dataset:
        """The rows under another ``schema``, in memory.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-replace-schema")
        >>> made.replace_schema(pa.schema([("a", pa.string())])).to_table()["a"].to_pylist()
        ['1', '2', '3']
        """
        return pa.dataset.dataset(self.to_table(columns=schema.names).cast(schema))

    def filter(self, expression: pc.Expression) -> pa.dataset.Dataset:
        """The rows for which ``expression``, one of pyarrow, is true, in memory.

        >>> import pyarrow as pa, pyarrow.compute as pc
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-filter")
        >>> made.filter(pc.field("a") > 1).count_rows()
        2
        """
        return pa.dataset.dataset(self.to_table(filter=expression))

    def sort_by(self, sorting: Any, **more: Any) -> pa.dataset.Dataset:
        """The rows in another order, in memory; ``sorting`` and ``more`` are those of Arrow's ``Table.sort_by``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sort-by")
        >>> made.sort_by([("a", "descending")]).to_table()["a"].to_pylist()
        [3, 2, 1]
        """
        return pa.dataset.dataset(self.to_table().sort_by(sorting, **more))

    def join(self, right_dataset: Any, keys: Any, *args: Any, **more: Any) -> pa.dataset.Dataset:
        """The rows joined with those of another dataset or table, ``right_dataset``, in memory.

        ``keys``, ``args`` and ``more`` are those of Arrow's ``Table.join``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-join")
        >>> made.join(pa.table({"a": [1], "s": ["one"]}), "a", join_type="inner").to_table().to_pylist()
        [{'a': 1, 's': 'one'}]
        """
        right = right_dataset.to_table() if isinstance(right_dataset, pa.dataset.Dataset) else right_dataset
        return pa.dataset.dataset(self.to_table().join(right, keys, *args, **more))

    def join_asof(self, right_dataset: Any, on: str, by: Any, tolerance: int, **more: Any) -> pa.dataset.Dataset:
        """The rows joined with the nearest ones of another dataset or table, ``right_dataset``, in memory.

        ``on``, ``by``, ``tolerance`` and ``more`` are those of Arrow's ``Table.join_asof``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"at": [1, 5], "k": ["x", "x"]}), "memory://doc-lance-join-asof")
        >>> right = pa.table({"at": [2], "k": ["x"], "n": [20]})
        >>> made.join_asof(right, "at", "k", tolerance=2).to_table()["n"].to_pylist()
        [20, None]
        """
        right = right_dataset.to_table() if isinstance(right_dataset, pa.dataset.Dataset) else right_dataset
        return pa.dataset.dataset(self.to_table().join_asof(right, on, by, tolerance, **more))
