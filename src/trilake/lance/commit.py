"""Names for users who guard commits with a lock of their own."""

from __future__ import annotations

from trilake.lance.errors import CommitConflictError
from trilake.lance.runtime import CommitLock

__all__ = ["CommitConflictError", "CommitLock"]
