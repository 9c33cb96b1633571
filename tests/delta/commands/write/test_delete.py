"""DELETE: the files it changes, its commit info, and a comparison with an oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import SOAK
from tests.delta.commands.rows.dml_oracle import (
    CONDITIONS,
    LEAVES,
    ROWS,
    SCHEMA,
    SETS,
    Row,
    Said,
    as_set,
    assigned,
    matching,
)
from tests.delta.tables import new_uri, opened
from trilake.delta.commands.rows import row_changes
from trilake.delta.commands.write.delete import delete_rows
from trilake.delta.scan.scan import parse_table_filter
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConflictError,
    FilterError,
    InvalidArgumentError,
    MissingFileError,
)
from trilake.expr import Filter
from trilake.storage.memory import MemoryStore

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def _write(uri: str, *ids: int, p: str = "x", **options: Any) -> None:
    data = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([str(i) for i in ids]), "p": [p] * len(ids)})
    trilake.write(data, uri, mode="append", **options)


def _ids(uri: Any) -> list[int]:
    return sorted(opened(uri).to_arrow()["id"].to_pylist())


def _last(table: ArrowDeltaTable) -> dict[str, Any]:
    lines = table.log.store.read(f"_delta_log/{table.version:020}.json")
    actions = [orjson.loads(line) for line in bytes(lines).splitlines()]
    out: dict[str, Any] = {"add": [], "remove": [], "cdc": []}
    for action in actions:
        for kind, fields in action.items():
            out.setdefault(kind, []).append(fields)
    return out


# --- changed files ---------------------------------------------------------------------------------------------------


def test_partitions_and_statistics_avoid_reading_files(tmp_path: Path) -> None:
    _write(str(tmp_path), 1, 2, 3, p="x", partition_by=["p"])
    _write(str(tmp_path), 4, 5, p="y")
    _write(str(tmp_path), 6, 7, p="x")
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    result = opened(tmp_path).delete("p = 'y'")
    assert (result.version, result.metrics["numRemovedFiles"], result.rows) == (3, 1, 2)
    result = opened(tmp_path).delete("id >= 6 AND p = 'x'")  # all rows of the file, according to its bounds
    assert (result.metrics["numRemovedFiles"], result.rows, result.metrics["numCopiedRows"]) == (1, 2, 0)
    with pytest.raises(MissingFileError):
        opened(tmp_path).delete("id = 2")
    result = opened(tmp_path).delete()
    assert (result.rows, opened(tmp_path).files().num_rows) == (3, 0)


def test_only_files_with_matching_rows_are_changed(tmp_path: Path) -> None:
    for start in (0, 10, 20):
        _write(str(tmp_path), start, start + 5, start + 9)
    before = set(opened(tmp_path).files()["path"].to_pylist())
    # The bounds of the second file allow 13; it has none and is kept.
    result = opened(tmp_path).delete("id = 5 OR id = 13")
    kept = before & set(opened(tmp_path).files()["path"].to_pylist())
    assert len(kept) == 2
    assert (result.rows, result.metrics["numCopiedRows"], result.metrics["numAddedFiles"]) == (1, 2, 1)
    assert result.metrics["numAddedBytes"] > 0 < result.metrics["numRemovedBytes"]


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_predicate_is_evaluated_on_large_batches(
    properties: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with a million narrow rows is filtered in two batches, wide rows in smaller ones."""
    sizes: list[int] = []
    mask = Filter.mask

    def counted(self: Filter, rows: pa.RecordBatch) -> pa.BooleanArray:
        sizes.append(rows.num_rows)
        return mask(self, rows)

    uri = new_uri()
    numbers = np.arange(1_000_000)
    trilake.write(pa.table({"id": numbers, "v": numbers % 7}), uri, properties=properties)
    monkeypatch.setattr(Filter, "mask", counted)
    assert opened(uri).delete("v = 3 AND id % 1000 = 17").rows == sum(
        1 for i in range(17, 1_000_000, 1000) if i % 7 == 3
    )
    assert (len(sizes), sum(sizes)) == (2, 1_000_000)
    monkeypatch.setattr(row_changes, "_PIECE_BYTES", 1 << 20)
    sizes.clear()
    opened(uri).delete("v = 4 AND id % 1000 = 18")
    assert len(sizes) >= 8


def test_commit_info_and_metrics(tmp_path: Path) -> None:
    _write(str(tmp_path), 1, 2, 3, properties={**VECTORS, **FEED})
    result = opened(tmp_path).delete("v = '2'", user_metadata="by hand")
    last = _last(opened(tmp_path))
    (info,) = last["commitInfo"]
    assert (info["operation"], info["userMetadata"], info["isBlindAppend"]) == ("DELETE", "by hand", False)
    assert orjson.loads(info["operationParameters"]["predicate"]) == ["v = '2'"]
    assert info["operationMetrics"] | {"executionTimeMs": "0"} == {
        k: str(v) for k, v in {**result.metrics, "executionTimeMs": 0}.items()
    }
    assert {
        k: info["operationMetrics"][k] for k in ("numDeletedRows", "numDeletionVectorsAdded", "numRemovedFiles")
    } == {
        "numDeletedRows": "1",
        "numDeletionVectorsAdded": "1",
        "numRemovedFiles": "0",
    }
    assert not last["cdc"]  # the vectors show the deleted rows
    assert repr(result).startswith("<DELETE version 1: 1 rows deleted, 1 deletion vectors written")


def test_delete_without_matches_does_not_commit(tmp_path: Path) -> None:
    _write(str(tmp_path), 1, 2, 3)
    result = opened(tmp_path).delete("id = 2 AND v = '3'")
    assert (result.committed, result.version, result.rows) == (False, 0, 0)
    assert "nothing to change" in repr(result)
    opened(tmp_path).delete()
    assert opened(tmp_path).delete().committed is False


def test_table_object_keeps_its_version(tmp_path: Path) -> None:
    _write(str(tmp_path), 1, 2)
    table = opened(tmp_path)
    _write(str(tmp_path), 3)
    assert table.delete("id <> 2").rows == 2  # applies to the newest version
    assert (table.version, table.count(), table.refresh().count()) == (0, 2, 1)


def test_delete_by_pyarrow_expression(tmp_path: Path) -> None:
    _write(str(tmp_path), 1, 2, 3)
    assert opened(tmp_path).delete(pc.field("id") > 1).rows == 2


def test_invalid_deletes_are_rejected(tmp_path: Path) -> None:
    _write(str(tmp_path), 1, 2, properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidArgumentError, match="only allow appends"):
        opened(tmp_path).delete("id = 1")
    trilake.alter(str(tmp_path)).set_properties({"delta.appendOnly": "false"})
    with pytest.raises(FilterError, match="nope"):
        opened(tmp_path).delete("nope = 1")
    with pytest.raises(FilterError, match="division by zero"):
        opened(tmp_path).delete("10 / (id - 1) > 1")
    assert _ids(tmp_path) == [1, 2]


@pytest.mark.parametrize("vectors", [True, False])
def test_remaining_rows_keep_their_row_ids(tmp_path: Path, vectors: bool) -> None:
    properties = {"delta.enableRowTracking": "true", **(VECTORS if vectors else {})}
    _write(str(tmp_path), 1, 2, 3, properties=properties)
    before = opened(tmp_path)
    opened(tmp_path).delete("id = 1")
    opened(tmp_path).delete("id = 2")
    table = opened(tmp_path)
    assert _ids(tmp_path) == [3]
    if vectors:
        assert table.snapshot.adds["baseRowId"].to_pylist() == before.snapshot.adds["baseRowId"].to_pylist()
    else:
        (path,) = table.files()["path"].to_pylist()
        stored = pq.read_table(tmp_path / path)
        assert stored[table.metadata.configuration["delta.rowTracking.materializedRowIdColumnName"]].to_pylist() == [2]


# --- concurrency -----------------------------------------------------------------------------------------------------


def _racing(uri: str, mine: str, theirs: Any, level: str = "WriteSerializable") -> list[int]:
    """The remaining ids when ``theirs`` runs between the read and the commit of a DELETE."""
    store = MemoryStore(uri)
    properties = {**VECTORS, "delta.isolationLevel": level}
    _write(store.uri, 1, 2, 3, p="x", partition_by=["p"], properties=properties)
    _write(store.uri, 4, 5, 6, p="y")
    table = opened(store.uri)
    base = table.log.snapshot()
    theirs(store.uri)
    filter = parse_table_filter(mine, base)
    delete_rows(table.log, base, filter)
    return _ids(store.uri)


def test_delete_with_concurrent_append() -> None:
    def append(uri: str) -> None:
        _write(uri, 1, 7, p="x")

    assert _racing("delete-append", "p = 'x' and id = 1", append) == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(ConcurrentAppendError):
        _racing("delete-append-s", "p = 'x' and id = 1", append, "Serializable")
    # Appends to another partition are allowed at any level.
    assert _racing("delete-append-p", "p = 'y' and id = 4", append, "Serializable") == [1, 1, 2, 3, 5, 6, 7]


def test_delete_with_concurrent_delete() -> None:
    def other(predicate: str) -> Any:
        return lambda uri: opened(uri).delete(predicate)

    with pytest.raises(ConflictError) as error:
        _racing("delete-delete", "id = 1", other("id = 2"))
    assert isinstance(error.value, ConcurrentAppendError | ConcurrentDeleteReadError | ConcurrentDeleteDeleteError)
    assert _racing("delete-delete-p", "p = 'x' and id = 1", other("p = 'y'")) == [2, 3]
    with pytest.raises(ConflictError):
        _racing("delete-all", "true", other("p = 'y'"))


# --- the oracle ------------------------------------------------------------------------------------------------------

PROPERTIES = {
    "delta.enableDeletionVectors": ["true"],
    "delta.enableChangeDataFeed": ["true"],
    "delta.columnMapping.mode": ["name", "id"],
    "delta.enableRowTracking": ["true"],
    "delta.dataSkippingNumIndexedCols": ["0", "2"],
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("delete"), CONDITIONS, st.none()),
        st.tuples(st.just("update"), CONDITIONS, st.sampled_from(SETS)),
    ),
    min_size=1,
    max_size=3,
)


class History:
    """A table and its expected rows, with the change feed of each command."""

    def __init__(self, uri: str, parts: list[list[Row]], properties: Mapping[str, str], partitioned: bool) -> None:
        self.uri, self.rows = uri, [r for part in parts for r in part]
        self.feed = properties.get("delta.enableChangeDataFeed") == "true"
        empty = pa.Table.from_pylist([], schema=SCHEMA)
        trilake.write(empty, uri, properties=properties, partition_by="p" if partitioned else None)
        for part in parts:
            trilake.write(pa.Table.from_pylist(part, schema=SCHEMA), uri, mode="append")
        if partitioned:  # an empty string shares the null partition
            self.rows = [{**r, "p": r["p"] or None} for r in self.rows]

    def step(self, kind: str, condition: Said, values: Mapping[str, Said] | None) -> None:
        hit, rest = matching(self.rows, condition)
        new = [] if values is None else [assigned(r, values) for r in hit]
        table = opened(self.uri)
        if values is None:
            result = table.delete(condition.sql)
        else:
            result = table.update({n: s.sql for n, s in values.items()}, condition.sql)
        assert (result.rows, result.committed) == (len(hit), bool(hit))
        after = table.refresh()
        assert as_set(after.to_arrow().to_pylist()) == as_set(rest + new)
        assert result.version == after.version == table.version + bool(hit)
        if self.feed and hit:
            changes = after.changes(result.version).to_pylist()
            actual = {k: [c for c in changes if c["_change_type"] == k] for k in {c["_change_type"] for c in changes}}
            expected = {"delete": hit} if values is None else {"update_preimage": hit, "update_postimage": new}
            assert {k: as_set(v) for k, v in actual.items()} == {k: as_set(v) for k, v in expected.items()}
        self.rows = rest + new


@settings(max_examples=1_000 if SOAK else 30)
@given(
    st.lists(ROWS, min_size=1, max_size=3),
    st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in PROPERTIES.items()}),
    st.booleans(),
    STEPS,
)
def test_delete_and_update_histories_match_an_oracle(
    parts: list[list[Row]], properties: dict[str, str], partitioned: bool, steps: list[Any]
) -> None:
    history = History(MemoryStore().uri, parts, properties, partitioned)
    for step in steps:
        history.step(*step)


@pytest.mark.parametrize("properties", [{}, VECTORS, FEED, {**VECTORS, **FEED}], ids=["cow", "dv", "cdf", "dv-cdf"])
@pytest.mark.parametrize("partitioned", [True, False])
def test_other_engines_read_the_same_rows(tmp_path: Path, properties: Mapping[str, str], partitioned: bool) -> None:
    rows = [
        {"k": k, "x": x, "s": s, "p": p, "n": None if k == 3 else {"a": 1, "b": "q"}}
        for k, (x, s, p) in enumerate(
            [(1.0, "a", "u"), (math.inf, "b", "u"), (None, None, None), (0.5, "ab", "v w")] * 3
        )
    ]
    history = History(str(tmp_path), [rows[:5], rows[5:]], properties, partitioned)
    for text, values in (("k = 1", None), ("s like 'a%'", SETS[3]), ("p is null", None)):
        history.step("", next(leaf for leaf in LEAVES if leaf.sql == text), values)
    mine = as_set(opened(tmp_path).to_arrow().to_pylist(), "k", "x", "s", "p")
    theirs = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(tmp_path)))
    result = pa.table(theirs.execute("select k, x, s, p from t").read_all())
    assert as_set(result.to_pylist(), "k", "x", "s", "p") == mine
    if not properties.get("delta.enableDeletionVectors"):
        result = pl.read_delta(str(tmp_path)).select("k", "x", "s", "p")
        assert as_set(result.to_dicts(), "k", "x", "s", "p") == mine
