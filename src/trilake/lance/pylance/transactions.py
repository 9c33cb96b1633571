"""``Transaction``: an operation based on a version of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trilake.errors import InvalidArgumentError, ObjectNotFoundError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance.operation import LanceOperation, from_stored
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction as transactions
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.versions import list_versions


@dataclass
class Transaction:
    """An operation and the version it is based on.

    Parameters
    ----------
    read_version: version that the operation is based on; 0 for a new dataset.
    operation: one of :class:`~trilake.lance.pylance.operation.LanceOperation`.
    uuid: unique id, by default assigned by the commit.
    transaction_properties: properties of the commit.
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str | None = None
    transaction_properties: Mapping[str, str] | None = field(default_factory=dict)


def unpack(transaction: Transaction, read_version: int | None) -> tuple[LanceOperation.BaseOperation, int]:
    """Return the operation and read version of a transaction.  Raises ``InvalidArgumentError``."""
    if read_version is not None and read_version != transaction.read_version:
        raise InvalidArgumentError(
            f"read_version is {read_version}, but the transaction is based on version {transaction.read_version}",
            help="leave read_version out",
        )
    return transaction.operation, transaction.read_version


def read(snapshot: Snapshot, version: int) -> Transaction | None:
    """Return the transaction that created a version.

    Returns ``None`` if its file was cleaned up or its operation is unknown.  Raises ``VersionNotFoundError`` and
    ``CorruptLogError``.
    """
    store = snapshot.store
    try:
        stored = transactions.of_manifest(store, transactions.load(store, version))
    except ObjectNotFoundError:
        return None
    operation = None if stored is None else from_stored(stored.operation)
    if stored is None or operation is None:
        return None
    return Transaction(stored.read_version, operation, stored.uuid, dict(stored.properties))


def recent(snapshot: Snapshot, count: Any) -> list[Transaction | None]:
    """Return the newest transactions up to the snapshot's version, newest first."""
    versions = [v for v in reversed(list_versions(snapshot.store).versions) if v <= snapshot.version]
    return [read(snapshot, v) for v in versions[:count]]


def merged(transactions: Sequence[Transaction]) -> Transaction:
    """Merge appends into one transaction.  Raises ``InvalidArgumentError`` for other operations."""
    fragments: list[FragmentMetadata] = []
    for one in transactions:
        if not isinstance(one, Transaction):
            raise WrongTypeError(f"transactions must be a list of Transaction, got {type(one)}")
        operation, _ = unpack(one, None)
        if not isinstance(operation, LanceOperation.Append):
            raise InvalidArgumentError(
                f"commit_batch supports only appends, got {type(operation).__name__}",
                help="commit other operations one by one",
            )
        fragments += operation.fragments
    if not fragments:
        raise InvalidArgumentError("there is nothing to commit", help="pass transactions that append fragments")
    return Transaction(min(one.read_version for one in transactions), LanceOperation.Append(fragments))
