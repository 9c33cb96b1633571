"""``LanceDataset``: a Lance dataset at one version, with the API of pylance.

A call that commits moves the object to the new version; other open objects keep their version.
"""

from __future__ import annotations

import datetime as dt
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance import cleanup
from trilake.lance.auto_cleanup import after_commit
from trilake.lance.cleanup import CleanupExplanation, CleanupStats
from trilake.lance.commands.format_options import check_format, format_of, properties_of
from trilake.lance.commands.fragment_writer import NullPolicy, check_nulls
from trilake.lance.commands.migrate import migrate, migrate_manifest_names
from trilake.lance.commands.open_dataset import place_of
from trilake.lance.commit import runtime_with
from trilake.lance.file.errors import CommitConflictError, OptionError, ReadVersionMissingError, WrongTypeError
from trilake.lance.file.storage_version import DEFAULT, FIRST, StorageVersion
from trilake.lance.optimize import DatasetOptimizer
from trilake.lance.pylance import transactions
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.pylance.changed_dataset import ChangedDataset
from trilake.lance.pylance.operation import LanceOperation
from trilake.lance.pylance.sql_query import SqlQueryBuilder
from trilake.lance.pylance.stats import LanceStats
from trilake.lance.pylance.tags import Branches, Line, Reference, Tags
from trilake.lance.pylance.transactions import Transaction, merged
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.util import local_time
from trilake.lance.versions import transaction
from trilake.lance.versions.branches import TREE, clone, create_branch
from trilake.lance.versions.manifest import Fragment, Manifest, parse_manifest
from trilake.lance.versions.operations import Append, Overwrite, Restore
from trilake.lance.versions.versions import Scheme, check_place, list_versions
from trilake.storage import open_store


class LanceDataset(ChangedDataset):
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

    >>> import pyarrow as pa
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
        root = open_store(uri, options)
        line, number = Line(root).resolve(version)
        store = root if line.branch is None else line.store
        self._uri = self._uri if line.branch is None else f"{self._uri}/{TREE}/{line.branch}"
        self.snapshot = Snapshot.open(store, runtime_with(commit_lock), number, index_cache_size)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._uri, self.version, self._options, self.nulls, dict(self._scan_options))

    def __getstate__(self) -> tuple[Any, ...]:
        return self._uri, self.version, self._options, self.nulls

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._open(*state)

    def __repr__(self) -> str:
        return f"LanceDataset({self._uri!r}, version={self.version})"

    # --- versions ----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Version of this object."""
        return self.snapshot.version

    @property
    def latest_version(self) -> int:
        """Newest version of the dataset."""
        return list_versions(self.snapshot.store).latest

    @property
    def tags(self) -> Tags:
        """Tags of the dataset."""
        return Tags(self.snapshot)

    @property
    def branches(self) -> Branches:
        """Branches of the dataset."""
        return Branches(self.snapshot)

    def create_branch(
        self,
        branch: str,
        reference: Reference = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> LanceDataset:
        """Create the branch ``branch`` from this version, or from ``reference``.

        ``storage_options`` are those of the dataset.  Raises ``InvalidArgumentError`` if the branch exists.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-branch")
        >>> trial = made.create_branch("trial")
        >>> _ = trial.delete("a > 1")
        >>> trial.count_rows(), made.count_rows()
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
        later: options of newer pylance releases, see :meth:`~trilake.lance.pylance.lance_dataset.LanceDataset.insert`.

        Raises ``TableExistsError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-clone-of")
        >>> made.shallow_clone("memory://doc-lance-clone").count_rows()
        3
        """
        check_format(later, of="shallow_clone")
        line, number = Line.of(self.snapshot).resolve(reference)
        store, source = (self.snapshot.store, self.snapshot.manifest) if reference is None else line.load(number)
        target = open_store(target_path, {**store.options, **(storage_options or {})})
        check_place(target)
        manifest = clone(source, store, target, self.snapshot.runtime)
        return self.of(Snapshot(target, manifest, self.snapshot.runtime), target_path, self.nulls)

    def versions(self) -> list[dict[str, Any]]:
        """List all versions, oldest first: ``version``, ``timestamp`` (naive local time) and ``metadata``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-versions")
        >>> _ = made.delete("a = 2")
        >>> [v["version"] for v in made.versions()]
        [1, 2]
        """
        store = self.snapshot.store
        listing = list_versions(store)
        keys = [listing.key(v) for v in listing.versions]
        rows = []
        for version, key, data in zip(listing.versions, keys, store.read_many(keys)):
            manifest = parse_manifest(data, file=f"{store.uri}/{key}", version=version)
            rows.append({"version": version, "timestamp": local_time(manifest.timestamp_ns), "metadata": {}})
        return rows

    def get_version(self) -> dict[str, Any]:
        """Describe this version, as in :meth:`versions`.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-get-version")
        >>> made.get_version()["version"]
        1
        """
        manifest = self.snapshot.manifest
        return {"version": manifest.version, "timestamp": local_time(manifest.timestamp_ns), "metadata": {}}

    def version_refs(self) -> list[dict[str, int]]:
        """List the numbers of all versions, oldest first, without reading manifests.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-version-refs")
        >>> made.version_refs()
        [{'version': 1}]
        """
        return [{"version": version} for version in list_versions(self.snapshot.store).versions]

    def checkout_version(self, version: Reference) -> LanceDataset:
        """Return the dataset at another ``version``: a number, tag or ``(branch, number)``.

        Raises ``VersionNotFoundError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-checkout")
        >>> _ = made.delete("a = 2")
        >>> made.checkout_version(1).count_rows(), made.count_rows()
        (3, 2)
        """
        line, number = Line.of(self.snapshot).resolve(version)
        if line.branch == self.snapshot.manifest.branch:
            return self._beside(self.snapshot.at(transaction.load(self.snapshot.store, number)))
        return self._on(line, number)

    def _on(self, line: Line, version: int | None) -> LanceDataset:
        store, manifest = line.load(version)
        base = self._uri.removesuffix(f"/{TREE}/{self.snapshot.manifest.branch}")
        uri = base if line.branch is None else f"{base}/{TREE}/{line.branch}"
        other = self.of(Snapshot(store, manifest, self.snapshot.runtime), uri, self.nulls)
        other._scan_options = self._scan_options
        return other

    def checkout_latest(self) -> None:
        """Move this object to the newest version.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-latest")
        >>> other = made.checkout_version(1)
        >>> _ = made.delete("a = 2")
        >>> other.checkout_latest()
        >>> other.version
        2
        """
        self.moved(self.snapshot.at(transaction.load(self.snapshot.store)))

    # --- queries -----------------------------------------------------------------------------------------------------

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Query this version with DuckDB; the query ``sql`` calls it ``dataset``.

        See :func:`trilake.sql`.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-sql", mode="overwrite")
        >>> [b.to_pylist() for b in made.sql("SELECT a FROM dataset WHERE a > 1").build().to_batch_records()]
        [[{'a': 2}, {'a': 3}]]
        """
        if not isinstance(sql, str):
            raise WrongTypeError(f"sql must be a string, got {type(sql).__name__}")
        return SqlQueryBuilder(sql, self.snapshot)

    # --- maintenance -------------------------------------------------------------------------------------------------

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compact files and optimize indices."""
        return DatasetOptimizer(self)

    @property
    def stats(self) -> LanceStats:
        """Statistics of the dataset and its indices."""
        return LanceStats(self)

    def migrate(self, data_storage_version: str = "stable") -> None:
        """Rewrite all rows in the file version ``data_storage_version``, as one commit.

        Older versions keep their files; indices are dropped.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-lance-migrate", data_storage_version="legacy")
        >>> made.migrate()
        >>> made.data_storage_version, made.count_rows()
        ('2.2', 2)
        """
        self.moved(migrate(self.snapshot, StorageVersion.parse(data_storage_version)))

    def migrate_manifest_paths_v2(self) -> None:
        """Rename manifests to the v2 naming scheme; other writers must be stopped.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-names", enable_v2_manifest_paths=False)
        >>> made.migrate_manifest_paths_v2()
        >>> made.checkout_version(1).count_rows()
        1
        """
        migrate_manifest_names(self.snapshot.store)

    def restore(self) -> None:
        """Make this version the newest one, as a new commit.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-restore")
        >>> _ = made.delete("a > 1")
        >>> old = made.checkout_version(1)
        >>> old.restore()
        >>> old.version, old.count_rows()
        (3, 3)
        """
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

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-cleanup")
        >>> _ = made.delete("a > 1")
        >>> made.cleanup_old_versions(retain_versions=1).old_versions
        1
        """
        options = _cleanup_options(older_than, retain_versions, later)
        return cleanup.cleanup(
            self.snapshot.store,
            runtime=self.snapshot.runtime,
            delete_unverified=flag("delete_unverified", delete_unverified),
            error_if_tagged=flag("error_if_tagged_old_versions", error_if_tagged_old_versions),
            **options,
        ).stats

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

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-explain-cleanup")
        >>> _ = made.delete("a > 1")
        >>> plan = made.explain_cleanup_old_versions(retain_versions=1, include_files=True)
        >>> plan.stats.old_versions, [file.kind for file in plan.candidate_files]
        (1, ['transaction file', 'manifest'])
        """
        options = _cleanup_options(older_than, retain_versions, later)
        if count("max_files", max_files) < 1:
            raise InvalidArgumentError(f"max_files must be positive, got {max_files}")
        plan = cleanup.plan_cleanup(
            self.snapshot.store,
            runtime=self.snapshot.runtime,
            delete_unverified=flag("delete_unverified", delete_unverified),
            error_if_tagged=flag("error_if_tagged_old_versions", error_if_tagged_old_versions),
            **options,
        )
        return plan.explanation(self.version, max_files if flag("include_files", include_files) else 0)

    def validate(self) -> None:
        """Check that all files exist and match the manifest.

        Raises ``CorruptFileError``, ``CorruptLogError``, ``MissingFileError`` or ``DeletionVectorError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-validate")
        >>> made.validate()
        """
        self.snapshot.validate()

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created ``version``; ``None`` if its file is gone or its operation unknown.

        Raises ``VersionNotFoundError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-read-transaction")
        >>> _ = made.delete("a = 2")
        >>> type(made.read_transaction(2).operation).__name__
        'Delete'
        """
        return transactions.read(self.snapshot, count("version", version, least=1, other_type=WrongTypeError))

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return up to ``recent_transactions`` transactions up to this version, newest first.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-get-transactions")
        >>> _ = made.delete("a = 2")
        >>> [type(t.operation).__name__ for t in made.get_transactions()]
        ['Delete', 'Overwrite']
        """
        limit = count("recent_transactions", recent_transactions, other_type=WrongTypeError)
        return transactions.recent(self.snapshot, limit)

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

        >>> import pyarrow as pa
        >>> from trilake.lance import LanceDataset, write_dataset
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-drop")
        >>> LanceDataset.drop("memory://doc-lance-drop")
        >>> LanceDataset.drop("memory://doc-lance-drop", ignore_not_found=True)
        """
        ignored = ignore_not_found is not None and flag("ignore_not_found", ignore_not_found)
        store = open_store(base_uri, dict(storage_options or {}))
        if not ignored or next(iter(store.list()), None) is not None:
            cleanup.drop(store)

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
            :class:`~trilake.lance.pylance.transactions.Transaction`, which includes its read version.
        read_version: version that the job read; optional for overwrites and restores.
        commit_lock: lock for the commit; see :class:`LanceDataset`.
        storage_options: credentials, region and endpoint of the object store.
        later: options of newer pylance releases; raises for unsupported ones.  With ``max_retries=0``, an overwrite
            raises if the dataset has changed since ``read_version``.  ``detached=True`` creates a version that can only
            be opened by its number, and may be based on another detached version.

        Raises ``ReadVersionMissingError`` without a read version, and ``ConflictError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import LanceOperation, write_dataset, write_fragments
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-commit")
        >>> fragments = write_fragments(pa.table({"a": [2, 3]}), "memory://doc-lance-commit")
        >>> done = LanceDataset.commit("memory://doc-lance-commit", LanceOperation.Append(fragments), read_version=1)
        >>> done.version, done.count_rows()
        (2, 3)
        """
        format, properties = format_of(later), properties_of(later)
        detached = flag("detached", later.pop("detached", None) or False)
        strict = later.get("max_retries") == 0 and read_version is not None
        check_format(later, of="commit")
        uuid = operation.uuid if isinstance(operation, Transaction) else None
        if isinstance(operation, Transaction):
            properties |= dict(operation.transaction_properties or {})
            operation, read_version = transactions.unpack(operation, read_version)
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
        resolved = operation.resolve(base)
        if isinstance(resolved, Overwrite):
            version = format["storage_version"] or version_of(resolved.fragments, base)
            resolved = replace(resolved, storage_version=version, stable_row_ids=format["stable_row_ids"])
        if isinstance(resolved, Append) and base is not None:
            version_of((*base.fragments, *resolved.fragments), base)
        begun = transaction.begin(read_version, resolved, runtime, properties)
        begun = begun if uuid is None else replace(begun, uuid=uuid)
        named = format["v2_manifest_names"]
        first = isinstance(resolved, Overwrite) and resolved.storage_version == FIRST

        def check(newest: Manifest) -> None:
            if strict and isinstance(resolved, Overwrite) and newest.version != read_version:
                raise CommitConflictError(
                    f"Commit conflict for version {newest.version}: it was committed since version {read_version}",
                    help="read the newest version, or pass max_retries above 0 to overwrite it",
                    file=store.uri,
                )

        scheme: Scheme = "v1" if named is False or first else "v2"
        if detached:
            manifest = transaction.commit_detached(store, begun, runtime)
        else:
            manifest = transaction.commit(store, begun, runtime, scheme=scheme, check=check)
        done = LanceDataset.of(Snapshot(store, manifest, runtime_with(None)), where)
        if not detached:
            after_commit(done.snapshot)
        return done

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

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset, write_fragments
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-batch")
        >>> tables = [pa.table({"a": [n]}) for n in (2, 3)]
        >>> appends = [write_fragments(t, "memory://doc-lance-batch", return_transaction=True) for t in tables]
        >>> LanceDataset.commit_batch("memory://doc-lance-batch", appends)["dataset"].count_rows()
        3
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
        """Deprecated alias of :meth:`commit`."""
        warnings.warn("use LanceDataset.commit() instead of _commit()", DeprecationWarning, stacklevel=2)
        return LanceDataset.commit(base_uri, operation, read_version, commit_lock)

    def __getattr__(self, name: str) -> Any:
        raise not_in_format("LanceDataset", name)


class MixedVersionsError(InvalidArgumentError, OSError):
    """The data files to commit have different versions."""


def version_of(fragments: Sequence[Fragment], base: Manifest | None) -> StorageVersion:
    """Return the common file version of fragments; without fragments, that of the dataset or the default."""
    versions = {file.storage_version for fragment in fragments for file in fragment.files}
    if len(versions) > 1:
        raise MixedVersionsError(
            f"All data files must have the same version, got {' and '.join(map(str, sorted(versions)))}",
            help="write the fragments with one data_storage_version",
        )
    return max(versions) if versions else DEFAULT if base is None else base.storage_version


def _reopen(
    uri: str, version: int, options: dict[str, str], nulls: NullPolicy, scans: Mapping[str, Any]
) -> LanceDataset:
    return LanceDataset(uri, version, storage_options=options, default_scan_options=scans, nulls=nulls)


def _cleanup_options(older_than: object, retain_versions: int | None, later: Mapping[str, Any]) -> dict[str, int]:
    check_format(later, of="cleanup_old_versions")
    retain = 1 if retain_versions is None else count("retain_versions", retain_versions)
    if retain < 1:
        raise OptionError(f"retain_versions must be greater than 0, got {retain}")
    default = dt.timedelta(days=14 if retain_versions is None else 0)
    age = default if older_than is None else older_than
    if not isinstance(age, dt.timedelta):
        raise WrongTypeError(f"older_than must be a datetime.timedelta, got {older_than!r}")
    return {"older_than_ms": int(age.total_seconds() * 1000), "retain": retain}
