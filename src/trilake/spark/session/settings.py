"""Session settings: the time zone, timestamps without one, and overrides while a trilake job runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from trilake.common.timestamps import timestamp_ms
from trilake.errors import InvalidArgumentError

#: The setting for the time zone of timestamps without one.
ZONE = "spark.sql.session.timeZone"
#: Settings, off by default, that change how SQL quotes strings and names.
_QUOTES = ("spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.parser.escapedStringLiterals")
#: Time zones in which Spark and the embedded engine agree on timestamps.
UTC_ZONES = {"UTC", "Etc/UTC", "GMT", "Z", "+00:00"}


@dataclass
class _Overridden:
    """An overridden setting: the number of blocks that override it, and its value before the first."""

    count: int
    before: str | None


_lock = threading.Lock()
_overridden: WeakKeyDictionary[SparkSession, dict[str, _Overridden]] = WeakKeyDictionary()


@contextmanager
def overridden(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these values in the block.

    Blocks of several threads may overlap: the last one to end restores the value from before the first.
    """
    with _lock:
        settings_of_session = _overridden.setdefault(spark, {})
        for key, value in settings.items():
            before = spark.conf.get(key, None)
            settings_of_session.setdefault(key, _Overridden(0, before)).count += 1
            if before != value:
                spark.conf.set(key, value)
    try:
        yield
    finally:
        with _lock:
            for key, value in settings.items():
                settings_of_session[key].count -= 1
                if not settings_of_session[key].count:
                    _restore(spark, key, settings_of_session.pop(key).before, value)


def _restore(spark: SparkSession, key: str, before: str | None, value: str) -> None:
    if before is None:
        spark.conf.unset(key)
    elif before != value:
        spark.conf.set(key, before)


def session_zone(spark: SparkSession) -> str:
    """The session's time zone: from its setting, or the machine's."""
    # Pass no default: Spark would validate and return it instead of the machine's time zone.
    return str(spark.conf.get(ZONE))


def reads_quotes_plainly(spark: SparkSession) -> bool:
    """Whether SQL in this session quotes strings and names in the default way."""
    return all(str(spark.conf.get(s, "false")).lower() != "true" for s in _QUOTES)


def quoted_plainly(spark: SparkSession) -> AbstractContextManager[None]:
    """Use the default quoting of SQL in a block."""
    return nullcontext() if reads_quotes_plainly(spark) else overridden(spark, dict.fromkeys(_QUOTES, "false"))


def is_utc(spark: SparkSession) -> bool:
    """Whether timestamps have the same meaning in the session and in the embedded engine."""
    return session_zone(spark) in UTC_ZONES


def time_ms(spark: SparkSession, value: str) -> int:
    """A timestamp in ms since the epoch, in the session's time zone if the string has none.

    In UTC, common formats are parsed without a call to Spark.  Raises ``InvalidArgumentError`` for an invalid
    timestamp.
    """
    if is_utc(spark):
        with suppress(InvalidArgumentError):  # Spark accepts more forms, such as 2024-1-31
            return timestamp_ms(value)
    return session_time_ms(spark, value)


def session_time_ms(spark: SparkSession, value: str) -> int:
    """Let Spark parse a timestamp in the session's time zone; returns ms since the epoch.

    Raises ``InvalidArgumentError`` for an invalid timestamp.
    """
    row = spark.sql("SELECT unix_millis(try_cast(:t AS TIMESTAMP)) AS ms", args={"t": value}).collect()[0]
    if row.ms is None:
        raise InvalidArgumentError(
            f"The provided timestamp ('{value}') cannot be converted to a valid timestamp",
            help="write it like 2024-05-01 or 2024-05-01 12:30:00",
            condition="DELTA_TIMESTAMP_INVALID",
        )
    return int(row.ms)
