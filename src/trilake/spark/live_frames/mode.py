"""Whether frames of a session follow their tables: a setting, and one probe of what this needs of Spark."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from trilake.errors import InvalidArgumentError
from trilake.spark.live_frames import connect
from trilake.spark.live_frames.templates import filled, slots, template
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import items_of, query_execution, say_once
from trilake.spark.session.passing import spark_alone

#: The setting of a session: ``follow``, or ``pinned`` for frames that stay at the version that they have read.
FRAMES = "spark.trilake.frames"
#: Whether frames can follow, by the context of classic sessions, and by session over Connect.
_probed: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def follow(spark: SparkSession) -> bool:
    """Whether frames that are read now shall follow their tables, and can do so on this Spark.

    Raises ``InvalidArgumentError`` for another value of the setting.
    """
    value = str(spark.conf.get(FRAMES, "follow")).lower()
    if value not in ("follow", "pinned"):
        raise InvalidArgumentError(f"{FRAMES} must be follow or pinned, got {value}")
    if value == "pinned":
        return False
    key = spark if is_connect(spark) else spark.sparkContext
    if key not in _probed:
        _probed[key] = _can_follow(spark)
    return _probed[key]


def _can_follow(spark: SparkSession) -> bool:
    try:
        with spark_alone():
            if not (connect.can_follow(spark) if is_connect(spark) else _fills(spark)):
                raise RuntimeError("a plan that was filled is not what it was made of")
    except Exception as e:  # noqa: BLE001 - any surprise: then frames are what Spark makes of a read
        say_once("frames stay at the version that they have read", e)
        return False
    return True


def _fills(spark: SparkSession) -> bool:
    """Whether a plan with three slots of one table, filled, reads it three times, in the same columns."""
    read = spark.range(1).where("id >= 0")
    slot = template(read, 0)
    made = slot.alias("a").join(slot.alias("b").where("id > 0"), "id", "left_semi").unionAll(slot)
    leaves = slots(made, lambda _: 1)
    plan = filled(made, leaves, lambda _: (read, read)).queryExecution().analyzed()
    names = [leaf.nodeName() for leaf in items_of(plan.collectLeaves())]
    same = plan.output().equals(query_execution(made).analyzed().output())
    return len(leaves) == 3 == names.count("Range") and bool(same)
