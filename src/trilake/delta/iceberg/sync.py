"""Bring the Iceberg metadata of a Delta table up to date: a snapshot for each version since the last converted one.

The cost is that of the commits' files: manifests without removed files are carried over by reference.  The new metadata
file is put only if absent, so of two writers one wins, and the other starts again from what the winner wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import DoubleType

from trilake.common.runtime import Runtime
from trilake.delta.commit.symlink_manifest import path_text
from trilake.delta.iceberg.data_files import data_files, file_paths
from trilake.delta.iceberg.files import StoreIO
from trilake.delta.iceberg.newest import FOLDER, HINT, TIMESTAMP, VERSION, Newest, metadata_key, newest_metadata
from trilake.delta.iceberg.schema import iceberg_schema, partition_spec
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.iceberg import UNIFORM, is_uniform
from trilake.delta.protocol.properties import TableProperties
from trilake.errors import ConcurrentWriteError, InvalidArgumentError, ObjectExistsError
from trilake.storage.base import ObjectMeta

_ATTEMPTS = 10
#: From so many manifests below a size on, they become one, as Iceberg's ``commit.manifest.min-count-to-merge`` has it.
_MERGE_COUNT, _MERGE_BYTES = 100, 8 * 1024 * 1024
#: Metadata files that are named as earlier ones.
_EARLIER = 100
_CODEC: Final = "deflate"
#: Iceberg property: the Delta table that was converted.
_TABLE_ID = "delta-table-id"


def sync(log: DeltaLog, runtime: Runtime | None = None) -> int:
    """Write Iceberg metadata of the newest version, and return that version.

    Raises ``InvalidArgumentError`` where the table's properties do not enable it, and for files or types that Iceberg
    v2 lacks; ``ConcurrentWriteError`` where other writers always were first.
    """
    runtime = runtime or log.engine.runtime
    head = log.head()
    if not is_uniform(head.metadata.configuration):
        raise InvalidArgumentError(
            "the table has no Iceberg metadata", help=f"set {UNIFORM} to 'iceberg'", file=log.store.uri
        )
    for _ in range(_ATTEMPTS):
        newest = newest_metadata(log.store)
        if newest.version >= head.version and _is_of(newest, head.metadata, _location(log)):
            return newest.version
        work = _Conversion(log, runtime, head.metadata, newest)
        content = work.converted(head.version).model_dump_json().encode()
        try:
            log.store.put_if_absent(metadata_key(newest.number + 1), content)
        except ObjectExistsError:
            continue
        log.store.put(HINT, str(newest.number + 1).encode())
        return head.version
    raise ConcurrentWriteError(
        f"other writers converted the table first, {_ATTEMPTS} times", help="try again", file=log.store.uri
    )


def _is_of(newest: Newest, metadata: Metadata, location: str) -> bool:
    """Whether metadata is of this table, where it is now: a folder that was moved is converted as a whole."""
    properties = newest.content.get("properties") or {}
    return bool(properties.get(_TABLE_ID) == metadata.id and newest.content.get("location") == location)


def _location(log: DeltaLog) -> str:
    path = path_text(log.store.uri)
    # With three slashes, which every reader takes.
    return f"file://{path.removeprefix('file:')}" if path.startswith("file:") else path


@dataclass(frozen=True)
class _Step:
    """One Delta version: its metadata, its time, and the actions of files."""

    version: int
    time_ms: int
    metadata: Metadata
    adds: pa.Table
    removes: pa.Table | None
    #: The files replace all earlier ones.
    whole: bool = False


@dataclass
class _Conversion:
    log: DeltaLog
    runtime: Runtime
    metadata: Metadata
    newest: Newest
    io: StoreIO = field(init=False)

    def __post_init__(self) -> None:
        self.location = _location(self.log)
        self.io = StoreIO(self.log.store, self.location)

    def converted(self, version: int) -> TableMetadataV2:
        """The metadata of a version, made from the newest that exists."""
        before = TableMetadataV2.model_validate(self.newest.content) if self.newest.number else None
        if before is not None and not _is_of(self.newest, self.metadata, self.location):
            before = None
        steps = self._steps(before, version)
        try:
            return self._after(before, steps)
        except _UnknownFileError:
            return self._after(before, [self._whole(version)])

    def _after(self, before: TableMetadataV2 | None, steps: Sequence[_Step]) -> TableMetadataV2:
        table = before
        for step in steps:
            table = self._applied(table, step)
        assert table is not None
        update: dict[str, Any] = {}
        if before is not None:
            entry = MetadataLogEntry.model_validate(
                {
                    "metadata_file": f"{self.location}/{metadata_key(self.newest.number)}",
                    "timestamp_ms": before.last_updated_ms,
                }
            )
            update["metadata_log"] = [*before.metadata_log, entry][-_EARLIER:]
        return table.model_copy(update=update)

    def _steps(self, before: TableMetadataV2 | None, version: int) -> list[_Step]:
        """The versions to convert: those after the last converted one, or the newest alone, with all of its files."""
        last = self.newest.version
        if before is None or last < 0:
            return [self._whole(version)]
        commits = self.log.commits(last + 1, version)
        if [v for v, _ in commits] != list(range(last + 1, version + 1)):
            return [self._whole(version)]
        actions, steps = self.log.parse(commits), []
        changes = {v: Metadata.from_json(data, version=v) for v, data in actions.of("metaData")}
        metadata = self.metadata if not changes else None
        for (v, _), time_ms in zip(commits, self.log.commit_times(commits, self.metadata), strict=True):
            metadata = changes.get(v, metadata) or self.log.head(v).metadata
            adds, removes = (t.filter(pc.equal(t["version"], v)) for t in (actions.add, actions.remove))
            steps.append(_Step(v, time_ms, metadata, adds, removes))
        return steps

    def _whole(self, version: int) -> _Step:
        snapshot = self.log.snapshot(version)
        commits: list[tuple[int, ObjectMeta]] = self.log.commits(version, version)
        time_ms = self.log.commit_times(commits, snapshot.metadata)[0] if commits else self.runtime.clock_ms()
        return _Step(version, time_ms, snapshot.metadata, snapshot.adds, None, whole=True)

    def _applied(self, before: TableMetadataV2 | None, step: _Step) -> TableMetadataV2:
        schemas, schema = _with_schema(before.schemas if before else [], iceberg_schema(step.metadata.schema))
        specs, spec = _with_spec(before.partition_specs if before else [], partition_spec(step.metadata))
        time_ms = max(step.time_ms, before.last_updated_ms if before else 0)
        new = _NewSnapshot(self, self.runtime.new_number() >> 1, schema, spec)
        parent = before.current_snapshot() if before is not None else None
        manifests = [] if parent is None else list(read_manifest_list(self.io.new_input(parent.manifest_list)))
        manifests = new.manifests(manifests, step)
        sequence = (before.last_sequence_number if before else 0) + 1
        snapshot = new.written(manifests, parent, sequence, time_ms)
        kept = _kept(before, time_ms, step.metadata)
        ids = {s.snapshot_id for s in kept}
        logged = [e for e in before.snapshot_log if e.snapshot_id in ids] if before else []
        return TableMetadataV2.model_validate(
            {
                "location": self.location,
                "table_uuid": before.table_uuid if before else self.runtime.new_id(),
                "last_updated_ms": time_ms,
                "last_column_id": max([schema.highest_field_id, before.last_column_id if before else 0]),
                "schemas": schemas,
                "current_schema_id": schema.schema_id,
                "partition_specs": specs,
                "default_spec_id": spec.spec_id,
                "last_partition_id": max([999, *(f.field_id for s in specs for f in s.fields)]),
                "properties": {VERSION: str(step.version), TIMESTAMP: str(step.time_ms), _TABLE_ID: step.metadata.id},
                "current_snapshot_id": snapshot.snapshot_id,
                "snapshots": [*kept, snapshot],
                "snapshot_log": [
                    *logged,
                    SnapshotLogEntry.model_validate({"snapshot_id": snapshot.snapshot_id, "timestamp_ms": time_ms}),
                ],
                "metadata_log": before.metadata_log if before else [],
                "sort_orders": before.sort_orders if before else [UNSORTED_SORT_ORDER],
                "default_sort_order_id": 0,
                "refs": {
                    MAIN_BRANCH: SnapshotRef.model_validate(
                        {"snapshot_id": snapshot.snapshot_id, "snapshot_ref_type": SnapshotRefType.BRANCH}
                    )
                },
                "last_sequence_number": sequence,
            }
        )


class _UnknownFileError(Exception):
    """A commit removes a file that no manifest has, or one whose manifest cannot be copied exactly."""


def _copies_exactly(spec: PartitionSpec, schema: Schema) -> bool:
    """Whether entries that pyiceberg reads can be written again.

    Its compiled decoder (0.12) rounds doubles to 32 bits, and partition values are the only ones in manifests.
    """
    return not any(isinstance(schema.find_type(f.source_id), DoubleType) for f in spec.fields)


@dataclass
class _NewSnapshot:
    """A snapshot that is being written."""

    work: _Conversion
    snapshot_id: int
    schema: Schema
    spec: PartitionSpec
    summary: dict[str, str] = field(default_factory=dict)
    operation: Operation = Operation.APPEND

    def manifests(self, before: Sequence[ManifestFile], step: _Step) -> list[ManifestFile]:
        """The manifests of a version, those that change written."""
        files = data_files(step.adds, step.metadata, self.work.location)
        gone = set(file_paths(step.removes, self.work.location)) if step.removes is not None else set()
        gone -= {f.file_path for f in files}
        again = step.adds.num_rows > 0 and not step.whole and not pc.all(step.adds["dataChange"]).as_py()
        replaced = {f.file_path for f in files} if again else set()
        live = [m for m in before if m.has_added_files() or m.has_existing_files()]
        manifests, deleted = self._without(live, None if step.whole else gone, replaced)
        if files:
            manifests.insert(0, self._manifest((ManifestEntryStatus.ADDED, f) for f in files))
        self.operation = Operation.APPEND if not deleted else Operation.OVERWRITE if files else Operation.DELETE
        self.summary = {
            "added-data-files": str(len(files)),
            "added-records": str(sum(f.record_count for f in files)),
            "deleted-data-files": str(len(deleted)),
            "deleted-records": str(sum(f.record_count for f in deleted)),
            VERSION: str(step.version),
            TIMESTAMP: str(step.time_ms),
        }
        return self._merged(manifests)

    def _without(
        self, manifests: Sequence[ManifestFile], gone: set[str] | None, replaced: set[str]
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """The manifests without some files (``None``: without all), and the files that left them.

        Files in ``replaced`` go where they are found.
        """
        kept: list[ManifestFile] = []
        deleted: list[DataFile] = []
        waiting = None if gone is None else gone | replaced
        for manifest in manifests:
            if waiting is not None and not waiting:
                kept.append(manifest)
                continue
            entries = manifest.fetch_manifest_entry(self.work.io)
            leaves = [waiting is None or e.data_file.file_path in waiting for e in entries]
            if not any(leaves):
                kept.append(manifest)
                continue
            if waiting is not None and not _copies_exactly(self.spec, self.schema):
                raise _UnknownFileError
            left = [e.data_file for e, leave in zip(entries, leaves, strict=True) if leave]
            deleted += left
            if waiting is not None:
                waiting = waiting - {f.file_path for f in left}
            status = (ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED)
            kept.append(self._manifest((status[leave], e) for e, leave in zip(entries, leaves, strict=True)))
        if waiting and waiting - replaced:
            raise _UnknownFileError
        return kept, deleted

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        small = [
            m
            for m in manifests
            if m.manifest_length < _MERGE_BYTES
            and m.partition_spec_id == self.spec.spec_id
            and m.added_snapshot_id != self.snapshot_id
        ]
        if len(small) < _MERGE_COUNT or not _copies_exactly(self.spec, self.schema):
            return manifests
        entries = [e for m in small for e in m.fetch_manifest_entry(self.work.io)]
        others = [m for m in manifests if m not in small]
        return [*others, self._manifest((ManifestEntryStatus.EXISTING, e) for e in entries)] if entries else others

    def _manifest(self, entries: Iterable[tuple[ManifestEntryStatus, DataFile | ManifestEntry]]) -> ManifestFile:
        location = f"{self.work.location}/{FOLDER}/{self.work.runtime.new_id()}-m0.avro"
        output = self.work.io.new_output(location)
        with write_manifest(2, self.spec, self.schema, output, self.snapshot_id, _CODEC) as writer:
            for status, entry in entries:
                if isinstance(entry, DataFile):
                    writer.add_entry(
                        ManifestEntry.from_args(status=status, snapshot_id=self.snapshot_id, data_file=entry)
                    )
                elif status == ManifestEntryStatus.DELETED:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def written(self, manifests: list[ManifestFile], parent: Snapshot | None, sequence: int, time_ms: int) -> Snapshot:
        """Write the manifest list, and return the snapshot."""
        location = f"{self.work.location}/{FOLDER}/snap-{self.snapshot_id}-0-{self.work.runtime.new_id()}.avro"
        parent_id = parent.snapshot_id if parent else None
        output = self.work.io.new_output(location)
        with write_manifest_list(2, output, self.snapshot_id, parent_id, sequence, _CODEC) as writer:
            writer.add_manifests(manifests)
        return Snapshot.model_validate(
            {
                "snapshot_id": self.snapshot_id,
                "parent_snapshot_id": parent_id,
                "sequence_number": sequence,
                "timestamp_ms": time_ms,
                "manifest_list": location,
                "summary": Summary(self.operation, **self.summary),
                "schema_id": self.schema.schema_id,
            }
        )


def _with_schema(schemas: Sequence[Schema], schema: Schema) -> tuple[list[Schema], Schema]:
    """The schemas with one more unless it is among them, and that one with its id."""
    same = next((s for s in schemas if s == schema), None)
    if same is None:
        same = schema.model_copy(update={"schema_id": max((s.schema_id for s in schemas), default=-1) + 1})
        return [*schemas, same], same
    return list(schemas), same


def _with_spec(specs: Sequence[PartitionSpec], spec: PartitionSpec) -> tuple[list[PartitionSpec], PartitionSpec]:
    """The partition specs, likewise.  A renamed column renames its partition field, in the same spec."""
    for i, other in enumerate(specs):
        if [f.source_id for f in other.fields] == [f.source_id for f in spec.fields]:
            same = spec.model_copy(update={"spec_id": other.spec_id})
            return [*specs[:i], same, *specs[i + 1 :]], same
    same = spec.model_copy(update={"spec_id": max((s.spec_id for s in specs), default=-1) + 1})
    return [*specs, same], same


def _kept(before: TableMetadataV2 | None, now_ms: int, metadata: Metadata) -> list[Snapshot]:
    """The snapshots that stay: those of the time that the log is kept for, as in Delta."""
    since = now_ms - TableProperties(metadata.configuration).duration_ms("delta.logRetentionDuration")
    return [s for s in before.snapshots if s.timestamp_ms >= since] if before else []
