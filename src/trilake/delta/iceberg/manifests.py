"""Manifests of a snapshot: those of the one before, without removed files and with those of new files.

Manifests without removed files are carried over by reference, and so are their records in the manifest list: blocks of
an Avro file, which are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import PrimitiveType

from trilake.delta.iceberg import avro
from trilake.delta.iceberg.avro import Coder

#: Entries of a manifest at most.  Those with half as many or fewer are small; so many small ones become few, as
#: Iceberg's ``commit.manifest.min-count-to-merge`` has it.
ENTRIES, SMALL, MERGE_COUNT = 1000, 500, 100
_EXISTING, _ADDED, _DELETED = 0, 1, 2
#: Removed files that are looked for in the bytes of a manifest; of more, the entries are decoded at once.
_FEW = 64
#: Manifests read at once.
_BATCH = 16

Record = dict[str, Any]


class UnknownFileError(Exception):
    """A commit removes a file that no manifest has."""


class Block(NamedTuple):
    """A block of a manifest list: its manifests, newest first, and their bytes."""

    manifests: tuple[Record, ...]
    encoded: bytes
    #: Number of small manifests, and of those without files.
    small: int
    dead: int

    @staticmethod
    def of(manifests: Sequence[Record]) -> Block:
        live = [m["added_files_count"] + m["existing_files_count"] for m in manifests]
        encoded = avro.manifest_lists().block(manifests)
        return Block(tuple(manifests), encoded, sum(n <= SMALL for n in live), live.count(0))

    def without(self, leaves: Callable[[Record], bool]) -> Block | None:
        """The block without some manifests; ``None`` where none is left."""
        left = [m for m in self.manifests if not leaves(m)]
        if len(left) == len(self.manifests):
            return self
        return Block.of(left) if left else None


@dataclass
class ManifestWriter:
    """Writes the manifests of one snapshot.

    ``put`` writes a manifest and returns its location, ``read`` reads some by their locations.
    """

    coder: Coder
    spec_id: int
    types: Sequence[PrimitiveType]
    snapshot_id: int
    sequence: int
    put: Callable[[bytes], str]
    read: Callable[[Sequence[str]], Sequence[bytes]]
    #: Number of files and rows that were removed.
    deleted: list[int] = field(default_factory=lambda: [0, 0])

    def following(
        self,
        blocks: Iterable[Block],
        files: Sequence[Record],
        removed: Mapping[str, tuple[Any, ...] | None] | None,
        replaced: Mapping[str, tuple[Any, ...] | None],
    ) -> tuple[Block, ...]:
        """The blocks of this snapshot's manifest list, from those of the one before.

        ``removed`` has the paths and partition values (``None`` where not stated) of files to remove, ``None`` for
        all files; those in ``replaced`` are removed where they exist.  Raises ``UnknownFileError``.
        """
        new = [self._added(files[i : i + ENTRIES]) for i in range(0, len(files), ENTRIES)]
        kept = [b.without(lambda m: _live(m) == 0) if b.dead else b for b in blocks]
        left = [b for b in kept if b is not None]
        if removed != {} or replaced:
            changed = self._without([m for b in left for m in b.manifests], removed, replaced)
            new += changed.values()
            left = _without(left, changed)
        if sum(b.small for b in left) >= MERGE_COUNT:
            manifests = (m for b in left for m in b.manifests if m["partition_spec_id"] == self.spec_id)
            small = {m["manifest_path"]: m for m in manifests if _live(m) <= SMALL}
            if len(small) >= MERGE_COUNT:
                new += self._merged(list(small.values()))
                left = _without(left, small)
        return (*((Block.of(new),) if new else ()), *left)

    def _added(self, files: Sequence[Record]) -> Record:
        names = [f["name"] for f in _partition_schema(self.coder)]
        entries = (
            {
                "status": _ADDED,
                "snapshot_id": self.snapshot_id,
                "data_file": {**f, "partition": dict(zip(names, f["partition"], strict=True))},
            }
            for f in files
        )
        counts = {_ADDED: (len(files), sum(f["record_count"] for f in files))}
        return self._written(self.coder, entries, counts, self.sequence, self._summaries(f["partition"] for f in files))

    def _without(
        self,
        manifests: Sequence[Record],
        removed: Mapping[str, tuple[Any, ...] | None] | None,
        replaced: Mapping[str, tuple[Any, ...] | None],
    ) -> dict[str, Record]:
        """The manifests that lose files, by their old locations."""
        waiting = None if removed is None else {**removed, **replaced}
        changed: dict[str, Record] = {}
        may_hold = [m for m in manifests if waiting is None or self._may_hold(m, waiting.values())]
        for manifest, content in self._contents(may_hold, lambda: waiting is None or bool(waiting)):
            if waiting is not None and len(waiting) <= _FEW:
                data = avro.inflated(content)
                if not any(path.encode() in data for path in waiting):
                    continue
            coder, entries = avro.read(content)
            live = [_explicit(e, manifest) for e in entries if e["status"] != _DELETED]
            gone = [e for e in live if waiting is None or e["data_file"]["file_path"] in waiting]
            if gone:
                changed[manifest["manifest_path"]] = self._rewritten(coder, manifest, live, gone)
            if waiting is not None:
                for e in gone:
                    waiting.pop(e["data_file"]["file_path"], None)
        if waiting and not waiting.keys() <= replaced.keys():
            raise UnknownFileError
        return changed

    def _contents(self, manifests: Sequence[Record], needed: Callable[[], bool]) -> Iterator[tuple[Record, bytes]]:
        for i in range(0, len(manifests), _BATCH):
            batch = manifests[i : i + _BATCH]
            if needed():
                yield from zip(batch, self.read([m["manifest_path"] for m in batch]), strict=True)

    def _may_hold(self, manifest: Record, values: Iterable[tuple[Any, ...] | None]) -> bool:
        """Whether the partitions of a manifest may be those of one of some files."""
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

    def _rewritten(self, coder: Coder, manifest: Record, live: list[Record], gone: list[Record]) -> Record:
        """A manifest whose entries are marked as deleted where they are gone, under its own schema."""
        left = {id(e) for e in gone}
        for e in live:
            e["status"] = _DELETED if id(e) in left else _EXISTING
            e["snapshot_id"] = self.snapshot_id if id(e) in left else e["snapshot_id"]
        rows = sum(e["data_file"]["record_count"] for e in live)
        gone_rows = sum(e["data_file"]["record_count"] for e in gone)
        self.deleted[0] += len(gone)
        self.deleted[1] += gone_rows
        counts = {_EXISTING: (len(live) - len(gone), rows - gone_rows), _DELETED: (len(gone), gone_rows)}
        least = min((e["sequence_number"] for e in live if e["status"] == _EXISTING), default=self.sequence)
        written = self._written(coder, live, counts, least, manifest["partitions"])
        return {**written, "partition_spec_id": manifest["partition_spec_id"]}

    def _merged(self, manifests: Sequence[Record]) -> Iterator[Record]:
        names = [f["name"] for f in _partition_schema(self.coder)]
        entries: list[Record] = []
        for manifest, content in self._contents(manifests, lambda: True):
            for e in avro.read(content)[1]:
                if e["status"] != _DELETED:
                    file = e["data_file"]
                    file["partition"] = dict(zip(names, file["partition"].values(), strict=True))
                    entries.append({**_explicit(e, manifest), "status": _EXISTING})
        for i in range(0, len(entries), ENTRIES):
            part = entries[i : i + ENTRIES]
            counts = {_EXISTING: (len(part), sum(e["data_file"]["record_count"] for e in part))}
            summaries = self._summaries(e["data_file"]["partition"].values() for e in part)
            yield self._written(self.coder, part, counts, min(e["sequence_number"] for e in part), summaries)

    def _summaries(self, partitions: Iterable[Iterable[Any]]) -> list[Record]:
        if not self.types:
            return []
        return [_summary(t, values) for t, values in zip(self.types, zip(*partitions, strict=True), strict=True)]

    def _written(
        self,
        coder: Coder,
        entries: Iterable[Record],
        counts: Mapping[int, tuple[int, int]],
        least_sequence: int,
        partitions: list[Record],
    ) -> Record:
        content = coder.file([coder.block(entries)])
        record = {
            "manifest_path": self.put(content),
            "manifest_length": len(content),
            "partition_spec_id": self.spec_id,
            "content": 0,
            "sequence_number": self.sequence,
            "min_sequence_number": least_sequence,
            "added_snapshot_id": self.snapshot_id,
            "partitions": partitions,
        }
        for status, name in ((_ADDED, "added"), (_EXISTING, "existing"), (_DELETED, "deleted")):
            record[f"{name}_files_count"], record[f"{name}_rows_count"] = counts.get(status, (0, 0))
        return record


def _without(blocks: Iterable[Block], paths: Mapping[str, Any]) -> list[Block]:
    left = (b.without(lambda m: m["manifest_path"] in paths) for b in blocks)
    return [b for b in left if b is not None]


def _live(manifest: Record) -> int:
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def _explicit(entry: Record, manifest: Record) -> Record:
    """An entry with the ids that it takes from its manifest, where it is new there."""
    if entry["sequence_number"] is None:
        entry["sequence_number"] = entry["file_sequence_number"] = manifest["sequence_number"]
    if entry["snapshot_id"] is None:
        entry["snapshot_id"] = manifest["added_snapshot_id"]
    return entry


def _partition_schema(coder: Coder) -> list[dict[str, Any]]:
    data_file = next(f for f in coder.schema["fields"] if f["name"] == "data_file")["type"]
    fields: list[dict[str, Any]] = next(f for f in data_file["fields"] if f["name"] == "partition")["type"]["fields"]
    return fields


def _summary(type_: PrimitiveType, values: Sequence[Any]) -> Record:
    numbers = [v for v in values if v is not None and v == v]
    return {
        "contains_null": any(v is None for v in values),
        "contains_nan": any(v is not None and v != v for v in values),
        "lower_bound": to_bytes(type_, min(numbers)) if numbers else None,
        "upper_bound": to_bytes(type_, max(numbers)) if numbers else None,
    }
