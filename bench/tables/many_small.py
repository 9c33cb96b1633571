"""One statement over many small files, one per partition, to measure the cost per file.

trilake syncs new files to disk before it commits, which dominates on a busy disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import trilake
from bench.harness import Benchmark, Contender, data
from bench.tables.delta import scratch
from trilake.delta.table import ArrowDeltaTable

#: Files, and rows of each: a table that a two-core machine copies in a second.
_FILES, _ROWS = 500, 10
_CHANGED = "r = 3"


def _table(vectors: bool) -> Path:
    """One row of each file has ``r = 3``, so that a statement on it changes a row in each."""

    def build(folder: Path) -> None:
        numbers = range(_FILES * _ROWS)
        rows = {
            "id": pa.array(numbers, pa.int64()),
            "p": pa.array([n % _FILES for n in numbers], pa.int32()),
            "r": pa.array([n // _FILES for n in numbers], pa.int32()),
            "v": pa.array([f"value {n}" for n in numbers]),
        }
        properties = {"delta.enableDeletionVectors": "true"} if vectors else None
        trilake.write(pa.table(rows), folder, partition_by=["p"], properties=properties)

    return data(f"many-small-{_FILES}-{'vectors' if vectors else 'plain'}", build)


@cache
def _source() -> pa.Table:
    changed = range(3 * _FILES, 4 * _FILES)
    columns = {"id": pa.array(changed, pa.int64()), "w": pa.array([f"new {n}" for n in changed])}
    return pa.table(columns)


def _copied(name: str, *, vectors: bool = False, after: Callable[[Path], object] | None = None) -> Callable[[], None]:
    """Put a fresh table at the contender's path, and apply ``after`` to it, untimed."""

    def prepare() -> None:
        shutil.rmtree(scratch(name), ignore_errors=True)
        shutil.copytree(_table(vectors), scratch(name))
        if after is not None:
            after(scratch(name))

    return prepare


def _ours(place: Path) -> ArrowDeltaTable:
    table = trilake.open(place)
    assert isinstance(table, ArrowDeltaTable)
    return table


def _merge(place: Path) -> None:
    merge = _ours(place).merge(_source(), "target.id = source.id")
    merge.when_matched_update({"v": "source.w"}).execute()


def _their_merge(place: Path) -> None:
    merge = deltalake.DeltaTable(str(place)).merge(
        _source(), "target.id = source.id", source_alias="source", target_alias="target"
    )
    merge.when_matched_update({"v": "source.w"}).execute()


def _without_log(place: Path) -> None:
    shutil.rmtree(place / "_delta_log")


def _their_vacuum(place: Path) -> None:
    deltalake.DeltaTable(str(place)).vacuum(0, dry_run=False, enforce_retention_duration=False)


#: By verb: trilake's call, deltalake's call, and the preparation of the table.
_VERBS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any], Callable[[Path], object] | None]] = {
    "delete": (
        lambda place: _ours(place).delete(_CHANGED),
        lambda place: deltalake.DeltaTable(str(place)).delete(_CHANGED),
        None,
    ),
    "update": (
        lambda place: _ours(place).update({"v": "concat(v, '!')"}, _CHANGED),
        lambda place: deltalake.DeltaTable(str(place)).update(updates={"v": "concat(v, '!')"}, predicate=_CHANGED),
        None,
    ),
    "merge": (_merge, _their_merge, None),
    "optimize": (
        lambda place: _ours(place).optimize(),
        lambda place: deltalake.DeltaTable(str(place)).optimize.compact(),
        lambda place: trilake.write(
            pa.table({"id": range(_FILES), "p": pa.array(range(_FILES), pa.int32())}),
            place,
            mode="append",
        ),
    ),
    "vacuum": (
        lambda place: _ours(place).vacuum(0, dry_run=False, enforce_retention=False),
        _their_vacuum,
        lambda place: _ours(place).delete(_CHANGED),
    ),
    "restore": (
        lambda place: _ours(place).restore(0),
        lambda place: deltalake.DeltaTable(str(place)).restore(0),
        lambda place: _ours(place).delete(_CHANGED),
    ),
    "convert": (
        lambda place: trilake.convert_to_delta(place, partition_by={"p": "int"}),
        lambda place: deltalake.convert_to_deltalake(
            str(place),
            partition_by=deltalake.Schema.from_arrow(pa.schema([("p", pa.int32())])),
            partition_strategy="hive",
        ),
        _without_log,
    ),
}


def _contenders(verb: str) -> list[Contender]:
    ours, theirs, after = _VERBS[verb]

    def contender(label: str, name: str, run: Callable[[Path], Any], *, vectors: bool = False) -> Contender:
        def once() -> None:
            run(scratch(name))

        return Contender(label, once, _copied(name, vectors=vectors, after=after))

    out = [
        contender("deltalake", f"small-{verb}-theirs", theirs),
        contender("trilake", f"small-{verb}-plain", ours),
    ]
    if verb in ("delete", "update", "merge"):
        out.append(contender("trilake, vectors", f"small-{verb}-vectors", ours, vectors=True))
    return out


def benchmarks() -> Iterator[Benchmark]:
    for verb in _VERBS:
        contenders = _contenders(verb)
        yield Benchmark(
            verb,
            f"without Spark: {verb.upper()} of {_FILES} files of {_ROWS} rows, each in a partition of its own",
            contenders,
            baseline="deltalake",
            targets={c.name: 1.0 for c in contenders[1:]},
            rounds=3,
        )
    place = "small-look"
    yield Benchmark(
        "looks",
        f"without Spark: verify and report of the same table of {_FILES} files, beside reading all of it",
        [
            Contender("read", lambda: _read(scratch(place)), _copied(place)),
            Contender("verify", lambda: _verify(scratch(place)), _copied(place)),
            Contender("report", lambda: _report(scratch(place)), _copied(place)),
        ],
        baseline="read",
        rounds=3,
    )


def _read(place: Path) -> None:
    _ours(place).to_arrow()


def _verify(place: Path) -> None:
    trilake.verify(str(place))


def _report(place: Path) -> None:
    trilake.report(str(place), str(scratch("small-report.html")))
