"""``Closing``: ends the data files of one task, several at a time where that is mostly waiting for disk or network."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol


class Closable(Protocol):
    """A file that is being written."""

    def close(self, now_ms: int) -> dict[str, Any]: ...

    def discard(self) -> None: ...


class Closing:
    """Files that are being ended, and the actions of those that have ended, in the order in which they came.

    ``at_once`` is how many may wait at the same time, as the store says: with 1, each is ended where it comes.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._actions: list[dict[str, Any]] = []
        self._running: deque[tuple[Future[dict[str, Any]], Closable]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def end(self, file: Closable, now_ms: int, *, last: bool) -> None:
        """End a file; ``last`` says that no other one is known to follow it.

        Raises what ends of files before it have raised, or its own.
        """
        if not self._running and (last or self._at_once == 1):
            self._actions.append(file.close(now_ms))
            return
        while len(self._running) >= self._at_once:
            self._settle()
        self._pool = self._pool or ThreadPoolExecutor(self._at_once, "trilake-close")
        self._running.append((self._pool.submit(file.close, now_ms), file))

    def _settle(self) -> None:
        future, _ = self._running.popleft()
        self._actions.append(future.result())

    def actions(self) -> list[dict[str, Any]]:
        """The actions of all files, once they have ended."""
        while self._running:
            self._settle()
        self._stop()
        return self._actions

    def abandon(self) -> None:
        """Give up the files whose end has not begun, and wait for the others: then none can appear any more."""
        for future, file in self._running:
            if future.cancel():
                file.discard()
        wait([future for future, _ in self._running])
        self._running.clear()
        self._stop()

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
