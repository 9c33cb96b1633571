"""Commit the results of distributed jobs, and read the transactions of versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from trilake.common.arguments import flag
from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError
from trilake.lance.cleanup import after_commit
from trilake.lance.commands.format_options import check_format, format_of, properties_of
from trilake.lance.file.errors import CommitConflictError, ReadVersionMissingError, WrongTypeError
from trilake.lance.file.storage_version import DEFAULT, StorageVersion
from trilake.lance.pylance.operation import LanceOperation, Transaction, from_stored
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.operations import Append, Overwrite
from trilake.lance.versions.versions import Scheme, list_versions
from trilake.storage.base import Store


def commit(
    store: Store,
    operation: LanceOperation.BaseOperation | Transaction,
    read_version: int | None,
    runtime: Runtime,
    options: dict[str, Any],
) -> Snapshot:
    """Commit an operation; see :meth:`trilake.lance.pylance.lance_dataset.LanceDataset.commit`."""
    format, properties = format_of(options), properties_of(options)
    detached = flag("detached", options.pop("detached", None) or False)
    strict = options.get("max_retries") == 0 and read_version is not None
    check_format(options, of="commit")
    uuid = None
    if isinstance(operation, Transaction):
        uuid = operation.uuid
        properties |= dict(operation.transaction_properties or {})
        if read_version not in (None, operation.read_version):
            raise InvalidArgumentError(
                f"read_version is {read_version}, but the transaction is based on version {operation.read_version}",
                help="leave read_version out",
            )
        read_version, operation = operation.read_version, operation.operation
    if not isinstance(operation, LanceOperation.BaseOperation):
        raise TypeError(f"operation must be a LanceOperation, got {type(operation)}")
    listing = list_versions(store)
    if read_version is None:
        if not isinstance(operation, LanceOperation.Overwrite | LanceOperation.Restore):
            raise ReadVersionMissingError("read_version must be specified for this operation")
        read_version = listing.latest
    base = transaction.load(store, read_version, listing) if listing.versions and read_version else None
    resolved = operation.resolve(base)
    if isinstance(resolved, Overwrite):
        version = format["storage_version"] or version_of(resolved.fragments, base)
        resolved = replace(resolved, storage_version=version, stable_row_ids=format["stable_row_ids"])
    if isinstance(resolved, Append) and base is not None:
        _check_appended(_versions(resolved.fragments), base)
    begun = transaction.begin(read_version, resolved, runtime, properties)
    begun = begun if uuid is None else replace(begun, uuid=uuid)
    if detached:
        return Snapshot(store, transaction.commit_detached(store, begun, runtime), runtime)

    def check(newest: Manifest) -> None:
        if strict and isinstance(resolved, Overwrite) and newest.version != read_version:
            raise CommitConflictError(
                f"Commit conflict for version {newest.version}: it was committed since version {read_version}",
                help="read the newest version, or pass max_retries above 0 to overwrite it",
                file=store.uri,
            )

    first = (
        isinstance(resolved, Overwrite) and resolved.storage_version is not None and resolved.storage_version.is_legacy
    )
    scheme: Scheme = "v1" if format["v2_manifest_names"] is False or first else "v2"
    done = Snapshot(store, transaction.commit(store, begun, runtime, scheme=scheme, check=check), runtime)
    after_commit(done)
    return done


class MixedVersionsError(InvalidArgumentError, OSError):
    """The data files to commit have different versions."""


def version_of(fragments: Sequence[Fragment], base: Manifest | None) -> StorageVersion:
    """Return the common file version of fragments; without fragments, that of the dataset or the default."""
    versions = _versions(fragments)
    if len(versions) > 1:
        raise _mixed(versions)
    return max(versions) if versions else DEFAULT if base is None else base.storage_version


def _versions(fragments: Iterable[Fragment]) -> set[StorageVersion]:
    return {file.storage_version for fragment in fragments for file in fragment.files}


def _check_appended(versions: set[StorageVersion], base: Manifest) -> None:
    """Raise ``MixedVersionsError`` for legacy and 2.x files in one dataset; versions of 2.x may be mixed."""
    versions = {*versions, base.storage_version}
    if len({version.is_legacy for version in versions}) > 1:
        raise _mixed(versions)


def _mixed(versions: Iterable[StorageVersion]) -> MixedVersionsError:
    return MixedVersionsError(
        f"All data files must have the same version, got {' and '.join(map(str, sorted(versions)))}",
        help="write the fragments with one data_storage_version",
    )


def read_transaction(snapshot: Snapshot, version: int) -> Transaction | None:
    """Return the transaction that created a version.

    Returns ``None`` if its file was cleaned up or its operation is unknown.  Raises ``VersionNotFoundError`` and
    ``CorruptLogError``.
    """
    stored = transaction.of_manifest(snapshot.store, transaction.load(snapshot.store, version))
    operation = None if stored is None else from_stored(stored.operation)
    if stored is None or operation is None:
        return None
    return Transaction(stored.read_version, operation, stored.uuid, dict(stored.properties))


def newest_transactions(snapshot: Snapshot, count: Any) -> list[Transaction | None]:
    """Return the newest transactions up to the snapshot's version, newest first."""
    versions = [v for v in reversed(list_versions(snapshot.store).versions) if v <= snapshot.version]
    return [read_transaction(snapshot, v) for v in versions[:count]]


def merged(transactions: Sequence[Transaction]) -> Transaction:
    """Merge appends into one transaction.  Raises ``InvalidArgumentError`` for other operations."""
    fragments: list[FragmentMetadata] = []
    for one in transactions:
        if not isinstance(one, Transaction):
            raise WrongTypeError(f"transactions must be a list of Transaction, got {type(one)}")
        if not isinstance(one.operation, LanceOperation.Append):
            raise InvalidArgumentError(
                f"commit_batch supports only appends, got {type(one.operation).__name__}",
                help="commit other operations one by one",
            )
        fragments += one.operation.fragments
    if not fragments:
        raise InvalidArgumentError("there is nothing to commit", help="pass transactions that append fragments")
    return Transaction(min(one.read_version for one in transactions), LanceOperation.Append(fragments))
