"""Isolation levels: which order of transactions a table promises to its readers."""

from __future__ import annotations

from typing import Literal

from trilake.errors import InvalidArgumentError

#: From strict to lenient.  ``Serializable``: the order of versions is an order in which the transactions could have
#: run.  ``WriteSerializable``: blind appends may be thought of as having run later than they committed.
#: ``SnapshotIsolation``: what others added does not matter, as for a transaction that changes no data.
IsolationLevel = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]
LEVELS: tuple[IsolationLevel, ...] = ("Serializable", "WriteSerializable", "SnapshotIsolation")
DEFAULT_LEVEL: IsolationLevel = "WriteSerializable"


def parse_level(text: str) -> IsolationLevel:
    """An isolation level by its name, without regard to case.  Raises ``InvalidArgumentError``.

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
