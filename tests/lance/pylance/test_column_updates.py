"""Columns updated in place: ``update_columns``, and fragments with fields moved to other files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from trilake import lance
from trilake.errors import ConflictError, SchemaMismatchError
from trilake.lance.file.errors import UnknownColumnError
from trilake.lance.fragment import FragmentMetadata

RNG = np.random.default_rng(3)
VECTORS = RNG.normal(size=(600, 8)).astype(np.float32)


def vectors(values: Any) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 8)


def dataset(name: str, **more: Any) -> lance.LanceDataset:
    rows = pa.table(
        {"id": range(600), "a": np.arange(600) / 2, "v": vectors(VECTORS), "s": [f"s{i}" for i in range(600)]}
    )
    options: dict[str, Any] = {"max_rows_per_file": 300, "max_rows_per_group": 64, **more}
    return lance.write_dataset(rows, f"memory://columns-{name}", mode="overwrite", **options)


def committed(ds: lance.LanceDataset, fragment: FragmentMetadata, fields: list[int]) -> lance.LanceDataset:
    operation = lance.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    return lance.LanceDataset.commit(ds, operation, read_version=ds.version)


def test_rows_are_updated_by_key() -> None:
    ds = dataset("keys")
    ds.delete("id = 3")
    new = pa.table({"k": [2, 3, 70, 500], "a": [-2.0, -3.0, -70.0, -5.0], "s": ["x", "y", None, "z"]})
    fragment, fields, found = ds.get_fragments()[0].update_columns(new, "id", "k", with_offsets=True)
    assert (fields, list(BitMap.deserialize(found))) == ([1, 3], [2, 70])
    assert [f.fields for f in fragment.files] == [[0, -2, 2, -2], [1, 3]]
    done = committed(ds, fragment, fields)
    done.validate()
    want = ds.to_table().to_pylist()
    for row in want:
        if row["id"] in (2, 70):
            row |= {2: {"a": -2.0, "s": "x"}, 70: {"a": -70.0, "s": None}}[row["id"]]
    assert done.to_table().to_pylist() == want
    assert done.to_table(["id"], filter="a < 0 AND s = 'x'").to_pylist() == [{"id": 2}]
    shown = done.read_transaction(done.version)
    assert shown is not None
    assert isinstance(shown.operation, lance.LanceOperation.Update)
    assert shown.operation.fields_modified == [1, 3]


def test_only_files_of_updated_columns_are_written() -> None:
    ds = dataset("files")
    ds.add_columns({"b": "id * 2"})
    ds.add_columns(pa.field("n", pa.string()))
    before = ds.get_fragments()[0]
    ids = pa.array([1, 5], pa.uint64())
    fragment, fields = before.update_columns(pa.table({"_rowid": ids, "b": [-1, -5], "n": ["one", "five"]}))
    assert (fields, [f.fields for f in fragment.files]) == ([4, 5], [[0, 1, 2, 3], [4, 5]])
    assert fragment.files[0].path == before.data_files()[0].path
    done = committed(ds, fragment, fields)
    assert done.to_table(["id", "b", "n"], limit=3, filter="id > 0").to_pydict() == {
        "id": [1, 2, 3],
        "b": [-1, 4, 6],
        "n": ["one", None, None],
    }
    again, fields = done.get_fragments()[0].update_columns(pa.table({"_rowaddr": ids, "n": ["1", "5"]}), "_rowaddr")
    assert committed(done, again, fields).to_table(["n"], filter="n IS NOT NULL").to_pydict() == {"n": ["1", "5"]}


def test_update_nulls_dictionaries_and_structs() -> None:
    rows = pa.table(
        {
            "id": range(4),
            "n": pa.array([1, None, 3, 4]),
            "d": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
            "p": [{"x": i, "y": str(i)} for i in range(4)],
        }
    )
    ds = lance.write_dataset(
        rows, "memory://columns-kinds", mode="overwrite", nulls="mask", data_storage_version="legacy"
    )
    new = pa.table({"id": [0, 1, 2], "n": [None, 20, 30], "d": ["b", "a", None], "p": [{"x": 9, "y": "9"}] * 3})
    fragment, fields = ds.get_fragments()[0].update_columns(new, "id")
    assert committed(ds, fragment, fields).to_table().to_pydict() == {
        "id": [0, 1, 2, 3],
        "n": [None, 20, 30, 4],
        "d": ["b", "a", None, "b"],
        "p": [{"x": 9, "y": "9"}] * 3 + [{"x": 3, "y": "3"}],
    }


def test_invalid_update_is_rejected_and_leaves_no_file() -> None:
    ds = dataset("rejected", data_storage_version="legacy")
    fragment = ds.get_fragments()[0]
    before = sorted(f.key for f in ds.snapshot.store.list("data"))
    for new, error in (
        ({"id": [1], "zz": [1]}, UnknownColumnError),
        ({"zz": [1], "a": [1.0]}, UnknownColumnError),
        ({"id": [1]}, ValueError),
        ({"id": [1], "a": ["x"]}, SchemaMismatchError),
        ({"id": [1], "a": pa.array([None], pa.float64())}, SchemaMismatchError),
    ):
        with pytest.raises(error):
            fragment.update_columns(pa.table(new), "id")
    assert sorted(f.key for f in ds.snapshot.store.list("data")) == before


@pytest.fixture
def indexed() -> lance.LanceDataset:
    ds = dataset("indexed")
    ds.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4, seed=1)
    ds.create_scalar_index("a", "BTREE")
    ds.create_scalar_index("id", "BTREE")
    return ds


def test_indices_do_not_cover_updated_fragments(indexed: lance.LanceDataset) -> None:
    new = pa.table({"id": range(100), "a": np.arange(100) + 1000.0, "v": vectors(VECTORS[:100] + 100)})
    fragment, fields = indexed.get_fragments()[0].update_columns(new, "id")
    ds = committed(indexed, fragment, fields)
    for covered in ({1}, {0, 1}):
        assert {i["name"]: i["fragment_ids"] for i in ds.list_indices()} == {
            "v_idx": covered,
            "a_idx": covered,
            "id_idx": {0, 1},
        }
        assert ds.count_rows("a >= 1000") == 100
        assert ds.count_rows("a = 5") == 0
        for q in (VECTORS[5], VECTORS[5] + 100):
            near = {"column": "v", "q": q, "k": 20}
            some = ds.to_table(["id"], nearest={**near, "nprobes": 2, "refine_factor": 30})["id"].to_pylist()
            assert some == ds.to_table(["id"], nearest={**near, "use_index": False})["id"].to_pylist()
            coarse = ds.to_table(["id"], nearest={**near, "nprobes": 2})["id"].to_pylist()
            assert len(set(coarse)) == 20
        ds.optimize.optimize_indices()


def test_concurrent_index_does_not_cover_old_values(indexed: lance.LanceDataset) -> None:
    fragment, fields = indexed.get_fragments()[0].update_columns(pa.table({"id": [1], "s": ["new"]}), "id")
    entry = lance.LanceDataset(indexed.uri)
    entry.create_scalar_index("s", "BTREE", name="late")
    index = entry.read_transaction(entry.version)
    entry.drop_index("late")
    done = committed(indexed, fragment, fields)
    assert index is not None
    with pytest.raises(ConflictError, match="was changed by another commit"):
        lance.LanceDataset.commit(done, index.operation, read_version=done.version - 1)
    assert done.count_rows("s = 'new'") == 1


def test_fields_moved_to_another_file() -> None:
    # As pylance 14 writes them: -2 replaces the field in its old file.
    for field, column in enumerate(("id", "a", "v", "s")):
        ds = dataset("replaced", data_storage_version="legacy")
        first = ds.get_fragments()[0]
        value = {"id": [-1], "a": [-1.0], "v": vectors(VECTORS[:1]), "s": ["new"]}[column]
        fragment, fields = first.update_columns(pa.table({"_rowid": pa.array([7], pa.uint64()), column: value}))
        assert fields == [field]
        text = fragment.to_json()
        ids = [0, 1, 2, 3]
        old = {"path": first.data_files()[0].path, "fields": [-2 if i == field else i for i in ids]}
        new = {"path": text["files"][0]["path"], "fields": [i if i == field else -2 for i in ids]}
        both = FragmentMetadata.from_json(json.dumps(text | {"files": [new, old]}))
        whole, parts = committed(ds, fragment, fields), None
        want = whole.to_table()
        whole.checkout_version(1).restore()
        parts = committed(lance.dataset(ds.uri), both, fields)
        parts.validate()
        assert parts.to_table() == want
        if column != "v":
            condition = f"{column} = {value[0]!r}"
            assert parts.to_table(["id"], filter=condition) == want.select(["id"]).slice(7, 1)
        parts.optimize.compact_files()
        assert parts.to_table() == want
