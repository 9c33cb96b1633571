"""Statistics of several columns are read at once and equal those of each column alone."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import opened
from trilake.delta.commands.maintenance.analyze import compute_statistics
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.scan import statistics
from trilake.delta.scan.scan import plan_scan
from trilake.delta.scan.statistics import StatisticsReader
from trilake.delta.table import ArrowDeltaTable
from trilake.expr.terms.engine import query

_MANY = 12


@pytest.fixture
def table(tmp_path: Path) -> ArrowDeltaTable:
    """A table of two files with columns of many types: some nested, one without bounds, one partition column."""
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    rows = pa.table(
        {
            "n": pa.array([1, None], pa.int32()),
            "x": [0.5, float("nan")],
            "d": [Decimal("1.50"), None],
            "t": [moment, moment],
            "b": [True, None],
            "s": [{"i": 3, "in": {"text": "a b"}}, None],
            "odd'name": ["v", "w"],
            "l": [[1], None],
            "p": ["q", "r"],
            **{f"c{i}": [i, None] for i in range(_MANY)},
        }
    )
    trilake.write(rows, tmp_path, partition_by="p")
    return opened(tmp_path)


def _parses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    real = statistics.parsed

    def counted(*args: Any) -> pa.Table:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(statistics, "parsed", counted)
    return calls


def test_columns_read_together_match_single_reads(table: ArrowDeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = table.snapshot
    paths = [(f.name,) for f in snapshot.schema.fields if f.name != "s"] + [("s", "i"), ("s", "in", "text")]
    alone = StatisticsReader(snapshot.adds, snapshot.schema, ("p",), query)
    expected = {path: alone.column(path) for path in paths}
    calls = _parses(monkeypatch)
    together = StatisticsReader(snapshot.adds, snapshot.schema, ("p",), query)
    together.read(paths)
    for path, stats in expected.items():
        result = together.column(path)
        assert (stats is None) == (result is None), path
        if stats is not None and result is not None:
            for f in dataclasses.fields(stats):
                a, b = getattr(stats, f.name), getattr(result, f.name)
                assert (a.to_pylist() if hasattr(a, "to_pylist") else a) == (
                    b.to_pylist() if hasattr(b, "to_pylist") else b
                ), (path, f.name)
    assert together.record_counts().to_pylist() == [1, 1]
    assert len(calls) == 1
    assert expected[("l",)] is None
    bounds = expected[("s", "in", "text")]
    assert bounds is not None
    assert bounds.min is not None
    assert bounds.min.to_pylist() == ["a b", None]


def test_analyze_parses_statistics_once(table: ArrowDeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    compute_statistics(table.log)
    calls = _parses(monkeypatch)
    assert compute_statistics(table.log).num_files == 0
    assert len(calls) == 1


def test_plan_parses_statistics_once(table: ArrowDeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _parses(monkeypatch)
    assert plan_scan(table.snapshot, None, "c0 = 0 AND (c1 < 1 OR s.i > 2) AND p = 'q'").files.num_rows == 1
    assert len(calls) == 1


ODD = ["a/b", "a~1b", "a.b", 'a"b', "a'b", "0", "*", "é", " "]


@pytest.mark.parametrize("few", [0, 300])
def test_columns_of_any_name_are_found_in_partly_invalid_json(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_FEW", few)
    schema = StructType(tuple(StructField(name, PrimitiveType("long")) for name in ODD))
    bounds = {name: i for i, name in enumerate(ODD)}
    whole = json.dumps({"numRecords": 3, "minValues": bounds, "maxValues": bounds, "nullCount": bounds})
    strings = [whole, None, "", whole + "x", '{"numRecords":-1,"minValues":{"0":{"0":1}},"maxValues":[7]}', "[1]"]
    for some in (strings, strings[:2]):  # with and without a string that is not JSON
        adds = pa.table({"stats": pa.array(some, pa.string()), "path": [str(i) for i in range(len(some))]})
        reader = StatisticsReader(adds, schema, (), query)
        nothing = [None] * (len(some) - 1)
        assert reader.record_counts().to_pylist() == [3, *nothing]
        for i, name in enumerate(ODD):
            stats = reader.column((name,))
            assert stats is not None
            assert stats.min is not None
            assert stats.null_count is not None
            assert stats.min.to_pylist() == [i, *nothing], name
            assert stats.null_count.to_pylist() == [i, *nothing]
