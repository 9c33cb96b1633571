"""Conflict checking: may this transaction still commit although another one committed first?  A pure function.

The checks run in the order of delta-spark: protocol, metadata, domain metadata, application ids, files added where this
transaction read, deleted files that it read, deleted files that it also deletes; then vacuums of files that it
restores.  Row ids and in-commit timestamps never conflict: each attempt assigns them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plural
from trilake.delta.commit.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from trilake.delta.log.snapshot import Head, file_keys
from trilake.delta.protocol.actions import ActionBatch, Metadata, Protocol
from trilake.delta.protocol.features import REGISTRY, features_of
from trilake.delta.protocol.partitions import PartitionKeys
from trilake.delta.protocol.properties import known_properties
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
    domains that it writes or depends on; ``None`` means all of them.
    """

    whole_table: bool = False
    partitions: tuple[PartitionKeys, ...] | None = None
    removed: frozenset[str] = frozenset()
    changes_metadata: bool = False
    app_ids: frozenset[str] = frozenset()
    predicates: tuple[PartitionPredicate, ...] = ()
    files: frozenset[str] = frozenset()
    domains: frozenset[str] | None = frozenset()
    isolation: IsolationLevel = DEFAULT_LEVEL
    #: Protocol and metadata of its base version, to ignore changes that only enable features and advance identity
    #: columns; ``None`` if all changes matter.
    protocol: Protocol | None = None
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
    rules = (_changes_of_state, _added, _deleted_read, _deleted_deleted, _vacuumed)
    return next((conflict for rule in rules for conflict in rule(read, winner)), None)


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
    return next((c for rule in (_added, _deleted_read) for c in rule(read, new_rows_only)), None)


def changing_rows(files: pa.Table) -> pa.Table:
    """The file actions with ``dataChange``, in log order."""
    return files.filter(pc.fill_null(files["dataChange"], True))


_AGAIN = "read the table again and repeat the write"


def _conflict(
    cls: type[ConflictError], winner: Winner, message: str, help: str = _AGAIN, **context: Any
) -> ConflictError:
    return cls(message, help=help, version=winner.version, operation=winner.info.get("operation"), **context)


def _changes_of_state(read: ReadSet, winner: Winner) -> Iterator[ConflictError]:
    protocols = winner.actions.of("protocol")
    if protocols and not _only_added(read.protocol, Protocol.from_json(protocols[-1][1], version=winner.version)):
        yield _conflict(ProtocolChangedError, winner, "another commit changed the table's protocol")
    metadata_actions = winner.actions.of("metaData")
    if metadata_actions:
        newest, old = Metadata.from_json(metadata_actions[-1][1], version=winner.version), read.metadata
        tolerates_marks = not read.changes_metadata or read.rebases_identity
        if old is None or not tolerates_marks or not _only_enabled(old, newest):
            yield _conflict(MetadataChangedError, winner, "another commit changed the table's schema or properties")
    written = {str(d.get("domain")) for _, d in winner.actions.of("domainMetadata")} - {ROW_TRACKING_DOMAIN}
    both = written if read.domains is None else written & read.domains
    if both:
        message = f"another commit changed the metadata domain {', '.join(sorted(both))}"
        yield _conflict(MetadataChangedError, winner, message)
    advanced = {str(t.get("appId")) for _, t in winner.actions.of("txn")} & read.app_ids
    if advanced:
        message = f"another commit advanced the application id {', '.join(sorted(advanced))}"
        help = "the other writer has written this batch: do not write it again"
        yield _conflict(ConcurrentTransactionError, winner, message, help)


def _only_added(old: Protocol | None, new: Protocol) -> bool:
    """Whether a protocol only has more features, and such that earlier commits stay valid."""
    if old is None or not features_of(old) <= features_of(new):
        return False
    added = [REGISTRY.get(name) for name in features_of(new) - features_of(old)]
    return all(feature is not None and feature.late and feature.writes for feature in added)


def _only_enabled(old: Metadata, new: Metadata) -> bool:
    """Whether metadata differs only in enabled features that leave earlier commits valid, and in identity marks."""
    after, known = new.configuration, known_properties()
    changed = {key for key, _ in old.configuration.items() ^ after.items()}
    harmless = all(k in known and known[k].late and after.get(k) not in (None, known[k].default) for k in changed)
    return harmless and only_marks_moved(replace(old, configuration=after), new)


def _added(read: ReadSet, winner: Winner) -> Iterator[ConflictError]:
    # Under WriteSerializable a blind append may be ordered after this commit, whatever this commit read.
    lenient = read.isolation == "WriteSerializable" and not read.changes_metadata
    if read.isolation == "SnapshotIsolation" or (lenient and winner.info.get("isBlindAppend") is True):
        return
    overlap = _in_read_set(read, winner.actions.add)
    if overlap.num_rows:
        message = f"another commit added {plural(overlap.num_rows, 'file')} that this one would have read"
        yield _conflict(ConcurrentAppendError, winner, message, files=_some(overlap))


def _deleted_read(read: ReadSet, winner: Winner) -> Iterator[ConflictError]:
    removes = winner.actions.remove
    deleted = _in_read_set(replace(read, predicates=()), removes)
    if not deleted.num_rows and read.files:
        deleted = _among(removes, read.files)
    if deleted.num_rows:
        message = f"another commit removed {plural(deleted.num_rows, 'file')} that this one read"
        yield _conflict(ConcurrentDeleteReadError, winner, message, files=_some(deleted))


def _deleted_deleted(read: ReadSet, winner: Winner) -> Iterator[ConflictError]:
    both = _among(winner.actions.remove, read.removed)
    if both.num_rows:
        message = f"another commit removed {plural(both.num_rows, 'file')} that this one also removes"
        yield _conflict(ConcurrentDeleteDeleteError, winner, message, files=_some(both))


def _vacuumed(read: ReadSet, winner: Winner) -> Iterator[ConflictError]:
    if read.revives_from is not None and winner.info.get("operation") == "VACUUM START":
        cutoff = _vacuum_cutoff(winner.info)
        if cutoff is None or read.revives_from <= cutoff + _CLOCKS_MS:
            message = "a concurrent vacuum may delete files that this commit restores"
            help = "wait for the end of the vacuum, then repeat the command"
            yield _conflict(ConcurrentDeleteReadError, winner, message, help)


def _vacuum_cutoff(info: Mapping[str, Any]) -> int | None:
    """The time before which a removed file may be deleted; ``None`` if the entry does not state it."""
    parameters = info.get("operationParameters") or {}
    try:
        retention = parameters.get("specifiedRetentionMillis", parameters["defaultRetentionMillis"])
        return int(info["timestamp"]) - int(retention)
    except (KeyError, TypeError, ValueError):
        return None


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
