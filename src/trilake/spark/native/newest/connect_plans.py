"""Frames of Spark Connect that show a table's newest version whenever they are used.

The plan of such a frame is an object on this side, which makes a message for each use, and all that is made of the
frame holds that object.  So the message is where the newest version comes in: with the number of the plan, it is found
under the columns that were taken from the frame.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame

from trilake.spark.session.compat import frame_of_plan
from trilake.spark.session.internals import connect_plan

_RENEW = "_trilake_renew"
#: Where a plan of Spark Connect keeps its number.
_NUMBERS = frozenset(("_plan_id", "_root_plan_id"))


def unchanging(frame: DataFrame) -> DataFrame:
    """The same frame with a plan object of its own, which stays as it is."""
    return frame_of_plan(copy.copy(connect_plan(frame)), frame.sparkSession)


def let_follow(frame: DataFrame, newest: Callable[[], DataFrame], renew: Callable[[], None]) -> None:
    """Let the plan of a frame send the one of another frame.

    Parameters
    ----------
    frame: the frame, and with it all that is made of it.
    newest: gives the frame whose rows are shown, in the columns of ``frame``.
    renew: what :func:`renew_plans` calls.
    """
    plan = connect_plan(frame)

    def message(session: Any) -> Any:
        relation = copy.deepcopy(connect_plan(newest()).plan(session))
        relation.common.plan_id = plan._plan_id
        return relation

    plan.plan = message
    setattr(plan, _RENEW, renew)


def renew_plans(origin: Any) -> None:
    """Let what a frame of Spark Connect, or its plan, is made of show the newest versions; any other thing stays."""
    for plan in _plans(origin):
        renew = getattr(plan, _RENEW, None)
        if renew is not None:
            renew()


def has_renewed_plans(origin: Any) -> bool:
    """Whether something of what a frame of Spark Connect is made of shows the newest version of a table."""
    return any(hasattr(plan, _RENEW) for plan in _plans(origin))


def _plans(origin: Any) -> Iterator[Any]:
    """The plans that a frame of Spark Connect, or its plan, is made of, each once; none for any other thing."""
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
            waiting += vars(one).values()
