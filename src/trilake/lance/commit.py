"""Locks of users around commits: the names of them, and the runtime that holds one."""

from __future__ import annotations

from dataclasses import replace

from trilake.common.runtime import SYSTEM_RUNTIME, CommitLock, Runtime
from trilake.lance.file.errors import CommitConflictError

__all__ = ["CommitConflictError", "CommitLock"]


def runtime_with(lock: CommitLock | None) -> Runtime:
    """This machine's runtime, with a lock of the user's.  Raises ``TypeError`` for one that cannot be called."""
    if lock is None:
        return SYSTEM_RUNTIME
    if not callable(lock):
        raise TypeError(f"commit_lock must be a function, got {type(lock)}")
    return replace(SYSTEM_RUNTIME, lock=lock)
