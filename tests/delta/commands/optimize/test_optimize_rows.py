"""Compaction and purge keep all rows: deleted rows, ids, mapped columns, older files, other formats."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as TheirTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import examples
from tests.delta.commands.optimize.optimize_tables import VECTORS, actions, append, delete, ids, small_files
from tests.delta.tables import new_uri, opened, rows
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.optimize.bins import purgeable
from trilake.delta.commit import row_tracking

TRACKED = {"delta.enableRowTracking": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


# --- rows are unchanged ----------------------------------------------------------------------------------------------


def test_optimize_purges_deleted_rows() -> None:
    uri = new_uri()
    small_files(uri, files=2, each=10, properties=VECTORS)
    delete(uri, "id in (1, 2, 11)")
    done = opened(uri).optimize()
    assert done.metrics.deletion_vector_stats is not None
    assert done.metrics.deletion_vector_stats.num_deletion_vectors_removed == 2
    assert done.metrics.deletion_vector_stats.num_deletion_vector_rows_removed == 3
    (add,) = opened(uri).snapshot.adds.to_pylist()
    assert add["deletionVector"] is None
    assert json.loads(add["stats"])["numRecords"] == 17
    assert ids(uri) == [i for i in range(20) if i not in (1, 2, 11)]
    (removed, *_) = [a["remove"] for a in actions(uri) if "remove" in a]
    assert removed["deletionVector"]["cardinality"] == 2


@pytest.mark.parametrize(("share", "written"), [(0.05, 1), (0.5, 0)])
def test_single_file_is_rewritten_above_deleted_share(share: float, written: int) -> None:
    uri = new_uri()
    small_files(uri, files=1, each=10, properties=VECTORS)
    delete(uri, "id < 3")
    assert opened(uri).optimize(deleted_share=share).files_added == written


def test_purge_rewrites_only_files_with_deleted_rows() -> None:
    uri = new_uri()
    small_files(uri, files=3, each=100, properties=VECTORS)
    delete(uri, "id = 5")
    done = opened(uri).purge()
    assert (done.files_removed, done.files_added) == (1, 1)
    info = actions(uri)[0]["commitInfo"]
    assert info["operation"] == "REORG"
    assert info["operationParameters"] == {"predicate": "[]", "applyPurge": "true"}
    assert opened(uri).snapshot.adds["deletionVector"].null_count == 3
    assert opened(uri).purge().version == done.version
    assert ids(uri) == [i for i in range(300) if i != 5]


def test_purge_removes_dropped_columns() -> None:
    uri = new_uri()
    small_files(uri, files=2, properties={**TRACKED, "delta.columnMapping.mode": "name"})
    table = opened(uri)
    dropped = next(f.physical_name for f in table.snapshot.schema.fields if f.name == "p")
    Alter(table.log).drop_columns("p")
    append(uri, pa.table({"id": [100]}))
    snapshot = table.log.snapshot()
    assert len(purgeable(table.log.store, snapshot)) == 2
    assert opened(uri).purge().files_removed == 2
    assert opened(uri).purge().files_removed == 0, "columns with ids of rows are not dropped columns"
    for path in opened(uri).files()["path"].to_pylist():
        assert dropped not in pq.read_schema(pa.BufferReader(table.log.store.read(path))).names
    assert ids(uri) == [*range(6), 100]


def test_rows_keep_their_row_ids() -> None:
    uri = new_uri()
    small_files(uri, files=3, properties=TRACKED)
    opened(uri).optimize()
    small_files(uri, files=1)
    opened(uri).optimize()
    snapshot = opened(uri).snapshot
    (add,) = snapshot.adds.to_pylist()
    names = [snapshot.metadata.configuration[k] for k in (row_tracking.ID_COLUMN, row_tracking.VERSION_COLUMN)]
    raw = pq.read_table(pa.BufferReader(opened(uri).log.store.read(add["path"])))
    # The first optimization reserved ids 9 to 17 for its file; none of its rows uses them.
    assert raw[names[0]].to_pylist() == [*range(9), 18, 19, 20]
    assert raw[names[1]].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert add["defaultRowCommitVersion"] == 5


def test_change_feed_ignores_optimize() -> None:
    uri = new_uri()
    small_files(uri, files=3, properties={**FEED, **VECTORS})
    delete(uri, "id = 1")
    before = opened(uri).changes(0).num_rows
    version = opened(uri).optimize().version
    opened(uri).purge()
    assert opened(uri).changes(version).num_rows == 0
    assert opened(uri).changes(0).num_rows == before == 10


def test_identity_values_and_metadata_are_kept() -> None:
    uri = new_uri()
    trilake.create(uri, {"id": "bigint", "v": "bigint"}, identity=["id"])
    for n in range(3):
        append(uri, pa.table({"v": [n, n]}))
    before, metadata = rows(opened(uri).to_arrow()), opened(uri).metadata
    assert opened(uri).optimize().files_removed == 3
    assert rows(opened(uri).to_arrow()) == before
    assert opened(uri).metadata == metadata


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns(mode: str) -> None:
    uri = new_uri()
    small_files(uri, files=2, partition_by=["p"], properties={"delta.columnMapping.mode": mode})
    Alter(opened(uri).log).rename_column("id", "number")
    Alter(opened(uri).log).add_columns({"note": "string"})
    append(uri, pa.table({"number": [50], "p": ["p0"], "note": ["x"]}))
    before = rows(opened(uri).to_arrow())
    assert opened(uri).optimize().files_added == 2
    assert rows(opened(uri).to_arrow()) == before
    assert opened(uri).count("number = 50 and note = 'x'") == 1
    assert sorted(opened(uri).files("number = 50")["num_records"].to_pylist()) == [4]


def test_files_older_than_a_schema_change_are_compacted() -> None:
    uri = new_uri()
    append(uri, pa.table({"n": pa.array([1, 2], pa.int32())}), properties={"delta.enableTypeWidening": "true"})
    Alter(opened(uri).log).change_type("n", "bigint")
    Alter(opened(uri).log).add_columns({"s": "struct<a: int, b: array<string>>"})
    nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    append(uri, pa.table({"n": [1 << 40], "s": pa.array([{"a": 1, "b": ["x", None]}], nested)}))
    before = rows(opened(uri).to_arrow())
    opened(uri).optimize()
    assert rows(opened(uri).to_arrow()) == before
    (path,) = opened(uri).files()["path"].to_pylist()
    assert pq.read_schema(pa.BufferReader(opened(uri).log.store.read(path))).field("n").type == pa.int64()


def test_files_with_nan_are_compacted_once() -> None:
    """A file with NaN has no bounds; files with and without bounds are combined only once."""
    uri = new_uri()
    columns = {"x": 1.0, "y": 1.0, "z": None}
    schema = pa.schema([(n, pa.float64()) for n in columns])
    for n in range(4):
        result = {**columns, "y": float("nan") if n == 2 else float(n)}
        append(uri, pa.Table.from_pylist([result], schema))
    assert opened(uri).optimize().files_added == 1
    (text,) = opened(uri).files()["stats"].to_pylist()
    assert set(json.loads(text)["maxValues"]) == {"x"}
    assert opened(uri).optimize().files_added == 0
    assert sorted(map(str, opened(uri).to_arrow()["y"].to_pylist())) == ["0.0", "1.0", "3.0", "nan"]
    assert opened(uri).count("y > 2") == 2, "NaN is greater than all else"


@pytest.mark.parametrize("provider", ["trevni", "lance"])
def test_files_of_another_format_are_compacted(provider: str) -> None:
    uri = new_uri()
    small_files(uri, files=3, data_format=provider)
    assert opened(uri).optimize().files_added == 1
    assert ids(uri) == list(range(9))
    assert opened(uri).optimize(zorder_by="id").files_removed == 1
    (path,) = opened(uri).files()["path"].to_pylist()
    assert path.endswith(provider)
    assert ids(uri) == list(range(9))


#: A step of a random history: append rows, delete by remainder, or optimize.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 20)),
        st.tuples(st.just("delete"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["optimize", "purge", "zorder"]), st.integers(1, 5000)),
    ),
    min_size=3,
    max_size=8,
)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    vectors=st.booleans(),
    tracked=st.booleans(),
    mapped=st.sampled_from(["none", "name"]),
    partitioned=st.booleans(),
)
def test_random_tables_keep_their_rows(
    steps: list[tuple[str, int]], vectors: bool, tracked: bool, mapped: str, partitioned: bool
) -> None:
    uri = new_uri()
    properties = {**(VECTORS if vectors else {}), **(TRACKED if tracked else {}), "delta.columnMapping.mode": mapped}
    expected: list[dict[str, Any]] = []

    def more(count: int) -> None:
        start = len(expected) * 7
        new = [
            {"id": start + i, "p": None if i % 3 == 0 else f"p/{i % 3}", "x": None if i % 5 == 0 else i / 3}
            for i in range(count)
        ]
        schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("x", pa.float64())])
        append(
            uri,
            pa.Table.from_pylist(new, schema),
            partition_by=["p"] if partitioned else None,
            properties=None if expected or opened_once else properties,
        )
        opened_once.append(1)
        expected.extend(new)

    opened_once: list[int] = []
    more(5)
    for kind, number in steps:
        if kind == "append":
            more(number)
        elif kind == "delete":
            delete(uri, f"id % 7 = {number}")
            expected[:] = [r for r in expected if r["id"] % 7 != number]
        elif kind == "optimize":
            opened(uri).optimize(target_size=number)
        elif kind == "zorder":
            opened(uri).optimize(zorder_by=("id", "x"), target_size=number)
        else:
            opened(uri).purge()
        assert rows(opened(uri).to_arrow()) == sorted(expected, key=repr)
    version = opened(uri).optimize(target_size=1 << 20).version
    assert opened(uri).optimize(target_size=1 << 20).version == version, "a second run finds nothing to do"
    assert rows(opened(uri).to_arrow()) == sorted(expected, key=repr)


def test_deltalake_and_polars_read_optimized_tables(tmp_path: Any) -> None:
    uri = str(tmp_path)
    small_files(uri, files=3, partition_by=["p"])
    opened(uri).optimize()
    append(uri, pa.table({"id": [100], "p": ["p0"]}))
    opened(uri).optimize(zorder_by="id")
    expected = rows(opened(uri).to_arrow())
    assert rows(TheirTable(uri).to_pyarrow_table()) == expected
    assert rows(pl.read_delta(uri).to_arrow().cast(opened(uri).schema)) == expected
    assert TheirTable(uri).history(1)[0]["operation"] == "OPTIMIZE"


def test_tables_optimized_by_deltalake_are_read(tmp_path: Any) -> None:
    uri = str(tmp_path)
    small_files(uri, files=3)
    TheirTable(uri).optimize.compact()
    assert ids(uri) == list(range(9))
    assert opened(uri).optimize().files_added == 0
