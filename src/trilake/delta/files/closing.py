"""``Closing``: close the data files of one task, several at a time, since closing mostly waits for disk or network."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol


class Closable(Protocol):
    """A file that is being written."""

    def close(self, now_ms: int) -> dict[str, Any]: ...

    def discard(self) -> None: ...


class Closing:
    """Files that are being closed, and the actions of closed ones, in the order in which they came.

    ``at_once`` is the concurrency that the store allows; with 1, files are closed synchronously.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._actions: list[dict[str, Any]] = []
        self._running: deque[tuple[Future[dict[str, Any]], Closable]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def end(self, file: Closable, now_ms: int, *, last: bool) -> None:
        """Close a file; ``last`` says that it is the last one as far as known.

        Raises errors of this and earlier files.
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
        """Wait for all files and return their actions."""
        while self._running:
            self._settle()
        self._stop()
        return self._actions

    def abandon(self) -> None:
        """Discard files whose closing has not started, and wait for the others."""
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
