"""Results of writes, in every format."""

from __future__ import annotations

from dataclasses import dataclass

from trilake.common.display import Displayed


@dataclass(frozen=True)
class WriteResult(Displayed):
    """The result of a write.

    ``version`` is the committed version, or the current one if nothing changed; ``None`` for formats without versions.

    >>> import trilake
    >>> trilake.write({"n": [1]}, "memory://doc-write-result").rows_added
    1
    """

    version: int | None
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    bytes_added: int = 0
