"""Find when commits happened, without reading all of them.

Protocol: *Commit Provenance Information*, *In-Commit Timestamps*.  File times come from the listing and may decrease.
In-commit timestamps are inside the commits and only grow, so a binary search finds one: 17 reads for 100,000 commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.actions import broken_action, required_value
from trilake.errors import VersionNotFoundError


def newest_until(
    first: int, last: int, stated: Callable[[int], int | None], timestamp_ms: int
) -> tuple[int, int] | None:
    """Find the newest version of ``first`` to ``last`` with a time up to ``timestamp_ms``, and its time.

    ``stated`` returns the time of a version, ``None`` for one that has been cleaned up.

    >>> newest_until(0, 9, lambda version: 10 * version if version > 3 else None, 57), newest_until(5, 9, int, 4)
    ((5, 50), None)
    """
    newest = None
    while first <= last:
        middle = (first + last) // 2
        time = stated(middle)
        if time is not None and time > timestamp_ms:
            last = middle - 1
        else:
            first = middle + 1
            newest = newest if time is None else (middle, time)
    return newest


def monotonic(times: Sequence[int]) -> list[int]:
    """Make file times monotonic: each at least a millisecond after the one before.

    >>> monotonic([5, 3, 9])
    [5, 6, 9]
    """
    out: list[int] = []
    for t in times:
        out.append(t if not out or t > out[-1] else out[-1] + 1)
    return out


def in_commit_ms(info: Mapping[str, Any], version: int) -> int:
    """The in-commit timestamp in a ``commitInfo``.  Raises ``CorruptLogError`` unless it is a number."""
    try:
        return required_value(info, "inCommitTimestamp", int)
    except TypeError as e:
        raise broken_action("commitInfo", e, file=commit_key(version), version=version) from e


def timestamp_string(ms: int) -> str:
    """A time in ms since the epoch as an ISO string in UTC.

    >>> timestamp_string(0)
    '1970-01-01 00:00:00.000Z'
    """
    # Formatted by Arrow: Python's datetimes end with the year 9999.
    return f"{pa.scalar(ms, pa.timestamp('ms')).cast(pa.string()).as_py()}Z"


def out_of_range(timestamp_ms: int, version: int, version_ms: int, uri: str, *, after: bool) -> VersionNotFoundError:
    """The error for a time after the newest commit, or before the oldest one, which is ``version``."""
    where = "after the newest version" if after else "before the oldest commit in the log"
    return VersionNotFoundError(
        f"the timestamp {timestamp_string(timestamp_ms)} is {where}",
        help=f"the {'newest' if after else 'oldest'} commit is version {version} of {timestamp_string(version_ms)}",
        file=uri,
        condition="DELTA_TIMESTAMP_GREATER_THAN_COMMIT" if after else "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
    )
