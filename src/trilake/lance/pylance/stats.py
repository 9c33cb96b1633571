"""``LanceStats``: statistics of a dataset and its indices."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, TypedDict

from trilake.lance.commands import indices
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.pylance.beyond import NotInFormatError
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.v2.file import V2File
from trilake.lance.versions.manifest import BTREE_DETAILS, VECTOR_DETAILS, IndexMetadata


class DatasetStats(TypedDict):
    """Statistics of a dataset."""

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


@dataclass(frozen=True)
class FieldStatistics:
    """A field, and the size of its values in the data files."""

    id: int
    bytes_on_disk: int


@dataclass(frozen=True)
class DataStatistics:
    """Statistics of the fields that have values in the data files."""

    fields: list[FieldStatistics]


@dataclass(frozen=True)
class IndexSegmentDescription:
    """A segment of an index."""

    uuid: str
    dataset_version_at_last_update: int
    fragment_ids: frozenset[int]
    index_version: int
    created_at: dt.datetime | None = None


@dataclass(frozen=True)
class IndexDescription:
    """An index: name, kind, field ids and names, segments, and the number of rows it covers."""

    name: str
    type_url: str
    index_type: str
    num_rows_indexed: int
    fields: list[int]
    field_names: list[str]
    segments: list[IndexSegmentDescription]

    @classmethod
    def of(cls, snapshot: Snapshot, name: str) -> IndexDescription:
        schema, parts = snapshot.manifest.schema, indices.parts(snapshot, name)
        index = parts[0]
        kind = indices.kind_of(snapshot, index)
        details = index.details or {"IVF_PQ": VECTOR_DETAILS, "BTree": BTREE_DETAILS}.get(kind)
        segments = [
            IndexSegmentDescription(
                str(part.uuid),
                part.dataset_version,
                frozenset(part.fragment_bitmap or ()),
                part.index_version or 0,
                None if part.created_at_ms is None else dt.datetime.fromtimestamp(part.created_at_ms / 1000, dt.UTC),
            )
            for part in parts
        ]
        covered = frozenset().union(*(s.fragment_ids for s in segments))
        return cls(
            index.name,
            "" if details is None else details.type_url,
            kind,
            sum(r.num_rows for r in snapshot.readers if r.fragment.id in covered),
            list(index.fields),
            schema.names_of(index.fields),
            segments,
        )


class LanceStats:
    """Statistics of a dataset at its version."""

    def __init__(self, dataset: OpenDataset) -> None:
        self._dataset = dataset

    def dataset_stats(self, max_rows_per_group: int = 1024) -> DatasetStats:
        """Return the numbers of deleted rows, fragments, and small files (fewer rows than ``max_rows_per_group``)."""
        readers = self._dataset.snapshot.readers
        return {
            "num_deleted_rows": sum(r.num_deleted for r in readers),
            "num_fragments": len(readers),
            "num_small_files": sum(r.physical_rows < max_rows_per_group for r in readers),
        }

    def data_stats(self) -> DataStatistics:
        """Return the size of each field in the data files in bytes, without blobs and deleted columns.

        Raises ``NotInFormatError`` for files of the legacy format, which do not store them.
        """
        sizes: dict[int, int] = {f.id: 0 for f in self._dataset.snapshot.manifest.schema.columns()}
        for reader in self._dataset.snapshot.readers:
            for file in map(reader.file, reader.fragment.files):
                if not isinstance(file, V2File):
                    raise NotInFormatError(
                        "legacy files do not store page sizes", help="migrate the dataset: ds.migrate()"
                    )
                for id, number in file.columns.items():
                    if id in sizes:
                        sizes[id] += file.column_bytes(number)
        return DataStatistics([FieldStatistics(id, size) for id, size in sizes.items()])

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Return statistics of an index, the rows and fragments it covers, and cache hits.

        ``index_type`` and the statistics of the kind are those of the first segment; ``indices`` and ``segments`` list
        those of all segments.  The counts of rows and fragments are for the whole index.  Raises ``UnknownIndexError``,
        a ``KeyError``.
        """
        snapshot = self._dataset.snapshot
        segments = indices.parts(snapshot, index_name)
        each = [own_statistics(snapshot, index) for index in segments]
        rows = [
            {r.fragment.id: r.num_rows for r in snapshot.readers if r.fragment.id in (i.fragment_bitmap or ())}
            for i in segments
        ]
        indexed = {id: n for of_segment in rows for id, n in of_segment.items()}
        numbers = {**each[0], "name": index_name}
        numbers |= dict.fromkeys(("num_indices", "num_segments"), len(segments))
        numbers |= dict.fromkeys(("indices", "segments"), each)
        every = {r.fragment.id: r.num_rows for r in snapshot.readers}
        for kind, some in ("indexed", indexed), ("unindexed", {id: every[id] for id in every.keys() - indexed.keys()}):
            numbers |= {f"num_{kind}_fragments": len(some), f"num_{kind}_rows": sum(some.values())}
        numbers["num_indexed_rows_per_delta"] = [sum(of_segment.values()) for of_segment in rows]
        numbers["index_cache_entry_count"] = snapshot.indices.entry_count
        numbers["index_cache_hit_rate"] = snapshot.indices.hit_rate
        return numbers


def own_statistics(snapshot: Snapshot, index: IndexMetadata) -> dict[str, Any]:
    """Return the id of a segment and the statistics in its files; for an unknown kind, only its name."""
    opened = snapshot.indices.vector(index) or snapshot.indices.scalar(index)
    more: dict[str, Any] = {"index_type": indices.kind_of(snapshot, index)} if opened is None else opened.statistics()
    return {**more, "uuid": str(index.uuid)}
