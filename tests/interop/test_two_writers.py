"""pylance and trilake change one Lance dataset concurrently, and neither loses a commit."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.s3_server import S3Server

Rows = dict[int, int]
_BLOCK = 1_000_000


def _rows(values: Rows) -> pa.Table:
    return pa.table({"id": pa.array(values.keys(), pa.int64()), "v": pa.array(values.values(), pa.int64())})


def _changes(uri: str, options: Mapping[str, str], module: str, block: int, commits: int, seed: int) -> Rows:
    """Change rows of one block of ids repeatedly; return their expected final state."""
    lance: Any = __import__(module, fromlist=["dataset"])
    pick, rows = random.Random(seed), Rows()
    free = block * _BLOCK

    def append() -> None:
        nonlocal free
        new = dict.fromkeys(range(free, free + pick.randint(1, 20)), 0)
        lance.write_dataset(_rows(new), uri, mode="append", storage_options=dict(options))
        free += len(new)
        rows.update(new)

    def delete() -> None:
        row = pick.choice(list(rows))
        opened().delete(f"id = {row}")
        del rows[row]

    def update() -> None:
        row = pick.choice(list(rows))
        opened().update({"v": "v + 1"}, where=f"id = {row}")
        rows[row] += 1

    def merge() -> None:
        nonlocal free
        new = {pick.choice(list(rows)): 100, free: 100}
        opened().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(_rows(new))
        free += 1
        rows.update(new)

    def compact() -> None:
        opened().optimize.compact_files(target_rows_per_fragment=200)

    def opened() -> Any:
        return lance.dataset(uri, storage_options=dict(options))

    changes: list[Callable[[], None]] = [append, append, append, delete, update, merge, compact]
    done = 0
    while done < commits:
        try:
            (pick.choice(changes) if rows else append)()
        except OSError as e:  # either library: it gave up after ten attempts without a change
            if "conflict" not in str(e).lower():
                raise
        else:
            done += 1
    return rows


def _race(uri: str, options: Mapping[str, str], commits: int, version: str, stable_row_ids: bool) -> None:
    import lance

    import trilake.lance as ours

    first = {-1: 0}
    lance.write_dataset(
        _rows(first),
        uri,
        data_storage_version=version,
        enable_stable_row_ids=stable_row_ids,
        storage_options=dict(options),
    )
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        writers = [
            pool.submit(_changes, uri, options, module, block, commits, block)
            for block, module in enumerate(("lance", "trilake.lance"))
        ]
        expected = first | writers[0].result() | writers[1].result()
    for module in (lance, ours):
        table = module.dataset(uri, storage_options=dict(options)).to_table()
        assert table.num_rows == len(expected)
        assert dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize("commits", [20, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("version", "stable_row_ids"), [("2.1", True), ("2.2", False)])
@pytest.mark.long
def test_no_commit_is_lost(tmp_path: Path, commits: int, version: str, stable_row_ids: bool) -> None:
    _race(str(tmp_path / "d"), {}, commits, version, stable_row_ids)


@pytest.mark.soak
@pytest.mark.long
def test_no_commit_is_lost_on_s3(s3: S3Server, tmp_path: Path) -> None:
    _race(f"s3://lake/{tmp_path.name}", s3.options, 50, "2.2", False)
