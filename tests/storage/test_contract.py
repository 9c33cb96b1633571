"""The promises at the head of ``trilake/storage/base.py``, by number, for every kind of store."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fault_store import FaultStore
from trilake.errors import InvalidArgumentError, ObjectExistsError, ObjectNotFoundError, StorageError
from trilake.storage import ObjectMeta, Store, open_sibling, open_store
from trilake.storage.memory import MemoryStore

ODD_KEYS = ["a b", "a%20b/x", "a+b", "a#b?c=d&e", "p=ü/ñ", "p=a%2Fb/{x}*.parquet", "~x", "_a", ".b", "日本/語", "x'\"y"]


def keys(store: Store, prefix: str = "", start_after: str | None = None) -> list[str]:
    return [meta.key for meta in store.list(prefix, start_after)]


def content(store: Store, key: str) -> bytes:
    return store.read(key).to_pybytes()


# --- 1. all or nothing -----------------------------------------------------------------------------------------------


def test_1_readers_see_whole_objects_during_replacement(store: Store) -> None:
    size, rounds = 100_000, 8
    store.put("k", bytes([0]) * size)
    seen: set[tuple[int, ...]] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(tuple(sorted(Counter(content(store, "k")).items())))

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(read)
        for i in range(1, rounds):
            store.put("k", bytes([i]) * size)
        done.set()
        reader.result()
    assert seen
    assert all(len(counts) == 1 and counts[0][1] == size for counts in seen)


def test_1_file_appears_on_close(store: Store) -> None:
    file = store.open_output("a/f")
    file.write(b"one ")
    assert keys(store) == []
    with pytest.raises(ObjectNotFoundError):
        store.read("a/f")
    assert file.write(memoryview(b"two")) == 3
    assert file.tell() == 7
    file.close()
    file.close()
    assert content(store, "a/f") == b"one two"
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")


@pytest.mark.parametrize("size", [10, 17 << 20])
def test_1_exception_discards_the_file(store: Store, size: int) -> None:
    class Stop(Exception):
        pass

    def write() -> None:
        with store.open_output("f") as file:
            file.write(bytes(size))
            raise Stop

    with pytest.raises(Stop):
        write()
    assert keys(store) == []
    assert list(store.unfinished()) == []


def test_1_unclosed_file_is_discarded(store: Store) -> None:
    file = store.open_output("f")
    file.write(b"half")
    del file
    assert keys(store) == []
    assert list(store.unfinished()) == []


def test_1_group_files_appear_on_finish(store: Store) -> None:
    group = store.write_group()
    for i in range(100):
        with group.open_output(f"{i % 7}/{i}") as file:
            file.write(b"%d" % i)
    with suppress(ZeroDivisionError), group.open_output("failed") as file:
        file.write(b"x")
        raise ZeroDivisionError
    group.finish()
    group.abandon()  # no effect after finish
    assert sorted(int(m.key.rpartition("/")[2]) for m in store.list()) == list(range(100))
    assert all(store.read(m.key).to_pybytes() == m.key.rpartition("/")[2].encode() for m in store.list())


def test_1_large_files_are_written_whole(store: Store) -> None:
    block = bytes(range(256)) * 4096  # 1 MiB
    with store.open_output("big") as file:
        for _ in range(18):
            file.write(block)
        file.write(b"end")
    assert store.head("big").size == 18 * len(block) + 3
    assert content(store, "big") == block * 18 + b"end"
    assert store.read_range("big", 18 * len(block) - 1, 100).to_pybytes() == b"\xffend"


def test_1_empty_file_is_an_object(store: Store) -> None:
    store.open_output("e").close()
    store.put_if_absent("e2", b"")
    assert list(map(content, [store, store], ["e", "e2"])) == [b"", b""]
    assert [m.size for m in store.list()] == [0, 0]
    with store.open_input("e") as file:
        assert file.size() == 0
        assert file.read() == b""


# --- 2. one winner ---------------------------------------------------------------------------------------------------


def test_2_second_writer_loses(store: Store) -> None:
    store.put_if_absent("log/0.json", b"first")
    with pytest.raises(ObjectExistsError, match=r"log/0\.json"):
        store.put_if_absent("log/0.json", b"second")
    assert content(store, "log/0.json") == b"first"


def test_2_ordered_writes_stop_at_an_existing_object(store: Store) -> None:
    store.put_in_order([("a/0", b"0")], [("a/1", b"1", False), ("a/2", b"2", True), ("a/1", b"3", False)])
    with pytest.raises(ObjectExistsError, match="a/2"):
        store.put_in_order([("a/3", b"3")], [("a/4", b"4", False), ("a/2", b"5", True), ("a/1", b"6", False)])
    written = {"a/0": b"0", "a/1": b"3", "a/2": b"2", "a/3": b"3", "a/4": b"4"}
    assert {key: content(store, key) for key in keys(store)} == written


@pytest.mark.parametrize("data", [b"13", b"22", b"9", b"123", b"", b"x" * 100])
def test_2_ordered_writes_replace_an_object(store: Store, data: bytes) -> None:
    for before in (b"12", b"x" * 99 + b"y"):
        store.put("a/1", before)
        store.put_in_order([], [("a/1", data, False)])
        assert content(store, "a/1") == data
    store.put_in_order([("a/0", b"0")], [("a/1", b"7", False), ("a/1", b"5", False), ("a/2", b"2", True)])
    assert {key: content(store, key) for key in keys(store)} == {"a/0": b"0", "a/1": b"5", "a/2": b"2"}


def test_2_one_of_several_racing_threads_wins(store: Store) -> None:
    writers, rounds = 16, 3
    barrier = threading.Barrier(writers)
    clients = [pickle.loads(pickle.dumps(store)) if store.local_path("x") else store for _ in range(writers)]

    def write(i: int, key: str) -> bool:
        barrier.wait()
        try:
            clients[i].put_if_absent(key, f"writer {i}".encode())
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(writers) as pool:
        for r in range(rounds):
            won = list(pool.map(lambda i, r=r: write(i, f"log/{r}"), range(writers)))
            assert sum(won) == 1
            assert content(store, f"log/{r}") == f"writer {won.index(True)}".encode()
    assert len(keys(store)) == rounds


RACER = """
import sys
from trilake.errors import ObjectExistsError
from trilake.storage import open_store
store, me = open_store(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
for i in range(40):
    try:
        store.put_if_absent(f"log/{i}", me.encode() * 500)
    except ObjectExistsError:
        continue
    print(i)
"""


def test_2_one_of_several_racing_processes_wins(tmp_path) -> None:
    racers = {
        name: subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ABCD"
    }
    for racer in racers.values():  # all wait for this line and so start together
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = {name: racer.communicate(timeout=60)[0].split() for name, racer in racers.items()}
    assert all(racer.returncode == 0 for racer in racers.values())
    assert sorted(int(i) for wins in won.values() for i in wins) == list(range(40))
    store = open_store(tmp_path)
    for name, wins in won.items():
        assert all(content(store, f"log/{i}") == name.encode() * 500 for i in wins)
    assert list(store.unfinished()) == []


# --- 3. durable: tests/storage/test_local.py -------------------------------------------------------------------------
# --- 4. read your writes ---------------------------------------------------------------------------------------------


def test_4_other_clients_see_every_write(store: Store) -> None:
    if isinstance(store, FaultStore):
        other: Store = store.inner
    else:
        other = pickle.loads(pickle.dumps(store))
    assert other.uri == store.uri
    store.put("a/1", b"x")
    store.put("a/1", b"yy")
    with store.open_output("a/2") as file:
        file.write(b"zzz")
    assert [(m.key, m.size) for m in other.list()] == [("a/1", 2), ("a/2", 3)]
    assert content(other, "a/1") == b"yy"
    assert other.head("a/2").size == 3
    store.delete(["a/1"])
    assert keys(other) == ["a/2"]


def test_4_siblings_see_the_same_objects(store: Store) -> None:
    store.put("inner/k", b"x")
    assert content(open_sibling(store, store.uri + "/inner"), "k") == b"x"
    assert keys(open_sibling(store, store.uri)) == ["inner/k"]


# --- 5. ordered listing ----------------------------------------------------------------------------------------------


def test_5_folders_and_files_are_listed_in_key_order(store: Store) -> None:
    for key in ["a/x", "a-b", "a.b", "a0", "a/b/c", "A", "ä", "b", "a_/z"]:
        store.put(key, b"1")
    expected = ["A", "a-b", "a.b", "a/b/c", "a/x", "a0", "a_/z", "b", "ä"]
    assert keys(store) == expected
    for i, key in enumerate(expected):
        assert keys(store, start_after=key) == expected[i + 1 :]
    assert keys(store, start_after="a/b") == ["a/b/c", "a/x", "a0", "a_/z", "b", "ä"]
    assert keys(store, start_after="a/y") == ["a0", "a_/z", "b", "ä"]
    assert keys(store, start_after="zz") == ["ä"]
    assert keys(store, "a") == keys(store, "a/") == ["a/b/c", "a/x"]
    assert keys(store, "a", start_after="a/b/c") == ["a/x"]
    assert keys(store, "a", start_after="Z") == ["a/b/c", "a/x"]
    assert keys(store, "a", start_after="b") == []
    assert keys(store, "a0") == keys(store, "nowhere") == []


part = st.text(st.sampled_from("ab-./0ü\U0001f600~"), min_size=1, max_size=3).filter(lambda s: s.strip("./") == s)


@st.composite
def key_sets(draw: st.DrawFn) -> set[str]:
    """Keys of which none is a folder of another: a local path cannot be both."""
    result = draw(st.sets(st.lists(part, min_size=1, max_size=3).map("/".join), max_size=8))
    result = {k for k in result if "//" not in k and "/." not in k and "./" not in k}
    return {k for k in result if not any(o.startswith(k + "/") for o in result)}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key_sets(), st.one_of(st.none(), part), st.sampled_from(["", "a", "b", "a/b", "ü"]))
def test_5_listings_match_a_sorted_set(tmp_path_factory, names: set[str], after: str | None, prefix: str) -> None:
    local = open_store(tmp_path_factory.mktemp("list"))
    memory = MemoryStore()
    for key in names:
        local.put(key, key.encode())
        memory.put(key, key.encode())
    expected = sorted(
        (
            k
            for k in names
            if (not prefix or k.startswith(prefix + "/")) and (after is None or k.encode() > after.encode())
        ),
        key=str.encode,
    )
    for store in (local, memory):
        listed = list(store.list(prefix, after))
        assert [m.key for m in listed] == expected
        assert [m.size for m in listed] == [len(k.encode()) for k in expected]
        assert listed == [store.head(k) for k in expected]


# --- 6. honest failure -----------------------------------------------------------------------------------------------


def test_6_missing_object_raises_not_found(store: Store) -> None:
    store.put("there/x", b"1")
    for key in ["x", "there", "there/x/y", "no/where"]:
        for call in (
            store.read,
            lambda k: store.read_range(k, 0, 1),
            lambda k: store.read_range(k, 0, 0),
            lambda k: store.read_ranges(k, [(0, 1), (5, 2)]),
            lambda k: store.read_many(["there/x", k]),
            store.head,
            store.open_input,
        ):
            with pytest.raises(ObjectNotFoundError) as caught:
                call(key)
            assert key in caught.value.context["file"]
            assert isinstance(caught.value, StorageError)
            assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.", "..", "a\0b"])
def test_6_key_outside_the_root_is_rejected(store: Store, key: str) -> None:
    for call in (store.read, store.head, store.open_input, store.open_output, lambda k: store.delete([k])):
        with pytest.raises(InvalidArgumentError):
            call(key)
    for write in (store.put, store.put_if_absent):
        with pytest.raises(InvalidArgumentError):
            write(key, b"x")
    with pytest.raises(InvalidArgumentError):
        list(store.list("../x"))


def test_6_negative_range_is_rejected(store: Store) -> None:
    store.put("k", b"0123456789")
    for start, length in [(-1, 2), (0, -1)]:
        with pytest.raises(InvalidArgumentError, match="negative"):
            store.read_range("k", start, length)


def test_6_deleting_missing_objects_succeeds(store: Store) -> None:
    store.put("a/b", b"1")
    store.put("c", b"1")
    store.delete(["a/b", "a/x", "no/where", "c"])
    store.delete([])
    store.delete(iter(["c"]))
    assert keys(store) == []


# --- documented behavior ----------------------------------------------------------------------------------------------


def test_special_characters_in_keys_round_trip(store: Store) -> None:
    for key in ODD_KEYS:
        store.put_if_absent(key, key.encode())
    assert keys(store) == sorted(ODD_KEYS, key=str.encode)
    assert [b.to_pybytes().decode() for b in store.read_many(ODD_KEYS)] == ODD_KEYS
    store.delete(ODD_KEYS)
    assert keys(store) == []


def test_ranges_are_cut_at_the_end_of_the_object(store: Store) -> None:
    store.put("k", b"0123456789")
    ranges = [(3, 4), (8, 10), (0, 10), (10, 1), (1 << 40, 5), (1 << 70, 5), (2, 1 << 70), (4, 0), (3, 4)]
    expected = [b"3456", b"89", b"0123456789", b"", b"", b"", b"23456789", b"", b"3456"]
    assert [b.to_pybytes() for b in store.read_ranges("k", ranges)] == expected
    assert [store.read_range("k", *r).to_pybytes() for r in ranges] == expected
    assert store.read_ranges("k", []) == []


@pytest.mark.parametrize("length", [0, 3, 10, 1000])
def test_read_sized_returns_size_and_first_or_last_bytes(store: Store, length: int) -> None:
    store.put("k", b"0123456789")
    store.put("empty", b"")
    size, data = store.read_sized("k", length)
    assert (size, data.to_pybytes()) == (10, b"0123456789"[:length])
    size, data = store.read_sized("k", length, end=True)
    assert (size, data.to_pybytes()) == (10, b"0123456789"[max(10 - length, 0) :])
    for end in (False, True):
        assert store.read_sized("empty", length, end=end)[0] == 0
        with pytest.raises(ObjectNotFoundError):
            store.read_sized("nothing", length, end=end)


def test_read_ranges_far_apart(store: Store) -> None:
    data = bytes(range(256)) * 16384  # 4 MiB
    store.put("k", data)
    ranges = [(4_000_000, 10), (5, 3), (100, 2), (2_000_000, 1_000_000), (4_194_300, 100), (9_000_000, 3)]
    assert [b.to_pybytes() for b in store.read_ranges("k", ranges)] == [data[s : s + n] for s, n in ranges]


def test_read_many_preserves_order(store: Store) -> None:
    names = [f"log/{i:03}" for i in range(40)]
    for name in names:
        store.put(name, name.encode())
    order = names[::-1] + names[:2]
    assert [b.to_pybytes().decode() for b in store.read_many(order)] == order
    assert store.read_many([]) == []


def test_buffers_are_not_affected_by_later_writes(store: Store) -> None:
    data = bytearray(b"abc")
    store.put("k", pa.py_buffer(data))
    before = store.read("k")
    data[:] = b"xyz"
    store.put("k", b"new")
    assert before.to_pybytes() == b"abc"


def test_modification_time_is_in_epoch_milliseconds(store: Store) -> None:
    store.put("k", b"1")
    meta = store.head("k")
    assert meta == ObjectMeta("k", 1, meta.modified_ms)
    assert abs(meta.modified_ms - time.time() * 1000) < 60_000


def test_open_input_supports_random_access(store: Store) -> None:
    data = bytes(range(256)) * 3000  # 750 KiB: larger than the first window of a remote reader
    store.put("k", data)
    model = io.BytesIO(data)
    with store.open_input("k") as file:
        assert file.size() == len(data)
        for start, length in [
            (700_000, 10),
            (0, 5),
            (5, 300_000),
            (299_000, 4000),
            (len(data) - 3, 10),
            (len(data), 1),
        ]:
            file.seek(start)
            model.seek(start)
            assert file.read(length) == model.read(length)
        assert file.read_at(7, 1000) == data[1000:1007]


def test_parquet_round_trips_through_store_files(store: Store) -> None:
    table = pa.table({"i": pa.array(range(50_000)), "s": [f"row {i}" for i in range(50_000)]})
    with store.open_output("t/part-0.parquet") as file:
        pq.write_table(table, file, row_group_size=10_000)
    assert pq.read_table(store.open_input("t/part-0.parquet")).equals(table)
    assert pq.read_table(pa.BufferReader(store.read("t/part-0.parquet")), columns=["i"]).num_rows == 50_000


def test_local_path_exists_only_for_local_stores(store: Store) -> None:
    path = store.local_path("a/b")
    if path is None:
        assert not store.uri.startswith("file:")
    else:
        store.put("a/b", b"here")
        with open(path, "rb") as file:
            assert file.read() == b"here"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_sequence_of_calls_matches_a_dictionary(tmp_path_factory, data: st.DataObject) -> None:
    names = st.sampled_from(["a", "b/x", "b/y", "c d/%", "e"])
    model: dict[str, bytes] = {}
    stores: list[Store] = [open_store(tmp_path_factory.mktemp("model")), MemoryStore()]
    for _ in range(data.draw(st.integers(1, 12))):
        op = data.draw(st.sampled_from(["put", "put_if_absent", "delete", "output", "read"]))
        key = data.draw(names)
        value = data.draw(st.binary(max_size=20))
        for store in stores:
            if op == "put":
                store.put(key, value)
            elif op == "output":
                with store.open_output(key) as file:
                    file.write(value)
            elif op == "delete":
                store.delete([key])
            elif op == "read":
                if key in model:
                    assert content(store, key) == model[key]
                else:
                    with pytest.raises(ObjectNotFoundError):
                        store.read(key)
            elif key in model:
                with pytest.raises(ObjectExistsError):
                    store.put_if_absent(key, value)
            else:
                store.put_if_absent(key, value)
        if op == "delete":
            model.pop(key, None)
        elif op in ("put", "output") or (op == "put_if_absent" and key not in model):
            model[key] = value
    for store in stores:
        assert {m.key: content(store, m.key) for m in store.list()} == model
