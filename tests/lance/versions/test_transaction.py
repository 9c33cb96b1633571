"""Commits: races, lost replies, crashes at every step, and stale handles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from tests.fault_store import Fault, FaultStore, SimulatedCrash
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import (
    ConflictError,
    CorruptLogError,
    InvalidArgumentError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    TrilakeError,
    UnknownOutcomeError,
    UnsupportedProtocolError,
)
from trilake.lance.file.schema import LanceSchema
from trilake.lance.versions import operations as op
from trilake.lance.versions import transaction
from trilake.lance.versions.manifest import DataFile, Fragment, Manifest, serialise_manifest
from trilake.lance.versions.versions import LATEST, list_versions, manifest_key
from trilake.storage.base import ObjectMeta, Store
from trilake.storage.memory import MemoryStore

SCHEMA = LanceSchema.from_arrow(pa.schema({"a": pa.int64()}))


class Fixed(Runtime):
    """Time stands still, ids count up."""

    def __init__(self) -> None:
        count = iter(range(1, 10**6))
        super().__init__(lambda: 42, lambda: f"00000000-0000-4000-8000-{next(count):012d}", lambda _: None)


def fragment(path: str, id: int = 0) -> Fragment:
    return Fragment(id, (DataFile(path, (0,)),), None, 10)


def commit(store: Store, read_version: int, operation: op.Operation, **more: object) -> Manifest:
    runtime = Fixed()
    return transaction.commit(
        store,
        transaction.begin(read_version, operation, SYSTEM_RUNTIME),
        runtime,
        **more,  # type: ignore[arg-type]
    )


def begun(store: Store | None = None, **more: object) -> Store:
    store = store or MemoryStore()
    commit(store, 0, op.Overwrite((fragment("x"),), SCHEMA), **more)
    return store


def paths(store: Store, version: int | None = None) -> list[str]:
    return [f.files[0].path for f in transaction.load(store, version).fragments]


def test_second_version() -> None:
    store = begun()
    dataset = commit(store, 1, op.Append((fragment("y"),)))
    assert (dataset.version, paths(store), paths(store, 1)) == (2, ["x", "y"], ["x"])
    assert dataset == transaction.load(store)
    assert store.read(LATEST) == store.read("_versions/2.manifest")
    found = transaction.parse(store.read(f"_transactions/{dataset.transaction_file}").to_pybytes())
    assert (found.read_version, found.operation) == (1, op.Append((fragment("y"),)))


def test_v2_manifest_names_are_kept() -> None:
    store = begun(scheme="v2")
    commit(store, 1, op.Append((fragment("y"),)))
    assert [m.key for m in store.list("_versions")] == [manifest_key(2, "v2"), manifest_key(1, "v2")]
    assert not list(store.list(LATEST))
    assert paths(store) == ["x", "y"]


def test_copy_of_the_newest_manifest_is_not_trusted() -> None:
    store = begun()
    store.put(LATEST, b"nonsense")
    assert paths(store) == ["x"]
    commit(store, 1, op.Append((fragment("y"),)))
    assert store.read(LATEST) == store.read("_versions/2.manifest")


def test_first_commits() -> None:
    store = MemoryStore()
    with pytest.raises(TableNotFoundError):
        commit(store, 1, op.Append(()))
    begun(store)
    with pytest.raises(TableExistsError):
        begun(store, create=True)
    begun(store)
    assert list_versions(store).versions == (1, 2)
    with pytest.raises(InvalidArgumentError, match="must be at most 2, the newest version, got 9"):
        commit(store, 9, op.Append(()))


def test_stale_handles() -> None:
    store = begun()
    commit(store, 1, op.Append((fragment("y"),)))
    commit(store, 2, op.Append((fragment("z"),)))
    assert commit(store, 1, op.Append((fragment("w"),))).version == 4
    with pytest.raises(ConflictError, match="a delete cannot follow an append") as caught:
        commit(store, 1, op.Delete((), (0,), "true"))
    assert caught.value.context["version"] == 2
    commit(store, 4, op.Delete((), (0,), "true"))
    with pytest.raises(ConflictError, match="change the same fragments 0"):
        commit(store, 4, op.Update((0,), (), ()))
    assert commit(store, 4, op.Update((1,), (), ())).version == 6
    assert commit(store, 1, op.Restore(1)).version == 7
    assert paths(store) == ["x"]
    with pytest.raises(ConflictError, match="cannot follow a restore"):
        commit(store, 6, op.Append(()))


def test_id_of_a_dropped_field_is_not_used_for_another_column() -> None:
    """An append, or metadata of a field, applied to the column that got the free id."""
    drop = op.Project(LanceSchema((), {}))
    other = op.Merge((), LanceSchema.from_arrow(pa.schema({"b": pa.string()})))
    files = Fragment(0, (DataFile("y", (0,), 2, 0),), None, 10)
    metadata = op.UpdateConfig(field_metadata={0: op.MapUpdate({"k": "v"})})
    for mine in op.Append((files,)), metadata:
        store = begun()
        commit(store, 1, drop)
        commit(store, 2, other)
        with pytest.raises(ConflictError, match="field 0 was dropped, and its id is now that of another column"):
            commit(store, 1, mine)
        store = begun()
        commit(store, 1, drop)
        with pytest.raises(ConflictError, match="field 0"):  # dropped before the first attempt, added before the second
            commit(racing(store, other), 1, mine)


def test_unverifiable_commits_are_conflicts() -> None:
    store = begun()
    dataset = commit(store, 1, op.Append((fragment("y"),)))
    store.delete([f"_transactions/{dataset.transaction_file}"])
    with pytest.raises(ConflictError, match="cleaned up"):
        commit(store, 1, op.Append(()))
    bare = Manifest(3, SCHEMA, dataset.fragments)
    store.put(manifest_key(3), serialise_manifest(bare))
    with pytest.raises(ConflictError, match="has no transaction"):
        commit(store, 2, op.Append(()))
    store.put(manifest_key(5), serialise_manifest(Manifest(5, SCHEMA, dataset.fragments)))
    with pytest.raises(ConflictError, match="a commit to check for conflicts was cleaned up"):
        commit(store, 3, op.Append(()))
    assert commit(store, 3, op.Overwrite((), SCHEMA)).version == 6


def test_commit_missing_in_a_listing_is_checked() -> None:
    """A listing during commits may contain a later version, but not the one before it."""

    class Torn(MemoryStore):
        missing = ""

        def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
            yield from (m for m in super().list(prefix, start_after) if m.key != self.missing)

    store = Torn()
    begun(store)
    commit(store, 1, op.Append((fragment("y"),)))
    commit(store, 2, op.Append((fragment("z"),)))
    store.missing = manifest_key(2)
    assert commit(store, 1, op.Append((fragment("w"),))).version == 4
    assert paths(store) == ["x", "y", "z", "w"]


def test_unsupported_writer_flags_are_rejected() -> None:
    store = begun()
    store.put(manifest_key(2), serialise_manifest(Manifest(2, SCHEMA, writer_feature_flags=32)))
    assert transaction.load(store).version == 2
    with pytest.raises(UnsupportedProtocolError, match="no transaction files"):
        commit(store, 2, op.Append(()))


def test_manifest_with_a_wrong_version() -> None:
    store = begun()
    store.put(manifest_key(2), serialise_manifest(Manifest(3, SCHEMA)))
    with pytest.raises(CorruptLogError, match="manifest of version 2, got version 3"):
        transaction.load(store)


# --- races ------------------------------------------------------------------------------------------------------------


def racing(inner: Store, operation: op.Operation) -> FaultStore:
    """A store in which another writer commits once, just before this manifest is put."""
    left = [operation]

    def other(verb: str, key: str) -> None:
        if verb == "put_if_absent" and key.startswith("_versions") and left:
            commit(inner, transaction.load(inner).version, left.pop())

    return FaultStore(inner, before=other)


def test_lost_race_is_retried_after_the_winner() -> None:
    inner = begun()
    dataset = commit(racing(inner, op.Append((fragment("theirs"),))), 1, op.Append((fragment("mine"),)))
    assert (dataset.version, paths(inner)) == (3, ["x", "theirs", "mine"])
    assert [f.id for f in dataset.fragments] == [0, 1, 2]


def test_lost_race_can_be_a_conflict() -> None:
    inner = begun()
    with pytest.raises(ConflictError, match="a merge cannot follow an append"):
        commit(racing(inner, op.Append((fragment("theirs"),))), 1, op.Merge((), SCHEMA))
    assert paths(inner) == ["x", "theirs"]


def test_only_one_writer_creates_the_dataset() -> None:
    inner = MemoryStore()
    left = [1]

    def other(verb: str, key: str) -> None:
        if verb == "put_if_absent" and key.startswith("_versions") and left:
            left.pop()
            begun(inner)

    with pytest.raises(TableExistsError):
        begun(FaultStore(inner, before=other), create=True)
    assert list_versions(inner).versions == (1,)


def test_many_concurrent_writers() -> None:
    store, errors = begun(), list[Exception]()

    def append(name: str) -> None:
        try:
            for i in range(5):
                commit(store, 1, op.Append((fragment(f"{name}{i}"),)))
        except TrilakeError as e:
            errors.append(e)

    threads = [threading.Thread(target=append, args=(name,)) for name in "abcd"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    manifest = transaction.load(store)
    assert manifest.version == 21
    assert sorted(paths(store)) == sorted(["x", *(f"{n}{i}" for n in "abcd" for i in range(5))])
    assert sorted(f.id for f in manifest.fragments) == list(range(21))


# --- faults -----------------------------------------------------------------------------------------------------------


def test_lost_reply_is_looked_up() -> None:
    inner = begun()
    store = FaultStore(inner, [Fault("put_if_absent", "_versions/*", when="after")])
    assert commit(store, 1, op.Append((fragment("y"),))).version == 2
    assert paths(inner) == ["x", "y"]


def test_lost_reply_of_a_failed_commit() -> None:
    inner = begun()
    error = UnknownOutcomeError("lost")
    store = FaultStore(inner, [Fault("put_if_absent", "_versions/*", error=error)])
    with pytest.raises(UnknownOutcomeError, match="does not exist"):
        commit(store, 1, op.Append((fragment("y"),)))


def test_lost_reply_and_another_writer() -> None:
    inner = begun()
    store = racing(inner, op.Append((fragment("theirs"),)))
    store._state.faults = (Fault("put_if_absent", "_versions/*", error=UnknownOutcomeError("lost")),)
    assert commit(store, 1, op.Append((fragment("mine"),))).version == 3
    assert paths(inner) == ["x", "theirs", "mine"]


def steps(run: Callable[[Store], object]) -> int:
    store = FaultStore(begun())
    run(store)
    return len(store.calls)


def append(store: Store) -> Manifest:
    return commit(store, 1, op.Append((fragment("y"),)))


@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_at_any_step_is_atomic(when: str) -> None:
    total = steps(append)
    outcomes = set()
    for step in range(1, total + 1):
        inner = begun()
        store = FaultStore(inner, [Fault(nth=step, kind="crash", when=when)])  # type: ignore[arg-type]
        with pytest.raises(SimulatedCrash):
            append(store)
        found = paths(inner)
        assert found in (["x"], ["x", "y"])
        outcomes.add(len(found))
        # The dataset accepts further commits.
        assert commit(inner, 1, op.Append((fragment("z"),))).fragments[-1].files[0].path == "z"
    assert outcomes == {1, 2}


@pytest.mark.parametrize("when", ["before", "after"])
def test_failure_at_any_step_is_reported_correctly(when: str) -> None:
    for step in range(1, steps(append) + 1):
        inner = begun()
        store = FaultStore(inner, [Fault(nth=step, when=when)])  # type: ignore[arg-type]
        try:
            append(store)
        except UnknownOutcomeError:
            continue
        except StorageError:
            assert paths(inner) == ["x"]
        else:
            assert paths(inner) == ["x", "y"]


def test_copy_of_the_manifest_may_fail() -> None:
    inner = begun()
    store = FaultStore(inner, [Fault("put", LATEST)])
    assert append(store).version == 2
    assert inner.read(LATEST) == inner.read("_versions/1.manifest")


def test_commit_takes_few_requests() -> None:
    store = FaultStore(begun())
    append(store)
    assert store.counts() == {"put_if_absent": 2, "list": 1, "read": 1, "put": 1}
