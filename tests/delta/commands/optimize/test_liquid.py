"""Liquid clustering: the Hilbert curve, which cubes a run rewrites, and file skipping."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from tests.conftest import examples
from tests.delta.tables import new_uri, opened, rows
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.optimize.curve_order import hilbert_index
from trilake.delta.commands.optimize.optimize import OptimizeResult
from trilake.errors import InvalidArgumentError

# --- the curve -------------------------------------------------------------------------------------------------------

#: Dimensions and bits of cubes small enough to check every point.
CUBES = [(d, b) for d in range(1, 7) for b in range(1, 12) if d * b <= 12]


@given(cube=st.sampled_from(CUBES))
def test_hilbert_index_is_a_bijection_with_adjacent_steps(cube: tuple[int, int]) -> None:
    dimensions, bits = cube
    points = np.array(list(itertools.product(range(1 << bits), repeat=dimensions)), np.uint64)
    index = hilbert_index(list(points.T), bits)
    order = np.argsort(index)
    assert np.array_equal(index[order], np.arange(1 << bits * dimensions)), "one index per point"
    steps = np.abs(np.diff(points[order].astype(np.int64), axis=0)).sum(axis=1)
    assert (steps == 1).all()


@given(data=st.data(), dimensions=st.integers(2, 5), bits=st.integers(2, 12))
def test_high_bits_follow_the_coarser_curve(data: st.DataObject, dimensions: int, bits: int) -> None:
    """The curve visits the half-size subcubes one after another, in curve order."""
    point = data.draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=dimensions, max_size=dimensions))
    coordinates = [np.array([v], np.uint64) for v in point]
    (fine,) = hilbert_index(coordinates, bits).tolist()
    corners = [np.array([v & ~1, v | 1], np.uint64) for v in point]
    block = {
        int(hilbert_index([np.array([c[i]], np.uint64) for c, i in zip(corners, at, strict=True)], bits)[0])
        for at in itertools.product((0, 1), repeat=dimensions)
    }
    size = 1 << dimensions
    assert block == set(range(fine // size * size, fine // size * size + size))


def test_hilbert_index_does_not_depend_on_batch_size() -> None:
    rng = np.random.default_rng(0)
    points = [rng.integers(0, 1 << 12, 40_000).astype(np.uint64) for _ in range(3)]
    copies = [p.copy() for p in points]
    index = hilbert_index(points, 12)
    assert all(np.array_equal(a, b) for a, b in zip(points, copies, strict=True)), "the points are unchanged"
    for at in (0, 16_383, 16_384, 39_999):
        assert hilbert_index([p[at : at + 1] for p in points], 12)[0] == index[at]
    assert len(hilbert_index([np.array([], np.uint64)] * 2, 4)) == 0


# --- tables ----------------------------------------------------------------------------------------------------------


def clustered(columns: list[str], **properties: str) -> str:
    uri = new_uri()
    trilake.create(uri, {"x": "bigint", "y": "string", "n": "bigint"}, cluster_by=columns, properties=properties)
    return uri


def add(uri: str, files: int = 2, count: int = 1000, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(files):
        x, y = rng.integers(0, 10_000, count), rng.integers(0, 10_000, count)
        trilake.write(
            pa.table({"x": x, "y": [f"k{v:05d}" for v in y], "n": pa.array(range(count), pa.int64())}),
            uri,
            mode="append",
        )


def optimize(uri: str, **how: Any) -> OptimizeResult:
    return opened(uri).optimize(**how)


def cubes(uri: str) -> dict[str | None, int]:
    """Files by cube."""
    result: dict[str | None, int] = {}
    for tags in opened(uri).snapshot.adds["tags"].to_pylist():
        cube = dict(tags or ()).get("ZCUBE_ID")
        result[cube] = result.get(cube, 0) + 1
    return result


def test_files_are_clustered_into_a_cube() -> None:
    uri = clustered(["x", "y"])
    add(uri, files=4)
    before = rows(opened(uri).to_arrow())
    size = sum(opened(uri).files()["size"].to_pylist())
    done = optimize(uri, target_size=size // 8)
    assert done.files_removed == 4
    assert 7 <= done.files_added <= 9
    assert rows(opened(uri).to_arrow()) == before
    for a in opened(uri).snapshot.adds.to_pylist():
        tags = dict(a["tags"])
        assert a["clusteringProvider"] == "liquid"
        assert json.loads(tags["ZCUBE_ZORDER_BY"]) == ["x", "y"]
        assert tags["ZCUBE_ZORDER_CURVE"] == "hilbert"
    assert len(cubes(uri)) == 1
    (last,) = opened(uri).history(1).to_pylist()
    assert dict(last["operationParameters"])["clusterBy"] == '["x","y"]'
    stats = done.metrics.clustering_stats
    assert stats is not None
    assert (stats.input_num_z_cubes, stats.num_output_z_cubes) == (0, 1)
    assert (stats.input_z_cube_files.num_files, stats.input_other_files.num_files) == (0, 4)
    assert (stats.merged_files.num_files, stats.merged_files.size) == (4, size)
    assert done.metrics.z_order_stats is None


@pytest.mark.parametrize("columns", [["x"], ["x", "y"], ["y", "x", "n"]])
def test_clustered_files_are_skipped(columns: list[str]) -> None:
    uri = clustered(columns)
    add(uri, files=8)
    filters = {"x": "x between 3100 and 3200", "y": "y between 'k03100' and 'k03200'", "n": "n between 310 and 320"}
    assert [opened(uri).files(filters[c]).num_rows for c in columns] == [8] * len(columns)
    size = sum(opened(uri).files()["size"].to_pylist())
    files = optimize(uri, target_size=size // 32).files_added
    assert files > 28
    for c in columns:
        # A slice through a cube with this many dimensions meets this share of its files, plus some at the edges.
        assert opened(uri).files(filters[c]).num_rows <= 2.2 * files ** (1 - 1 / len(columns)) + 1


def test_large_cube_is_not_rewritten() -> None:
    uri = clustered(["x", "y"])
    add(uri)
    optimize(uri)
    (first,) = cubes(uri)
    assert optimize(uri).files_removed == 0, "a single cube without new files"
    add(uri, seed=1)
    done = optimize(uri, min_cube_size=1)
    assert done.files_removed == 2
    assert first in cubes(uri)
    assert len(cubes(uri)) == 2
    stats = done.metrics.clustering_stats
    assert stats is not None
    assert (stats.input_num_z_cubes, stats.input_z_cube_files.num_files, stats.input_other_files.num_files) == (1, 1, 2)
    assert stats.merged_files.num_files == 2
    assert optimize(uri, min_cube_size=1).files_removed == 0


def test_small_cubes_are_merged() -> None:
    uri = clustered(["x", "y"])
    for seed in range(2):
        add(uri, seed=seed)
        optimize(uri, min_cube_size=1)
    assert len(cubes(uri)) == 2
    assert optimize(uri).files_removed == 2
    assert len(cubes(uri)) == 1
    add(uri, files=1)
    assert optimize(uri).files_removed == 2, "a small cube absorbs new files"


def test_cubes_are_closed_when_they_are_large() -> None:
    uri = clustered(["x", "y"])
    add(uri, files=6)
    size = opened(uri).files()["size"].to_pylist()[0]
    optimize(uri, min_cube_size=1, target_cube_size=2 * size + size // 2)
    assert len(cubes(uri)) == 3


def test_changed_columns_apply_to_new_files() -> None:
    uri = clustered(["x"])
    add(uri)
    optimize(uri)
    old = set(cubes(uri))
    Alter(opened(uri).log).cluster_by("y")
    assert optimize(uri).files_removed == 0, "already clustered by other columns"
    add(uri, seed=1)
    assert optimize(uri).files_removed == 2
    assert old < set(cubes(uri))
    done = optimize(uri, full=True)
    assert done.files_removed == 2
    assert len(cubes(uri)) == 1
    stats = done.metrics.clustering_stats
    assert stats is not None
    assert stats.input_z_cube_files.num_files == 2
    (last,) = opened(uri).history(1).to_pylist()
    assert dict(last["operationParameters"])["isFull"] == "true"
    assert optimize(uri, full=True, min_cube_size=1).files_removed == 1, "full takes large cubes too"


def test_optimize_without_clustering_columns_compacts() -> None:
    uri = clustered(["x"])
    add(uri)
    Alter(opened(uri).log).cluster_by()
    done = optimize(uri)
    assert (done.files_removed, done.files_added) == (2, 1)
    assert done.metrics.clustering_stats is None
    assert set(cubes(uri)) == {None}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"where": "x = 1"}, "partition predicates"), ({"zorder_by": "x"}, "cannot specify ZORDER BY")],
)
def test_where_and_zorder_are_rejected(arguments: dict[str, Any], says: str) -> None:
    uri = clustered(["x"])
    add(uri)
    with pytest.raises(InvalidArgumentError, match=says):
        optimize(uri, **arguments)


def test_clustering_keeps_vectors_mapping_and_row_ids() -> None:
    uri = clustered(
        ["x", "y"],
        **{
            "delta.enableDeletionVectors": "true",
            "delta.enableRowTracking": "true",
            "delta.columnMapping.mode": "name",
        },
    )
    add(uri, files=3)
    trilake.write(opened(uri).schema.empty_table(), uri, mode="overwrite", replace_where="n % 3 = 1")
    Alter(opened(uri).log).rename_column("x", "renamed")
    before = rows(opened(uri).to_arrow())
    done = optimize(uri, target_size=5000, memory=30_000)
    assert done.files_removed == 3
    assert done.files_added > 3
    assert rows(opened(uri).to_arrow()) == before
    assert opened(uri).snapshot.adds["deletionVector"].null_count == done.files_added
    tags = dict(opened(uri).snapshot.adds["tags"].to_pylist()[0])
    assert json.loads(tags["ZCUBE_ZORDER_BY"]) == ["renamed", "y"]


def test_file_with_vector_stays_in_its_cube() -> None:
    uri = clustered(["x"], **{"delta.enableDeletionVectors": "true"})
    add(uri)
    optimize(uri)
    trilake.write(opened(uri).schema.empty_table(), uri, mode="overwrite", replace_where="n = 1")
    (add_,) = opened(uri).snapshot.adds.to_pylist()
    assert add_["deletionVector"] is not None
    assert add_["clusteringProvider"] == "liquid"
    assert optimize(uri).files_removed == 0


@settings(max_examples=examples(10))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "optimize", "full", "small"]), st.integers(0, 99)), min_size=2, max_size=6
    )
)
def test_random_histories_keep_all_rows(steps: list[tuple[str, int]]) -> None:
    uri = clustered(["x", "y"])
    for kind, seed in [("add", 1), *steps]:
        before = rows(opened(uri).to_arrow())
        if kind == "add":
            add(uri, files=1, count=50, seed=seed)
            assert opened(uri).count() == len(before) + 50
            continue
        min_cube_size = 1 if kind == "small" else 1 << 30
        optimize(uri, target_size=1 + 40 * seed, full=kind == "full", min_cube_size=min_cube_size)
        assert rows(opened(uri).to_arrow()) == before
        assert None not in cubes(uri), "every file is in a cube now"
