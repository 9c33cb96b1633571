"""Table feature ``inCommitTimestamp``: the time of a commit as stated by its writer, never decreasing.

Unlike file times, these times survive copying a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.feature_definition import Feature, property_is_on
from trilake.delta.protocol.property_values import Property, boolean, integer, is_on
from trilake.errors import CorruptLogError

ENABLED = "delta.enableInCommitTimestamps"
SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"
#: The field of ``commitInfo``.
FIELD = "inCommitTimestamp"
#: The largest 64-bit number.
_LAST = (1 << 63) - 1
_BY = "the commit that turns the feature on"

FEATURE = Feature(
    "inCommitTimestamp",
    None,
    7,
    active=property_is_on(ENABLED),
    properties=(
        Property(ENABLED, "false", boolean, late=True),
        Property(SINCE_TIME, None, integer(0), set_by=_BY, late=True),
        Property(SINCE_VERSION, None, integer(0), set_by=_BY, late=True),
    ),
    late=True,  # the time is stated during the commit
)


def enabled(metadata: Metadata) -> bool:
    """Whether the feature is on."""
    return is_on(metadata.configuration, ENABLED)


def in_commit_timestamps_from(metadata: Metadata) -> int | None:
    """The version from which commits carry ``inCommitTimestamp``; ``None`` if the feature is off."""
    if not enabled(metadata):
        return None
    value = metadata.configuration.get(SINCE_VERSION, "0")
    try:
        return int(value)
    except ValueError as e:
        raise CorruptLogError(
            f"the table property {SINCE_VERSION} is {value!r}, which is not a valid version",
            help="open the table by version",
        ) from e


def next_time(now_ms: int, previous: Mapping[str, Any] | None) -> int:
    """The time to state: now, or a millisecond after the previous commit, whose ``commitInfo`` is ``previous``.

    Raises ``CorruptLogError`` if no 64-bit number is later.

    >>> next_time(5, {"inCommitTimestamp": 9}), next_time(5, {"timestamp": 3}), next_time(5, None)
    (10, 5, 5)
    """
    before = (previous or {}).get(FIELD)
    if not isinstance(before, int):
        return now_ms
    if before >= _LAST:
        raise CorruptLogError(
            f"the {FIELD} of the newest commit is {before}, and no time in milliseconds is later",
            help="restore the table's folder from a backup, or write its rows into a new table",
        )
    return max(now_ms, before + 1)


def stamped(metadata: Metadata, before: Metadata, version: int, time_ms: int) -> Metadata:
    """Metadata with the version and time from which on commits state their times.

    These are ``version`` and ``time_ms``, those of the commit itself, unless ``before`` has the feature on.
    """
    marks = {SINCE_VERSION: str(version), SINCE_TIME: str(time_ms)}
    if enabled(before):
        marks = {k: before.configuration[k] for k in marks if k in before.configuration}
    configuration = {k: v for k, v in metadata.configuration.items() if k not in (SINCE_VERSION, SINCE_TIME)}
    return replace(metadata, configuration={**configuration, **marks})
