"""IVF_PQ search against pylance, on an index of the second generation that it makes of the same vectors.

Both look into the same number of partitions, with the same number of pieces and refining; recall is compared before.
pylance takes the vectors that it refines with from its dataset, this package's index is searched by itself and refined
with vectors in memory: what is compared is the search in the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import lance as pylance
import numpy as np
import pyarrow as pa

from bench.harness import Benchmark, BenchmarkError, Contender, data
from trilake.lance.index import ivf_pq
from trilake.lance.index.ivf_pq import Floats, VectorIndex
from trilake.storage import open_store

ROWS, DIMENSION, PARTITIONS, PIECES = 200_000, 64, 64, 16
K, PROBES, REFINE, QUERIES = 10, 8, 4, 50
FOLDER = "_indices/trilake"


@cache
def vectors() -> Floats:
    """Around centres, as real ones are; queries are drawn in the same way."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(256, DIMENSION)) * 2
    near = centres[rng.integers(0, 256, ROWS + QUERIES)]
    found: Floats = (near + rng.normal(size=near.shape)).astype(np.float32)
    return found


def _build(folder: Path) -> None:
    rows = vectors()[:ROWS]
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), DIMENSION)})
    made = pylance.write_dataset(
        table, str(folder / "t.lance"), data_storage_version="legacy", enable_v2_manifest_paths=False
    )
    made.create_index("v", "IVF_PQ", num_partitions=PARTITIONS, num_sub_vectors=PIECES)
    rng = np.random.default_rng(4)
    model = ivf_pq.train(rows[rng.choice(ROWS, 64 * 256)], PARTITIONS, PIECES, rng, iterations=10)
    partition, codes = ivf_pq.encode(model, rows)
    ids = np.arange(ROWS, dtype=np.uint64)
    store = open_store(str(folder))
    ivf_pq.write(store, FOLDER, model, partition, codes, ids, name="v", column="v", dataset_version=1)


def folder() -> Path:
    """The folder of the dataset and of our index."""
    return data(f"lance-ivf-{ROWS}-{DIMENSION}", _build)


@cache
def _opened(side: str) -> Any:
    if side == "pylance":
        return pylance.dataset(str(folder() / "t.lance"))
    return VectorIndex.open(open_store(str(folder())), FOLDER)


def _search(side: str) -> list[list[int]]:
    """Row ids of the nearest of each query."""
    opened, rows, found = _opened(side), vectors(), []
    for query in rows[ROWS:]:
        if side == "pylance":
            nearest = {"column": "v", "q": query, "k": K, "nprobes": PROBES, "refine_factor": REFINE}
            table = opened.to_table(columns=["_distance"], nearest=nearest, with_row_id=True)
            found.append(table["_rowid"].to_pylist())
        else:
            ids, _ = opened.search(query, K, nprobes=PROBES, refine_factor=REFINE)
            difference = rows[ids.astype(np.int64)] - query
            best = np.argsort(np.einsum("ij,ij->i", difference, difference))[:K]
            found.append(ids[best].tolist())
    return found


def recall(side: str) -> float:
    """The share of the truly nearest rows that a search finds."""
    rows, hits = vectors(), 0
    for query, found in zip(rows[ROWS:], _search(side), strict=True):
        near = np.argpartition(ivf_pq.centroid_distances(query[None], rows[:ROWS], "l2")[0], K)[:K]
        hits += len(set(near.tolist()) & set(found))
    return hits / (QUERIES * K)


def _setup() -> None:
    ours, theirs = recall("trilake"), recall("pylance")
    if ours < theirs - 0.02:
        raise BenchmarkError(f"recall of {ours:.3f} against {theirs:.3f}: the times would not compare")


def _run(side: str) -> None:
    _search(side)


def benchmarks() -> Iterator[Benchmark]:
    """One: searches one after another."""
    sides = [Contender(side, partial(_run, side)) for side in ("pylance", "trilake")]
    title = f"{QUERIES} searches in an IVF_PQ index of {ROWS // 1000}k x {DIMENSION}, nprobes {PROBES}"
    yield Benchmark("ivf-pq-search", title, sides, "pylance", targets={"trilake": 1.5}, setup=_setup, rounds=5)
