"""What protocol logic takes from the world besides storage: time, randomness and waiting.

All three are passed in, so that tests can replay any interleaving from a seed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


def _now_ms() -> int:
    return int(time.time() * 1000)


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Runtime:
    """``clock_ms`` gives ms since the epoch, ``new_id`` a fresh UUID text, ``sleep`` waits for seconds."""

    clock_ms: Callable[[], int] = _now_ms
    new_id: Callable[[], str] = _new_id
    sleep: Callable[[float], None] = time.sleep
