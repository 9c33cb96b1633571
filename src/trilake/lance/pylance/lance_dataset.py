"""``LanceDataset``: a dataset at one version, and everything that can be done with it; also a dataset of Arrow's.

Names, arguments and results are those that users of the format know.  A call that commits leaves the object at the
version it made; others that are open stay where they are.
"""

from __future__ import annotations

import datetime as dt
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from trilake.arguments import count, flag
from trilake.lance import cleanup
from trilake.lance.cleanup import CleanupStats
from trilake.lance.commands import columns as column_changes
from trilake.lance.commands import delete, indices, input_rows, joins, update, vector_indices, write
from trilake.lance.commands.format_options import check_format
from trilake.lance.commands.fragment_writer import WRITE_OPTIONS, NullPolicy, WriteOptions, check_nulls
from trilake.lance.commands.open_dataset import place_of
from trilake.lance.commands.replan import Retries
from trilake.lance.commit import runtime_with
from trilake.lance.file.errors import ReadVersionMissingError, UnsupportedIndexError, WrongTypeError
from trilake.lance.optimize import DatasetOptimizer
from trilake.lance.pylance import transactions
from trilake.lance.pylance.later_names import LaterNames
from trilake.lance.pylance.merge_builder import MergeBuilder
from trilake.lance.pylance.operation import LanceOperation
from trilake.lance.pylance.sql_query import SqlQueryBuilder
from trilake.lance.pylance.stats import LanceStats
from trilake.lance.pylance.tags import Reference, Tags, numbered
from trilake.lance.pylance.transactions import Transaction, merged
from trilake.lance.pylance.udf import BatchUDF
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.util import local_time
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import parse_manifest
from trilake.lance.versions.operations import Restore
from trilake.lance.versions.versions import list_versions
from trilake.storage import open_store
from trilake.table import FilterLike


class LanceDataset(LaterNames):
    """A dataset at one version.

    Parameters
    ----------
    uri: where it is.
    version: its number, or the name of a tag; the newest by default.
    block_size, metadata_cache_size: accepted for other implementations' sake.
    index_cache_size: how many entries of indices are kept open: whole ones, and partitions of those of vectors; 256 by
        default.
    commit_lock: a function of a version that gives a context manager, which is held while that version is committed.
        No store needs one: each decides who wins.
    storage_options: credentials, region and endpoint of an object store.
    default_scan_options: options of :meth:`scanner` by name, which scans have unless they say another value.
    nulls: what becomes of nulls that the format cannot hold, in changes by this object; see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``CorruptLogError`` or ``UnsupportedProtocolError``.

    >>> from trilake.lance import write_dataset
    >>> made = write_dataset(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}), "memory://doc-lance", mode="overwrite")
    >>> made.delete("a = 2")
    {'num_deleted_rows': 1}
    >>> made.version, made.to_table(filter="a > 1").to_pylist()
    (2, [{'a': 3, 'b': 'z'}])
    """

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
        self._open(uri, version, dict(storage_options or {}), nulls, index_cache_size, commit_lock)
        self._set_scan_options(default_scan_options)

    def _open(
        self,
        uri: str | os.PathLike[str],
        version: Reference,
        options: dict[str, str],
        nulls: NullPolicy,
        index_cache_size: int | None = None,
        commit_lock: Any = None,
    ) -> None:
        check_nulls(nulls)
        self._uri, self._options, self.nulls = os.fspath(uri), options, nulls
        store = open_store(uri, options)
        self.snapshot = Snapshot.open(store, runtime_with(commit_lock), numbered(store, version), index_cache_size)

    @classmethod
    def of(cls, snapshot: Snapshot, uri: str | os.PathLike[str], nulls: NullPolicy = "error") -> LanceDataset:
        """A dataset that is open already."""
        dataset = cls.__new__(cls)
        dataset._uri, dataset._options, dataset.nulls = os.fspath(uri), dict(snapshot.store.options), nulls
        dataset.snapshot = snapshot
        return dataset

    def _beside(self, snapshot: Snapshot) -> LanceDataset:
        """The dataset at another version, or with other caches, as another object."""
        other = LanceDataset.of(snapshot, self._uri, self.nulls)
        other._scan_options = self._scan_options
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._uri, self.version, self._options, self.nulls, dict(self._scan_options))

    def __getstate__(self) -> tuple[Any, ...]:
        return self._uri, self.version, self._options, self.nulls

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._open(*state)

    def __repr__(self) -> str:
        return f"LanceDataset({self._uri!r}, version={self.version})"

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version it shows."""
        return self.snapshot.version

    @property
    def latest_version(self) -> int:
        """The newest version that there is."""
        return list_versions(self.snapshot.store).latest

    @property
    def tags(self) -> Tags:
        """The tags of the dataset."""
        return Tags(self.snapshot)

    def versions(self) -> list[dict[str, Any]]:
        """All versions, oldest first: ``version``, ``timestamp`` (local time without a zone) and ``metadata``."""
        store = self.snapshot.store
        listing = list_versions(store)
        keys = [listing.key(v) for v in listing.versions]
        rows = []
        for version, key, data in zip(listing.versions, keys, store.read_many(keys)):
            manifest = parse_manifest(data, file=f"{store.uri}/{key}", version=version)
            rows.append({"version": version, "timestamp": local_time(manifest.timestamp_ns), "metadata": {}})
        return rows

    def checkout_version(self, version: Reference) -> LanceDataset:
        """Another version of the dataset, by number or tag, as another object; ``("main", number)`` is a number."""
        store = self.snapshot.store
        return self._beside(self.snapshot.at(transaction.load(store, numbered(store, version))))

    def checkout_latest(self) -> None:
        """Show the newest version from now on."""
        self.moved(self.snapshot.at(transaction.load(self.snapshot.store)))

    # --- rows --------------------------------------------------------------------------------------------------------

    def insert(self, data: Any, *, mode: write.Mode = "append", **options: Any) -> None:
        """Add rows, or with ``mode="overwrite"`` put them in the place of all.

        Parameters
        ----------
        data: see :func:`trilake.lance.commands.input_rows.stream`; ``schema`` may be among the options.
        options: of :class:`~trilake.lance.commands.fragment_writer.WriteOptions`; ``nulls`` is this object's otherwise.
            What :func:`trilake.lance.pylance.functions.write_dataset` knows of the format may be said, too.
        """
        schema, batches = input_rows.stream(data, options.pop("schema", None))
        input_rows.check_metadata(schema)
        layout = {name: options.pop(name) for name in WRITE_OPTIONS if name in options}
        check_format(options, of="insert")
        wanted = WriteOptions(**{"nulls": self.nulls, **layout})
        self.moved(write.write(self.snapshot.store, schema, batches, mode, self.snapshot.runtime, wanted))

    def delete(
        self,
        predicate: FilterLike,
        *,
        conflict_retries: int | None = None,
        retry_timeout: dt.timedelta | None = None,
    ) -> dict[str, int]:
        """Delete the rows for which a condition is true; their number, as ``num_deleted_rows``.

        ``None`` is no condition, and raises ``WrongTypeError``.  Where others have changed the same rows meanwhile, it
        is planned anew: ``conflict_retries`` times, 10 by default, and not after ``retry_timeout``.
        """
        retries = Retries.of(conflict_retries, retry_timeout)
        if predicate is None:
            raise WrongTypeError("delete got no condition", help='pass "true" to delete all rows')
        done = delete.delete_rows(self.snapshot, predicate, retries)
        self.moved(done.snapshot)
        return {"num_deleted_rows": done.num_deleted_rows}

    def update(
        self,
        updates: Mapping[str, str],
        where: FilterLike | None = None,
        *,
        conflict_retries: int | None = None,
        retry_timeout: dt.timedelta | None = None,
        **later: Any,
    ) -> dict[str, int]:
        """Set columns to SQL expressions where a condition is true; the number of rows, as ``num_rows_updated``.

        ``conflict_retries`` and ``retry_timeout`` are those of :meth:`delete`.
        """
        check_format(later, of="update")
        retries = Retries.of(conflict_retries, retry_timeout)
        done = update.update(self.snapshot, updates, where, options=WriteOptions(nulls=self.nulls), retries=retries)
        self.moved(done.snapshot)
        return {"num_rows_updated": done.num_rows_updated}

    def merge_insert(self, on: str | Iterable[str]) -> MergeBuilder:
        """Match rows of a source by key columns; the builder says what becomes of which."""
        return MergeBuilder(self, on)

    # --- queries -----------------------------------------------------------------------------------------------------

    def sql(self, sql: str) -> SqlQueryBuilder:
        """A query over this version, in which it is called ``dataset``.

        The SQL is that of :func:`trilake.sql`: Spark's, run without Spark.

        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sql", mode="overwrite")
        >>> [b.to_pylist() for b in made.sql("SELECT sum(a) AS n FROM dataset WHERE a > 1").build().to_batch_records()]
        [[{'n': 5}]]
        """
        if not isinstance(sql, str):
            raise WrongTypeError(f"a query is text, not a {type(sql).__name__}")
        return SqlQueryBuilder(sql, self.snapshot)

    # --- columns -----------------------------------------------------------------------------------------------------

    def merge(self, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None) -> None:
        """Add the columns of other data to the rows with the same key; rows without a match get nulls."""
        data = input_rows.table(data_obj, schema)
        self.moved(joins.merge(self.snapshot, data, left_on, right_on, nulls=self.nulls))

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
        transforms: SQL expressions by name of the new column; or a function of record batches (with an attribute
            ``output_schema``, or one whose result tells); or rows in the order of the dataset's; or a field, fields or
            a schema of columns without values, for which no file is written.
        read_columns: what a function is given; all columns by default.
        reader_schema: of rows that come as an iterable.
        batch_size: rows that a function is given at most; a row group of the files by default.

        What the way that is asked for has no use for is refused.
        """
        self.moved(
            column_changes.add(
                self.snapshot, transforms, read_columns, reader_schema, batch_size=batch_size, nulls=self.nulls
            )
        )
        if isinstance(transforms, BatchUDF):
            transforms.forget()

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop columns, or fields of structs; no file is written."""
        self.moved(column_changes.drop_columns(self.snapshot, columns))

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Rename columns (``name``), make them ``nullable`` or not, or cast them (``data_type``), by ``path``."""
        self.moved(column_changes.alter_columns(self.snapshot, alterations, nulls=self.nulls))

    # --- indices -----------------------------------------------------------------------------------------------------

    def create_scalar_index(
        self,
        column: str | list[str],
        index_type: str = "BTREE",
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        **later: Any,
    ) -> None:
        """Index a column of numbers, booleans, texts, bytes, dates or times; filters find its rows then.

        ``"struct.field"`` is a part of a column.  Without ``train`` the index has no rows yet, which
        ``optimize.optimize_indices`` puts into it.
        """
        check_format(later, of="a scalar index")
        names = [column] if isinstance(column, str) else list(column)
        if len(names) != 1:
            raise UnsupportedIndexError(f"a scalar index of {len(names)} columns cannot be made", help="name one")
        self.moved(
            indices.create_scalar_index(self.snapshot, names[0], index_type, name, replace=replace, with_rows=train)
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
    ) -> LanceDataset:
        """Index a column of vectors for searches of the nearest; the type is ``IVF_PQ``.

        Parameters are those of :func:`trilake.lance.commands.vector_indices.plan_index`, ``pq_codebook`` and
        ``seed`` among them; ``metric_type`` is another name of ``metric``, and ``num_bits`` can only be 8.  An
        ``accelerator`` may be named, but is not used.  The dataset that is returned has a cache of ``index_cache_size``
        entries.
        """
        checked = vector_indices.checked_options(more, metric, accelerator)
        plan = vector_indices.plan_index(
            self.snapshot,
            column,
            index_type,
            name,
            replace=replace,
            num_partitions=num_partitions,
            num_sub_vectors=num_sub_vectors,
            ivf_centroids=ivf_centroids,
            **checked,
        )
        snapshot = vector_indices.create_vector_index(self.snapshot, plan)
        self.moved(snapshot)
        indexed = Snapshot(snapshot.store, snapshot.manifest, snapshot.runtime, index_cache_size)
        return self._beside(indexed)

    def drop_index(self, name: str) -> None:
        """Take an index out of the dataset, from this version on.  Raises ``UnknownIndexError``."""
        self.moved(indices.drop_index(self.snapshot, name))

    def list_indices(self) -> list[dict[str, Any]]:
        """The indices: ``name``, ``type``, ``uuid``, ``fields``, ``version`` and ``fragment_ids``."""
        return indices.list_indices(self.snapshot)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """What an index says of itself.  Other implementations prefer ``stats.index_stats``."""
        warnings.warn("use LanceDataset.stats.index_stats() instead", DeprecationWarning, stacklevel=2)
        return indices.own_statistics(self.snapshot, index_name)

    @property
    def has_index(self) -> bool:
        """Whether there is an index."""
        return bool(self.snapshot.manifest.indices)

    # --- upkeep ------------------------------------------------------------------------------------------------------

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compaction of files, and of indices."""
        return DatasetOptimizer(self)

    @property
    def stats(self) -> LanceStats:
        """Numbers about the dataset and its indices."""
        return LanceStats(self)

    def restore(self) -> None:
        """Make the version that is shown the newest, as a commit."""
        self.moved(self.snapshot.commit(Restore(self.version)))

    def cleanup_old_versions(
        self,
        older_than: dt.timedelta | None = None,
        retain_versions: int | None = None,
        *,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        **later: Any,
    ) -> CleanupStats:
        """Remove versions older than two weeks, or another time, and files that only they name.

        ``retain_versions`` of the newest stay, whatever their age; without ``older_than`` all others go.
        """
        check_format(later, of="cleanup_old_versions")
        flag("delete_unverified", delete_unverified)
        flag("error_if_tagged_old_versions", error_if_tagged_old_versions)
        retain = 1 if retain_versions is None else count("retain_versions", retain_versions, least=1)
        default = dt.timedelta(days=14 if retain_versions is None else 0)
        age = default if older_than is None else older_than
        if not isinstance(age, dt.timedelta):
            raise WrongTypeError(f"older_than is {older_than!r}", help="pass a datetime.timedelta")
        return cleanup.cleanup(
            self.snapshot.store,
            int(age.total_seconds() * 1000),
            self.snapshot.runtime,
            retain=retain,
            delete_unverified=delete_unverified,
            error_if_tagged=error_if_tagged_old_versions,
        )

    def validate(self) -> None:
        """Check the whole dataset: that all files are there and say what the manifest says.

        Raises ``CorruptFileError``, ``CorruptLogError``, ``MissingFileError`` or ``DeletionVectorError``.
        """
        self.snapshot.validate()

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
        """Commit what a distributed job has done.

        Parameters
        ----------
        base_uri: the dataset, which need not exist for an overwrite, or may be open.
        operation: one of :class:`~trilake.lance.pylance.operation.LanceOperation`, or a
            :class:`~trilake.lance.pylance.transactions.Transaction`, which knows its read version.
        read_version: the version that the job has read; not needed for overwrites and restores.
        commit_lock: held while the version is committed; see :class:`LanceDataset`.
        later: what programs for later releases say; what the first format has not is refused.
        """
        check_format(later, of="commit")
        uuid = operation.uuid if isinstance(operation, Transaction) else None
        if isinstance(operation, Transaction):
            operation, read_version = transactions.given(operation, read_version)
        if not isinstance(operation, LanceOperation.BaseOperation):
            raise TypeError(f"operation must be a LanceOperation, got {type(operation)}")
        runtime = runtime_with(commit_lock)
        store, where = place_of(base_uri, storage_options)
        listing = list_versions(store)
        free = isinstance(operation, LanceOperation.Overwrite | LanceOperation.Restore)
        if read_version is None:
            if not free:
                raise ReadVersionMissingError("read_version must be specified for this operation")
            read_version = listing.latest
        base = transaction.load(store, read_version, listing) if listing.versions and read_version else None
        begun = transaction.begin(read_version, operation.resolve(base), runtime)
        begun = begun if uuid is None else replace(begun, uuid=uuid)
        manifest = transaction.commit(store, begun, runtime)
        return LanceDataset.of(Snapshot(store, manifest, runtime_with(None)), where)

    @staticmethod
    def commit_batch(
        dest: str | os.PathLike[str] | LanceDataset,
        transactions: Sequence[Transaction],
        commit_lock: Any = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        **later: Any,
    ) -> dict[str, Any]:
        """Commit several appends as one version: ``dataset``, and ``merged``, the transaction that does what all do.

        Further parameters are those of :meth:`commit`.  Raises ``InvalidArgumentError`` for other operations.
        """
        one = merged(transactions)
        done = LanceDataset.commit(dest, one, None, commit_lock, storage_options=storage_options, **later)
        return {"dataset": done, "merged": one}

    @staticmethod
    def _commit(
        base_uri: str | os.PathLike[str] | LanceDataset,
        operation: LanceOperation.BaseOperation,
        read_version: int | None = None,
        commit_lock: Any = None,
    ) -> LanceDataset:
        """The old name of :meth:`commit`."""
        warnings.warn("use LanceDataset.commit() instead of _commit()", DeprecationWarning, stacklevel=2)
        return LanceDataset.commit(base_uri, operation, read_version, commit_lock)


def _reopen(
    uri: str, version: int, options: dict[str, str], nulls: NullPolicy, scans: Mapping[str, Any]
) -> LanceDataset:
    return LanceDataset(uri, version, storage_options=options, default_scan_options=scans, nulls=nulls)
