"""Streaming sink: commit each micro-batch exactly once, even if processes crash.

Manifests cannot store a batch id, so a batch is claimed before its commit: a small file, written by ``put_if_absent``,
has the only transaction that may commit the batch::

    fragments --> claim _streams/<query>/<batch>.txn --won---> commit that transaction
                                                     --lost--> is the claimed transaction committed?
                                                               yes: done    no: commit it,
                                                               or make a new claim if its files are gone

A version names its transaction, so after an unknown outcome later versions are searched for the transaction.  The
fragments of an attempt that lost the claim are unreferenced, so a clean-up removes them.  After some days it also
removes the files of an abandoned claim; that claim can never commit, and the next claim replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from trilake.errors import ObjectExistsError, ObjectNotFoundError, SchemaMismatchError
from trilake.lance.commands.fragment_writer import Target
from trilake.lance.commands.write import WritePlan
from trilake.lance.file.errors import DatasetExistsError
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import DataFile, Fragment, Manifest
from trilake.lance.versions.transaction import Transaction
from trilake.lance.versions.versions import Listing, list_versions
from trilake.storage.base import Store
from trilake.table.streams import CLAIMS, BatchId, StreamError, delete_old_claims


def claim_key(batch: BatchId, attempt: int = 0) -> str:
    """Return the key of the first claim, or of a later one if the files of earlier claims are gone."""
    return f"{batch.claims}{f'.{attempt}' if attempt else ''}.txn"


class _DoneError(StreamError):
    """The transaction is committed already; never leaves this module."""


def commit_batch(
    store: Store, plan: WritePlan, target: Target, batch: BatchId, fragments: Iterable[Fragment]
) -> int | None:
    """Commit the fragments of a batch unless it is committed already.

    Returns the version of the batch, or ``None`` for an append without rows.  Raises ``ConflictError``,
    ``UnknownOutcomeError``, ``DatasetNotFoundError`` if the dataset was dropped or recreated, or ``StreamError``
    if the versions that would show whether the batch is committed were cleaned up.
    """
    fragments = tuple(fragments)
    operation: op.Operation = op.Overwrite(fragments, target.schema, storage_version=target.version)
    if plan.mode == "append" and plan.base is not None:
        if not fragments:
            return None
        operation = op.Append(fragments)
    begun = transaction.begin(0 if plan.base is None else plan.base.version, operation, plan.runtime)
    attempt = 0
    while True:
        claimed = _claim(store, claim_key(batch, attempt), begun)
        listing = list_versions(store)
        if claimed is not begun or (listing.versions and claimed.read_version == 0):
            version = _committed(store, listing, claimed)
            if version is not None:
                return version
        if claimed is begun or _are_there(store, claimed):
            break
        attempt += 1
    delete_old_claims(store, batch, claim_key)
    replaces = plan.mode != "append"
    base = plan.base
    if claimed is not begun:  # its files exist, so it belongs to the current dataset
        base = transaction.load(store, listing.latest, listing) if listing.versions else None
    if claimed.read_version == 0 and listing.versions and not replaces:
        base, claimed = _appended(store, claimed, listing)
    create = claimed.read_version == 0 and not replaces
    while True:
        check = partial(_check, store, claimed)
        try:
            return transaction.commit(store, claimed, plan.runtime, create=create, check=check, base=base).version
        except _DoneError:
            return _committed(store, list_versions(store), claimed)
        except DatasetExistsError:  # created concurrently: retry as an append
            listing = list_versions(store)
            version = _committed(store, listing, claimed)
            if version is not None:
                return version
            (base, claimed), create = _appended(store, claimed, listing), False


def _claim(store: Store, key: str, attempt: Transaction) -> Transaction:
    """Claim a batch; returns the transaction that won, either ``attempt`` or an earlier one."""
    try:
        store.put_if_absent(key, transaction.serialise(attempt))
    except ObjectExistsError:
        claimed = transaction.parse(store.read(key).to_pybytes(), file=key)
        return attempt if claimed.uuid == attempt.uuid else claimed
    return attempt


def _committed(store: Store, listing: Listing, claimed: Transaction) -> int | None:
    """Return the version of a transaction, or ``None`` if it is not committed.

    Raises ``StreamError`` if a version that may have been committed by it was cleaned up.
    """
    missing = []
    for version in range(claimed.read_version + 1, listing.latest + 1):
        if version not in listing.versions:
            missing.append(version)
            continue
        manifest = transaction.load(store, version, listing)
        if manifest.transaction_file.endswith(f"-{claimed.uuid}.txn"):
            return version
        paths = {file.path for fragment in manifest.fragments for file in fragment.files}
        if not paths.isdisjoint(file.path for file in _data_files(claimed)):
            return version  # possibly a later version that still has the batch's files
    if missing:
        # Listings are not atomic: the last page may have a version while an earlier page lacks the one before it.
        again = list_versions(store)
        if not set(again.versions).isdisjoint(missing):
            return _committed(store, again, claimed)
        raise StreamError(
            f"cannot tell whether the batch was committed: versions {missing[:5]} were cleaned up",
            help=f"if the batch's rows are missing, delete the query's folder below {CLAIMS} and restart the query,"
            " which writes them again; otherwise start it with a new checkpoint",
            file=store.uri,
        )
    return None


def _data_files(claimed: Transaction) -> list[DataFile]:
    operation = claimed.operation
    if not isinstance(operation, op.Append | op.Overwrite):
        return []
    return [file for fragment in operation.fragments for file in fragment.files]


def _are_there(store: Store, claimed: Transaction) -> bool:
    try:
        for file in _data_files(claimed):
            store.head(file.key)
    except ObjectNotFoundError:
        return False
    return True


def _check(store: Store, claimed: Transaction, newest: Manifest) -> None:
    """Check before each attempt that no other process of the query has committed the claim."""
    if newest.version > claimed.read_version and _committed(store, list_versions(store), claimed) is not None:
        raise _DoneError("the batch is committed")


def _appended(store: Store, claimed: Transaction, listing: Listing) -> tuple[Manifest, Transaction]:
    """Rebase a first batch onto the dataset that another query has created concurrently."""
    assert isinstance(claimed.operation, op.Overwrite)
    newest = transaction.load(store, listing.latest, listing)
    if newest.schema.field_ids != claimed.operation.schema.field_ids or newest.schema.differences(
        claimed.operation.schema, nullability=False
    ):
        raise SchemaMismatchError(
            "another writer created the dataset with different columns while the first batch was being written",
            help="write to another path",
            file=store.uri,
        )
    return newest, Transaction(listing.latest, claimed.uuid, op.Append(claimed.operation.fragments))
