"""``ArrowDataset``: a version of a Lance dataset as a ``pyarrow.dataset.Dataset``."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

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
from trilake.lance.pylance.scan_options import OF_ROWS, check_names, scan_options
from trilake.lance.pylance.scanner import LanceScanner, ScannerBuilder
from trilake.lance.scan.blob_bytes import BlobFile, read_parts
from trilake.lance.scan.fragment_reader import PLACES
from trilake.lance.scan.ordering import ColumnOrdering
from trilake.lance.scan.projection import ColumnsLike, Selection
from trilake.lance.scan.skipping import candidate_groups
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.schema import LanceSchema
from trilake.table.table import FilterLike

if TYPE_CHECKING:
    import pandas


class ArrowDataset(pa.dataset.Dataset):  # type: ignore[misc]
    """Read a dataset at one version, with the methods of pylance and pyarrow."""

    snapshot: Snapshot
    nulls: NullPolicy
    _uri: str
    _options: dict[str, str]
    #: Default options of scans.
    _scan_options: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(cls, snapshot: Snapshot, uri: str | os.PathLike[str], nulls: NullPolicy = "error") -> Self:
        """Wrap a snapshot.

        Parameters
        ----------
        snapshot: the version to read.
        uri: path or URI of the dataset.
        nulls: how to write nulls that the file format cannot store.

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
        """Return a new object for another version or with other caches."""
        other = self.of(snapshot, self._uri, self.nulls)
        other._scan_options = self._scan_options
        return other

    def moved(self, snapshot: Snapshot) -> None:
        """Switch this object to the version of ``snapshot``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-moved")
        >>> made.moved(made.snapshot)
        >>> made.version
        1
        """
        self.snapshot = snapshot

    def _set_scan_options(self, options: Mapping[str, Any] | None) -> None:
        """Set default scan options, which the options of a scan override."""
        if options:
            checked = dict(options)
            ScannerBuilder(self).apply_defaults(checked)
            self._scan_options = MappingProxyType(checked)

    def __len__(self) -> int:
        return self.count_rows()

    @property
    def uri(self) -> str:
        """Path or URI of the dataset."""
        return self._uri

    @property
    def schema(self) -> pa.Schema:
        """Schema of the dataset; with ``default_scan_options``, schema of a scan."""
        return self.scanner().projected_schema if self._scan_options else self.snapshot.schema

    # --- scans -------------------------------------------------------------------------------------------------------

    def fragment_ids(self) -> set[int]:
        """Return the ids of all fragments.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-fragment-ids")
        >>> made.fragment_ids()
        {0}
        """
        return {reader.fragment.id for reader in self.snapshot.readers}

    @property
    def max_field_id(self) -> int:
        """Highest field id; -1 without columns."""
        return self.snapshot.manifest.schema.max_field_id

    @property
    def lance_schema(self) -> LanceSchema:
        """Schema with field ids."""
        return LanceSchema(self.snapshot.view.schema)

    @property
    def data_storage_version(self) -> str:
        """File format version of the dataset."""
        return str(self.snapshot.manifest.storage_version)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they are moved."""
        return self.snapshot.manifest.has_stable_row_ids

    def config(self) -> dict[str, str]:
        """Return the configuration of the table.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-config")
        >>> made.update_config({"lance.auto_cleanup.interval": "20"})
        {'lance.auto_cleanup.interval': '20'}
        """
        return dict(self.snapshot.manifest.config)

    @property
    def metadata(self) -> dict[str, str]:
        """Return the metadata of the table."""
        return dict(self.snapshot.manifest.table_metadata)

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Return the metadata of the schema."""
        metadata = self.snapshot.manifest.schema.metadata
        return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in metadata.items()}

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
        """Return a scanner.  Options that are not set default to ``default_scan_options``.

        Parameters
        ----------
        columns: names of columns, by default all; ``"struct.field"`` selects a nested field.  ``_rowid``, ``_rowaddr``,
            ``_rowoffset`` and, with ``nearest``, ``_distance`` are allowed.  An empty list selects no columns, so the
            result has only a number of rows.  A mapping from new names to SQL expressions projects; expressions may use
            ``_rowid`` and ``_distance``.
        filter: SQL or a pyarrow expression.  Filters on ``_rowid`` read only the matching rows.
        limit, offset: number of rows to return, and to skip.
        nearest: ``{"column", "q", "k", "metric", "nprobes", "refine_factor", "use_index", "distance_range"}``: return
            the ``k`` rows nearest to the vector ``q`` with their ``_distance``.  ``distance_range`` is a lower bound
            (inclusive) and an upper bound (exclusive); each may be ``None``.  If ``q`` has several vectors, the result
            has the nearest rows of each and a column ``query_index``.  ``nprobes`` is the number of index partitions to
            search.  By default, a search starts with six partitions, or ``minimum_nprobes`` if greater, and continues
            until it finds ``k`` rows or has searched ``maximum_nprobes``.
        batch_size: maximum number of rows in a batch; by default the variable ``LANCE_DEFAULT_BATCH_SIZE``.
        batch_readahead, fragment_readahead, scan_in_order: hints; rows are always in order.
        fragments: fragments to scan, in this order.
        prefilter: with ``nearest``, whether to filter before the search.
        with_row_id, with_row_address: add a column ``_rowid`` or ``_rowaddr``; both have the same values unless the
            dataset has stable row ids.
        use_stats: whether to skip row groups by statistics.
        use_scalar_index: whether filters may use scalar indices.
        include_deleted_rows: return deleted rows that are still in the files; needs ``with_row_id``, and their
            ``_rowid`` is null.
        strict_batch_size: whether all batches except the last have exactly ``batch_size`` rows (default 8,192).
        order_by: names of columns or :class:`~trilake.lance.scan.ordering.ColumnOrdering`; applied before the limit.
        arrow: ``fast_search``, to skip rows that are not indexed; ``batch_size_bytes``, the maximum size of a batch;
            and options of pyarrow scanners and hints of pylance, such as ``use_threads``, which have no effect.

        Raises ``UnknownColumnError`` for an unknown column, ``FilterError`` for an invalid filter, and
        ``InvalidArgumentError`` for other invalid values.

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
        explicit = {
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
        options = {**self._scan_options, **{n: v for n, v in explicit.items() if v is not None}, **arrow}
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
        """Read the rows into a table.  Parameters and errors are those of :meth:`scanner`, also for ``more``.

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
        """Read the rows as batches.  Parameters and errors are those of :meth:`scanner`, also for ``more``.

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

    def to_pandas(self, columns: ColumnsLike | None = None, **more: Any) -> pandas.DataFrame:
        """Read the rows into a pandas DataFrame.

        ``columns`` and ``more`` are parameters of :meth:`scanner` and of ``pyarrow.Table.to_pandas``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-to-pandas")
        >>> made.to_pandas(filter="a > 1")["a"].tolist()
        [2, 3]
        """
        return self.scanner(columns, **scan_options(more)).to_pandas(**more)

    def slice(self, start: int, end: int, columns: ColumnsLike | None = None) -> pa.Table:
        """Return the rows at positions ``start`` (inclusive) to ``end`` (exclusive), with ``columns``.

        Raises ``InvalidArgumentError`` if the range is out of bounds.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-slice")
        >>> made.slice(1, 3)["a"].to_pylist()
        [2, 3]
        """
        total = self.count_rows()
        if not 0 <= start <= end <= total:
            raise InvalidArgumentError(
                f"rows {start} to {end} are out of range: the dataset has {total} rows", file=self._uri
            )
        return self.to_table(columns, limit=end - start, offset=start)

    def count_rows(self, filter: FilterLike | None = None, **more: Any) -> int:
        """Count the rows that match ``filter``; without a filter, from the manifest.

        ``default_scan_options`` apply only if other options are set; ``more`` are those of :meth:`scanner`.  Raises
        ``FilterError`` for an invalid filter.

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
        """Return the first ``num_rows`` rows; ``more`` are parameters of :meth:`scanner`.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-head")
        >>> made.head(2)["a"].to_pylist()
        [1, 2]
        """
        check_head(more)
        return self.to_table(**{**more, "limit": num_rows})

    def take(self, indices: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any) -> pa.Table:
        """Return the rows at the given positions, in the given order.  Reads only the bytes of these rows.

        Parameters
        ----------
        indices: positions among the live rows, from 0.
        columns: columns to return, by default all.
        more: ``with_row_id`` and ``with_row_address``, and hints of pylance.

        Raises ``UnknownRowError`` if a position is out of range.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-take")
        >>> made.take([2, 0])["a"].to_pylist()
        [3, 1]
        """
        selection = self._selection(columns, more)
        ranks = input_rows.numbers(indices)
        rows = selection.show(self.snapshot.take(ranks, selection.columns, places=selection.places))
        return _with_repeated_ids(rows, columns)

    def _selection(self, columns: ColumnsLike | None, options: Mapping[str, Any]) -> Selection:
        check_names(options, OF_ROWS)
        ids, addresses = (flag(n, options.get(n, False)) for n in ("with_row_id", "with_row_address"))
        return Selection.of(self.snapshot.view, columns, with_row_id=ids, with_row_address=addresses)

    def _take_rows(
        self, row_ids: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any
    ) -> pa.Table:
        selection = self._selection(columns, more)
        ids = input_rows.numbers(row_ids, np.uint64)
        rows = selection.show(self.snapshot.take_rows(ids, selection.columns, places=selection.places))
        return _with_repeated_ids(rows, columns)

    def take_blobs(
        self,
        blob_column: str,
        ids: npt.ArrayLike | pa.Array | None = None,
        addresses: npt.ArrayLike | pa.Array | None = None,
        indices: npt.ArrayLike | pa.Array | None = None,
        *,
        buffer_size: int = 512 << 10,
    ) -> list[BlobFile | None]:
        """Return blobs as file objects that read lazily; ``None`` for a null.

        Parameters
        ----------
        blob_column: name of the column.
        ids, addresses, indices: rows by row id, address, or position; pass exactly one.
        buffer_size: minimum number of bytes per read; 0 disables buffering.

        Raises ``InvalidArgumentError`` unless exactly one of the three is set, ``WrongTypeError`` if the column has no
        blobs, and ``UnknownRowError``.

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
        """Return the address of each row and the bytes of its blob; parameters are those of :meth:`take_blobs`.

        ``hints`` of pylance have no effect.

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
        """Read ranges of blobs; returns request number, row address, and bytes or ``None`` (null) for each request.

        Parameters
        ----------
        blob_column: name of the column.
        requests: row, offset in its blob, and number of bytes of each range.
        selector: how requests identify rows: ``"ids"``, ``"addresses"`` or ``"indices"``.
        hints: hints of pylance, without effect.

        Raises ``InvalidArgumentError`` for a range outside the blob, ``WrongTypeError`` and ``UnknownRowError``.

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
        selectors = [one for one in (ids, addresses, indices) if one is not None]
        if len(selectors) != 1:
            raise InvalidArgumentError(
                f"Exactly one of ids, indices, or addresses must be specified, got {len(selectors)}",
                help="pass only one of the three",
            )
        if indices is not None:
            return self.snapshot.addresses_at(input_rows.numbers(indices))
        if addresses is not None:
            return input_rows.numbers(addresses, np.uint64)
        return self.snapshot.addresses_of(input_rows.numbers(ids, np.uint64))

    def sample(
        self, num_rows: int, columns: ColumnsLike | None = None, randomize_order: bool = True, **more: Any
    ) -> pa.Table:
        """Return a random sample of rows without replacement.

        Parameters
        ----------
        num_rows: size of the sample.
        columns: columns to return, by default all.
        randomize_order: whether to shuffle the rows; otherwise they keep the order of the dataset.
        more: options of :meth:`take`.

        Raises ``InvalidArgumentError`` if the dataset has fewer rows.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sample")
        >>> made.sample(2).num_rows, made.sample(3, randomize_order=False)["a"].to_pylist()
        (2, [1, 2, 3])
        """
        flag("randomize_order", randomize_order)
        total = self.count_rows()
        if not 0 <= num_rows <= total:
            raise InvalidArgumentError(
                f"num_rows must be from 0 to {total}, the number of rows, got {num_rows}", file=self._uri
            )
        positions = random.sample(range(total), num_rows)
        return self.take(positions if randomize_order else sorted(positions), columns, **more)

    def get_fragments(self, filter: pc.Expression | None = None) -> list[LanceFragment]:
        """Return all fragments, or those that may have rows matching a pyarrow ``filter``.

        Only files of the legacy format have the statistics for this.

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
        """Return the fragment with the id ``fragment_id``, or ``None``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-fragment")
        >>> made.get_fragment(0).count_rows(), made.get_fragment(7)
        (3, None)
        """
        reader = self.snapshot.reader_of(fragment_id)
        return None if reader is None else LanceFragment(self, None, fragment=reader)

    # --- other methods of pyarrow.dataset.Dataset, mostly in memory --------------------------------------------------

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true: Lance has no partitions."""
        return pc.scalar(True)

    def replace_schema(self, schema: pa.Schema) -> pa.dataset.Dataset:
        """Cast the rows to ``schema``, in memory.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-replace-schema")
        >>> made.replace_schema(pa.schema([("a", pa.string())])).to_table()["a"].to_pylist()
        ['1', '2', '3']
        """
        return pa.dataset.dataset(self.to_table(columns=schema.names).cast(schema))

    def filter(self, expression: pc.Expression) -> pa.dataset.Dataset:
        """Filter by a pyarrow ``expression``, in memory.

        >>> import pyarrow as pa, pyarrow.compute as pc
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-filter")
        >>> made.filter(pc.field("a") > 1).count_rows()
        2
        """
        return pa.dataset.dataset(self.to_table(filter=expression))

    def sort_by(self, sorting: Any, **more: Any) -> pa.dataset.Dataset:
        """Sort the rows in memory; ``sorting`` and ``more`` are those of pyarrow's ``Table.sort_by``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sort-by")
        >>> made.sort_by([("a", "descending")]).to_table()["a"].to_pylist()
        [3, 2, 1]
        """
        return pa.dataset.dataset(self.to_table().sort_by(sorting, **more))

    def join(self, right_dataset: Any, keys: Any, *args: Any, **more: Any) -> pa.dataset.Dataset:
        """Join the dataset or table ``right_dataset``, in memory.

        ``keys``, ``args`` and ``more`` are those of pyarrow's ``Table.join``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-join")
        >>> made.join(pa.table({"a": [1], "s": ["one"]}), "a", join_type="inner").to_table().to_pylist()
        [{'a': 1, 's': 'one'}]
        """
        right = right_dataset.to_table() if isinstance(right_dataset, pa.dataset.Dataset) else right_dataset
        return pa.dataset.dataset(self.to_table().join(right, keys, *args, **more))

    def join_asof(self, right_dataset: Any, on: str, by: Any, tolerance: int, **more: Any) -> pa.dataset.Dataset:
        """Join the nearest rows of the dataset or table ``right_dataset``, in memory.

        ``on``, ``by``, ``tolerance`` and ``more`` are those of pyarrow's ``Table.join_asof``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"at": [1, 5], "k": ["x", "x"]}), "memory://doc-lance-join-asof")
        >>> right = pa.table({"at": [2], "k": ["x"], "n": [20]})
        >>> made.join_asof(right, "at", "k", tolerance=2).to_table()["n"].to_pylist()
        [20, None]
        """
        right = right_dataset.to_table() if isinstance(right_dataset, pa.dataset.Dataset) else right_dataset
        return pa.dataset.dataset(self.to_table().join_asof(right, on, by, tolerance, **more))


def _with_repeated_ids(rows: pa.Table, columns: ColumnsLike | None) -> pa.Table:
    """Repeat the id columns that are selected several times, as pylance does."""
    if columns is None or isinstance(columns, str | Mapping) or len(set(columns)) == len(columns):
        return rows
    if not set(columns) <= set(rows.schema.names):  # names in other cases
        return rows
    names = [name for i, name in enumerate(columns) if name in PLACES or name not in columns[:i]]
    return rows.select([*names, *(name for name in rows.schema.names if name not in names)])
