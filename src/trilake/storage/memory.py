"""``MemoryStore``: objects in this process, for tests and small data.

Stores opened with the same ``memory://name`` share their objects within the process.  "Durable" means until the
process ends; one lock keeps the other guarantees of :mod:`trilake.storage.base`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any
from weakref import WeakValueDictionary

import pyarrow as pa

from trilake.errors import ObjectExistsError, ObjectNotFoundError
from trilake.storage.base import AtomicWriter, ObjectMeta, Store, check_key, check_prefix, check_range
from trilake.storage.uri import parse_location


@dataclass
class _Space:
    """The content of one ``memory://name``: full key -> (content, time)."""

    objects: dict[str, tuple[pa.Buffer, int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_SPACES: dict[str, _Space] = {}
#: Spaces of unnamed stores: each is deleted with its last store.
_PRIVATE: WeakValueDictionary[str, _Space] = WeakValueDictionary()
_SPACES_LOCK = threading.Lock()


def _reopened(uri: str, options: Mapping[str, str]) -> MemoryStore:
    location = parse_location(uri)
    return MemoryStore(location.authority, location.path, uri=location.uri, options=options)


class MemoryStore(Store):
    """A store in memory; ``clock`` returns the time of writes in milliseconds since the Unix epoch.

    Without a name, its objects disappear with it and its siblings (:func:`~trilake.storage.opening.open_sibling`).

    >>> store = MemoryStore(clock=lambda: 42)
    >>> store.put("a/b", b"xyz")
    >>> list(store.list())
    [ObjectMeta(key='a/b', size=3, modified_ms=42)]
    """

    def __init__(
        self,
        name: str | None = None,
        path: str = "",
        *,
        uri: str | None = None,
        options: Mapping[str, str] | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        with _SPACES_LOCK:
            if name is None:
                name = f"anonymous-{id(self):x}-{time.monotonic_ns():x}"
                self._space = _PRIVATE[name] = _Space()
            else:
                self._space = _PRIVATE.get(name) or _SPACES.setdefault(name, _Space())
        self._root = f"{path}/" if path else ""
        self._clock = clock
        self.uri = uri if uri is not None else f"memory://{name}/{path}".rstrip("/")
        self.options = dict(options or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.uri, dict(self.options))

    def read(self, key: str) -> pa.Buffer:
        return self._get(key)[0]

    def read_range(self, key: str, start: int, length: int) -> pa.Buffer:
        check_range(key, start, length)
        data = self._get(key)[0]
        start = min(start, data.size)
        return data.slice(start, min(length, data.size - start))

    def head(self, key: str) -> ObjectMeta:
        data, modified_ms = self._get(key)
        return ObjectMeta(key, data.size, modified_ms)

    def list(self, prefix: str = "", start_after: str | None = None) -> Iterator[ObjectMeta]:
        folder = self._root + check_prefix(prefix)
        with self._space.lock:
            items = [(k, v) for k, v in self._space.objects.items() if k.startswith(folder)]
        items.sort(key=lambda item: item[0].encode("utf-8", "surrogateescape"))
        first = 0
        if start_after is not None:
            after = (self._root + start_after).encode("utf-8", "surrogateescape")
            first = bisect_right(items, after, key=lambda item: item[0].encode("utf-8", "surrogateescape"))
        root_length = len(self._root)
        for key, (data, modified_ms) in items[first:]:
            yield ObjectMeta(key[root_length:], data.size, modified_ms)

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        self._set(check_key(key), data)

    def put_if_absent(self, key: str, data: bytes | pa.Buffer) -> None:
        self._set(check_key(key), data, absent=True)

    def delete(self, keys: Iterable[str]) -> None:
        full = [self._root + check_key(key) for key in keys]
        with self._space.lock:
            for key in full:
                self._space.objects.pop(key, None)

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self._get(key)[0])

    def open_output(self, key: str) -> IO[bytes]:
        return _MemoryWriter(self, check_key(key)).as_io()

    def _get(self, key: str) -> tuple[pa.Buffer, int]:
        try:
            return self._space.objects[self._root + check_key(key)]
        except KeyError:
            raise ObjectNotFoundError("no such object", file=key, store=self.uri) from None

    def _set(self, key: str, data: bytes | pa.Buffer, *, absent: bool = False) -> None:
        # Arrow buffers may change after the call; bytes cannot.
        content = pa.py_buffer(data if isinstance(data, bytes) else bytes(memoryview(data)))
        full = self._root + key
        with self._space.lock:
            if absent and full in self._space.objects:
                raise ObjectExistsError("the object already exists", file=key, store=self.uri)
            self._space.objects[full] = (content, self._clock())


class _MemoryWriter(AtomicWriter):
    def __init__(self, store: MemoryStore, key: str) -> None:
        super().__init__(key)
        self._store = store
        self._chunks = bytearray()

    def _append(self, data: memoryview) -> None:
        self._chunks += data

    def _publish(self) -> None:
        self._store.put(self.name, bytes(self._chunks))

    def _discard(self) -> None:
        self._chunks = bytearray()
