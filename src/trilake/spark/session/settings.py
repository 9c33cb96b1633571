"""Settings of a session: its zone, with times that users write without one, and what holds while a job of trilake
runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from trilake.common.timestamps import timestamp_ms
from trilake.errors import InvalidArgumentError

#: Setting of a session: the zone of times that name none.
ZONE = "spark.sql.session.timeZone"
#: Settings of how a session reads strings and names in strings of SQL, each off by default.
_QUOTES = ("spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.parser.escapedStringLiterals")
#: Zones of sessions in which a time means what it means to the embedded engine.
UTC_ZONES = {"UTC", "Etc/UTC", "GMT", "Z", "+00:00"}


@dataclass
class _Overridden:
    """A setting that jobs hold: how many do, and what it was before the first."""

    count: int
    before: str | None


_lock = threading.Lock()
_overridden: WeakKeyDictionary[SparkSession, dict[str, _Overridden]] = WeakKeyDictionary()


@contextmanager
def overridden(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let settings have these values in a block.

    Blocks of several threads may overlap: the last one that ends puts back what was there before the first.
    """
    with _lock:
        ours = _overridden.setdefault(spark, {})
        for key, value in settings.items():
            before = spark.conf.get(key, None)
            ours.setdefault(key, _Overridden(0, before)).count += 1
            if before != value:
                spark.conf.set(key, value)
    try:
        yield
    finally:
        with _lock:
            for key, value in settings.items():
                ours[key].count -= 1
                if not ours[key].count:
                    _restore(spark, key, ours.pop(key).before, value)


def _restore(spark: SparkSession, key: str, before: str | None, value: str) -> None:
    if before is None:
        spark.conf.unset(key)
    elif before != value:
        spark.conf.set(key, before)


def session_zone(spark: SparkSession) -> str:
    """The session's zone: that of its setting, or that of the machine."""
    # Without a default of trilake: Spark would give it back, and refuse what is not a zone, where the setting is not
    # set.
    return str(spark.conf.get(ZONE))


def reads_quotes_plainly(spark: SparkSession) -> bool:
    """Whether strings and names in SQL strings of a session are written as they are without settings: names not in
    double quotes, and strings with backslashes that escape."""
    return all(str(spark.conf.get(s, "false")).lower() != "true" for s in _QUOTES)


def quoted_plainly(spark: SparkSession) -> AbstractContextManager[None]:
    """Lets the session read strings of SQL so in a block."""
    return nullcontext() if reads_quotes_plainly(spark) else overridden(spark, dict.fromkeys(_QUOTES, "false"))


def is_utc(spark: SparkSession) -> bool:
    """Whether times of the session mean what they mean to the embedded engine."""
    return session_zone(spark) in UTC_ZONES


def time_ms(spark: SparkSession, text: str) -> int:
    """A time in ms since the epoch, in the session's zone where the text names none.

    Strings of UTC are read without a call to Spark.  Raises ``InvalidArgumentError`` for a string that is no time.
    """
    if is_utc(spark):
        with suppress(InvalidArgumentError):  # Spark reads more, such as 2024-1-31
            return timestamp_ms(text)
    return session_time_ms(spark, text)


def session_time_ms(spark: SparkSession, text: str) -> int:
    """A string as Spark reads timestamps, in the session's time zone, as ms since the epoch.

    Raises ``InvalidArgumentError`` for a string that is not a timestamp.
    """
    row = spark.sql("SELECT unix_millis(try_cast(:t AS TIMESTAMP)) AS ms", args={"t": text}).collect()[0]
    if row.ms is None:
        raise InvalidArgumentError(
            f"The provided timestamp ('{text}') cannot be converted to a valid timestamp",
            help="write it like 2024-05-01 or 2024-05-01 12:30:00",
            condition="DELTA_TIMESTAMP_INVALID",
        )
    return int(row.ms)
