"""Run calls in threads, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(pool: Executor, call: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Like ``pool.map``, but at most ``ahead`` calls run or wait for the consumer; items are taken as needed.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(map_ahead(pool, abs, [-1, -2, -3], 2))
    [1, 2, 3]
    """
    running: deque[Future[R]] = deque()
    try:
        for item in items:
            running.append(pool.submit(call, item))
            if len(running) >= ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()
