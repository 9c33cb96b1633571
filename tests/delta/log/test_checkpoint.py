"""Checkpoints of every kind, read and written."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trilake
from tests.delta.tables import VECTOR, add, fixed_runtime, lines, log_of, metadata, parquet, protocol, remove, rows
from tests.runtimes import runtime_in_ms
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LAST_CHECKPOINT, checkpoint_key, checkpoint_part_key, commit_key
from trilake.delta.log.snapshot import PendingSnapshot
from trilake.delta.scan.large_tables import narrowed, row_count
from trilake.delta.scan.statistics import record_counts
from trilake.delta.standard import standard_engine
from trilake.errors import CorruptLogError, MissingMetadataError, TrilakeError
from trilake.expr import parse_filter
from trilake.expr.terms.engine import query
from trilake.storage import open_store

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
HISTORY: list[list[dict[str, Any]]] = [
    [add("a", stats='{"numRecords":1}', tags={"t": "1"}), add("b")],
    [remove("a", size=1, partitionValues={}), add("a", deletionVector=VECTOR), {"txn": {"appId": "x", "version": 4}}],
    [remove("b"), add("p=1/c%20d", partitionValues={"p": "1", "q": None}, baseRowId=2, defaultRowCommitVersion=2)],
    [{"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}, add("e", size=2**62)],
]
KEEP_ALL = runtime_in_ms(lambda: 0)


def _log() -> DeltaLog:
    return log_of(*HISTORY)


def _forget_commits(log: DeltaLog, upto: int) -> None:
    log.store.delete([commit_key(v) for v in range(upto + 1)])


def _same(log: DeltaLog, other: DeltaLog) -> None:
    a, b = log.snapshot(), other.snapshot()
    assert rows(a.adds.drop_columns(["dataChange"])) == rows(b.adds.drop_columns(["dataChange"]))
    assert a.adds.schema.equals(b.adds.schema)
    assert (a.protocol, a.metadata) == (b.protocol, b.metadata)
    assert {k: v["version"] for k, v in a.state.txns.items()} == {k: v["version"] for k, v in b.state.txns.items()}
    assert {k: v["configuration"] for k, v in a.state.domains.items()} == {
        k: v["configuration"] for k, v in b.state.domains.items()
    }
    paths = [sorted(x.tombstones(s)["path"].to_pylist()) for x, s in ((log, a), (other, b))]
    assert paths[0] == paths[1]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_written_checkpoint_equals_the_state(version: int) -> None:
    log = _log()
    write_checkpoint(log, log.snapshot(version), KEEP_ALL)
    _forget_commits(log, version)
    assert log.snapshot().segment.checkpoint_version == version
    _same(log, _log())


def test_checkpoint_writes_its_hint() -> None:
    log = _log()
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    hint = json.loads(bytes(log.store.read(LAST_CHECKPOINT)))
    file = pq.read_table(log.store.open_input(checkpoint_key(3)))
    assert hint["version"] == 3
    assert hint["size"] == file.num_rows
    assert hint["sizeInBytes"] == log.store.head(checkpoint_key(3)).size
    assert hint["numOfAddFiles"] == log.snapshot().adds.num_rows == 3
    one_action_a_row = [sum(v is not None for v in r.values()) for r in file.to_pylist()]
    assert set(one_action_a_row) == {1}
    assert not any(r["add"]["dataChange"] for r in file.to_pylist() if r["add"])


def test_expired_tombstones_are_omitted() -> None:
    day = 86_400_000
    meta = metadata(delta__deletedFileRetentionDuration="interval 2 days")
    log = log_of([protocol(), meta], [remove("old", deletionTimestamp=day), remove("new", deletionTimestamp=3 * day)])
    write_checkpoint(log, log.snapshot(), runtime_in_ms(lambda: 4 * day))
    assert log.tombstones(log.snapshot())["path"].to_pylist() == ["new"]


def test_invalid_retention_keeps_all_tombstones() -> None:
    meta = metadata(delta__deletedFileRetentionDuration="6 months 1 day")
    log = log_of([protocol(), meta], [remove("old", deletionTimestamp=1)])
    write_checkpoint(log, log.snapshot(), runtime_in_ms(lambda: 10**15))
    assert log.tombstones(log.snapshot())["path"].to_pylist() == ["old"]


# --- other kinds -----------------------------------------------------------------------------------------------------


def _single(log: DeltaLog, version: int) -> pa.Table:
    """Write the checkpoint of a version, read its rows and delete it."""
    write_checkpoint(log, log.snapshot(version), KEEP_ALL)
    table = pq.read_table(log.store.open_input(checkpoint_key(version)))
    log.store.delete([checkpoint_key(version), LAST_CHECKPOINT])
    return table


def test_string_views_in_a_checkpoint_are_read() -> None:
    log = _log()
    table = _single(log, 3)
    schema = pa.schema([f.with_type(_views(f.type)) for f in table.schema])
    assert "string_view" in str(schema)
    log.store.put(checkpoint_key(3), parquet(table.cast(schema)))
    _forget_commits(log, 3)
    _same(log, _log())


def _views(t: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(t):
        return pa.struct([f.with_type(_views(f.type)) for f in t])
    if pa.types.is_map(t):
        return pa.map_(t.key_field.with_type(_views(t.key_type)), t.item_field.with_type(_views(t.item_type)))
    return pa.string_view() if pa.types.is_string(t) else t


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_multi_part_checkpoint_is_read(parts: int) -> None:
    log = _log()
    table = _single(log, 2)
    for i in range(parts):
        piece = table.take(pa.array([r for r in range(table.num_rows) if r % parts == i], pa.int64()))
        log.store.put(f"_delta_log/{2:020d}.checkpoint.{i + 1:010d}.{parts:010d}.parquet", parquet(piece))
    _forget_commits(log, 2)
    assert len(log.snapshot().segment.checkpoint_files) == parts
    _same(log, _log())


def _v2(log: DeltaLog, extension: str, sidecars: int, *, spelling: str = "{}") -> None:
    """Replace the commits up to version 2 with a v2 checkpoint."""
    table = _single(log, 2)
    others = table.filter(pa.compute.and_(table["add"].is_null(), table["remove"].is_null()))
    files = table.filter(pa.compute.or_(table["add"].is_valid(), table["remove"].is_valid())).select(["add", "remove"])
    actions: list[dict[str, Any]] = [{"checkpointMetadata": {"version": 2}}]
    for i in range(sidecars):
        piece = files.take(pa.array([r for r in range(files.num_rows) if r % sidecars == i], pa.int64()))
        name = f"{i:08d}-7026-4e79-81be-64bd76c43a11.parquet"
        data = parquet(piece)
        log.store.put(f"_delta_log/_sidecars/{name}", data)
        actions.append({"sidecar": {"path": spelling.format(name), "sizeInBytes": len(data), "modificationTime": 1}})
    key = f"_delta_log/{2:020d}.checkpoint.{UUID}.{extension}"
    if extension == "json":
        plain = [_jsonable(r) for r in (others if sidecars else table).to_pylist()]
        log.store.put(key, lines([*actions, *plain]))
    else:
        extra = pa.Table.from_pylist([{"checkpointMetadata": None, "sidecar": None, **a} for a in actions])
        both = pa.concat_tables([others if sidecars else table, extra], promote_options="permissive")
        log.store.put(key, parquet(both))
    _forget_commits(log, 2)


def _jsonable(row: dict[str, Any]) -> dict[str, Any]:
    """A row with Arrow's maps, which are lists of pairs, as dictionaries."""

    def walk(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {k: walk(v, k) for k, v in value.items() if v is not None}
        if isinstance(value, list) and name in ("partitionValues", "tags", "configuration", "options"):
            return dict(value)
        return value

    result: dict[str, Any] = walk(row)
    return result


@pytest.mark.parametrize("extension", ["json", "parquet"])
@pytest.mark.parametrize("sidecars", [0, 1, 3])
def test_v2_checkpoint_is_read(extension: str, sidecars: int) -> None:
    log = _log()
    _v2(log, extension, sidecars)
    assert log.snapshot().segment.checkpoint_version == 2
    _same(log, _log())
    assert log.head().protocol == log.snapshot().protocol


def test_sidecar_with_an_absolute_path() -> None:
    log = _log()
    _v2(log, "json", 2, spelling="file:/some/where/_delta_log/_sidecars/{}")
    _same(log, _log())


def test_missing_sidecar_is_an_error() -> None:
    log = _log()
    _v2(log, "parquet", 2)
    gone = "_delta_log/_sidecars/00000001-7026-4e79-81be-64bd76c43a11.parquet"
    log.store.delete([gone])
    with pytest.raises(CorruptLogError, match="missing") as e:
        log.snapshot()
    assert gone in str(e.value)


def test_sidecar_without_a_path_is_an_error() -> None:
    log = log_of([])
    log.store.put(f"_delta_log/{1:020d}.checkpoint.{UUID}.json", lines([protocol(), metadata(), {"sidecar": {}}]))
    with pytest.raises(CorruptLogError, match="sidecar"):
        log.snapshot()


# --- differences of other writers ------------------------------------------------------------------------------------


def _checkpoint_of(log: DeltaLog, version: int, **columns: list[Any]) -> None:
    count = max(map(len, columns.values()))
    table = pa.table({k: v + [None] * (count - len(v)) for k, v in columns.items()})
    log.store.put(checkpoint_key(version), parquet(table))


def _base() -> dict[str, list[Any]]:
    meta = metadata()["metaData"]
    meta["configuration"] = [("k", "v")]
    meta["format"] = {"provider": "parquet"}
    columns = {
        "protocol": pa.array([protocol()["protocol"]]).to_pylist(),
        "metaData": [{k: v for k, v in meta.items() if k not in ("configuration", "partitionColumns")}],
    }
    return {k: [*v] for k, v in columns.items()}


def test_adds_with_missing_fields_are_read() -> None:
    log = log_of([])
    _checkpoint_of(log, 1, **_base(), add=[None, None, {"path": "x", "size": 5}])
    adds = log.snapshot().adds
    assert adds.drop_columns(["partitionValues"]).to_pylist()[0]["size"] == 5
    assert adds.num_rows == 1


def test_structs_of_nulls_are_not_actions() -> None:
    """Some writers cannot mark absent columns of a row as null."""
    log = log_of([])
    names = {"minReaderVersion": None, "minWriterVersion": None}
    base = _base()
    nothing = {k: {"provider": None} if k == "format" else None for k in base["metaData"][0]}
    txn = {"appId": "x", "version": 4}
    _checkpoint_of(
        log,
        1,
        protocol=[*base["protocol"], names, names, names],
        metaData=[nothing, *base["metaData"], nothing, nothing],
        txn=[dict.fromkeys(txn), dict.fromkeys(txn), txn, dict.fromkeys(txn)],
        add=[*[{"path": None, "size": None}] * 3, {"path": "f", "size": 5}],
    )
    snapshot = log.snapshot()
    assert snapshot.adds["path"].to_pylist() == ["f"]
    assert list(snapshot.state.txns) == ["x"]
    assert snapshot.protocol.min_writer_version == 2


def test_parsed_statistics_replace_missing_json() -> None:
    stats = {"numRecords": 7, "minValues": {"a": 1}, "maxValues": {"a": 9}, "nullCount": {"a": 0}}
    log = log_of([])
    adds: list[Any] = [None, None]
    adds += [{"path": "x", "size": 5, "stats": None, "stats_parsed": stats}]
    adds += [{"path": "y", "size": 5, "stats": '{"numRecords":3}', "stats_parsed": stats}]
    adds += [{"path": "z", "size": 5, "stats": None, "stats_parsed": None}]
    _checkpoint_of(log, 1, **_base(), add=adds)
    result = log.snapshot().adds
    assert dict(zip(result["path"].to_pylist(), record_counts(result, query).to_pylist(), strict=True)) == {
        "x": 7,
        "y": 3,
        "z": None,
    }
    parsed = json.loads(result["stats"][0].as_py())
    assert (parsed["minValues"], parsed["maxValues"]) == ({"a": 1}, {"a": 9})


def test_parsed_statistics_without_a_json_column() -> None:
    log = log_of([])
    adds: list[Any] = [None, None, {"path": "x", "size": 5, "stats_parsed": {"numRecords": 7}}]
    _checkpoint_of(log, 1, **_base(), add=adds)
    assert record_counts(log.snapshot().adds, query).to_pylist() == [7]


def _with_column(name: str, value: str | None) -> DeltaLog:
    """A table whose only checkpoint has another column ``name``."""
    log = log_of([add("a")])
    write_checkpoint(log, log.snapshot(), KEEP_ALL)
    key = checkpoint_key(0)
    table = pq.read_table(pa.BufferReader(log.store.read(key)))
    column = table.column_names.index(name)
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(column, name, pa.array([value] * len(table))), sink)
    log.store.put(key, sink.getvalue())
    log.store.delete([LAST_CHECKPOINT])
    _forget_commits(log, 0)
    return log


def test_checkpoint_column_of_type_null_has_no_actions() -> None:
    log = _with_column("remove", None)
    assert log.tombstones(log.snapshot()).num_rows == 0


@pytest.mark.parametrize("name", ["metaData", "protocol", "add"])
def test_checkpoint_column_of_another_type_is_named(name: str) -> None:
    log, key = _with_column(name, "x"), checkpoint_key(0)
    with pytest.raises(CorruptLogError, match=rf"its column '{name}' must be a struct, got string .*{key}"):
        log.snapshot()


@pytest.mark.parametrize("lacking", ["protocol", "metaData"])
def test_checkpoint_without_protocol_or_metadata_is_an_error(lacking: str) -> None:
    log = log_of([])
    base = _base()
    del base[lacking]
    _checkpoint_of(log, 1, **base, add=[None, {"path": "x", "size": 5}])
    with pytest.raises(MissingMetadataError, match=lacking):
        log.snapshot()


def _damaged(**columns: list[Any]) -> bytes:
    """A checkpoint that is intact except for these columns."""
    whole = {**_base(), **columns}
    count = max(map(len, whole.values()))
    return parquet(pa.table({k: v + [None] * (count - len(v)) for k, v in whole.items()}))


@pytest.mark.parametrize(
    "content",
    [
        b"PAR1",
        b"no parquet at all",
        b"PAR1" + b"\xff" * 40 + b"PAR1",
        _damaged(add=[1, 2]),
        _damaged(add=[{"size": 5}]),
        _damaged(add=[{"path": "x", "size": 1}, {"path": None, "size": 1}]),
        _damaged(add=[{"path": "x", "size": "large"}]),
        _damaged(add=[{"path": "x", "partitionValues": "p"}]),
        _damaged(add=[{"path": "x", "partitionValues": [{"k": "a"}]}]),
        _damaged(add=[{"path": "x", "deletionVector": 5}]),
        _damaged(add=[{"path": "x", "deletionVector": {"storageType": "u", "offset": "x"}}]),
        _damaged(metaData=["x"]),
        _damaged(protocol=[5]),
        _damaged(metaData=[{"id": 5}]),
        _damaged(protocol=[{"minReaderVersion": "x", "minWriterVersion": 1}]),
        _damaged(txn=[5]),
        _damaged(sidecar=[5]),
        _damaged(domainMetadata=["d"]),
        parquet(pa.table({"other": [1]})),
    ],
)
def test_damaged_checkpoint_is_a_typed_error(content: bytes) -> None:
    log = log_of([])
    log.store.put(checkpoint_key(1), content)
    with pytest.raises(CorruptLogError):
        log.snapshot()
    assert log.snapshot(0).version == 0


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, 0.99])
def test_truncated_checkpoint_is_an_error(cut: float) -> None:
    log = _log()
    write_checkpoint(log, log.snapshot(2), KEEP_ALL)
    data = bytes(log.store.read(checkpoint_key(2)))
    log.store.put(checkpoint_key(2), data[: int(len(data) * cut)])
    _forget_commits(log, 1)
    with pytest.raises(CorruptLogError, match="checkpoint cannot be read"):
        log.snapshot()


@pytest.mark.parametrize("bad", [1, 2, 3])
def test_intact_checkpoint_replaces_damaged_ones(bad: int) -> None:
    log = _log()
    write_checkpoint(log, log.snapshot(2), KEEP_ALL)
    data = bytes(log.store.read(checkpoint_key(2)))
    keys = [f"_delta_log/{2:020d}.checkpoint.{UUID}.parquet", checkpoint_key(2), checkpoint_part_key(2, 1, 1)]
    for at, key in enumerate(keys):
        log.store.put(key, data[:-20] if at < bad else data)
    _forget_commits(log, 2)
    if bad < len(keys):
        _same(log, _log())
        assert [f.key for f in log.snapshot(2).segment.checkpoint_files] == [keys[bad]]
        assert log.head().version == log.opened().version == 3
    else:
        with pytest.raises(CorruptLogError, match="checkpoint cannot be read"):
            log.snapshot()


@pytest.mark.parametrize("damage", [b"no Parquet", None])
@pytest.mark.parametrize("older", [False, True])
def test_commits_replace_a_damaged_checkpoint(
    damage: bytes | None, older: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = _log()
    if older:
        write_checkpoint(log, log.snapshot(1), KEEP_ALL)
        log.store.delete([commit_key(0)])
    write_checkpoint(log, log.snapshot(2), KEEP_ALL)
    data = bytes(log.store.read(checkpoint_key(2)))
    log.store.put(checkpoint_key(2), data[:-20] if damage is None else damage)
    for version in (2, 3, None):
        result, true = log.snapshot(version), _log().snapshot(version)
        assert result.segment.checkpoint_version == (1 if older else None)
        assert rows(result.adds.drop_columns(["dataChange"])) == rows(true.adds.drop_columns(["dataChange"]))
        assert log.head(version).metadata == true.metadata
        assert log.opened(version).version == true.version
    assert "skipped a damaged file: the checkpoint cannot be read" in caplog.text
    # A checkpoint of a later version uses what was read, so the damage no longer matters.
    write_checkpoint(log, log.snapshot(3), KEEP_ALL)
    assert log.snapshot().segment.checkpoint_version == 3
    _same(log, _log())


@pytest.mark.parametrize("older", [False, True])
def test_commits_replace_a_checkpoint_damaged_after_reading(older: bool) -> None:
    """Its tombstones are read later than its files, by the next checkpoint or vacuum."""
    log, files = _log(), ["path", "deletionTimestamp"]
    if older:
        write_checkpoint(log, log.snapshot(1), KEEP_ALL)
        log.store.delete([commit_key(0)])
    write_checkpoint(log, log.snapshot(2), KEEP_ALL)
    snapshot, true = log.snapshot(), log.tombstones(log.snapshot())
    assert true.num_rows
    log.store.put(checkpoint_key(2), b"no Parquet")
    assert rows(log.tombstones(snapshot).select(files)) == rows(true.select(files))
    write_checkpoint(log, snapshot, KEEP_ALL)
    assert log.snapshot().segment.checkpoint_version == 3
    _same(log, _log())


def test_commits_replace_a_large_checkpoint_damaged_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trilake.delta.log.segment.LARGE_BYTES", 0)
    log = _log()
    write_checkpoint(log, log.snapshot(2), KEEP_ALL)
    pending = log.opened()
    assert isinstance(pending, PendingSnapshot)
    log.store.put(checkpoint_key(2), b"no Parquet")
    true = _log().snapshot()
    assert rows(log.load(pending).adds) == rows(true.adds)
    # Also where it is read in pieces: a filter, a count, the next checkpoint.
    assert row_count(log, pending) is None
    condition = parse_filter(f"{true.schema.fields[0].name} IS NULL", true.schema.to_arrow_schema())
    assert narrowed(log, pending, condition) is None
    write_checkpoint(log, pending, KEEP_ALL)
    assert log.snapshot().segment.checkpoint_version == 3
    _same(log, _log())


def test_damaged_checkpoint_without_commits_is_an_error() -> None:
    log = _log()
    write_checkpoint(log, log.snapshot(1), KEEP_ALL)
    write_checkpoint(log, log.snapshot(2), KEEP_ALL)
    for version in (1, 2):
        log.store.put(checkpoint_key(version), b"no Parquet")
    log.store.delete([commit_key(0)])
    for read in (log.snapshot, log.head, log.opened):
        with pytest.raises(CorruptLogError, match="checkpoint cannot be read") as e:
            read()
        assert e.value.context["version"] == 2


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_in_a_checkpoint_raise_typed_errors(seed: int) -> None:
    log = _log()
    write_checkpoint(log, log.snapshot(2), KEEP_ALL)
    data = bytearray(log.store.read(checkpoint_key(2)))
    data[(seed * 7919) % len(data)] ^= 0xFF
    log.store.put(checkpoint_key(2), bytes(data))
    with suppress(TrilakeError):
        assert log.snapshot().version == 3


# --- other readers ---------------------------------------------------------------------------------------------------


def test_deltalake_and_polars_read_written_checkpoints(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for i in range(12):
        data = pa.table({"a": [i, None], "p": [str(i % 3), None]})
        trilake.write(data, path, mode="append", partition_by=["p"] if i == 0 else None)
    trilake.write(pa.table({"a": [99], "p": ["1"]}), path, mode="overwrite", replace_where="p = '1'")
    log = DeltaLog(open_store(path), standard_engine())
    expected = rows(trilake.open(path).to_arrow())
    for checkpoint in (10, 12):
        if checkpoint == 12:
            write_checkpoint(log, log.snapshot(), SYSTEM_RUNTIME)
        log.store.delete([commit_key(v) for v in range(checkpoint)])
        table = deltalake.DeltaTable(path)
        assert table.version() == 12
        assert rows(table.to_pyarrow_table()) == expected
        assert rows(pl.read_delta(path).to_arrow()) == expected
        assert rows(trilake.open(path).to_arrow()) == expected
    assert len(expected) == 24 - 4 + 1


def test_checkpoints_of_deltalake_are_read(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"a": [1, 2], "p": ["x", "y"]}), partition_by=["p"])
    deltalake.write_deltalake(path, pa.table({"a": [3], "p": ["x"]}), mode="append")
    deltalake.DeltaTable(path).delete("a = 2")
    deltalake.DeltaTable(path).create_checkpoint()
    log = DeltaLog(open_store(path), standard_engine())
    _forget_commits(log, 1)
    assert log.snapshot().segment.checkpoint_version == 2
    assert rows(trilake.open(path).to_arrow()) == [{"a": 1, "p": "x"}, {"a": 3, "p": "x"}]
    assert log.tombstones(log.snapshot()).num_rows == 1


def test_checkpoint_bytes_depend_only_on_the_state() -> None:
    contents = set()
    for _ in range(2):
        log = _log()
        write_checkpoint(log, log.snapshot(), fixed_runtime())
        contents.add((bytes(log.store.read(checkpoint_key(3))), bytes(log.store.read(LAST_CHECKPOINT))))
    assert len(contents) == 1
