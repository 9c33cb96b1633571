"""Branches of newer writers: the versions that a clean-up keeps for them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import orjson
import pyarrow as pa
import pytest

from trilake import lance
from trilake.errors import CorruptLogError, InvalidArgumentError
from trilake.lance import LanceDataset
from trilake.lance.versions.branches import BRANCHES, branch_points

#: A branch of version 2, and one of its version 3, as written by pylance 14 and by its first releases with branches.
OF_TWO = {"parentBranch": None, "parentVersion": 2, "createAt": 1, "manifestSize": 9}
OF_A_BRANCH = {"parentBranch": "a/b", "parentVersion": 3, "createAt": 1, "manifestSize": 9}
WHOLE_WAY = OF_A_BRANCH | {"identifier": {"version_mapping": [[2, "x"], [3, "y"]]}}


def dataset(name: str, **branches: object) -> LanceDataset:
    """Four versions: 1 to 3 refer to files that 4 does not."""
    branched = lance.write_dataset(pa.table({"a": [1, 2, 3]}), f"memory://branches-{name}", mode="overwrite")
    branched.delete("a = 1")
    branched.delete("a = 2")
    lance.write_dataset(pa.table({"a": [4]}), branched.uri, mode="overwrite")
    branched.checkout_latest()
    for branch, content in branches.items():
        data = content if isinstance(content, bytes) else orjson.dumps(content)
        branched.snapshot.store.put(f"{BRANCHES}/{branch.replace('__', '%2F')}.json", data)
    return branched


def cleaned(branched: LanceDataset) -> list[int]:
    branched.cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    return [v["version"] for v in branched.versions()]


def test_cleanup_without_branches_removes_old_versions() -> None:
    assert len(cleaned(dataset("none"))) == 1


@pytest.mark.parametrize("content", [OF_TWO, WHOLE_WAY, OF_TWO | {"identifier": {"version_mapping": []}}])
def test_cleanup_keeps_the_parent_version_of_a_branch(content: Any) -> None:
    branched = dataset("one", a__b=OF_TWO, c=content)
    assert branch_points(branched.snapshot.store) in ({2: "a/b"}, {2: "c"})
    assert cleaned(branched) == [2, branched.version]
    assert branched.checkout_version(2).to_table()["a"].to_pylist() == [2, 3]


def test_nested_branch_keeps_the_version_of_its_parent() -> None:
    branched = dataset("nested", a__b=OF_TWO, c=OF_A_BRANCH, d=OF_A_BRANCH | {"parentBranch": "c"})
    assert cleaned(branched) == [2, branched.version]


@pytest.mark.parametrize(
    "content",
    [
        OF_A_BRANCH | {"parentBranch": "gone"},
        OF_A_BRANCH | {"parentBranch": "c"},
        OF_A_BRANCH | {"parentBranch": ["c"]},
        OF_TWO | {"parentVersion": "2"},
        OF_TWO | {"parentVersion": True},
        WHOLE_WAY | {"identifier": {"version_mapping": [["2", "x"]]}},
        {},
        [],
        b"{",
    ],
)
def test_branch_without_parent_version_blocks_cleanup(content: Any) -> None:
    branched = dataset("doubt", c=content)
    with pytest.raises(CorruptLogError):
        cleaned(branched)
    assert [v["version"] for v in branched.versions()] == list(range(1, branched.version + 1))


def test_branch_of_a_missing_version_blocks_cleanup() -> None:
    branched = dataset("missing")
    cleaned(branched)
    branched.delete("a = 4")
    branched.snapshot.store.put(f"{BRANCHES}/c.json", orjson.dumps(OF_TWO))
    with pytest.raises(CorruptLogError, match="version 2, which is missing"):
        cleaned(branched)


def test_branch_with_a_child_is_not_deleted() -> None:
    branched = lance.write_dataset(pa.table({"a": [1]}), "memory://branches-child", mode="overwrite")
    branched.create_branch("parent").create_branch("child")
    with pytest.raises(
        InvalidArgumentError, match=r"the branch 'parent' has the child branch 'child'.*delete 'child' first"
    ):
        branched.branches.delete("parent")
