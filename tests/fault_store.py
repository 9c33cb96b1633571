"""``FaultStore``: a store with injected failures, for tests.

It wraps another store, records every call, and fails where its plan says so::

    call --> log --> before(op, key) --> fault "before" --> the wrapped store --> fault "after" --> return

* ``fail`` before: no effect, ``StorageError``;
* ``fail`` after: done, but the reply is lost, ``UnknownOutcomeError`` for writes;
* ``crash``: the process "dies" before or after the step; this and all later calls raise :class:`SimulatedCrash`;
* ``delay``: wait before or after.

The hook ``before`` may act as another writer on the wrapped store, which makes races deterministic.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from threading import Lock
from typing import IO, Any, Literal, TypeVar

import pyarrow as pa

from trilake.errors import StorageError, UnknownOutcomeError
from trilake.storage.base import AtomicWriter, ObjectMeta, Store, check_key

T = TypeVar("T")

#: Operations that change the store; ``close`` is that of a file from ``open_output``.
WRITES = frozenset({"put", "put_if_absent", "delete", "close"})


class SimulatedCrash(BaseException):
    """The simulated death of the process.  Not an ``Exception``, so that no code catches it."""


@dataclass(frozen=True)
class Call:
    """One call of a store: ``op`` is the method's name, ``keys`` its keys (for ``list``, the prefix)."""

    op: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    """A failure at the ``nth`` call (from 1) of ``op`` on a key that matches ``key``.

    ``op`` and ``key`` are shell patterns; ``times`` is the number of failing calls.  ``error`` replaces the error of a
    ``fail``; ``seconds`` is the length of a ``delay``.

    >>> from trilake.storage.memory import MemoryStore
    >>> store = FaultStore(MemoryStore(), [Fault("put_if_absent", "*.json", when="after")])
    >>> store.put_if_absent("0.json", b"{}")
    Traceback (most recent call last):
    trilake.errors.UnknownOutcomeError: [UNKNOWN_OUTCOME] the reply to put_if_absent was lost (file: 0.json). ...
    >>> store.inner.read("0.json").to_pybytes()
    b'{}'
    """

    op: str = "*"
    key: str = "*"
    nth: int = 1
    kind: Literal["fail", "crash", "delay"] = "fail"
    when: Literal["before", "after"] = "before"
    times: int = 1
    error: BaseException | None = None
    seconds: float = 0.01


def random_faults(
    seed: int,
    count: int,
    within: int,
    *,
    ops: Sequence[str] = ("put", "put_if_absent", "delete", "close", "read", "list"),
    kinds: Sequence[Literal["fail", "crash", "delay"]] = ("fail",),
) -> list[Fault]:
    """``count`` faults, each at one of the first ``within`` calls of its operation; deterministic for a seed."""
    rng = random.Random(seed)
    whens: tuple[Literal["before", "after"], ...] = ("before", "after")
    return [
        Fault(rng.choice(ops), nth=rng.randint(1, within), kind=rng.choice(kinds), when=rng.choice(whens))
        for _ in range(count)
    ]


@dataclass
class _State:
    """State shared by a store and its siblings: one process, one plan."""

    faults: tuple[Fault, ...]
    calls: list[Call] = field(default_factory=list)
    hits: Counter[int] = field(default_factory=Counter)
    crashed: bool = False
    lock: Lock = field(default_factory=Lock)


class FaultStore(Store):
    """``inner`` with faults.

    Parameters
    ----------
    inner: the wrapped store.
    faults: the plan; the first fault that matches a call applies.
    before: called as ``before(op, key)`` before each call, once per key; it may use ``inner`` (not this store).
    sleep: waits that many seconds.
    """

    def __init__(
        self,
        inner: Store,
        faults: Iterable[Fault] = (),
        *,
        before: Callable[[str, str], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.options = inner.options
        self.before = before
        self._sleep = sleep
        self._state = _State(tuple(faults))

    # --- for assertions ---

    @property
    def calls(self) -> list[Call]:
        """Every call so far, in order, including those of siblings."""
        return self._state.calls

    def count(self, op: str = "*", key: str = "*") -> int:
        """The number of calls with a name and a key that match the patterns."""
        return sum(_matches(call.op, call.keys, op, key) for call in list(self._state.calls))

    def counts(self) -> dict[str, int]:
        """The number of calls by name."""
        return dict(Counter(call.op for call in self._state.calls))

    def forget(self) -> None:
        """Clear the log; the plan continues."""
        self._state.calls.clear()

    @property
    def crashed(self) -> bool:
        """Whether the process has "died"."""
        return self._state.crashed

    # --- the store ---

    def read(self, key: str) -> pa.Buffer:
        return self._do("read", (key,), lambda: self.inner.read(key))

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        return self._do("read_range", (key,), lambda: self.inner.read_range(key, start, length))

    def read_sized(self, key: str, length: int, *, end: bool = False) -> tuple[int, pa.Buffer]:
        return self._do("read_sized", (key,), lambda: self.inner.read_sized(key, length, end=end))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        return self._do("read_ranges", (key,), lambda: self.inner.read_ranges(key, ranges))

    def read_many(self, keys: Sequence[str]) -> list[pa.Buffer]:
        return self._do("read_many", tuple(keys), lambda: self.inner.read_many(keys))

    def head(self, key: str) -> ObjectMeta:
        return self._do("head", (key,), lambda: self.inner.head(key))

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        return self._do("list", (prefix,), lambda: self.inner.list(prefix, start_after))

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        self._do("put", (key,), lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        self._do("put_if_absent", (key,), lambda: self.inner.put_if_absent(key, data))

    def delete(self, keys: Iterable[str]) -> None:
        names = tuple(keys)
        self._do("delete", names, lambda: self.inner.delete(names))

    def open_input(self, key: str) -> pa.NativeFile:
        return self._do("open_input", (key,), lambda: self.inner.open_input(key))

    def open_output(self, key: str) -> IO[bytes]:
        file = self._do("open_output", (key,), lambda: self.inner.open_output(key))
        return _FaultWriter(check_key(key), file, self._do).as_io()

    def unfinished(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return self._do("unfinished", (prefix,), lambda: self.inner.unfinished(prefix))

    def local_path(self, key: str) -> str | None:
        return self.inner.local_path(key)

    def passes_link(self, key: str) -> bool:
        return self.inner.passes_link(key)

    def like(self, other: Store) -> Store:
        faulty = FaultStore(self.inner.like(other), before=self.before, sleep=self._sleep)
        faulty._state = self._state
        return faulty

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process gets the store without faults: plan, log and hook stay here.
        return self.inner.__reduce__()

    def _do(self, op: str, keys: tuple[str, ...], call: Callable[[], T]) -> T:
        state = self._state
        if state.crashed:
            raise SimulatedCrash(f"{op} after the crash")
        with state.lock:
            state.calls.append(Call(op, keys))
            fault = self._due(op, keys)
        if self.before is not None:
            for key in keys:
                self.before(op, key)
        if fault is not None and fault.when == "before":
            self._strike(fault, op, keys)
        result = call()
        if fault is not None and fault.when == "after":
            self._strike(fault, op, keys)
        return result

    def _due(self, op: str, keys: tuple[str, ...]) -> Fault | None:
        due = None
        for i, fault in enumerate(self._state.faults):
            if _matches(op, keys, fault.op, fault.key):
                self._state.hits[i] += 1
                if due is None and fault.nth <= self._state.hits[i] < fault.nth + fault.times:
                    due = fault
        return due

    def _strike(self, fault: Fault, op: str, keys: tuple[str, ...]) -> None:
        file = ", ".join(keys[:3])
        if fault.kind == "delay":
            self._sleep(fault.seconds)
        elif fault.kind == "crash":
            self._state.crashed = True
            raise SimulatedCrash(f"{fault.when} {op} of {file}")
        elif fault.error is not None:
            raise fault.error
        elif fault.when == "after" and op in WRITES:
            raise UnknownOutcomeError(f"the reply to {op} was lost", file=file)
        else:
            raise StorageError(f"{op} failed as planned", file=file)


class _FaultWriter(AtomicWriter):
    """A file of the wrapped store; ``close`` is a separate call."""

    def __init__(
        self, key: str, file: IO[bytes], do: Callable[[str, tuple[str, ...], Callable[[], None]], None]
    ) -> None:
        self._file = file
        self._do = do
        super().__init__(key)

    def _append(self, data: memoryview) -> None:
        self._file.write(data)

    def _publish(self) -> None:
        try:
            self._do("close", (self.name,), self._file.close)
        except BaseException:
            self._discard()  # no effect if the file was closed
            raise

    def _discard(self) -> None:
        if isinstance(self._file, AtomicWriter):
            self._file.discard()


def _matches(op: str, keys: tuple[str, ...], op_pattern: str, key_pattern: str) -> bool:
    return fnmatchcase(op, op_pattern) and any(fnmatchcase(key, key_pattern) for key in keys)
