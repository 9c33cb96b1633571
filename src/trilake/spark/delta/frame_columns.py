"""Columns from ``DeltaTable.toDF()`` in conditions and values of DELETE, UPDATE and MERGE.

Spark resolves ``dt.toDF()["x"]`` to an attribute of that DataFrame: by expression ID or, over Spark Connect, by the
DataFrame's plan ID.  Commands read the table through other DataFrames, so these columns are replaced by names.
"""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame

from trilake.common.text import quote_name, quote_parts
from trilake.spark.live_frames.connect import plans_in
from trilake.spark.session.compat import column_string, is_column
from trilake.spark.session.internals import plan_id, query_execution, say_once, with_names

#: The limit on remembered frames.
_FRAMES = 64
_BETWEEN = "\x00"
_COLUMNS = "_trilake_columns"
_NUMBER = re.compile(r"#(\d+)[^\x00]*")
#: The end of an expression that Spark has truncated.
_CUT = " more fields"
E = TypeVar("E")


class FrameColumns:
    """The columns of DataFrames that ``toDF()`` returned, by expression ID."""

    def __init__(self) -> None:
        self._frames: deque[dict[int, str]] = deque(maxlen=_FRAMES)
        #: Plan IDs of Connect frames.
        self._plans: deque[int] = deque(maxlen=_FRAMES)

    def note(self, frame: DataFrame) -> None:
        """Remember the columns of a DataFrame."""
        plan = plan_id(frame)
        if plan is not None:
            self._plans.append(plan)
            vars(frame)[_COLUMNS] = self
            frame.__class__ = _noting_aliases(type(frame))
            return
        numbers = _numbers(frame)
        if numbers:
            self._frames.append(numbers)

    def named(self, expression: E, alias: str | None, joined: DataFrame | None = None) -> E:
        """An expression with the remembered columns as names, qualified with ``alias``.  Columns that ``joined``, the
        source of a MERGE, also has are unchanged; so is the whole expression if Spark lacks a private name."""
        if not is_column(expression):
            return expression
        try:
            if self._plans:
                plans = set(self._plans) - _plans_of(joined)
                renamed, found = _by_name(cast(Any, expression)._expr, plans, alias)
                column_class: Any = type(expression)
                return cast(E, column_class(renamed)) if found else expression
            columns = {n: name for numbers in self._frames for n, name in numbers.items()}
            if joined is not None and columns:
                columns = {n: columns[n] for n in columns.keys() - _numbers(joined).keys()}
            if not _numbers_in([expression], columns):
                return expression
            qualified = {n: quote_parts([name] if alias is None else [alias, name]) for n, name in columns.items()}
            return cast(E, with_names(cast(Column, expression), qualified))
        except (Py4JError, AttributeError, ImportError) as e:
            say_once("columns of toDF() are not found in conditions and values", e)
            return expression

    def shared(self, expressions: Iterable[object], joined: DataFrame) -> str | None:
        """A column that is ambiguous because ``joined`` comes from the same remembered DataFrame; ``None`` if there is
        none."""
        columns = [e for e in expressions if is_column(e)]
        if self._plans:
            plans = set(self._plans) & _plans_of(joined)
            named = any(_by_name(cast(Any, c)._expr, plans, None)[1] for c in columns)
            return "a column of toDF()" if named else None
        remembered = {n for numbers in self._frames for n in numbers}
        joined_columns = _numbers(joined) if remembered and columns else {}
        same = _numbers_in(columns, remembered & joined_columns.keys())
        return joined_columns[min(same)] if same else None


#: The subclasses, by Spark's class.
_classes: dict[type[DataFrame], type[DataFrame]] = {}


def _noting_aliases(frame: type[DataFrame]) -> type[DataFrame]:
    """A subclass of a Connect DataFrame that also notes its aliases: each has its own plan ID, and the same columns."""
    if frame in _classes.values():
        return frame
    original: Callable[[Any, str], Any] = frame.alias

    @wraps(original)
    def alias(self: Any, alias: str) -> Any:
        aliased = original(self, alias)
        vars(self)[_COLUMNS].note(aliased)
        return aliased

    return _classes.setdefault(frame, type(frame.__name__, (frame,), {"alias": alias, "__module__": frame.__module__}))


def _plans_of(frame: DataFrame | None) -> set[int]:
    return set() if frame is None else {plan._plan_id for plan in plans_in(frame)}


def _by_name(node: Any, plans: set[int], alias: str | None) -> tuple[Any, bool]:
    """A Connect expression, or a value in one, with the columns of these plans as names, and whether it has any."""
    from pyspark.sql.connect.expressions import ColumnReference, Expression  # late: needs gRPC

    if isinstance(node, ColumnReference) and node._plan_id in plans:
        name = node._unparsed_identifier
        return ColumnReference(name if alias is None else f"{quote_name(alias)}.{name}"), True
    if isinstance(node, list | tuple):
        parts = [_by_name(part, plans, alias) for part in node]
        return type(node)(part for part, _ in parts), any(found for _, found in parts)
    if not isinstance(node, Expression):
        return node, False
    values = {key: _by_name(value, plans, alias) for key, value in vars(node).items()}
    node = copy.copy(node)
    vars(node).update({key: value for key, (value, _) in values.items()})
    return node, any(found for _, found in values.values())


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


def _numbers_in(columns: Iterable[Any], known: Iterable[int]) -> set[int]:
    """The known expression IDs that columns name; all of them if Spark has truncated a column's string."""
    known = set(known)
    strings = [string for c in columns if known and (string := column_string(c)) is not None]
    if any(_CUT in string for string in strings):
        return known
    return known & {int(n) for string in strings for n in re.findall(r"#(\d+)", string)}
