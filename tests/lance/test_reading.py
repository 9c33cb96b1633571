"""Reads: every version of the corpus, projections, filters, limits, single rows, damage."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import shutil
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fault_store import FaultStore
from tests.lance import corpus
from trilake import lance
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import (
    FilterError,
    InvalidArgumentError,
    MissingFileError,
    TableNotFoundError,
    TrilakeError,
    VersionNotFoundError,
)
from trilake.lance import LanceDataset
from trilake.lance.scan.snapshot import Snapshot
from trilake.storage.memory import MemoryStore

#: Writes datasets in the legacy format, which these tests cover.
write_first = partial(lance.write_dataset, data_storage_version="legacy")

N = 2000
ROWS = pa.table(
    {
        "id": pa.array(range(N), pa.int64()),
        "name": [f"n{i % 50}" for i in range(N)],
        "x": [i / 4 for i in range(N)],
        "s": [{"a": i, "b": {"c": str(i)}} for i in range(N)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(N * 4, dtype="f4")), 4),
        "kind": pa.array(["red", "green", "blue"] * (N // 3) + ["red", "blue"]).dictionary_encode(),
    }
)


@pytest.fixture(scope="module")
def ds() -> LanceDataset:
    dataset = write_first(
        ROWS, "memory://lance-reading", mode="overwrite", max_rows_per_file=512, max_rows_per_group=64
    )
    dataset.delete("id % 5 = 0")
    return dataset


LIVE = ROWS.filter(pc.not_equal(pc.bit_wise_and(pc.multiply(ROWS["id"], 0), 0), 1)).filter(
    pa.array([i % 5 != 0 for i in range(N)])
)


# --- the corpus -------------------------------------------------------------------------------------------------------


def test_every_version_of_the_corpus(shared: Path) -> None:
    checked = 0
    for name in corpus.names(shared):
        for known in corpus.versions(shared, name):
            found = lance.dataset(corpus.folder(shared, name), known["version"])
            expected = corpus.expected(shared, name, known["version"])
            assert corpus.same(found.to_table(), expected), (name, known["version"])
            assert found.count_rows() == known["count_rows"] == len(found)
            assert [repr(f.metadata) for f in found.get_fragments()] == known.get("fragments", []), name
            ranks = list(range(expected.num_rows))
            random.Random(1).shuffle(ranks)
            assert repr(found.take(ranks).to_pydict()) == repr(
                expected.take(pa.array(ranks, pa.int64())).to_pydict()
            ), name
            found.validate()
            checked += 1
    assert checked == 35


def test_reading_does_not_change_the_corpus(shared: Path) -> None:
    folder = corpus.folder(shared, "append")
    before = sorted(p.name for p in folder.rglob("*"))
    lance.dataset(folder).to_table()
    assert sorted(p.name for p in folder.rglob("*")) == before


# --- projections and rows ---------------------------------------------------------------------------------------------


def test_project_columns_and_struct_fields(ds: LanceDataset) -> None:
    found = ds.to_table(["s.b.c", "id"], limit=2)
    assert found.to_pylist() == [{"s.b.c": "1", "id": 1}, {"s.b.c": "2", "id": 2}]
    empty = ds.to_table(columns=[])
    assert (empty.column_names, empty.num_rows) == ([], ds.count_rows())
    assert ds.to_table(columns=[], filter="id < 10").num_rows == ds.count_rows("id < 10")
    assert [b.num_rows for b in ds.to_batches(columns=[], limit=5, batch_size=2)] == [2, 2, 1]
    assert ds.to_table(columns=[], order_by=["id"], limit=3).num_rows == len(ds.take([0, 1, 2], columns=[])) == 3
    assert ds.to_table(columns=[], limit=2, with_row_id=True).column_names == ["_rowid"]
    assert ds.to_table(columns=["kind", "id"]).schema.names == ["kind", "id"]
    with pytest.raises(InvalidArgumentError, match="column 'nope' not found"):
        ds.to_table(columns=["nope"])


def test_batches_respect_row_groups_and_batch_size(ds: LanceDataset) -> None:
    sizes = [b.num_rows for b in ds.to_batches(columns=["id"])]
    assert sum(sizes) == LIVE.num_rows
    assert max(sizes) <= 64
    assert max(b.num_rows for b in ds.to_batches(batch_size=10)) == 10
    with pytest.raises(InvalidArgumentError):
        ds.to_table(batch_size=0)


def test_row_ids(ds: LanceDataset) -> None:
    found = ds.to_table(columns=["id"], with_row_id=True)
    ids = found["_rowid"].to_numpy()
    assert found.schema.names == ["id", "_rowid"]
    assert (((ids >> 32) * 512 + (ids & 0xFFFFFFFF)) == found["id"].to_numpy()).all()
    some = ids[[500, 3, 3, 1200]]
    assert ds._take_rows(some, ["id"])["id"].to_pylist() == found["id"].to_numpy()[[500, 3, 3, 1200]].tolist()
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        ds._take_rows([0])  # deleted
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        ds._take_rows([99 << 32])
    filtered = ds.to_table(columns=["name"], filter="id > 1990", with_row_id=True)
    assert ds._take_rows(filtered["_rowid"], ["id"])["id"].to_pylist() == [
        1991,
        1992,
        1993,
        1994,
        1996,
        1997,
        1998,
        1999,
    ]


@settings(max_examples=60)
@given(st.data())
def test_limit_and_offset(ds: LanceDataset, data: st.DataObject) -> None:
    limit = data.draw(st.none() | st.integers(0, N))
    offset = data.draw(st.integers(0, N))
    filter = data.draw(st.sampled_from([None, "id % 3 = 1", "id > 1500", "id < 0"]))
    expected = LIVE if filter is None else LIVE.filter(ds.snapshot.filter(filter).mask(LIVE))  # type: ignore[union-attr]
    found = ds.to_table(columns=["id"], filter=filter, limit=limit, offset=offset)
    assert found["id"].to_pylist() == expected.slice(offset, limit)["id"].to_pylist()
    assert ds.scanner(filter=filter, limit=limit, offset=offset).count_rows() == found.num_rows


@settings(max_examples=60)
@given(st.lists(st.integers(0, LIVE.num_rows - 1), max_size=40))
def test_take_returns_rows_in_the_requested_order(ds: LanceDataset, ranks: list[int]) -> None:
    assert ds.take(ranks).to_pydict() == LIVE.take(pa.array(ranks, pa.int64())).to_pydict()


def test_take_out_of_range(ds: LanceDataset) -> None:
    for bad in (-1, LIVE.num_rows):
        with pytest.raises(InvalidArgumentError, match=f"row {bad} is out of range"):
            ds.take([0, bad])
    with pytest.raises(InvalidArgumentError, match="must be integers"):
        ds.take([0.5])


def test_sample_and_head(ds: LanceDataset) -> None:
    found = ds.sample(100, ["id"])["id"].to_pylist()
    assert len(set(found)) == 100
    assert set(found) <= set(LIVE["id"].to_pylist())
    ordered = ds.sample(100, ["id"], randomize_order=False)["id"].to_pylist()
    assert ordered == sorted(ordered)
    assert ds.head(3, columns=["id"])["id"].to_pylist() == [1, 2, 3]
    assert ds.head(0).num_rows == 0
    with pytest.raises(InvalidArgumentError):
        ds.sample(N)


# --- filters ----------------------------------------------------------------------------------------------------------

FILTERS = [
    "id < 10",
    "id >= 100 AND id < 164 AND name = 'n7'",
    "x > 400 OR name IN ('n1', 'n2')",
    "s.a = 77",
    "s.b.c LIKE '99%'",
    "kind = 'green' AND id > 1900",
    "NOT (id > 5)",
    "name IS NULL",
    "id + 1 = 12",
    "x = 0.25 OR x = 499.75",
]


@pytest.mark.parametrize("text", FILTERS)
def test_filter_returns_the_rows_of_its_mask(ds: LanceDataset, text: str) -> None:
    condition = ds.snapshot.filter(text)
    assert condition is not None
    expected = LIVE.filter(condition.mask(LIVE))
    for columns in (["id"], ["name", "v"], None):
        found = ds.to_table(columns=columns, filter=text)
        projected = expected if columns is None else expected.select(columns)
        assert found.to_pylist() == projected.to_pylist()
        assert ds.to_table(columns=columns, filter=text, use_stats=False).equals(found)
    assert ds.count_rows(text) == expected.num_rows


@pytest.mark.parametrize("columns", [None, ["id"], ["name", "v"], ["v", "x"], ["s", "kind"]])
@pytest.mark.parametrize(
    ("low", "high"), [(0, 64), (0, 2000), (10, 700), (63, 129), (64, 128), (200, 600), (1999, 2000), (3000, 4000)]
)
def test_filter_on_sorted_column_reads_ranges(columns: list[str] | None, low: int, high: int) -> None:
    """Consecutive matching rows are read as a range; a deleted row or a gap ends the range."""
    uri = "memory://lance-ranges"
    write_first(ROWS, uri, mode="overwrite", max_rows_per_group=64)
    text = f"id >= {low} AND id < {high}"
    for deleted, more in ((None, ""), (None, " OR x = 400.0"), ("id IN (65, 301)", "")):
        if deleted:
            lance.dataset(uri).delete(deleted)
        found = lance.dataset(uri).to_table(columns=columns, filter=text + more, use_stats=False, with_row_id=True)
        live = [
            i for i in range(N) if (low <= i < high or (more and i == 1600)) and (not deleted or i not in (65, 301))
        ]
        assert found["_rowid"].to_pylist() == live
        assert (
            found.drop_columns(["_rowid"]).to_pylist()
            == ROWS.select(columns or ROWS.schema.names).take(pa.array(live, pa.int64())).to_pylist()
        )


def test_pyarrow_expressions(ds: LanceDataset) -> None:
    assert ds.count_rows((pc.field("id") < 10) & pc.field("name").is_valid()) == 8
    assert ds.to_table(columns=["id"], filter=pc.field("id") == 7).to_pylist() == [{"id": 7}]


def test_wrong_filters(ds: LanceDataset) -> None:
    with pytest.raises(FilterError):
        ds.to_table(filter="nope > 1")
    with pytest.raises(FilterError):
        ds.to_table(filter="id >")
    assert issubclass(FilterError, ValueError)


def test_statistics_skip_row_groups() -> None:
    store = FaultStore(MemoryStore())
    from trilake.lance.commands.fragment_writer import WriteOptions
    from trilake.lance.commands.write import write
    from trilake.lance.file.storage_version import LEGACY

    options = WriteOptions(512, 64, storage_version=LEGACY)
    write(store, ROWS.schema, ROWS.to_batches(), "create", SYSTEM_RUNTIME, options)
    snapshot = Snapshot.open(store, SYSTEM_RUNTIME)
    plan = lambda text: snapshot.plan(["id"], text)  # noqa: E731
    from trilake.lance.scan.scan import chunks

    def read_groups(text: str) -> int:
        return sum(c.stop - c.start for c in chunks(plan(text), snapshot.readers))

    assert read_groups("id = 700") == 64
    assert read_groups("id BETWEEN 60 AND 70") == 128
    assert read_groups("id < 0") == 0
    assert read_groups("name = 'zzz'") == 0
    assert read_groups("s.a > 1990") == 2000 - 1984
    assert read_groups("kind = 'red'") == 2000


def test_take_reads_few_bytes() -> None:
    inner = MemoryStore()
    from trilake.lance.commands.write import write

    rows = pa.table({"id": range(200_000), "t": [f"text {i}" for i in range(200_000)]})
    write(inner, rows.schema, rows.to_batches(), "create", SYSTEM_RUNTIME)
    store = FaultStore(inner)
    snapshot = Snapshot.open(store, SYSTEM_RUNTIME)
    snapshot.take([5], snapshot.view.columns(None))
    store.forget()
    found = snapshot.take([7, 150_000, 199_999], snapshot.view.columns(None))
    assert found["t"].to_pylist() == ["text 7", "text 150000", "text 199999"]
    assert len(store.calls) <= 4


# --- versions ---------------------------------------------------------------------------------------------------------


def test_versions_and_time_travel(tmp_path: Path) -> None:
    start = dt.datetime.now()  # noqa: DTZ005 - as users of the format write it
    dataset = write_first(ROWS.select(["id"]), tmp_path / "t")
    write_first(ROWS.select(["id"]), tmp_path / "t", mode="append")
    assert [v["version"] for v in dataset.versions()] == [1, 2]
    assert all(start <= v["timestamp"] <= dt.datetime.now() for v in dataset.versions())  # noqa: DTZ005
    assert (dataset.version, dataset.latest_version) == (1, 2)
    assert dataset.checkout_version(2).count_rows() == 2 * N
    second = dataset.versions()[1]["timestamp"]
    assert lance.dataset(tmp_path / "t", asof=second).version == 1
    assert lance.dataset(tmp_path / "t", asof=(second + dt.timedelta(seconds=1)).isoformat()).version == 2
    with pytest.raises(VersionNotFoundError, match="before the first"):
        lance.dataset(tmp_path / "t", asof="2001-01-01")
    with pytest.raises(ValueError, match="no version 7"):
        lance.dataset(tmp_path / "t", 7)
    with pytest.raises(TableNotFoundError) as caught:
        lance.dataset(tmp_path / "other")
    assert isinstance(caught.value, ValueError)
    dataset.checkout_latest()
    assert dataset.version == 2


def test_datasets_fragments_and_metadata_are_picklable(ds: LanceDataset) -> None:
    again = pickle.loads(pickle.dumps(ds))
    assert again.version == ds.version
    assert again.to_table().equals(ds.to_table())
    fragment = pickle.loads(pickle.dumps(ds.get_fragments()[1]))
    assert fragment.to_table().equals(ds.get_fragments()[1].to_table())
    metadata = ds.get_fragments()[0].metadata
    assert pickle.loads(pickle.dumps(metadata)) == metadata


# --- fragments --------------------------------------------------------------------------------------------------------


def test_fragments_read_only_live_rows(ds: LanceDataset) -> None:
    found = ds.get_fragments()
    assert [f.fragment_id for f in found] == [0, 1, 2, 3]
    one = found[1]
    assert (one.physical_rows, one.num_deletions, one.count_rows()) == (512, 102, 410)
    assert one.schema == ds.schema
    assert one.head(2, columns=["id"])["id"].to_pylist() == [512, 513]
    assert one.take([0, 5, 2], columns=["id"])["id"].to_pylist() == [512, 518, 514]
    assert one.to_table(["id"], filter="id < 515")["id"].to_pylist() == [512, 513, 514]
    assert one.count_rows("id < 515") == 3
    assert [b.num_rows for b in one.to_batches(["id"], offset=400)] == [10]
    assert ds.to_table(["id"], limit=1).num_rows == 1
    picked = ds.scanner(["id"], fragments=[found[3], found[0]]).to_table()["id"].to_pylist()
    assert (picked[0], picked[-1]) == (1536, 511)
    assert ds.get_fragment(9) is None
    assert ds.get_fragments(pc.field("id") > 1990)[0].fragment_id == 3
    with pytest.raises(InvalidArgumentError):
        one.take([410])
    deletion = one.deletion_file()
    assert deletion is not None
    assert deletion.startswith("_deletions/1-1-")


def test_fragment_metadata_is_json(ds: LanceDataset) -> None:
    import json

    metadata = ds.get_fragments()[0].metadata
    text = json.dumps(metadata.to_json())
    assert lance.FragmentMetadata.from_json(text) == metadata
    assert metadata.to_json()["deletion_file"]["file_type"] == "array"
    for bad in ("", "{}", "[]", '{"id": 0, "files": [{}]}', '{"id": "x", "files": []}'):
        with pytest.raises(InvalidArgumentError):
            lance.FragmentMetadata(bad)


# --- as an Arrow dataset ----------------------------------------------------------------------------------------------


def test_duckdb_and_polars(ds: LanceDataset) -> None:
    assert isinstance(ds, pa.dataset.Dataset)
    with duckdb.connect() as connection:
        connection.register("ds", ds)
        assert connection.sql("SELECT count(*), sum(id) FROM ds WHERE id < 100").fetchall() == [(80, 4000)]
        assert connection.sql("SELECT count(*) FROM ds").fetchall() == [(LIVE.num_rows,)]
        found = connection.sql("SELECT kind, max(s.a) AS m FROM ds WHERE name = 'n7' GROUP BY ALL").fetchall()
        assert len(found) == 3
    frame = pl.scan_pyarrow_dataset(ds).filter(pl.col("id") < 5).select("id", "name").collect()
    assert frame["id"].to_list() == [1, 2, 3, 4]


def test_arrow_dataset_methods(ds: LanceDataset) -> None:
    assert ds.filter(pc.field("id") < 3).to_table()["id"].to_pylist() == [1, 2]
    assert ds.sort_by([("id", "descending")]).head(1)["id"].to_pylist() == [1999]
    other = pa.table({"id": pa.array([1, 2], pa.int64()), "y": ["a", "b"]})
    narrow = write_first(LIVE.select(["id", "x"]), "memory://lance-narrow", mode="overwrite")
    assert narrow.join(other, "id", join_type="inner").to_table().num_rows == 2
    assert narrow.replace_schema(pa.schema({"id": pa.int32()})).to_table().schema.field("id").type == pa.int32()
    scanner = ds.scanner(["id"], filter="id < 10")
    assert scanner.dataset_schema == ds.schema
    assert scanner.projected_schema == pa.schema({"id": pa.int64()})
    assert scanner.head(2)["id"].to_pylist() == [1, 2]
    assert scanner.take([2])["id"].to_pylist() == [3]
    assert scanner.to_reader().read_all().num_rows == 8
    tagged = next(iter(scanner.scan_batches()))
    assert tagged.record_batch.num_rows == 8
    assert "rows to read: 64 of 2000" in scanner.explain_plan(verbose=True)


# --- damage -----------------------------------------------------------------------------------------------------------


def test_missing_files_are_reported(shared: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t"
    shutil.copytree(corpus.folder(shared, "append"), copy)
    found = lance.dataset(copy)
    next(iter((copy / "data").iterdir())).unlink()
    with pytest.raises(MissingFileError):
        found.to_table()
    with pytest.raises(MissingFileError):
        found.validate()


@pytest.mark.parametrize("name", ["structs", "delete_few", "merge_columns"])
def test_damaged_datasets_raise_typed_errors(shared: Path, tmp_path: Path, name: str) -> None:
    rng = random.Random(7)
    source = corpus.folder(shared, name)
    kept = 0
    files = [p.relative_to(source) for p in source.rglob("*") if p.is_file()]
    for i in range(60):
        copy = tmp_path / str(i)
        shutil.copytree(source, copy)
        victim = copy / rng.choice(files)
        victim.chmod(0o644)
        data = bytearray(victim.read_bytes())
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data) + 1)]
        for _ in range(rng.randint(0, 3)):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        victim.write_bytes(data)
        try:
            found = lance.dataset(copy)
            found.to_table()
            found.take(range(min(5, len(found))))
            kept += 1
        except TrilakeError:
            pass
        shutil.rmtree(copy)
    assert kept > 0
