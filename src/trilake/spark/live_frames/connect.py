"""Frames of Spark Connect that show a table's newest version whenever they are used.

The plan of such a frame is an object on this side, which makes a message for each use, and all that is made of the
frame contains that object.  So the message is where the newest version comes in: with the number of the plan, it is
found under the columns that were taken from the frame.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from trilake.common.text import quote_name
from trilake.spark.live_frames.columns import check_columns, in_types_of, is_kept
from trilake.spark.live_frames.versions import Source
from trilake.spark.session.compat import frame_of_plan
from trilake.spark.session.internals import connect_plan
from trilake.spark.session.passing import passing, spark_alone

_RENEW, _STAYS = "_trilake_renew", "_trilake_stays"
_Any = TypeVar("_Any")
#: Where a plan of Spark Connect keeps its number.
_NUMBERS = frozenset(("_plan_id", "_root_plan_id"))


def unchanging(frame: DataFrame) -> DataFrame:
    """The same frame with a plan object of its own, which stays as it is."""
    return frame_of_plan(copy.copy(connect_plan(frame)), frame.sparkSession)


def let_follow(frame: DataFrame, source: Source) -> None:
    """Let the plan of a frame, and with it all that is made of the frame, send the newest rows of a table."""
    first, lock, plan = source.first, threading.RLock(), connect_plan(frame)
    shown, rows = first, first.frame

    def renew() -> None:
        nonlocal shown, rows
        with lock:
            now = source.look()
            if now is shown or is_kept(rows):
                return
            with spark_alone():
                check_columns(first.frame.schema, now.frame.schema, now.shown)
                same = in_types_of(first.frame.schema, now.frame)
                rows = same.select(*map(quote_name, first.frame.columns))
            shown = now

    def message(session: Any) -> Any:
        if not passing():
            renew()
        relation = copy.deepcopy(connect_plan(rows).plan(session))
        relation.common.plan_id = plan._plan_id
        return relation

    plan.plan = message
    setattr(plan, _RENEW, renew)


def can_follow(spark: SparkSession) -> bool:
    """Whether plans of this client are as :func:`let_follow` needs them."""
    plan: Any = connect_plan(spark.range(1))
    number = plan.plan(spark.client).common.plan_id
    return bool(number == plan._plan_id)


def keeping(frame: DataFrame, persist: Callable[[], _Any]) -> Callable[[], _Any] | None:
    """How a frame that follows tables is put in the cache; ``None`` for any other frame."""
    return (lambda: _keep(frame, persist)) if follows(frame) else None


def _keep(frame: DataFrame, persist: Callable[[], _Any]) -> _Any:
    """Let the server keep the newest rows of a frame, which sends what it sends now for as long as they are kept.

    Parameters
    ----------
    frame: one that is made of frames that follow tables, in a block of :func:`spark_alone`.
    persist: lets the server keep the rows; its result is that of this function.
    """
    renew_plans(frame)
    plan = connect_plan(frame)
    if hasattr(plan, _RENEW) or hasattr(plan, _STAYS):  # the one looks by itself, the other is kept already
        return persist()
    message, own = plan.plan(frame.sparkSession.client), plan.plan
    still = copy.copy(plan)
    plan.plan = still.plan = lambda session: copy.deepcopy(message)
    as_kept = frame_of_plan(still, frame.sparkSession)

    def stays() -> bool:
        if is_kept(as_kept):
            return True
        vars(plan).pop(_STAYS, None)
        vars(plan).pop("plan", None)
        return False

    try:
        return persist()
    finally:
        plan.plan = lambda session: copy.deepcopy(message) if stays() else own(session)
        setattr(plan, _STAYS, stays)


def renew_plans(origin: Any) -> None:
    """Let what a frame of Spark Connect, or its plan, is made of show the newest versions; any other thing stays.

    So does what is kept.
    """
    for plan in _plans(origin, is_whole=lambda p: hasattr(p, _STAYS) and getattr(p, _STAYS)()):
        renew = getattr(plan, _RENEW, None)
        if renew is not None:
            renew()


def follows(origin: Any) -> bool:
    """Whether something of what a frame of Spark Connect is made of shows the newest version of a table."""
    return any(hasattr(plan, _RENEW) for plan in _plans(origin))


def _plans(origin: Any, is_whole: Callable[[Any], bool] = lambda plan: False) -> Iterator[Any]:
    """The plans that a frame of Spark Connect, or its plan, is made of, each once; none for any other thing.

    Below a plan for which ``is_whole`` is true, nothing is looked at.
    """
    plan = connect_plan(origin)
    waiting, seen = [origin if plan is None else plan], set[int]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
        elif not _NUMBERS.isdisjoint(getattr(one, "__dict__", ())) and id(one) not in seen:
            seen.add(id(one))
            yield one
            if not is_whole(one):
                waiting += vars(one).values()
