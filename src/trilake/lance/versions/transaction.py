"""Commits: from a read version and an operation to the next version of the dataset.

The steps of a commit::

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
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
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
from trilake.lance.file.errors import CommitConflictError, DatasetNotFoundError, OptionError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.proto import Message, UnknownFieldSet
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
    check_new_location,
    choose_version,
    exists_already,
    list_versions,
    manifest_key,
    not_found,
)
from trilake.storage.base import Store

_log = logging.getLogger("trilake.lance")

TRANSACTIONS = "_transactions"
#: Maximum attempts of a commit.
MAX_ATTEMPTS = 100
#: Manifests to read together.
_TOGETHER = 64


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

#: The operations by the field of their message, which is named like the operation, and has fields with its names.
_OPERATIONS: dict[str, Any] = {
    f.name: getattr(op, f.name.title().replace("_", "")) for f in tx.Transaction.DESCRIPTOR.oneofs[0].fields
}


def serialise(transaction: Transaction) -> bytes:
    """Serialize the content of a transaction file."""
    operation = transaction.operation
    if isinstance(operation, op.Unknown):
        raise InvalidArgumentError(f"unknown operation {operation.field} cannot be written")
    name = next(name for name, kind in _OPERATIONS.items() if kind is type(operation))
    part: dict[str, Any] = {name: _message_of(getattr(tx.Transaction, type(operation).__name__), operation)}
    read, uuid, properties = transaction.read_version, transaction.uuid, transaction.properties
    message = tx.Transaction(read_version=read, uuid=uuid, transaction_properties=properties, **part)
    return message.SerializeToString(deterministic=True)


def _message_of(kind: Any, thing: Any) -> Message:
    """Build the message of an operation, or of a part of one."""
    names = kind.DESCRIPTOR.fields_by_name
    parts = {f.name: _to_message(getattr(thing, f.name)) for f in fields(thing) if f.name in names}
    if "schema" in names and "schema_metadata" in names:
        parts["schema_metadata"] = thing.schema.metadata_to_proto()
    message: Message = kind(**parts)
    return message


def _to_message(value: Any) -> Any:
    kinds = tx.Transaction
    match value:
        case Fragment():
            return m.fragment_message(value)
        case m.IndexMetadata():
            return m.index_message(value)
        case m.IndexDetails():
            return pb.IndexDetails(type_url=value.type_url, value=value.value)
        case m.BasePath():
            return m.base_path_message(value)
        case UUID():
            return pb.UUID(uuid=value.bytes)
        case LanceSchema():
            return value.to_proto()
        case op.MapUpdate():
            entries = [kinds.UpdateMap.Entry(key=key, value=new) for key, new in value.entries.items()]
            return kinds.UpdateMap(entries=entries, replace=value.replace)
        case op.RewriteGroup():
            return _message_of(kinds.Rewrite.RewriteGroup, value)
        case op.RewrittenIndex():
            return _message_of(kinds.Rewrite.RewrittenIndex, value)
        case (int() as id, m.DataFile() as file):
            return kinds.DataReplacement.Group(fragment_id=id, new_file=m.file_message(file))
        case tuple():
            return list(map(_to_message, value))
        case Mapping():
            return {key: _to_message(one) for key, one in value.items()}
    return value


def parse(data: bytes, *, file: str = "") -> Transaction:
    """Parse a transaction file; an unknown operation becomes :class:`op.Unknown`.  Raises ``CorruptLogError``."""
    message = framing.parse(data, tx.Transaction, file=file, damaged=CorruptLogError)
    name = message.WhichOneof("operation")
    operation: op.Operation
    if name is None:
        unknown: Any = UnknownFieldSet(message)
        operation = op.Unknown(max((int(f.field_number) for f in unknown), default=0))
    else:
        operation = _of_message(_OPERATIONS[name], getattr(message, name), file)
    rewrite = message.rewrite
    if isinstance(operation, op.Rewrite) and (rewrite.old_fragments or rewrite.new_fragments):
        one = _of_message(op.RewriteGroup, rewrite, file)  # as old writers store a single group
        operation = replace(operation, groups=(*operation.groups, one))
    return Transaction(message.read_version, message.uuid, operation, dict(message.transaction_properties))


def _of_message(kind: Any, message: Any, file: str) -> Any:
    """Build an operation, or a part of one, from its message."""
    names = message.DESCRIPTOR.fields_by_name
    parts: dict[str, Any] = {}
    for one in fields(kind):
        if one.name == "schema":
            metadata = dict(getattr(message, "schema_metadata", {}))
            parts["schema"] = LanceSchema.from_proto(message.schema, metadata, file=file)
        elif one.name in names:
            is_absent = one.default is None and not message.HasField(one.name)
            parts[one.name] = None if is_absent else _from_message(getattr(message, one.name), file)
    return kind(**parts)


def _from_message(value: Any, file: str) -> Any:
    kinds = tx.Transaction
    match value:
        case pb.DataFragment():
            return m.parse_fragment(value, file=file)
        case pb.IndexMetadata():
            return m.parse_index(value, file=file)
        case pb.IndexDetails():
            return m.IndexDetails(value.type_url, value.value)
        case pb.BasePath():
            return m.parse_base_path(value)
        case pb.UUID():
            if len(value.uuid) != 16:
                raise CorruptLogError("a rewritten index has no id of 16 bytes", file=file)
            return UUID(bytes=value.uuid)
        case kinds.UpdateMap():
            entries = {e.key: e.value if e.HasField("value") else None for e in value.entries}
            return op.MapUpdate(entries, value.replace)
        case kinds.Rewrite.RewriteGroup():
            return _of_message(op.RewriteGroup, value, file)
        case kinds.Rewrite.RewrittenIndex():
            return _of_message(op.RewrittenIndex, value, file)
        case kinds.DataReplacement.Group():
            return value.fragment_id, m.parse_file(value.new_file)
        case MutableSequence():
            return tuple(_from_message(one, file) for one in value)
        case Mapping():
            return {key: _from_message(one, file) for key, one in value.items()}
    return value


def load(store: Store, version: int | None = None, listing: Listing | None = None) -> Manifest:
    """Load the manifest of a version, by default the newest.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``CorruptLogError`` and ``UnsupportedProtocolError``.
    """
    listing = listing or list_versions(store)
    number = choose_version(store, listing, version)
    manifest = read_manifest(store, listing.key(number), number)
    manifest.check_readable(store.uri)
    return manifest


def read_manifest(store: Store, key: str, version: int) -> Manifest:
    """Read the manifest at a key; it must be of ``version``."""
    return m.parse_manifest(store.read(key), file=f"{store.uri}/{key}", version=version)


def read_manifests(store: Store, listing: Listing, versions: Iterable[int]) -> Iterator[Manifest | None]:
    """Read the manifests of some versions, in this order; ``None`` for one that a clean-up has deleted.

    Equal fragments of several versions are parsed once.
    """
    parsed: dict[bytes, m.Fragment] = {}
    rest = iter(versions)
    while some := list(islice(rest, _TOGETHER)):
        keys = [listing.key(v) for v in some]
        contents: Sequence[pa.Buffer | None]
        try:
            contents = store.read_many(keys)
        except ObjectNotFoundError:
            contents = [_read_or_none(store, key) for key in keys]
        for version, key, data in zip(some, keys, contents, strict=True):
            file = f"{store.uri}/{key}"
            yield None if data is None else m.parse_manifest(data, file=file, version=version, parsed=parsed)


def _read_or_none(store: Store, key: str) -> pa.Buffer | None:
    with suppress(ObjectNotFoundError):
        return store.read(key)
    return None


def of_manifest(store: Store, manifest: Manifest) -> Transaction | None:
    """Read the transaction of a version; ``None`` if it names none, or its file was cleaned up."""
    if manifest.transaction is not None:
        return parse(manifest.transaction, file=store.uri)
    if not manifest.transaction_file:
        return None
    key = f"{TRANSACTIONS}/{manifest.transaction_file}"
    try:
        return parse(store.read(key).to_pybytes(), file=f"{store.uri}/{key}")
    except ObjectNotFoundError:
        return None


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
    if guessed and listing.versions and (listing.latest, listing.key(listing.latest)) != (guessed.version, known):
        guessed = None
    checked = transaction.read_version
    dropped: set[int] = set()
    # Hold the version to restore, so that no clean-up removes it.
    back = transaction.operation.version if isinstance(transaction.operation, op.Restore) else None
    with nullcontext() if back is None else hold(store, back, runtime):
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                listing, guessed = list_versions(store), None
            newest = _newest(store, transaction.operation, listing, guessed, create=create, base=base)
            if newest is not None:
                checked = _check_winners(store, listing, transaction, checked, newest, base, dropped=dropped)
                if check is not None:
                    check(newest)
            old = None if back is None else load(store, back, listing)
            manifest = apply(newest, transaction.operation, file=transaction.file, now_ns=runtime.clock_ns(), old=old)
            if not manifest.storage_version.is_legacy:
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


def _newest(
    store: Store,
    operation: op.Operation,
    listing: Listing,
    guessed: Manifest | None,
    *,
    create: bool,
    base: Manifest | None,
) -> Manifest | None:
    """The newest manifest, already read if it is ``guessed``; ``None`` if the operation may create the dataset.

    ``create`` and ``base`` are those of :func:`commit`.
    """
    if not listing.versions:
        if base is not None:
            raise _replaced(store, base, "was dropped", "write it again")
        if not isinstance(operation, op.Overwrite):
            raise not_found(store)
        check_new_location(store)
        return None
    if create:
        raise exists_already(store, listing)
    newest = load(store, listing.latest, listing) if guessed is None else guessed
    newest.check_writable(store.uri)
    if base is not None and not base.version & DETACHED:
        _check_same_dataset(store, listing, base, newest)
    return newest


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
        _check_winners(store, listing, transaction, read, newest, None, dropped=set())
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
    store: Store,
    listing: Listing,
    mine: Transaction,
    checked: int,
    newest: Manifest,
    base: Manifest | None,
    *,
    dropped: set[int],
) -> int:
    """Check all commits after version ``checked`` for conflicts; return the newest version.

    ``dropped`` are the ids of fields that this transaction uses and a checked commit dropped; found ones are added.
    """
    if op.follows_all(mine.operation):
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
        other = of_manifest(store, winner)
        if other is None:
            gone = "the transaction of another commit was cleaned up"
            raise fail(gone if winner.transaction_file else "another commit has no transaction to check for conflicts")
        if base is None and any(map(op.changes_nullability, (mine.operation, other.operation))):
            base = _manifest_or_none(store, listing.key(mine.read_version), mine.read_version)
        reason = op.conflict(mine.operation, other.operation, None if base is None else base.schema)
        if reason is None:
            reason = _reused(op.used_fields(mine.operation), winner.schema, dropped)
        if reason is not None:
            raise fail(reason)
    return newest.version


def _reused(used: frozenset[int], schema: LanceSchema, dropped: set[int]) -> str | None:
    """Why a schema gives the id of a dropped field another meaning; adds the ``used`` fields that it drops."""
    present = used.intersection(schema.field_ids) if used else used
    dropped |= used - present
    both = sorted(dropped & present)
    return f"field {both[0]} was dropped, and its id is now that of another column" if both else None


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
