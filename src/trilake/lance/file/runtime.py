"""What protocol logic takes from the world besides storage: time, randomness and waiting.

All are passed in, so that tests can replay any interleaving from a seed.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

#: Guards the commit of a version: called with its number, it gives a context manager.
CommitLock = Callable[[int], AbstractContextManager[Any]]


def _new_id() -> str:
    return str(uuid.uuid4())


def no_lock(version: int) -> AbstractContextManager[None]:
    """No lock: the store decides who wins."""
    del version
    return nullcontext()


@dataclass(frozen=True)
class Runtime:
    """``clock_ns`` gives ns since the epoch, ``new_id`` a fresh UUID text, ``sleep`` waits for seconds.

    ``lock`` is held around the commit of each version, for users who want that.
    """

    clock_ns: Callable[[], int] = time.time_ns
    new_id: Callable[[], str] = _new_id
    sleep: Callable[[float], None] = time.sleep
    lock: CommitLock = no_lock

    def new_number(self) -> int:
        """A fresh number of 64 bits, for the names of deletion files."""
        parsed = uuid.UUID(self.new_id()).int
        return (parsed >> 64 ^ parsed) & 0xFFFFFFFFFFFFFFFF


def runtime_with(lock: CommitLock | None) -> Runtime:
    """The world with a lock of the user's.  Raises ``TypeError`` for one that cannot be called."""
    if lock is None:
        return Runtime()
    if not callable(lock):
        raise TypeError(f"commit_lock must be a function, got {type(lock)}")
    return Runtime(lock=lock)


def local_time(ns: int) -> dt.datetime:
    """A time in ns since the Unix epoch in the local zone, without it, to the microsecond."""
    seconds, rest = divmod(ns, 10**9)
    return dt.datetime.fromtimestamp(seconds, dt.UTC).astimezone().replace(tzinfo=None, microsecond=rest // 1000)
