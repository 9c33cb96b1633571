"""Version checksum files (``N.crc``): the totals of a version, against which a reader checks its replay.

Protocol: *Version Checksum File*.  A checksum comes from a snapshot, or from the previous checksum and the actions of
one commit, at a cost independent of the table's size.  If the result would be uncertain, no checksum is written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add, sub
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.log.segment import checksum_key
from trilake.delta.log.snapshot import Snapshot, State, apply_rare, empty_state
from trilake.delta.protocol.actions import ActionBatch, Metadata, Protocol
from trilake.errors import CorruptLogError, ObjectExistsError, ObjectNotFoundError
from trilake.storage.base import Store

_log = logging.getLogger("trilake.delta")


@dataclass(frozen=True)
class VersionChecksum:
    """The totals of a version: ``table_size_bytes`` and ``num_files`` of its logical files, and its rare actions.

    All other fields are ``None`` if the writer did not record them; checksums of 2020 have only sizes and counts.
    """

    table_size_bytes: int
    num_files: int
    protocol: Protocol | None
    metadata: Metadata | None
    txns: Mapping[str, Mapping[str, Any]] | None = None
    domains: Mapping[str, Mapping[str, Any]] | None = None
    in_commit_timestamp: int | None = None
    txn_id: str | None = None
    num_deletion_vectors: int | None = None
    num_deleted_records: int | None = None

    def to_json(self) -> bytes:
        out: dict[str, Any] = {
            "txnId": self.txn_id,
            "tableSizeBytes": self.table_size_bytes,
            "numFiles": self.num_files,
            "numDeletedRecordsOpt": self.num_deleted_records,
            "numDeletionVectorsOpt": self.num_deletion_vectors,
            "numMetadata": 1,
            "numProtocol": 1,
            "inCommitTimestampOpt": self.in_commit_timestamp,
            "setTransactions": None if self.txns is None else [dict(t) for t in self.txns.values()],
            "domainMetadata": None if self.domains is None else [dict(d) for d in self.domains.values()],
            "metadata": self.metadata and self.metadata.to_json(),
            "protocol": self.protocol and self.protocol.to_json(),
        }
        return orjson.dumps({k: v for k, v in out.items() if v is not None})

    @staticmethod
    def from_json(data: bytes, *, version: int) -> VersionChecksum:
        """Parse the file.  Raises ``CorruptLogError`` if it is damaged or lacks a required field."""
        try:
            fields = orjson.loads(data)
            if fields["numMetadata"] != 1 or fields["numProtocol"] != 1:
                raise ValueError("numMetadata and numProtocol must be 1")
            txns, domains = fields.get("setTransactions"), fields.get("domainMetadata")
            protocol, metadata = fields.get("protocol"), fields.get("metadata")
            return VersionChecksum(
                _count(fields["tableSizeBytes"]),
                _count(fields["numFiles"]),
                None if protocol is None else Protocol.from_json(protocol, version=version),
                None if metadata is None else Metadata.from_json(metadata, version=version),
                None if txns is None else {str(t["appId"]): t for t in txns},
                None if domains is None else {str(d["domain"]): d for d in domains},
                fields.get("inCommitTimestampOpt"),
                fields.get("txnId"),
                fields.get("numDeletionVectorsOpt"),
                fields.get("numDeletedRecordsOpt"),
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as e:
            message = f"the version checksum file is damaged ({type(e).__name__}: {e})"
            help = "delete the file: no reader needs it"
            raise CorruptLogError(message, help=help, file=checksum_key(version), version=version) from e


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


@dataclass(frozen=True)
class FileTotals:
    """Totals of logical files: their number, bytes, deletion vectors and deleted rows.

    >>> FileTotals(1, 10) + FileTotals(2, 5)
    FileTotals(num_files=3, size_in_bytes=15, num_vectors=0, num_deleted=0)
    """

    num_files: int = 0
    size_in_bytes: int = 0
    num_vectors: int = 0
    num_deleted: int = 0

    def __add__(self, other: FileTotals) -> FileTotals:
        return FileTotals(*map(add, vars(self).values(), vars(other).values()))

    def __sub__(self, other: FileTotals) -> FileTotals:
        return FileTotals(*map(sub, vars(self).values(), vars(other).values()))

    @staticmethod
    def of(files: pa.Table) -> FileTotals:
        vectors = files["deletionVector"]
        deleted = _total(pc.struct_field(vectors, "cardinality"))
        return FileTotals(files.num_rows, _total(files["size"]), len(vectors) - vectors.null_count, deleted)


def of_snapshot(snapshot: Snapshot, info: Mapping[str, Any]) -> VersionChecksum:
    """The checksum of a snapshot; ``info`` is its ``commitInfo``."""
    return of_state(snapshot.state, FileTotals.of(snapshot.adds), info)


def of_state(state: State, files: FileTotals, info: Mapping[str, Any]) -> VersionChecksum:
    """The checksum of a version with this state and the file totals ``files``; ``info`` is its ``commitInfo``."""
    assert state.protocol is not None
    assert state.metadata is not None
    return VersionChecksum(
        files.size_in_bytes,
        files.num_files,
        state.protocol,
        state.metadata,
        state.txns,
        state.domains,
        info.get("inCommitTimestamp"),
        info.get("txnId"),
        files.num_vectors,
        files.num_deleted,
    )


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def following(before: VersionChecksum | None, batch: ActionBatch) -> VersionChecksum | None:
    """The checksum after one more commit with the actions ``batch``; ``before`` is ``None`` for the first commit.

    Returns ``None`` if these do not suffice: a commit that only rearranges data may add a file again, a removed file
    may lack its size, and ``before`` the protocol and metadata.
    """
    adds, removes = batch.add, batch.remove
    rearranges = adds.num_rows and not pc.all(pc.fill_null(adds["dataChange"], False)).as_py()
    if rearranges or removes["size"].null_count:
        return None
    state, files, unknown = empty_state(), FileTotals(), dict[str, Any]()
    if before is not None:
        txns, domains = before.txns or {}, before.domains or {}
        state = replace(state, protocol=before.protocol, metadata=before.metadata, txns=txns, domains=domains)
        vectors, deleted = before.num_deletion_vectors, before.num_deleted_records
        files = FileTotals(before.num_files, before.table_size_bytes, vectors or 0, deleted or 0)
        unknown = {name: None for name in ("txns", "domains") if getattr(before, name) is None}
        if vectors is None or deleted is None:
            unknown |= {"num_deletion_vectors": None, "num_deleted_records": None}
    state = apply_rare(state, batch)
    if state.protocol is None or state.metadata is None:
        return None
    files += FileTotals.of(adds) - FileTotals.of(removes)
    infos = batch.of("commitInfo")
    after = replace(of_state(state, files, infos[-1][1] if infos else {}), **unknown)
    counts = (after.num_files, after.table_size_bytes, after.num_deletion_vectors, after.num_deleted_records)
    return None if any(n is not None and n < 0 for n in counts) else after


def read_checksum(store: Store, version: int) -> VersionChecksum | None:
    """Read the checksum of a version; ``None`` if it is missing or damaged, since it is optional."""
    try:
        return VersionChecksum.from_json(bytes(store.read(checksum_key(version))), version=version)
    except (ObjectNotFoundError, CorruptLogError):
        return None


def write_checksum(store: Store, version: int, checksum: VersionChecksum) -> None:
    """Write the file unless it exists."""
    try:
        store.put_if_absent(checksum_key(version), checksum.to_json())
    except ObjectExistsError:
        _log.debug("version %d of %s has a checksum already", version, store.uri)


def differences(checksum: VersionChecksum, snapshot: Snapshot) -> Sequence[str]:
    """Where a checksum differs from the snapshot of its version; empty if they agree."""
    adds = snapshot.adds
    return differences_of(checksum, snapshot.state, {"numFiles": adds.num_rows, "tableSizeBytes": _total(adds["size"])})


def differences_of(checksum: VersionChecksum, state: State, totals: Mapping[str, int]) -> list[str]:
    """Where a checksum differs from the rare actions of ``state`` and the totals of its files."""
    values = {
        "numFiles": checksum.num_files,
        "tableSizeBytes": checksum.table_size_bytes,
        "numDeletionVectorsOpt": checksum.num_deletion_vectors,
        "numDeletedRecordsOpt": checksum.num_deleted_records,
    }
    pairs: list[tuple[str, Any, Any]] = [(n, values[n], v) for n, v in totals.items() if values[n] is not None]
    if checksum.protocol is not None and state.protocol is not None:
        pairs.append(("protocol", checksum.protocol.unordered, state.protocol.unordered))
    if checksum.metadata is not None and state.metadata is not None:
        pairs.append(("metadata", checksum.metadata.to_json(), state.metadata.to_json()))
    if checksum.txns is not None:
        pairs.append(("setTransactions", _versions(checksum.txns), _versions(state.txns)))
    if checksum.domains is not None:
        pairs.append(("domainMetadata", _configurations(checksum.domains), _configurations(state.domains)))
    wrong = ((name, _short(there), _short(here)) for name, there, here in pairs if there != here)
    return [f"{name} is {there}, but the log gives {here}" for name, there, here in wrong]


def _versions(txns: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {k: t.get("version") for k, t in txns.items()}


def _configurations(domains: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {k: d.get("configuration") for k, d in domains.items() if not d.get("removed")}


def _short(value: Any) -> str:
    string = repr(value)
    return string if len(string) <= 200 else f"{string[:200]}..."
