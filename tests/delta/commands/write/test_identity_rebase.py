"""Concurrent writers of identity values: all succeed, and no value occurs twice."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import log_of, metadata, protocol, write
from tests.fault_store import FaultStore
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.rules.identity import identity_metadata
from trilake.delta.standard import standard_engine
from trilake.errors import IdentityOverflowError, MetadataChangedError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore


def _schema(**identity: Any) -> StructType:
    column = StructField("id", PrimitiveType("long"), False, identity_metadata(**identity))
    return StructType((column, StructField("v", PrimitiveType("string")), StructField("p", PrimitiveType("string"))))


def _table(store: Store, partition: tuple[str, ...] = (), **identity: Any) -> Store:
    log_of([protocol(1, 6), metadata(_schema(**identity).json(), partition)], store=store)
    return store


def _write(store: Store, values: list[str], **request: Any) -> None:
    rows = pa.table({"v": values, "p": ["x"] * len(values)})
    write(DeltaLog(store, standard_engine()), rows, **request)


def _rows(store: Store) -> list[tuple[int, str]]:
    return sorted((r["id"], r["v"]) for r in trilake.open(store.uri).to_arrow().to_pylist())


def _mark(store: Store) -> int | None:
    field: StructField = DeltaLog(store, standard_engine()).snapshot().schema.field("id")
    mark: int | None = field.metadata.get("delta.identity.highWaterMark")
    return mark


def test_single_writer_leaves_no_gaps() -> None:
    store = _table(MemoryStore(), start=10, step=5)
    _write(store, ["a", "b"])
    _write(store, ["c"])
    assert _rows(store) == [(10, "a"), (15, "b"), (20, "c")]
    assert _mark(store) == 20


@pytest.mark.parametrize("partition", [(), ("p",)])
@pytest.mark.parametrize("step", [2, -3])
def test_second_writer_shifts_its_values(partition: tuple[str, ...], step: int) -> None:
    inner = _table(MemoryStore(), partition, start=1, step=step)
    winners = iter(["w1", "w2"])

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and key.endswith(".json") and (winner := next(winners, None)):
            _write(inner, [winner])

    _write(FaultStore(inner, before=before), ["a", "b"])
    assert _rows(inner) == sorted([(1, "w1"), (1 + step, "w2"), (1 + 2 * step, "a"), (1 + 3 * step, "b")])
    assert _mark(inner) == 1 + 3 * step
    files = [o.key for o in inner.list() if o.key.endswith(".parquet")]
    assert len(files) == 3  # rewritten files are not left behind


def test_other_metadata_changes_still_conflict() -> None:
    inner = _table(MemoryStore())
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and not done:
            done.append(1)
            log = DeltaLog(inner, standard_engine())
            changed = replace(log.snapshot().metadata, configuration={"a": "b"})
            from trilake.delta.commit.conflicts import ReadSet
            from trilake.delta.commit.transaction import CommitPlan, commit

            commit(log, log.snapshot(), CommitPlan("SET", {}, [], metadata=changed, read=ReadSet()))

    with pytest.raises(MetadataChangedError):
        _write(FaultStore(inner, before=before), ["a"])
    assert _rows(inner) == []


@pytest.mark.parametrize("end", [False, True])
def test_failed_writers_leave_no_shifted_files(end: bool) -> None:
    inner = _table(MemoryStore(), start=2**63 - 2 if end else 1)
    log = DeltaLog(inner, standard_engine())
    winners = iter([lambda: _write(inner, ["w"]), lambda: Alter(log).set_properties({"a": "b"})])

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and key.endswith(".json") and (winner := next(winners, None)):
            winner()

    with pytest.raises(IdentityOverflowError if end else MetadataChangedError):
        _write(FaultStore(inner, before=before), ["a", "b"])
    assert len([o for o in inner.list() if o.key.endswith(".parquet")]) == 1


def test_overwrite_does_not_shift_identity_values(tmp_path: Path) -> None:
    inner = _table(MemoryStore())
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and not done:
            done.append(1)
            _write(inner, ["w"])

    _write(inner, ["first"])
    done.clear()
    with pytest.raises(MetadataChangedError):
        _write(FaultStore(inner, before=before), ["a"], mode="overwrite")
    assert _rows(inner) == [(1, "first"), (2, "w")]


def test_explicit_identity_values_conflict() -> None:
    inner = _table(MemoryStore(), explicit=True)
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and not done:
            done.append(1)
            _write(inner, ["w"])

    given = pa.table({"id": [7], "v": ["mine"], "p": ["x"]})
    try:
        write(DeltaLog(FaultStore(inner, before=before), standard_engine()), given)
    except MetadataChangedError:
        assert _rows(inner) == [(1, "w")]
    else:
        assert _rows(inner) == [(1, "w"), (7, "mine")]
    assert len({i for i, _ in _rows(inner)}) == len(_rows(inner))


def test_concurrent_threads_all_succeed(tmp_path: Path) -> None:
    store = _table(open_store(str(tmp_path)))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda w: [_write(store, [f"{w}/{i}"] * 3) for i in range(5)], range(4)))
    result = _rows(store)
    assert [i for i, _ in result] == list(range(1, 61))
    assert sorted({v for _, v in result}) == sorted(f"{w}/{i}" for w in range(4) for i in range(5))
    by_write: Mapping[str, list[int]] = {v: [i for i, o in result if o == v] for _, v in result}
    assert all(ids == list(range(ids[0], ids[0] + 3)) for ids in by_write.values())
