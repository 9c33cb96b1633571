"""Idempotent changes by session settings: an application ID and its version.

``spark.databricks.delta.write.txnAppId`` and ``.txnVersion`` are for INSERT, DELETE, UPDATE and MERGE what the options
``txnAppId`` and ``txnVersion`` are for a write of a frame; options override the settings.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from trilake.errors import InvalidArgumentError
from trilake.spark.delta.settings import PREFIX, session_flag

Transaction = tuple[str, int]

APP_ID = PREFIX + "write.txnAppId"
VERSION = PREFIX + "write.txnVersion"
#: Whether the session forgets its version once a change stood for it.
AUTO_RESET = VERSION + ".autoReset.enabled"


def session_transaction(spark: SparkSession) -> Transaction | None:
    """The application and the version of it that the next change of the session stands for; ``None`` without them.

    Raises ``InvalidArgumentError`` where the session says one of the two, or a version that is not a whole number.
    """
    app_id, version = spark.conf.get(APP_ID, None), spark.conf.get(VERSION, None)
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise InvalidArgumentError(
            f"the session says {VERSION if app_id is None else APP_ID}, and not"
            f" {APP_ID if app_id is None else VERSION}: they belong together",
            help="set both, or unset both",
            condition="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        )
    try:
        number = int(version)
    except ValueError:
        number = -1
    if not app_id or not 0 <= number < 1 << 63:
        wrong, value = (APP_ID, app_id) if not app_id else (VERSION, version)
        raise InvalidArgumentError(
            f"the session's {wrong} is {value!r}",
            help="the application must be a non-empty string, the version a whole number from 0 on",
            setting=wrong,
            condition="DELTA_ILLEGAL_OPTION",
        )
    return app_id, number


def settle(spark: SparkSession, transaction: Transaction | None) -> None:
    """Say that a change stood for ``transaction``, or was left out because one had: a session that resets its version
    forgets it, so that its next change cannot be taken for this one."""
    if transaction is not None and session_flag(spark, AUTO_RESET, False):
        spark.conf.unset(VERSION)
