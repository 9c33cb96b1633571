"""Manifests of a snapshot: those of the previous one, rewritten without removed files, plus those of new files.

Manifests without removed files are reused.  So are their records in the manifest list, whose Avro blocks are copied
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import PrimitiveType

from trilake.delta.iceberg import avro
from trilake.delta.iceberg.avro import DamagedFileError, Entry, ManifestSchema
from trilake.storage.base import Store

#: The most entries of a manifest.  Manifests with up to half as many are small, and this many small ones are merged, as
#: with Iceberg's ``commit.manifest.min-count-to-merge``.
ENTRIES, SMALL, MERGE_COUNT = 250, 125, 100
#: Manifests per block of the manifest list.
_BLOCK = 100
_EXISTING, _ADDED, _DELETED = 0, 1, 2
#: Up to this many removed files are searched for in the bytes of a manifest; for more, its entries are decoded.
_FEW = 64
#: Manifests read at once.
_BATCH = 16

_BOUNDS = ("lower_bound", "upper_bound")

Record = dict[str, Any]

__all__ = ["Block", "DamagedFileError", "ManifestWriter", "UnknownFileError", "live_files"]


class UnknownFileError(Exception):
    """A commit removes a file that is in no manifest."""


class Block(NamedTuple):
    """A block of a manifest list: its manifests, newest first, and their bytes."""

    manifests: tuple[Record, ...]
    encoded: bytes
    #: The numbers of small manifests, and of manifests without files.
    small: int
    dead: int

    @staticmethod
    def all_of(manifests: Sequence[Record]) -> list[Block]:
        """Split manifests into blocks of bounded size."""
        return [Block.of(manifests[i : i + _BLOCK]) for i in range(0, len(manifests), _BLOCK)]

    @staticmethod
    def of(manifests: Sequence[Record]) -> Block:
        live = [m["added_files_count"] + m["existing_files_count"] for m in manifests]
        encoded = avro.manifest_block(manifests)
        return Block(tuple(manifests), encoded, sum(n <= SMALL for n in live), live.count(0))

    def without(self, leaves: Callable[[Record], bool]) -> Block | None:
        """The block without the manifests for which ``leaves`` is true; ``None`` if none remains."""
        remaining = [m for m in self.manifests if not leaves(m)]
        if len(remaining) == len(self.manifests):
            return self
        return Block.of(remaining) if remaining else None


@dataclass(frozen=True)
class ManifestWriter:
    """Writes the manifests of one snapshot: ``put`` returns the location of a new one, ``read`` reads old ones."""

    schema: ManifestSchema
    spec_id: int
    types: Sequence[PrimitiveType]
    snapshot_id: int
    sequence: int
    put: Callable[[bytes], str]
    read: Callable[[Sequence[str]], Sequence[bytes]]
    #: The numbers of removed files and rows.
    deleted: list[int] = field(default_factory=lambda: [0, 0])

    def following(
        self,
        blocks: Iterable[Block],
        files: Sequence[Record],
        removed: Mapping[str, tuple[Any, ...] | None],
        replaced: Mapping[str, tuple[Any, ...] | None],
    ) -> tuple[Block, ...]:
        """The blocks of this snapshot's manifest list, from those of the previous snapshot.

        ``removed`` has the paths and partition values (``None`` if unknown) of files to remove; those in ``replaced``
        are removed if they exist.  Raises ``UnknownFileError``.
        """
        new = [self._added(files[i : i + ENTRIES]) for i in range(0, len(files), ENTRIES)]
        remaining = [b.without(lambda m: _live(m) == 0) if b.dead else b for b in blocks]
        live_blocks = [b for b in remaining if b is not None]
        if removed or replaced:
            changed = self._without([m for b in live_blocks for m in b.manifests], removed, replaced)
            new += changed.values()
            live_blocks = _without(live_blocks, changed)
        if sum(b.small for b in live_blocks) >= MERGE_COUNT:
            manifests = (m for b in live_blocks for m in b.manifests if m["partition_spec_id"] == self.spec_id)
            small = {m["manifest_path"]: m for m in manifests if _live(m) <= SMALL}
            if len(small) >= MERGE_COUNT:
                new += self._merged(list(small.values()))
                live_blocks = _without(live_blocks, small)
        return (*Block.all_of(new), *live_blocks)

    def _added(self, files: Sequence[Record]) -> Record:
        encoded = self.schema.data_files(files)
        entries = [
            Entry(_ADDED, self.snapshot_id, None, None, f["file_path"], f["record_count"], data)
            for f, data in zip(files, encoded, strict=True)
        ]
        partitions = [_summary(t, [f["partition"][i] for f in files]) for i, t in enumerate(self.types)]
        return self._written(self.schema.header, entries, self.spec_id, partitions)

    def _without(
        self,
        manifests: Sequence[Record],
        removed: Mapping[str, tuple[Any, ...] | None],
        replaced: Mapping[str, tuple[Any, ...] | None],
    ) -> dict[str, Record]:
        waiting = {**removed, **replaced}
        changed: dict[str, Record] = {}
        may_hold = [m for m in manifests if self._may_hold(m, waiting.values())]
        for manifest, content in self._contents(may_hold):
            if not waiting:
                break
            file = avro.File(content)
            if len(waiting) <= _FEW:
                names = [path.encode() for path in waiting]
                if not any(name in data for _, data in file.blocks for name in names):
                    continue
            live = _existing(file, manifest)
            gone = {e.path for e in live if e.path in waiting}
            if gone:
                entries = [
                    e._replace(status=_DELETED, snapshot_id=self.snapshot_id) if e.path in gone else e for e in live
                ]
                path, spec_id = manifest["manifest_path"], manifest["partition_spec_id"]
                changed[path] = written = self._written(file.header, entries, spec_id, manifest["partitions"])
                self.deleted[0] += written["deleted_files_count"]
                self.deleted[1] += written["deleted_rows_count"]
                waiting = {path: v for path, v in waiting.items() if path not in gone}
        if not waiting.keys() <= replaced.keys():
            raise UnknownFileError
        return changed

    def _contents(self, manifests: Sequence[Record]) -> Iterator[tuple[Record, bytes]]:
        for i in range(0, len(manifests), _BATCH):
            batch = manifests[i : i + _BATCH]
            yield from zip(batch, self.read([m["manifest_path"] for m in batch]), strict=True)

    def _may_hold(self, manifest: Record, values: Iterable[tuple[Any, ...] | None]) -> bool:
        summaries = manifest["partitions"]
        if not self.types or manifest["partition_spec_id"] != self.spec_id or len(summaries or ()) != len(self.types):
            return True
        bounds = [
            None if s["lower_bound"] is None else (from_bytes(t, s["lower_bound"]), from_bytes(t, s["upper_bound"]))
            for t, s in zip(self.types, summaries, strict=True)
        ]
        return any(
            v is None
            or all(
                s["contains_null"] if x is None else x != x or (b is not None and b[0] <= x <= b[1])
                for x, s, b in zip(v, summaries, bounds, strict=True)
            )
            for v in values
        )

    def _merged(self, manifests: Sequence[Record]) -> Iterator[Record]:
        entries: list[Entry] = []
        for manifest, content in self._contents(manifests):
            file = avro.File(content)
            added = _existing(file, manifest)
            if file.schema != self.schema.schema:  # a partition column was renamed or changed its type
                live = (r["data_file"] for r in file.records() if r["status"] != _DELETED)
                files = [{**f, "partition": tuple(f["partition"].values())} for f in live]
                encoded = self.schema.data_files(files)
                added = [e._replace(data_file=data) for e, data in zip(added, encoded, strict=True)]
            entries += added
        # If several manifests are written, these bounds are wider than necessary, which is allowed.
        partitions = [self._joined(t, [m["partitions"][i] for m in manifests]) for i, t in enumerate(self.types)]
        for i in range(0, len(entries), ENTRIES):
            yield self._written(self.schema.header, entries[i : i + ENTRIES], self.spec_id, partitions)

    def _joined(self, type_: PrimitiveType, summaries: Sequence[Record]) -> Record:
        bounds = [from_bytes(type_, s[side]) for s in summaries for side in _BOUNDS if s[side] is not None]
        joined = _summary(type_, bounds)
        return {**joined, **{k: any(s[k] for s in summaries) for k in ("contains_null", "contains_nan")}}

    def _written(
        self, header: Sequence[bytes], entries: Sequence[Entry], spec_id: int, partitions: list[Record]
    ) -> Record:
        data = b"".join(e.encoded() for e in entries)
        content = avro.container(header, [avro.block(len(entries), data)])
        sequences = (self.sequence if e.sequence is None else e.sequence for e in entries if e.status != _DELETED)
        record = {
            "manifest_path": self.put(content),
            "manifest_length": len(content),
            "partition_spec_id": spec_id,
            "content": 0,
            "sequence_number": self.sequence,
            "min_sequence_number": min(sequences, default=self.sequence),
            "added_snapshot_id": self.snapshot_id,
            "partitions": partitions,
        }
        for status, name in ((_ADDED, "added"), (_EXISTING, "existing"), (_DELETED, "deleted")):
            rows = [e.rows for e in entries if e.status == status]
            record[f"{name}_files_count"], record[f"{name}_rows_count"] = len(rows), sum(rows)
        return record


def live_files(store: Store, location: str, manifest_list: str) -> Iterator[tuple[str, int]]:
    """Yield the path and the number of rows of each file of a snapshot.  Raises ``DamagedFileError``."""
    prefix = f"{location}/"
    manifests = avro.File(bytes(store.read(manifest_list.removeprefix(prefix)))).records()
    for i in range(0, len(manifests), _BATCH):
        keys = [m["manifest_path"].removeprefix(prefix) for m in manifests[i : i + _BATCH]]
        for content in store.read_many(keys):
            yield from ((e.path, e.rows) for e in avro.File(bytes(content)).entries() if e.status != _DELETED)


def _without(blocks: Iterable[Block], paths: Mapping[str, Any]) -> list[Block]:
    remaining = (b.without(lambda m: m["manifest_path"] in paths) for b in blocks)
    return [b for b in remaining if b is not None]


def _live(manifest: Record) -> int:
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def _existing(file: avro.File, manifest: Record) -> list[Entry]:
    """The files of a manifest; new ones take the manifest's snapshot id and sequence number."""
    return [
        Entry(
            _EXISTING,
            manifest["added_snapshot_id"] if e.snapshot_id is None else e.snapshot_id,
            manifest["sequence_number"] if e.sequence is None else e.sequence,
            manifest["sequence_number"] if e.file_sequence is None else e.file_sequence,
            *e[4:],
        )
        for e in file.entries()
        if e.status != _DELETED
    ]


def _summary(type_: PrimitiveType, values: Sequence[Any]) -> Record:
    numbers = [v for v in values if v is not None and v == v]
    return {
        "contains_null": any(v is None for v in values),
        "contains_nan": any(v is not None and v != v for v in values),
        "lower_bound": to_bytes(type_, min(numbers)) if numbers else None,
        "upper_bound": to_bytes(type_, max(numbers)) if numbers else None,
    }
