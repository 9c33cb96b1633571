"""Idempotent changes by session settings: an application ID and a version.

For INSERT, DELETE, UPDATE and MERGE, the settings ``spark.databricks.delta.write.txnAppId`` and ``.txnVersion`` have
the same effect as the options ``txnAppId`` and ``txnVersion`` of ``df.write``.  Options override the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession

from trilake.delta.log.snapshot import Snapshot
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.settings import PREFIX, session_flag

R = TypeVar("R")
Transaction = tuple[str, int]

APP_ID = PREFIX + "write.txnAppId"
VERSION = PREFIX + "write.txnVersion"
#: Whether the version is unset after a change.
AUTO_RESET = VERSION + ".autoReset.enabled"


def session_transaction(spark: SparkSession) -> Transaction | None:
    """The application and version of the session's next change; ``None`` if the session has none.

    Raises ``InvalidArgumentError`` if only one of the two is set, or the version is not a whole number.
    """
    app_id, version = spark.conf.get(APP_ID, None), spark.conf.get(VERSION, None)
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise InvalidArgumentError(
            f"{VERSION if app_id is None else APP_ID} is set without {APP_ID if app_id is None else VERSION}",
            help="set both, or unset both",
            condition="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )
    try:
        number = int(version)
    except ValueError:
        number = -1
    if not app_id or not 0 <= number < 1 << 63:
        wrong, value, expected = (
            (VERSION, version, "an integer of 0 or more") if app_id else (APP_ID, app_id, "a non-empty string")
        )
        raise InvalidArgumentError(
            f"{wrong} must be {expected}, got {value!r}",
            setting=wrong,
            condition="DELTA_ILLEGAL_OPTION",
        )
    return app_id, number


def once(spark: SparkSession, snapshot: Snapshot, skipped: R, change: Callable[[Transaction | None], R]) -> R:
    """Run a change for the session's transaction; return ``skipped`` if the table already has that transaction."""
    transaction = session_transaction(spark)
    done = transaction is not None and snapshot.has_transaction(*transaction)
    result = skipped if done else change(transaction)
    settle(spark, transaction)
    return result


def settle(spark: SparkSession, transaction: Transaction | None) -> None:
    """Unset the session's version after a change if the session asks for it, since the next change needs another
    one.
    """
    if transaction is not None and session_flag(spark, AUTO_RESET, False):
        spark.conf.unset(VERSION)
