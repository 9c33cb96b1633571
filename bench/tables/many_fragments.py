"""One statement over a Lance dataset of many small fragments, to measure the cost per fragment.

trilake syncs new files to disk before it commits; pylance does not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lance as pylance
import pyarrow as pa

from bench.harness import Benchmark, Contender, data
from bench.tables.delta import scratch
from trilake import lance

_FRAGMENTS, _ROWS = 500, 10


def _rows(ids: range, v: str) -> pa.Table:
    vectors = pa.array([float(i * j % 13) for i in ids for j in range(8)], pa.float32())
    columns = {"id": pa.array(ids, pa.int64()), "r": pa.array([i % _ROWS for i in ids], pa.int32())}
    vector = pa.FixedSizeListArray.from_arrays(vectors, 8)
    return pa.table({**columns, "v": [f"{v} {i}" for i in ids], "vector": vector})


def _dataset() -> Path:
    def build(folder: Path) -> None:
        pylance.write_dataset(_rows(range(_FRAGMENTS * _ROWS), "value"), folder, max_rows_per_file=_ROWS)

    return data(f"many-fragments-{_FRAGMENTS}", build)


@cache
def _source() -> pa.Table:
    return _rows(range(0, _FRAGMENTS * _ROWS, 50), "new")


#: By verb: the call on a dataset, of either library; the result is compared.
_VERBS: dict[str, Callable[[Any], Any]] = {
    "read": lambda dataset: dataset.to_table().num_rows,
    "filter": lambda dataset: dataset.to_table(filter="id % 100 = 7").num_rows,
    "take": lambda dataset: dataset.take(range(0, _FRAGMENTS * _ROWS, 37), ["id", "v"]).num_rows,
    "nearest": lambda dataset: dataset.to_table(nearest={"column": "vector", "q": [1.0] * 8, "k": 5}).num_rows,
    "delete": lambda dataset: dataset.delete("r = 3") and None,
    "update": lambda dataset: dataset.update({"v": "concat(v, '!')"}, where="r = 3")["num_rows_updated"],
    "merge": lambda dataset: (
        dataset.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(_source())["num_updated_rows"]
    ),
    "add": lambda dataset: dataset.add_columns({"w": "id + 1"}),
    "compact": lambda dataset: dataset.optimize.compact_files().fragments_added,
    "index": lambda dataset: dataset.create_scalar_index("id", "BTREE") and None,
}


def contenders(name: str, dataset: Callable[[], Path], call: Callable[[Any], Any]) -> list[Contender]:
    """Both libraries, each with a fresh copy of the dataset, which is not timed."""

    def contender(label: str, library: Any) -> Contender:
        place = scratch(f"{name}-{label}")

        def prepare() -> None:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(dataset(), place)

        return Contender(label, lambda: call(library.dataset(str(place))), prepare)

    return [contender("pylance", pylance), contender("trilake", lance)]


def benchmarks() -> Iterator[Benchmark]:
    for verb, call in _VERBS.items():
        yield Benchmark(
            verb,
            f"without Spark: {verb} of {_FRAGMENTS} fragments of {_ROWS} rows",
            contenders(f"fragments-{verb}", _dataset, call),
            baseline="pylance",
            targets={"trilake": 1.0},
            rounds=5,
        )
