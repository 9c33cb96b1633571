"""Queries of a Connect session that name DataFrames.

The server resolves a query's SQL again for rows, schema and plan, when a temporary view may be gone.  So the query
carries its DataFrames, as PySpark does for DataFrames passed to ``spark.sql`` by keyword.  PySpark before 4.0 cannot do
that: there the views live as long as the query, and are replaced when a table has a newer version.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trilake.spark.live_frames.connect import follows
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import RELEASE
from trilake.sql.parser.literals import Args

#: Whether a query can carry the frames that it names.
CARRIES = RELEASE >= (4, 0)


def is_query(frame: DataFrame) -> bool:
    """Whether a result of ``spark.sql`` is a query, not the result of a command, which has run."""
    relation = getattr(_plan(frame), "_plan", None)
    return relation is not None and relation.WhichOneof("rel_type") == "sql"


def with_frames(frame: DataFrame, sql: str, args: Args, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The query ``frame`` with the DataFrames that it names."""
    from pyspark.sql.connect import dataframe, plan  # late: needs gRPC, which only Connect sessions do

    columns: Any = F.lit
    by_name = {str(k): columns(v) for k, v in args.items()} if isinstance(args, Mapping) else {}
    in_order = [] if args is None or isinstance(args, Mapping) else [columns(v) for v in args]
    views = [plan.SubqueryAlias(_plan(f), name) for name, f in frames.items()]
    session: Any = frame.sparkSession
    query: DataFrame = dataframe.DataFrame(plan.SQL(sql, in_order, by_name, views), session)
    return query


def keep_views_new(frame: DataFrame, frames: Mapping[str, DataFrame]) -> None:
    """Replace a query's outdated views whenever it is sent to the server."""
    plan = _plan(frame)
    views = {name: (f, b"") for name, f in frames.items() if follows(f)}
    query, kind = weakref.ref(plan), type(plan)  # the views are dropped with the query

    renewals = 0

    def message(session: Any) -> Any:
        nonlocal renewals
        for name, (view, sent) in views.items():
            newest = _message(view)
            if newest != sent:
                with bypass():
                    view.createOrReplaceTempView(name)
                views[name] = view, newest
                renewals += 1
        relation = copy.deepcopy(kind.plan(query(), session))
        relation.sql.query += " " * renewals  # since Spark 4.0, servers cache plans by query
        return relation

    plan.plan = message
    plan._trilake_views = [_plan(f) for f in frames.values()]  # read by live_frames


def _message(frame: DataFrame) -> bytes:
    return bytes(_plan(frame).plan(frame.sparkSession.client).SerializeToString(deterministic=True))


def when_gone(frame: DataFrame, then: Callable[[], object]) -> None:
    """Call ``then`` when a query, and all DataFrames derived from it, are garbage."""
    weakref.finalize(_plan(frame), then).atexit = False


def _plan(frame: Any) -> Any:
    return frame._plan
