"""In-commit timestamps: the time of a commit as stated by its writer, never decreasing.

Table feature ``inCommitTimestamp``.  Unlike file times, they survive copying a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.property_values import is_on

ENABLED = "delta.enableInCommitTimestamps"
SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"
FIELD = "inCommitTimestamp"


def enabled(metadata: Metadata) -> bool:
    """Whether the feature is on."""
    return is_on(metadata.configuration, ENABLED)


def next_time(now_ms: int, previous: Mapping[str, Any] | None) -> int:
    """The time to state: now, or a millisecond after the previous commit, whose ``commitInfo`` is ``previous``.

    >>> next_time(5, {"inCommitTimestamp": 9}), next_time(5, {"timestamp": 3}), next_time(5, None)
    (10, 5, 5)
    """
    before = (previous or {}).get(FIELD)
    return max(now_ms, before + 1) if isinstance(before, int) else now_ms


def stamped(metadata: Metadata, before: Metadata, version: int, time_ms: int) -> Metadata:
    """Metadata with the version and time from which on commits state their times.

    These are ``version`` and ``time_ms``, those of the commit itself, unless ``before`` has the feature on.
    """
    marks = {SINCE_VERSION: str(version), SINCE_TIME: str(time_ms)}
    if enabled(before):
        marks = {k: before.configuration[k] for k in marks if k in before.configuration}
    configuration = {k: v for k, v in metadata.configuration.items() if k not in (SINCE_VERSION, SINCE_TIME)}
    return replace(metadata, configuration={**configuration, **marks})
