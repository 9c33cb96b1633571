"""``LanceDataset``: a Lance dataset at one version, with the API of pylance, and functions that open and write one.

A call that commits moves the object to the new version; other open objects keep their version.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.cleanup import config_of, drop
from trilake.lance.commands import input_rows
from trilake.lance.commands.format_options import check_format, format_of, properties_of
from trilake.lance.commands.fragment_writer import NullPolicy, Reporter, WriteOptions, check_nulls
from trilake.lance.commands.open_dataset import place_of
from trilake.lance.commands.write import Mode
from trilake.lance.commit import runtime_with
from trilake.lance.file.errors import DatasetVersionNotFoundError, WrongTypeError
from trilake.lance.fragment import LanceFragment
from trilake.lance.optimize import DatasetOptimizer
from trilake.lance.pylance import commits
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.pylance.catalog import located
from trilake.lance.pylance.dataset_changes import DatasetChanges, written
from trilake.lance.pylance.dataset_indices import DatasetIndices
from trilake.lance.pylance.dataset_metadata import DatasetMetadata
from trilake.lance.pylance.dataset_part import of_part
from trilake.lance.pylance.dataset_rows import DatasetRows
from trilake.lance.pylance.dataset_upkeep import DatasetUpkeep
from trilake.lance.pylance.operation import LanceOperation, Transaction, base_paths
from trilake.lance.pylance.scanner import LanceScanner, Scannable, ScannerBuilder
from trilake.lance.pylance.sql_query import SqlQueryBuilder
from trilake.lance.pylance.stats import LanceStats
from trilake.lance.pylance.tags import Branches, Line, Reference, Tags
from trilake.lance.scan.ordering import ColumnOrdering
from trilake.lance.scan.parse_sql import PylanceSql
from trilake.lance.scan.projection import ColumnsLike
from trilake.lance.scan.scan import candidate_groups
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.schema import LanceSchema
from trilake.lance.util import local_time, sanitize_ts
from trilake.lance.versions import transaction
from trilake.lance.versions.branches import TREE, clone, create_branch
from trilake.lance.versions.manifest import Manifest
from trilake.lance.versions.operations import Restore
from trilake.lance.versions.versions import check_new_location, list_versions
from trilake.storage import open_store
from trilake.table.table import FilterLike


class LanceDataset(Scannable, pa.dataset.Dataset):
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
    def initial_storage_options(self) -> dict[str, str] | None:
        """Options with which the object store was opened; ``None`` without any."""
        return dict(self.snapshot.store.options) or None

    def latest_storage_options(self) -> dict[str, str] | None:
        """Return the options of the object store, which trilake does not renew.

        Example
        -------
        >>> print(write_dataset(pa.table({"a": [1]}), "memory://doc-options").latest_storage_options())
        None
        """
        return self.initial_storage_options

    #: pylance's private name, which lance-ray reads.
    _storage_options = initial_storage_options

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

    @property
    def metadata(self) -> dict[str, str]:
        """Return the metadata of the table."""
        return DatasetMetadata(self).of_table()

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Return the metadata of the schema."""
        return DatasetMetadata(self).of_schema()

    @property
    def stats(self) -> LanceStats:
        """Statistics of the dataset and its indices."""
        return LanceStats(self)

    @property
    def has_index(self) -> bool:
        """Whether the dataset has an index."""
        return bool(self.snapshot.manifest.indices)

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compact files and optimize indices."""
        return DatasetOptimizer(self)

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
        """List all versions, oldest first: ``version``, ``timestamp`` (naive local time) and ``metadata``.

        The metadata are numbers of rows, files and bytes, as strings.
        """
        store = self.snapshot.store
        listing = list_versions(store)
        manifests = transaction.read_manifests(store, listing, listing.versions)
        return [_version_row(manifest) for manifest in manifests if manifest is not None]

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
        check_new_location(target)
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
            return self.snapshot.count(PylanceSql.of(filter))
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
        reader = self.snapshot.by_id.get(fragment_id)
        return None if reader is None else LanceFragment(self, None, fragment=reader)

    # --- methods of the parts ----------------------------------------------------------------------------------------

    take = of_part(DatasetRows, DatasetRows.take)
    _take_rows = of_part(DatasetRows, DatasetRows._take_rows)
    take_blobs = of_part(DatasetRows, DatasetRows.take_blobs)
    read_blobs = of_part(DatasetRows, DatasetRows.read_blobs)
    read_blob_ranges = of_part(DatasetRows, DatasetRows.read_blob_ranges)
    sample = of_part(DatasetRows, DatasetRows.sample)

    insert = of_part(DatasetChanges, DatasetChanges.insert)
    delete = of_part(DatasetChanges, DatasetChanges.delete)
    truncate_table = of_part(DatasetChanges, DatasetChanges.truncate_table)
    update = of_part(DatasetChanges, DatasetChanges.update)
    merge_insert = of_part(DatasetChanges, DatasetChanges.merge_insert)
    merge = of_part(DatasetChanges, DatasetChanges.merge)
    add_columns = of_part(DatasetChanges, DatasetChanges.add_columns)
    drop_columns = of_part(DatasetChanges, DatasetChanges.drop_columns)
    alter_columns = of_part(DatasetChanges, DatasetChanges.alter_columns)

    config = of_part(DatasetMetadata, DatasetMetadata.config)
    update_config = of_part(DatasetMetadata, DatasetMetadata.update_config)
    delete_config_keys = of_part(DatasetMetadata, DatasetMetadata.delete_config_keys)
    update_metadata = of_part(DatasetMetadata, DatasetMetadata.update_metadata)
    update_schema_metadata = of_part(DatasetMetadata, DatasetMetadata.update_schema_metadata)
    replace_schema_metadata = of_part(DatasetMetadata, DatasetMetadata.replace_schema_metadata)
    update_field_metadata = of_part(DatasetMetadata, DatasetMetadata.update_field_metadata)
    replace_field_metadata = of_part(DatasetMetadata, DatasetMetadata.replace_field_metadata)
    base_paths = of_part(DatasetMetadata, DatasetMetadata.base_paths)
    add_bases = of_part(DatasetMetadata, DatasetMetadata.add_bases)

    create_scalar_index = of_part(DatasetIndices, DatasetIndices.create_scalar_index)
    create_index = of_part(DatasetIndices, DatasetIndices.create_index)
    create_index_uncommitted = of_part(DatasetIndices, DatasetIndices.create_index_uncommitted)
    merge_existing_index_segments = of_part(DatasetIndices, DatasetIndices.merge_existing_index_segments)
    commit_existing_index_segments = of_part(DatasetIndices, DatasetIndices.commit_existing_index_segments)
    drop_index = of_part(DatasetIndices, DatasetIndices.drop_index)
    list_indices = of_part(DatasetIndices, DatasetIndices.list_indices)
    index_statistics = of_part(DatasetIndices, DatasetIndices.index_statistics)
    describe_indices = of_part(DatasetIndices, DatasetIndices.describe_indices)
    prewarm_index = of_part(DatasetIndices, DatasetIndices.prewarm_index)
    centroids = of_part(DatasetIndices, DatasetIndices.centroids)

    migrate = of_part(DatasetUpkeep, DatasetUpkeep.migrate)
    migrate_manifest_paths_v2 = of_part(DatasetUpkeep, DatasetUpkeep.migrate_manifest_paths_v2)
    cleanup_old_versions = of_part(DatasetUpkeep, DatasetUpkeep.cleanup_old_versions)
    explain_cleanup_old_versions = of_part(DatasetUpkeep, DatasetUpkeep.explain_cleanup_old_versions)

    # --- create, drop and commit -------------------------------------------------------------------------------------

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


def _version_row(manifest: Manifest) -> dict[str, Any]:
    files = [file for fragment in manifest.fragments for file in fragment.files]
    deletions = [fragment.deletion_file for fragment in manifest.fragments if fragment.deletion_file]
    rows = sum(fragment.physical_rows for fragment in manifest.fragments)
    deleted = sum(file.num_deleted_rows for file in deletions)
    totals = {
        "total_data_file_rows": rows,
        "total_data_files": len(files),
        "total_deletion_file_rows": deleted,
        "total_deletion_files": len(deletions),
        "total_files_size": sum(file.size_bytes for file in files),
        "total_fragments": len(manifest.fragments),
        "total_rows": rows - deleted,
    }
    metadata = {name: str(total) for name, total in totals.items()}
    return {"version": manifest.version, "timestamp": local_time(manifest.timestamp_ns), "metadata": metadata}


def _reopen(
    uri: str, version: int, options: dict[str, str], scan_options: dict[str, Any], nulls: NullPolicy
) -> LanceDataset:
    return LanceDataset(uri, version, storage_options=options, default_scan_options=scan_options, nulls=nulls)


def dataset(
    uri: str | os.PathLike[str] | None = None,
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
    later: options of newer pylance releases, such as ``namespace_client`` and ``table_id`` instead of ``uri`` (see
        :func:`trilake.lance.pylance.catalog.located`); raises for unsupported ones.

    Raises ``TableNotFoundError`` and ``VersionNotFoundError``.

    >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-dataset")
    >>> _ = write_dataset(pa.table({"a": [2]}), "memory://doc-lance-dataset", mode="append")
    >>> [dataset("memory://doc-lance-dataset", version=version).count_rows() for version in (None, 1)]
    [2, 1]
    """
    del block_size
    uri, storage_options = located(uri, storage_options, later)
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
    uri: str | os.PathLike[str] | LanceDataset | None = None,
    schema: pa.Schema | None = None,
    mode: Mode | None = "create",
    *,
    max_rows_per_file: int | None = 1 << 20,
    max_rows_per_group: int | None = 1024,
    max_bytes_per_file: int | None = 90 << 30,
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
    uri: path, URI, or an open dataset; or pass ``namespace_client`` and ``table_id`` (see
        :func:`trilake.lance.pylance.catalog.located`).
    schema: schema of the rows, if the input has none.
    mode: ``"create"`` (or ``None``) fails if the dataset exists, ``"append"`` adds rows, ``"overwrite"`` replaces all
        rows.
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
    mode = "create" if mode is None else mode
    if not isinstance(mode, str):
        raise WrongTypeError(f"mode must be create, append or overwrite, got {mode!r}")
    uri, storage_options = located(uri, storage_options, later, create=mode.lower() == "create")
    format, properties = format_of(later), properties_of(later)
    config, bases = config_of(later.pop("auto_cleanup_options", None)), base_paths(later.pop("initial_bases", None))
    check_format(later, of="write_dataset")
    runtime = runtime_with(commit_lock)
    store, where = place_of(uri, storage_options)
    options = WriteOptions.of(
        max_rows_per_file=max_rows_per_file,
        max_rows_per_group=max_rows_per_group,
        max_bytes_per_file=max_bytes_per_file,
        nulls=nulls,
        properties=properties,
        config=config,
        bases=bases,
        **format,
    )
    reporter = None if progress is None else Reporter(progress)
    snapshot = written(store, data_obj, schema, cast(Mode, mode.lower()), runtime, options, reporter)
    return LanceDataset.of(Snapshot(store, snapshot.manifest, runtime_with(None)), where, nulls)
