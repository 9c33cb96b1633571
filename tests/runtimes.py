"""Clocks of tests."""

from __future__ import annotations

from collections.abc import Callable

from trilake.common.runtime import SYSTEM_RUNTIME, Runtime


def runtime_in_ms(
    clock_ms: Callable[[], int],
    new_id: Callable[[], str] = SYSTEM_RUNTIME.new_id,
    sleep: Callable[[float], None] = SYSTEM_RUNTIME.sleep,
) -> Runtime:
    """A runtime whose clock gives milliseconds."""
    return Runtime(lambda: clock_ms() * 1_000_000, new_id, sleep)
