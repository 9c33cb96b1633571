"""Isolation levels."""

from __future__ import annotations

from typing import Literal

from trilake.errors import InvalidArgumentError

#: From strict to lenient.  ``Serializable``: the version order is a serial order of the transactions.
#: ``WriteSerializable``: blind appends may be ordered later than they committed.  ``SnapshotIsolation``: additions of
#: others do not matter, as for a transaction that changes no data.
IsolationLevel = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]
LEVELS: tuple[IsolationLevel, ...] = ("Serializable", "WriteSerializable", "SnapshotIsolation")
DEFAULT_LEVEL: IsolationLevel = "WriteSerializable"


def parse_level(text: str) -> IsolationLevel:
    """Parse an isolation level, ignoring case.  Raises ``InvalidArgumentError``.

    >>> parse_level("serializable")
    'Serializable'
    """
    for level in LEVELS:
        if level.lower() == text.strip().lower():
            return level
    raise InvalidArgumentError(
        f"isolation level {text!r} is unknown",
        help=f"levels are {', '.join(LEVELS)}",
        condition="DELTA_INVALID_ISOLATION_LEVEL",
    )
