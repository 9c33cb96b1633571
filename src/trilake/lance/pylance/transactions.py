"""``Transaction``: an operation on a version of a dataset, before it is committed or behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trilake.errors import InvalidArgumentError, ObjectNotFoundError
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance.operation import LanceOperation, shown
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction as transactions
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.versions import list_versions


@dataclass
class Transaction:
    """An operation, and the version that it was made for.

    Parameters
    ----------
    read_version: the version; 0 where there was none yet.
    operation: one of :class:`~trilake.lance.pylance.operation.LanceOperation`.
    uuid: an id that no other transaction has; the commit makes one where none is given.
    transaction_properties: what the commit says of itself.
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str | None = None
    transaction_properties: Mapping[str, str] | None = field(default_factory=dict)


def given(transaction: Transaction, read_version: int | None) -> tuple[LanceOperation.BaseOperation, int]:
    """The operation of a transaction to commit, and its version.  Raises ``InvalidArgumentError``."""
    if read_version is not None and read_version != transaction.read_version:
        raise InvalidArgumentError(
            f"read_version is {read_version}, and the transaction was made for version {transaction.read_version}",
            help="leave read_version out",
        )
    return transaction.operation, transaction.read_version


def read(snapshot: Snapshot, version: int) -> Transaction | None:
    """The transaction that made a version.

    ``None`` where its file is gone, as a clean-up of old versions removes it, and for one of a newer writer.
    Raises ``VersionNotFoundError`` and ``CorruptLogError``.
    """
    store = snapshot.store
    try:
        made = transactions.of_manifest(store, transactions.load(store, version))
    except ObjectNotFoundError:
        return None
    operation = None if made is None else shown(made.operation)
    if made is None or operation is None:
        return None
    return Transaction(made.read_version, operation, made.uuid, dict(made.properties))


def recent(snapshot: Snapshot, count: Any) -> list[Transaction | None]:
    """The transactions of the newest versions up to the one that is shown, newest first."""
    versions = [v for v in reversed(list_versions(snapshot.store).versions) if v <= snapshot.version]
    return [read(snapshot, v) for v in versions[:count]]


def merged(transactions: Sequence[Transaction]) -> Transaction:
    """One transaction that appends what several do.  Raises ``InvalidArgumentError`` for what are no appends."""
    fragments: list[FragmentMetadata] = []
    for one in transactions:
        if not isinstance(one, Transaction):
            raise WrongTypeError(f"transactions must be a list of Transaction, got {type(one)}")
        operation, _ = given(one, None)
        if not isinstance(operation, LanceOperation.Append):
            raise InvalidArgumentError(
                f"{type(operation).__name__} cannot be committed beside others",
                help="only appends are",
            )
        fragments += operation.fragments
    if not fragments:
        raise InvalidArgumentError("there is nothing to commit", help="pass transactions that append fragments")
    return Transaction(min(one.read_version for one in transactions), LanceOperation.Append(fragments))
