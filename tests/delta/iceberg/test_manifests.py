"""Manifests: their size, and which ones a commit reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from trilake.delta.iceberg import avro, manifests
from trilake.delta.iceberg.data_files import layout, manifest_schema
from trilake.delta.iceberg.manifests import Block, ManifestWriter, UnknownFileError
from trilake.delta.protocol.actions import Metadata

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": type_,
                "nullable": True,
                "metadata": {"delta.columnMapping.id": i + 1, "delta.columnMapping.physicalName": name},
            }
            for i, (name, type_) in enumerate((("n", "long"), ("p", "string"), ("x", "double")))
        ],
    }
)
METADATA = Metadata("id", SCHEMA, ("p", "x"), {"delta.columnMapping.mode": "name"})
Row = tuple[str | None, float | None]


class Table:
    """Manifests in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.blocks: tuple[Block, ...] = ()
        self.sequence = 0
        self.reads: list[str] = []

    def commit(
        self, added: dict[str, Row] | None = None, removed: dict[str, Row | None] | None = None, **more: Any
    ) -> ManifestWriter:
        self.sequence += 1
        to = layout(METADATA)
        writer = ManifestWriter(
            manifest_schema(to, 0, 0), 0, to.partition_types, 100 + self.sequence, self.sequence, self.put, self.read
        )
        files = [
            {
                "content": 0,
                "file_path": path,
                "file_format": "PARQUET",
                "partition": row,
                "record_count": 10,
                "file_size_in_bytes": 5,
                **dict.fromkeys(("value_counts", "null_value_counts", "lower_bounds", "upper_bounds"), ()),
            }
            for path, row in (added or {}).items()
        ]
        self.reads = []
        self.blocks = writer.following(self.blocks, files, removed or {}, more.get("replaced", {}))
        return writer

    def put(self, content: bytes) -> str:
        name = f"m{len(self.files)}"
        self.files[name] = content
        return name

    def read(self, names: Any) -> list[bytes]:
        self.reads += names
        return [self.files[name] for name in names]

    @property
    def manifests(self) -> list[dict[str, Any]]:
        return [m for b in self.blocks for m in b.manifests]

    def live(self) -> Iterator[tuple[str, int, int]]:
        """The path, snapshot and sequence number of each file."""
        for m in self.manifests:
            entries = avro.File(self.files[m["manifest_path"]]).records()
            states = [e["status"] for e in entries]
            assert [states.count(s) for s in (1, 0, 2)] == [
                m[f"{s}_files_count"] for s in ("added", "existing", "deleted")
            ]
            for e in entries:
                if e["status"] != 2:
                    yield (
                        e["data_file"]["file_path"],
                        e["snapshot_id"],
                        m["sequence_number"] if e["sequence_number"] is None else e["sequence_number"],
                    )


def test_small_manifests_are_merged_and_entries_keep_their_ids() -> None:
    table = Table()
    for i in range(manifests.MERGE_COUNT + 3):
        table.commit({f"f{i}": ("p", float(i))})
        assert len(table.manifests) <= manifests.MERGE_COUNT
    assert sorted(table.live()) == sorted((f"f{i}", 101 + i, 1 + i) for i in range(manifests.MERGE_COUNT + 3))


def test_many_files_go_to_manifests_of_bounded_size() -> None:
    table = Table()
    table.commit({f"f{i}": ("p", 0.5) for i in range(2 * manifests.ENTRIES + 1)})
    assert [m["added_files_count"] for m in table.manifests] == [manifests.ENTRIES] * 2 + [1]


@pytest.mark.parametrize(
    ("path", "values", "reads"),
    [
        ("b", ("b", 0.1), 1),
        ("b2", ("b", None), 1),
        ("n", (None, 0.1), 1),
        ("missing", ("zz", 0.1), 0),
        ("missing", ("b", float("nan")), 1),
        ("b", None, 3),
    ],
)
def test_manifests_of_other_partitions_are_not_read(path: str, values: Row | None, reads: int) -> None:
    table = Table()
    table.commit({"a": ("a", 0.5)})
    table.commit({"n": (None, 0.1), "c": ("c", 0.2)})
    table.commit({"b": ("b", 0.1), "b2": ("b", None)})
    with suppress(UnknownFileError):
        table.commit(removed={path: values})
        assert path not in {p for p, _, _ in table.live()}
    assert len(table.reads) == reads


def test_removed_files_leave_their_manifests_only() -> None:
    table = Table()
    for name in "abc":
        table.commit({name: (name, 0.1), f"{name}2": (name, 0.1)})
    before = {m["manifest_path"] for m in table.manifests}
    writer = table.commit({"new": ("d", 1.0)}, {"b": ("b", 0.1)})
    assert len(before & {m["manifest_path"] for m in table.manifests}) == 2
    assert writer.deleted == [1, 10]
    assert sorted(table.live()) == [
        ("a", 101, 1),
        ("a2", 101, 1),
        ("b2", 102, 2),
        ("c", 103, 3),
        ("c2", 103, 3),
        ("new", 104, 4),
    ]
    table.commit(removed={"b2": ("b", 0.1), "c": ("c", 0.1), "c2": ("c", 0.1)})
    table.commit()
    assert [p for p, _, _ in sorted(table.live())] == ["a", "a2", "new"]
    assert all(m["added_files_count"] + m["existing_files_count"] for m in table.manifests)


def test_many_removed_files_are_found() -> None:
    table = Table()
    table.commit({f"f{i}": ("p", 0.5) for i in range(300)})
    table.commit(removed={f"f{i}": ("p", 0.5) for i in range(200)})
    assert len(list(table.live())) == 100


def test_replaced_files_are_removed_where_they_exist() -> None:
    table = Table()
    table.commit({"a": ("a", 0.1)})
    table.commit({"a": ("a", 0.1), "b": ("a", 0.2)}, replaced={"a": ("a", 0.1), "b": ("a", 0.2)})
    assert sorted(table.live()) == [("a", 102, 2), ("b", 102, 2)]


def test_only_avro_files_are_read() -> None:
    table = Table()
    table.commit({"a": ("a", 0.1)})
    good = table.files["m0"]
    for content in (b"", b"Obj\x01", b"garbage", good[:-1], good[:-40], good[:80], good + b"\x02\xff"):
        with pytest.raises(avro.DamagedFileError):
            avro.File(content)
