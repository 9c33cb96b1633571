"""Multi-part and v2 checkpoints, and statistics as structs: written, read back, and read by other libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.delta.tables import VECTOR, add, fixed_runtime, log_of, metadata, protocol, remove, rows
from tests.runtimes import runtime_in_ms
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log import checkpoint_parts
from trilake.delta.log.checkpoint_writer import PART_SIZE, TOP_LEVEL_FORMAT, owners, write_checkpoint
from trilake.delta.log.last_checkpoint import checksum
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LAST_CHECKPOINT, SIDECARS, checkpoint_key, commit_key
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.scan.statistics import StatisticsReader
from trilake.delta.standard import standard_engine
from trilake.errors import InvalidArgumentError
from trilake.expr.terms.engine import query
from trilake.storage import open_store

KEEP_ALL = runtime_in_ms(lambda: 0)
V2_PROTOCOL = protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=["v2Checkpoint", "domainMetadata"])


def _history(first: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [
        [*first, *(add(f"f{i}", size=i, partitionValues={"p": str(i % 3)}) for i in range(20))],
        [remove("f1", deletionTimestamp=5), remove("f2"), {"txn": {"appId": "app", "version": 7}}],
        [remove("f3"), add("f3", deletionVector=VECTOR), add("a%20b", stats='{"numRecords":3}', tags={"k": "v"})],
        [{"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}],
    ]


def _same(a: Snapshot, b: Snapshot, log: DeltaLog, other: DeltaLog) -> None:
    assert rows(a.adds.drop_columns(["dataChange"])) == rows(b.adds.drop_columns(["dataChange"]))
    assert (a.protocol, a.metadata) == (b.protocol, b.metadata)
    assert {k: v["version"] for k, v in a.state.txns.items()} == {k: v["version"] for k, v in b.state.txns.items()}
    assert a.state.domains.keys() == b.state.domains.keys()
    assert sorted(log.tombstones(a)["path"].to_pylist()) == sorted(other.tombstones(b)["path"].to_pylist())


def _log_files(log: DeltaLog) -> list[str]:
    return [o.key.removeprefix("_delta_log/") for o in log.store.list("_delta_log")]


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("part_size", "parts"), [(1000, 1), (12, 2), (5, 5), (1, 22)])
def test_parts_contain_the_whole_state(part_size: int, parts: int) -> None:
    history = _history([protocol(1, 7, writerFeatures=["domainMetadata"]), metadata()])
    log = log_of(*history)
    write_checkpoint(log, log.snapshot(), KEEP_ALL, part_size=part_size)
    log.store.delete([commit_key(v) for v in range(4)])
    snapshot = log.snapshot()
    assert len(snapshot.segment.checkpoint_files) == parts
    other = log_of(*history)
    _same(snapshot, other.snapshot(), log, other)
    hint = json.loads(bytes(log.store.read(LAST_CHECKPOINT)))
    assert hint.get("parts") == (parts if parts > 1 else None)
    tables = [pq.read_table(log.store.open_input(f.key)) for f in snapshot.segment.checkpoint_files]
    assert hint["size"] == sum(t.num_rows for t in tables)
    assert hint["sizeInBytes"] == sum(f.size for f in snapshot.segment.checkpoint_files)
    assert hint["checksum"] == checksum(hint)
    # Actions without a path are in the first part.
    assert all(t["metaData"].null_count == t.num_rows for t in tables[1:])


def test_part_size_is_a_property() -> None:
    log = log_of([metadata(**{PART_SIZE: "2"}), add("a"), add("b"), add("c")])
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    assert len(log.snapshot().segment.checkpoint_files) == 2


@pytest.mark.parametrize("size", ["0", "-1", "many", "1.5", ""])
def test_invalid_part_size_is_rejected(size: str) -> None:
    log = log_of([metadata(**{PART_SIZE: size}), add("a")])
    with pytest.raises(InvalidArgumentError, match="number of actions above 0"):
        write_checkpoint(log, log.snapshot(), KEEP_ALL)


@settings(max_examples=25, deadline=None)
@given(st.sets(st.text(min_size=1, max_size=6), max_size=30), st.integers(1, 7))
def test_part_depends_only_on_the_path(paths: set[str], parts: int) -> None:
    log = log_of([add(p.replace("%", "%25")) for p in sorted(paths)])
    adds = log.snapshot().adds
    owner = dict(zip(adds["path"].to_pylist(), owners(adds, parts, query).tolist(), strict=True))
    assert set(owner.values()) <= set(range(parts))
    backwards = adds.take(pa.array(reversed(range(adds.num_rows)), pa.int64()))
    assert dict(zip(backwards["path"].to_pylist(), owners(backwards, parts, query).tolist(), strict=True)) == owner


def test_tombstone_is_in_the_part_of_its_file() -> None:
    log = log_of([remove(f"f{i}") for i in range(9)], [add(f"f{i}", deletionVector=VECTOR) for i in range(9)])
    write_checkpoint(log, log.snapshot(), KEEP_ALL, part_size=6)
    parts = [pq.read_table(log.store.open_input(f.key)) for f in log.snapshot().segment.checkpoint_files]
    assert len(parts) == 3
    for part in parts:
        added, removed = (
            {a["path"] for a in part[kind].to_pylist() if a is not None and a["path"] is not None}
            for kind in ("add", "remove")
        )
        assert added == removed


def test_checkpoint_with_many_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_parts, "SLICE_ROWS", 3)
    monkeypatch.setattr(checkpoint_parts, "_AT_ONCE_ROWS", 4)
    history = _history([protocol(1, 7, writerFeatures=["domainMetadata"]), metadata()])
    log, other = log_of(*history), log_of(*history)
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    log.store.delete([commit_key(v) for v in range(4)])
    snapshot = log.snapshot()
    file = snapshot.segment.checkpoint_files[0]
    assert (
        pq.read_metadata(log.store.open_input(file.key)).num_row_groups == 1 + 7 + 2
    )  # other actions, 19 adds, 4 tombstones
    assert json.loads(bytes(log.store.read(LAST_CHECKPOINT)))["sizeInBytes"] == file.size
    _same(snapshot, other.snapshot(), log, other)


@pytest.mark.parametrize(("at_once", "parts"), [(0, 1), (1 << 20, 1), (1 << 20, 2)])
def test_existing_checkpoint_is_not_replaced(monkeypatch: pytest.MonkeyPatch, at_once: int, parts: int) -> None:
    """Readers that listed the log know its size and read it in pieces: new bytes would look like damage."""
    monkeypatch.setattr(checkpoint_parts, "_AT_ONCE_ROWS", at_once)
    history = [protocol(), metadata(), *(add(n) for n in "abcdef")], [remove("a", deletionTimestamp=1)]
    log = log_of(*history)
    snapshot = log.snapshot()

    def files() -> dict[str, bytes]:
        return {m.key: log.store.read(m.key).to_pybytes() for m in log.store.list() if m.key.endswith(".parquet")}

    def write(now_ms: int, **how: Any) -> None:
        write_checkpoint(log, snapshot, runtime_in_ms(lambda: now_ms), part_size=5 // parts + 1, **how)

    write(2)
    first = files()
    assert len(first) == parts
    log.store.delete([LAST_CHECKPOINT])
    # Another process writes it too, after a tombstone has expired.
    write(10**12)
    assert files() == first
    hint = json.loads(log.store.read(LAST_CHECKPOINT).to_pybytes())
    assert hint["sizeInBytes"] == sum(map(len, first.values()))
    write(10**12, replace=True)
    assert files() != first


def test_unreadable_checkpoint_is_replaced() -> None:
    log = log_of([protocol(), metadata(), add("a")])
    snapshot, key = log.snapshot(), checkpoint_key(0)
    log.store.put(key, b"PAR1 half of it")
    write_checkpoint(log, snapshot, KEEP_ALL)
    assert log.snapshot().segment.checkpoint_files[0].key == key
    assert log.snapshot().adds.num_rows == 1


def test_hint_never_moves_back() -> None:
    log = log_of([add("a")], [add("b")], [add("c")])
    for version, points_at in ((1, 1), (2, 2), (0, 2)):
        write_checkpoint(log, log.snapshot(version), KEEP_ALL)
        assert getattr(log.hint(), "version", None) == points_at
    log.store.put(LAST_CHECKPOINT, b'{"version":77,"size":1}')  # a hint to a missing checkpoint
    write_checkpoint(log, log.snapshot(1), KEEP_ALL)
    assert getattr(log.hint(), "version", None) == 1


# --- version 2 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["json", "parquet"])
@pytest.mark.parametrize(("part_size", "sidecars"), [(1000, 1), (8, 4)])
def test_v2_checkpoint_round_trips(extension: str, part_size: int, sidecars: int) -> None:
    conf = {"delta.checkpointPolicy": "v2", TOP_LEVEL_FORMAT: extension}
    history = _history([V2_PROTOCOL, metadata(**conf)])
    log, other = log_of(*history), log_of(*history)
    write_checkpoint(log, log.snapshot(), fixed_runtime(0), part_size=part_size)
    log.store.delete([commit_key(v) for v in range(4)])
    assert log.head().metadata == other.head().metadata
    snapshot = log.snapshot()
    (top,) = snapshot.segment.checkpoint_files
    assert top.key.endswith(f".{extension}")
    result = list(log.store.list(SIDECARS))
    assert len(result) == sidecars
    for o in result:
        assert pq.read_schema(log.store.open_input(o.key)).names == ["add", "remove"]
    _same(snapshot, other.snapshot(), log, other)
    hint = json.loads(bytes(log.store.read(LAST_CHECKPOINT)))
    assert hint["checksum"] == checksum(hint)
    assert hint["sizeInBytes"] == top.size + sum(o.size for o in result)
    assert hint["size"] == snapshot.adds.num_rows + 3 + sidecars + 5
    pointer = hint["v2Checkpoint"]
    assert (pointer["path"], pointer["sizeInBytes"]) == (top.key.rpartition("/")[2], top.size)
    assert {s["path"] for s in pointer["sidecarFiles"]} == {o.key.rpartition("/")[2] for o in result}


def test_v2_checkpoint_without_files_has_no_sidecars() -> None:
    log = log_of([V2_PROTOCOL, metadata(**{"delta.checkpointPolicy": "v2"})])
    write_checkpoint(log, log.snapshot(), fixed_runtime())
    assert not list(log.store.list(SIDECARS))
    log.store.delete([commit_key(0)])
    assert log.snapshot().adds.num_rows == 0


def test_v2_checkpoint_needs_feature_and_policy() -> None:
    for first in ([metadata(**{"delta.checkpointPolicy": "v2"})], [V2_PROTOCOL, metadata()]):
        log = log_of([*first, add("a")])
        write_checkpoint(log, log.snapshot(), fixed_runtime())
        assert _log_files(log)[0] == f"{0:020d}.checkpoint.parquet"


def test_invalid_top_level_format_is_rejected() -> None:
    log = log_of([V2_PROTOCOL, metadata(**{"delta.checkpointPolicy": "v2", TOP_LEVEL_FORMAT: "avro"})])
    with pytest.raises(InvalidArgumentError, match="parquet or json"):
        write_checkpoint(log, log.snapshot(), fixed_runtime())


# --- statistics as structs -------------------------------------------------------------------------------------------

_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long", "nullable": True, "metadata": {"delta.columnMapping.physicalName": "c-1"}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {"delta.columnMapping.physicalName": "c-2"}},
            {"name": "p", "type": "integer", "nullable": True, "metadata": {"delta.columnMapping.physicalName": "c-3"}},
        ],
    }
)


def _with_statistics(**conf: str) -> DeltaLog:
    stats = {"numRecords": 9, "minValues": {"c-1": 1, "c-2": "2024-01-02"}, "maxValues": {"c-1": 5}, "nullCount": {}}
    mapped = protocol(2, 5)
    meta = metadata(_SCHEMA, ["p"], **{"delta.columnMapping.mode": "name", **conf})
    one = add("x", stats=json.dumps(stats), partitionValues={"c-3": "7"})
    return log_of([mapped, meta, one, add("y", partitionValues={"c-3": None})])


def _checkpoint_add(log: DeltaLog) -> pa.ChunkedArray:
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    return pq.read_table(log.store.open_input(f"_delta_log/{0:020d}.checkpoint.parquet"))["add"].drop_null()


@pytest.mark.parametrize("as_json", ["true", "false"])
@pytest.mark.parametrize("as_struct", ["true", "false"])
def test_statistics_columns_follow_properties(as_json: str, as_struct: str) -> None:
    conf = {"delta.checkpoint.writeStatsAsJson": as_json, "delta.checkpoint.writeStatsAsStruct": as_struct}
    log = _with_statistics(**conf)
    column = _checkpoint_add(log)
    names = set(column.type.names)
    assert ("stats" in names) == (as_json == "true")
    assert ("stats_parsed" in names) == ("partitionValues_parsed" in names) == (as_struct == "true")
    log.store.delete([commit_key(0)])
    snapshot = log.snapshot()
    result = StatisticsReader(snapshot.adds, snapshot.schema, snapshot.metadata.partition_columns, query).column(("a",))
    assert result is not None
    kept = "true" in (as_json, as_struct)
    assert result.min is not None
    assert dict(zip(snapshot.adds["path"].to_pylist(), result.min.to_pylist(), strict=True)) == {
        "x": 1 if kept else None,
        "y": None,
    }
    if as_struct == "true":
        x, y = sorted(column.to_pylist(), key=lambda a: a["path"])
        assert x["stats_parsed"]["minValues"]["c-1"] == 1
        assert str(x["stats_parsed"]["minValues"]["c-2"]) == "2024-01-02"
        assert (x["partitionValues_parsed"], y["partitionValues_parsed"]) == ({"c-3": 7}, {"c-3": None})
        assert y["stats_parsed"] is None
        assert column.type.field("partitionValues_parsed").type == pa.struct([("c-3", pa.int32())])


def test_hint_describes_the_columns() -> None:
    log = _with_statistics(**{"delta.checkpoint.writeStatsAsStruct": "true"})
    column = _checkpoint_add(log)
    described = json.loads(bytes(log.store.read(LAST_CHECKPOINT)))["checkpointSchema"]
    (of_add,) = (f for f in described["fields"] if f["name"] == "add")
    assert [f["name"] for f in of_add["type"]["fields"]] == column.type.names


# --- other readers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "conf",
    [
        {PART_SIZE: "3"},
        {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
        {"delta.checkpoint.writeStatsAsStruct": "true", PART_SIZE: "4"},
        {"delta.checkpointPolicy": "v2"},
        {"delta.checkpointPolicy": "v2", TOP_LEVEL_FORMAT: "json", PART_SIZE: "5"},
        {"delta.checkpointPolicy": "v2", "delta.checkpoint.writeStatsAsStruct": "true"},
    ],
    ids=repr,
)
def test_deltalake_and_polars_read_checkpoints(tmp_path: Path, conf: dict[str, str]) -> None:
    path = str(tmp_path / "t")
    for i in range(3):
        trilake.write(
            pa.table({"a": [i, None], "s": ["x", f"y{i}"], "p": [str(i % 2), None]}),
            path,
            mode="append",
            partition_by=["p"] if i == 0 else None,
        )
    _reconfigure(tmp_path / "t", conf)
    log = DeltaLog(open_store(path), standard_engine())
    write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
    log.store.delete([commit_key(v) for v in range(3)])
    expected = rows(trilake.open(path).to_arrow())
    assert len(expected) == 6
    table = deltalake.DeltaTable(path)
    assert table.version() == 2
    assert trilake.open(path).count("a = 1") == 1
    result = deltalake.QueryBuilder().register("t", table).execute("select a, s, p from t").read_all()
    assert rows(pa.table(result)) == expected
    if "delta.checkpointPolicy" not in conf:  # a feature that these two do not support
        assert rows(pa.table(table.to_pyarrow_table())) == expected
        assert rows(pl.read_delta(path).to_arrow()) == expected
        assert rows(pl.scan_delta(path).filter(pl.col("a") == 1).collect().to_arrow())[0]["s"] == "x"


def _reconfigure(table: Path, conf: dict[str, str]) -> None:
    """Add properties and their feature to the first commit."""
    file = table / commit_key(0)
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"].update(conf)
        if "protocol" in action and "delta.checkpointPolicy" in conf:
            action["protocol"] = V2_PROTOCOL["protocol"]
    file.write_text("\n".join(map(json.dumps, actions)))
