"""Folders of Trevni files as streams: every file once, every batch once, across crashes."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.errors import InvalidArgumentError
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.memory import MemoryStore
from trilake.table.streams import BatchId, StreamError
from trilake.trevni.tables.dataset import list_files, read_split, split_of
from trilake.trevni.tables.stream import TrevniOffset, TrevniStream, commit_batch, parse_limit
from trilake.trevni.tables.table_write import finish_table_write, plan_table_write, write_rows

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def append(store: Store, *ids: int) -> None:
    plan = plan_table_write(store, SCHEMA, mode="append")
    finish_table_write(store, plan, write_rows(store, plan, rows(*ids).to_batches()))


def ids(store: Store) -> list[int]:
    out = []
    for file in list_files(store):
        out += [i for b in read_split(split_of(store, file.key), SCHEMA) for i in b["id"].to_pylist()]
    return sorted(out)


def read(store: Store, end: TrevniOffset) -> list[int]:
    splits = TrevniStream(store).batch(end)
    return [i for s in splits for b in read_split(split_of(store, s.key), SCHEMA) for i in b["id"].to_pylist()]


class Aged(MemoryStore):
    """A store whose files have given times."""

    times: dict[str, int]

    def list(self, prefix: str = "", start_after: str | None = None) -> Any:
        for m in super().list(prefix, start_after):
            yield ObjectMeta(m.key, m.size, self.times.get(m.key, m.modified_ms))


def test_every_file_is_read_once_over_windows() -> None:
    random_ = random.Random(1)
    store = Aged()
    store.times = {}
    now, start, got, written = 0, TrevniOffset(), [], 0
    for _ in range(30):
        for _ in range(random_.randint(0, 3)):
            now += random_.randint(0, 40)
            key = f"f{written:03d}.trv"
            store.put(key, b"x")
            store.times[key] = max(0, now - random_.randint(0, 90))  # visible up to 90 ms after its write
            written += 1
        found = TrevniStream(store, window_ms=200)
        end = found.latest(start, random_.randint(1, 4))
        assert TrevniOffset.from_json(end.to_json()) == end
        if end != start:
            got += [s.key for s in found.batch(end)]
        start = end
    while (end := TrevniStream(store, window_ms=200).latest(start, 3)) != start:
        got += list(end.added)
        start = end
    assert sorted(got) == [f"f{i:03d}.trv" for i in range(written)]
    assert len(start.recent) < written
    store.put("late.trv", b"x")
    store.times["late.trv"] = 1
    with pytest.raises(StreamError, match="arrived late or were removed"):
        TrevniStream(store).latest(start)
    assert TrevniStream(store, fail_on_data_loss=False).latest(start) == start


def test_files_of_jobs_and_of_later_runs() -> None:
    store = MemoryStore()
    append(store, 1, 2)
    found = TrevniStream(store)
    found.stop_at_newest()
    append(store, 3)
    end = found.latest(TrevniOffset())
    assert read(store, end) == [1, 2]
    assert found.latest(end) == end
    assert read(store, TrevniStream(store).latest(end)) == [3]


@pytest.mark.parametrize("wrong", [{}, {"horizonMs": 1}, None])
def test_invalid_offsets_raise(wrong: Any) -> None:
    with pytest.raises(StreamError):
        TrevniOffset.from_json(wrong)


def test_limits_must_be_numbers() -> None:
    assert (parse_limit(None), parse_limit("7")) == (1000, 7)
    with pytest.raises(InvalidArgumentError):
        parse_limit("0")


def write_batch(store: Store, batch: BatchId, table: pa.Table, mode: str = "append") -> bool:
    plan = plan_table_write(store, SCHEMA, mode=mode)
    return commit_batch(store, plan, batch, write_rows(store, plan, table.to_batches()))


def test_repeated_batch_is_written_once() -> None:
    store = MemoryStore()
    assert write_batch(store, BatchId("q", 0), rows(1, 2))
    assert not write_batch(store, BatchId("q", 0), rows(1, 2))
    assert write_batch(store, BatchId("q", 1), rows(3))
    assert not write_batch(store, BatchId("q", 2), rows())
    assert write_batch(store, BatchId("x", 0), rows(3))
    assert ids(store) == [1, 2, 3, 3]
    write_batch(store, BatchId("all", 0), rows(9), "overwrite")
    write_batch(store, BatchId("all", 0), rows(9), "overwrite")
    assert ids(store) == [9]


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.soak) for s in range(6, 500))])
def test_batches_survive_failures_at_any_request(seed: int) -> None:
    random_ = random.Random(seed)
    store = MemoryStore()
    done = deaths = 0
    while done < 12:
        early = Fault(nth=random_.randint(1, 40), kind="crash", when=random_.choice(["before", "after"]))
        # A crash after a listing cannot happen if the listing is never exhausted.
        late = Fault(nth=random_.randint(41, 200), kind="crash")
        try:
            place = FaultStore(store, [early, late])
            while done < 12:
                write_batch(place, BatchId("q", done), rows(2 * done, 2 * done + 1))
                done += 1
        except SimulatedCrash:
            deaths += 1
        assert set(ids(store)) <= set(range(2 * done + 2))
    assert deaths
    assert ids(store) == list(range(24))
