"""Histories of real processes that read and append under Serializable have a serial order."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.conftest import SOAK
from tests.simulation.histories import Transaction, dependencies, find_cycle
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.delta.transaction import Transaction as TableTransaction
from trilake.errors import ConflictError
from trilake.storage import open_store

KEYS = 3
#: Processes and transactions per process, as in ``TRILAKE_HISTORY=32x100``.
WORKERS, COUNT = map(int, os.environ.get("TRILAKE_HISTORY", "12x40" if SOAK else "2x4").split("x"))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])


def _lists(table: Any) -> dict[int, tuple[int, ...]]:
    """Return the list of each key: its values in the order of the versions that appended them."""
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
            # Appends to the list that was read conflict, so the read version orders them.
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
    return _cycle(uri, done)


def _cycle(uri: str, done: list[dict[str, Any]]) -> list[int] | None:
    """Check that the table has all appended values, and return a cycle of the transactions, or ``None``."""
    ordered = sorted(done, key=lambda t: t["version"])
    lists = {k: tuple(t["id"] for t in ordered if t["to"] == k) for k in range(KEYS)}
    # Reads also order ids by version.
    at = {t["id"]: t["version"] for t in done}
    history = [
        Transaction(t["id"], {t["key"]: tuple(sorted(t["seen"], key=at.__getitem__))}, {t["to"]: t["id"]}) for t in done
    ]
    assert sorted(v for values in lists.values() for v in values) == sorted(
        trilake.open(uri).to_arrow()["v"].to_pylist()
    )
    return find_cycle(dependencies(history, lists))


@pytest.mark.timeout(300 if WORKERS * COUNT < 100 else 6 * 3600)
def test_concurrent_processes_are_serializable(tmp_path: Path) -> None:
    assert _run(tmp_path, WORKERS, COUNT, "Serializable") is None


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_undeclared_reads_make_a_cycle(declared: bool, tmp_path: Path) -> None:
    """The harness can fail: two transactions that each append to what the other read have no serial order."""
    uri = str(tmp_path / "t")
    trilake.write(SCHEMA.empty_table(), uri, partition_by="k")
    store, rejected = open_store(uri), 0
    done: list[dict[str, Any]] = []
    begun = [TableTransaction(store, isolation="Serializable") for _ in range(2)]
    versions = [t.snapshot.version for t in begun]
    for number, transaction in enumerate(begun):
        reads, writes = number, 1 - number
        seen = _lists(ArrowDeltaTable(store, standard_engine(), version=versions[number]))[reads]
        if declared:
            transaction.read(f"k = {reads}")
        transaction.write(pa.table({"k": [writes], "v": [number], "at": [-1]}, schema=SCHEMA))
        try:
            made = transaction.commit("WRITE")
        except ConflictError:
            rejected += 1
        else:
            done.append({"id": number, "key": reads, "seen": seen, "to": writes, "version": made})
    assert rejected == declared
    assert (_cycle(uri, done) is None) == declared


def test_write_skew_is_a_cycle() -> None:
    skew = [Transaction(1, {0: ()}, {1: 10}), Transaction(2, {1: ()}, {0: 20})]
    result = find_cycle(dependencies(skew, {0: (20,), 1: (10,)}))
    assert result is not None
    assert set(result) == {1, 2}
    serial = [Transaction(1, {0: ()}, {1: 10}), Transaction(2, {1: (10,)}, {0: 20})]
    assert find_cycle(dependencies(serial, {0: (20,), 1: (10,)})) is None


def test_lost_value_is_detected() -> None:
    with pytest.raises(ValueError, match="which became"):
        dependencies([Transaction(1, {0: (5, 6)}, {})], {0: (6,)})


def test_cycle_of_three_is_found_behind_ordered_transactions() -> None:
    edges = {1: {2: "ww"}, 2: {3: "wr"}, 3: {4: "rw"}, 4: {2: "ww"}, 5: {1: "wr"}}
    result = find_cycle(edges)
    assert result is not None
    assert result[0] == result[-1]
    assert set(result) == {2, 3, 4}
