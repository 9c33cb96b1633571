"""What programs written for pylance 0.8.19 rely on: names, arguments, results, and the built-in kinds of errors."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import pickle
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from trilake import lance
from trilake.lance import LanceDataset, LanceFragment, LanceOperation
from trilake.lance.cache import CachedDataset
from trilake.lance.commit import CommitConflictError
from trilake.lance.dataset import LanceScanner, ScannerBuilder
from trilake.lance.fragment import write_fragments
from trilake.lance.lance import Compaction
from trilake.lance.optimize import RewriteResult
from trilake.lance.progress import FileSystemFragmentWriteProgress, FragmentWriteProgress
from trilake.lance.sampler import maybe_sample, reservoir_sampling
from trilake.lance.vector import vec_to_table

TABLE = pa.table({"a": range(100), "b": range(100)})


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    return tmp_path / "t.lance"


@pytest.fixture
def made(uri: Path) -> LanceDataset:
    return lance.write_dataset(TABLE, uri)


class Told(FragmentWriteProgress):
    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.done: list[Any] = []

    def begin(self, fragment: Any, multipart_id: str | None = None, **more: Any) -> None:
        self.begun.append(fragment)

    def complete(self, fragment: Any, **more: Any) -> None:
        self.done.append(fragment)


def vectors(rows: int = 300, size: int = 8, low: float = 0.0) -> pa.Table:
    mat = np.random.default_rng(rows).uniform(low, low + 1, (rows, size))
    return vec_to_table(mat).append_column("id", pa.array(range(rows)))


# --- modules ---------------------------------------------------------------------------------------------------------


def test_modules_are_found_by_any_way() -> None:
    code = (
        "import trilake.lance as lance; from trilake.lance.dataset import LanceDataset;"
        "assert callable(lance.dataset) and lance.util.KMeans and lance.vector.vec_to_table and lance.arrow.BFloat16;"
        "assert lance.progress.FragmentWriteProgress and lance.optimize.Compaction and lance.fragment.LanceFragment;"
        "assert lance.schema.schema_to_json is lance.schema_to_json and lance.cleanup.cleanup_partial_writes;"
        "assert lance.dataset('memory://known-names').count_rows() == 1 and lance.__version__"
    )
    prepare = "import trilake.lance as l, pyarrow as pa; l.write_dataset(pa.table({'a':[1]}), 'memory://known-names');"
    subprocess.run([sys.executable, "-c", prepare + code], check=True)


# --- writing ---------------------------------------------------------------------------------------------------------


def test_whatever_has_rows_can_be_written(tmp_path: Path) -> None:
    wanted = pa.table({"a": [1.0, 2.0], "b": [20, 30]})
    narrow = pa.table({"a": [1.0, 2.0], "b": pa.array([20, 30], pa.int32())})
    pq.write_to_dataset(wanted, tmp_path / "parquet")
    given: list[tuple[pa.Schema | None, Any]] = [
        (None, wanted),
        (None, wanted.to_batches()[0]),
        (None, wanted.to_pandas()),
        (None, pl.from_arrow(wanted)),
        (wanted.schema, wanted.to_batches()),
        (wanted.schema, iter(narrow.to_batches())),
        (None, wanted.to_reader()),
        (None, ds.dataset(tmp_path / "parquet")),
        (None, ds.dataset(tmp_path / "parquet").scanner()),
    ]
    for i, (schema, rows) in enumerate(given):
        assert lance.write_dataset(rows, tmp_path / str(i), schema=schema).to_table() == wanted
    again = lance.dataset(tmp_path / "0")
    assert lance.write_dataset(again, tmp_path / "again").to_table() == wanted
    assert lance.write_dataset(again.to_batches(), tmp_path / "more", schema=again.schema).to_table() == wanted


def test_errors_of_writes(uri: Path, made: LanceDataset) -> None:
    with pytest.raises(OSError):
        lance.write_dataset(TABLE, uri)
    for other in (pa.table({"c": [1], "b": [1]}), pa.table({"a": ["x"], "b": [1]})):
        with pytest.raises(OSError):
            lance.write_dataset(other, uri, mode="append")
    with pytest.raises(ValueError, match="mode"):
        lance.write_dataset(TABLE, uri, mode="what")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Unknown data type"):
        lance.write_dataset(3, uri, mode="append")
    with pytest.raises(ValueError, match="Must provide schema"):
        lance.write_dataset(TABLE.to_batches(), uri, mode="append")
    texts = pa.record_batch({"a": ["x"], "b": ["y"]})
    with pytest.raises(ValueError, match="does not match the expected schema"):
        lance.write_dataset([texts], uri, schema=TABLE.schema, mode="append")
    with pytest.raises(TypeError, match="Expected RecordBatch"):
        lance.write_dataset([1], uri, schema=TABLE.schema, mode="append")


def test_metadata_of_schemas_is_text(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    with pytest.raises(ValueError):
        lance.write_dataset(rows.replace_schema_metadata({"k": pickle.dumps("x")}), tmp_path)
    text = rows.replace_schema_metadata({"k": base64.b64encode(pickle.dumps("x"))})
    assert lance.write_dataset(text, tmp_path).schema.equals(text.schema, check_metadata=True)


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lance.write_dataset(TABLE, "rel.lance")
    assert lance.dataset("rel.lance").to_table() == TABLE
    assert lance.dataset(tmp_path / "rel.lance").uri == str(tmp_path / "rel.lance")
    monkeypatch.chdir("/")
    with pytest.raises(ValueError):
        lance.dataset("rel.lance")
    monkeypatch.setenv("HOME", str(tmp_path))
    lance.write_dataset(TABLE, "~/home.lance")
    assert lance.dataset(tmp_path / "home.lance").to_table() == lance.dataset("~/home.lance").to_table()


def test_an_append_may_begin_a_dataset(uri: Path) -> None:
    assert lance.write_dataset(TABLE, uri, mode="append").to_table() == TABLE
    empty = pa.Table.from_pandas(
        pd.DataFrame(columns=["s", "n"]), schema=pa.schema({"s": pa.string(), "n": pa.int64()})
    )
    found = lance.write_dataset(empty, uri.parent / "empty")
    assert (found.count_rows(), found.schema) == (0, empty.schema.remove_metadata())
    assert lance.write_dataset(pa.table({"s": ["x"], "n": [1]}), found.uri, mode="append").count_rows() == 1


def test_progress_of_writes(tmp_path: Path) -> None:
    told = Told()
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "a", max_rows_per_file=5, progress=told)
    assert (len(told.begun), len(told.done)) == (2, 2)
    fragments = write_fragments(
        pa.table({"a": range(1024)}), tmp_path / "b", max_rows_per_group=512, max_bytes_per_file=1024, progress=told
    )
    assert (len(fragments), len(told.begun)) == (2, 4)


def test_progress_in_files(tmp_path: Path) -> None:
    folder, uri = tmp_path / "progress", tmp_path / "t"
    progress = FileSystemFragmentWriteProgress(folder, metadata={"worker": "7"})
    made = LanceFragment.create(uri, TABLE, progress=progress)
    assert not (folder / "fragment_0.in_progress").exists()
    assert made == lance.FragmentMetadata.from_json((folder / "fragment_0.json").read_text())

    def failing() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise RuntimeError("it broke")

    with pytest.raises(Exception, match="it broke"):
        LanceFragment.create(
            uri, pa.RecordBatchReader.from_batches(TABLE.schema, failing()), fragment_id=1, progress=progress
        )
    marker = json.loads((folder / "fragment_1.in_progress").read_text())
    assert (marker["fragment_id"], marker["metadata"]) == (1, {"worker": "7"})
    assert json.loads((folder / "fragment_1.json").read_text())["id"] == 1
    assert progress.cleanup_partial_writes(str(uri)) == 1
    assert not list(folder.glob("fragment_1.*"))


# --- locks -----------------------------------------------------------------------------------------------------------


def test_a_lock_is_held_for_each_commit(tmp_path: Path) -> None:
    seen: list[object] = []

    @contextlib.contextmanager
    def lock(version: int) -> Iterator[None]:
        seen.append(version)
        yield
        seen.append("released")

    made = lance.write_dataset(TABLE, tmp_path / "a", commit_lock=lock)
    assert seen == [1, "released"]
    guarded = lance.dataset(made.uri, commit_lock=lock)
    guarded.delete("a = 1")
    guarded.update({"b": "b + 1"})
    assert seen[2:] == [2, "released", 3, "released"]
    with pytest.raises(TypeError, match="must be a function"):
        lance.write_dataset(TABLE, tmp_path / "b", commit_lock=3)


def test_a_lock_is_held_for_commits_on_a_version_that_was_checked_out(tmp_path: Path) -> None:
    held: list[int] = []

    @contextlib.contextmanager
    def lock(version: int) -> Iterator[None]:
        held.append(version)
        yield

    made = lance.write_dataset(TABLE, tmp_path / "a")
    made.delete("a < 3")
    lance.dataset(made.uri, commit_lock=lock).checkout_version(1).restore()
    lance.dataset(made.uri, commit_lock=lock, asof="9999-01-01").delete("a < 4")
    assert held == [3, 4]


def test_locks_that_fail(tmp_path: Path) -> None:
    @contextlib.contextmanager
    def at_the_end(version: int) -> Iterator[None]:
        yield
        raise RuntimeError("hello world!")

    @contextlib.contextmanager
    def late(version: int) -> Iterator[None]:
        yield
        raise CommitConflictError

    @contextlib.contextmanager
    def taken(version: int) -> Iterator[None]:
        if version:
            raise CommitConflictError
        yield

    with pytest.raises(Exception, match="hello world!"):
        lance.write_dataset(TABLE, tmp_path / "a", commit_lock=at_the_end)
    with pytest.raises(Exception, match="CommitConflictError"):
        lance.write_dataset(TABLE, tmp_path / "late", commit_lock=late)
    # What was committed stands, with its files.
    assert lance.dataset(tmp_path / "a").to_table() == lance.dataset(tmp_path / "late").to_table() == TABLE
    with pytest.raises(OSError, match="CommitConflictError"):
        lance.write_dataset(TABLE, tmp_path / "b", commit_lock=taken)
    with pytest.raises(ValueError):
        lance.dataset(tmp_path / "b")
    with pytest.raises(Exception, match="CommitConflictError"):
        lance.dataset(tmp_path / "a", commit_lock=taken).delete("a < 10")


# --- reading ---------------------------------------------------------------------------------------------------------


def test_versions_and_times(uri: Path, made: LanceDataset) -> None:
    before = dt.datetime.now()  # noqa: DTZ005 - times of versions are local ones
    newer = lance.write_dataset(pa.table({"s": ["x"]}), uri, mode="overwrite")
    assert (made.version, made.latest_version, newer.version, newer.latest_version) == (1, 2, 2, 2)
    first, second = newer.versions()
    assert isinstance(first["timestamp"], dt.datetime)
    assert (first["version"], first["metadata"], first["timestamp"] < second["timestamp"]) == (1, {}, True)
    for asof in (before, pd.Timestamp(before), str(before)):
        assert lance.dataset(uri, asof=asof).version == 1
    for bad in ({"version": 99}, {"version": "no-tag"}, {"asof": "2000-01-01 00:00:00"}):
        with pytest.raises(ValueError):
            lance.dataset(uri, **bad)
    for nowhere in (99, "no-tag"):
        with pytest.raises(OSError):
            newer.checkout_version(nowhere)
    old = lance.dataset(uri, version=1)
    old.restore()
    assert (old.version, old.count_rows()) == (3, 100)
    stats = old.cleanup_old_versions(older_than=dt.timedelta(0))
    assert (stats.old_versions, stats.bytes_removed > 0) == (2, True)


def test_rows_by_place(made: LanceDataset) -> None:
    assert made.take([5, 3, 5])["a"].to_pylist() == [5, 3, 5]
    assert made.take([], columns=["a"]).num_rows == 0
    assert made.sample(4, columns=["a"]).column_names == ["a"]
    assert made.sample(3, columns=["a"], sorted=True).num_rows == 3
    assert made.head(3, columns=["b"]).to_pydict() == {"b": [0, 1, 2]}
    with pytest.raises(OSError, match="row 1000 is beyond"):
        made.take([1000])
    with pytest.raises(OSError):
        made._take_rows([2**40])
    with pytest.raises(ValueError):
        made.sample(1000)


def test_scans(made: LanceDataset) -> None:
    assert made.to_table(limit=10, offset=10) == TABLE.slice(10, 10)
    assert made.to_table(filter=pc.field("b") > 50, columns=["a"])["a"].to_pylist() == list(range(51, 100))
    assert [b.num_rows for b in made.scanner(batch_size=16).to_batches()][:6] == [16] * 6
    assert made.scanner(columns=["a"]).projected_schema == pa.schema({"a": pa.int64()})
    assert made.scanner().dataset_schema == made.schema
    assert made.count_rows(filter="a < 10") == made.scanner(filter="a < 10").count_rows() == 10
    parts = iter(made.get_fragments())
    assert made.scanner(fragments=parts, scan_in_order=False).to_table() == TABLE
    assert pickle.loads(pickle.dumps(made)).to_table() == TABLE
    assert pl.scan_pyarrow_dataset(made).filter(pl.col("a") == 3).collect().height == 1
    counted: Any = duckdb.query("SELECT count(*) FROM made WHERE a < 3")
    assert counted.fetchall() == [(3,)]
    built = ScannerBuilder(made).columns(["a"]).filter("a > 97").with_row_id().batch_readahead(4).to_scanner()
    assert isinstance(built, LanceScanner)
    assert built.to_table().column_names == ["a", "_rowid"]
    for bad in ({"limit": -1}, {"offset": -1}, {"filter": "zz > 1"}, {"filter": "a >"}, {"columns": ["q"]}):
        with pytest.raises(ValueError):
            made.to_table(**bad)
    with pytest.raises(TypeError, match="iterable of LanceFragment"):
        made.scanner(fragments=[1])  # type: ignore[list-item]
    assert "LanceScan" in made.scanner().explain_plan()


def test_sql_that_is_used(tmp_path: Path) -> None:
    start = dt.datetime.fromisoformat("2021-01-01")
    rows = pa.table(
        {
            "n": pa.array(range(100), pa.int64()),
            "f": pa.array(np.arange(100) * 2 / 3, pa.float32()),
            "r": pa.StructArray.from_arrays(
                [
                    pa.array(np.arange(100) < 50),
                    pa.array([start.date() + dt.timedelta(i) for i in range(100)]),
                    pa.array([start + dt.timedelta(hours=i) for i in range(100)]),
                ],
                names=["flag", "date", "dt"],
            ),
            "s": ["aa" if i % 4 == 0 else "bb" if i % 4 == 1 else "cab" for i in range(100)],
            "dec": pa.array([Decimal(i) for i in range(100)], pa.decimal128(6, 3)),
            "silly :name": range(100),
            "CAPS": range(100),
        }
    )
    made = lance.write_dataset(rows, tmp_path)
    for text, count in (
        ("n >= 50", 50),
        ("n == 50", 1),
        ("n != 50", 99),
        ("f < 30.0", 45),
        ("s in ('aa', 'bb')", 50),
        ("s LIKE 'a%'", 25),
        ("s NOT LIKE 'a%'", 75),
        ("regexp_match(s, 'c.+')", 50),
        ("r.flag", 50),
        ("r.date = cast('2021-01-01' as date)", 1),
        ("r.date = DATE '2021-01-01'", 1),
        ("r.date >= cast('2021-01-31' as date)", 70),
        ("cast(r.date as string) = '2021-01-01'", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as timestamp)", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as timestamp(6))", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as datetime)", 1),
        ("r.dt = cast('2021-01-01 00:00:00' as datetime(6))", 1),
        ("r.dt = TIMESTAMP '2021-01-01 00:00:00'", 1),
        ("r.dt = TIMESTAMP(6) '2021-01-01 00:00:00'", 1),
        ("dec = DECIMAL(5,3) '12.000'", 1),
        ("dec >= DECIMAL(5,3) '50.000'", 50),
        ("`silly :name` > 97", 2),
        ("`CAPS` == 0", 1),
        ("n = 1 * -1 + 4", 1),
        ("n <= 2 + -2", 1),
        ("n % 10 = 0 AND n < 50", 5),
        ("true", 100),
        ("n IS NOT NULL", 100),
    ):
        assert made.count_rows(text) == count, text


# --- changes ---------------------------------------------------------------------------------------------------------


def test_changes(uri: Path, made: LanceDataset) -> None:
    made.delete("a < 10")
    made.delete(pc.field("a") < 20)
    assert (made.version, made.count_rows(), made.stats.dataset_stats()["num_deleted_rows"]) == (3, 80, 20)
    with pytest.raises(OSError):
        made.delete("zz = 1")
    made.update({"b": "b + 1"}, where="a < 30")
    assert made.to_table(filter="a = 25")["b"].to_pylist() == [26]
    for bad in ({"zz": "1"}, {"b": "zz + 1"}):
        with pytest.raises(ValueError):
            made.update(bad)
    made.delete("true")
    assert made.count_rows() == 0


def test_updates_of_all_types(tmp_path: Path) -> None:
    when = dt.datetime.fromisoformat("2021-01-02")
    kinds = {
        "i": (pa.int32(), "2", 2),
        "u": (pa.uint32(), "2", 2),
        "s": (pa.string(), "'bar'", "bar"),
        "ls": (pa.large_string(), "'bar'", "bar"),
        "f": (pa.float32(), "2.0", 2.0),
        "b": (pa.bool_(), "false", False),
        "d": (pa.date32(), "DATE '2021-01-02'", when.date()),
        "ns": (pa.timestamp("ns"), 'TIMESTAMP "2021-01-02 00:00:00"', when),
        "ms": (pa.timestamp("ms"), "TIMESTAMP '2021-01-02 00:00:00'", when),
        "v": (pa.list_(pa.float32(), 2), "[3.0, 4.0]", [3.0, 4.0]),
        "w": (pa.list_(pa.float64(), 2), "[3.0, 4.0]", [3.0, 4.0]),
    }
    old = {"i": 1, "u": 1, "s": "x", "ls": "x", "f": 1.0, "b": True, "v": [1.0, 1.0], "w": [1.0, 1.0]}
    first = {n: pa.array([old.get(n, when)], k[0]) for n, k in kinds.items()}
    made = lance.write_dataset(pa.table(first), tmp_path)
    made.update({n: text for n, (_, text, _) in kinds.items()})
    assert made.to_table() == pa.table({n: pa.array([value], kind) for n, (kind, _, value) in kinds.items()})


def test_merged_columns(made: LanceDataset) -> None:
    with pytest.raises(OSError, match=r".+Lance does not yet support nulls for type Int64."):
        made.merge(pa.table({"a": range(40), "c": range(40)}), "a")
    made.merge(pa.table({"a": range(100), "c": range(100)}), "a")
    made.merge(pa.table({"k": range(3), "d": ["x", "y", "z"]}), left_on="a", right_on="k")
    assert (made.version, made.to_table(columns=["d"])["d"].null_count) == (3, 97)
    with pytest.raises(OSError):
        made.merge(pa.table({"a": range(100), "e": range(100)}), "zz")


def test_errors_of_new_columns_and_merges(made: LanceDataset) -> None:
    with pytest.raises(OSError, match="fewer new values"):
        made.add_columns(TABLE.select(["a"]).rename_columns(["n"]).slice(0, 99))
    longer = pa.concat_tables([TABLE, TABLE.slice(0, 1)]).select(["a"]).rename_columns(["n"])
    with pytest.raises(OSError, match="more new values"):
        made.add_columns(longer.to_batches(), reader_schema=longer.schema)
    with pytest.raises(OSError, match="the source has the columns b"):
        made.merge_insert("a").when_matched_update_all().execute(TABLE.select(["b"]))
    with pytest.raises(ValueError, match="says nothing"):
        made.alter_columns({"path": "a"})
    assert (made.version, made.latest_version, made.schema.names) == (1, 1, ["a", "b"])
    assert len(list(made.snapshot.store.list("data"))) == 1


def test_functions_of_columns_get_batches_of_a_size(made: LanceDataset) -> None:
    seen: list[int] = []

    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return pa.record_batch({"twice": pc.multiply(batch["a"], 2)})

    made.delete("a >= 95")
    made.add_columns(twice, read_columns=["a"], batch_size=40)
    assert seen[-3:] == [40, 40, 15]
    assert made.to_table()["twice"].to_pylist() == list(range(0, 190, 2))
    for wrong, error in (
        (lambda b: b["a"], "must be a RecordBatch"),
        (lambda b: pa.record_batch({"n": b["a"][:1]}), "new values"),
        (lambda b: pa.record_batch({f"n{b['a'][0]}": b["a"]}), "differ from batch to batch"),
    ):
        with pytest.raises(ValueError, match=error):
            made.add_columns(wrong, ["a"], pa.schema({"n": pa.int64()}), batch_size=40)
    with pytest.raises(ValueError, match="batch_size"):
        made.add_columns(twice, batch_size=0)


# --- fragments and operations ----------------------------------------------------------------------------------------


def test_fragments(made: LanceDataset) -> None:
    (fragment,) = made.get_fragments()
    assert (fragment.count_rows(), fragment.physical_rows, fragment.num_deletions, fragment.metadata.id) == (
        100,
        100,
        0,
        0,
    )
    assert fragment.head(3) == TABLE.slice(0, 3)
    assert fragment.take([18, 20])["a"].to_pylist() == [18, 20]
    assert pickle.loads(pickle.dumps(fragment)).to_table() == fragment.to_table() == TABLE
    uuid.UUID(fragment.data_files()[0].path().removesuffix(".lance"))
    cut = fragment.delete("a < 10")
    assert fragment.deletion_file() is None
    assert cut is not None
    assert re.fullmatch(r"_deletions/0-1-[0-9]{1,32}\.arrow", cut.deletion_file() or "")
    assert fragment.delete("a >= 0") is None
    assert LanceDataset.commit(made.uri, LanceOperation.Overwrite(TABLE.schema, [cut])).count_rows() == 90
    assert made.get_fragment(77) is None
    with pytest.raises(ValueError, match="must return a"):
        fragment.add_columns(lambda batch: 3)


def test_metadata_of_fragments() -> None:
    files = [{"path": "0.lance", "fields": [0]}, {"path": "1.lance", "fields": [1]}]
    text = json.dumps({"id": 0, "files": files, "deletion_file": None, "physical_rows": 100})
    found = lance.FragmentMetadata.from_json(text)
    assert [f.path() for f in found.data_files()] == ["0.lance", "1.lance"]
    assert repr(found) == (
        'Fragment { id: 0, files: [DataFile { path: "0.lance", fields: [0] }, '
        'DataFile { path: "1.lance", fields: [1] }], deletion_file: None, physical_rows: Some(100) }'
    )
    assert pickle.loads(pickle.dumps(found)) == found == lance.FragmentMetadata.from_json(json.dumps(found.to_json()))


def test_distributed_writes(tmp_path: Path) -> None:
    for nothing in (pd.DataFrame([]), pd.DataFrame([{}])):
        with pytest.raises(OSError):
            LanceFragment.create(tmp_path, nothing)
    made = [LanceFragment.create(tmp_path, pd.DataFrame({"a": [i]})) for i in range(3)]
    assert made[0].to_json()["files"][0]["fields"] == [0]
    begun = LanceDataset.commit(tmp_path, LanceOperation.Overwrite(pa.schema({"a": pa.int64()}), made))
    assert begun.to_table()["a"].to_pylist() == [0, 1, 2]
    append = LanceOperation.Append([LanceFragment.create(tmp_path, pa.table({"a": [9]}))])
    with pytest.raises(OSError):
        LanceDataset.commit(tmp_path, append)
    assert LanceDataset.commit(tmp_path, append, read_version=1).count_rows() == 4
    with pytest.warns(DeprecationWarning, match="instead"):
        assert LanceDataset._commit(tmp_path, LanceOperation.Restore(1)).count_rows() == 3
    wider = begun.get_fragments()[0].add_columns(lambda b: pa.record_batch({"c": pc.multiply(b.column(0), 2)}))
    schema = pa.schema({"a": pa.int64(), "c": pa.int64()})
    rest = [f.add_columns(lambda b: pa.record_batch({"c": b.column(0)})) for f in begun.get_fragments()[1:]]
    merge = LanceOperation.Merge([wider, *rest], schema)
    assert LanceDataset.commit(tmp_path, merge, read_version=3).schema == schema
    with pytest.raises(TypeError, match="must be list"):
        LanceOperation.Append((made[0],))
    with pytest.raises(TypeError, match="schema must be"):
        LanceOperation.Overwrite(1, made)
    with pytest.raises(TypeError, match="must be list"):
        LanceOperation.Delete([1], [], "x")  # type: ignore[list-item]


def test_compaction_in_parts(uri: Path) -> None:
    made = lance.write_dataset(pa.table({"a": range(800)}), uri, max_rows_per_file=200, max_rows_per_group=200)
    fragments = made.get_fragments()
    plan = Compaction.plan(made, options={"target_rows_per_fragment": 400, "num_threads": 1})
    assert repr(plan) == "CompactionPlan(read_version=1, tasks=<2 compaction tasks>)"
    assert (plan.read_version, plan.num_tasks()) == (1, 2)
    assert plan.tasks[0].fragments == [f.metadata for f in fragments[:2]]
    assert pickle.loads(pickle.dumps(plan)) == plan
    task = pickle.loads(pickle.dumps(plan.tasks[0]))
    assert task == plan.tasks[0]
    result = task.execute(made)
    assert (result.metrics.fragments_removed, result.metrics.fragments_added) == (2, 1)
    again = pickle.loads(pickle.dumps(result))
    assert isinstance(again, RewriteResult)
    assert again == result
    assert re.match(r"RewriteResult\(read_version=1, new_fragments=\[.+\], old_fragments=\[.+\]\)", repr(again))
    metrics = Compaction.commit(made, [result])
    assert (metrics.fragments_removed, metrics.fragments_added, made.version) == (2, 1, 3)
    with pytest.raises(ValueError, match="Invalid compaction option"):
        Compaction.plan(made, {"what": 1})


# --- indices ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path: Path) -> LanceDataset:
    made = lance.write_dataset(vectors(), tmp_path / "v", max_rows_per_file=150, max_rows_per_group=150)
    return made.create_index("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=2)


def test_wrong_indices(made: LanceDataset, tmp_path: Path) -> None:
    found = lance.write_dataset(vectors(), tmp_path / "v")
    more: dict[str, Any] = {"num_partitions": 4, "num_sub_vectors": 2}
    wrong: list[tuple[type[Exception], Any]] = [
        (ValueError, lambda: found.create_index("vector", "IVF_PQ")),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", num_partitions=4)),
        (KeyError, lambda: found.create_index("zz", "IVF_PQ", **more)),
        (TypeError, lambda: found.create_index("id", "IVF_PQ", **more)),
        (TypeError, lambda: found.create_index("vector", "IVF_PQ", num_partitions="4", num_sub_vectors=2)),  # type: ignore[arg-type]
        (NotImplementedError, lambda: found.create_index("vector", "what", **more)),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", metric="hamming", **more)),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", accelerator="cuda:", **more)),
        (ValueError, lambda: found.create_index("vector", "IVF_PQ", ivf_centroids=np.zeros((3, 8), "f4"), **more)),
        (TypeError, lambda: found.create_index("vector", "IVF_PQ", ivf_centroids=np.zeros((4, 8)), **more)),
        (KeyError, lambda: found.create_scalar_index("zz", "BTREE")),
        (TypeError, lambda: found.create_scalar_index("vector", "BTREE")),
        (NotImplementedError, lambda: found.create_scalar_index("id", "BITMAP")),
        (NotImplementedError, lambda: found.create_scalar_index(["id", "vector"], "BTREE")),
        (KeyError, lambda: found.stats.index_stats("zz")),
        (ValueError, lambda: found.to_table(nearest={"column": "vector", "q": [1.0], "k": 3})),
        (TypeError, lambda: found.to_table(nearest={"column": "id", "q": [1.0], "k": 3})),
        (KeyError, lambda: found.to_table(nearest={"column": "zz", "q": [1.0], "k": 3})),
        (ValueError, lambda: found.to_table(nearest={"column": "vector", "q": [1.0] * 8, "k": 0})),
    ]
    for kind, call in wrong:
        with pytest.raises(kind):
            call()
    found.create_scalar_index("id", "BTREE")
    with pytest.raises(OSError):
        found.create_scalar_index("id", "BTREE", replace=False)
    assert not made.has_index


def test_what_indices_say(indexed: LanceDataset) -> None:
    centroids = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    given = indexed.create_index(
        ["vector"], "IVF_PQ", name="five", ivf_centroids=centroids, num_partitions=5, num_sub_vectors=4
    )
    entry = next(i for i in given.list_indices() if i["name"] == "five")
    assert (entry["type"], entry["fields"], entry["fragment_ids"], len(entry["uuid"])) == (
        "Vector",
        ["vector"],
        {0, 1},
        36,
    )
    stats = given.stats.index_stats("five")
    assert (stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (300, 0)
    assert {"index_cache_entry_count", "index_cache_hit_rate"} <= set(stats)
    with pytest.warns(DeprecationWarning, match="instead"):
        own = given.index_statistics("five")
    partitions = own.pop("partitions")
    sub = {"dimension": 8, "index_type": "PQ", "metric_type": "l2", "nbits": 8, "num_sub_vectors": 4}
    assert own == {
        "index_type": "IVF",
        "uuid": entry["uuid"],
        "uri": f"{given.uri}/_indices/{entry['uuid']}/index.idx",
        "metric_type": "l2",
        "num_partitions": 5,
        "sub_index": sub,
    }
    assert [set(p) for p in partitions] == [{"index", "length", "offset", "centroid"}] * 5
    assert all(isinstance(x, float) for p in partitions for x in p["centroid"])
    with pytest.raises(KeyError, match='Index "none" not found'):
        given.stats.index_stats("none")
    given.create_scalar_index("id", "BTREE")
    assert {i["type"] for i in given.list_indices()} == {"Vector", "Scalar"}
    assert given.stats.index_stats("id_idx")["num_pages"] == 1


def test_plans_name_their_steps(indexed: LanceDataset) -> None:
    indexed.create_scalar_index("id", "BTREE")
    q = np.zeros(8)
    near = {"column": "vector", "q": q, "k": 5}
    plan = indexed.scanner(nearest=near).explain_plan()
    assert ("KNNIndex" in plan, "KNNFlat" in plan) == (True, False)
    assert "MaterializeIndex" in indexed.scanner(filter="id = 3", prefilter=True).explain_plan()
    assert "ScalarIndexQuery" in indexed.scanner(nearest=near, filter="id = 3", prefilter=True).explain_plan()
    both = indexed.scanner(nearest=near, filter="id = 3 AND vector IS NOT NULL", prefilter=True)
    assert "MaterializeIndex" in both.explain_plan()
    more = lance.write_dataset(vectors(50), indexed.uri, mode="append")
    assert "KNNFlat" in more.scanner(nearest=near).explain_plan()
    more.optimize.optimize_indices()
    assert "KNNFlat" not in more.scanner(nearest=near).explain_plan()


def test_results_of_searches(indexed: LanceDataset) -> None:
    q = indexed.take([7])["vector"][0]
    names = indexed.to_table(columns=["id"], nearest={"column": "vector", "q": q.values, "k": 3}).column_names
    assert names == ["id", "vector", "_distance"]
    limited = indexed.to_table(columns=["id"], nearest={"column": "vector", "q": q, "use_index": False}, limit=4)
    assert (limited.num_rows, limited["id"][0].as_py()) == (4, 7)
    some = indexed.to_table(
        columns=["id"], nearest={"column": "vector", "q": q, "k": 2}, filter="id > 200", prefilter=True
    )
    assert min(some["id"].to_pylist()) > 200


# --- helpers ---------------------------------------------------------------------------------------------------------


def test_tables_of_vectors() -> None:
    rows = np.random.default_rng(1).normal(size=(10, 8))
    plain = vec_to_table(rows)
    assert plain.schema == pa.schema({"vector": pa.list_(pa.float32(), 8)})
    assert vec_to_table(list(rows)) == plain
    keyed = vec_to_table(dict(zip(range(10), rows)), names=["k", "v"])
    assert (keyed.column_names, keyed["v"].to_pylist()) == (["k", "v"], plain["vector"].to_pylist())
    with pytest.raises(ValueError, match="dimensions"):
        vec_to_table([[1, 2], [3]])
    with pytest.raises(NotImplementedError):
        vec_to_table(3)  # type: ignore[arg-type]


def test_schemas_as_json() -> None:
    schema = pa.schema([pa.field("e", pa.list_(pa.float32(), 32), False), pa.field("id", pa.int64())])
    item = {"name": "item", "type": {"type": "float"}, "nullable": True}
    vector = {"type": "fixed_size_list", "fields": [item], "length": 32}
    found = lance.schema_to_json(schema)
    assert found == {
        "fields": [
            {"name": "e", "type": vector, "nullable": False},
            {"name": "id", "type": {"type": "int64"}, "nullable": True},
        ]
    }
    assert lance.json_to_schema(found) == schema
    deep = pa.schema(
        {
            "s": pa.struct([pa.field("l", pa.list_(pa.string())), pa.field("t", pa.timestamp("us", "UTC"))]),
            "d": pa.dictionary(pa.int8(), pa.string()),
            "n": pa.large_list(pa.int8()),
        }
    ).with_metadata({"k": "v"})
    assert lance.json_to_schema(json.loads(json.dumps(lance.schema_to_json(deep)))).equals(deep, check_metadata=True)
    for bad in ({"x": 1}, {"fields": [{"name": "a", "type": {"type": "foo"}, "nullable": True}]}, {"fields": [3]}):
        with pytest.raises(ValueError):
            lance.json_to_schema(bad)


def test_clusters() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
    model = lance.util.KMeans(32, metric_type="cosine")
    centres: Any = model.centroids
    assert centres is None
    model.fit(rows)
    centres = model.centroids
    centroids = np.stack(centres.to_numpy(zero_copy_only=False))
    cosine = 1 - rows @ centroids.T / np.linalg.norm(rows, axis=1)[:, None] / np.linalg.norm(centroids, axis=1)
    assert np.array_equal(model.predict(rows).to_numpy(), cosine.argmin(1))
    for bad, text in (
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((9, 4, 2), np.float32)), "must be a 1-D array"),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((9, 4))), "must be float32 type, got: double"),
        (np.zeros(4, np.float32), "must be a 2-D array"),
    ):
        with pytest.raises(ValueError, match=text):
            model.fit(bad)
    with pytest.raises(ValueError):
        lance.util.KMeans(3, "hamming")


def test_samples(tmp_path: Path) -> None:
    made = lance.write_dataset(vectors(5000), tmp_path)
    for takes in (512, 32):
        (found,) = maybe_sample(made, 128, ["id"], max_takes=takes)
        assert (found.num_rows, found.schema) == (128, pa.schema({"id": pa.int64()}))
        assert len(set(found["id"].to_pylist())) == 128
    assert sum(b.num_rows for b in maybe_sample(str(tmp_path), 10_000, "id")) == 5000
    assert sum(b.num_rows for b in maybe_sample(made, 4999, "id", batch_size=100)) == 4999
    assert len(set(reservoir_sampling(iter(range(100)), 10))) == 10


def test_streams_that_are_kept() -> None:
    kept = CachedDataset(iter(TABLE.to_batches(max_chunksize=30)))
    first = [b.num_rows for b in kept]
    assert first == [b.num_rows for b in kept] == [30, 30, 30, 10]
    kept.close()
    with pytest.raises(ValueError):
        CachedDataset([], cache=3)  # type: ignore[arg-type]


def test_types_of_their_own(tmp_path: Path) -> None:
    """In a process of its own: another library with these types may be loaded in this one."""
    code = f"""
import numpy as np, pandas as pd, pyarrow as pa, re
import trilake.lance as lance
from trilake.lance.arrow import *
arr = bfloat16_array([1.1, None, 3.4])
assert isinstance(arr, BFloat16Array) and arr.to_pylist() == [BFloat16(1.1), None, BFloat16(3.4)]
assert str(BFloat16(1.124565)) == "1.125" and BFloat16(1.1) > BFloat16(1.0) and BFloat16(1.1) != BFloat16(1.0)
assert re.match(r"<lance.arrow.BFloat16Array object at 0x[\\w\\d]+>\\n\\[1.1015625, None, 3.40625\\]", repr(arr))
series = arr.to_pandas()
assert series[0] == BFloat16(1.1) and series[1] is None and str(series.dtype) == "lance.bfloat16"
pd.testing.assert_series_equal(series, pd.Series(series, dtype="lance.bfloat16"))
assert pa.array(series) == arr
pd.testing.assert_series_equal(pa.array(series).to_pandas(), series)
tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(60, dtype=np.float32).reshape(10, 2, 3))
uris = ImageURIArray.from_uris(["a.png"] * 10)
table = pa.table({{
    "s": [str(i) for i in range(10)], "h": pa.array(np.arange(10, dtype=np.float16)),
    "b": bfloat16_array([1 + i / 10 for i in range(10)]), "t": tensor, "u": uris,
}})
made = lance.write_dataset(table, {str(tmp_path / "t")!r})
assert made.to_table() == table, made.to_table()
assert made.take([0, 2])["t"].to_pylist() == tensor.take(pa.array([0, 2])).to_pylist()
assert ImageArray.from_array(["x"]).to_pylist() == ["x"] and ImageArray.from_array(uris) is uris
pixels = ImageArray.from_array(pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 1, 1, 4), np.uint8)))
assert pixels.to_numpy().shape == (2, 1, 1, 4) and pixels.type.shape == (1, 1, 4)
encoded = pixels.to_encoded(lambda p: pa.array([bytes(x.ravel()) for x in p], pa.binary()))
decode = lambda images: np.stack([np.frombuffer(i, np.uint8).reshape(1, 1, 4) for i in images.to_pylist()])
assert encoded.to_tensor(decode) == pixels
assert isinstance(uris[0], ImageURIScalar) and uris[0].as_py() == "a.png"
assert isinstance(encoded[0], EncodedImageScalar) and encoded[0].as_py() == bytes(4)
assert isinstance(pixels[0], FixedShapeImageTensorScalar) and isinstance(pixels[0], ImageScalar)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_traces(tmp_path: Path) -> None:
    code = "from trilake.lance.tracing import trace_to_chrome; trace_to_chrome(); trace_to_chrome(file='x.json')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert len(list(tmp_path.glob("trace-*.json"))) == 1
    assert json.loads((tmp_path / "x.json").read_text()) == []
    with pytest.raises(ValueError):
        lance.tracing.trace_to_chrome(level="invalid")


def test_other_names_of_the_options_of_an_index(indexed: LanceDataset) -> None:
    how = {"num_partitions": 4, "num_sub_vectors": 2, "name": "other"}
    found = indexed.create_index("vector", "IVF_PQ", metric_type="cosine", num_bits=8, **how)
    assert found.stats.index_stats("other")["metric_type"] == "cosine"
    for more, kind in (
        ({"metric": "dot", "metric_type": "cosine"}, ValueError),
        ({"num_bits": 4}, NotImplementedError),
        ({"num_bits": "8"}, TypeError),
        ({"metric_type": "hamming"}, ValueError),
    ):
        with pytest.raises(kind):
            indexed.create_index("vector", "IVF_PQ", replace=True, **how, **more)


def test_a_search_without_k_finds_as_many_as_the_limit(indexed: LanceDataset) -> None:
    nearest = {"column": "vector", "q": np.zeros(8, np.float32)}
    asked = lambda **more: indexed.to_table(columns=["id"], nearest=nearest, **more)  # noqa: E731
    assert asked().num_rows == 10
    assert asked(limit=3).num_rows == 3
    assert asked(limit=50).num_rows == 50
    more = asked(limit=20, offset=30)
    assert more["id"].to_pylist() == asked(limit=50)["id"].to_pylist()[30:]
    assert indexed.to_table(nearest={**nearest, "k": 7}, limit=50).num_rows == 7


def test_a_plan_of_a_compaction_goes_to_other_processes_as_json(uri: Path) -> None:
    from trilake.lance.optimize import CompactionPlan

    found = lance.write_dataset(TABLE, uri, max_rows_per_file=20)
    plan = Compaction.plan(found)
    again = CompactionPlan.from_json(plan.json())
    assert again == plan
    assert again.num_tasks() == 1
    results = [task.execute(found) for task in again.tasks]
    assert results[0].original_fragments == results[0].old_fragments == [f.metadata for f in found.get_fragments()]
    assert Compaction.commit(found, results).fragments_added == 1
    for text in ("", "{}", "[1]", '{"tasks": 1, "read_version": 1}', '{"tasks": [], "read_version": "x"}'):
        with pytest.raises(ValueError):
            CompactionPlan.from_json(text)
    task = json.loads(plan.tasks[0].json())
    for key, value in (("options", {"x": 1}), ("options", 3), ("fragments", [1]), ("fragments", ["ff"])):
        with pytest.raises(ValueError):
            CompactionPlan.from_json(json.dumps({"tasks": [json.dumps({**task, key: value})], "read_version": 1}))


def test_partitions_of_vectors_in_a_file_of_their_own(indexed: LanceDataset) -> None:
    from trilake.lance.file.data_file import DataFile
    from trilake.lance.util import KMeans
    from trilake.lance.vector import compute_partitions

    model = KMeans(4)
    vectors = np.stack(indexed.to_table()["vector"].to_numpy())
    model.fit(vectors)
    name = compute_partitions(indexed, "vector", model, batch_size=64)
    file = DataFile.open(indexed.snapshot.store, f"data/{name}")
    rows = pa.Table.from_batches([file.read_batch(i) for i in range(file.num_batches)])
    assert rows.schema.names == ["row_id", "partition"]
    assert rows["row_id"].to_pylist() == indexed.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist()
    assert rows["partition"].to_pylist() == model.predict(vectors).to_pylist()
    assert lance.dataset(indexed.uri).version == indexed.version
    with pytest.raises(KeyError):
        compute_partitions(indexed, "none", model)


def test_names_that_programs_import() -> None:
    from trilake.lance import CommitLock, sanitize_ts
    from trilake.lance.dataset import (
        CleanupStats,
        Compaction,
        CompactionMetrics,
        DatasetOptimizer,
        DatasetStats,
        FragmentMetadata,
        LanceFragment,
        LanceStats,
        ReaderLike,
        td_to_micros,
    )
    from trilake.lance.fragment import FragmentWriteProgress, NoopFragmentWriteProgress
    from trilake.lance.lance import TraceGuard

    assert all(
        name is not None
        for name in (
            CommitLock,
            CleanupStats,
            Compaction,
            CompactionMetrics,
            DatasetOptimizer,
            DatasetStats,
            ReaderLike,
        )
    )
    assert (LanceFragment, FragmentMetadata) == (lance.LanceFragment, lance.FragmentMetadata)
    assert issubclass(NoopFragmentWriteProgress, FragmentWriteProgress)
    assert LanceStats.__name__ == "LanceStats"
    assert td_to_micros(dt.timedelta(seconds=1)) == 1_000_000
    assert sanitize_ts("2024-01-01").year == 2024
    assert callable(TraceGuard.finish_tracing)
