"""Commits: from a read version and an operation to the next version of the dataset.

The life of a transaction::

    data files, transaction file, newest manifest --> put N+1 --won--> committed --> copy to _latest.manifest
                                     ^  |                |
                                     |  | conflict?      | lost, or no reply
                                     |  v                v
                                     |  ConflictError   N+1 names this transaction file? committed
                                     +-------------------- another transaction's: check it for conflicts, and retry

The last data file, the transaction file and the newest manifest do not wait for each other; put N+1 waits for all.
The one dangerous step is ``put_if_absent`` of the manifest.  A lost reply is never taken for a failure: the manifest
names its transaction file, whose name is random, so the dataset itself shows whose commit it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TrilakeError,
    UnknownOutcomeError,
)
from trilake.lance.file import framing
from trilake.lance.file.errors import CommitConflictError, DatasetExistsError, DatasetNotFoundError, OptionError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.proto import UnknownFieldSet
from trilake.lance.proto import format_pb2 as pb
from trilake.lance.proto import transaction_pb2 as tx
from trilake.lance.versions import manifest as m
from trilake.lance.versions import operations as op
from trilake.lance.versions.effects import apply
from trilake.lance.versions.holds import hold
from trilake.lance.versions.manifest import Fragment, Manifest
from trilake.lance.versions.versions import (
    DETACHED,
    LATEST,
    Listing,
    Scheme,
    check_place,
    choose_version,
    list_versions,
    manifest_key,
)
from trilake.storage.base import Store

_log = logging.getLogger("trilake.lance")

TRANSACTIONS = "_transactions"
#: Maximum attempts of a commit.
MAX_ATTEMPTS = 100


@dataclass(frozen=True)
class Transaction:
    """An operation, the version that it was made for (0 for a new dataset), a unique id, and properties from users."""

    read_version: int
    uuid: str
    operation: op.Operation
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return f"{self.read_version}-{self.uuid}.txn"


# --- messages --------------------------------------------------------------------------------------------------------


def serialise(transaction: Transaction) -> bytes:
    """Serialize the content of a transaction file."""

    def fragments(entries: Iterable[Fragment]) -> list[pb.DataFragment]:
        return [m.fragment_message(f) for f in entries]

    kinds, part = tx.Transaction, dict[str, Any]()
    match transaction.operation:
        case op.Append(new):
            part["append"] = kinds.Append(fragments=fragments(new))
        case op.Delete(updated, removed, predicate):
            part["delete"] = kinds.Delete(
                updated_fragments=fragments(updated), deleted_fragment_ids=removed, predicate=predicate
            )
        case op.Overwrite(new, schema, config, bases):
            part["overwrite"] = kinds.Overwrite(
                fragments=fragments(new),
                schema=schema.to_proto(),
                schema_metadata=schema.metadata_to_proto(),
                config_upsert_values=config,
                initial_bases=map(m.base_path_message, bases),
            )
        case op.CreateIndex(added, dropped):
            part["create_index"] = kinds.CreateIndex(
                new_indices=map(m.index_message, added), removed_indices=map(m.index_message, dropped)
            )
        case op.Rewrite(groups, indices):
            part["rewrite"] = kinds.Rewrite(
                groups=[
                    kinds.Rewrite.RewriteGroup(old_fragments=fragments(g.old), new_fragments=fragments(g.new))
                    for g in groups
                ],
                rewritten_indices=[
                    kinds.Rewrite.RewrittenIndex(
                        old_id=pb.UUID(uuid=i.old.bytes),
                        new_id=pb.UUID(uuid=i.new.bytes),
                        new_index_details=None if i.details is None else m.details_message(i.details),
                        new_index_version=i.version,
                    )
                    for i in indices
                ],
            )
        case op.Merge(all_, schema):
            part["merge"] = kinds.Merge(
                fragments=fragments(all_), schema=schema.to_proto(), schema_metadata=schema.metadata_to_proto()
            )
        case op.Restore(version):
            part["restore"] = kinds.Restore(version=version)
        case op.ReserveFragments(count):
            part["reserve_fragments"] = kinds.ReserveFragments(num_fragments=count)
        case op.Update(removed, updated, new, modified):
            part["update"] = kinds.Update(
                removed_fragment_ids=removed,
                updated_fragments=fragments(updated),
                new_fragments=fragments(new),
                fields_modified=modified,
            )
        case op.Project(schema):
            part["project"] = kinds.Project(schema=schema.to_proto())
        case op.UpdateConfig(config, table, metadata, by_field):
            part["update_config"] = kinds.UpdateConfig(
                config=_map_message(config),
                table_metadata=_map_message(table),
                schema_metadata=_map_message(metadata),
                field_metadata={id: _map_message(update) or kinds.UpdateMap() for id, update in by_field.items()},
            )
        case op.DataReplacement(replacements):
            part["data_replacement"] = replacement = kinds.DataReplacement()
            for id, file in replacements:
                group = replacement.replacements.add(fragment_id=id)
                group.new_file.CopyFrom(m.fragment_message(Fragment(0, (file,))).files[0])
        case op.Clone(path, version, name, branch, is_shallow):
            part["clone"] = kinds.Clone(
                is_shallow=is_shallow, ref_name=name, ref_version=version, ref_path=path, branch_name=branch
            )
        case op.UpdateBases(bases):
            part["update_bases"] = kinds.UpdateBases(new_bases=map(m.base_path_message, bases))
        case op.Unknown(number):
            raise InvalidArgumentError(f"unknown operation {number} cannot be written")
    read, uuid, properties = transaction.read_version, transaction.uuid, transaction.properties
    message = tx.Transaction(read_version=read, uuid=uuid, transaction_properties=properties, **part)
    return message.SerializeToString(deterministic=True)


def _map_message(update: op.MapUpdate | None) -> tx.Transaction.UpdateMap | None:
    if update is None:
        return None
    entries = [tx.Transaction.UpdateMap.Entry(key=key, value=value) for key, value in update.entries.items()]
    return tx.Transaction.UpdateMap(entries=entries, replace=update.replace)


def _map_update(message: tx.Transaction.UpdateMap) -> op.MapUpdate:
    entries = {e.key: e.value if e.HasField("value") else None for e in message.entries}
    return op.MapUpdate(entries, message.replace)


def parse(data: bytes, *, file: str = "") -> Transaction:
    """Parse a transaction file; an unknown operation becomes :class:`op.Unknown`.  Raises ``CorruptLogError``."""
    message = framing.parse(data, tx.Transaction, file=file, damaged=CorruptLogError)
    properties = dict(message.transaction_properties)
    return Transaction(message.read_version, message.uuid, _operation(message, file), properties)


def _operation(message: tx.Transaction, file: str) -> op.Operation:
    def fragments(entries: Iterable[pb.DataFragment]) -> tuple[Fragment, ...]:
        return tuple(m.parse_fragment(f, file=file) for f in entries)

    match message.WhichOneof("operation"):
        case "append":
            return op.Append(fragments(message.append.fragments))
        case "delete":
            d = message.delete
            return op.Delete(fragments(d.updated_fragments), tuple(d.deleted_fragment_ids), d.predicate)
        case "overwrite":
            o = message.overwrite
            return op.Overwrite(
                fragments(o.fragments),
                LanceSchema.from_proto(o.schema, dict(o.schema_metadata), file=file),
                dict(o.config_upsert_values),
                tuple(map(m.parse_base_path, o.initial_bases)),
            )
        case "create_index":
            c = message.create_index
            return op.CreateIndex(
                tuple(m.parse_index(i, file=file) for i in c.new_indices),
                tuple(m.parse_index(i, file=file) for i in c.removed_indices),
            )
        case "rewrite":
            r = message.rewrite
            groups = [op.RewriteGroup(fragments(g.old_fragments), fragments(g.new_fragments)) for g in r.groups]
            if r.old_fragments or r.new_fragments:
                groups.append(op.RewriteGroup(fragments(r.old_fragments), fragments(r.new_fragments)))
            return op.Rewrite(tuple(groups), tuple(_rewritten(i, file) for i in r.rewritten_indices))
        case "merge":
            merge = message.merge
            merged = LanceSchema.from_proto(merge.schema, dict(merge.schema_metadata), file=file)
            return op.Merge(fragments(merge.fragments), merged)
        case "restore":
            return op.Restore(message.restore.version)
        case "reserve_fragments":
            return op.ReserveFragments(message.reserve_fragments.num_fragments)
        case "update":
            u = message.update
            updated, new = fragments(u.updated_fragments), fragments(u.new_fragments)
            return op.Update(tuple(u.removed_fragment_ids), updated, new, tuple(u.fields_modified))
        case "project":
            return op.Project(LanceSchema.from_proto(message.project.schema, file=file))
        case "update_config":
            changed = message.update_config
            config, table, schema = (
                _map_update(getattr(changed, name)) if changed.HasField(name) else None
                for name in ("config", "table_metadata", "schema_metadata")
            )
            by_field = {id: _map_update(update) for id, update in changed.field_metadata.items()}
            return op.UpdateConfig(config, table, schema, by_field)
        case "data_replacement":
            new_files = message.data_replacement.replacements
            files = [(one.fragment_id, pb.DataFragment(files=[one.new_file])) for one in new_files]
            return op.DataReplacement(tuple((id, m.parse_fragment(f, file=file).files[0]) for id, f in files))
        case "clone":
            clone = message.clone
            name = clone.ref_name if clone.HasField("ref_name") else None
            branch = clone.branch_name if clone.HasField("branch_name") else None
            return op.Clone(clone.ref_path, clone.ref_version, name, branch, clone.is_shallow)
        case "update_bases":
            return op.UpdateBases(tuple(map(m.parse_base_path, message.update_bases.new_bases)))
    unknown: Any = UnknownFieldSet(message)
    return op.Unknown(max((int(f.field_number) for f in unknown), default=0))


def _rewritten(message: tx.Transaction.Rewrite.RewrittenIndex, file: str) -> op.RewrittenIndex:
    ids = message.old_id.uuid, message.new_id.uuid
    if any(len(u) != 16 for u in ids):
        raise CorruptLogError("a rewritten index has no id of 16 bytes", file=file)
    details = m.parse_details(message.new_index_details) if message.HasField("new_index_details") else None
    return op.RewrittenIndex(UUID(bytes=ids[0]), UUID(bytes=ids[1]), details, message.new_index_version)


def load(store: Store, version: int | None = None, listing: Listing | None = None) -> Manifest:
    """Load the manifest of a version, by default the newest.  Raises ``TableNotFoundError`` and others."""
    listing = listing or list_versions(store)
    number = choose_version(store, listing, version)
    manifest = read_manifest(store, listing.key(number), number)
    manifest.check_readable(store.uri)
    return manifest


def read_manifest(store: Store, key: str, version: int) -> Manifest:
    """Read the manifest at a key; it must be of ``version``."""
    return m.parse_manifest(store.read(key), file=f"{store.uri}/{key}", version=version)


def of_manifest(store: Store, manifest: Manifest) -> Transaction | None:
    """Read the transaction of a version; ``None`` if it names none.  Raises ``ObjectNotFoundError`` if it is gone."""
    if manifest.transaction is not None:
        return parse(manifest.transaction, file=store.uri)
    if not manifest.transaction_file:
        return None
    key = f"{TRANSACTIONS}/{manifest.transaction_file}"
    return parse(store.read(key).to_pybytes(), file=f"{store.uri}/{key}")


# --- committing ------------------------------------------------------------------------------------------------------


def begin(
    read_version: int, operation: op.Operation, runtime: Runtime, properties: Mapping[str, str] | None = None
) -> Transaction:
    """Create a transaction with a new id."""
    return Transaction(read_version, runtime.new_id(), operation, properties or {})


def commit(
    store: Store,
    transaction: Transaction,
    runtime: Runtime,
    *,
    create: bool = False,
    scheme: Scheme = "v1",
    check: Callable[[Manifest], None] | None = None,
    known: str | None = None,
    finish: Callable[[], None] | None = None,
    base: Manifest | None = None,
) -> Manifest:
    """Commit a transaction on top of the newest version; return the new version.

    With ``create``, the dataset must not exist yet; ``scheme`` names its manifests.  ``check`` is called with the
    newest manifest before each attempt.  ``known`` is the key of the manifest of the read version, which is
    usually still the newest; ``base`` is that manifest, to detect that another dataset has replaced it.  ``finish``
    makes the files of the operation durable; an error from it ends the commit before its manifest.

    Raises ``ConflictError`` if another commit conflicts with this one, ``TableExistsError`` with ``create``,
    ``DatasetNotFoundError`` if the dataset is gone or was replaced by another one, and ``UnknownOutcomeError`` if the
    store cannot tell whether the commit landed.
    """
    key = f"{TRANSACTIONS}/{transaction.file}"
    message = serialise(transaction)
    put = partial(_put_transaction, store, key, message)
    read = partial(_manifest_or_none, store, known, transaction.read_version)
    first = [] if finish is None else [finish]
    *_, listing, guessed = store.at_once([*first, put, partial(list_versions, store), read])
    checked = transaction.read_version
    # Hold the version to restore, so that no clean-up removes it.
    back = transaction.operation.version if isinstance(transaction.operation, op.Restore) else None
    with nullcontext() if back is None else hold(store, back, runtime):
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                listing, guessed = list_versions(store), None
            newest = None
            if listing.versions:
                if create:
                    raise DatasetExistsError(
                        "a Lance dataset already exists here",
                        help='pass mode="append" or mode="overwrite" to write into it',
                        file=store.uri,
                        version=listing.latest,
                    )
                is_guessed = guessed and (listing.latest, listing.key(listing.latest)) == (guessed.version, known)
                newest = guessed if is_guessed else load(store, listing.latest, listing)
                newest.check_writable(store.uri)
                if base is not None and not base.version & DETACHED:
                    _check_same_dataset(store, listing, base, newest)
                checked = _check_winners(store, listing, transaction, checked, newest, base)
                if check is not None:
                    check(newest)
            elif base is not None:
                raise _replaced(store, base, "was dropped", "write it again")
            elif not isinstance(transaction.operation, op.Overwrite):
                raise DatasetNotFoundError(
                    "not a Lance dataset: there is no manifest in _versions", help="check the path", file=store.uri
                )
            else:
                check_place(store)
            old = None if back is None else load(store, back, listing)
            manifest = apply(newest, transaction.operation, file=transaction.file, now_ns=runtime.clock_ns(), old=old)
            if not manifest.storage_version.is_first:
                manifest = replace(manifest, transaction=message)
            data = m.serialise_manifest(manifest)
            used = listing.scheme if listing.versions else scheme
            key = manifest_key(manifest.version, used)
            if _locked_put(store, key, data, transaction.file, manifest.version, runtime):
                if used == "v1":
                    _copy_latest(store, data, manifest.version)
                return manifest
            if attempt > 2:
                runtime.sleep(min(0.01 * attempt, 0.5))
    raise CommitConflictError(
        f"{MAX_ATTEMPTS} commit attempts failed because other writers committed first",
        help="try again when fewer writers commit to this dataset",
        file=store.uri,
    )


def commit_detached(store: Store, transaction: Transaction, runtime: Runtime) -> Manifest:
    """Commit a transaction as a detached version, which only its number finds.

    It is based on the read version if that is detached, and otherwise on the newest version.

    Raises ``InvalidArgumentError`` for a restore, for a new dataset and for manifests of the v1 naming scheme; other
    errors are those of :func:`commit`.
    """
    listing = list_versions(store)
    reasons = {
        "they cannot create a dataset": not listing.versions,
        "they need manifests of the v2 naming scheme": listing.scheme == "v1",
        "an old version cannot be restored as one": isinstance(transaction.operation, op.Restore),
    }
    reason = next((reason for reason, applies in reasons.items() if applies), None)
    if reason is not None:
        raise OptionError(
            f"detached commits are not supported here: {reason}", help="commit without detached", file=store.uri
        )
    read = transaction.read_version
    newest = load(store, read if read & DETACHED else None, listing)
    newest.check_writable(store.uri)
    if not read & DETACHED:
        _check_winners(store, listing, transaction, read, newest, None)
    message = serialise(transaction)
    _put_transaction(store, f"{TRANSACTIONS}/{transaction.file}", message)
    manifest = apply(newest, transaction.operation, file=transaction.file, now_ns=runtime.clock_ns())
    while True:
        number = runtime.new_number() | DETACHED
        data = m.serialise_manifest(replace(manifest, version=number, transaction=message))
        if _locked_put(store, listing.key(number), data, transaction.file, number, runtime):
            return read_manifest(store, listing.key(number), number)


def _manifest_or_none(store: Store, key: str | None, version: int) -> Manifest | None:
    """Read the manifest at a key; ``None`` if that fails: a listing then finds the cause."""
    if key is None:
        return None
    try:
        manifest = read_manifest(store, key, version)
        manifest.check_readable(store.uri)
    except TrilakeError:
        return None
    return manifest


def _put_transaction(store: Store, key: str, data: bytes) -> None:
    """Write a transaction file; a repeated commit has written the same file before."""
    try:
        store.put_if_absent(key, data)
    except ObjectExistsError:
        if store.read(key).to_pybytes() != data:
            raise


def _check_same_dataset(store: Store, listing: Listing, base: Manifest, newest: Manifest) -> None:
    """Raise ``DatasetNotFoundError`` if another dataset has replaced the one that was read.

    Every dataset numbers its versions and fragments from the start: the commit would remove rows of the new dataset,
    and name files that are gone with the old one.  This is not a conflict, because a retry does not help.
    """
    there = newest if base.version == newest.version else None
    if there is None and base.version in listing.versions:
        with suppress(ObjectNotFoundError):  # cleaned up in between
            there = read_manifest(store, listing.key(base.version), base.version)
    same = there is None or there.identity == base.identity
    if not same or base.version > newest.version:
        raise _replaced(store, base, "was replaced by another one", "open the dataset again and repeat the change")


def _replaced(store: Store, base: Manifest, what: str, help: str) -> DatasetNotFoundError:
    return DatasetNotFoundError(
        f"the dataset {what} while this command was using it", help=help, file=store.uri, version=base.version
    )


def _check_winners(
    store: Store, listing: Listing, mine: Transaction, checked: int, newest: Manifest, base: Manifest | None
) -> int:
    """Check all commits after version ``checked`` for conflicts; return the newest version."""
    if isinstance(mine.operation, op.Overwrite | op.Restore):
        return newest.version
    if mine.read_version & DETACHED:
        raise InvalidArgumentError(
            f"version {mine.read_version} is detached: no regular version can follow it",
            help="commit the change with detached=True, or restore the version first",
            file=store.uri,
        )
    if mine.read_version > newest.version:
        raise InvalidArgumentError(
            f"read_version must be at most {newest.version}, the newest version, got {mine.read_version}",
            file=store.uri,
        )
    for version in range(checked + 1, newest.version + 1):
        help = "read the newest version and repeat the change"
        fail = partial(CommitConflictError, help=help, file=store.uri, version=version)
        try:
            # Also versions that were not listed: a listing may miss versions that are added during it.
            winner = newest if version == newest.version else read_manifest(store, listing.key(version), version)
        except ObjectNotFoundError as e:
            raise fail("a commit to check for conflicts was cleaned up") from e
        try:
            other = of_manifest(store, winner)
        except ObjectNotFoundError as e:
            raise fail("the transaction of another commit was cleaned up") from e
        if other is None:
            raise fail("another commit has no transaction to check for conflicts")
        if base is None and any(map(op.changes_nullability, (mine.operation, other.operation))):
            base = _manifest_or_none(store, listing.key(mine.read_version), mine.read_version)
        reason = op.conflict(mine.operation, other.operation, None if base is None else base.schema)
        if reason is not None:
            raise fail(reason)
    return newest.version


def _locked_put(store: Store, key: str, data: bytes, transaction_file: str, version: int, runtime: Runtime) -> bool:
    """Put the manifest under the user's lock, which raises its own error if it cannot be acquired."""
    won = False
    try:
        with runtime.lock(version):
            won = _try_put(store, key, data, transaction_file, version)
    except Exception as e:  # a user's lock may raise anything: if the commit landed, no file may be removed
        if won:
            raise UnknownOutcomeError(
                f"version {version} is committed, but its lock raised an error: {e}",
                help="the commit is complete; check the lock",
                file=f"{store.uri}/{key}",
                version=version,
            ) from e
        raise
    return won


def _try_put(store: Store, key: str, data: bytes, transaction_file: str, version: int) -> bool:
    """Put the manifest; return whether the version is that of this transaction."""
    try:
        store.put_if_absent(key, data)
        return True
    except (ObjectExistsError, UnknownOutcomeError) as e:
        # An existing manifest may be that of this transaction: a retried request meets its own first attempt.
        try:
            return read_manifest(store, key, version).transaction_file == transaction_file
        except StorageError as unread:
            absent = isinstance(unread, ObjectNotFoundError)
            raise UnknownOutcomeError(
                f"the reply to the commit of version {version} was lost, and the manifest "
                + ("does not exist (yet)" if absent else f"cannot be looked up: {unread.message}"),
                file=f"{store.uri}/{key}",
                version=version,
            ) from e


def _copy_latest(store: Store, data: bytes, version: int) -> None:
    try:
        store.put(LATEST, data)
    except (TrilakeError, pa.ArrowException, OSError) as e:
        # The commit is complete; readers must not trust the copy.
        _log.warning("version %d of %s is committed, but _latest.manifest is not updated: %s", version, store.uri, e)
