"""Spark Connect DataFrames that always show a table's newest version.

A Connect plan is a Python object that builds a message for each use, and derived DataFrames contain it.  So each
message gets the newest version.  The message keeps the plan's ID, by which Spark resolves columns of the DataFrame.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from trilake.common.text import quote_name
from trilake.spark.live_frames.versions import Source, check_columns, in_types_of, is_in_cache
from trilake.spark.session.bypass import bypass, is_bypassed
from trilake.spark.session.compat import frame_of_plan
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import connect_plan

_RENEW, _IS_CACHED = "_trilake_renew", "_trilake_is_cached"
_Any = TypeVar("_Any")
#: The attributes in which a Connect plan keeps its ID.
_NUMBERS = frozenset(("_plan_id", "_root_plan_id"))
#: While a plan is being cached, the messages that read views, by plan ID.
_views: ContextVar[Mapping[int, Any]] = ContextVar("_views", default=MappingProxyType({}))


def unchanging(frame: DataFrame) -> DataFrame:
    """The same DataFrame with a copy of its plan, which never changes."""
    return frame_of_plan(copy.copy(connect_plan(frame)), frame.sparkSession)


def let_follow(frame: DataFrame, source: Source) -> None:
    """Make the plan of a DataFrame, and every plan derived from it, send the newest rows of a table."""
    first, lock, plan = source.first, threading.RLock(), connect_plan(frame)
    current, rows = first, first.frame

    def renew() -> None:
        nonlocal current, rows
        with lock:
            newest = source.look()
            if newest is current or is_in_cache(rows):
                return
            with bypass():
                check_columns(first.frame.schema, newest.frame.schema, newest.snapshot)
                same = in_types_of(first.frame.schema, newest.frame)
                rows = same.select(*map(quote_name, first.frame.columns))
            current = newest

    def message(session: Any) -> Any:
        if plan._plan_id in _views.get():
            return copy.deepcopy(_views.get()[plan._plan_id])
        if not is_bypassed():
            renew()
        relation = copy.deepcopy(connect_plan(rows).plan(session))
        relation.common.plan_id = plan._plan_id
        return relation

    plan.plan = message
    setattr(plan, _RENEW, renew)


def can_follow(spark: SparkSession) -> bool:
    """Whether this client's plans have the form that :func:`let_follow` needs."""
    plan: Any = connect_plan(spark.range(1))
    number = plan.plan(spark.client).common.plan_id
    return bool(number == plan._plan_id)


def cache(frame: DataFrame, persist: Callable[[], _Any]) -> _Any:
    """Cache the newest rows of a DataFrame on the server with ``persist``, and send the same plan while they are
    cached.  That plan reads views: the server recognizes cached rows by the relation objects in their plan, but keeps
    only the relations of the last five reads; a view keeps its own."""
    renew_plans(frame)
    plan = connect_plan(frame)
    if hasattr(plan, _IS_CACHED):  # it is cached already
        return persist()
    tables = [p for p in plans_in(plan, is_whole=_is_cached) if hasattr(p, _RENEW)]
    try:
        # Views of the tables keep the names of columns, such as l.id and r.id after a join of aliases.
        return _cache_as_views(frame, tables, persist)
    except AnalysisException:  # a view has no _metadata
        return _cache_as_views(frame, [plan], persist)


def _cache_as_views(frame: DataFrame, parts: list[Any], persist: Callable[[], _Any]) -> _Any:
    """Like :func:`cache`, with views in place of these parts of the DataFrame's plan."""
    spark, plan = frame.sparkSession, connect_plan(frame)
    build, names, views = plan.plan, list[str](), dict[int, Any]()
    for part in parts:
        name = f"trilake_cached_{spark_engine().runtime.new_id().replace('-', '')}"
        frame_of_plan(copy.copy(part), spark).createGlobalTempView(name)
        names.append(name)
        views[part._plan_id] = view = connect_plan(spark.table(f"global_temp.{name}")).plan(spark.client)
        view.common.plan_id = part._plan_id
    token = _views.set(views)
    try:
        message = views[plan._plan_id] if plan._plan_id in views else build(spark.client)
    finally:
        _views.reset(token)
    cached_plan = copy.copy(plan)
    plan.plan = cached_plan.plan = lambda session: copy.deepcopy(message)

    def follow_again() -> None:
        vars(plan).pop(_IS_CACHED, None)
        plan.plan = build
        for name in names:
            spark.catalog.dropGlobalTempView(name)

    def is_still_cached() -> bool:
        if is_in_cache(frame_of_plan(cached_plan, spark)):
            return True
        follow_again()
        return False

    try:
        result = persist()
    except BaseException:
        follow_again()
        raise
    plan.plan = lambda session: copy.deepcopy(message) if is_still_cached() else build(session)
    setattr(plan, _IS_CACHED, is_still_cached)
    return result


def renew_plans(origin: Any) -> None:
    """Update the plans in a Connect DataFrame (or plan), except cached ones."""
    for plan in plans_in(origin, is_whole=_is_cached):
        renew = getattr(plan, _RENEW, None)
        if renew is not None:
            renew()


def follows(origin: Any) -> bool:
    """Whether a Connect DataFrame (or plan) is derived from one that follows a table."""
    return any(hasattr(plan, _RENEW) for plan in plans_in(origin))


def _is_cached(plan: Any) -> bool:
    return hasattr(plan, _IS_CACHED) and getattr(plan, _IS_CACHED)()


def plans_in(origin: Any, is_whole: Callable[[Any], bool] = lambda plan: False) -> Iterator[Any]:
    """The plans in a Connect DataFrame (or plan), each once, except those inside plans that are ``is_whole``."""
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
