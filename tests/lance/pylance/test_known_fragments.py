"""API of pylance 0.8.19: fragments, operations, and distributed work."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.lance.pylance.known import TABLE
from trilake import lance
from trilake.lance import LanceDataset, LanceFragment, LanceOperation
from trilake.lance.lance import Compaction
from trilake.lance.optimize import CompactionOptions, RewriteResult

# --- fragments and operations -----------------------------------------------------------------------------------------


def test_fragments(dataset: LanceDataset) -> None:
    (fragment,) = dataset.get_fragments()
    assert (fragment.count_rows(), fragment.physical_rows, fragment.num_deletions, fragment.metadata.id) == (
        100,
        100,
        0,
        0,
    )
    assert fragment.head(3) == TABLE.slice(0, 3)
    assert fragment.take([18, 20])["a"].to_pylist() == [18, 20]
    assert pickle.loads(pickle.dumps(fragment)).to_table() == fragment.to_table() == TABLE
    assert len(fragment.data_files()[0].path.removesuffix(".lance")) == 50
    cut = fragment.delete("a < 10")
    assert fragment.deletion_file() is None
    assert cut is not None
    assert re.fullmatch(r"_deletions/0-1-[0-9]{1,32}\.arrow", cut.deletion_file.path(0) if cut.deletion_file else "")
    assert fragment.delete("a >= 0") is None
    assert LanceDataset.commit(dataset.uri, LanceOperation.Overwrite(TABLE.schema, [cut])).count_rows() == 90
    assert dataset.get_fragment(77) is None
    with pytest.raises(ValueError, match="must return a"):
        fragment.add_columns(lambda batch: 3)


def test_fragment_metadata() -> None:
    files = [{"path": "0.lance", "fields": [0]}, {"path": "1.lance", "fields": [1]}]
    text = json.dumps({"id": 0, "files": files, "deletion_file": None, "physical_rows": 100})
    found = lance.FragmentMetadata.from_json(text)
    assert [f.path for f in found.data_files()] == ["0.lance", "1.lance"]
    assert pickle.loads(pickle.dumps(found)) == found == lance.FragmentMetadata.from_json(json.dumps(found.to_json()))


def test_distributed_writes(tmp_path: Path) -> None:
    for nothing in (pd.DataFrame([]), pd.DataFrame([{}])):
        with pytest.raises(OSError):
            LanceFragment.create(tmp_path, nothing)
    dataset = [LanceFragment.create(tmp_path, pd.DataFrame({"a": [i]})) for i in range(3)]
    assert dataset[0].to_json()["files"][0]["fields"] == [0]
    begun = LanceDataset.commit(tmp_path, LanceOperation.Overwrite(pa.schema({"a": pa.int64()}), dataset))
    assert begun.to_table()["a"].to_pylist() == [0, 1, 2]
    append = LanceOperation.Append([LanceFragment.create(tmp_path, pa.table({"a": [9]}))])
    with pytest.raises(OSError):
        LanceDataset.commit(tmp_path, append)
    assert LanceDataset.commit(tmp_path, append, read_version=1).count_rows() == 4
    with pytest.warns(DeprecationWarning, match="instead"):
        assert LanceDataset._commit(tmp_path, LanceOperation.Restore(1)).count_rows() == 3
    wider = begun.get_fragments()[0].add_columns(lambda b: pa.record_batch({"c": pc.multiply(b.column(0), 2)}))
    schema = pa.schema({"a": pa.int64(), "c": pa.int64()})
    rest = [f.add_columns(lambda b: pa.record_batch({"c": b.column(0)})) for f in begun.get_fragments()[1:]]
    merge = LanceOperation.Merge([wider, *rest], schema)
    assert LanceDataset.commit(tmp_path, merge, read_version=3).schema == schema
    with pytest.raises(TypeError, match="must be list"):
        LanceOperation.Append((dataset[0],))
    with pytest.raises(TypeError, match="schema must be"):
        LanceOperation.Overwrite(1, dataset)
    with pytest.raises(TypeError, match="must be list"):
        LanceOperation.Delete([1], [], "x")  # type: ignore[list-item]


def test_distributed_compaction(uri: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": range(800)}), uri, max_rows_per_file=200, max_rows_per_group=200)
    fragments = dataset.get_fragments()
    plan = Compaction.plan(dataset, options={"target_rows_per_fragment": 400, "num_threads": 1})
    assert repr(plan) == "CompactionPlan(read_version=1, tasks=<2 compaction tasks>)"
    assert (plan.read_version, plan.num_tasks()) == (1, 2)
    assert plan.tasks[0].fragments == [f.metadata for f in fragments[:2]]
    assert pickle.loads(pickle.dumps(plan)) == plan
    task = pickle.loads(pickle.dumps(plan.tasks[0]))
    assert task == plan.tasks[0]
    result = task.execute(dataset)
    assert (result.metrics.fragments_removed, result.metrics.fragments_added) == (2, 1)
    again = pickle.loads(pickle.dumps(result))
    assert isinstance(again, RewriteResult)
    assert again == result
    assert re.match(r"RewriteResult\(read_version=1, new_fragments=\[.+\], old_fragments=\[.+\]\)", repr(again))
    metrics = Compaction.commit(dataset, [result])
    assert (metrics.fragments_removed, metrics.fragments_added, dataset.version) == (2, 1, 3)
    with pytest.raises(ValueError, match="unknown compaction option"):
        Compaction.plan(dataset, {"what": 1})
    options = CompactionOptions(target_rows_per_fragment=400)
    assert options == {"target_rows_per_fragment": 400}
    assert Compaction.plan(dataset, options).num_tasks() == 1


# --- helpers ----------------------------------------------------------------------------------------------------------


def test_compaction_plan_round_trips_as_json(uri: Path) -> None:
    from trilake.lance.optimize import CompactionPlan

    found = lance.write_dataset(TABLE, uri, max_rows_per_file=20)
    plan = Compaction.plan(found)
    again = CompactionPlan.from_json(plan.json())
    assert again == plan
    assert again.num_tasks() == 1
    results = [task.execute(found) for task in again.tasks]
    assert results[0].original_fragments == results[0].old_fragments == [f.metadata for f in found.get_fragments()]
    assert Compaction.commit(found, results).fragments_added == 1
    for text in ("", "{}", "[1]", '{"tasks": 1, "read_version": 1}', '{"tasks": [], "read_version": "x"}'):
        with pytest.raises(ValueError):
            CompactionPlan.from_json(text)
    task = json.loads(plan.tasks[0].json())
    for key, value in (("options", {"x": 1}), ("options", 3), ("fragments", [1]), ("fragments", ["ff"])):
        with pytest.raises(ValueError):
            CompactionPlan.from_json(json.dumps({"tasks": [json.dumps({**task, key: value})], "read_version": 1}))
