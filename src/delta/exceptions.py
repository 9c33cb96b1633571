"""``delta.exceptions``: the conflicts that delta-spark's users catch, which are those that trilake raises."""

from __future__ import annotations

from trilake.errors import ConcurrentAppendError as ConcurrentAppendException
from trilake.errors import ConcurrentDeleteDeleteError as ConcurrentDeleteDeleteException
from trilake.errors import ConcurrentDeleteReadError as ConcurrentDeleteReadException
from trilake.errors import ConcurrentTransactionError as ConcurrentTransactionException
from trilake.errors import ConflictError as DeltaConcurrentModificationException
from trilake.errors import MetadataChangedError as MetadataChangedException
from trilake.errors import ProtocolChangedError as ProtocolChangedException

#: A conflict of no other kind is one that trilake knows by its base class alone.
ConcurrentWriteException = DeltaConcurrentModificationException

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
