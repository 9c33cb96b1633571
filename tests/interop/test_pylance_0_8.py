"""Pylance 0.8.19, in a separate environment, and trilake: each reads and continues datasets of the other.

``make interop`` creates that environment and sets its Python in ``TRILAKE_PYLANCE_0_8``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.interop import dialogue
from trilake import lance as ours
from trilake.lance.versions.versions import list_versions
from trilake.storage import open_store

PYTHON = os.environ.get("TRILAKE_PYLANCE_0_8", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="make interop runs these: they need pylance 0.8.19")

#: The only storage version that pylance 0.8.19 knows.
OLDEST = {"data_storage_version": "legacy"}

#: Code for the other Python: a step of the dialogue, or a dump of versions.
DRIVER = """
import sys, lance, pyarrow as pa
sys.path.insert(0, sys.argv[1])
import dialogue
what, uri = sys.argv[2], sys.argv[3]
if what == "write":
    dialogue.write(lance, uri, dictionary=sys.argv[4] == "True")
elif what == "optimize":
    lance.dataset(uri).optimize.optimize_indices()
elif what == "search":
    import json
    ds = lance.dataset(uri)
    queries = ds.take([3, 250, 600], columns=["v"])["v"].to_pylist()
    some = ds.to_table(columns=["id"], filter="id IN (5, 601, 999)", prefilter=True)
    found = {"filter": sorted(some["id"].to_pylist())}
    found["plan"] = ds.scanner(filter="id = 5", prefilter=True).explain_plan()
    for i, q in enumerate(queries):
        near = {"column": "v", "q": q, "k": 8, "nprobes": 4}
        table = ds.to_table(columns=["id"], nearest=near)
        found[str(i)] = [table["id"].to_pylist(), table["_distance"].to_pylist()]
    found["knn"] = ds.scanner(nearest=near).explain_plan()
    with open(sys.argv[4], "w") as out:
        json.dump(found, out)
elif what == "dump":
    for version in sys.argv[5:]:
        table = dialogue.state(lance, uri, int(version))
        with pa.ipc.new_file(sys.argv[4] + version, table.schema) as out:
            out.write_table(table)
else:
    dialogue.STEPS[what](lance, uri)
"""


def theirs(*arguments: str) -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run([PYTHON, "-c", DRIVER, here, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def agree(uri: str, tmp_path: Path) -> None:
    versions = list_versions(open_store(uri)).versions
    prefix = str(tmp_path / "dump-")
    theirs("dump", uri, prefix, *map(str, versions))
    for version in versions:
        with pa.memory_map(f"{prefix}{version}") as file:
            expected = pa.ipc.open_file(file).read_all()
        found = dialogue.state(ours, uri, version)
        assert found.schema.equals(expected.schema), version
        assert found.to_pydict() == expected.to_pydict(), version


def step(who: str, name: str, uri: str) -> None:
    if who == "trilake":
        dialogue.STEPS[name](ours, uri)
    else:
        theirs(name, uri)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("author", ["trilake", "pylance"])
def test_libraries_take_turns_on_one_dataset(author: str, dictionary: bool, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    if author == "trilake":
        dialogue.write(ours, uri, dictionary=dictionary, **OLDEST)
    else:
        theirs("write", uri, str(dictionary))
    other = {"trilake": "pylance", "pylance": "trilake"}
    who = other[author]
    for name in dialogue.STEPS:
        if not (dictionary and name == "restore" and who == "pylance"):  # not supported with dictionaries
            step(who, name, uri)
        who = other[who]
        step(who, "append", uri)
    agree(uri, tmp_path)


@pytest.mark.parametrize("name", dialogue.STEPS)
@pytest.mark.parametrize("actor", ["trilake", "pylance"])
def test_other_library_reads_each_change(actor: str, name: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    dictionary = name != "restore"
    if actor == "pylance":
        dialogue.write(ours, uri, dictionary=dictionary, **OLDEST)
    else:
        theirs("write", uri, str(dictionary))
    step(actor, name, uri)
    agree(uri, tmp_path)


def test_column_ids_without_gaps_are_readable(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    dialogue.write(ours, uri, **OLDEST)
    ours.dataset(uri).drop_columns(["x", "tags"])
    ours.write_dataset(ours.dataset(uri).to_table(limit=50), uri, mode="append")
    ours.dataset(uri).add_columns({"y": "id * 2"})
    ours.dataset(uri).alter_columns({"path": "y", "name": "z"})
    ours.dataset(uri).optimize.compact_files()
    agree(uri, tmp_path)


INDEX = """
import json, sys, lance, numpy as np, pyarrow as pa
uri, = sys.argv[1:]
rng = np.random.default_rng(5)
v = rng.normal(size=(2000, 16)).astype("f4")
rows = pa.table({"id": range(2000), "v": pa.FixedSizeListArray.from_arrays(pa.array(v.reshape(-1)), 16)})
ds = lance.write_dataset(rows, uri, max_rows_per_file=700)
ds.create_index("v", "IVF_PQ", num_partitions=5, num_sub_vectors=4)
lance.dataset(uri).delete("id % 11 = 0")
found = []
for q in rng.normal(size=(3, 16)).astype("f4"):
    for how in ({"nprobes": 1}, {"nprobes": 5}, {"nprobes": 5, "refine_factor": 4}):
        for filter in (None, "id < 900"):
            nearest = {"column": "v", "q": q, "k": 8, **how}
            t = lance.dataset(uri).to_table(["id"], nearest=nearest, filter=filter, prefilter=True, with_row_id=True)
            found.append([q.tolist(), how, filter, t["_rowid"].to_pylist(), t["_distance"].to_pylist()])
print(json.dumps(found))
"""


def test_vector_indices_find_the_same_rows(tmp_path: Path) -> None:
    # Except cosine, for which 0.8.19 returns opposite vectors, and dot, for which it omits the centroids.
    uri = str(tmp_path / "t")
    done = subprocess.run([PYTHON, "-c", INDEX, uri], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for q, how, filter, ids, distances in json.loads(done.stdout):
        nearest = {"column": "v", "q": np.array(q, np.float32), "k": 8, **how}
        found = ours.dataset(uri).to_table(["id"], nearest=nearest, filter=filter, prefilter=True, with_row_id=True)
        np.testing.assert_allclose(found["_distance"].to_numpy(), distances, rtol=1e-4, atol=1e-5)
        assert sorted(found["_rowid"].to_pylist()) == sorted(ids)


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
def test_both_update_indices(tmp_path: Path, order: str) -> None:
    uri = str(tmp_path / "t")
    rng = np.random.default_rng(5)

    def rows(first: int, last: int) -> pa.Table:
        values = rng.uniform(0, 1, (last - first, 8)).astype(np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 8)
        return pa.table({"id": pa.array(range(first, last), pa.int64()), "v": vectors})

    made = ours.write_dataset(rows(0, 500), uri, max_rows_per_file=250, **OLDEST)
    made.create_index("v", "IVF_PQ", num_partitions=4, num_sub_vectors=4)
    made.create_scalar_index("id", "BTREE")

    def step(who: str) -> None:
        if who == "ours":
            ours.dataset(uri).optimize.optimize_indices()
        else:
            theirs("optimize", uri)

    first, second = ("ours", "theirs") if order == "ours first" else ("theirs", "ours")
    for count, who in ((500, first), (800, second)):
        ours.write_dataset(rows(count, count + 300), uri, mode="append")
        step(who)
        stats = ours.dataset(uri).stats.index_stats("v_idx")
        assert (stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (count + 300, 0)
    theirs("search", uri, str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["filter"] == [5, 601, 999]
    assert "MaterializeIndex" in found["plan"]
    assert ("KNNIndex" in found["knn"], "KNNFlat" in found["knn"]) == (True, False)
    ds = ours.dataset(uri)
    assert sorted(ds.to_table(columns=["id"], filter="id IN (5, 601, 999)")["id"].to_pylist()) == [5, 601, 999]
    for i, q in enumerate(ds.take([3, 250, 600], columns=["v"])["v"].to_pylist()):
        table = ds.to_table(columns=["id"], nearest={"column": "v", "q": q, "k": 8, "nprobes": 4})
        np.testing.assert_allclose(table["_distance"].to_numpy(), found[str(i)][1], rtol=1e-3, atol=1e-4)
        assert len(set(table["id"].to_pylist()) & set(found[str(i)][0])) >= 7
