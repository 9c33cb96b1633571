"""Real processes that read and append under Serializable: their histories have a serial order."""

from __future__ import annotations

import json
import multiprocessing
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.conftest import SOAK
from tests.simulation.histories import Transaction, circle, dependencies
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine
from trilake.engine.transaction import Transaction as TableTransaction
from trilake.errors import ConflictError
from trilake.storage import open_store

KEYS = 3
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])


def _lists(table: Any) -> dict[int, tuple[int, ...]]:
    """The list of each key: its values in the order of the versions that brought them."""
    rows = sorted(table.to_arrow().to_pylist(), key=lambda r: (r["at"], r["v"]))
    return {k: tuple(r["v"] for r in rows if r["k"] == k) for k in range(KEYS)}


def _work(uri: str, out: str, worker: int, count: int, isolation: str) -> None:
    rng, done, store = random.Random(worker), [], open_store(uri)
    for number in range(count):
        id = worker * 1000 + number
        reads, writes = rng.randrange(KEYS), rng.randrange(KEYS)
        while True:
            transaction = TableTransaction(store, isolation=isolation)
            version = transaction.snapshot.version
            transaction.read(f"k = {reads}")
            seen = _lists(ArrowDeltaTable(store, standard_engine(), version=version))[reads]
            # The version that it stands on orders what is appended to one list: others of that list are conflicts.
            transaction.write(pa.table({"k": [writes], "v": [id], "at": [-1]}, schema=SCHEMA))
            try:
                made = transaction.commit("WRITE")
                break
            except ConflictError:
                continue
        done.append({"id": id, "key": reads, "seen": seen, "to": writes, "version": made})
    Path(out).write_text(json.dumps(done))


def _run(folder: Path, workers: int, count: int, isolation: str) -> list[int] | None:
    uri = str(folder / "t")
    trilake.write(SCHEMA.empty_table(), uri, partition_by="k")
    context = multiprocessing.get_context("spawn")
    outs = [str(folder / f"{w}.json") for w in range(workers)]
    processes = [context.Process(target=_work, args=(uri, o, w, count, isolation)) for w, o in enumerate(outs)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    assert [p.exitcode for p in processes] == [0] * workers
    done = [t for o in outs for t in json.loads(Path(o).read_text())]
    assert len({t["version"] for t in done}) == workers * count
    ordered = sorted(done, key=lambda t: t["version"])
    lists = {k: tuple(t["id"] for t in ordered if t["to"] == k) for k in range(KEYS)}
    # A read shows ids in the order of their versions, too.
    at = {t["id"]: t["version"] for t in done}
    history = [
        Transaction(t["id"], {t["key"]: tuple(sorted(t["seen"], key=at.__getitem__))}, {t["to"]: t["id"]}) for t in done
    ]
    assert sorted(v for values in lists.values() for v in values) == sorted(
        trilake.open(uri).to_arrow()["v"].to_pylist()
    )
    return circle(dependencies(history, lists))


def test_processes_that_read_and_append_can_be_put_in_order(tmp_path: Path) -> None:
    workers, count = (12, 40) if SOAK else (2, 4)
    assert _run(tmp_path, workers, count, "Serializable") is None


def test_write_skew_is_a_circle() -> None:
    skew = [Transaction(1, {0: ()}, {1: 10}), Transaction(2, {1: ()}, {0: 20})]
    found = circle(dependencies(skew, {0: (20,), 1: (10,)}))
    assert found is not None
    assert set(found) == {1, 2}
    serial = [Transaction(1, {0: ()}, {1: 10}), Transaction(2, {1: (10,)}, {0: 20})]
    assert circle(dependencies(serial, {0: (20,), 1: (10,)})) is None


def test_a_value_that_was_lost_is_seen() -> None:
    with pytest.raises(ValueError, match="which became"):
        dependencies([Transaction(1, {0: (5, 6)}, {})], {0: (6,)})


def test_a_circle_of_three_is_found_behind_transactions_that_are_in_order() -> None:
    edges = {1: {2: "ww"}, 2: {3: "wr"}, 3: {4: "rw"}, 4: {2: "ww"}, 5: {1: "wr"}}
    found = circle(edges)
    assert found is not None
    assert found[0] == found[-1]
    assert set(found) == {2, 3, 4}
