"""``LruCache``: a cache that drops the values that were used least recently."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any


class LruCache:
    """A cache of at most ``count`` values and a total ``size``; the ``least`` newest always stay."""

    def __init__(self, count: int, size: int, *, least: int = 0) -> None:
        self._count, self._size, self._least, self._lock = count, size, least, threading.Lock()
        self.values: OrderedDict[object, tuple[Any, int]] = OrderedDict()

    def get(self, key: object, otherwise: Any = None) -> Any:
        with self._lock:
            if key not in self.values:
                return otherwise
            self.values.move_to_end(key)
            return self.values[key][0]

    def put(self, key: object, value: Any, size: int) -> None:
        with self._lock:
            self.values[key] = value, size
            while len(self.values) > self._least and (
                len(self.values) > self._count or sum(size for _, size in self.values.values()) > self._size
            ):
                self.values.popitem(last=False)
