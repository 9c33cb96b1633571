"""User-supplied locks for commits."""

from __future__ import annotations

from dataclasses import replace

from trilake.common.runtime import SYSTEM_RUNTIME, CommitLock, Runtime
from trilake.lance.file.errors import CommitConflictError

__all__ = ["CommitConflictError", "CommitLock"]


def runtime_with(lock: CommitLock | None) -> Runtime:
    """Return the default runtime with a user-supplied lock.  Raises ``TypeError`` unless it is callable."""
    if lock is None:
        return SYSTEM_RUNTIME
    if not callable(lock):
        raise TypeError(f"commit_lock must be a function, got {type(lock)}")
    return replace(SYSTEM_RUNTIME, lock=lock)
