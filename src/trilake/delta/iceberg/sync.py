"""Update the Iceberg metadata of a Delta table: one snapshot for each version since the last converted one.

The cost depends on the files of these commits: manifests without removed files are reused, and this process caches the
last state that it wrote, so that it does not parse its own metadata.  A metadata file is written only if it does not
exist, so one of two writers wins and the other starts again from the winner's state.

Old metadata files are deleted, and the manifests and manifest lists that only they reference.  The remaining metadata
files stay complete.  Each snapshot keeps some manifests of the previous one and adds new ones, so if an expired
snapshot shares a manifest with any remaining snapshot, it shares it with the oldest of these.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import orjson
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadataV2

from trilake.delta.commit.transaction import CommitEvent
from trilake.delta.iceberg import avro
from trilake.delta.iceberg.avro import DamagedFileError, File
from trilake.delta.iceberg.data_files import (
    FileAction,
    Layout,
    absolute_path,
    action_of,
    actions_of,
    data_files,
    layout,
    manifest_schema,
    partitions,
)
from trilake.delta.iceberg.manifests import Block, ManifestWriter, UnknownFileError
from trilake.delta.iceberg.newest_metadata import (
    FOLDER,
    HINT,
    METADATA_KEY,
    TABLE_ID,
    TIMESTAMP,
    VERSION,
    Newest,
    content_at,
    metadata_key,
    metadata_location,
    newest_metadata,
)
from trilake.delta.log.clustering import DOMAIN, clustering_fields
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.iceberg import UNIFORM, is_uniform
from trilake.delta.protocol.properties import TableProperties
from trilake.errors import (
    ConcurrentWriteError,
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from trilake.storage.base import ObjectMeta, Store

_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MANIFEST = re.compile(rf"{_ID}-m\d+\.avro")
_NAMED_LIST = re.compile(rf'"[^"]*/{FOLDER}/(snap-\d+-0-{_ID}\.avro)"'.encode())
#: Objects read at once, and the most metadata files that an interrupted call may have left.
_BATCH, _LEFT = 16, 1000


def delete_expired(store: Store, numbers: Sequence[int], oldest: int, used: Iterable[str]) -> None:
    """Delete the metadata files ``numbers``, all below ``oldest``, the oldest one that stays.

    ``used`` are the manifests of the newest snapshot.  Metadata files go last, oldest first, so that the next call can
    complete an interrupted one.  If a remaining file cannot be read, nothing is deleted.
    """
    dropped = sorted(numbers)
    while dropped[0] > 1 and len(dropped) < _LEFT and store.find(metadata_key(dropped[0] - 1)):
        dropped.insert(0, dropped[0] - 1)
    lists = {name for content in _contents(store, map(metadata_key, dropped)) for name in _NAMED_LIST.findall(content)}
    try:
        snapshots = orjson.loads(bytes(store.read(metadata_key(oldest))))["snapshots"]
        stay = {_name(s["manifest-list"]): s["sequence-number"] for s in snapshots}
        expired = sorted(_key(name) for name in map(bytes.decode, lists) if name not in stay)
        if expired:
            first = File(bytes(store.read(_key(min(stay, key=stay.__getitem__)))))
            kept = {_name(path) for path in (*used, *_manifests(first))}
            named = {_name(path) for file in _lists(store, expired) for path in _manifests(file.without(first))}
            store.delete(_key(name) for name in sorted(named - kept) if _MANIFEST.fullmatch(name))
    except (ValueError, LookupError, TypeError, AttributeError, DamagedFileError, ObjectNotFoundError):
        return
    store.delete([*expired, *map(metadata_key, dropped)])


def _lists(store: Store, keys: Iterable[str]) -> Iterator[File]:
    for content in _contents(store, keys):
        with suppress(DamagedFileError):
            yield File(content)


def _contents(store: Store, keys: Iterable[str]) -> Iterator[bytes]:
    calls = [partial(content_at, store, key) for key in keys]
    for i in range(0, len(calls), _BATCH):
        yield from (content for content in store.at_once(calls[i : i + _BATCH]) if content is not None)


def _manifests(manifest_list: File) -> Iterator[str]:
    return (str(record["manifest_path"]) for record in manifest_list.records())


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _key(name: str) -> str:
    return f"{FOLDER}/{name}"


_log = logging.getLogger("trilake.delta")
_ATTEMPTS = 10
#: Iceberg's table property for the number of earlier metadata files to keep, and its default.
_PREVIOUS, _PREVIOUS_MOST = "write.metadata.previous-versions-max", 100
#: The most snapshots to keep, since each metadata file lists all of them.
_SNAPSHOTS = 1000
#: Tables whose last state this process keeps, and the numbers of files and bytes that are written together.
_TABLES, _FILES, _BYTES = 16, 32, 1 << 23
#: Leading bytes of a metadata file that distinguish it from others: they include the random id of its newest snapshot.
_HEAD = 4096
#: Fields of the metadata that depend only on the table's columns.
_DESCRIPTION = (
    "last-column-id",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
)
#: The last state that this process wrote, by the store's address.
_LAST: dict[str, _State] = {}


def sync(log: DeltaLog, event: CommitEvent | None = None, *, rebuild: bool = False) -> int:
    """Write Iceberg metadata of the newest version, and return that version.

    ``event`` is the commit that triggers the update, whose actions then need not be read.  With ``rebuild``, existing
    manifests are not used.  Raises ``InvalidArgumentError`` if the table's properties do not enable Iceberg metadata,
    and for files or types that Iceberg v2 lacks; ``ConcurrentWriteError`` if other writers win every attempt.
    """
    head = event or log.head()
    domains = head.domains if isinstance(head, CommitEvent) else head.state.domains
    if not is_uniform(head.metadata.configuration):
        help = f"set delta.enableIcebergCompatV2 to 'true' and {UNIFORM} to 'iceberg'"
        raise InvalidArgumentError("Iceberg metadata is not enabled for this table", help=help, file=log.store.uri)
    before = _LAST.pop(log.store.uri, None)
    if before is not None and (rebuild or not before.is_newest(log)):
        before = None
    for _ in range(_ATTEMPTS):
        if before is None:
            newest = newest_metadata(log.store)
            if (
                not rebuild
                and newest.version >= head.version
                and newest.is_of(head.metadata.id, metadata_location(log.store))
            ):
                return newest.version
            before = _State(newest.number) if rebuild else _State.read(log, newest)
        elif before.version >= head.version and before.is_of(head.metadata.id, metadata_location(log.store)):
            _LAST[log.store.uri] = before  # of a later commit, which was converted first
            return before.version
        work = _Conversion(log, head.metadata, head.version, domains.get(DOMAIN), event)
        after = work.converted(before)
        if work.landed(after):
            work.tidy(after)
            while len(_LAST) >= _TABLES:
                _LAST.pop(next(iter(_LAST)), None)
            _LAST[log.store.uri] = after
            return head.version
        before = None
    raise ConcurrentWriteError(
        f"other writers updated the Iceberg metadata first, {_ATTEMPTS} times", help="try again", file=log.store.uri
    )


class _Snapshot(NamedTuple):
    """A snapshot's entries in the metadata file and in its snapshot log."""

    time_ms: int
    json: bytes
    log: bytes

    @staticmethod
    def of(content: dict[str, Any]) -> _Snapshot:
        time_ms = content["timestamp-ms"]
        log = {"snapshot-id": content["snapshot-id"], "timestamp-ms": time_ms}
        return _Snapshot(time_ms, orjson.dumps(content), orjson.dumps(log))


@dataclass(frozen=True)
class _State(Newest):
    """Converted metadata; ``content`` is without its snapshots, and empty if there is none of this table."""

    snapshots: tuple[_Snapshot, ...] = ()
    blocks: tuple[Block, ...] = ()
    #: The source of schema, partition spec and sort order, if this process made them.
    description: tuple[Layout, tuple[int, ...]] | None = None

    @staticmethod
    def read(log: DeltaLog, newest: Newest) -> _State:
        """The state in the store; without metadata if it is damaged."""
        try:
            fields = dict(newest.content)
            TableMetadataV2.model_validate(fields)
            snapshots = [_Snapshot.of(s) for s in fields.pop("snapshots")]
            fields.pop("snapshot-log", None)
            path = orjson.loads(snapshots[-1].json)["manifest-list"]
            content = bytes(log.store.read(path.removeprefix(f"{fields['location']}/")))
            manifests = avro.File(content).records()
        except (ValueError, LookupError, DamagedFileError, ObjectNotFoundError):
            return _State(newest.number)
        return _State(newest.number, newest.data, fields, tuple(snapshots), tuple(Block.all_of(manifests)))

    def is_newest(self, log: DeltaLog) -> bool:
        """Whether this file is still the newest: if so, writing the next number succeeds or reveals a later one."""
        try:
            return bytes(log.store.read_range(metadata_key(self.number), 0, _HEAD)) == self.data[:_HEAD]
        except ObjectNotFoundError:
            return False


class _Step(NamedTuple):
    """One Delta version: its metadata, its time, and its file actions."""

    version: int
    time_ms: int
    metadata: Metadata
    adds: Sequence[FileAction]
    #: ``None`` if the added files replace all earlier ones.
    removes: Sequence[FileAction] | None
    #: Field ids of the clustering columns.
    clustering: Sequence[int]


@dataclass
class _Conversion:
    log: DeltaLog
    metadata: Metadata
    version: int
    #: The ``domainMetadata`` action of the clustering columns.
    clustering: Mapping[str, Any] | None
    event: CommitEvent | None
    #: Files still to be written, and the keys of all files.
    waiting: dict[str, bytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    #: Entries to drop from the metadata log.
    dropped: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.location, self.runtime = metadata_location(self.log.store), self.log.engine.runtime

    def converted(self, before: _State) -> _State:
        """The state of the version, built on the newest existing state."""
        if not before.is_of(self.metadata.id, self.location):
            before = _State(before.number)
        try:
            return self._after(before, self._steps(before))
        except (UnknownFileError, DamagedFileError, ObjectNotFoundError):
            if not before.content:
                raise
            self.waiting.clear()
            return self._after(before, [self._whole()])

    def landed(self, state: _State) -> bool:
        """Write the new files; ``False`` if another writer was first."""
        store, number = self.log.store, state.number
        try:
            self._write((metadata_key(number), state.data, True), (HINT, str(number).encode(), False))
        except ObjectExistsError:
            if bytes(store.read(metadata_key(number))) != state.data:
                store.delete(self.keys)
                return False
            store.put(HINT, str(number).encode())
        after, before = store.at_once([partial(store.find, metadata_key(n)) for n in (number + 1, number - 1)])
        newest, lost = number, number > 1 and not (after or before)
        if lost:  # since the state was read, others converted many versions and deleted these numbers
            store.delete([metadata_key(number), *self.keys])
            newest = newest_metadata(store).number
        while after and store.find(metadata_key(newest + 1)):
            newest += 1
        if newest != number:  # the hint of a later writer was overwritten
            store.put(HINT, str(newest).encode())
        return not lost

    def tidy(self, state: _State) -> None:
        """Delete unreferenced files; errors are only logged."""
        dropped, stays = self._numbers(self.dropped), self._numbers(state.content["metadata-log"][:1])
        if not dropped or not stays:
            return
        used = (m["manifest_path"] for b in state.blocks for m in b.manifests)
        try:
            delete_expired(self.log.store, dropped, stays[0], used)
        except StorageError as e:
            _log.warning("old Iceberg metadata of %s could not be deleted: %s", self.log.store.uri, e)

    def _numbers(self, entries: Sequence[Mapping[str, Any]]) -> list[int]:
        keys = (str(e["metadata-file"]).removeprefix(f"{self.location}/") for e in entries)
        return [int(m[1]) for m in map(METADATA_KEY.fullmatch, keys) if m]

    def _after(self, before: _State, steps: Sequence[_Step]) -> _State:
        table = before
        for step in steps:
            table = self._applied(table, step)
        fields, number = dict(table.content), before.number + 1
        if before.content:
            entry = {
                "metadata-file": f"{self.location}/{metadata_key(before.number)}",
                "timestamp-ms": before.content["last-updated-ms"],
            }
            earlier = [*before.content.get("metadata-log", ()), entry]
            stated = self.metadata.configuration.get(_PREVIOUS, "")
            most = max(int(stated), 1) if stated.isdigit() and len(stated) < 10 else _PREVIOUS_MOST
            if len(earlier) > most:
                # Several at a time, since each deletion is a request.
                most -= most // 10
                self.dropped = earlier[:-most]
                earlier = earlier[-most:]
            fields["metadata-log"] = earlier
        snapshots, history = (b",".join(part) for part in zip(*((s.json, s.log) for s in table.snapshots), strict=True))
        content = b'%b,"snapshots":[%b],"snapshot-log":[%b]}' % (orjson.dumps(fields)[:-1], snapshots, history)
        return _State(number, content, fields, table.snapshots, table.blocks, table.description)

    # --- versions ---

    def _steps(self, before: _State) -> list[_Step]:
        """The versions to convert: those after the last converted one, or only the newest, with all of its files."""
        last, event = before.version, self.event
        if event is not None and event.version - 1 == (last if event.base else -1):
            return [self._of_event(event)]
        commits = self.log.commits(last + 1, self.version) if before.content and last >= 0 else []
        if not commits or [v for v, _ in commits] != list(range(last + 1, self.version + 1)):
            return [self._whole()]
        actions, steps = self.log.parse(commits), []
        changes = {v: Metadata.from_json(data, version=v) for v, data in actions.of("metaData")}
        metadata = self.metadata if not changes else None
        clustered = {v: d for v, d in actions.of("domainMetadata") if d.get("domain") == DOMAIN}
        clustering = _default_order(before.content) if clustered else self._clustering(self.clustering, self.metadata)
        for (v, _), time_ms in zip(commits, self.log.commit_times(commits, self.metadata), strict=True):
            metadata = changes.get(v, metadata) or self.log.head(v).metadata
            if v in clustered:
                clustering = self._clustering(clustered[v], metadata)
            adds, removes = (actions_of(t.filter(pc.equal(t["version"], v))) for t in (actions.add, actions.remove))
            steps.append(_Step(v, time_ms, metadata, adds, removes, clustering))
        return steps

    def _of_event(self, event: CommitEvent) -> _Step:
        key = commit_key(event.version)
        time_ms = self.log.commit_times([(event.version, self.log.store.head(key))], event.metadata)[0]
        actions = event.plan.file_actions
        adds, removes = ([action_of(a[kind]) for a in actions if kind in a] for kind in ("add", "remove"))
        clustering = self._clustering(self.clustering, event.metadata)
        return _Step(event.version, time_ms, event.metadata, adds, removes if event.base else None, clustering)

    def _whole(self) -> _Step:
        snapshot = self.log.snapshot(self.version)
        commits: list[tuple[int, ObjectMeta]] = self.log.commits(self.version, self.version)
        time_ms = self.log.commit_times(commits, snapshot.metadata)[0] if commits else self.runtime.clock_ms()
        clustering = self._clustering(self.clustering, snapshot.metadata)
        return _Step(self.version, time_ms, snapshot.metadata, actions_of(snapshot.adds), None, clustering)

    def _clustering(self, domain: Mapping[str, Any] | None, metadata: Metadata) -> list[int]:
        paths = clustering_fields(domain, metadata.schema, self.version) if domain else ()
        return [path[-1].column_id for path in paths if path[-1].column_id is not None]

    def _applied(self, before: _State, step: _Step) -> _State:
        old, shape = before.content, layout(step.metadata)
        description = shape, tuple(step.clustering)
        described = old if before.description == description else _described(old, shape, step.clustering)
        schema_id, spec_id = described["current-schema-id"], described["default-spec-id"]
        time_ms = max(step.time_ms, old.get("last-updated-ms", 0))
        parent, sequence = old.get("current-snapshot-id"), old.get("last-sequence-number", 0) + 1
        commit = self.runtime.new_id()
        snapshot_id = int(commit.replace("-", "")[16:], 16) >> 1
        writer = ManifestWriter(
            manifest_schema(shape, schema_id, spec_id),
            spec_id,
            shape.partition_types,
            snapshot_id,
            sequence,
            lambda content: self._put(f"{commit}-m{len(self.keys)}.avro", content),
            self._read,
        )
        files = data_files(step.adds, shape, self.location)
        blocks = self._blocks(before, step, shape, files, writer)
        deleted, deleted_rows = writer.deleted
        replaces = deleted or (step.removes is None and before.blocks)
        operation = "append" if not replaces else "overwrite" if files else "delete"
        ids = {"snapshot-id": str(snapshot_id), "sequence-number": str(sequence)}
        ids["parent-snapshot-id"] = "null" if parent is None else str(parent)
        manifest_list = avro.manifest_list(ids, (b.encoded for b in blocks))
        content = {
            "snapshot-id": snapshot_id,
            **({} if parent is None else {"parent-snapshot-id": parent}),
            "sequence-number": sequence,
            "timestamp-ms": time_ms,
            "manifest-list": self._put(f"snap-{snapshot_id}-0-{commit}.avro", manifest_list),
            "summary": {
                "operation": operation,
                "added-data-files": str(len(files)),
                "added-records": str(sum(f["record_count"] for f in files)),
                "deleted-data-files": str(deleted),
                "deleted-records": str(deleted_rows),
                VERSION: str(step.version),
                TIMESTAMP: str(step.time_ms),
            },
            "schema-id": schema_id,
        }
        fields = {
            "format-version": 2,
            "current-snapshot-id": snapshot_id,
            "table-uuid": old.get("table-uuid") or self.runtime.new_id(),
            "location": self.location,
            "last-sequence-number": sequence,
            "last-updated-ms": time_ms,
            "properties": {VERSION: str(step.version), TIMESTAMP: str(step.time_ms), TABLE_ID: step.metadata.id},
            "refs": {"main": {"snapshot-id": snapshot_id, "type": "branch"}},
            **{key: described[key] for key in _DESCRIPTION},
            "metadata-log": old.get("metadata-log", []),
        }
        since = time_ms - TableProperties(step.metadata.configuration).duration_ms("delta.logRetentionDuration")
        recent = before.snapshots[1 - _SNAPSHOTS :]
        recent = recent[bisect_left(recent, since, key=lambda s: s.time_ms) :]
        return _State(before.number, b"", fields, (*recent, _Snapshot.of(content)), blocks, description)

    def _blocks(
        self, before: _State, step: _Step, shape: Layout, files: Sequence[dict[str, Any]], writer: ManifestWriter
    ) -> tuple[Block, ...]:
        if step.removes is None:
            return writer.following((), files, {}, {})
        removed = {
            absolute_path(a.path, self.location): v if a.partition else None
            for a, v in zip(step.removes, partitions(step.removes, shape), strict=True)
        }
        # A commit may add an existing file again, with other statistics or tags.
        again = not all(a.data_change for a in step.adds)
        added = {f["file_path"]: f["partition"] for f in files}
        replaced = {p: v for p, v in added.items() if again or p in removed}
        return writer.following(before.blocks, files, {p: v for p, v in removed.items() if p not in added}, replaced)

    # --- files ---

    def _put(self, name: str, content: bytes) -> str:
        key = f"{FOLDER}/{name}"
        self.waiting[key] = content
        self.keys.append(key)
        if len(self.waiting) > _FILES or sum(map(len, self.waiting.values())) > _BYTES:
            self._write()
        return f"{self.location}/{key}"

    def _write(self, *named: tuple[str, bytes, bool]) -> None:
        self.log.store.put_in_order(list(self.waiting.items()), named)
        self.waiting.clear()

    def _read(self, locations: Sequence[str]) -> list[bytes]:
        keys = [path.removeprefix(f"{self.location}/") for path in locations]
        stored = [k for k in keys if k not in self.waiting]
        contents = dict(zip(stored, self.log.store.read_many(stored), strict=True))
        return [self.waiting.get(k) or bytes(contents[k]) for k in keys]


def _described(old: Mapping[str, Any], shape: Layout, clustering: Sequence[int]) -> dict[str, Any]:
    schemas, schema_id = _with_entry(old.get("schemas", ()), "schema-id", shape.schema_json)
    partitioning = shape.spec_json["fields"]
    sources = [f["source-id"] for f in partitioning]
    # Renaming a column renames its partition field in the same spec.
    specs, spec_id = _with_entry(
        [
            {**s, "fields": partitioning} if [f["source-id"] for f in s["fields"]] == sources else s
            for s in old.get("partition-specs", ())
        ],
        "spec-id",
        {"fields": partitioning},
    )
    # The sort order advises writers; no file claims to be sorted.
    order = [
        {"source-id": c, "transform": "identity", "direction": "asc", "null-order": "nulls-first"} for c in clustering
    ]
    sorted_orders = (o for o in old.get("sort-orders", ()) if o["order-id"])
    orders, order_id = _with_entry([{"order-id": 0, "fields": []}, *sorted_orders], "order-id", {"fields": order})
    last_column = max(shape.schema.highest_field_id, old.get("last-column-id", 0))
    last_partition = max([999, *(f["field-id"] for s in specs for f in s["fields"])])
    values = (last_column, schemas, schema_id, specs, spec_id, last_partition, orders, order_id)
    return dict(zip(_DESCRIPTION, values, strict=True))


def _with_entry(entries: Sequence[dict[str, Any]], id: str, new: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The entries, with a new one appended unless one has its fields, and the id of that one."""
    same = next((e[id] for e in entries if e["fields"] == new["fields"]), None)
    if same is None:
        same = max((e[id] for e in entries), default=-1) + 1
        entries = [*entries, {**new, id: same}]
    return list(entries), same


def _default_order(fields: Mapping[str, Any]) -> list[int]:
    orders = {o["order-id"]: o["fields"] for o in fields.get("sort-orders", ())}
    return [f["source-id"] for f in orders.get(fields.get("default-sort-order-id"), ())]
