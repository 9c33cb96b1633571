"""Columns of a frame that ``DeltaTable.toDF`` gave, in conditions and values of DELETE, UPDATE and MERGE.

Spark resolves ``dt.toDF()["x"]`` to an attribute of that one frame, by a number.  Commands read the table by frames of
their own, so these get more columns: each repeats a column under the number that an expression asks for.

Spark Connect names such a column by the number of its frame's plan.  There the command's frame is found under the
numbers that expressions ask for, and the server looks the column up in it by name.
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
from trilake.spark.session.compat import column_text, dataset_of, is_column
from trilake.spark.session.internals import jvm, plan_id, query_execution, with_plan_id

#: How the repeated columns are called.
_NAME = "__trilake_of_frame_"
#: Frames whose columns are known; older ones are forgotten.
_FRAMES = 64
_BETWEEN = "\x00"
_COLUMNS = "_trilake_columns"
_NUMBER = re.compile(r"#(\d+)[^\x00]*")
#: What Spark writes where it leaves part of an expression out of its text.
_CUT = " more fields"


class FrameColumns:
    """The columns of frames that were given away, by the numbers that Spark knows them by."""

    def __init__(self) -> None:
        self._frames: deque[dict[int, str]] = deque(maxlen=_FRAMES)
        #: Frames of Connect, by the number of their plans: what else is remembered of them is nothing.
        self._plans: deque[int] = deque(maxlen=_FRAMES)
        self._spark: SparkSession

    def note(self, frame: DataFrame) -> None:
        """Remember the columns of a frame."""
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

    def asked(self, expressions: Iterable[object]) -> dict[int, str]:
        """The remembered columns that expressions name, by number; strings of SQL name none.

        On Connect the numbers are those of frames, and no column has a name of its own.
        """
        if self._plans:
            named = (column_plans(self._spark, cast(Column, e)) for e in expressions if is_column(e))
            return dict.fromkeys(set(self._plans) & set().union(*named), "")
        known = {number: name for numbers in self._frames for number, name in numbers.items()}
        if not known:
            return {}
        texts = [text for e in expressions if not isinstance(e, str) and (text := column_text(e)) is not None]
        if any(_CUT in t for t in texts):
            return known
        numbers = {int(n) for t in texts for n in re.findall(r"#(\d+)", t)}
        return {n: name for n, name in known.items() if n in numbers}

    def added(self, frame: DataFrame, expressions: Iterable[object], *, besides: DataFrame | None = None) -> DataFrame:
        """``frame`` with the columns that expressions take from remembered frames.

        Parameters
        ----------
        frame: the table's columns, by their names.
        expressions: conditions and values; strings of SQL, and ``None``, name no such columns.
        besides: a frame that is joined to this one, whose own columns stay what they are.

        What Spark's plans turn out not to have is left out: Spark then says which column it does not find.
        """
        wanted = self.asked(expressions)
        if self._plans:
            for number in wanted.keys() - (frame_plans(besides) if besides is not None else set()):
                frame = with_plan_id(frame, number)
            return frame
        if besides is not None:
            wanted = {n: name for n, name in wanted.items() if n not in _numbers(besides)}
        if not wanted:
            return frame
        try:
            return _repeated(frame, wanted)
        except Py4JError:
            return frame

    def shared(self, expressions: Iterable[object], besides: DataFrame) -> str | None:
        """A column that expressions take from a remembered frame, and that ``besides`` has under the same number, being
        made of that frame: it could be meant of either.  ``None`` where there is none.
        """
        columns = [e for e in expressions if not isinstance(e, str)]
        asked = self.asked(columns).keys()
        if self._plans:
            return "a column of toDF()" if asked & frame_plans(besides) else None
        texts = [text for c in columns if (text := column_text(c)) is not None]
        numbers = {int(n) for t in texts for n in re.findall(r"#(\d+)", t)}
        known = _numbers(besides) if asked & numbers else {}
        same = asked & numbers & known.keys()
        return known[min(same)] if same else None


#: The classes that were made, by Spark's own.
_classes: dict[type, type] = {}


def _noting_aliases(frame: type) -> type:
    """The class of frames of Connect whose aliases are remembered, too: made of Spark's own, if it is not such a one.

    An alias is a plan of its own, with a number of its own, and its columns are those of the frame.
    """
    if frame in _classes.values():
        return frame
    own: Callable[[Any, str], Any] = frame.alias  # type: ignore[attr-defined]  # every class of frames has it

    @wraps(own)
    def alias(self: Any, alias: str) -> Any:
        aliased = own(self, alias)
        vars(self)[_COLUMNS].note(aliased)
        return aliased

    return _classes.setdefault(frame, type(frame.__name__, (frame,), {"alias": alias, "__module__": frame.__module__}))


def _numbers(frame: DataFrame) -> dict[int, str]:
    """A frame's columns by number; none on Spark Connect."""
    try:
        text = str(query_execution(frame).analyzed().output().mkString(_BETWEEN))
    except Py4JError:  # Spark Connect among others
        return {}
    out, at = {}, 0
    for name in frame.columns:
        match = _NUMBER.match(text, at + len(name)) if text.startswith(name, at) else None
        if match is None:
            return {}
        out[int(match[1])] = name
        at = match.end() + 1
    return out


def _repeated(frame: DataFrame, wanted: dict[int, str]) -> DataFrame:
    spark = frame.sparkSession
    java = jvm(spark)
    catalyst = java.org.apache.spark.sql.catalyst
    plan = query_execution(frame).analyzed()
    output = [plan.output().apply(i) for i in range(plan.output().size())]
    by_name = dict(zip(frame.columns, output, strict=True))
    columns = list(output)
    none = java.PythonUtils.toSeq([])
    for i, (number, name) in enumerate(wanted.items()):
        if name in by_name:
            identity = catalyst.expressions.ExprId.apply(number)
            columns.append(
                catalyst.expressions.Alias(
                    by_name[name], f"{_NAME}{i}", identity, none, java.scala.Option.empty(), none
                )
            )
    return dataset_of(spark, catalyst.plans.logical.Project(java.PythonUtils.toSeq(columns), plan))
