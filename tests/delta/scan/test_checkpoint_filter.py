"""Typed statistics in a checkpoint skip row groups that a filter does not need, and change nothing else."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import add, log_of, metadata, protocol, remove
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log import checkpoint_parts
from trilake.delta.log.checkpoint_writer import PART_SIZE, write_checkpoint
from trilake.delta.log.segment import checkpoint_key
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import CorruptLogError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore

STRUCT = {"delta.checkpoint.writeStatsAsStruct": "true"}
NO_TEXT = {"delta.checkpoint.writeStatsAsJson": "false"}
PARTED = {PART_SIZE: "16"}
V2 = {"delta.checkpointPolicy": "v2", PART_SIZE: "16"}
FILES, OF_A_GROUP = 40, 4


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every checkpoint as large and write row groups of four files."""
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)
    monkeypatch.setattr(checkpoint_parts, "SLICE_ROWS", OF_A_GROUP)


class Reads:
    """Reads of Parquet files as pairs of row group and column."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chunks: list[tuple[int, str]] = []
        iterate = pq.ParquetFile.iter_batches

        def watched(file: Any, *args: Any, **how: Any) -> Any:
            self.chunks += [(g, c) for g in how["row_groups"] for c in how["columns"]]
            return iterate(file, *args, **how)

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)

    def groups(self, column: str) -> int:
        """Return the number of row groups read of a column."""
        return sum(1 for _, c in self.chunks if c == column)


def _stats(low: Any, high: Any, *, nulls: int = 0, records: int = 10) -> str:
    stats = {"numRecords": records, "minValues": {"a": low}, "maxValues": {"a": high}, "nullCount": {"a": nulls}}
    return json.dumps(stats)


def _store(*actions: dict[str, Any], type_: str = "long", **configuration: str) -> Store:
    """Return a table whose only commit adds files, with its checkpoint."""
    v2 = "delta.checkpointPolicy" in configuration
    features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    first = protocol(3, 7, **features) if v2 else protocol()
    field = {"name": "a", "type": type_, "nullable": True, "metadata": {}}
    data = metadata(json.dumps({"type": "struct", "fields": [field]}), **{**STRUCT, **configuration})
    log = log_of([first, data, *actions], store=MemoryStore())
    write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
    return log.store


def _ascending(**configuration: str) -> Store:
    """Return files with the values 10 n to 10 n + 9 in the n-th."""
    files = (add(f"f{i}", stats=_stats(10 * i, 10 * i + 9)) for i in range(FILES))
    return _store(*files, **configuration)


def _open(store: Store) -> ArrowDeltaTable:
    return ArrowDeltaTable(store, standard_engine())


def _matching_files(store: Store, filter: str) -> list[str]:
    """Return the files that a filter needs; check that they equal those of the whole list."""
    result = sorted(_open(store).files(filter)["path"].to_pylist())
    whole = _open(store)
    assert whole.snapshot.adds.num_rows
    assert sorted(whole.files(filter)["path"].to_pylist()) == result, filter
    return result


# --- row groups that are read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [{}, NO_TEXT, PARTED, V2, {**V2, **NO_TEXT}], ids=lambda d: ",".join(d) or "plain")
def test_point_lookup_reads_one_row_group(layout: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = _ascending(**layout)
    parts = 3 if PART_SIZE in layout else 1  # files are spread over parts by a hash, in their order within each
    reads = Reads(monkeypatch)
    assert _open(store).files("a = 234")["path"].to_pylist() == ["f23"]
    assert reads.groups("add.path") == 1
    assert reads.groups("add.stats_parsed.minValues.a") <= parts
    assert reads.groups("add.stats") <= 1
    reads.chunks.clear()
    assert _open(store).files("a = 1000").num_rows == 0
    assert {c for _, c in reads.chunks if c.startswith("add")} == set()


def test_all_row_groups_are_read_without_typed_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _ascending(**{"delta.checkpoint.writeStatsAsStruct": "false"})
    reads = Reads(monkeypatch)
    assert _open(store).files("a = 234")["path"].to_pylist() == ["f23"]
    assert reads.groups("add.path") == FILES // OF_A_GROUP


def test_row_group_without_matches_is_read_partially(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = [i * 7 % FILES for i in range(FILES)]  # each group has low and high values
    store = _store(*(add(f"f{i}", stats=_stats(10 * i, 10 * i + 9)) for i in order))
    reads = Reads(monkeypatch)
    assert _open(store).files("a = 234")["path"].to_pylist() == ["f23"]
    assert reads.groups("add.stats_parsed.minValues.a") > 2
    assert reads.groups("add.path") == 1


def test_row_groups_without_parquet_statistics_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _ascending()
    key = checkpoint_key(0)
    table = pq.read_table(pa.BufferReader(store.read(key)))
    for statistics in (False, ["add.size"]):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=OF_A_GROUP, write_statistics=statistics)
        store.put(key, sink.getvalue())
        store.delete(["_delta_log/_last_checkpoint"])
        reads = Reads(monkeypatch)
        assert _matching_files(store, "a = 234") == ["f23"]
        assert reads.groups("add.path") >= FILES // OF_A_GROUP


# --- files that match ------------------------------------------------------------------------------------------------


def test_files_without_statistics_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [add(f"f{i}", stats=_stats(10 * i, 10 * i + 9)) for i in range(FILES)]
    files[9], files[30] = add("none"), add("half", stats='{"numRecords":3,"minValues":{"a":1000}}')
    store = _store(*files)
    assert _matching_files(store, "a = 234") == ["f23", "none"]
    assert _matching_files(store, "a > 390") == ["f39", "half", "none"]
    assert _matching_files(store, "a < 5") == ["f0", "none"]


def test_nulls_are_distinguished_from_values() -> None:
    def of(i: int) -> str:
        group = i // OF_A_GROUP
        if group == 1:
            return json.dumps({"numRecords": 10, "nullCount": {"a": 10}})  # only nulls
        if group == 3:
            return json.dumps({"numRecords": 10 + i, "nullCount": {"a": 10}})  # bounds are unknown
        return _stats(i, i, nulls=int(group == 2 and i % 2))

    store = _store(*(add(f"f{i}", stats=of(i)) for i in range(24)))
    nulls = [f"f{i}" for i in (4, 5, 6, 7, 9, 11, 12, 13, 14, 15)]
    assert _matching_files(store, "a is null") == sorted(nulls)
    values = [f"f{i}" for i in range(24) if i // OF_A_GROUP != 1]
    assert _matching_files(store, "a is not null") == sorted(values)
    assert _matching_files(store, "not (a <=> 2)") == sorted(f"f{i}" for i in range(24) if i != 2)


def test_empty_files_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(i: int) -> str:
        return json.dumps({"numRecords": 0 if 4 <= i < 10 else 5})

    store = _store(*(add(f"f{i}", stats=of(i)) for i in range(12)))
    reads = Reads(monkeypatch)
    assert sorted(_open(store).files("a = 1")["path"].to_pylist()) == ["f0", "f1", "f10", "f11", "f2", "f3"]
    assert reads.groups("add.path") == 2


UTC = dt.UTC
BOUNDS: dict[str, tuple[Callable[[int], Any], list[str]]] = {
    "byte": (lambda i: i - 20, ["a = 3", "a <= -19", "a > 18", "a in (0, 5)", "a = 3.5"]),
    "integer": (lambda i: i * 1000, ["a = 5000", "a between 7000 and 9000", "a <> 0"]),
    "double": (
        lambda i: i / 4,
        ["a = 2.5", "a > 9.5", "a < 0.25", "a <> 1", "not (a < 9)", "a > cast('NaN' as double)"],
    ),
    "float": (lambda i: i / 10, ["a = 2.5", "a > 3.8", "a <= 0.1", "a = 0.3"]),
    "decimal(10,2)": (lambda i: i + 0.25, ["a = 3.25", "a > 38.5", "a < 1"]),
    "decimal(30,5)": (lambda i: 10**7 * i, ["a = 30000000", "a > 380000000", "a < 1"]),
    "string": (lambda i: f"{i:03d}" + "x" * 40, ["a = '005'", "a like '017%'", "a > '038'", "a < '001z'"]),
    "date": (lambda i: str(dt.date(2024, 1, 1) + dt.timedelta(i)), ["a = date'2024-01-05'", "a > '2024-02-08'"]),
    "timestamp": (
        lambda i: f"2024-01-01T{i // 4:02d}:{i % 4 * 15:02d}:00.000Z",
        ["a = timestamp'2024-01-01 05:15:00Z'", "a > timestamp'2024-01-01 09:30:00Z'", "a < '2024-01-01'"],
    ),
    "timestamp_ntz": (
        lambda i: f"2024-01-01T{i // 4:02d}:{i % 4 * 15:02d}:00.000",
        ["a = timestamp_ntz'2024-01-01 05:15:00'", "a >= timestamp_ntz'2024-01-01 09:30:00'"],
    ),
    "boolean": (lambda i: None, ["a", "not a", "a is null"]),
    "binary": (lambda i: None, ["a = X'00'", "a is not null"]),
}


@pytest.mark.parametrize("type_", BOUNDS)
@pytest.mark.parametrize("text", [{}, NO_TEXT], ids=["text", "no text"])
def test_typed_bounds_match_json_bounds(type_: str, text: dict[str, str]) -> None:
    value, filters = BOUNDS[type_]
    files = []
    for i in range(FILES):
        bounds = (value(i), value(i))
        stats = {"numRecords": 2, "nullCount": {"a": 2 * (i % 5 == 4)}}
        if bounds[0] is not None and i % 5 != 4:
            stats |= {"minValues": {"a": bounds[0]}, "maxValues": {"a": bounds[1]}}
        files.append(add(f"f{i:02d}", stats=json.dumps(stats)))
    store = _store(*files, type_=type_, **text)
    for filter in filters:
        _matching_files(store, filter)


def test_lookup_in_each_type_skips_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for type_, (value, filters) in BOUNDS.items():
        if type_ in ("double", "float", "boolean", "binary"):  # not covered by the bounds of a row group
            continue
        store = _store(*(add(f"f{i}", stats=_stats(value(i), value(i))) for i in range(FILES)), type_=type_)
        reads = Reads(monkeypatch)
        assert _open(store).files(filters[0]).num_rows == (type_ != "string"), type_
        assert reads.groups("add.stats_parsed.minValues.a") <= 1, type_


def _rewritten(store: Store, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Rewrite the checkpoint like another writer."""
    key = checkpoint_key(0)
    table = pq.read_table(pa.BufferReader(store.read(key)))
    rows = table.to_pylist()
    change(rows)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, table.schema), sink, row_group_size=OF_A_GROUP)
    store.put(key, sink.getvalue())
    store.delete(["_delta_log/_last_checkpoint"])


def test_nan_bound_skips_no_file() -> None:
    """Parquet omits NaN from the bounds of a row group, so the bounds do not cover a file with a NaN bound."""
    store = _store(*(add(f"f{i}", stats=_stats(i, i)) for i in range(8)), type_="double", **NO_TEXT)

    def with_nan(rows: list[dict[str, Any]]) -> None:
        parsed = next(r["add"]["stats_parsed"] for r in rows if r["add"] and r["add"]["path"] == "f2")
        parsed["minValues"]["a"] = parsed["maxValues"]["a"] = float("nan")

    _rewritten(store, with_nan)
    assert sorted(_open(store).files("a < -1")["path"].to_pylist()) == ["f2"]
    assert "f2" in _open(store).files("a > 100")["path"].to_pylist()


def test_statistics_only_in_json_are_used() -> None:
    store = _store(*(add(f"f{i}", stats=_stats(i, i)) for i in range(12)))

    def without(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["add"] and row["add"]["path"] in ("f1", "f5", "f6", "f7", "f8"):
                row["add"]["stats_parsed"] = None

    _rewritten(store, without)
    for i in range(12):
        assert _matching_files(store, f"a = {i}") == [f"f{i}"]


@pytest.mark.parametrize("mode", ["none", "name"])
def test_nested_renamed_and_partition_columns_skip(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"memory://checkpoint-filter-{mode}"
    store = open_store(uri)
    store.delete([m.key for m in store.list()])
    properties = {**STRUCT, "delta.columnMapping.mode": mode, "delta.checkpointInterval": "1000"}
    for i in range(16):  # one file per row
        day = dt.datetime(2024, 1, 1 + i, tzinfo=UTC)
        rows = pa.table(
            {
                "s": pa.array([{"x.y": i, "z": {"t": f"t{i:02d}"}}] * 2),
                "n": pa.array([i // 4, None if i == 9 else i // 4], pa.int32()),
                "p": ["", None] if i == 3 else [f"p{i // 4}"] * 2,
                "d": pa.array([day.date()] * 2),
                "t": pa.array([day] * 2, pa.timestamp("us", "UTC")),
            }
        )
        parted = ["n", "p", "d", "t"]
        trilake.write(rows, uri, mode="append", partition_by=parted, properties=properties if i == 0 else None)
    if mode == "name":
        Alter(_open(store).log).rename_column("s.z.t", "u v")
        Alter(_open(store).log).rename_column("d", "a day")
    log = _open(store).log
    write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
    for filter in (
        "s.`x.y` = 3",
        "s.z.t = 't11'",
        "s.z.t > 't13' and n = 3",
        "n = 2",
        "n is null",
        "n <> 1",
        "p = 'p2'",
        "p is null",
        "p is not null",
        "p < 'p1'",
        "d = date'2024-01-03'",
        "d > date'2024-01-12' or n = 0",
        "t = timestamp'2024-01-05 00:00:00Z'",
        "t < timestamp'2024-01-02 00:00:00Z' and n < 3",
    ):
        if mode == "name":
            filter = filter.replace("s.z.t", "s.z.`u v`").replace("d =", "`a day` =").replace("d >", "`a day` >")
        _matching_files(store, filter)
        lazy, whole = _open(store), _open(store)
        assert whole.snapshot.adds.num_rows
        assert sorted(map(str, lazy.to_arrow(filter=filter).to_pylist())) == sorted(
            map(str, whole.to_arrow(filter=filter).to_pylist())
        ), filter
    reads = Reads(monkeypatch)
    assert _open(store).files("n = 3").num_rows == 4
    assert reads.groups("add.path") < 4


# --- later commits and damage ----------------------------------------------------------------------------------------


def test_later_commits_override_the_checkpoint() -> None:
    store = _ascending()
    later = ([remove("f23")], [add("f23", stats=_stats(5, 5))], [add("f9", stats=_stats(234, 234))], [add("g")])
    for version, actions in enumerate(later, 1):
        log_of(actions, store=store, start=version)
    assert _matching_files(store, "a = 234") == ["f9", "g"]
    assert _matching_files(store, "a = 5") == ["f0", "f23", "g"]
    assert _matching_files(store, "a = 95") == ["g"]


def test_vector_of_a_later_commit_is_used() -> None:
    store = _ascending()
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 1, "cardinality": 1}
    log_of([remove("f23"), add("f23", stats=_stats(230, 239), deletionVector=vector)], store=store, start=1)
    result = _open(store).files("a = 234")
    assert result["path"].to_pylist() == ["f23"]
    assert result["deletion_vector"][0].as_py() is not None


@pytest.mark.parametrize("layout", [{}, PARTED, V2], ids=["plain", "parts", "sidecars"])
def test_checkpoint_with_lost_files_is_not_used(layout: dict[str, str]) -> None:
    store = _ascending(**layout)
    folder = "_delta_log/_sidecars" if layout is V2 else "_delta_log"
    keys = [m.key for m in store.list(folder) if m.key.endswith(".parquet")]
    table = pq.read_table(pa.BufferReader(store.read(keys[0])))
    sink = pa.BufferOutputStream()
    pq.write_table(table.slice(0, table.num_rows - 1), sink, row_group_size=OF_A_GROUP)
    store.put(keys[0], sink.getvalue())
    commits = [m.key for m in store.list("_delta_log") if re.search(r"/\d{20}\.json$", m.key)]
    expected = [f"f{n}" for n in range(FILES) if 10 * n <= 234 <= 10 * n + 9]
    assert _open(store).files("a = 234")["path"].to_pylist() == expected  # the commits replace it
    store.delete(commits)
    for filter in ("a = 234", "a = 5000"):
        with pytest.raises(CorruptLogError):
            _open(store).files(filter)
