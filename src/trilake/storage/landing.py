"""``LandingGroup``: files of a local store that are forced to disk together.

A file that is closed waits with its content written, until there are enough of them or the group is finished; then many
are forced at the same time, which costs the disk little more than one, while the caller writes the next ones::

    open -> written -> waiting --(many, or finish)--> fsync -> rename          finish(): fsync of each folder, once

Nothing may name a file before ``finish`` returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import IO, Protocol, TypeVar

from trilake.errors import UnknownOutcomeError
from trilake.storage.base import Store, WriteGroup
from trilake.storage.durable import FolderGroup

#: Files, or bytes, that wait before they are forced; as many files more may be on their way.
_FILES, _BYTES = 64, 8 << 20
#: Files that are forced at the same time.
_THREADS = 16
#: Folders that are forced one after another: a thread costs as much.
_ALONE = 2

T = TypeVar("T")


class Landing(Protocol):
    """A file whose content is written."""

    folder: str

    def tell(self) -> int: ...

    def land(self) -> None:
        """Force it to disk and give it its name; where that fails, nothing is there."""

    def give_up(self) -> None:
        """Remove what was written."""


class LandingGroup(WriteGroup):
    """``start`` opens the file of a key, which calls :meth:`add` when it is closed."""

    def __init__(self, store: Store, start: Callable[[str, LandingGroup], IO[bytes]]) -> None:
        super().__init__(store)
        self.writes_at_once = 1  # a file that is closed only waits
        self.folders = FolderGroup()
        self._start = start
        self._waiting: list[Landing] = []
        self._bytes = 0
        self._running: deque[tuple[Future[None], Sequence[Landing]]] = deque()
        self._filled: set[str] = set()
        self._pool: ThreadPoolExecutor | None = None

    def open_output(self, key: str) -> IO[bytes]:
        return self._start(key, self)

    def add(self, file: Landing) -> None:
        """Take a file that was closed."""
        self._filled.add(file.folder)
        self._waiting.append(file)
        self._bytes += file.tell()
        if len(self._waiting) >= _FILES or self._bytes >= _BYTES:
            self._land()

    def _land(self) -> None:
        while len(self._running) >= _THREADS:
            self._settle()
        for some in _shares(self._waiting):
            self._running.append((self._threads().submit(_land, some), some))
        self._waiting, self._bytes = [], 0

    def _settle(self) -> None:
        future, _ = self._running.popleft()
        future.result()

    def finish(self) -> None:
        try:
            if len(self._waiting) == 1 and not self._running:
                self._waiting.pop().land()  # needs no thread
            else:
                self._land()
            while self._running:
                self._settle()
            try:
                self.folders.force(self._filled, self._each)
            except OSError as e:
                raise UnknownOutcomeError(
                    f"the files are there, but their folders could not be forced to disk: {e.strerror}",
                    file=self.store.uri,
                ) from e
        finally:
            self._stop()

    def _each(self, call: Callable[[str], None], folders: list[str]) -> None:
        def all_of(some: Sequence[str]) -> None:
            for folder in some:
                call(folder)

        if len(folders) <= _ALONE:
            all_of(folders)
        else:
            list(self._threads().map(all_of, _shares(folders)))

    def abandon(self) -> None:
        _give_up(self._waiting)
        for future, files in self._running:
            if future.cancel():
                _give_up(files)
        self._waiting = []
        self._stop()

    def _threads(self) -> ThreadPoolExecutor:
        self._pool = self._pool or ThreadPoolExecutor(_THREADS, "trilake-land")
        return self._pool

    def _stop(self) -> None:
        wait([future for future, _ in self._running])
        self._running.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _shares(items: Sequence[T]) -> list[Sequence[T]]:
    """One share for each thread."""
    return [items[i::_THREADS] for i in range(min(_THREADS, len(items)))]


def _land(files: Sequence[Landing]) -> None:
    for i, file in enumerate(files):
        try:
            file.land()
        except BaseException:
            _give_up(files[i + 1 :])
            raise


def _give_up(files: Sequence[Landing]) -> None:
    for file in files:
        file.give_up()
