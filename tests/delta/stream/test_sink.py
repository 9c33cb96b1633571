"""Batches run like in Spark are committed once, with a crash at every request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import plan_write, write_arrow
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask
from trilake.delta.standard import standard_engine
from trilake.delta.stream.offset import Limit, StreamOffset
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.sink import commit_batch, committed
from trilake.delta.stream.source import DeltaStream
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import MetadataChangedError
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore
from trilake.table.streams import BatchId

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "p": [str(i % 3) for i in ids]}, schema=SCHEMA)


def request(mode: Any = "append", **fields: Any) -> WriteRequest:
    return WriteRequest(mode=mode, schema=from_arrow(SCHEMA), **fields)


def write_batch(store: Store, batch: BatchId, table: pa.Table, mode: Any = "append", tasks: int = 2) -> int | None:
    """Write one batch like Spark and the sink do."""
    log = DeltaLog(store, standard_engine())
    plan = plan_write(log, request(mode)).to_travel()
    half = -(-table.num_rows // tasks) or 1
    parts = [write_files(store, plan.files, table.slice(t * half, half).to_batches(), task=t) for t in range(tasks)]
    return commit_batch(DeltaLog(store, standard_engine()), plan, batch, parts).version


def ids(store: Store) -> list[int]:
    return sorted(ArrowDeltaTable(store, standard_engine()).to_arrow(["id"])["id"].to_pylist())


@dataclass
class Checkpoint:
    """Spark's checkpoint: planned and finished batches."""

    offsets: list[tuple[StreamOffset, StreamOffset]] = field(default_factory=list)
    commits: int = 0


def run(source: Store, target: Store, query: str, checkpoint: Checkpoint, limit: Limit) -> None:
    """Run micro-batches like Spark until nothing is left."""
    log = DeltaLog(source, standard_engine())
    head = log.head()
    stream = DeltaStream(log, Reading(head.metadata, head.version), StreamOptions())
    while True:
        if checkpoint.commits == len(checkpoint.offsets):
            start = checkpoint.offsets[-1][1] if checkpoint.offsets else stream.initial()
            end = stream.latest(start, limit)
            if end == start and checkpoint.offsets:
                return
            checkpoint.offsets.append((start, end))
        number = len(checkpoint.offsets) - 1
        first, end = checkpoint.offsets[number]
        if number == 0:
            first = stream.initial()  # Spark does not keep it
        batch = stream.batch(first, end)
        tables = [b for t in batch.tasks if isinstance(t, FileTask) for b in read_task(source, t, batch.plan)]
        write_batch(target, BatchId(query, number), pa.Table.from_batches(tables, schema=SCHEMA))
        checkpoint.commits += 1


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(s, marks=pytest.mark.soak) for s in range(5, 400))])
def test_chained_queries_survive_crashes_at_any_request(seed: int) -> None:
    """source -> middle -> last: both sinks have every row once after any crash, while the source grows."""
    random_ = random.Random(seed)
    limit = random_.randint(1, 3)
    source, middle, last = MemoryStore(), MemoryStore(), MemoryStore()
    written = 0
    checkpoints = Checkpoint(), Checkpoint()

    def grow() -> None:
        nonlocal written
        for _ in range(random_.randint(1, 3)):
            n = random_.randint(1, 4)
            write_arrow(
                DeltaLog(source, standard_engine()), SCHEMA, rows(*range(written, written + n)).to_batches(), request()
            )
            written += n

    grow()
    deaths = 0
    for step in range(60):
        hop = step % 2
        stores = [source, middle] if hop == 0 else [middle, last]
        if step < 40:
            fault = Fault(nth=random_.randint(1, 60), kind="crash", when=random_.choice(["before", "after"]))
            which = random_.randint(0, 1)
            stores[which] = FaultStore(stores[which], [fault])
            if random_.random() < 0.3:
                grow()
        if hop == 1 and not DeltaLog(middle, standard_engine()).exists():
            continue
        try:
            run(stores[0], stores[1], f"query-{hop}", checkpoints[hop], Limit(limit))
        except SimulatedCrash:
            deaths += 1
    assert deaths
    assert ids(middle) == list(range(written))
    assert ids(last) == list(range(written))


def test_repeated_batch_is_not_written_again() -> None:
    store = MemoryStore()
    batch = BatchId("q", 0)
    assert write_batch(store, batch, rows(1, 2)) == 0
    assert write_batch(store, batch, rows(1, 2)) == 0
    assert write_batch(store, BatchId("q", 1), rows(3)) == 1
    assert write_batch(store, batch, rows(1, 2)) == 1  # older than the table's files
    assert write_batch(store, BatchId("another", 0), rows(1)) == 2
    assert ids(store) == [1, 1, 2, 3]
    info = DeltaLog(store, standard_engine()).commit_info(1)
    assert info["operation"] == "STREAMING UPDATE"
    assert info["operationParameters"] == {"outputMode": "Append", "queryId": "q", "epochId": "1"}
    counted = {k: v for k, v in info["operationMetrics"].items() if k != "numOutputBytes"}
    assert counted == {"numAddedFiles": "1", "numRemovedFiles": "0", "numOutputRows": "1"}


def test_files_committed_twice_are_kept() -> None:
    """The reply to the first commit was lost on its way to Spark, not on its way to trilake."""
    store = MemoryStore()
    log = DeltaLog(store, standard_engine())
    write_arrow(log, SCHEMA, rows(0).to_batches(), request())
    plan = plan_write(log, request()).to_travel()
    parts = [write_files(store, plan.files, rows(1).to_batches(), task=0)]
    for _ in range(2):
        assert commit_batch(log, plan, BatchId("q", 0), parts).version == 1
    assert ids(store) == [0, 1]


@pytest.mark.parametrize("new", [True, False])
def test_two_runs_of_one_query_commit_once(new: bool) -> None:
    """The old process was taken for dead: the second one finds the batch committed, even if it is the first batch."""
    store = MemoryStore()
    if not new:
        write_arrow(DeltaLog(store, standard_engine()), SCHEMA, rows(0).to_batches(), request())
    batch = BatchId("q", 0)
    done: list[int | None] = []

    def faster(op: str, keys: tuple[str, ...]) -> None:
        if op == "put_if_absent" and not done:
            done.append(None)
            done.append(write_batch(store, batch, rows(1, 2)))

    slow = FaultStore(store, before=faster)
    assert write_batch(slow, batch, rows(1, 2)) == done[1]
    assert ids(store) == ([1, 2] if new else [0, 1, 2])


def test_complete_mode_replaces_all_rows_once() -> None:
    store = MemoryStore()
    write_batch(store, BatchId("q", 0), rows(1, 2), "overwrite")
    write_arrow(DeltaLog(store, standard_engine()), SCHEMA, rows(9).to_batches(), request())
    write_batch(store, BatchId("q", 1), rows(1, 2, 3), "overwrite")
    write_batch(store, BatchId("q", 1), rows(7), "overwrite")
    assert ids(store) == [1, 2, 3]
    write_batch(store, BatchId("q", 2), rows(), "overwrite")
    assert ids(store) == []
    assert committed(DeltaLog(store, standard_engine()), BatchId("q", 2))


def test_complete_mode_replaces_concurrently_added_rows() -> None:
    store = MemoryStore()
    log = DeltaLog(store, standard_engine())
    write_arrow(log, SCHEMA, rows(1).to_batches(), request())
    plan = plan_write(log, request("overwrite")).to_travel()
    parts = [write_files(store, plan.files, rows(5).to_batches(), task=0)]
    write_arrow(log, SCHEMA, rows(2).to_batches(), request())
    commit_batch(log, plan, BatchId("q", 0), parts)
    assert ids(store) == [5]


def test_batch_without_rows_creates_no_version() -> None:
    store = MemoryStore()
    assert write_batch(store, BatchId("q", 0), rows()) == 0  # but it creates the table
    assert write_batch(store, BatchId("q", 1), rows()) == 0
    wider = replace(request(schema_mode="merge"), schema=from_arrow(SCHEMA.append(pa.field("n", pa.int64()))))
    log = DeltaLog(store, standard_engine())
    assert commit_batch(log, plan_write(log, wider), BatchId("q", 2), []).version == 1  # and it adds columns
    assert log.head().schema.names == ["id", "p", "n"]


def test_two_queries_create_one_table() -> None:
    store = MemoryStore()
    log = DeltaLog(store, standard_engine())
    plans = [plan_write(log, request(partition_by=("p",))) for _ in range(2)]
    for number, plan in enumerate(plans):
        parts = [write_files(store, plan.files, rows(number).to_batches(), task=0)]
        assert commit_batch(log, plan, BatchId(f"q{number}", 0), parts).version == number
    assert ids(store) == [0, 1]
    other = MemoryStore()
    plan = plan_write(DeltaLog(other, standard_engine()), request())
    parts = [write_files(other, plan.files, rows(5).to_batches(), task=0)]
    write_batch(other, BatchId("a", 0), rows(1))
    commit_batch(DeltaLog(other, standard_engine()), plan, BatchId("b", 0), parts)
    mapped = MemoryStore()
    plan = plan_write(DeltaLog(mapped, standard_engine()), request())
    parts = [write_files(mapped, plan.files, rows(5).to_batches(), task=0)]
    with_names = request(properties={"delta.columnMapping.mode": "name"})
    write_arrow(DeltaLog(mapped, standard_engine()), SCHEMA, rows(1).to_batches(), with_names)
    with pytest.raises(MetadataChangedError, match="different columns"):
        commit_batch(DeltaLog(mapped, standard_engine()), plan, BatchId("b", 0), parts)
    assert (ids(other), ids(mapped)) == ([1, 5], [1])


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_two_queries_create_one_table_concurrently(mode: str) -> None:
    """The other query commits between the log read and the first commit, which must not fail the query."""
    store = MemoryStore()
    done: list[int | None] = []

    def faster(op: str, keys: tuple[str, ...]) -> None:
        if op == "put_if_absent" and not done:
            done.append(None)
            done.append(write_batch(store, BatchId("other", 0), rows(1, 2)))

    assert write_batch(FaultStore(store, before=faster), BatchId("q", 0), rows(3), mode) == 1
    assert done == [None, 0]
    assert ids(store) == ([1, 2, 3] if mode == "append" else [3])
