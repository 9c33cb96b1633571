"""``delta.exceptions``: the conflicts that delta-spark's users catch, which are those that trilake raises."""

from __future__ import annotations

from trilake.errors import ConcurrentAppendError as ConcurrentAppendException
from trilake.errors import ConcurrentDeleteDeleteError as ConcurrentDeleteDeleteException
from trilake.errors import ConcurrentDeleteReadError as ConcurrentDeleteReadException
from trilake.errors import ConcurrentTransactionError as ConcurrentTransactionException
from trilake.errors import ConcurrentWriteError as ConcurrentWriteException
from trilake.errors import ConflictError as DeltaConcurrentModificationException
from trilake.errors import MetadataChangedError as MetadataChangedException
from trilake.errors import ProtocolChangedError as ProtocolChangedException

__all__ = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]
