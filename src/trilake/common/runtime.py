"""``Runtime``: what protocol logic needs apart from storage: time, randomness and waiting.

It is passed in, and logs, snapshots and plans carry it, so that tests can replay any interleaving from a seed.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

#: Guards the commit of a version: called with its number, returns a context manager.
CommitLock = Callable[[int], AbstractContextManager[Any]]


def _new_id() -> str:
    return str(uuid.uuid4())


def no_lock(version: int) -> AbstractContextManager[None]:
    """No lock: the store decides who wins."""
    return nullcontext()


@dataclass(frozen=True)
class Runtime:
    """Clock, randomness and waiting of a process; picklable.

    ``clock_ns`` returns ns since the epoch, ``new_id`` a fresh UUID string, ``sleep`` waits for seconds.  ``lock``
    guards the commit of each Lance version.
    """

    clock_ns: Callable[[], int]
    new_id: Callable[[], str]
    sleep: Callable[[float], None]
    lock: CommitLock = no_lock

    def clock_ms(self) -> int:
        return self.clock_ns() // 1_000_000

    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.clock_ms() / 1000, dt.UTC)

    def new_number(self) -> int:
        """A fresh 64-bit number, for the names of deletion files."""
        bits = uuid.UUID(self.new_id()).int
        return (bits >> 64 ^ bits) & 0xFFFFFFFFFFFFFFFF

    def new_hex_id(self) -> str:
        """A fresh UUID as 32 hexadecimal digits, without hyphens."""
        return uuid.UUID(self.new_id()).hex

    def new_attempt(self) -> str:
        """Eight hexadecimal digits that identify one of several concurrent attempts of a task."""
        number = self.new_number()
        return f"{(number >> 32 ^ number) & 0xFFFFFFFF:08x}"


#: The clock and randomness of this machine.  A test lists the few modules that may use it.
SYSTEM_RUNTIME = Runtime(time.time_ns, _new_id, time.sleep)
