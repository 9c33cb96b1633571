"""A batch of a stream becomes one version of a dataset, once, whoever dies when.

A manifest has no room for the name of a batch, so a batch is claimed before it is committed: a small file, written by
``put_if_absent``, holds the transaction that stands for the batch, and no other transaction ever will::

    fragments --> claim _streams/<query>/<batch>.txn --won---> commit that transaction
                                                     --lost--> the one in the claim: is it a version?
                                                                 yes: done      no: commit that one,
                                                                 or, where its files are gone, claim anew

A version says which transaction made it, so a claim whose commit is in doubt is looked up among the versions since.
Fragments of an attempt that lost its claim are named by nobody; a clean-up removes them.  It removes those of a claim
too, after days in which nobody went on with it: such a claim can be no version any more, and the next one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from trilake.errors import ObjectExistsError, ObjectNotFoundError, SchemaMismatchError
from trilake.lance.commands.fragment_writer import Target
from trilake.lance.commands.write import WritePlan
from trilake.lance.file.errors import DatasetExistsError
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import DataFile, Fragment, Manifest
from trilake.lance.versions.stream import LanceStreamError
from trilake.lance.versions.transaction import Transaction
from trilake.lance.versions.versions import Listing, list_versions
from trilake.storage.base import Store

FOLDER = "_streams"
#: Claims of so many batches are kept; Spark repeats the last one only.
_KEPT = 200


@dataclass(frozen=True)
class LanceBatch:
    """A batch of a query: ``query_id`` is the same for all runs on one checkpoint."""

    query_id: str
    batch: int

    def key(self, attempt: int = 0) -> str:
        """The key of its claim, or of a later one that counts as the files of those before are gone."""
        return f"{FOLDER}/{self.query_id}/{self.batch:020d}{f'.{attempt}' if attempt else ''}.txn"


class _DoneError(LanceStreamError):
    """The transaction is a version already; never leaves this module."""


def commit_batch(
    store: Store,
    plan: WritePlan,
    target: Target,
    batch: LanceBatch,
    fragments: Iterable[Fragment],
) -> int | None:
    """Make the fragments of a batch a version, unless the batch is one; the version that has it, ``None`` where an
    append had no rows.

    Raises ``ConflictError``, ``UnknownOutcomeError``, ``DatasetNotFoundError`` where the dataset was dropped or made
    anew meanwhile, or ``LanceStreamError`` where clean-up removed the versions that would say whether the batch is
    committed.
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
        claimed = _claim(store, batch.key(attempt), begun)
        listing = list_versions(store)
        if claimed is not begun or (listing.versions and claimed.read_version == 0):
            version = _committed(store, listing, claimed)
            if version is not None:
                return version
        if claimed is begun or _are_there(store, claimed):
            break
        attempt += 1
    if batch.batch >= _KEPT:
        old = LanceBatch(batch.query_id, batch.batch - _KEPT)
        store.delete([old.key(n) for n in range(4)])
    replaces = plan.mode != "append"
    base = plan.base
    if claimed is not begun:  # whose files are there: they are of the dataset that is there
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
        except DatasetExistsError:  # made between our look and our commit, which is then tried as an append
            listing = list_versions(store)
            version = _committed(store, listing, claimed)
            if version is not None:
                return version
            (base, claimed), create = _appended(store, claimed, listing), False


def _claim(store: Store, key: str, own: Transaction) -> Transaction:
    """The transaction that has the claim: ``own``, unless another was faster."""
    try:
        store.put_if_absent(key, transaction.serialise(own))
    except ObjectExistsError:
        claimed = transaction.parse(store.read(key).to_pybytes(), file=key)
        return own if claimed.uuid == own.uuid else claimed
    return own


def _committed(store: Store, listing: Listing, claimed: Transaction) -> int | None:
    """The version that a transaction made, ``None`` where it made none.

    Raises ``LanceStreamError`` where versions are gone that could be it.
    """
    missing = []
    for version in range(claimed.read_version + 1, listing.latest + 1):
        if version not in listing.versions:
            missing.append(version)
            continue
        manifest = transaction.load(store, version, listing)
        if manifest.transaction_file.endswith(f"-{claimed.uuid}.txn"):
            return version
        if _names(manifest) & {file.path for file in _data_files(claimed)}:
            return version  # a later version, which still has the batch's files
    if missing:
        # The pages of a listing are of different moments: the last may have a version, and not the one before it.
        again = list_versions(store)
        if not set(again.versions).isdisjoint(missing):
            return _committed(store, again, claimed)
        raise LanceStreamError(
            f"whether the batch was committed cannot be said: versions {missing[:5]} were cleaned up",
            help="look for the batch's rows; then start the query from scratch with a new checkpoint, or let it go on"
            f" by removing its folder below {FOLDER}",
            file=store.uri,
        )
    return None


def _names(manifest: Manifest) -> set[str]:
    return {file.path for fragment in manifest.fragments for file in fragment.files}


def _data_files(claimed: Transaction) -> list[DataFile]:
    operation = claimed.operation
    if not isinstance(operation, op.Append | op.Overwrite):
        return []
    return [file for fragment in operation.fragments for file in fragment.files]


def _are_there(store: Store, claimed: Transaction) -> bool:
    """Whether none of the files that a transaction would add is gone."""
    try:
        for file in _data_files(claimed):
            store.head(file.key)
    except ObjectNotFoundError:
        return False
    return True


def _check(store: Store, claimed: Transaction, newest: Manifest) -> None:
    """Before each attempt: another process of the query may have committed the claim."""
    if newest.version > claimed.read_version and _committed(store, list_versions(store), claimed) is not None:
        raise _DoneError("the batch is committed")


def _appended(store: Store, claimed: Transaction, listing: Listing) -> tuple[Manifest, Transaction]:
    """A first batch, which was to make the dataset, as an append to the one that another query made meanwhile."""
    assert isinstance(claimed.operation, op.Overwrite)
    newest = transaction.load(store, listing.latest, listing)
    if newest.schema.field_ids != claimed.operation.schema.field_ids or newest.schema.differences(
        claimed.operation.schema, nullability=False
    ):
        raise SchemaMismatchError(
            "another writer made the dataset while the first batch was written, and made it with other columns",
            help="use another folder",
            file=store.uri,
        )
    return newest, Transaction(listing.latest, claimed.uuid, op.Append(claimed.operation.fragments))
