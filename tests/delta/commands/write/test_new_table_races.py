"""Concurrent creation of a table: later writers continue with the table that now exists."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import trilake
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import WriteResult, finish_write, plan_write
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.errors import MetadataChangedError, SchemaMismatchError, TableExistsError
from trilake.storage import open_store

PLACE = "memory://new-table-races"


@pytest.fixture
def log() -> DeltaLog:
    store = open_store(PLACE)
    store.delete([o.key for o in store.list()])
    return DeltaLog(store, standard_engine())


def later(log: DeltaLog, rows: pa.Table, first: pa.Table, mode: str, **more: Any) -> WriteResult:
    """Write ``rows``: plan before and commit after the ``first`` write creates the table."""
    request = WriteRequest(mode, from_arrow(rows.schema), **more)  # type: ignore[arg-type]
    plan = plan_write(log, request)
    written = [write_files(log.store, plan.files, rows.to_batches(), tasks=1)]
    trilake.write(first, PLACE)
    return finish_write(log, plan, written)


def ids() -> list[int]:
    result: list[int] = trilake.open(PLACE).to_arrow()["id"].to_pylist()
    return sorted(result)


def data_files(log: DeltaLog) -> int:
    return sum(o.key.endswith(".parquet") for o in log.store.list() if not o.key.startswith("_"))


@pytest.mark.parametrize(
    ("mode", "kept", "version"), [("append", [1, 2], 1), ("overwrite", [2], 1), ("ignore", [1], 0)]
)
def test_later_writer_applies_its_mode_to_the_new_table(
    log: DeltaLog, mode: str, kept: list[int], version: int
) -> None:
    done = later(log, pa.table({"id": [2]}), pa.table({"id": [1]}), mode)
    assert (done.version, ids()) == (version, kept)
    assert data_files(log) == {"append": 2, "overwrite": 2, "ignore": 1}[mode]


def test_later_writer_in_error_mode_fails(log: DeltaLog) -> None:
    with pytest.raises(TableExistsError):
        later(log, pa.table({"id": [2]}), pa.table({"id": [1]}), "error")
    assert (ids(), data_files(log)) == ([1], 1)


@pytest.mark.parametrize("rows", [pa.table({"id": ["2"]}), pa.table({"id": [2], "more": [3]})], ids=["type", "column"])
def test_later_writer_with_another_schema_fails(log: DeltaLog, rows: pa.Table) -> None:
    with pytest.raises(SchemaMismatchError):
        later(log, rows, pa.table({"id": [1]}), "append")
    assert (ids(), data_files(log)) == ([1], 1)


def test_later_writer_may_add_columns_with_schema_merge(log: DeltaLog) -> None:
    later(log, pa.table({"id": [2], "more": [3]}), pa.table({"id": [1]}), "append", schema_mode="merge")
    assert trilake.open(PLACE).to_arrow().sort_by("id").to_pylist() == [{"id": 1, "more": None}, {"id": 2, "more": 3}]


def test_later_writer_fails_on_unchecked_constraints(log: DeltaLog) -> None:
    request = WriteRequest("append", from_arrow(pa.schema({"id": pa.int64()})))
    plan = plan_write(log, request)
    written = [write_files(log.store, plan.files, pa.table({"id": [-1]}).to_batches(), tasks=1)]
    trilake.create(PLACE, {"id": "long"})
    trilake.alter(PLACE).add_constraint("positive", "id > 0")
    with pytest.raises(MetadataChangedError):
        finish_write(log, plan, written)
    assert (ids(), data_files(log)) == ([], 0)


def test_write_with_txn_is_applied_once(log: DeltaLog) -> None:
    rows = pa.table({"id": [1]})
    plan = plan_write(log, WriteRequest("append", from_arrow(rows.schema), txn=("job", 1)))
    written = [write_files(log.store, plan.files, rows.to_batches(), tasks=1)]
    trilake.write(rows, PLACE, txn=("job", 1))
    assert (finish_write(log, plan, written).version, ids(), data_files(log)) == (0, [1], 1)
