"""Names for users who guard commits with a lock of their own."""

from __future__ import annotations

from trilake.lance.file.errors import CommitConflictError
from trilake.lance.file.runtime import CommitLock

__all__ = ["CommitConflictError", "CommitLock"]
