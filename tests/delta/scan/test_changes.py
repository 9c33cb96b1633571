"""The change data feed."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import trilake
from tests.delta.tables import add, inline_vector, lines, log_of, metadata, opened, parquet, remove
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ChangeFeedError,
    DeletionVectorError,
    InvalidArgumentError,
    MissingFileError,
    VersionNotFoundError,
)
from trilake.storage.memory import MemoryStore

ON = {"delta__enableChangeDataFeed": "true"}


def _changes(log: DeltaLog, start: int, end: int | None = None, **kw: Any) -> list[tuple[Any, ...]]:
    table = ArrowDeltaTable(log.store, standard_engine()).changes(start, end, **kw)
    return sorted((r["_commit_version"], r["_change_type"], r.get("a")) for r in table.drop_columns([]).to_pylist())


def _log(*commits: list[dict[str, Any]]) -> DeltaLog:
    log = log_of([metadata(**ON)], *commits)
    for i in range(4):
        log.store.put(f"f{i}", parquet(pa.table({"a": [10 * i, 10 * i + 1, 10 * i + 2]})))
    cdc = pa.table({"a": [7, 8], "_change_type": ["update_preimage", "update_postimage"]})
    log.store.put("_change_data/c", parquet(cdc))
    return log


CDC = {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}}


def test_added_and_removed_files_are_inserts_and_deletes() -> None:
    log = _log([add("f0")], [remove("f0", partitionValues={}), add("f1")])
    assert _changes(log, 0) == [
        *((1, "insert", a) for a in (0, 1, 2)),
        *((2, "delete", a) for a in (0, 1, 2)),
        *((2, "insert", a) for a in (10, 11, 12)),
    ]
    assert _changes(log, 1, 1) == [(1, "insert", a) for a in (0, 1, 2)]
    assert _changes(log, 0, 0) == []


def test_cdc_files_replace_other_actions() -> None:
    log = _log([add("f0")], [remove("f0"), add("f1"), CDC])
    assert _changes(log, 2) == [(2, "update_postimage", 8), (2, "update_preimage", 7)]


def test_rearranged_files_are_not_changes() -> None:
    log = _log([add("f0")], [remove("f0", dataChange=False), add("f1", dataChange=False)])
    assert _changes(log, 2) == []


@pytest.mark.parametrize("row", [3, 1 << 32])
def test_vector_beyond_its_file_is_an_error(row: int) -> None:
    stats = '{"numRecords":3}'
    log = _log(
        [add("f0", stats=stats)],
        [remove("f0"), add("f0", stats=stats, deletionVector=inline_vector(1, row))],
        [remove("f0", deletionVector=inline_vector(1, row)), add("f0", stats=stats, deletionVector=inline_vector(1))],
    )
    for version in (2, 3):
        with pytest.raises(DeletionVectorError, match=f"row {row} of a file with 3 rows"):
            _changes(log, version, version)


def test_vector_changes_yield_differing_rows() -> None:
    log = _log(
        [add("f0")],
        [remove("f0"), add("f0", deletionVector=inline_vector(1))],
        [remove("f0", deletionVector=inline_vector(1)), add("f0", deletionVector=inline_vector(0, 1))],
        [remove("f0", deletionVector=inline_vector(0, 1)), add("f0", deletionVector=inline_vector(0))],
        [remove("f0", deletionVector=inline_vector(0))],
    )
    assert _changes(log, 2) == [
        (2, "delete", 1),
        (3, "delete", 0),
        (4, "insert", 1),
        (5, "delete", 1),
        (5, "delete", 2),
    ]


def test_removes_without_partition_values() -> None:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("a", "long"), ("p", "string"))]
    schema = json.dumps({"type": "struct", "fields": fields})
    log = log_of([metadata(schema, ["p"], **ON)], [add("f0", partitionValues={"p": "x"})], [remove("f0")])
    log.store.put("f0", parquet(pa.table({"a": [1]})))
    table = ArrowDeltaTable(log.store, standard_engine()).changes(2)
    assert table.select(["a", "p", "_change_type"]).to_pylist() == [{"a": 1, "p": "x", "_change_type": "delete"}]


def test_files_written_with_other_partition_columns() -> None:
    """Files of a time when the column was a partition column do not contain it, and must not read as null."""
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("a", "long"), ("p", "string"))]
    schema = json.dumps({"type": "struct", "fields": fields})
    by_p, whole = metadata(schema, ["p"], **ON), metadata(schema, **ON)
    x, z = {"partitionValues": {"p": "x"}}, {"partitionValues": {"p": "z"}}
    changed = {"cdc": {"path": "_change_data/c", "size": 1, "dataChange": False, **x}}
    log = log_of(
        [by_p, add("f0", **x)],
        [remove("f0", **x), add("f1", **x), changed],
        [whole, remove("f1", **x), add("f2")],
        [by_p, remove("f2"), add("f3", **z)],
    )
    log.store.put("f0", parquet(pa.table({"a": [1]})))
    log.store.put("f1", parquet(pa.table({"a": [2]})))
    log.store.put("f2", parquet(pa.table({"a": [3], "p": ["y"]})))
    log.store.put("f3", parquet(pa.table({"a": [4]})))
    log.store.put("_change_data/c", parquet(pa.table({"a": [2], "_change_type": ["update_postimage"]})))

    def changes(start: int, end: int) -> list[tuple[Any, ...]]:
        rows = ArrowDeltaTable(log.store, standard_engine()).changes(start, end).to_pylist()
        return sorted((r["_commit_version"], r["_change_type"], r["a"], r["p"]) for r in rows)

    first = [(0, "insert", 1, "x"), (1, "update_postimage", 2, "x")]
    second, third = [(2, "delete", 2, "x"), (2, "insert", 3, "y")], [(3, "delete", 3, "y"), (3, "insert", 4, "z")]
    for start, expected in ((0, first + second + third), (2, second + third), (3, third)):
        assert changes(start, 3) == expected
    assert changes(0, 2) == first + second
    assert changes(2, 2) == second


def test_change_feed_columns_types_and_times() -> None:
    log = _log([add("f0")])
    table = ArrowDeltaTable(log.store, standard_engine()).changes(0, columns=["A"])
    assert table.schema.names == ["a", "_change_type", "_commit_version", "_commit_timestamp"]
    assert table.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    modified = log.commit_times(log.commits(), log.snapshot().metadata)[1]
    assert set(table["_commit_timestamp"].cast(pa.int64()).to_pylist()) == {modified * 1000}
    with pytest.raises(InvalidArgumentError, match="'b'"):
        ArrowDeltaTable(log.store, standard_engine()).changes(0, columns=["b"])
    named = ArrowDeltaTable(log.store, standard_engine()).changes(0, columns=["_commit_version", "A", "_change_type"])
    assert named.schema.names == ["_commit_version", "a", "_change_type"]
    twice = ArrowDeltaTable(log.store, standard_engine()).changes(0, columns=["a", "a"])
    assert twice.schema.names[:3] == ["a", "a", "_change_type"]
    assert named.drop_columns("_change_type") == table.select(["_commit_version", "a"])


def test_invalid_version_ranges_are_rejected() -> None:
    log = _log([add("f0")])
    for start, end in ((-1, None), (1, 0)):
        with pytest.raises(InvalidArgumentError, match="not a valid range"):
            _changes(log, start, end)
    for start, end in ((2, None), (2, 3)):
        with pytest.raises(InvalidArgumentError, match="version 2: the newest version is 1"):
            _changes(log, start, end)


def test_timestamp_ranges_match_spark() -> None:
    seconds = itertools.count(1_000_000)
    store = MemoryStore(clock=lambda: next(seconds) * 1000)
    log = log_of([metadata(**ON)], [add("f0")], [add("f1")], [add("f2")], store=store)
    for i in range(3):
        store.put(f"f{i}", parquet(pa.table({"a": [i]})))
    at = [dt.datetime.fromtimestamp(t / 1000, dt.UTC) for t in log.commit_times(log.commits(), log.head().metadata)]
    between = at[1] + (at[2] - at[1]) / 2
    table = ArrowDeltaTable(log.store, standard_engine())

    def versions(start: Any, end: Any = None) -> list[int]:
        return sorted(set(table.changes(start, end)["_commit_version"].to_pylist()))

    assert versions(at[1]) == versions(at[1].isoformat()) == versions(at[0] + (at[1] - at[0]) / 2) == [1, 2, 3]
    assert versions(at[1], at[2]) == versions(1, at[2]) == versions(at[1], 2) == [1, 2]
    assert versions("1970-01-01", between) == [1]
    assert versions(between, between) == [], "no commit is between two"
    for start, end in ((at[2], at[1]), (between, at[1] + (at[2] - at[1]) / 4)):
        with pytest.raises(InvalidArgumentError, match="not a valid range"):
            versions(start, end)
    outside: list[tuple[Any, Any]] = [("2200-01-01", None), (0, "2200-01-01"), (0, "1969-01-01")]
    for first, last in outside:
        with pytest.raises(VersionNotFoundError):
            versions(first, last)


def test_end_version_is_limited_to_the_newest() -> None:
    log = _log([add("f0")])
    assert _changes(log, 0, 99) == _changes(log, 0, 1) == _changes(log, 0)


def test_cleaned_up_commits_are_an_error() -> None:
    log = _log([add("f0")], [add("f1")])
    write_checkpoint(log, log.snapshot(1), SYSTEM_RUNTIME)
    log.store.delete([commit_key(0)])
    with pytest.raises(VersionNotFoundError, match="no longer has all"):
        _changes(log, 0)
    assert _changes(log, 2) == [(2, "insert", a) for a in (10, 11, 12)]


def test_disabled_change_feed_is_an_error() -> None:
    log = log_of([add("f0")])
    with pytest.raises(ChangeFeedError, match="enableChangeDataFeed"):
        _changes(log, 0)
    log = _log([add("f0")])
    log.store.put(commit_key(2), lines([metadata()]))
    with pytest.raises(ChangeFeedError, match="disabled at version 2") as e:
        _changes(log, 0)
    assert e.value.context["version"] == 2
    assert len(_changes(log, 0, 1)) == 3


def test_missing_change_file_is_an_error() -> None:
    log = _log([add("f0")], [CDC])
    log.store.delete(["_change_data/c"])
    with pytest.raises(MissingFileError, match="_change_data/c"):
        _changes(log, 2)


def test_change_feed_of_deltalake(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    conf = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(path, pa.table({"a": [1, 2, 3]}), configuration=conf)
    table = deltalake.DeltaTable(path)
    table.update(updates={"a": "a * 10"}, predicate="a = 2")
    table.delete("a = 3")
    mine = opened(path).changes(0).to_pylist()
    theirs = pa.table(table.load_cdf(starting_version=0).read_all()).to_pylist()
    key = ("a", "_change_type", "_commit_version")
    assert sorted(tuple(r[k] for k in key) for r in mine) == sorted(tuple(r[k] for k in key) for r in theirs)
    assert len(mine) == 6


def test_overwrites_of_every_kind_agree_with_deltalake(tmp_path: Path) -> None:
    def rows_of(*ids: int) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array(["odd" if i % 2 else "even" for i in ids])})

    uri = str(tmp_path)
    trilake.write(rows_of(1, 2, 3, 4), uri, partition_by="p", properties={"delta.enableChangeDataFeed": "true"})
    trilake.write(rows_of(5), uri, mode="append")
    trilake.write(rows_of(3, 7), uri, mode="overwrite", replace_where="id in (3, 4, 7)")
    trilake.write(rows_of(9), uri, mode="overwrite", partition_overwrite="dynamic")
    trilake.write(rows_of(1, 2), uri, mode="overwrite")
    columns = ["id", "p", "_change_type", "_commit_version"]
    theirs = pa.table(deltalake.DeltaTable(uri).load_cdf(starting_version=0)).select(columns)
    ours = trilake.open(uri).changes(0).select(columns)  # type: ignore[attr-defined]
    assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist()))
    assert ours.num_rows == 18
