"""Whether the frames of a session follow their tables: the setting, and a probe of the Spark internals it needs."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from trilake.errors import InvalidArgumentError
from trilake.spark.live_frames import connect
from trilake.spark.live_frames.templates import filled, slots, template
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import items_of, query_execution, say_once

#: ``follow``, or ``pinned`` for frames that stay at the version at which they were read.
FRAMES = "spark.trilake.frames"
#: Results of the probe, by SparkContext, or by session for Connect.
_probed: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def follow(spark: SparkSession) -> bool:
    """Whether frames that are read now should follow their tables, and this Spark supports that.

    Raises ``InvalidArgumentError`` for an invalid value of the setting.
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
        with bypass():
            if not (connect.can_follow(spark) if is_connect(spark) else _fills(spark)):
                raise RuntimeError("a filled plan differs from its source")
    except Exception as e:  # noqa: BLE001 - on any surprise frames are Spark's own
        say_once("frames stay at the version they were read at", e)
        return False
    return True


def _fills(spark: SparkSession) -> bool:
    """Fill a plan with three slots for one table: it must read the table three times, with the same columns."""
    read = spark.range(1).where("id >= 0")
    slot = template(read, 0)
    combined = slot.alias("a").join(slot.alias("b").where("id > 0"), "id", "left_semi").unionAll(slot)
    leaves = slots(combined, lambda _: 1)
    plan = filled(combined, leaves, lambda _: (read, read)).queryExecution().analyzed()
    names = [leaf.nodeName() for leaf in items_of(plan.collectLeaves())]
    same = plan.output().equals(query_execution(combined).analyzed().output())
    return len(leaves) == 3 == names.count("Range") and bool(same)
