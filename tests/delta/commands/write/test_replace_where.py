"""Overwriting rows that match a predicate: the changed files and the change feed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trilake
from tests.delta.tables import rows, write
from tests.fault_store import FaultStore
from trilake.delta.log.log import DeltaLog
from trilake.delta.standard import standard_engine
from trilake.errors import (
    ConcurrentAppendError,
    FilterError,
    InvalidArgumentError,
    SchemaMismatchError,
    TableNotFoundError,
)
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def _rows(*ids: int, p: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=pa.schema([("id", pa.int64()), ("p", pa.string())]))


def _three_files(uri: str, properties: Mapping[str, str]) -> None:
    trilake.write(_rows(1, 2, 3), uri, properties=properties)
    trilake.write(_rows(4, 5, 6), uri, mode="append")
    trilake.write(_rows(7, 8, 9), uri, mode="append")


def _ids(uri: str) -> list[int]:
    return sorted(trilake.open(uri).to_arrow()["id"].to_pylist())


def _last(uri: str) -> dict[str, list[Any]]:
    log = DeltaLog(open_store(uri), standard_engine())
    version = log.snapshot().version
    batch = log.parse(log.commits(version, version))
    return {k: getattr(batch, k).to_pylist() for k in ("add", "remove", "cdc")} | {
        "info": [i for _, i in batch.of("commitInfo")]
    }


@pytest.mark.parametrize("properties", [{}, VECTORS, FEED, {**VECTORS, **FEED}], ids=["cow", "dv", "cdf", "dv-cdf"])
def test_only_files_with_matching_rows_are_changed(tmp_path: Path, properties: Mapping[str, str]) -> None:
    uri = str(tmp_path)
    _three_files(uri, properties)
    before = set(trilake.open(uri).files()["path"].to_pylist())
    trilake.write(_rows(60, 61), uri, mode="overwrite", replace_where="id between 3 and 3 or id > 50")
    assert _ids(uri) == [1, 2, 4, 5, 6, 7, 8, 9, 60, 61]
    kept = before & set(trilake.open(uri).files()["path"].to_pylist())
    assert len(kept) == (3 if properties.get("delta.enableDeletionVectors") else 2)
    last = _last(uri)
    metrics = last["info"][0]["operationMetrics"]
    assert (metrics["numDeletedRows"], metrics["numOutputRows"]) == ("1", "2")
    assert metrics["numCopiedRows"] == ("0" if properties.get("delta.enableDeletionVectors") else "2")
    if properties.get("delta.enableChangeDataFeed"):
        assert bool(last["cdc"]) != bool(properties.get("delta.enableDeletionVectors"))
        changes = trilake.open(uri).changes(3, 3).to_pylist()  # type: ignore[attr-defined]
        assert sorted((c["_change_type"], c["id"]) for c in changes) == [("delete", 3), ("insert", 60), ("insert", 61)]
    else:
        assert not last["cdc"]
    if properties.get("delta.enableDeletionVectors"):
        vectored = next(a for a in last["add"] if a["deletionVector"])
        assert vectored["deletionVector"]["cardinality"] == 1
        assert '"tightBounds":false' in vectored["stats"]
        # A second removal in the same file is merged into its vector.
        trilake.write(_rows(), uri, mode="overwrite", replace_where="id = 1")
        assert _ids(uri) == [2, 4, 5, 6, 7, 8, 9, 60, 61]
        trilake.write(_rows(), uri, mode="overwrite", replace_where="id = 2")
        assert _last(uri)["add"] == []  # the last row of the file: the file is removed


def test_whole_files_are_removed_by_statistics(tmp_path: Path) -> None:
    uri = str(tmp_path)
    _three_files(uri, {})
    store = FaultStore(open_store(uri))
    where = "id >= 4 and id <= 6"
    write(DeltaLog(store, standard_engine()), _rows(5), "overwrite", replace_where=where)
    assert _ids(uri) == [1, 2, 3, 5, 7, 8, 9]
    assert store.count("open_input") == 0


def test_missing_table_is_created(tmp_path: Path) -> None:
    """Like delta-spark, so that a job's first run needs no special case; the rows must match the predicate."""
    uri = str(tmp_path / "t")
    with pytest.raises(SchemaMismatchError, match=r"violates replace_where \(id = 1\)"):
        trilake.write(_rows(1, 2), uri, mode="overwrite", replace_where="id = 1")
    with pytest.raises(TableNotFoundError):
        trilake.open(uri)
    trilake.write(_rows(1), uri, mode="overwrite", replace_where="id = 1", partition_by="p")
    trilake.write(_rows(2), uri, mode="overwrite", replace_where="id = 2")
    assert _ids(uri) == [1, 2]


def test_rows_outside_the_predicate_are_rejected(tmp_path: Path) -> None:
    uri = str(tmp_path)
    _three_files(uri, {})
    with pytest.raises(SchemaMismatchError, match=r"a row with id = 2.* violates replace_where \(id = 1\)"):
        trilake.write(_rows(1, 2), uri, mode="overwrite", replace_where="id = 1")
    with pytest.raises(FilterError):
        trilake.write(_rows(1), uri, mode="overwrite", replace_where="nope = 1")
    with pytest.raises(InvalidArgumentError, match="schema_mode"):
        trilake.write(_rows(1), uri, mode="overwrite", replace_where="id = 1", schema_mode="overwrite")
    assert _ids(uri) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert len([o for o in open_store(uri).list() if o.key.endswith(".parquet")]) == 3


def test_concurrent_append_into_the_predicate_conflicts() -> None:
    inner = MemoryStore()
    trilake.write(_rows(1, 2), inner.uri)
    trilake.write(_rows(3), inner.uri, mode="append")
    done: list[int] = []

    def before(op: str, key: str) -> None:
        if op == "put_if_absent" and key.endswith("02.json") and not done:
            done.append(1)
            trilake.write(_rows(1), inner.uri, mode="overwrite", replace_where="id = 1")

    log = DeltaLog(FaultStore(inner, before=before), standard_engine())
    with pytest.raises(trilake.TrilakeError) as caught:
        write(log, _rows(2), "overwrite", replace_where="id = 2")
    assert isinstance(caught.value, ConcurrentAppendError)
    assert _ids(inner.uri) == [1, 2, 3]


@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_successive_range_overwrites_match_a_model(
    files: list[list[int]], ranges: list[tuple[int, int]], vectors: bool, feed: bool
) -> None:
    properties = {**(VECTORS if vectors else {}), **(FEED if feed else {})}
    uri = MemoryStore().uri
    trilake.write(_rows(*files[0]), uri, properties=properties)
    for ids in files[1:]:
        trilake.write(_rows(*ids), uri, mode="append")
    expected = sorted(i for ids in files for i in ids)
    for low, width in ranges:
        new = [low] * (width % 3)
        trilake.write(_rows(*new), uri, mode="overwrite", replace_where=f"id >= {low} and id <= {low + width}")
        after = sorted([i for i in expected if not low <= i <= low + width] + new)
        assert _ids(uri) == after
        if feed:
            table = trilake.open(uri)
            changes = table.changes(table.version, table.version)
            replayed = list(expected)
            for c in sorted(changes.to_pylist(), key=lambda c: c["_change_type"]):
                replayed.remove(c["id"]) if c["_change_type"] == "delete" else replayed.append(c["id"])
            assert sorted(replayed) == after
        expected = after
    assert rows(trilake.open(uri).to_arrow().select(["id"])) == rows(pa.table({"id": pa.array(expected, pa.int64())}))


def test_not_null_columns_are_copied(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), False), pa.field("s", pa.struct([pa.field("x", pa.int32(), False)]))]
    )
    rows_ = [{"id": i, "s": {"x": i}} for i in range(4)]
    uri = str(tmp_path)
    trilake.write(pa.Table.from_pylist(rows_, schema=schema), uri, properties=FEED)
    trilake.write(pa.Table.from_pylist(rows_[:1], schema=schema), uri, mode="overwrite", replace_where="id < 2")
    assert rows(trilake.open(uri).to_arrow()) == [rows_[0], rows_[2], rows_[3]]
    assert trilake.open(uri).changes(1, 1).num_rows == 3


def test_predicate_without_columns_does_not_check_new_rows(tmp_path: Path) -> None:
    uri = str(tmp_path)
    trilake.write(_rows(1, 2), uri)
    trilake.write(_rows(3), uri, mode="overwrite", replace_where="1 = 2")
    assert _ids(uri) == [1, 2, 3]
    trilake.write(_rows(4), uri, mode="overwrite", replace_where="1 = 1 AND id < 3 OR id = 4")
    assert _ids(uri) == [3, 4]
    with pytest.raises(SchemaMismatchError, match="violates replace_where"):
        trilake.write(_rows(5), uri, mode="overwrite", replace_where="1 = 1 AND id < 3")
    trilake.write(_rows(5), uri, mode="overwrite", replace_where="true")
    assert _ids(uri) == [5]


def test_dynamic_overwrite_of_an_unpartitioned_table(tmp_path: Path) -> None:
    flat, parts = str(tmp_path / "flat"), str(tmp_path / "parts")
    trilake.write(_rows(1, 2), flat)
    trilake.write(_rows(1, 2), parts, partition_by="p")

    def overwrite(uri: str, id: int, **more: Any) -> None:
        log = DeltaLog(open_store(uri), standard_engine())
        write(log, _rows(id), "overwrite", partition_overwrite="dynamic", **more)

    overwrite(flat, 3, replace_where="id in (2, 3)")
    assert _ids(flat) == [1, 3]
    overwrite(flat, 4, schema_mode="overwrite")
    assert _ids(flat) == [4]
    for also in ({"replace_where": "id = 3"}, {"schema_mode": "overwrite"}):
        with pytest.raises(InvalidArgumentError, match="DYNAMIC_PARTITION_OVERWRITE"):
            overwrite(parts, 3, **also)
        for uri in (flat, parts):  # both in one call is a mistake
            with pytest.raises(InvalidArgumentError, match="DYNAMIC_PARTITION_OVERWRITE"):
                trilake.write(_rows(3), uri, mode="overwrite", partition_overwrite="dynamic", **also)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [{"mode": "append"}, {"mode": "overwrite"}, {"mode": "append", "schema_mode": "merge"}])
def test_rows_without_or_with_only_partition_columns_are_rejected(tmp_path: Path, how: Mapping[str, Any]) -> None:
    uri, generated = str(tmp_path / "t"), str(tmp_path / "g")
    trilake.write(_rows(1, 2), uri, partition_by="p")
    with pytest.raises(SchemaMismatchError, match=r"lack partition columns: p.*DELTA_PARTITION_COLUMN_NOT_FOUND"):
        trilake.write({"id": [3]}, uri, **how)
    with pytest.raises(SchemaMismatchError, match=r"only partition columns.*DELTA_NON_PARTITION_COLUMN_ABSENT"):
        trilake.write({"p": ["x"]}, uri, **how)
    assert _ids(uri) == [1, 2]
    trilake.create(generated, {"id": "bigint", "g": "bigint"}, generated={"g": "id % 2"}, partition_by="g")
    trilake.write({"id": [3]}, generated, **how)
    assert rows(trilake.open(generated).to_arrow()) == [{"id": 3, "g": 1}]


def test_moved_rows_need_whole_files(tmp_path: Path) -> None:
    """``dataChange=false`` says that no row changes, so a predicate may only select whole partitions."""
    uri = str(tmp_path)
    trilake.write(_rows(1, 2), uri, partition_by="p", properties=FEED)
    new = _rows(1, 2)

    def move(where: str) -> None:
        log = DeltaLog(open_store(uri), standard_engine())
        write(log, new, "overwrite", replace_where=where, data_change=False)

    with pytest.raises(InvalidArgumentError, match="DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET"):
        move("id <= 2")
    move("p = 'x'")
    assert _ids(uri) == [1, 2]
    last = _last(uri)
    assert [a["dataChange"] for a in [*last["add"], *last["remove"]]] == [False, False]
    assert not last["cdc"]
