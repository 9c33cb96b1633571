"""Copy-on-write deletes and merges combine small files of a partition into one."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trilake
from tests.delta.tables import opened
from trilake.delta.commands.rows import removal, row_changes
from trilake.errors import TrilakeError

TRACKED = {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"}


def grown(uri: str, files: int, *, partitions: int = 1, properties: dict[str, str] | None = None) -> None:
    """Write files with four rows each: ``n`` ascends, ``p`` is the file number modulo ``partitions``."""
    for number in range(files):
        rows = pa.table({"n": range(4 * number, 4 * number + 4), "p": [number % partitions] * 4, "t": ["x", "y"] * 2})
        how = {"partition_by": "p", "properties": properties} if number == 0 else {}
        trilake.write(rows, uri, mode="append" if number else "error", **how)


def test_remaining_rows_of_small_files_become_one_file(tmp_path: Path) -> None:
    uri = str(tmp_path)
    grown(uri, 6, partitions=2, properties=TRACKED)
    opened(uri).delete("n % 4 = 1 AND n < 20")
    files = opened(uri).files()
    assert sorted(files["num_records"].to_pylist()) == [4, 6, 9], "one file was not changed"
    assert sorted(opened(uri).to_arrow()["n"].to_pylist()) == [n for n in range(24) if n % 4 != 1 or n >= 20]
    changes = opened(uri).changes(6).to_pylist()
    assert sorted((c["_change_type"], c["n"]) for c in changes) == [("delete", n) for n in range(1, 20, 4)]


def test_files_at_the_size_limit_are_not_combined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path)
    grown(uri, 5)
    sizes = opened(uri).files()["size"].to_pylist()
    monkeypatch.setattr(removal, "_TOGETHER", 2 * max(sizes))
    opened(uri).delete("n % 4 = 1")
    assert sorted(opened(uri).files()["num_records"].to_pylist()) == [3, 6, 6]


def test_repeated_merges_do_not_accumulate_small_files(tmp_path: Path) -> None:
    uri, ids = str(tmp_path), count(100)
    trilake.write({"id": list(range(100)), "v": [0] * 100}, uri)
    for number in range(12):
        source = pa.table({"id": [number, number + 1, next(ids)], "v": [number] * 3})
        merge = opened(uri).merge(source, "t.id = s.id", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert len(opened(uri).files()) == 1, "the newest rows beside the rest of all changed files"
    rows = dict(zip(*(opened(uri).to_arrow()[c].to_pylist() for c in ("id", "v")), strict=True))
    assert rows == {n: min(n, 11) if n <= 12 else 0 for n in range(100)} | {100 + n: n for n in range(12)}


@pytest.mark.parametrize("required", [False, True])
def test_merge_makes_one_file_of_new_and_remaining_rows(tmp_path: Path, required: bool) -> None:
    uri = str(tmp_path)
    grown(uri, 6, partitions=2)
    if required:  # old files need not obey the rule, so their rows do not go into files that do
        trilake.alter(uri).set_not_null("n")
    source = pa.table({"n": [1, 9, 30], "p": [0, 0, 2], "t": ["new"] * 3})
    merge = opened(uri).merge(source, "t.n = s.n", "s", "t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    expected = [1, 2, 4, 4, 4, 4, 6] if required else [1, 4, 4, 4, 4, 8]
    assert sorted(opened(uri).files()["num_records"].to_pylist()) == expected
    rows = opened(uri).to_arrow().sort_by("n").to_pylist()
    assert [r["n"] for r in rows] == [*range(24), 30]
    assert [r["n"] for r in rows if r["t"] == "new"] == [1, 9, 30]
    assert {(r["n"], r["p"]) for r in rows} == {(n, n // 4 % 2) for n in range(24)} | {(30, 2)}


@pytest.mark.parametrize("required", [False, True])
def test_failed_merge_leaves_no_files(tmp_path: Path, required: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the remaining rows were written beside the new ones or before them."""
    uri = str(tmp_path)
    grown(uri, 3)
    if required:
        trilake.alter(uri).set_not_null("n")
    before = set(tmp_path.rglob("*.parquet"))

    def full(*_: object) -> None:
        raise TrilakeError("the disk is full")

    monkeypatch.setattr(row_changes.RowChangeWriter, "close", full)
    merge = opened(uri).merge(pa.table({"n": [1], "p": [0], "t": ["new"]}), "t.n = s.n", "s", "t")
    with pytest.raises(TrilakeError, match="the disk is full"):
        merge.when_matched_update_all().execute()
    assert set(tmp_path.rglob("*.parquet")) == before


def test_dictionary_and_plain_strings_are_combined(tmp_path: Path) -> None:
    uri = str(tmp_path)
    few = pa.table({"n": range(2000), "t": ["a", "b"] * 1000})
    many = pa.table({"n": range(2000, 4000), "t": [f"text {n}" for n in range(2000)]})
    trilake.write(few, uri)
    trilake.write(many, uri, mode="append")
    opened(uri).delete("n IN (5, 2005)")
    assert len(opened(uri).files()) == 1
    gone = pc.is_in(pa.array(range(4000)), pa.array([5, 2005]))
    expected = pa.concat_tables([few, many]).filter(pc.invert(gone))
    assert opened(uri).to_arrow().sort_by("n").to_pydict() == expected.to_pydict()
