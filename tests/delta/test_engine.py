"""``Engine``: a log without an engine raises where it needs one; plans carry what their tasks need."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import add, lines, metadata, protocol, write
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import plan_write, write_arrow
from trilake.delta.engine import Engine
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.scan.data_files import read_data_file
from trilake.delta.scan.scan import plan_scan
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.expr.terms.engine import query
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

ROWS = pa.table({"n": [1, 2]})
REQUEST = WriteRequest("append", from_arrow(ROWS.schema))


def test_log_without_engine_reads_but_cannot_commit() -> None:
    trilake.write(ROWS, "memory://engine-none", mode="overwrite")
    log = DeltaLog(open_store("memory://engine-none"))
    assert log.snapshot().adds.num_rows == 1
    with pytest.raises(InvalidArgumentError, match="without an engine that commits"):
        write_arrow(log, ROWS.schema, ROWS.to_batches(), REQUEST)
    assert log.snapshot().version == 0


def test_log_without_engine_rejects_other_data_formats() -> None:
    store = MemoryStore()
    action = metadata()
    action["metaData"]["format"]["provider"] = "lance"
    store.put_if_absent("_delta_log/00000000000000000000.json", lines([protocol(), action, add("x")]))
    plan = plan_scan(DeltaLog(store).snapshot())
    with pytest.raises(UnsupportedProtocolError, match="'lance'"):
        next(iter(read_data_file(store, "x", plan.plan, threads=False)))
    with pytest.raises(InvalidArgumentError, match="is not supported for writing"):
        plan_write(DeltaLog(store), WriteRequest("append", from_arrow(pa.schema([("a", pa.int64())]))))


def test_pickled_plans_have_formats_but_no_hooks() -> None:
    trilake.write(ROWS, "memory://engine-plan", mode="overwrite")
    log = DeltaLog(open_store("memory://engine-plan"), standard_engine())
    plan = plan_write(log, REQUEST).to_travel()
    arrived = pickle.loads(pickle.dumps(plan))
    assert [f.name for f in arrived.files.engine.formats] == ["lance", "trevni"]
    assert arrived.files.engine.hooks is None, "a task never commits"


def test_hooks_run_in_order() -> None:
    seen: list[str] = []
    hooks = (lambda e: seen.append(f"first {e.version}"), lambda e: seen.append(f"second {e.plan.operation}"))
    write_arrow(DeltaLog(MemoryStore(), Engine((), hooks)), ROWS.schema, ROWS.to_batches(), REQUEST)
    assert seen == ["first 0", "second WRITE"]


def test_log_uses_the_query_of_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def spied(sql: str, **tables: pa.Table) -> pa.Table:
        seen.append(sql)
        return query(sql, **tables)

    trilake.write({"n": [1]}, tmp_path / "t")
    monkeypatch.setattr("trilake.delta.protocol.actions._FEW_LINES", 0)
    monkeypatch.setattr("trilake.delta.scan.statistics._FEW", 0)
    log = DeltaLog(open_store(tmp_path / "t"), replace(standard_engine(), query=spied))
    snapshot = log.snapshot()
    assert snapshot.adds.num_rows == 1
    assert len(seen) == 1
    assert plan_scan(snapshot, filter="n = 2").files.num_rows == 0
    assert len(seen) == 2


def test_rules_use_the_query_of_the_engine(tmp_path: Path) -> None:
    seen: list[str] = []

    def spied(sql: str, **tables: pa.Table) -> pa.Table:
        seen.append(sql)
        return query(sql, **tables)

    rows = pa.table({"s": [{"m": 1}], "same": [{"m": 1}]})
    trilake.create(tmp_path, rows.schema, generated={"same": "s"})
    log = DeltaLog(open_store(tmp_path), replace(standard_engine(), query=spied))
    write(log, rows)
    assert [sql for sql in seen if "DISTINCT" in sql] != []


def test_no_delta_module_imports_the_global_evaluator() -> None:
    """Modules get the evaluator as a parameter, from the engine of their log."""
    root = Path(trilake.__file__).parent / "delta"
    sources = sorted({*root.rglob("*.py")} - {root / "engine.py"})
    assert len(sources) > 150
    pattern = re.compile(r"terms\.engine import [^\n]*\bquery\b|terms import [^\n]*\bengine\b|terms\.engine\.query\b")
    assert [str(path.relative_to(root)) for path in sources if pattern.search(path.read_text())] == []
