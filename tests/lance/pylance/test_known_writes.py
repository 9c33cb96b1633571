"""API of pylance 0.8.19: writes, their progress and locks, and changes."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.lance.pylance.known import TABLE
from trilake import lance
from trilake.lance import LanceDataset, LanceFragment
from trilake.lance.commit import CommitConflictError
from trilake.lance.fragment import write_fragments
from trilake.lance.progress import FileSystemFragmentWriteProgress, FragmentWriteProgress


class RecordedProgress(FragmentWriteProgress):
    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.done: list[Any] = []

    def begin(self, fragment: Any, multipart_id: str | None = None, **more: Any) -> None:
        self.begun.append(fragment)

    def complete(self, fragment: Any, **more: Any) -> None:
        self.done.append(fragment)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_write_accepts_every_source(tmp_path: Path) -> None:
    expected = pa.table({"a": [1.0, 2.0], "b": [20, 30]})
    narrow = pa.table({"a": [1.0, 2.0], "b": pa.array([20, 30], pa.int32())})
    pq.write_to_dataset(expected, tmp_path / "parquet")
    given: list[tuple[pa.Schema | None, Any]] = [
        (None, expected),
        (None, expected.to_batches()[0]),
        (None, expected.to_pandas()),
        (None, pl.from_arrow(expected)),
        (expected.schema, expected.to_batches()),
        (expected.schema, iter(narrow.to_batches())),
        (None, expected.to_reader()),
        (None, ds.dataset(tmp_path / "parquet")),
        (None, ds.dataset(tmp_path / "parquet").scanner()),
    ]
    for i, (schema, rows) in enumerate(given):
        assert lance.write_dataset(rows, tmp_path / str(i), schema=schema).to_table() == expected
    again = lance.dataset(tmp_path / "0")
    assert lance.write_dataset(again, tmp_path / "again").to_table() == expected
    assert lance.write_dataset(again.to_batches(), tmp_path / "more", schema=again.schema).to_table() == expected


def test_write_errors(uri: Path, dataset: LanceDataset) -> None:
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


def test_schema_metadata_must_be_strings(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    with pytest.raises(ValueError):
        lance.write_dataset(rows.replace_schema_metadata({"k": pickle.dumps("x")}), tmp_path)
    text = rows.replace_schema_metadata({"k": base64.b64encode(pickle.dumps("x"))})
    assert lance.write_dataset(text, tmp_path).schema.equals(text.schema, check_metadata=True)


def test_relative_and_home_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_append_may_create_a_dataset(uri: Path) -> None:
    assert lance.write_dataset(TABLE, uri, mode="append").to_table() == TABLE
    empty = pa.Table.from_pandas(
        pd.DataFrame(columns=["s", "n"]), schema=pa.schema({"s": pa.string(), "n": pa.int64()})
    )
    found = lance.write_dataset(empty, uri.parent / "empty")
    assert (found.count_rows(), found.schema) == (0, empty.schema.remove_metadata())
    assert lance.write_dataset(pa.table({"s": ["x"], "n": [1]}), found.uri, mode="append").count_rows() == 1


def test_write_progress(tmp_path: Path) -> None:
    progress = RecordedProgress()
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "a", max_rows_per_file=5, progress=progress)
    assert (len(progress.begun), len(progress.done)) == (2, 2)
    fragments = write_fragments(pa.table({"a": range(1024)}), tmp_path / "b", max_rows_per_file=512, progress=progress)
    assert (len(fragments), len(progress.begun)) == (2, 4)


def test_file_system_write_progress(tmp_path: Path) -> None:
    folder, uri = tmp_path / "progress", tmp_path / "t"
    progress = FileSystemFragmentWriteProgress(folder, metadata={"worker": "7"})
    dataset = LanceFragment.create(uri, TABLE, progress=progress)
    assert not (folder / "fragment_0.in_progress").exists()
    assert dataset == lance.FragmentMetadata.from_json((folder / "fragment_0.json").read_text())

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


# --- locks ------------------------------------------------------------------------------------------------------------


def test_commit_lock_is_held_for_each_commit(tmp_path: Path) -> None:
    seen: list[object] = []

    @contextlib.contextmanager
    def lock(version: int) -> Iterator[None]:
        seen.append(version)
        yield
        seen.append("released")

    dataset = lance.write_dataset(TABLE, tmp_path / "a", commit_lock=lock)
    assert seen == [1, "released"]
    guarded = lance.dataset(dataset.uri, commit_lock=lock)
    guarded.delete("a = 1")
    guarded.update({"b": "b + 1"})
    assert seen[2:] == [2, "released", 3, "released"]
    with pytest.raises(TypeError, match="must be a function"):
        lance.write_dataset(TABLE, tmp_path / "b", commit_lock=3)


def test_commit_lock_is_held_for_checked_out_version(tmp_path: Path) -> None:
    versions: list[int] = []

    @contextlib.contextmanager
    def lock(version: int) -> Iterator[None]:
        versions.append(version)
        yield

    dataset = lance.write_dataset(TABLE, tmp_path / "a")
    dataset.delete("a < 3")
    lance.dataset(dataset.uri, commit_lock=lock).checkout_version(1).restore()
    lance.dataset(dataset.uri, commit_lock=lock, asof="9999-01-01").delete("a < 4")
    assert versions == [3, 4]


def test_failing_commit_locks(tmp_path: Path) -> None:
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
    # The commit and its files stay.
    assert lance.dataset(tmp_path / "a").to_table() == lance.dataset(tmp_path / "late").to_table() == TABLE
    with pytest.raises(OSError, match="CommitConflictError"):
        lance.write_dataset(TABLE, tmp_path / "b", commit_lock=taken)
    with pytest.raises(ValueError):
        lance.dataset(tmp_path / "b")
    with pytest.raises(Exception, match="CommitConflictError"):
        lance.dataset(tmp_path / "a", commit_lock=taken).delete("a < 10")


# --- changes ----------------------------------------------------------------------------------------------------------


def test_deletes_updates_and_merges_are_counted(uri: Path, dataset: LanceDataset) -> None:
    dataset.delete("a < 10")
    dataset.delete(pc.field("a") < 20)
    assert (dataset.version, dataset.count_rows(), dataset.stats.dataset_stats()["num_deleted_rows"]) == (3, 80, 20)
    with pytest.raises(OSError):
        dataset.delete("zz = 1")
    dataset.update({"b": "b + 1"}, where="a < 30")
    assert dataset.to_table(filter="a = 25")["b"].to_pylist() == [26]
    for bad in ({"zz": "1"}, {"b": "zz + 1"}):
        with pytest.raises(ValueError):
            dataset.update(bad)
    dataset.delete("true")
    assert dataset.count_rows() == 0


def test_update_columns_of_all_types(tmp_path: Path) -> None:
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
    dataset = lance.write_dataset(pa.table(first), tmp_path)
    dataset.update({n: text for n, (_, text, _) in kinds.items()})
    assert dataset.to_table() == pa.table({n: pa.array([value], kind) for n, (kind, _, value) in kinds.items()})


def test_merge_columns(uri: Path) -> None:
    dataset = lance.write_dataset(TABLE, uri, data_storage_version="legacy")
    with pytest.raises(OSError, match=r".+Lance does not yet support nulls for type Int64."):
        dataset.merge(pa.table({"a": range(40), "c": range(40)}), "a")
    dataset.merge(pa.table({"a": range(100), "c": range(100)}), "a")
    dataset.merge(pa.table({"k": range(3), "d": ["x", "y", "z"]}), left_on="a", right_on="k")
    assert (dataset.version, dataset.to_table(columns=["d"])["d"].null_count) == (3, 97)
    with pytest.raises(OSError):
        dataset.merge(pa.table({"a": range(100), "e": range(100)}), "zz")


def test_new_column_and_merge_errors(dataset: LanceDataset) -> None:
    with pytest.raises(OSError, match="ended before producing values"):
        dataset.add_columns(TABLE.select(["a"]).rename_columns(["n"]).slice(0, 99))
    longer = pa.concat_tables([TABLE, TABLE.slice(0, 1)]).select(["a"]).rename_columns(["n"])
    with pytest.raises(OSError, match="produced more values"):
        dataset.add_columns(longer.to_batches(), reader_schema=longer.schema)
    with pytest.raises(OSError, match="the source has columns b"):
        dataset.merge_insert("a").when_matched_update_all().execute(TABLE.select(["b"]))
    with pytest.raises(ValueError, match="the alteration is empty"):
        dataset.alter_columns({"path": "a"})
    assert (dataset.version, dataset.latest_version, dataset.schema.names) == (1, 1, ["a", "b"])
    assert len(list(dataset.snapshot.store.list("data"))) == 1


def test_column_function_gets_batches_of_the_size(dataset: LanceDataset) -> None:
    seen: list[int] = []

    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return pa.record_batch({"twice": pc.multiply(batch["a"], 2)})

    dataset.delete("a >= 95")
    dataset.add_columns(twice, read_columns=["a"], batch_size=40)
    assert seen[-3:] == [40, 40, 15]
    assert dataset.to_table()["twice"].to_pylist() == list(range(0, 190, 2))
    for wrong, error in (
        (lambda b: b["a"], "must be a RecordBatch"),
        (lambda b: pa.record_batch({"n": b["a"][:1]}), "new values"),
        (lambda b: pa.record_batch({f"n{b['a'][0]}": b["a"]}), "differ from batch to batch"),
    ):
        with pytest.raises(ValueError, match=error):
            dataset.add_columns(wrong, ["a"], pa.schema({"n": pa.int64()}), batch_size=40)
    with pytest.raises(ValueError, match="batch_size"):
        dataset.add_columns(twice, batch_size=0)
