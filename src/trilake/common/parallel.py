"""Run calls in threads, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(
    pool: Executor,
    call: Callable[[T], R],
    items: Iterable[T],
    ahead: int,
    weight: Callable[[T], float] = lambda _: 1,
) -> Iterator[R]:
    """Like ``pool.map``, but at most ``ahead`` calls run or wait for the consumer; items are taken as needed.

    A call counts as many times as the ``weight`` of its item says.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(map_ahead(pool, abs, [-1, -2, -3], 2))
    [1, 2, 3]
    """
    running: deque[tuple[Future[R], float]] = deque()
    total = 0.0
    try:
        for item in items:
            running.append((pool.submit(call, item), weight(item)))
            total += running[-1][1]
            while running and total >= ahead:
                future, one = running.popleft()
                total -= one
                yield future.result()
        while running:
            yield running.popleft()[0].result()
    finally:
        for future, _ in running:
            future.cancel()
