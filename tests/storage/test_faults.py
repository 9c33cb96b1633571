from __future__ import annotations

import pickle

import pytest

from tests.fault_store import Call, Fault, FaultStore, SimulatedCrash, random_faults
from trilake.errors import ObjectExistsError, StorageError, UnknownOutcomeError
from trilake.storage import open_sibling
from trilake.storage.memory import MemoryStore


def test_every_call_is_logged() -> None:
    store = FaultStore(MemoryStore())
    store.put("a/1", b"x")
    store.put_if_absent("a/2", b"y")
    store.read_many(["a/1", "a/2"])
    assert [m.key for m in store.list("a")] == ["a/1", "a/2"]
    with store.open_output("a/3") as file:
        file.write(b"z")
    store.delete(["a/1"])
    assert store.calls == [
        Call("put", ("a/1",)),
        Call("put_if_absent", ("a/2",)),
        Call("read_many", ("a/1", "a/2")),
        Call("list", ("a",)),
        Call("open_output", ("a/3",)),
        Call("close", ("a/3",)),
        Call("delete", ("a/1",)),
    ]
    assert store.counts()["put"] == 1
    assert store.count("put*") == 2
    assert store.count(key="a/1") == 3
    store.forget()
    assert store.calls == []


def test_failure_after_a_put_is_an_unknown_outcome() -> None:
    store = FaultStore(MemoryStore(), [Fault("put", nth=2), Fault("put", nth=3, when="after")])
    store.put("1", b"")
    with pytest.raises(StorageError) as caught:
        store.put("2", b"")
    assert not isinstance(caught.value, UnknownOutcomeError)
    with pytest.raises(UnknownOutcomeError):
        store.put("3", b"")
    store.put("4", b"")
    assert [m.key for m in store.inner.list()] == ["1", "3", "4"]


def test_failed_read_is_not_an_unknown_outcome() -> None:
    store = FaultStore(MemoryStore(), [Fault("read", when="after")])
    store.put("k", b"x")
    with pytest.raises(StorageError) as caught:
        store.read("k")
    assert type(caught.value) is StorageError


def test_close_can_fail_before_or_after() -> None:
    store = FaultStore(MemoryStore(), [Fault("close", "before"), Fault("close", "after", when="after")])
    file = store.open_output("before")
    with pytest.raises(StorageError):
        file.close()
    file = store.open_output("after")
    with pytest.raises(UnknownOutcomeError):
        file.close()
    assert [m.key for m in store.inner.list()] == ["after"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_all_calls_fail_after_a_crash(when) -> None:
    store = FaultStore(MemoryStore(), [Fault("put_if_absent", "k", kind="crash", when=when)])
    sibling = open_sibling(store, store.uri + "/s")
    file = store.open_output("open")
    with pytest.raises(SimulatedCrash):
        store.put_if_absent("k", b"x")
    for call in (lambda: store.read("k"), lambda: sibling.put("x", b""), store.list, file.close):
        with pytest.raises(SimulatedCrash):
            call()
    assert store.crashed
    assert [m.key for m in store.inner.list()] == (["k"] if when == "after" else [])


def test_before_hook_can_act_as_another_writer() -> None:
    inner = MemoryStore()

    def other(op: str, key: str) -> None:
        if op == "put_if_absent" and key == "1":
            inner.put_if_absent("1", b"other")

    store = FaultStore(inner, before=other)
    store.put_if_absent("0", b"mine")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("1", b"mine")
    assert inner.read("1").to_pybytes() == b"other"


def test_delays_key_patterns_and_custom_errors() -> None:
    waited: list[float] = []
    plan = [
        Fault("read", "*.json", kind="delay", seconds=3.0, times=2),
        Fault("head", error=PermissionError("no")),
    ]
    store = FaultStore(MemoryStore(), plan, sleep=waited.append)
    store.put("a.json", b"")
    store.put("a.txt", b"")
    for key in ("a.txt", "a.json", "a.json", "a.json"):
        store.read(key)
    assert waited == [3.0, 3.0]
    with pytest.raises(PermissionError):
        store.head("a.txt")


def test_random_faults_are_deterministic_per_seed() -> None:
    plan = random_faults(7, 20, 5, kinds=("fail", "crash"))
    assert plan == random_faults(7, 20, 5, kinds=("fail", "crash"))
    assert plan != random_faults(8, 20, 5, kinds=("fail", "crash"))
    assert {f.when for f in plan} == {"before", "after"}
    assert all(1 <= f.nth <= 5 for f in plan)


def test_pickled_store_has_no_faults() -> None:
    inner = MemoryStore("faults-pickle")
    inner.put("k", b"x")
    store = FaultStore(inner, [Fault("*", times=100)], before=lambda op, key: None)
    copy = pickle.loads(pickle.dumps(store))
    assert copy.read("k").to_pybytes() == b"x"
