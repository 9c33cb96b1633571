from __future__ import annotations

import gc
import itertools
import pickle
import weakref

import pytest

from trilake.errors import ObjectNotFoundError
from trilake.storage import open_sibling, open_store
from trilake.storage.memory import MemoryStore


def test_stores_with_the_same_name_share_objects() -> None:
    open_store("memory://shared/a").put("b/c", b"x")
    assert open_store("memory://shared").read("a/b/c").to_pybytes() == b"x"
    assert [m.key for m in open_store("memory://shared/a/b").list()] == ["c"]
    assert list(open_store("memory://shared/a/bc").list()) == []
    assert list(open_store("memory://other").list()) == []
    assert pickle.loads(pickle.dumps(open_store("memory://shared/a"))).read("b/c").to_pybytes() == b"x"


def test_unnamed_stores_are_private() -> None:
    one, two = MemoryStore(), MemoryStore()
    one.put("k", b"x")
    assert list(two.list()) == []
    assert open_sibling(one, one.uri).read("k").to_pybytes() == b"x"


def test_caller_provides_the_clock() -> None:
    ticks = itertools.count(1000, 5)
    store = MemoryStore(clock=lambda: next(ticks))
    store.put("a", b"")
    store.put_if_absent("b", b"")
    with store.open_output("c") as file:
        file.write(b"x")
    store.put("a", b"")
    assert [(m.key, m.modified_ms) for m in store.list()] == [("a", 1015), ("b", 1005), ("c", 1010)]


def test_listing_is_stable_while_iterated() -> None:
    store = MemoryStore()
    for i in range(3):
        store.put(str(i), b"")
    for meta in (listing := store.list()):
        store.delete([meta.key])
        store.put(f"{meta.key}x", b"")
    assert next(listing, None) is None
    assert [m.key for m in store.list()] == ["0x", "1x", "2x"]


def test_unnamed_store_is_freed_with_its_last_reference() -> None:
    store = MemoryStore()
    store.put("a", b"x")
    uri = store.uri
    again = open_store(uri)
    space = weakref.ref(store._space)
    del store
    gc.collect()
    assert bytes(again.read("a")) == b"x"
    del again
    gc.collect()
    assert space() is None
    with pytest.raises(ObjectNotFoundError):
        open_store(uri).read("a")


def test_named_store_outlives_its_references() -> None:
    open_store("memory://stays-here").put("a", b"x")
    gc.collect()
    assert bytes(open_store("memory://stays-here").read("a")) == b"x"
