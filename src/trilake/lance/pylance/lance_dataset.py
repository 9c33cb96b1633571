"""``LanceDataset``: a Lance dataset at one version, with the API of pylance, and functions that open and write one.

A call that commits moves the object to the new version; other open objects keep their version.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from trilake.common.arguments import count, flag
from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError
from trilake.lance.cleanup import CleanupExplanation, CleanupPlan, CleanupStats, after_commit, cleanup, config_of, drop
from trilake.lance.commands import columns as column_changes
from trilake.lance.commands import delete, index_segments, indices, input_rows, update, vector_indices
from trilake.lance.commands.format_options import check_format, format_of, properties_of
from trilake.lance.commands.fragment_writer import WRITE_OPTIONS, NullPolicy, Reporter, WriteOptions, check_nulls
from trilake.lance.commands.migrate import migrate, migrate_manifest_names
from trilake.lance.commands.open_dataset import place_of
from trilake.lance.commands.replan import Retries
from trilake.lance.commands.schema_metadata import update_field_metadata, update_map
from trilake.lance.commands.write import Mode, write
from trilake.lance.commit import runtime_with
from trilake.lance.file.errors import DatasetVersionNotFoundError, OptionError, WrongTypeError
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.fragment import LanceFragment
from trilake.lance.indices import IndexConfig
from trilake.lance.optimize import DatasetOptimizer
from trilake.lance.pylance import commits
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.pylance.merge_builder import MergeInsertBuilder
from trilake.lance.pylance.operation import DatasetBasePath, Index, LanceOperation, Transaction, base_paths
from trilake.lance.pylance.scanner import OF_ROWS, LanceScanner, Scannable, ScannerBuilder, check_names
from trilake.lance.pylance.sql_query import SqlQueryBuilder
from trilake.lance.pylance.stats import IndexDescription, LanceStats
from trilake.lance.pylance.tags import Branches, Line, Reference, Tags
from trilake.lance.scan.blob_bytes import BlobFile, read_parts
from trilake.lance.scan.fragment_reader import PLACES
from trilake.lance.scan.ordering import ColumnOrdering
from trilake.lance.scan.projection import ColumnsLike, Selection
from trilake.lance.scan.scan import candidate_groups
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.schema import LanceSchema
from trilake.lance.udf import BatchUDF
from trilake.lance.util import local_time, sanitize_ts
from trilake.lance.versions import transaction
from trilake.lance.versions.branches import TREE, clone, create_branch
from trilake.lance.versions.manifest import Manifest, parse_manifest
from trilake.lance.versions.operations import Restore, UpdateBases
from trilake.lance.versions.versions import check_place, list_versions
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.table import FilterLike


class LanceDataset(Scannable, pa.dataset.Dataset):  # type: ignore[misc]
    """A dataset at one version.

    Parameters
    ----------
    uri: path or URI of the dataset.
    version: number or tag, by default the newest version.
    block_size, metadata_cache_size: accepted for compatibility.
    index_cache_size: number of cached index entries (scalar indices, and partitions of vector indices), by default 256.
    commit_lock: a function that returns a context manager for the version to commit.  It is optional, as all stores
        detect concurrent commits.
    storage_options: credentials, region and endpoint of the object store.
    default_scan_options: default options of :meth:`scanner`.
    nulls: how writes of this object handle nulls that the format cannot store; see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``CorruptLogError`` or ``UnsupportedProtocolError``.

    Read rows, fragments and versions:

    >>> ds = write_dataset(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), "memory://doc-lance", mode="overwrite")
    >>> ds.delete("a = 2")
    {'num_deleted_rows': 1}
    >>> ds.version, ds.to_table(filter="a > 1").to_pylist()
    (2, [{'a': 3, 'b': 'z'}])
    >>> ds.head(1)["a"].to_pylist(), ds.slice(1, 2)["a"].to_pylist(), ds.count_rows("a > 1")
    ([1], [3], 1)
    >>> ds.to_pandas(filter="a > 1")["a"].tolist(), [batch.num_rows for batch in ds.to_batches(batch_size=1)]
    ([3], [1, 1])
    >>> ds.fragment_ids(), ds.get_fragment(0).count_rows(), ds.get_fragment(7)
    ({0}, 2, None)
    >>> len(ds.get_fragments()), [version["version"] for version in ds.versions()]
    (1, [1, 2])
    >>> ds.version_refs(), ds.get_version()["version"]
    ([{'version': 1}, {'version': 2}], 2)
    >>> LanceDataset.of(ds.snapshot, ds.uri).validate()
    >>> [type(t.operation).__name__ for t in (ds.read_transaction(1), *ds.get_transactions())]
    ['Overwrite', 'Delete', 'Overwrite']
    >>> old = ds.checkout_version(1)
    >>> old.count_rows(), ds.count_rows()
    (3, 2)
    >>> old.checkout_latest()
    >>> old.version
    2
    >>> old.moved(ds.snapshot)
    >>> old.restore()
    >>> ds.checkout_latest()
    >>> ds.version
    3

    Describe it with metadata, and find rows by an index:

    >>> ds.replace_schema_metadata({"owner": "sales"})
    >>> ds.replace_field_metadata("a", {"unit": "m"})
    >>> ds.update_field_metadata({"a": {"unit": "km"}, "b": {"n": "1"}})
    >>> ds.update_metadata({"source": "x"}), ds.update_schema_metadata({"owner": None, "team": "sales"})
    ({'source': 'x'}, {'team': 'sales'})
    >>> ds.update_config({"x": "1", "y": "2"})
    {'x': '1', 'y': '2'}
    >>> ds.delete_config_keys(["x"])
    >>> ds.config(), ds.schema_metadata, ds.schema.field("a").metadata
    ({'y': '2'}, {'team': 'sales'}, {b'unit': b'km'})
    >>> ds.create_scalar_index("a", name="numbers")
    >>> ds.prewarm_index("numbers")
    >>> [(index["name"], index["fields"]) for index in ds.list_indices()]
    [('numbers', ['a'])]
    >>> [(index.name, index.num_rows_indexed) for index in ds.describe_indices()]
    [('numbers', 2)]
    >>> ds.drop_index("numbers")
    >>> ds.truncate_table()
    >>> ds.count_rows(), ds.has_index
    (0, False)

    Search vectors by an index, and read blobs:

    >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array([n % 7 for n in range(1024)], pa.float32()), 4)
    >>> ds = write_dataset(pa.table({"v": vectors}), "memory://doc-lance-vectors")
    >>> indexed = ds.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, seed=1)
    >>> indexed.has_index, indexed.centroids(column="v").type.list_size, len(indexed.centroids(index_name="v_idx"))
    (True, 4, 2)
    >>> indexed.to_table(nearest={"column": "v", "q": [0, 1, 2, 3], "k": 3}).num_rows
    3
    >>> field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    >>> blobs = pa.table([pa.array([b"abc", None], pa.large_binary())], schema=pa.schema([field]))
    >>> ds = write_dataset(blobs, "memory://doc-lance-blobs")
    >>> [None if file is None else file.read() for file in ds.take_blobs("b", indices=[0, 1])]
    [b'abc', None]
    >>> ds.read_blobs("b", indices=[0]), ds.read_blob_ranges("b", [(0, 1, 2)], selector="indices")
    ([(0, b'abc')], [(0, 0, b'bc')])

    Other methods of ``pyarrow.dataset.Dataset`` work in memory:

    >>> ds = write_dataset(pa.table({"a": [1, 2, 3], "k": ["x"] * 3}), "memory://doc-lance-arrow")
    >>> ds.replace_schema(pa.schema([("a", pa.string())])).to_table()["a"].to_pylist()
    ['1', '2', '3']
    >>> ds.filter(pc.field("a") > 1).count_rows(), ds.sort_by([("a", "descending")]).to_table()["a"].to_pylist()
    (2, [3, 2, 1])
    >>> right = pa.table({"a": [2], "k": ["x"], "s": ["two"]})
    >>> ds.join(right, ["a", "k"], join_type="inner").to_table().to_pylist()
    [{'a': 2, 'k': 'x', 's': 'two'}]
    >>> ds.join_asof(right, "a", "k", tolerance=1).to_table()["s"].to_pylist()
    ['two', 'two', None]
    """

    snapshot: Snapshot
    nulls: NullPolicy
    _uri: str
    #: Default options of scans.
    _scan_options: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        uri: str | os.PathLike[str],
        version: Reference = None,
        block_size: int | None = None,
        index_cache_size: int | None = None,
        metadata_cache_size: int | None = None,
        commit_lock: Any = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        default_scan_options: Mapping[str, Any] | None = None,
        nulls: NullPolicy = "error",
        **later: Any,
    ) -> None:
        del block_size, metadata_cache_size
        check_format(later, of="LanceDataset")
        check_nulls(nulls)
        root, self.nulls = open_store(uri, dict(storage_options or {})), nulls
        line, number = Line(root).resolve(version)
        store = root if line.branch is None else line.store
        self._uri = os.fspath(uri) if line.branch is None else f"{os.fspath(uri)}/{TREE}/{line.branch}"
        self.snapshot = Snapshot.open(store, runtime_with(commit_lock), number, index_cache_size)
        if default_scan_options:
            ScannerBuilder(self).apply_defaults(default_scan_options)  # checks them
            self._scan_options = MappingProxyType(dict(default_scan_options))

    @classmethod
    def of(cls, snapshot: Snapshot, uri: str | os.PathLike[str], nulls: NullPolicy = "error") -> Self:
        """Wrap a snapshot.

        Parameters
        ----------
        snapshot: the version to read.
        uri: path or URI of the dataset.
        nulls: how to write nulls that the file format cannot store.
        """
        dataset = cls.__new__(cls)
        dataset.snapshot, dataset._uri, dataset.nulls = snapshot, os.fspath(uri), nulls
        return dataset

    def _beside(self, snapshot: Snapshot, uri: str | None = None) -> Self:
        """Return a new object for another version or with other caches."""
        other = self.of(snapshot, uri or self._uri, self.nulls)
        other._scan_options = self._scan_options
        return other

    def moved(self, snapshot: Snapshot) -> None:
        """Switch this object to the version of ``snapshot``."""
        self.snapshot = snapshot

    def __reduce__(self) -> tuple[Any, ...]:
        options = dict(self.snapshot.store.options), dict(self._scan_options)
        return _reopen, (self._uri, self.version, *options, self.nulls)

    def __repr__(self) -> str:
        return f"LanceDataset({self._uri!r}, version={self.version})"

    def __getattr__(self, name: str) -> Any:
        raise not_in_format("LanceDataset", name)

    def __len__(self) -> int:
        return self.count_rows()

    # --- description -------------------------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """Path or URI of the dataset."""
        return self._uri

    @property
    def schema(self) -> pa.Schema:
        """Schema of the dataset; with ``default_scan_options``, schema of a scan."""
        return self.scanner().projected_schema if self._scan_options else self.snapshot.schema

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
        """Return the configuration of the table."""
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

    @property
    def stats(self) -> LanceStats:
        """Statistics of the dataset and its indices."""
        return LanceStats(self)

    def validate(self) -> None:
        """Check that all files exist and match the manifest.

        Raises ``CorruptFileError``, ``CorruptLogError``, ``MissingFileError`` or ``DeletionVectorError``.
        """
        self.snapshot.validate()

    # --- versions ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Version of this object."""
        return self.snapshot.version

    @property
    def latest_version(self) -> int:
        """Newest version of the dataset."""
        return list_versions(self.snapshot.store).latest

    def versions(self) -> list[dict[str, Any]]:
        """List all versions, oldest first: ``version``, ``timestamp`` (naive local time) and ``metadata``."""
        store = self.snapshot.store
        listing = list_versions(store)
        keys = [listing.key(v) for v in listing.versions]
        read = zip(listing.versions, keys, store.read_many(keys))
        return [_version_row(parse_manifest(data, file=f"{store.uri}/{key}", version=v)) for v, key, data in read]

    def get_version(self) -> dict[str, Any]:
        """Describe this version, as in :meth:`versions`."""
        return _version_row(self.snapshot.manifest)

    def version_refs(self) -> list[dict[str, int]]:
        """List the numbers of all versions, oldest first, without reading manifests."""
        return [{"version": version} for version in list_versions(self.snapshot.store).versions]

    def checkout_version(self, version: Reference) -> LanceDataset:
        """Return the dataset at another ``version``: a number, tag or ``(branch, number)``.

        Raises ``VersionNotFoundError``.
        """
        line, number = Line.of(self.snapshot).resolve(version)
        if line.branch == self.snapshot.manifest.branch:
            return self._beside(self.snapshot.at(transaction.load(self.snapshot.store, number)))
        return self._on(line, number)

    def _on(self, line: Line, version: int | None) -> LanceDataset:
        store, manifest = line.load(version)
        base = self._uri.removesuffix(f"/{TREE}/{self.snapshot.manifest.branch}")
        uri = base if line.branch is None else f"{base}/{TREE}/{line.branch}"
        return self._beside(Snapshot(store, manifest, self.snapshot.runtime), uri)

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        self.moved(self.snapshot.at(transaction.load(self.snapshot.store)))

    def restore(self) -> None:
        """Make this version the newest one, as a new commit."""
        self.moved(self.snapshot.commit(Restore(self.version)))

    @property
    def tags(self) -> Tags:
        """Tags of the dataset."""
        return Tags(self.snapshot)

    @property
    def branches(self) -> Branches:
        """Branches of the dataset."""
        return Branches(self.snapshot)

    def create_branch(
        self, branch: str, reference: Reference = None, storage_options: Mapping[str, str] | None = None
    ) -> LanceDataset:
        """Create the branch ``branch`` from this version, or from ``reference``.

        ``storage_options`` are those of the dataset.  Raises ``InvalidArgumentError`` if the branch exists.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-branch")
        >>> trial = ds.create_branch("trial")
        >>> _ = trial.delete("a > 1")
        >>> trial.count_rows(), ds.count_rows()
        (1, 3)
        """
        del storage_options
        line, number = Line.of(self.snapshot).resolve(reference)
        source = self.snapshot.manifest if reference is None else line.load(number)[1]
        create_branch(line.root, branch, source, self.snapshot.runtime)
        return self._on(Line(line.root, branch), None)

    def shallow_clone(
        self,
        target_path: str | os.PathLike[str],
        reference: Reference = None,
        storage_options: Mapping[str, str] | None = None,
        **later: Any,
    ) -> LanceDataset:
        """Create a dataset at ``target_path`` that shares the files of a version, by default this one.

        Clean-ups and drops of the clone do not delete the shared files.

        Parameters
        ----------
        target_path: path or URI of the new dataset.
        reference: version, tag, branch or ``(branch, version)``; by default this version.
        storage_options: options for the store of the new dataset, which override those of this dataset.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``TableExistsError``.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-clone-of")
        >>> ds.shallow_clone("memory://doc-lance-clone").count_rows()
        3
        """
        check_format(later, of="shallow_clone")
        line, number = Line.of(self.snapshot).resolve(reference)
        store, source = (self.snapshot.store, self.snapshot.manifest) if reference is None else line.load(number)
        target = open_store(target_path, {**store.options, **(storage_options or {})})
        check_place(target)
        manifest = clone(source, store, target, self.snapshot.runtime)
        return self.of(Snapshot(target, manifest, self.snapshot.runtime), target_path, self.nulls)

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created ``version``; ``None`` if its file is gone or its operation unknown.

        Raises ``VersionNotFoundError``.
        """
        return commits.read_transaction(self.snapshot, count("version", version, least=1, other_type=WrongTypeError))

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return up to ``recent_transactions`` transactions up to this version, newest first."""
        limit = count("recent_transactions", recent_transactions, other_type=WrongTypeError)
        return commits.newest_transactions(self.snapshot, limit)

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
        **more: Any,
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
        more: ``fast_search``, to skip rows that are not indexed; ``batch_size_bytes``, the maximum size of a batch;
            and options of pyarrow scanners and hints of pylance, such as ``use_threads``, which have no effect.

        Raises ``UnknownColumnError`` for an unknown column, ``FilterError`` for an invalid filter, and
        ``InvalidArgumentError`` for other invalid values.

        >>> ds = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-scanner")
        >>> ds.scanner(["s"], "id > 1", limit=1, with_row_id=True).to_table().to_pylist()
        [{'s': 'y', '_rowid': 1}]

        The rows nearest to a vector:

        >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array([0, 0, 3, 4, 6, 8], pa.float32()), 2)
        >>> points = write_dataset(pa.table({"id": [1, 2, 3], "v": vectors}), "memory://doc-lance-nearest")
        >>> points.scanner(["id"], nearest={"column": "v", "q": [0, 0], "k": 2}).to_table()["id"].to_pylist()
        [1, 2]
        """
        options = {
            name: value for name, value in locals().items() if value is not None and name not in ("self", "more")
        }
        return ScannerBuilder(self).apply_defaults({**self._scan_options, **options, **more}).to_scanner()

    def slice(self, start: int, end: int, columns: ColumnsLike | None = None) -> pa.Table:
        """Return the rows at positions ``start`` (inclusive) to ``end`` (exclusive), with ``columns``.

        Raises ``InvalidArgumentError`` if the range is out of bounds.
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
        """
        if not more:
            return self.snapshot.count(filter)
        return self.scanner(filter=filter, **more).count_rows()

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Query this version with DuckDB; the query ``sql`` calls it ``dataset``.

        See :func:`trilake.sql`.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sql", mode="overwrite")
        >>> [b.to_pylist() for b in ds.sql("SELECT a FROM dataset WHERE a > 1").build().to_batch_records()]
        [[{'a': 2}, {'a': 3}]]
        """
        if not isinstance(sql, str):
            raise WrongTypeError(f"sql must be a string, got {type(sql).__name__}")
        return SqlQueryBuilder(sql, self.snapshot)

    def fragment_ids(self) -> set[int]:
        """Return the ids of all fragments."""
        return {reader.fragment.id for reader in self.snapshot.readers}

    def get_fragments(self, filter: pc.Expression | None = None) -> list[LanceFragment]:
        """Return all fragments, or those that may have rows matching a pyarrow ``filter``.

        Only files of the legacy format have the statistics for this.
        """
        readers = self.snapshot.readers
        if filter is not None:
            bound = self.snapshot.filter(filter)
            assert bound is not None
            readers = tuple(r for r in readers if candidate_groups(r, bound, self.snapshot.view))
        return [LanceFragment(self, None, fragment=r) for r in readers]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """Return the fragment with the id ``fragment_id``, or ``None``."""
        reader = self.snapshot.reader_of(fragment_id)
        return None if reader is None else LanceFragment(self, None, fragment=reader)

    # --- single rows -------------------------------------------------------------------------------------------------

    def take(self, indices: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any) -> pa.Table:
        """Return the rows at the given positions, in the given order.  Reads only the bytes of these rows.

        Parameters
        ----------
        indices: positions among the live rows, from 0.
        columns: columns to return, by default all.
        more: ``with_row_id`` and ``with_row_address``, and hints of pylance.

        Raises ``UnknownRowError`` if a position is out of range.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-take")
        >>> ds.take([2, 0])["a"].to_pylist()
        [3, 1]
        """
        return self._taken(self.snapshot.take, input_rows.numbers(indices), columns, more)

    def _take_rows(
        self, row_ids: npt.ArrayLike | pa.Array, columns: ColumnsLike | None = None, **more: Any
    ) -> pa.Table:
        return self._taken(self.snapshot.take_rows, input_rows.numbers(row_ids, np.uint64), columns, more)

    def _taken(
        self,
        take: Callable[..., pa.Table],
        rows: npt.NDArray[Any],
        columns: ColumnsLike | None,
        more: Mapping[str, Any],
    ) -> pa.Table:
        check_names(more, OF_ROWS)
        ids, addresses = (flag(n, more.get(n, False)) for n in ("with_row_id", "with_row_address"))
        selection = Selection.of(self.snapshot.view, columns, with_row_id=ids, with_row_address=addresses)
        return _with_repeated_ids(selection.show(take(rows, selection.columns, places=selection.places)), columns)

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
        """
        del hints
        if selector not in ("ids", "addresses", "indices"):
            raise InvalidArgumentError(f"selector must be one of ids, addresses and indices, got {selector!r}")
        rows = self._selected(**{selector: [row for row, _, _ in requests]})
        places = self.snapshot.blobs(rows, blob_column)
        data = read_parts(places, [(offset, length) for _, offset, length in requests])
        return [(i, *read) for i, read in enumerate(zip(rows.tolist(), data, strict=True))]

    def _selected(self, ids: Any = None, addresses: Any = None, indices: Any = None) -> npt.NDArray[np.uint64]:
        """Return the addresses of rows."""
        number = sum(one is not None for one in (ids, addresses, indices))
        if number != 1:
            raise InvalidArgumentError(
                f"Exactly one of ids, indices, or addresses must be specified, got {number}",
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

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sample")
        >>> ds.sample(2).num_rows, ds.sample(3, randomize_order=False)["a"].to_pylist()
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

    # --- changes of rows ---------------------------------------------------------------------------------------------

    def insert(self, data: Any, *, mode: Mode = "append", **options: Any) -> None:
        """Append rows, or replace all rows with ``mode="overwrite"``.

        Parameters
        ----------
        data: see :func:`trilake.lance.commands.input_rows.stream`; ``schema`` may be one of the options.
        options: those of :class:`~trilake.lance.commands.fragment_writer.WriteOptions` (``nulls`` defaults to that of
            this object) and of :func:`write_dataset`.

        Raises ``SchemaMismatchError``, ``ConflictError`` or ``WriteFailedError``.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-insert")
        >>> ds.insert(pa.table({"a": [4]}))
        >>> ds.count_rows()
        4
        """
        schema = options.pop("schema", None)
        write_options = WriteOptions(**{"nulls": self.nulls, "partial": True, **_layout(options, of="insert")})
        self.moved(_written(self.snapshot.store, data, schema, mode, self.snapshot.runtime, write_options))

    @classmethod
    def from_pydantic_model(
        cls,
        model_class: Any,
        data: list[Any],
        uri: str | os.PathLike[str] | None = None,
        mode: Any = "create",
        **options: Any,
    ) -> Self:
        """Write instances of a Pydantic model, whose annotations define the columns.

        Parameters
        ----------
        model_class: the Pydantic model.
        data: instances of the model.
        uri: path or URI; by default the name of the class in snake case.
        mode, options: those of :meth:`insert`, and ``storage_options``.

        Raises ``WrongTypeError`` for instances of another class, and ``InvalidArgumentError`` for an empty list.

        >>> from pydantic import BaseModel
        >>> class Point(BaseModel):
        ...     x: int
        ...     name: str | None = None
        >>> ds = LanceDataset.from_pydantic_model(Point, [Point(x=1)], "memory://doc-lance-model")
        >>> ds.to_table().to_pylist(), ds.schema.field("x").nullable
        ([{'x': 1, 'name': None}], False)
        """
        if not input_rows.is_model(model_class):
            raise WrongTypeError(f"`model_class` must be a Pydantic BaseModel subclass, got {model_class!r}")
        rows = input_rows.table_of(model_class, data)
        if not len(rows):
            raise InvalidArgumentError(
                "data must have at least one row, got an empty list", help="pass model instances"
            )
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", model_class.__name__).lower()
        dataset = write_dataset(rows, words if uri is None else uri, mode=mode, **options)
        return cls.of(dataset.snapshot, dataset.uri, dataset.nulls)

    def delete(
        self, predicate: FilterLike, *, conflict_retries: int | None = None, retry_timeout: dt.timedelta | None = None
    ) -> dict[str, int]:
        """Delete the rows that match a condition, and return their number as ``num_deleted_rows``.

        Parameters
        ----------
        predicate: SQL or a pyarrow expression.
        conflict_retries, retry_timeout: how often (by default 10 times) and how long to retry if concurrent commits
            changed the same rows.

        Raises ``WrongTypeError`` without a condition, ``FilterError`` for an invalid one, and ``ConflictError``.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-delete")
        >>> ds.delete("a > 1")
        {'num_deleted_rows': 2}
        """
        retries = Retries.of(conflict_retries, retry_timeout)
        if predicate is None:
            raise WrongTypeError("delete needs a predicate, got None", help='pass "true" to delete all rows')
        snapshot, number = delete.delete_rows(self.snapshot, predicate, retries)
        self.moved(snapshot)
        return {"num_deleted_rows": number}

    def truncate_table(self) -> None:
        """Delete all rows."""
        self.moved(delete.delete(self.snapshot, "true"))

    def update(
        self,
        updates: Mapping[str, str],
        where: FilterLike | None = None,
        *,
        conflict_retries: int | None = None,
        retry_timeout: dt.timedelta | None = None,
        **later: Any,
    ) -> dict[str, int]:
        """Update the rows that match a condition, and return their number as ``num_rows_updated``.

        Parameters
        ----------
        updates: SQL expressions by column.
        where: SQL or a pyarrow expression; by default all rows.
        conflict_retries, retry_timeout: see :meth:`delete`.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``InvalidArgumentError`` for an unknown column, ``ExpressionError``, ``FilterError`` or
        ``ConflictError``.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-update")
        >>> ds.update({"a": "a * 10"}, where="a > 1")
        {'num_rows_updated': 2}
        >>> sorted(ds.to_table()["a"].to_pylist())
        [1, 20, 30]
        """
        check_format(later, of="update")
        retries = Retries.of(conflict_retries, retry_timeout)
        done = update.update(self.snapshot, updates, where, options=WriteOptions(nulls=self.nulls), retries=retries)
        self.moved(done.snapshot)
        return {"num_rows_updated": done.num_rows_updated}

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Return a builder of a merge: rows of a source match rows of the dataset by the key columns ``on``.

        By default, ``on`` is the primary key: the columns with ``lance-schema:unenforced-primary-key`` in their
        metadata.  Raises ``InvalidArgumentError`` if there is none.

        >>> ds = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-merge-insert")
        >>> news = pa.table({"id": [3, 4], "s": ["new", "first"]})
        >>> done = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(news)
        >>> done["num_updated_rows"], done["num_inserted_rows"], ds.count_rows()
        (1, 1, 4)
        """
        if on is None:
            keys = [f for f in self.snapshot.view.schema.fields if f.is_key]
            on = [f.name for f in sorted(keys, key=lambda f: f.primary_key[1])]
            if not on:
                raise InvalidArgumentError(
                    "the dataset has no primary key", help="pass the key columns: merge_insert('id')"
                )
        return MergeInsertBuilder(self, on)

    # --- changes of columns ------------------------------------------------------------------------------------------

    def merge(self, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None) -> None:
        """Join the columns of other data by key; rows without a match get nulls.

        Parameters
        ----------
        data_obj: the data to join.
        left_on, right_on: key columns of the dataset and of the data; ``right_on`` defaults to ``left_on``.
        schema: schema of data passed as an iterable.

        Raises ``UnknownColumnError``, and ``SchemaMismatchError`` if the data cannot be joined.

        >>> ds = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-merge")
        >>> ds.merge(pa.table({"id": [1, 2, 3], "n": [10, 20, 30]}), "id")
        >>> ds.schema.names, ds.to_table(["n"], "id = 2").to_pylist()
        (['id', 's', 'n'], [{'n': 20}])
        """
        data = input_rows.table(data_obj, schema)
        self.moved(column_changes.merge(self.snapshot, data, left_on, right_on, nulls=self.nulls))

    def add_columns(
        self,
        transforms: Any,
        read_columns: list[str] | None = None,
        reader_schema: pa.Schema | None = None,
        batch_size: int | None = None,
    ) -> None:
        """Add columns.

        Parameters
        ----------
        transforms: SQL expressions by column name; or a function of record batches (its output schema is the attribute
            ``output_schema`` or that of its first result); or rows in dataset order; or a field, fields or schema of
            null columns, for which no files are written.
        read_columns: columns to pass to the function, by default all.
        reader_schema: schema of rows passed as an iterable.
        batch_size: maximum number of rows per call of the function, by default those of a row group.

        Raises ``InvalidArgumentError`` for options that do not apply to ``transforms``.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-add-columns")
        >>> ds.add_columns({"double": "a * 2"})
        >>> ds.to_table()["double"].to_pylist()
        [2, 4, 6]
        """
        self.moved(
            column_changes.add(
                self.snapshot, transforms, read_columns, reader_schema, batch_size=batch_size, nulls=self.nulls
            )
        )
        if isinstance(transforms, BatchUDF):
            transforms.forget()

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop ``columns`` or nested fields; writes only the manifest.  Raises ``UnknownColumnError``.

        >>> ds = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-drop-columns")
        >>> ds.drop_columns(["s"])
        >>> ds.schema.names
        ['id']
        """
        self.moved(column_changes.drop_columns(self.snapshot, columns))

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Rename (``name``), cast (``data_type``) or change the nullability (``nullable``) of the columns at ``path``.

        ``alterations`` are mappings with these keys.  Raises ``UnknownColumnError`` and ``InvalidArgumentError``.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-alter-columns")
        >>> ds.alter_columns({"path": "a", "name": "number", "data_type": pa.int32()})
        >>> ds.schema
        number: int32
        """
        self.moved(column_changes.alter_columns(self.snapshot, alterations, nulls=self.nulls))

    # --- metadata and configuration ----------------------------------------------------------------------------------

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """Return the base paths of this version by id: other locations for its files.

        >>> bases = [DatasetBasePath("memory://doc-lance-base", name="hot")]
        >>> ds = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-bases", initial_bases=bases)
        >>> ds.base_paths()[1].name
        'hot'
        """
        return {path.id: DatasetBasePath.of(path) for path in self.snapshot.manifest.base_paths}

    def add_bases(
        self, new_bases: Iterable[DatasetBasePath], transaction_properties: Mapping[str, str] | None = None
    ) -> Self:
        """Register base paths, to which ``target_bases`` of later writes can refer; returns this object.

        Parameters
        ----------
        new_bases: the base paths.
        transaction_properties: properties of the commit.

        Raises ``InvalidArgumentError`` for an id, path or name that another base path has, and ``ConflictError``.

        >>> ds = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-add-bases")
        >>> ds.add_bases([DatasetBasePath("memory://doc-lance-new-base", name="cold")]).insert(
        ...     pa.table({"a": [2]}), target_bases=["cold"]
        ... )
        >>> [file.base_id for fragment in ds.get_fragments() for file in fragment.data_files()]
        [None, 1]
        """
        manifest, runtime = self.snapshot.manifest, self.snapshot.runtime
        manifest.check_writable(self.snapshot.store.uri)
        bases = base_paths(new_bases, manifest.base_paths)
        if bases:
            properties = properties_of({"transaction_properties": transaction_properties})
            begun = transaction.begin(self.snapshot.version, UpdateBases(bases), runtime, properties)
            self.moved(self.snapshot.at(transaction.commit(self.snapshot.store, begun, runtime, base=manifest)))
        return self

    def update_config(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the configuration with ``values``; ``None`` removes a key, and ``replace`` removes all other keys.

        Returns the new configuration.
        """
        self.moved(update_map(self.snapshot, "config", values, replace_all=replace))
        return self.config()

    def delete_config_keys(self, keys: Iterable[str]) -> None:
        """Remove ``keys`` from the configuration."""
        self.update_config(dict.fromkeys(keys))

    def update_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the table metadata with ``values``; ``None`` removes a key, and ``replace`` removes all other keys."""
        self.moved(update_map(self.snapshot, "table_metadata", values, replace_all=replace))
        return self.metadata

    def update_schema_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the schema metadata with ``values``; ``None`` removes a key, and ``replace`` removes all other keys.

        Returns the new metadata.
        """
        self.moved(update_map(self.snapshot, "schema_metadata", values, replace_all=replace))
        return self.schema_metadata

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Replace the schema metadata with ``new_metadata``."""
        self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self, field_updates: Mapping[str, Mapping[str, str | None]], *, replace: bool = False
    ) -> None:
        """Update the metadata of columns or nested fields.

        ``field_updates`` maps column names to metadata; ``None`` removes a key, and ``replace`` removes all other keys.
        Raises ``UnknownColumnError``.
        """
        self.moved(update_field_metadata(self.snapshot, field_updates, replace_all=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Replace the metadata of the column ``field_name`` with ``new_metadata``.  Raises ``UnknownColumnError``."""
        self.update_field_metadata({field_name: new_metadata}, replace=True)

    # --- indices -----------------------------------------------------------------------------------------------------

    def create_scalar_index(
        self,
        column: str | list[str],
        index_type: str | IndexConfig = "BTREE",
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        **later: Any,
    ) -> None:
        """Create a scalar index on a column, which filters can use.

        Parameters
        ----------
        column: name of the column; ``"struct.field"`` is a nested field.
        index_type: ``"BTREE"``; in datasets of 2.x also ``"BITMAP"``, ``"ZONEMAP"`` and, for lists, ``"LABEL_LIST"``,
            in any case; or an ``IndexConfig``.
        name: name of the index, by default derived from the column.
        replace: whether to replace an index of that name.
        train: whether to index the rows now; otherwise ``optimize.optimize_indices`` indexes them later.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``UnsupportedIndexError`` and ``UnknownColumnError``.
        """
        kind, rows_per_zone = _kind(index_type, later)
        indices.scalar_kind(self.snapshot, kind)
        check_format(later, of="a scalar index")
        options: dict[str, Any] = {"replace": replace, "with_rows": train, "rows_per_zone": rows_per_zone}
        self.moved(
            indices.create_scalar_index(self.snapshot, vector_indices.only_column(column), kind, name, **options)
        )

    def create_index(
        self,
        column: str | Sequence[str],
        index_type: str,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,
        **more: Any,
    ) -> Self:
        """Create a vector index: ``IVF_PQ``, ``IVF_FLAT`` or ``IVF_SQ``.

        Parameters
        ----------
        column, index_type, name, replace, num_partitions, ivf_centroids, num_sub_vectors: see
            :func:`trilake.lance.commands.vector_indices.plan_index`.
        metric: ``"L2"``, ``"cosine"`` or ``"dot"``.
        accelerator: accepted for compatibility.
        index_cache_size: number of cache entries of the returned dataset.
        more: ``pq_codebook``, ``seed`` and ``num_bits`` of ``plan_index``; ``metric_type``, an alias of ``metric``;
            ``train=False`` for an index without rows, which ``optimize_indices`` trains.

        Raises ``UnsupportedIndexError``, ``UnknownColumnError`` and ``InvalidArgumentError``.
        """
        train = more.pop("train", None)
        plan = self._vector_plan(locals())
        snapshot = vector_indices.create_vector_index(self.snapshot, plan, train=train is None or flag("train", train))
        self.moved(snapshot)
        return self._beside(Snapshot(snapshot.store, snapshot.manifest, snapshot.runtime, index_cache_size))

    def _vector_plan(self, named: Mapping[str, Any]) -> vector_indices.VectorIndexPlan:
        """Plan a vector index, given the local variables of :meth:`create_index`."""
        names = ("name", "replace", "num_partitions", "num_sub_vectors", "ivf_centroids")
        options = {name: named[name] for name in names}
        checked = vector_indices.checked_options(named["more"], named["metric"], named["accelerator"])
        return vector_indices.plan_index(self.snapshot, named["column"], named["index_type"], **options, **checked)

    def create_index_uncommitted(
        self,
        column: str | Sequence[str],
        index_type: str | IndexConfig,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        *,
        fragment_ids: Sequence[int] | None = None,
        **more: Any,
    ) -> Index:
        """Build an index segment for some fragments without a commit.

        Parameters
        ----------
        column, index_type, name: column, kind and name of the index, scalar or vector.
        metric, replace, num_partitions, ivf_centroids, pq_codebook, num_sub_vectors, accelerator: see
            :meth:`create_index`.  Segments that will be merged need the same centroids and codebook.
        fragment_ids: fragments to index; required.
        more: options of :meth:`create_index` and :meth:`create_scalar_index`.

        Raises ``InvalidArgumentError`` and its subclasses.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3, 4]}), "memory://doc-lance-segments", max_rows_per_file=2)
        >>> segments = [ds.create_index_uncommitted("a", "BTREE", fragment_ids=[id]) for id in (0, 1)]
        >>> ds = ds.commit_existing_index_segments("a_idx", "a", segments)
        >>> [(index.name, len(index.segments), index.num_rows_indexed) for index in ds.describe_indices()]
        [('a_idx', 2, 4)]
        """
        if fragment_ids is None:
            raise InvalidArgumentError("fragment_ids is required", help="pass the ids of the fragments to index")
        if more.pop("index_uuid", None) is not None:
            raise InvalidArgumentError("index_uuid is no longer supported", help="leave it out: trilake chooses the id")
        index_type, rows_per_zone = _kind(index_type, more)
        column = vector_indices.only_column(column)
        if index_type.upper().startswith("IVF"):
            more["pq_codebook"] = pq_codebook
            return Index.of(index_segments.build_vector(self.snapshot, self._vector_plan(locals()), fragment_ids))
        check_format(more, of="a scalar index")
        built = index_segments.build_scalar(self.snapshot, column, index_type, name, fragment_ids, rows_per_zone)
        return Index.of(built)

    def merge_existing_index_segments(self, segments: Sequence[Index]) -> Index:
        """Build one segment for the fragments of ``segments``, without a commit.

        Raises ``InvalidArgumentError`` if their columns or kinds differ, or if they share a fragment.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3, 4]}), "memory://doc-lance-merge-parts", max_rows_per_file=2)
        >>> segments = [ds.create_index_uncommitted("a", "BITMAP", fragment_ids=[id]) for id in (0, 1)]
        >>> ds.merge_existing_index_segments(segments).fragment_ids
        {0, 1}
        """
        return Index.of(index_segments.merge(self.snapshot, [s.entry() for s in segments]))

    def commit_existing_index_segments(self, index_name: str, column: str, segments: Sequence[Index]) -> Self:
        """Commit segments as the index ``index_name`` of ``column``, replacing an index of that name.

        ``segments`` are results of :meth:`create_index_uncommitted` and :meth:`merge_existing_index_segments`.  Raises
        ``InvalidArgumentError``, and ``ConflictError`` if their rows have moved or changed.

        >>> ds = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-lance-commit-segments")
        >>> segment = ds.create_index_uncommitted("a", "ZONEMAP", fragment_ids=[0])
        >>> ds.commit_existing_index_segments("a_idx", "a", [segment]).list_indices()[0]["type"]
        'ZoneMap'
        """
        self.moved(index_segments.commit(self.snapshot, index_name, column, [s.entry() for s in segments]))
        return self

    def drop_index(self, name: str) -> None:
        """Drop the index ``name``.  Raises ``UnknownIndexError``."""
        self.moved(indices.drop_index(self.snapshot, name))

    def list_indices(self) -> list[dict[str, Any]]:
        """List the indices: ``name``, ``type``, ``uuid``, ``fields``, ``version``, ``fragment_ids`` and ``base_id``.

        The type is ``BTree``, ``Bitmap``, ``IVF_PQ`` or similar.
        """
        return indices.list_indices(self.snapshot)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """Return statistics of the index ``index_name``.  Deprecated in favor of ``stats.index_stats``.

        Raises ``UnknownIndexError``.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-index-statistics")
        >>> ds.create_scalar_index("a", name="numbers")
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # that there is another name
        ...     statistics = ds.index_statistics("numbers")
        >>> statistics["index_type"]
        'BTree'
        """
        warnings.warn("use LanceDataset.stats.index_stats() instead", DeprecationWarning, stacklevel=2)
        return indices.own_statistics(self.snapshot, index_name)

    @property
    def has_index(self) -> bool:
        """Whether the dataset has an index."""
        return bool(self.snapshot.manifest.indices)

    def describe_indices(self) -> list[IndexDescription]:
        """Describe the indices, including the number of rows that each one covers."""
        names = dict.fromkeys(index.name for index in self.snapshot.manifest.indices if not index.is_note)
        return [IndexDescription.of(self.snapshot, name) for name in names]

    def prewarm_index(
        self, name: str, *, with_position: bool = False, index_segments: Iterable[str | UUID] | None = None
    ) -> None:
        """Load the index ``name`` into the cache.

        ``index_segments`` are the ids of the segments to load, by default all; ``with_position`` has no effect.  Raises
        ``UnknownIndexError``, a ``KeyError``.
        """
        flag("with_position", with_position)
        segments = None if index_segments is None else {str(segment) for segment in index_segments}
        indices.prewarm(self.snapshot, name, segments)

    def centroids(self, *, index_name: str | None = None, column: str | None = None) -> pa.FixedSizeListArray:
        """Return the partition centroids of a vector index, by index name or column.

        Parameters
        ----------
        index_name, column: name of the index, or its column; pass one of them.

        Raises ``UnknownIndexError``, a ``KeyError``.
        """
        return indices.centroids(self.snapshot, index_name, column)

    # --- maintenance -------------------------------------------------------------------------------------------------

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compact files and optimize indices."""
        return DatasetOptimizer(self)

    def migrate(self, data_storage_version: str = "stable") -> None:
        """Rewrite all rows in the file version ``data_storage_version``, as one commit.

        Older versions keep their files; indices are dropped.

        >>> ds = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-lance-migrate", data_storage_version="legacy")
        >>> ds.migrate()
        >>> ds.data_storage_version, ds.count_rows()
        ('2.2', 2)
        """
        self.moved(migrate(self.snapshot, StorageVersion.parse(data_storage_version)))

    def migrate_manifest_paths_v2(self) -> None:
        """Rename manifests to the v2 naming scheme; other writers must be stopped.

        >>> ds = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-names", enable_v2_manifest_paths=False)
        >>> ds.migrate_manifest_paths_v2()
        >>> ds.checkout_version(1).count_rows()
        1
        """
        migrate_manifest_names(self.snapshot.store)

    def cleanup_old_versions(
        self,
        older_than: dt.timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        **later: Any,
    ) -> CleanupStats:
        """Delete versions older than ``older_than``, by default two weeks, and the files that only they reference.

        Parameters
        ----------
        older_than: minimum age of versions to delete.
        retain_versions: number of newest versions to keep regardless of age; without ``older_than``, all others are
            deleted.
        delete_unverified: delete unreferenced files even if younger than a week; unsafe while other writers are active.
        error_if_tagged_old_versions: whether a tag on an old version is an error; otherwise the version is kept.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``WrongTypeError`` if ``older_than`` is not a timedelta.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-cleanup")
        >>> _ = ds.delete("a > 1")
        >>> ds.cleanup_old_versions(retain_versions=1).old_versions
        1
        """
        return self._cleanup(locals()).stats

    def _cleanup(self, named: Mapping[str, Any], *, dry_run: bool = False) -> CleanupPlan:
        """Clean up, given the local variables of :meth:`cleanup_old_versions`."""
        check_format(named["later"], of="cleanup_old_versions")
        older_than, retain_versions = named["older_than"], named["retain_versions"]
        retain = 1 if retain_versions is None else count("retain_versions", retain_versions)
        if retain < 1:
            raise OptionError(f"retain_versions must be greater than 0, got {retain}")
        age = dt.timedelta(days=14 if retain_versions is None else 0) if older_than is None else older_than
        if not isinstance(age, dt.timedelta):
            raise WrongTypeError(f"older_than must be a datetime.timedelta, got {older_than!r}")
        unverified, tagged = (flag(n, named[n]) for n in ("delete_unverified", "error_if_tagged_old_versions"))
        return cleanup(
            self.snapshot.store,
            int(age.total_seconds() * 1000),
            self.snapshot.runtime,
            retain=retain,
            delete_unverified=unverified,
            error_if_tagged=tagged,
            dry_run=dry_run,
        )

    def explain_cleanup_old_versions(
        self,
        older_than: dt.timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        include_files: bool = False,
        max_files: int = 1000,
        **later: Any,
    ) -> CleanupExplanation:
        """Explain what :meth:`cleanup_old_versions` would delete.

        With ``include_files``, the result has up to ``max_files`` files.  Other parameters and errors are those of
        :meth:`cleanup_old_versions`.

        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-explain-cleanup")
        >>> _ = ds.delete("a > 1")
        >>> plan = ds.explain_cleanup_old_versions(retain_versions=1, include_files=True)
        >>> plan.stats.old_versions, [file.kind for file in plan.candidate_files]
        (1, ['transaction file', 'manifest'])
        """
        if count("max_files", max_files) < 1:
            raise InvalidArgumentError(f"max_files must be positive, got {max_files}")
        plan = self._cleanup(locals(), dry_run=True)
        return plan.explanation(self.version, max_files if flag("include_files", include_files) else 0)

    @staticmethod
    def drop(
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Delete a dataset with all its files; other files below its path are kept.

        Parameters
        ----------
        base_uri: path or URI of the dataset.
        storage_options: options of the object store.
        ignore_not_found: whether to ignore a missing dataset.

        Raises ``TableNotFoundError``, also for a folder with other files, and ``CorruptLogError``.

        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-drop")
        >>> LanceDataset.drop("memory://doc-lance-drop")
        >>> LanceDataset.drop("memory://doc-lance-drop", ignore_not_found=True)
        """
        ignored = ignore_not_found is not None and flag("ignore_not_found", ignore_not_found)
        store = open_store(base_uri, dict(storage_options or {}))
        if not ignored or next(iter(store.list()), None) is not None:
            drop(store)

    # --- commits of distributed jobs ---------------------------------------------------------------------------------

    @staticmethod
    def commit(
        base_uri: str | os.PathLike[str] | LanceDataset,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: Any = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        **later: Any,
    ) -> LanceDataset:
        """Commit the result of a distributed job.

        Parameters
        ----------
        base_uri: path, URI or open dataset; an overwrite may create it.
        operation: a :class:`~trilake.lance.pylance.operation.LanceOperation`, or a
            :class:`~trilake.lance.pylance.operation.Transaction`, which includes its read version.
        read_version: version that the job read; optional for overwrites and restores.
        commit_lock: lock for the commit; see :class:`LanceDataset`.
        storage_options: credentials, region and endpoint of the object store.
        later: options of newer pylance releases; raises for unsupported ones.  With ``max_retries=0``, an overwrite
            raises if the dataset has changed since ``read_version``.  ``detached=True`` creates a version that can only
            be opened by its number, and may be based on another detached version.

        Raises ``ReadVersionMissingError`` without a read version, and ``ConflictError``.

        >>> from trilake.lance import write_fragments
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-commit")
        >>> fragments = write_fragments(pa.table({"a": [2, 3]}), "memory://doc-lance-commit")
        >>> done = LanceDataset.commit("memory://doc-lance-commit", LanceOperation.Append(fragments), read_version=1)
        >>> done.version, done.count_rows()
        (2, 3)
        """
        store, where = place_of(base_uri, storage_options)
        snapshot = commits.commit(store, operation, read_version, runtime_with(commit_lock), later)
        return LanceDataset.of(Snapshot(store, snapshot.manifest, runtime_with(None)), where)

    @staticmethod
    def commit_batch(
        dest: str | os.PathLike[str] | LanceDataset,
        transactions: Sequence[Transaction],
        commit_lock: Any = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        **later: Any,
    ) -> dict[str, Any]:
        """Commit several appends as one version; returns ``dataset`` and the ``merged`` transaction.

        Parameters
        ----------
        dest: path, URI or open dataset.
        transactions: the appends.
        commit_lock, storage_options, later: see :meth:`commit`.

        Raises ``InvalidArgumentError`` for transactions with other operations.

        >>> from trilake.lance import write_fragments
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-batch")
        >>> tables = [pa.table({"a": [n]}) for n in (2, 3)]
        >>> appends = [write_fragments(t, "memory://doc-lance-batch", return_transaction=True) for t in tables]
        >>> LanceDataset.commit_batch("memory://doc-lance-batch", appends)["dataset"].count_rows()
        3
        """
        one = commits.merged(transactions)
        done = LanceDataset.commit(dest, one, None, commit_lock, storage_options=storage_options, **later)
        return {"dataset": done, "merged": one}

    @staticmethod
    def _commit(
        base_uri: str | os.PathLike[str] | LanceDataset,
        operation: LanceOperation.BaseOperation,
        read_version: int | None = None,
        commit_lock: Any = None,
    ) -> LanceDataset:
        """Deprecated alias of :meth:`commit`."""
        warnings.warn("use LanceDataset.commit() instead of _commit()", DeprecationWarning, stacklevel=2)
        return LanceDataset.commit(base_uri, operation, read_version, commit_lock)

    # --- other methods of pyarrow.dataset.Dataset, mostly in memory --------------------------------------------------

    def replace_schema(self, schema: pa.Schema) -> pa.dataset.Dataset:
        """Cast the rows to ``schema``, in memory."""
        return pa.dataset.dataset(self.to_table(columns=schema.names).cast(schema))

    def filter(self, expression: pc.Expression) -> pa.dataset.Dataset:
        """Filter by a pyarrow ``expression``, in memory."""
        return pa.dataset.dataset(self.to_table(filter=expression))

    def sort_by(self, sorting: Any, **more: Any) -> pa.dataset.Dataset:
        """Sort the rows in memory; ``sorting`` and ``more`` are those of pyarrow's ``Table.sort_by``."""
        return pa.dataset.dataset(self.to_table().sort_by(sorting, **more))

    def join(self, right_dataset: Any, keys: Any, *args: Any, **more: Any) -> pa.dataset.Dataset:
        """Join the dataset or table ``right_dataset``, in memory.

        ``keys``, ``args`` and ``more`` are those of pyarrow's ``Table.join``.
        """
        right = right_dataset.to_table() if isinstance(right_dataset, pa.dataset.Dataset) else right_dataset
        return pa.dataset.dataset(self.to_table().join(right, keys, *args, **more))

    def join_asof(self, right_dataset: Any, on: str, by: Any, tolerance: int, **more: Any) -> pa.dataset.Dataset:
        """Join the nearest rows of the dataset or table ``right_dataset``, in memory.

        ``on``, ``by``, ``tolerance`` and ``more`` are those of pyarrow's ``Table.join_asof``.
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


def _kind(index_type: str | IndexConfig, options: dict[str, Any]) -> tuple[str, int | None]:
    """Return the name of the kind, and the rows per zone, which are removed from ``options``."""
    if isinstance(index_type, IndexConfig):
        options.update(index_type.parameters)
        index_type = index_type.index_type
    rows_per_zone = options.pop("rows_per_zone", None)
    if rows_per_zone is not None:
        count("rows_per_zone", rows_per_zone, least=1, other_type=WrongTypeError)
    return str(index_type), rows_per_zone


def _layout(options: dict[str, Any], *, of: str) -> dict[str, Any]:
    """Translate option names to those of ``WriteOptions``; raises for unknown ones."""
    layout = {name: options.pop(name) for name in WRITE_OPTIONS if name in options}
    layout |= {**format_of(options), "properties": properties_of(options)}
    check_format(options, of=of)
    return layout


def _version_row(manifest: Manifest) -> dict[str, Any]:
    return {"version": manifest.version, "timestamp": local_time(manifest.timestamp_ns), "metadata": {}}


def _reopen(
    uri: str, version: int, options: dict[str, str], scan_options: dict[str, Any], nulls: NullPolicy
) -> LanceDataset:
    return LanceDataset(uri, version, storage_options=options, default_scan_options=scan_options, nulls=nulls)


def dataset(
    uri: str | os.PathLike[str],
    version: Reference = None,
    asof: dt.datetime | str | None = None,
    block_size: int | None = None,
    commit_lock: Any = None,
    index_cache_size: int | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    nulls: NullPolicy = "error",
    **later: Any,
) -> LanceDataset:
    """Open a dataset.

    Parameters
    ----------
    uri: a path, a ``file:`` or object store URI (``s3://``), or ``memory://name``.
    version: number or tag, by default the newest version.
    asof: open the version that was current at this time, local time if naive; excludes ``version``.
    block_size: accepted for compatibility.
    commit_lock, index_cache_size, storage_options, default_scan_options, nulls: see :class:`LanceDataset`.
    later: options of newer pylance releases; raises for unsupported ones.

    Raises ``TableNotFoundError`` and ``VersionNotFoundError``.

    >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-dataset")
    >>> _ = write_dataset(pa.table({"a": [2]}), "memory://doc-lance-dataset", mode="append")
    >>> [dataset("memory://doc-lance-dataset", version=version).count_rows() for version in (None, 1)]
    [2, 1]
    """
    del block_size
    check_format(later, of="dataset")
    if version is not None and asof is not None:
        raise InvalidArgumentError("version and asof cannot be used together", help="pass only one of them")
    opened = LanceDataset(
        uri,
        version,
        index_cache_size=index_cache_size,
        commit_lock=commit_lock,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
        nulls=nulls,
    )
    if asof is None:
        return opened
    limit = sanitize_ts(asof)
    before = [v["version"] for v in opened.versions() if v["timestamp"] < limit]
    if not before:
        raise DatasetVersionNotFoundError(
            f"asof is {limit}, which is before the first version of this dataset", file=os.fspath(uri)
        )
    return opened.checkout_version(max(before))


def write_dataset(
    data_obj: Any,
    uri: str | os.PathLike[str] | LanceDataset,
    schema: pa.Schema | None = None,
    mode: Mode = "create",
    *,
    max_rows_per_file: int = 1 << 20,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = 90 << 30,
    commit_lock: Any = None,
    progress: Any = None,
    nulls: NullPolicy = "error",
    storage_options: Mapping[str, str] | None = None,
    **later: Any,
) -> LanceDataset:
    """Write rows as a new version.

    Parameters
    ----------
    data_obj: see :func:`trilake.lance.commands.input_rows.stream`.
    uri: path, URI, or an open dataset.
    schema: schema of the rows, if the input has none.
    mode: ``"create"`` fails if the dataset exists, ``"append"`` adds rows, ``"overwrite"`` replaces all rows.
    max_rows_per_file, max_rows_per_group, max_bytes_per_file, nulls: see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.
    commit_lock: lock for the commit; see :class:`LanceDataset`.
    progress: an object with methods ``begin(fragment)`` and ``complete(fragment)``.
    storage_options: credentials, region and endpoint of the object store.
    later: for new datasets ``data_storage_version`` (``"2.2"``, the default and ``"stable"``; ``"2.1"``, ``"2.0"`` or
        ``"legacy"``), ``enable_v2_manifest_paths``, ``enable_stable_row_ids``, ``auto_cleanup_options`` (see
        :mod:`trilake.lance.cleanup`) and ``initial_bases``, a list of
        :class:`~trilake.lance.pylance.operation.DatasetBasePath`.  For all writes ``target_bases`` or
        ``target_all_bases`` (see :class:`~trilake.lance.commands.fragment_writer.WriteOptions`), ``commit_message``,
        ``transaction_properties``, ``external_blob_mode`` (``"ingest"`` copies blobs given by URI) and
        ``allow_external_blob_outside_bases``; by default the URIs of blobs must be below a base.

    Raises ``TableExistsError``, ``SchemaMismatchError``, ``ConflictError`` or ``WriteFailedError``.

    >>> write_dataset(pa.table({"a": [1]}), "memory://doc-write-lance", mode="overwrite").count_rows()
    1
    """
    if not isinstance(mode, str):
        raise WrongTypeError(f"mode must be create, append or overwrite, got {mode!r}")
    format, properties = format_of(later), properties_of(later)
    config, bases = config_of(later.pop("auto_cleanup_options", None)), base_paths(later.pop("initial_bases", None))
    check_format(later, of="write_dataset")
    runtime = runtime_with(commit_lock)
    store, where = place_of(uri, storage_options)
    options = WriteOptions(
        max_rows_per_file,
        max_rows_per_group,
        max_bytes_per_file,
        nulls,
        properties=properties,
        config=config,
        bases=bases,
        partial=True,
        **format,
    )
    reporter = None if progress is None else Reporter(progress)
    snapshot = _written(store, data_obj, schema, cast(Mode, mode.lower()), runtime, options, reporter)
    return LanceDataset.of(Snapshot(store, snapshot.manifest, runtime_with(None)), where, nulls)


def _written(
    store: Store,
    data: Any,
    schema: pa.Schema | None,
    mode: Mode,
    runtime: Runtime,
    options: WriteOptions,
    progress: Reporter | None = None,
) -> Snapshot:
    rows_schema, batches = input_rows.stream(data, schema)
    input_rows.check_metadata(rows_schema)
    snapshot = write(store, rows_schema, batches, mode, runtime, options, progress=progress)
    after_commit(snapshot)
    return snapshot
