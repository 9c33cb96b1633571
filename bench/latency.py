"""Tables in an object store with 30 ms latency per request, compared with deltalake and pylance.

The store is an S3 emulator in a separate process (``tests/s3_server.py``).  Tables are built on disk and uploaded again
before each run that writes.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import deltalake
import lance as pylance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import trilake
from bench.formats.lance import SIDES
from bench.harness import ROOT, Benchmark, Contender, data
from trilake.delta.table import ArrowDeltaTable
from trilake.storage import open_store

_DELAY = 0.03
_FILES, _ROWS = 13, 1000
_LANCE_FILES, _LANCE_ROWS = 4, 5000
#: Partitions of two files, and fragments, of ten rows each; and columns of a wide dataset.
_SMALL, _COLUMNS = 100, 1000
_TAKEN = [1, 5000, 12_345, 19_999]
_numbers = itertools.count()


@cache
def _options() -> dict[str, str]:
    """Options for a server that this process starts, and that ends with it."""
    command = [sys.executable, "-m", "tests.s3_server", "--delay", str(_DELAY)]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    options: dict[str, str] = json.loads(server.stdout.readline())
    return options


def _rows(number: int, count: int = _ROWS) -> pa.Table:
    """``id`` ascending, a random number, a string, and a number below 100."""
    ids = np.arange(number * count, (number + 1) * count)
    x = np.random.default_rng(number).random(count)
    return pa.table({"id": ids, "x": x, "s": x.astype("U12"), "k": ids % 100})


def _delta(folder: Path) -> None:
    for i in range(_FILES):
        deltalake.write_deltalake(str(folder / "t"), _rows(i), mode="append")
        if i == _FILES - 3:
            deltalake.DeltaTable(str(folder / "t")).create_checkpoint()


def _lance(folder: Path) -> None:
    for i in range(_LANCE_FILES):
        pylance.write_dataset(_rows(i, _LANCE_ROWS), str(folder / "t"), mode="append")


def _partitions(folder: Path) -> None:
    for _ in range(2):
        rows = _rows(0, 10 * _SMALL)
        parts = rows.append_column("p", pa.array(np.arange(10 * _SMALL) % _SMALL))
        deltalake.write_deltalake(str(folder / "t"), parts, mode="append", partition_by=["p"])


def _fragments(folder: Path) -> None:
    rows = _rows(0, 10 * _SMALL)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(80 * _SMALL) % 13, pa.float32()), 8)
    pylance.write_dataset(rows.append_column("v", vectors), str(folder / "t"), max_rows_per_file=10)


def _wide(folder: Path) -> None:
    rng = np.random.default_rng(1)
    pylance.write_dataset(pa.table({f"c{i}": rng.random(100) for i in range(_COLUMNS)}), str(folder / "t"))


_BUILT: dict[str, Callable[[], Path]] = {
    "delta": lambda: data(f"latency-delta-{_FILES}", _delta) / "t",
    "delta-small": lambda: data(f"latency-delta-small-{_SMALL}", _partitions) / "t",
    "lance": lambda: data(f"latency-lance2-{_LANCE_FILES}", _lance) / "t",
    "lance-small": lambda: data(f"latency-lance2-small-{_SMALL}", _fragments) / "t",
    "lance-wide": lambda: data(f"latency-lance2-wide-{_COLUMNS}", _wide) / "t",
}


def _put(kind: str) -> str:
    """A copy of the table in the store; its URI."""
    uri, folder = f"s3://lake/{kind}-{next(_numbers)}", _BUILT[kind]()
    store = open_store(uri, _options())
    files = [p for p in folder.rglob("*") if p.is_file() and not p.name.endswith(".crc")]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda p: store.put(str(p.relative_to(folder)), p.read_bytes()), files))
    return uri


class _TableLocation:
    """The location of a contender's table: constant, or new after :meth:`renew`."""

    def __init__(self, kind: str) -> None:
        self.kind, self.known = kind, ""

    def renew(self) -> None:
        self.known = _put(self.kind)

    @property
    def uri(self) -> str:
        self.known = self.known or _put(self.kind)
        return self.known


# --- Delta -----------------------------------------------------------------------------------------------------------


def _theirs(place: _TableLocation) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(place.uri, storage_options=_options())


def _ours(place: _TableLocation) -> ArrowDeltaTable:
    return trilake.open(place.uri, format="delta", storage_options=_options())


def _their_scan(place: _TableLocation, columns: list[str] | None, filter: pc.Expression | None) -> int:
    return int(_theirs(place).to_pyarrow_dataset().to_table(columns=columns, filter=filter).num_rows)


def _changes() -> pa.Table:
    """Ten rows of one file, and ten new ones."""
    return pa.concat_tables([_rows(5).slice(100, 10), _rows(_FILES).slice(0, 10)])


def _their_append(place: _TableLocation) -> None:
    deltalake.write_deltalake(place.uri, _rows(_FILES), mode="append", storage_options=_options())


def _our_append(place: _TableLocation) -> None:
    trilake.write(_rows(_FILES), place.uri, mode="append", storage_options=_options())


def _their_delete(place: _TableLocation) -> int:
    return int(_theirs(place).delete("id = 5005")["num_deleted_rows"])


def _their_merge(place: _TableLocation) -> int:
    merge = _theirs(place).merge(_changes(), "source.id = target.id", source_alias="source", target_alias="target")
    return int(merge.when_matched_update_all().when_not_matched_insert_all().execute()["num_target_rows_updated"])


def _our_merge(place: _TableLocation) -> int:
    merge = _ours(place).merge(_changes(), "source.id = target.id")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute().num_updated_rows


def _of_delta() -> Iterator[Benchmark]:
    jobs: dict[str, tuple[str, Callable[[_TableLocation], object], Callable[[_TableLocation], object], bool]] = {
        "open": ("open", lambda p: _theirs(p).version(), lambda p: _ours(p).version, False),
        "lookup": (
            "open, and a column of the row of one id",
            lambda p: _their_scan(p, ["x"], pc.field("id") == 5005),
            lambda p: _ours(p).to_arrow(["x"], "id = 5005").num_rows,
            False,
        ),
        "column": (
            f"open, and a column of all {_FILES} files",
            lambda p: _their_scan(p, ["x"], None),
            lambda p: _ours(p).to_arrow(["x"]).num_rows,
            False,
        ),
        "append": (f"append {_ROWS} rows to the table at a path", _their_append, _our_append, True),
        "delete": ("open, DELETE of one row", _their_delete, lambda p: _ours(p).delete("id = 5005").rows, True),
        "merge": ("open, MERGE of 20 rows, of which ten are in one file", _their_merge, _our_merge, True),
    }
    for job, (title, theirs, ours, writes) in jobs.items():
        contenders = [_contender("deltalake", theirs, "delta", writes), _contender("trilake", ours, "delta", writes)]
        yield _benchmark(f"delta-{job}", f"table of {_FILES} files and a checkpoint: {title}", contenders)
    contenders = [
        _contender("deltalake", lambda p: _theirs(p).optimize.compact() and None, "delta-small", True),
        _contender("trilake", lambda p: str(_ours(p).optimize()) and None, "delta-small", True),
    ]
    yield _benchmark("delta-optimize", f"table of {_SMALL} partitions of two files: OPTIMIZE", contenders, rounds=3)


def _contender(name: str, run: Callable[[_TableLocation], object], kind: str, writes: bool) -> Contender:
    place = _TableLocation(kind)
    return Contender(name, lambda: run(place), place.renew if writes else None)


def _benchmark(name: str, title: str, contenders: list[Contender], rounds: int = 7) -> Benchmark:
    baseline = contenders[0].name
    return Benchmark(name, title, contenders, baseline, targets={"trilake": 1.0}, setup=_options, rounds=rounds)


# --- Lance -----------------------------------------------------------------------------------------------------------


def _dataset(side: str, place: _TableLocation) -> Any:
    return SIDES[side].dataset(place.uri, storage_options=_options())


def _lance_append(side: str, place: _TableLocation) -> None:
    SIDES[side].write_dataset(_rows(9), place.uri, mode="append", storage_options=_options())


def _of_lance() -> Iterator[Benchmark]:
    jobs: dict[str, tuple[str, Callable[[str, _TableLocation], object], bool]] = {
        "open": ("open", lambda side, p: _dataset(side, p).version, False),
        "take": (
            f"open, take {len(_TAKEN)} rows",
            lambda side, p: _dataset(side, p).take(_TAKEN)["id"].to_pylist(),
            False,
        ),
        "column": (
            "open, read one column",
            lambda side, p: _dataset(side, p).to_table(columns=["x"]).num_rows,
            False,
        ),
        "append": (f"append {_ROWS} rows to the dataset at a path", _lance_append, True),
    }
    for job, (title, run, writes) in jobs.items():
        contenders = [_contender(side, partial(run, side), "lance", writes) for side in SIDES]
        yield _benchmark(f"lance-{job}", f"dataset of {_LANCE_FILES} × {_LANCE_ROWS:,} rows: {title}", contenders)
    nearest = {"column": "v", "q": [1.0] * 8, "k": 5}
    of_fragments: dict[str, tuple[Callable[[Any], object], bool]] = {
        "read": (lambda d: d.to_table().num_rows, False),
        "nearest": (lambda d: d.to_table(nearest=nearest).num_rows, False),
        "delete": (lambda d: d.delete("k % 10 = 3") and None, True),
        "update": (lambda d: d.update({"s": "'new'"}, where="k % 10 = 3")["num_rows_updated"], True),
        "add": (lambda d: d.add_columns({"w": "id + 1"}), True),
    }
    for job, (call, writes) in of_fragments.items():
        run = partial(_call, call)
        contenders = [_contender(side, partial(run, side), "lance-small", writes) for side in SIDES]
        title = f"dataset of {_SMALL} fragments of ten rows: open, {job}"
        yield _benchmark(f"lance-fragments-{job}", title, contenders, rounds=3)
    contenders = [
        _contender(side, partial(_call, of_fragments["read"][0], side), "lance-wide", False) for side in SIDES
    ]
    yield _benchmark("lance-columns", f"dataset of 100 rows × {_COLUMNS:,} columns: open, read", contenders, rounds=3)


def _call(call: Callable[[Any], object], side: str, place: _TableLocation) -> object:
    return call(_dataset(side, place))


def benchmarks() -> Iterator[Benchmark]:
    yield from _of_delta()
    yield from _of_lance()
