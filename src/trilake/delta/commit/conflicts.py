"""Conflict checking: may this transaction still commit although another one committed first?  A pure function.

The checks run in the order of delta-spark: protocol, metadata, domain metadata, application ids, files added where this
transaction read, deleted files that it read, deleted files that it also deletes; then vacuums of files that it
restores.  Row ids and in-commit timestamps never conflict: each attempt assigns them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commit.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from trilake.delta.log.snapshot import Head, file_keys
from trilake.delta.protocol.actions import ActionBatch, Metadata
from trilake.delta.protocol.partitions import PartitionKeys
from trilake.delta.protocol.property_values import DEFAULT_LEVEL, IsolationLevel
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.identity import only_marks_moved
from trilake.delta.scan.statistics import StatisticsReader
from trilake.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConflictError,
    MetadataChangedError,
    ProtocolChangedError,
)
from trilake.expr import Filter, can_match
from trilake.expr.terms.engine import Query

#: Assumed clock difference between two writers.
_CLOCKS_MS = 3_600_000


@dataclass(frozen=True)
class ReadSet:
    """What a transaction read and what it changes.

    ``whole_table``: every file counts as read.  ``partitions``: so do files of exactly these partitions, as when a
    write replaces partitions.  ``predicates``: so do files of partitions that may match one of them.  ``files`` are the
    paths that it read and ``removed`` those that it removes, as spelled in the log.  ``domains`` are the metadata
    domains that it writes.
    """

    whole_table: bool = False
    partitions: tuple[PartitionKeys, ...] | None = None
    removed: frozenset[str] = frozenset()
    changes_metadata: bool = False
    app_ids: frozenset[str] = frozenset()
    predicates: tuple[PartitionPredicate, ...] = ()
    files: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    isolation: IsolationLevel = DEFAULT_LEVEL
    #: The metadata that it read, to ignore changes that only advance identity columns; ``None`` if all changes matter.
    metadata: Metadata | None = None
    #: Whether it can be rebased onto a version in which another writer advanced identity columns.
    rebases_identity: bool = False
    #: When the first of the files that it restores was removed, in ms since the epoch; ``None`` without such files.
    revives_from: int | None = None
    #: Reads of versions other than the base version.
    elsewhere: tuple[ReadAt, ...] = ()

    @property
    def blind(self) -> bool:
        """Whether the transaction read nothing of the table."""
        return not (self.whole_table or self.partitions is not None or self.predicates or self.files or self.removed)

    def beside(self, other: ReadSet) -> ReadSet:
        """This read set combined with ``other``."""
        partitions = (self.partitions or ()) + (other.partitions or ())
        return replace(
            self,
            whole_table=self.whole_table or other.whole_table,
            partitions=partitions if self.partitions is not None or other.partitions is not None else None,
            predicates=self.predicates + other.predicates,
            files=self.files | other.files,
            elsewhere=self.elsewhere + other.elsewhere,
        )


#: The read set of a transaction that does not depend on any row of the table.
NOTHING_READ = ReadSet()


@dataclass(frozen=True)
class ReadAt:
    """Reads of one version of the table."""

    version: int
    read: ReadSet


@dataclass(frozen=True)
class Winner:
    """A commit that took the version this transaction tried."""

    version: int
    actions: ActionBatch

    @property
    def info(self) -> Mapping[str, Any]:
        infos = self.actions.of("commitInfo")
        return infos[0][1] if infos else {}


def check(read: ReadSet, winner: Winner) -> ConflictError | None:
    """The reason why the transaction must not commit after ``winner``; ``None`` if it may."""
    for rule in _RULES:
        conflict = rule(read, winner)
        if conflict is not None:
            return conflict
    return None


def check_between(read: ReadSet, between: Winner) -> ConflictError | None:
    """The reason why reads at one version are stale at a later version; ``None`` if they are not.

    ``between`` lists the commits in between.  Stale reads have no place in the commit order, not even before a blind
    append.  Files that were only rewritten do not matter, nor does the schema, which was current at the time of the
    read.
    """
    files = between.actions
    new_rows_only = Winner(
        between.version, replace(files, add=changing_rows(files.add), remove=changing_rows(files.remove))
    )
    read = replace(read, isolation="Serializable")
    return _added(read, new_rows_only) or _deleted_read(read, new_rows_only)


def changing_rows(files: pa.Table) -> pa.Table:
    """The file actions with ``dataChange``, in log order."""
    return files.filter(pc.fill_null(files["dataChange"], True))


_AGAIN = "read the table again and repeat the write"


def _conflict(cls: type[ConflictError], winner: Winner, what: str, help: str = _AGAIN, **context: Any) -> ConflictError:
    return cls(what, help=help, version=winner.version, operation=winner.info.get("operation"), **context)


def _protocol(read: ReadSet, winner: Winner) -> ConflictError | None:
    if not winner.actions.of("protocol"):
        return None
    return _conflict(ProtocolChangedError, winner, "another commit changed the table's protocol")


def _metadata(read: ReadSet, winner: Winner) -> ConflictError | None:
    metadata_actions = winner.actions.of("metaData")
    if not metadata_actions:
        return None
    if read.metadata is not None and (not read.changes_metadata or read.rebases_identity):
        newest = Metadata.from_json(metadata_actions[-1][1], version=winner.version)
        if only_marks_moved(read.metadata, newest):
            return None
    return _conflict(MetadataChangedError, winner, "another commit changed the table's schema or properties")


def _domains(read: ReadSet, winner: Winner) -> ConflictError | None:
    both = {str(d.get("domain")) for _, d in winner.actions.of("domainMetadata")} & read.domains - {ROW_TRACKING_DOMAIN}
    if not both:
        return None
    return _conflict(
        MetadataChangedError, winner, f"another commit changed the metadata domain {', '.join(sorted(both))}"
    )


def _applications(read: ReadSet, winner: Winner) -> ConflictError | None:
    advanced = {str(t.get("appId")) for _, t in winner.actions.of("txn")} & read.app_ids
    if not advanced:
        return None
    return _conflict(
        ConcurrentTransactionError,
        winner,
        f"another commit advanced the application id {', '.join(sorted(advanced))}",
        "the other writer has written this batch: do not write it again",
    )


def _added(read: ReadSet, winner: Winner) -> ConflictError | None:
    if read.isolation == "SnapshotIsolation":
        return None
    # Under WriteSerializable a blind append may be ordered after this commit, whatever this commit read.
    lenient = read.isolation == "WriteSerializable" and not read.changes_metadata
    if lenient and winner.info.get("isBlindAppend") is True:
        return None
    overlap = _in_read_set(read, winner.actions.add)
    if not overlap.num_rows:
        return None
    return _conflict(
        ConcurrentAppendError,
        winner,
        f"another commit added {overlap.num_rows} files where this one read",
        files=_some(overlap),
    )


def _deleted_read(read: ReadSet, winner: Winner) -> ConflictError | None:
    removes = winner.actions.remove
    deleted = _in_read_set(replace(read, predicates=()), removes)
    if not deleted.num_rows and read.files:
        deleted = _among(removes, read.files)
    if not deleted.num_rows:
        return None
    return _conflict(
        ConcurrentDeleteReadError,
        winner,
        f"another commit removed {deleted.num_rows} files that this one read",
        files=_some(deleted),
    )


def _deleted_deleted(read: ReadSet, winner: Winner) -> ConflictError | None:
    both = _among(winner.actions.remove, read.removed)
    if not both.num_rows:
        return None
    return _conflict(
        ConcurrentDeleteDeleteError,
        winner,
        f"another commit removed {both.num_rows} files that this one also removes",
        files=_some(both),
    )


def _vacuumed(read: ReadSet, winner: Winner) -> ConflictError | None:
    if read.revives_from is None or winner.info.get("operation") != "VACUUM START":
        return None
    cutoff = _vacuum_cutoff(winner.info)
    if cutoff is not None and read.revives_from > cutoff + _CLOCKS_MS:
        return None
    return _conflict(
        ConcurrentDeleteReadError,
        winner,
        "a concurrent vacuum may delete files that this commit restores",
        "wait for the end of the vacuum, then repeat the command",
    )


def _vacuum_cutoff(info: Mapping[str, Any]) -> int | None:
    """The time before which a removed file may be deleted; ``None`` if the entry does not state it."""
    parameters = info.get("operationParameters") or {}
    try:
        retention = parameters.get("specifiedRetentionMillis", parameters["defaultRetentionMillis"])
        return int(info["timestamp"]) - int(retention)
    except (KeyError, TypeError, ValueError):
        return None


_RULES = (_protocol, _metadata, _domains, _applications, _added, _deleted_read, _deleted_deleted, _vacuumed)


def _among(files: pa.Table, paths: frozenset[str]) -> pa.Table:
    if not files.num_rows or not paths:
        return files.slice(0, 0)
    return files.filter(pc.is_in(files["path"], pa.array(sorted(paths), pa.string())))


def _in_read_set(read: ReadSet, files: pa.Table) -> pa.Table:
    if read.whole_table or not files.num_rows:
        return files
    if read.partitions is None and not read.predicates:
        return files.slice(0, 0)
    mask = np.zeros(files.num_rows, bool)
    unknown = files["partitionValues"].is_null()
    for partitions in read.partitions or ():
        mask |= PartitionKeys.of(files["partitionValues"], partitions.fields).among(partitions)
    for predicate in read.predicates:
        mask |= predicate.may_match(files).to_numpy(zero_copy_only=False)
    # A remove without partition values may belong to any partition.
    return files.filter(pc.or_(pa.array(mask), unknown))


def _some(files: pa.Table) -> str:
    keys = file_keys(files).slice(0, 3).to_pylist()
    more = f" and {files.num_rows - 3} more" if files.num_rows > 3 else ""
    return ", ".join(k.split("\x00")[0] for k in keys) + more


# --- A filter reduced to partition values, for conflict checks --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartitionPredicate:
    """``filter`` over the rows of a table with this ``schema``, partitioned by ``partition_columns``.

    As in delta-spark, conditions on other columns count as possibly true.
    """

    filter: Filter
    schema: StructType
    partition_columns: tuple[str, ...]
    query: Query

    @classmethod
    def of(cls, head: Head, filter: Filter) -> PartitionPredicate:
        names = tuple(head.schema.field(c).name for c in head.metadata.partition_columns)
        return cls(filter, head.schema, names, head.engine.query)

    def may_match(self, files: pa.Table) -> pa.Array:
        """For each file, whether its ``partitionValues`` allow a matching row."""
        stats = pa.table({"partitionValues": files["partitionValues"], "stats": pa.nulls(files.num_rows, pa.string())})
        reader = StatisticsReader(stats, self.schema, self.partition_columns, self.query)
        return pa.array(can_match(self.filter, reader.file_stats()).keep)
