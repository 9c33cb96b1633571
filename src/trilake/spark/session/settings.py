"""Session settings: the time zone, flags, overrides while a job runs, and credentials of object stores.

Options of a call take precedence over the session's Hadoop settings ``fs.s3a.*``, ``fs.azure.*`` and ``fs.gs.*``, which
may be set as ``spark.hadoop.fs...`` before the session starts or by ``spark.conf.set``; :mod:`trilake.storage` adds the
environment and AWS profiles.  Credentials are never mixed: if a call passes any, the session's are ignored.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from trilake.common.timestamps import timestamp_ms
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.options import from_hadoop, hadoop_names, is_credential, is_storage_option, missing_options
from trilake.storage.uri import parse_location

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
    """Set these values in the block.  Blocks of several threads may overlap: the last one to end restores the value
    from before the first."""
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


def is_ansi(spark: SparkSession) -> bool:
    """Whether casts in the session fail for a value that does not fit; the default depends on the release."""
    return str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"


def is_utc(spark: SparkSession) -> bool:
    """Whether timestamps have the same meaning in the session and in the embedded engine."""
    return session_zone(spark) in UTC_ZONES


def time_ms(spark: SparkSession, value: str) -> int:
    """A timestamp in ms since the epoch, in the session's time zone if the string has none; in UTC, without a call to
    Spark."""
    if is_utc(spark):
        with suppress(InvalidArgumentError):  # Spark accepts more forms, such as 2024-1-31
            return timestamp_ms(value)
    return session_time_ms(spark, value)


def session_time_ms(spark: SparkSession, value: str) -> int:
    """Let Spark parse a timestamp in the session's time zone; returns ms since the epoch.  Raises
    ``InvalidArgumentError`` for an invalid timestamp."""
    row = spark.sql("SELECT unix_millis(try_cast(:t AS TIMESTAMP)) AS ms", args={"t": value}).collect()[0]
    if row.ms is None:
        raise InvalidArgumentError(
            f"The provided timestamp ('{value}') cannot be converted to a valid timestamp",
            help="write it like 2024-05-01 or 2024-05-01 12:30:00",
            condition="DELTA_TIMESTAMP_INVALID",
        )
    return int(row.ms)


def session_flag(spark: SparkSession, name: str, default: bool) -> bool:
    """A boolean setting.  Raises ``InvalidArgumentError`` for any other value."""
    return session_choice(spark, name, ("true", "false"), default=str(default)) == "true"


def session_choice(spark: SparkSession, name: str, choices: Sequence[str], *, default: str | None = None) -> str:
    """A setting with one of some values, by default the first one.  Raises ``InvalidArgumentError`` for any other
    value."""
    value = str(spark.conf.get(name, default or choices[0]))
    for choice in choices:
        if value.lower() == choice.lower():
            return choice
    *others, last = choices
    raise InvalidArgumentError(f"{name} must be {', '.join(others)} or {last}, got {value!r}", setting=name)


def session_options(
    spark: SparkSession, uri: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The options of the store at ``uri``: those of the call, then those of the session.  Local files and memory need
    none."""
    options = dict(options or {})
    location = parse_location(uri)
    if location.scheme in ("file", "memory"):
        return options
    settings = from_hadoop(
        _hadoop_settings(spark, hadoop_names(location.scheme, location.authority)), bucket=location.authority
    )
    stated = from_hadoop({k: v for k, v in options.items() if is_storage_option(k)}, bucket=location.authority)
    if any(is_credential(name) for name in stated):
        settings = {k: v for k, v in settings.items() if not is_credential(k)}
    return {**missing_options(settings, stated), **options}


def session_store(spark: SparkSession, uri: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
    """Open the store at ``uri`` with :func:`session_options`."""
    return open_store(uri, session_options(spark, uri, options))


def shared_location(uri: str | os.PathLike[str]) -> str:
    """The URI of a location for Spark's tasks, which run in other processes with other working directories.  Raises
    ``InvalidArgumentError`` for a table in memory."""
    location = parse_location(uri)
    if location.scheme == "memory":
        raise InvalidArgumentError(
            "Spark's tasks run in other processes and cannot see a table in memory",
            help="use a folder or a bucket, or trilake.open and trilake.write without Spark",
            file=str(uri),
        )
    return location.uri


def _hadoop_settings(spark: SparkSession, names: Iterable[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:
        hadoop = java.sessionState().newHadoopConf()  # includes the session's settings
        for name in names:
            value = hadoop.get(name)
            sources = hadoop.getPropertySources(name) if value is not None else None
            # Ignore Hadoop's defaults.
            if value is not None and not (sources is not None and str(list(sources)[-1]).endswith("-default.xml")):
                out[name] = str(value)
        return out
    for name in names:  # on Spark Connect
        setting = spark.conf.get(name, None) or spark.conf.get(f"spark.hadoop.{name}", None)
        if setting is not None:
            out[name] = setting
    return out
