"""Clean up automatically after commits, if the dataset is configured for it.

``lance.auto_cleanup.interval`` is a number of versions, ``lance.auto_cleanup.older_than`` a minimum age such as
``"14d"`` or ``"30m"``, and ``lance.auto_cleanup.retain_versions`` the number of newest versions to keep.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, TypedDict

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.lance.cleanup import cleanup
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.scan.snapshot import Snapshot

_log = logging.getLogger("trilake.lance")
_PREFIX = "lance.auto_cleanup."
INTERVAL, OLDER_THAN, RETAIN = f"{_PREFIX}interval", f"{_PREFIX}older_than", f"{_PREFIX}retain_versions"
#: Minimum number of versions to keep: the newest, and the one on which it is based.
_LEAST = 2
#: Units of durations, in milliseconds.
_UNITS = {
    **dict.fromkeys(["ms", "msec", "millis"], 1),
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], 1000),
    **dict.fromkeys(["m", "min", "mins", "minute", "minutes"], 60_000),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    **dict.fromkeys(["d", "day", "days"], 86_400_000),
    **dict.fromkeys(["w", "week", "weeks"], 604_800_000),
}


class AutoCleanupConfig(TypedDict):
    """Number of versions between clean-ups, and the minimum age in seconds of versions to delete."""

    interval: int
    older_than_seconds: int


def config_of(options: Any) -> dict[str, str]:
    """Return the configuration entries of an :class:`AutoCleanupConfig`; there are none for ``None``.

    Raises ``WrongTypeError`` and ``InvalidArgumentError``.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or set(options) - set(AutoCleanupConfig.__annotations__):
        raise WrongTypeError(f"auto_cleanup_options must have interval and older_than_seconds, got {options!r}")
    numbers = {name: count(name, value, other_type=WrongTypeError) for name, value in options.items()}
    entries = {INTERVAL: str(numbers.get("interval", 20))}
    return {**entries, OLDER_THAN: f"{numbers.get('older_than_seconds', 14 * 86_400)}s"}


def milliseconds(duration: str) -> int:
    """Convert a duration to milliseconds.  Raises ``InvalidArgumentError``.

    >>> milliseconds("1h 30m"), milliseconds("1ms")
    (5400000, 1)
    """
    parts = re.findall(r"(\d+)\s*([a-zA-Z]+)", duration)
    if not parts or re.sub(r"\d+\s*[a-zA-Z]+|\s+", "", duration) or any(unit not in _UNITS for _, unit in parts):
        raise InvalidArgumentError(f"{duration!r} is not a duration", help='write it like "14d" or "1h 30m"')
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def after_commit(snapshot: Snapshot) -> None:
    """Clean up after a commit, if the configuration says so.

    The commit is final, so a failed clean-up is only logged.
    """
    config = snapshot.manifest.config
    if INTERVAL not in config:
        return
    try:
        interval = int(config[INTERVAL])
        if interval < 1 or snapshot.version % interval:
            return
        retain = max(int(config.get(RETAIN, "0")), _LEAST)
        age = milliseconds(config[OLDER_THAN]) if OLDER_THAN in config else 0 if RETAIN in config else 14 * 86_400_000
        cleanup(snapshot.store, age, snapshot.runtime, retain=retain, error_if_tagged=False)
    except (TrilakeError, ValueError) as e:
        _log.warning(
            "version %d of %s is committed, but the clean-up failed: %s", snapshot.version, snapshot.store.uri, e
        )
