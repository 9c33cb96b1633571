"""``LandingGroup``: finish files together, since finishing mostly waits for the disk or the network.

Closed files wait until there are enough of them, or until the group is finished.  Then many are synced concurrently,
which is hardly slower than syncing one, while the caller writes the next ones::

    open -> written -> waiting --(many, or finish)--> landed           finish(): sync each folder once

To land a file is to sync and rename it, or to upload it.  Nothing may reference a file before ``finish`` returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from trilake.errors import UnknownOutcomeError
from trilake.storage.base import AtomicWriter, Store, WriteGroup
from trilake.storage.durable import FolderGroup

#: Most bytes of waiting files.
MOST_BYTES = 8 << 20
#: Up to this many items need no threads.
_ALONE = 2

T = TypeVar("T")


class Landing(Protocol):
    """A file with complete content."""

    #: The folder to sync for its name; empty if there is none.
    folder: str

    def tell(self) -> int: ...

    def land(self) -> None:
        """Sync and rename it; on failure, remove it."""

    def give_up(self) -> None:
        """Remove the file."""


class LandingGroup(WriteGroup):
    """A group whose files call :meth:`add` when closed, and land ``files`` at a time in ``threads``."""

    def __init__(self, store: Store, *, files: int, threads: int) -> None:
        super().__init__(store)
        self.writes_at_once = 1  # a closed file only waits
        self.folders = FolderGroup()
        self._files, self._most = files, threads
        self._waiting: list[Landing] = []
        self._bytes = 0
        self._running: deque[tuple[Future[None], Sequence[Landing]]] = deque()
        self._filled: set[str] = set()
        self._pool: ThreadPoolExecutor | None = None

    def add(self, file: Landing) -> None:
        """Add a closed file."""
        self._waiting.append(file)
        if file.folder:
            self._filled.add(file.folder)
        self._bytes += file.tell()
        if self._bytes >= MOST_BYTES:
            self._land(len(self._waiting))
        elif len(self._waiting) > self._files:
            self._land(self._files)

    def _land(self, count: int) -> None:
        """Land the first waiting files."""
        while self._is_full():
            self._settle()
        first, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes = sum(file.tell() for file in self._waiting)
        for some in _shares(first, self._most):
            self._running.append((self._threads().submit(_land_each, some), some))

    def _is_full(self) -> bool:
        """Whether a file must land before another one starts to."""
        return len(self._running) >= self._most

    def _settle(self) -> None:
        future, _ = self._running.popleft()
        future.result()

    def finish(self) -> None:
        try:
            if len(self._waiting) == 1 and not self._running:
                self._waiting.pop().land()  # needs no thread
            else:
                self._land(len(self._waiting))
            while self._running:
                self._settle()
            try:
                self._force_folders()
            except OSError as e:
                raise UnknownOutcomeError(
                    f"the files were written, but their folders could not be synced: {e.strerror}", file=self.store.uri
                ) from e
        finally:
            self._stop()

    def _force_folders(self) -> None:
        self.folders.force(self._filled, self._each)

    def _each(self, call: Callable[[T], None], items: Sequence[T], threads: int | None = None) -> None:
        """Call it for each item, in up to ``threads`` of the group's threads, and wait for all.

        A thread of the group calls with ``threads=1``, which needs no other.
        """

        def all_of(some: Sequence[T]) -> None:
            for item in some:
                call(item)

        if threads == 1 or len(items) <= _ALONE:
            all_of(items)
            return
        futures = [self._threads().submit(all_of, some) for some in _shares(items, threads or self._most)]
        try:
            for future in futures:
                future.result()
        finally:
            wait(futures)

    def abandon(self) -> None:
        give_up(self._waiting)
        for future, files in self._running:
            if future.cancel():
                give_up(files)
        self._waiting = []
        self._stop()

    def _threads(self) -> ThreadPoolExecutor:
        self._pool = self._pool or ThreadPoolExecutor(self._most, "trilake-land")
        return self._pool

    def _stop(self) -> None:
        wait([future for future, _ in self._running])
        self._running.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class HeldWriter(AtomicWriter):
    """A file of a group, which closes the inner file when it lands."""

    folder = ""

    def __init__(self, key: str, file: AtomicWriter, group: LandingGroup) -> None:
        self._file, self._group = file, group
        super().__init__(key)

    def _append(self, data: memoryview) -> None:
        self._file.write(data)

    def _publish(self) -> None:
        self._group.add(self)

    def _discard(self) -> None:
        self._file.discard()

    def land(self) -> None:
        self._file.close()

    def give_up(self) -> None:
        self._file.discard()


def _shares(items: Sequence[T], most: int) -> list[Sequence[T]]:
    return [items[i::most] for i in range(min(most, len(items)))]


def _land_each(files: Sequence[Landing]) -> None:
    for i, file in enumerate(files):
        try:
            file.land()
        except BaseException:
            give_up(files[i + 1 :])
            raise


def give_up(files: Sequence[Landing]) -> None:
    """Discard files that the group has not finished."""
    for file in files:
        file.give_up()
