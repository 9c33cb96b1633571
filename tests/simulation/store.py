"""The store of an actor: every call is a turn and may fail as planned."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any, TypeVar

import pyarrow as pa

from tests.fault_store import SimulatedCrash
from tests.simulation.world import DAY_MS, Actor, Violation
from trilake.errors import ObjectExistsError, StorageError, UnknownOutcomeError
from trilake.storage.base import AtomicWriter, ObjectMeta, Store, check_key
from trilake.storage.memory import MemoryStore

T = TypeVar("T")
_WRITES = ("put", "put_if_absent", "delete", "close")
_COMMIT = re.compile(r"_delta_log/\d{20}\.json\Z")
#: A partition value of a file, as written without a sign.
_SPELLED = re.compile(rb'("partitionValues":\{"[^"]*":)"(\d+)"')


class SimStore(Store):
    """``inner`` as seen by ``actor``; ``place`` is its name in the history."""

    #: Whether commits use another spelling of partition values.
    spells = False

    def __init__(self, inner: MemoryStore, actor: Actor, place: str) -> None:
        self.spells = "spelled" in actor.world.plan.options and actor.number % 2 == 1
        self.inner, self.actor, self.place = inner, actor, place
        self.uri, self.options = inner.uri, inner.options

    # --- calls ---

    def read(self, key: str) -> pa.Buffer:
        return self._do("read", (key,), lambda: self.inner.read(key))

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        return self._do("read_range", (key,), lambda: self.inner.read_range(key, start, length))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        return self._do("read_ranges", (key,), lambda: self.inner.read_ranges(key, ranges))

    def head(self, key: str) -> ObjectMeta:
        return self._do("head", (key,), lambda: self.inner.head(key))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        """List page by page like object stores: each page shows the state at its request.

        Or, in some plans, like a folder on a disk: each concurrent change is visible or not,
        independently.
        """
        if self.actor.world.plan.torn:
            yield from self._torn(prefix, start_after)
            return
        size = self.actor.world.plan.page
        while True:
            after = start_after
            page = self._do("list", (prefix,), lambda: list(self.inner.list(prefix, after)))  # noqa: B023 - used at once
            yield from page[:size]
            if len(page) <= size:
                return
            start_after = page[size - 1].key

    def _torn(self, prefix: str, start_after: str | None) -> Iterator[ObjectMeta]:
        def page() -> dict[str, ObjectMeta]:
            return {m.key: m for m in self._do("list", (prefix,), lambda: list(self.inner.list(prefix, start_after)))}

        first = page()
        # Some folders are slow to read: several files may appear and disappear in the meantime.
        self.actor.wake = self.actor.world.steps + self.actor.listed.choice((0, 0, 8, 30))
        last = page()
        for key in sorted({*first, *last}):
            if (key in first and key in last) or self.actor.listed.random() < 0.5:
                yield last.get(key) or first[key]

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        content = bytes(memoryview(data))
        self._write("put", key, lambda: self.inner.put(key, content))

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        content = bytes(memoryview(data))
        if self.spells and _COMMIT.match(key):
            content = _SPELLED.sub(rb'\1"+\2"', content)
        self._write("put_if_absent", key, lambda: self.inner.put_if_absent(key, content))

    def delete(self, keys: Iterable[str]) -> None:
        names, requested = tuple(keys), self.actor.world.steps

        def gone() -> None:
            there = tuple(k for k in names if _has(self.inner, k))
            self.inner.delete(names)
            self.actor.world.history.deleted(self.place, there, self.actor.number, requested)

        self._do("delete", names, gone, late=gone)

    def open_input(self, key: str) -> pa.NativeFile:
        return self._do("open_input", (key,), lambda: self.inner.open_input(key))

    def open_output(self, key: str) -> IO[bytes]:
        return _Writer(self, check_key(key)).as_io()

    def like(self, other: Store) -> Store:
        if not isinstance(other, MemoryStore):
            return other
        found = next((n for n, s in self.actor.world.row_metadata.items() if other.uri == s.uri), None)
        if found is None:
            raise Violation(f"{other.uri} is no place of this world")
        return SimStore(self.actor.world.row_metadata[found], self.actor, found)

    def __reduce__(self) -> tuple[Any, ...]:
        raise Violation("a store of the simulation leaves its process")

    # --- one call ---

    def _write(self, op: str, key: str, call: Callable[[], None]) -> None:
        world, number = self.actor.world, self.actor.number

        def done() -> None:
            call()
            world.file_times[self.place, key] = world.now
            world.history.wrote(self.place, key, number)

        def late() -> None:
            with suppress(ObjectExistsError):
                done()

        self._do(op, (key,), done, late=late)

    def _do(self, op: str, keys: tuple[str, ...], call: Callable[[], T], late: Callable[[], None] | None = None) -> T:
        actor = self.actor
        world = actor.world
        if threading.get_ident() != actor.ident:
            raise Violation(f"{op} of {keys[:1]} from a thread that the scheduler does not know")
        if actor.crashed:
            raise SimulatedCrash(f"{op} after the crash")
        actor.pause()
        actor.calls += 1
        kind = world.faults.get((actor.number, actor.calls))
        if op == "put_if_absent":
            actor.puts += 1
            kind = kind or world.faults.get((actor.number, -actor.puts))
        elif op == "delete":
            actor.deletes += 1
            kind = kind or world.faults.get((actor.number, -1000 - actor.deletes))
        world.trace(actor.number, op + (f" [{kind}]" if kind else ""), f"{self.place}:{','.join(keys[:2])}")
        if kind in ("ahead", "behind", "drift"):
            actor.skew_ms += {"ahead": 9 * DAY_MS, "behind": -9 * DAY_MS, "drift": 100_000}[kind]
            actor.most_skew_ms = max(actor.most_skew_ms, actor.skew_ms)
            kind = None
        if kind == "slow":
            actor.wake = world.steps + 25
            actor.pause()
            kind = None
        if kind is not None:
            actor.faults += 1
        if kind == "crash":
            self._die(op)
        if kind == "error" or (kind in ("lost", "late") and op not in _WRITES):
            raise StorageError(f"{op} failed as planned", file=_first(keys))
        if kind == "late" and late is not None:
            world.under_way(late)
            raise UnknownOutcomeError(f"the reply to {op} was lost, and the request is under way", file=_first(keys))
        try:
            result = call()
        except Violation as e:
            world.fail(f"{actor.name} #{actor.op.number if actor.op else 0}: {e}", e)
            actor.pause()  # does not come back
            raise
        if kind == "crash after":
            self._die(op)
        if kind in ("lost", "late"):
            raise UnknownOutcomeError(f"the reply to {op} was lost", file=_first(keys))
        return result

    def _die(self, op: str) -> None:
        self.actor.crashed = True
        raise SimulatedCrash(op)


class _Writer(AtomicWriter):
    def __init__(self, store: SimStore, key: str) -> None:
        super().__init__(key)
        self._store, self._chunks = store, bytearray()

    def _append(self, data: memoryview) -> None:
        self._chunks += data

    def _publish(self) -> None:
        content = bytes(self._chunks)
        self._store._write("close", self.name, lambda: self._store.inner.put(self.name, content))

    def _discard(self) -> None:
        self._chunks = bytearray()


def _first(keys: tuple[str, ...]) -> str:
    return keys[0] if keys else ""


def _has(store: MemoryStore, key: str) -> bool:
    return store._root + key in store._space.objects
