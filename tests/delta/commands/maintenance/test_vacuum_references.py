"""Vacuum keeps files referenced indirectly: vectors, escaped and absolute paths, damaged names."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delta.commands.maintenance.vacuum_world import HOUR, LATER
from tests.delta.tables import add, clocked, log_of, remove
from trilake.delta.commands.maintenance.vacuum import vacuum
from trilake.delta.commands.maintenance.vacuum_files import references, vector_files
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor, z85_encode
from trilake.storage.memory import MemoryStore


def vector(number: int, kind: str = "u", prefix: str = "") -> tuple[dict[str, Any], str]:
    """A descriptor and the name of its file."""
    made = uuid.UUID(int=number * 0x1234567890ABCDEF1234567)
    descriptor = {"storageType": kind, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    return {**descriptor, "pathOrInlineDv": prefix + z85_encode(made.bytes)}, f"deletion_vector_{made}.bin"


def test_vectors_of_live_and_recently_removed_files_are_kept() -> None:
    store = MemoryStore(clock=lambda: 0)
    live, live_file = vector(1)
    prefixed, prefixed_file = vector(2, prefix="a/b c")
    late, late_file = vector(3)
    gone, gone_file = vector(4, prefix="zz")
    day, now = 24 * HOUR, 1000 * HOUR
    log = log_of(
        [
            add("f", deletionVector=live),
            add("g", deletionVector=prefixed),
            remove("h", deletionTimestamp=now - day, deletionVector=late),
            remove("i", deletionTimestamp=now - 30 * day, deletionVector=gone),
        ],
        store=store,
    )
    for key in ("f", "g", "h", "i", live_file, f"a/b c/{prefixed_file}", late_file, f"zz/{gone_file}"):
        store.put(key, b"x")
    done = vacuum(clocked(log, lambda: now))
    assert sorted(done.paths) == ["i", f"zz/{gone_file}"]


@given(st.lists(st.tuples(st.integers(0, 2**128 - 1), st.text("ab/ %ü", max_size=5)), max_size=30))
def test_vector_paths_match_the_reader(vectors: list[tuple[int, str]]) -> None:
    strings = [prefix + z85_encode(uuid.UUID(int=n).bytes) for n, prefix in vectors]
    rows_ = [{"storageType": "u", "pathOrInlineDv": t, "sizeInBytes": 1, "cardinality": 1} for t in strings]
    fields = log_of([]).snapshot().adds.schema.field("deletionVector").type
    files, absolute, damaged = vector_files(pa.chunked_array([pa.array([*rows_, None], fields)]))
    expected = {DeletionVectorDescriptor("u", t, 1, 1).relative_path() for t in strings}
    assert (set(files.to_pylist()), len(absolute), damaged) == (expected, 0, False)


@pytest.mark.parametrize("path", ["short", "é" * 20, "~" * 20, "#" * 20])
def test_damaged_vector_path_protects_every_vector_file(path: str) -> None:
    store = MemoryStore(clock=lambda: 0)
    broken = {"storageType": "u", "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    log = log_of([add("f", deletionVector=broken)], store=store)
    _, stray = vector(7)
    for key in ("f", "x", stray, f"ab/{stray}"):
        store.put(key, b"x")
    assert vacuum(clocked(log, LATER.clock_ms)).paths == ["x"]


def test_absolute_and_odd_paths_protect_matching_names() -> None:
    store = MemoryStore(clock=lambda: 0)
    absolute, absolute_file = vector(1, "p")
    absolute["pathOrInlineDv"] = f"{store.uri}/q/{absolute_file}"
    named = ["file:/elsewhere/a.parquet", "/x/b.parquet", "s3a://b/c%20d.parquet", "./e.parquet", "x/../f.parquet"]
    adds = [add(p) for p in named]
    log = log_of([*adds, add("g%20h.parquet"), add("w", deletionVector=absolute)], store=store)
    kept = ["a.parquet", "x/b.parquet", "c d.parquet", "e.parquet", "f.parquet", "g h.parquet", "g%20h.parquet"]
    for key in (*kept, f"q/{absolute_file}", "w", "garbage.parquet"):
        store.put(key, b"x")
    assert vacuum(clocked(log, LATER.clock_ms)).paths == ["garbage.parquet"]


def test_empty_snapshot_references_nothing() -> None:
    snapshot = log_of([]).snapshot()
    assert references(snapshot.adds).name(pa.chunked_array([["a", "b"]])).tolist() == [False, False]
