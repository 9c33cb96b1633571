"""Columns from ``DeltaTable.toDF()`` in conditions and values of DELETE, UPDATE and MERGE.

Spark resolves ``dt.toDF()["x"]`` to an attribute of that DataFrame, by expression ID.  Commands read the table through
other DataFrames.  trilake adds extra columns to these: copies that have the expression IDs used in the condition or
value.

In Spark Connect, such a column carries the plan ID of its DataFrame.  The command's DataFrame gets that plan ID, and
the server resolves the column by name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession

from trilake.spark.scan.connect_columns import column_plans, frame_plans
from trilake.spark.session.compat import column_string, dataset_of, is_column
from trilake.spark.session.internals import jvm, plan_id, query_execution, with_plan_id

#: The prefix of the repeated columns.
_NAME = "__trilake_of_frame_"
#: The limit on remembered frames.
_FRAMES = 64
_BETWEEN = "\x00"
_COLUMNS = "_trilake_columns"
_NUMBER = re.compile(r"#(\d+)[^\x00]*")
#: The end of an expression that Spark has truncated.
_CUT = " more fields"


class FrameColumns:
    """The columns of DataFrames that ``toDF()`` returned, by expression ID."""

    def __init__(self) -> None:
        self._frames: deque[dict[int, str]] = deque(maxlen=_FRAMES)
        #: Plan IDs of Connect frames.
        self._plans: deque[int] = deque(maxlen=_FRAMES)
        self._spark: SparkSession

    def note(self, frame: DataFrame) -> None:
        """Remember the columns of a DataFrame."""
        plan = plan_id(frame)
        if plan is not None:
            self._plans.append(plan)
            self._spark = frame.sparkSession
            vars(frame)[_COLUMNS] = self
            frame.__class__ = _noting_aliases(type(frame))
            return
        numbers = _numbers(frame)
        if numbers:
            self._frames.append(numbers)

    def columns_in(self, expressions: Iterable[object]) -> dict[int, str]:
        """The remembered columns that expressions name, by ID; SQL strings name none.  On Connect, these are plan IDs,
        without column names."""
        if self._plans:
            plans = (column_plans(self._spark, cast(Column, e)) for e in expressions if is_column(e))
            return dict.fromkeys(set(self._plans) & set().union(*plans), "")
        columns = {number: name for numbers in self._frames for number, name in numbers.items()}
        if not columns:
            return {}
        strings = [sql for e in expressions if not isinstance(e, str) and (sql := column_string(e)) is not None]
        if any(_CUT in t for t in strings):
            return columns
        numbers = {int(n) for t in strings for n in re.findall(r"#(\d+)", t)}
        return {n: name for n, name in columns.items() if n in numbers}

    def added(self, frame: DataFrame, expressions: Iterable[object], *, joined: DataFrame | None = None) -> DataFrame:
        """Add the columns of remembered DataFrames that expressions name, except those of ``joined``, a DataFrame that
        is joined to this one.  Leaves out columns that Spark's plans lack, so that Spark raises its own error."""
        columns = self.columns_in(expressions)
        if self._plans:
            for number in columns.keys() - (frame_plans(joined) if joined is not None else set()):
                frame = with_plan_id(frame, number)
            return frame
        if joined is not None:
            columns = {n: name for n, name in columns.items() if n not in _numbers(joined)}
        if not columns:
            return frame
        try:
            return _repeated(frame, columns)
        except Py4JError:
            return frame

    def shared(self, expressions: Iterable[object], joined: DataFrame) -> str | None:
        """A column that is ambiguous because ``joined`` comes from the same remembered DataFrame; ``None`` if there is
        none."""
        columns = [e for e in expressions if not isinstance(e, str)]
        named = self.columns_in(columns).keys()
        if self._plans:
            return "a column of toDF()" if named & frame_plans(joined) else None
        strings = [sql for c in columns if (sql := column_string(c)) is not None]
        numbers = {int(n) for t in strings for n in re.findall(r"#(\d+)", t)}
        joined_columns = _numbers(joined) if named & numbers else {}
        same = named & numbers & joined_columns.keys()
        return joined_columns[min(same)] if same else None


#: The subclasses, by Spark's class.
_classes: dict[type, type] = {}


def _noting_aliases(frame: type) -> type:
    """A subclass of a Connect DataFrame that also notes its aliases: each has its own plan ID, and the same columns."""
    if frame in _classes.values():
        return frame
    original: Callable[[Any, str], Any] = frame.alias  # type: ignore[attr-defined]  # every class of frames has it

    @wraps(original)
    def alias(self: Any, alias: str) -> Any:
        aliased = original(self, alias)
        vars(self)[_COLUMNS].note(aliased)
        return aliased

    return _classes.setdefault(frame, type(frame.__name__, (frame,), {"alias": alias, "__module__": frame.__module__}))


def _numbers(frame: DataFrame) -> dict[int, str]:
    """A DataFrame's columns by expression ID; empty on Spark Connect."""
    try:
        output = str(query_execution(frame).analyzed().output().mkString(_BETWEEN))
    except Py4JError:  # for example on Spark Connect
        return {}
    out, at = {}, 0
    for name in frame.columns:
        match = _NUMBER.match(output, at + len(name)) if output.startswith(name, at) else None
        if match is None:
            return {}
        out[int(match[1])] = name
        at = match.end() + 1
    return out


def _repeated(frame: DataFrame, columns: dict[int, str]) -> DataFrame:
    spark = frame.sparkSession
    java = jvm(spark)
    catalyst = java.org.apache.spark.sql.catalyst
    plan = query_execution(frame).analyzed()
    output = [plan.output().apply(i) for i in range(plan.output().size())]
    by_name = dict(zip(frame.columns, output, strict=True))
    repeated = list(output)
    none = java.PythonUtils.toSeq([])
    for i, (number, name) in enumerate(columns.items()):
        if name in by_name:
            identity = catalyst.expressions.ExprId.apply(number)
            repeated.append(
                catalyst.expressions.Alias(
                    by_name[name], f"{_NAME}{i}", identity, none, java.scala.Option.empty(), none
                )
            )
    return dataset_of(spark, catalyst.plans.logical.Project(java.PythonUtils.toSeq(repeated), plan))
