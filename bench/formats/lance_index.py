"""Indices against pylance: IVF_PQ searches, filters through a BTREE, and training on Spark.

Each library searches its own index over the same vectors, with the same numbers of partitions, subvectors and probes.
The time covers a user's call, from the query to a table of rows with distances.  Recall is compared first: speed at a
lower recall would mean nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.harness import Benchmark, BenchmarkError, Contender, data
from trilake import lance

ROWS, DIMENSION, PARTITIONS, PIECES = 200_000, 64, 64, 16
K, PROBES, REFINE, QUERIES = 10, 8, 4, 50


@cache
def vectors() -> npt.NDArray[np.float32]:
    """Clustered around centres, as real vectors are; queries are drawn in the same way."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(256, DIMENSION)) * 2
    near = centres[rng.integers(0, 256, ROWS + QUERIES)]
    found: npt.NDArray[np.float32] = (near + rng.normal(size=near.shape)).astype(np.float32)
    return found


def _table() -> pa.Table:
    keys = np.random.default_rng(7).permutation(ROWS)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors()[:ROWS].ravel()), DIMENSION)
    return pa.table({"id": np.arange(ROWS), "key": keys, "v": rows})


def _build(folder: Path) -> None:
    for side in ("pylance", "trilake"):
        uri = str(folder / f"{side}.lance")
        pylance.write_dataset(_table(), uri)
        opened: Any = pylance.dataset(uri) if side == "pylance" else lance.dataset(uri)
        opened.create_index("v", "IVF_PQ", num_partitions=PARTITIONS, num_sub_vectors=PIECES)
        opened.create_scalar_index("key", "BTREE")
    pylance.write_dataset(_table(), str(folder / "plain.lance"))


def folder() -> Path:
    """The folder of the datasets: one for each library's index, and one without."""
    return data(f"lance2-index-keys-{ROWS}-{DIMENSION}", _build)


@cache
def _opened(side: str) -> Any:
    uri = str(folder() / f"{side}.lance")
    if side == "scan":
        return lance.dataset(str(folder() / "plain.lance"))
    return pylance.dataset(uri) if side == "pylance" else lance.dataset(uri)


def _search(side: str, refine: int | None = REFINE) -> list[list[int]]:
    """Ids of the nearest rows of each query."""
    found = []
    for query in vectors()[ROWS:]:
        nearest = {"column": "v", "q": query, "k": K, "nprobes": PROBES, "refine_factor": refine}
        found.append(_opened(side).to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_pylist())
    return found


def _filter(side: str, text: str) -> int:
    """The sum of the ids of matching rows; ten times, because one run is too short."""
    return sum(int(_opened(side).to_table(columns=["id"], filter=text)["id"].to_numpy().sum()) for _ in range(10))


def recall(side: str, refine: int | None) -> float:
    """The share of the true nearest rows that a search finds."""
    rows, hits = vectors(), 0
    squares = np.einsum("ij,ij->i", rows[:ROWS], rows[:ROWS])
    for query, found in zip(rows[ROWS:], _search(side, refine), strict=True):
        near = np.argpartition(squares - 2 * (rows[:ROWS] @ query), K)[:K]
        hits += len(set(near.tolist()) & set(found))
    return hits / (QUERIES * K)


def _compare(refine: int | None) -> None:
    ours, theirs = recall("trilake", refine), recall("pylance", refine)
    if ours < theirs - 0.02:
        raise BenchmarkError(f"recall of {ours:.3f} against {theirs:.3f}: the times would not compare")


def _train(side: str) -> int:
    uri = _copy(side)
    more: dict[str, Any] = {"num_partitions": PARTITIONS, "num_sub_vectors": PIECES}
    if side == "pylance":
        pylance.dataset(uri).create_index("v", "IVF_PQ", **more)
    elif side == "spark":
        from trilake.spark.lance.index_jobs import create_index  # late: searches need no Spark

        create_index(_spark(), uri, "v", **more)
    else:
        lance.dataset(uri).create_index("v", "IVF_PQ", **more)
    return len(lance.dataset(uri).list_indices())


@cache
def _spark() -> Any:
    from bench.tables.delta import spark  # late, as above

    return spark()


def _copy(side: str) -> str:
    return str(folder().parent / f".lance-trained-{side}.lance")


def _fresh(side: str) -> None:
    shutil.rmtree(_copy(side), ignore_errors=True)
    shutil.copytree(folder() / "plain.lance", _copy(side))


def benchmarks() -> Iterator[Benchmark]:
    """Searches in sequence, with and without refining; and training."""
    for name, refine in (("ivf-pq-search", REFINE), ("ivf-pq-codes", None)):
        sides = [Contender(side, _discard(partial(_search, side, refine))) for side in ("pylance", "trilake")]
        how = f"nprobes {PROBES}, {f'refine factor {refine}' if refine else 'codes alone'}"
        title = f"{QUERIES} searches in an IVF_PQ index of {ROWS // 1000}k x {DIMENSION}, {how}"
        setup = partial(_compare, refine)
        yield Benchmark(name, title, sides, "pylance", targets={"trilake": 1.0}, setup=setup, rounds=5)
    for name, text in (("btree-equal", "key = 12345"), ("btree-range", "key BETWEEN 5000 AND 6000")):
        sides = [Contender(side, partial(_filter, side, text)) for side in ("scan", "pylance", "trilake")]
        title = f"ten filters `{text}` of {ROWS // 1000}k rows: a scan, and through a BTREE"
        yield Benchmark(name, title, sides, "scan", targets={"trilake": 1.0}, setup=folder, rounds=5)
    trained = [Contender(s, partial(_train, s), partial(_fresh, s)) for s in ("pylance", "trilake", "spark")]
    title = f"an IVF_PQ index of {ROWS // 1000}k x {DIMENSION}"
    yield Benchmark("ivf-pq-training", title, trained, "pylance", targets={"spark": 1.0}, setup=folder, rounds=3)


def _discard(job: Callable[[], object]) -> Callable[[], None]:
    """The job without its result: approximate results of both libraries may differ."""

    def run() -> None:
        job()

    return run
