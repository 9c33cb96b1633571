"""Plans of the JVM put together again: parts of a plan exchanged, and conditions of one plan put to other rows.

Columns of Spark's plans have numbers, by which they are found: what takes the place of others goes under theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trilake.spark.session.compat import dataset_of
from trilake.spark.session.internals import (
    items_of,
    java_class,
    query_execution,
    relation_option,
    sequence,
    start_callbacks,
)

#: The hidden column about the file of a row.
_METADATA = "_metadata"
#: Where Spark's logical plans are.
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"


def java_rows(df: DataFrame) -> Any:
    """The rows of a frame as the JVM's array of Spark's own rows."""
    return query_execution(df).executedPlan().executeCollect()


def frame_where(df: DataFrame, conditions: Sequence[Any]) -> DataFrame:
    """The rows of a frame for which conditions of another plan are true, whose columns are found by name."""
    spark, plan = df.sparkSession, query_execution(df).analyzed()
    named = {str(a.name()): a for c in conditions for a in items_of(c.references().toSeq())}
    own = items_of(plan.output())
    columns = [_numbered(spark, a, named[n]) if (n := str(a.name())) in named else a for a in own]
    plan = java_class(spark, f"{_PLANS}.Project")(sequence(spark, columns), plan)
    for condition in conditions:
        plan = java_class(spark, f"{_PLANS}.Filter")(condition, plan)
    return dataset_of(spark, plan)


def _numbered(spark: SparkSession, own: Any, other: Any, metadata: Any = None) -> Any:
    """A column under the name and the number of another."""
    option, none = java_class(spark, "scala.Option"), sequence(spark, [])
    alias = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Alias")
    explicit = option.empty() if metadata is None else option.apply(metadata)
    return alias(own, str(other.name()), other.exprId(), other.qualifier(), explicit, none)


@dataclass(frozen=True)
class Exchange:
    """A plan that others may hold, and the rows that take its place, in its columns, which are found by name.

    ``mark`` is an option that only scans of one read have: where the plan has it, copies are found too, such as Spark
    makes with columns of new numbers for a frame that is joined with itself.
    """

    plan: Any
    by: DataFrame
    mark: str


def frame_with_parts(df: DataFrame, exchanges: Sequence[Exchange]) -> tuple[DataFrame, list[list[Any] | None]]:
    """The frame, in whose plan and subqueries some plans are exchanged, and for each the plans that stand there now.

    What Spark takes from its cache stays: there is ``None`` in place of its plans.  Raises one of py4j's errors where
    Spark is not as expected.
    """
    spark = df.sparkSession
    start_callbacks(spark)
    plan = query_execution(df).analyzed()
    read = [True] * len(exchanges)
    with_cached = _with_cached_rows(spark, plan)
    if with_cached is not None:
        looked = [_Exchanged(spark, e) for e in exchanges]
        with_cached.transformUpWithSubqueries(_Exchanging(looked))
        read = [bool(part.found) for part in looked]
    parts = [_Exchanged(spark, e) for e in exchanges]
    # From the leaves up, so that Spark never descends into what was put in, which may contain the plan itself.
    new = plan.transformUpWithSubqueries(_Exchanging([p for p, is_read in zip(parts, read, strict=True) if is_read]))
    found = [p.found if is_read else None for p, is_read in zip(parts, read, strict=True)]
    return (dataset_of(spark, new) if any(found) else df), found


def _with_cached_rows(spark: SparkSession, plan: Any) -> Any:
    """The plan as it reads what Spark's cache has; ``None`` where that is none of its rows."""
    if plan.isStreaming():
        return None  # Spark has no such plan of a stream
    cached = query_execution(dataset_of(spark, plan)).withCachedData()
    leaves = [leaf for p in (cached, *items_of(cached.subqueriesAll())) for leaf in items_of(p.collectLeaves())]
    return cached if any(leaf.nodeName().startswith("InMemoryRelation") for leaf in leaves) else None


class _Exchanged:
    """One exchange, and the plans that it has put in."""

    def __init__(self, spark: SparkSession, exchange: Exchange) -> None:
        self.found: list[Any] = []
        self._spark, self._old, self._by, self._mark = spark, exchange.plan, exchange.by, exchange.mark

    def found_by(self) -> Iterator[object]:
        """What the plans are found by that may be the old one."""
        yield self._old.semanticHash()
        if self._old.nodeName() == "Project":
            yield _METADATA, self._old.projectList().hashCode()

    def plan_for(self, plan: Any) -> Any:
        """What takes the place of a plan; ``None`` for one that stays."""
        if not (self._old.equals(plan) or self._shows_metadata(plan) or self._is_copy(plan)):
            return None
        shown = _names_of(plan)
        hidden = _METADATA in shown and _METADATA not in self._by.columns
        new = query_execution(self._by.select("*", _METADATA) if hidden else self._by).analyzed()
        there = {str(a.name()): a for a in items_of(new.output())}
        columns = []
        for a in items_of(plan.output()):
            own = there[str(a.name())]
            metadata = own.metadata()
            # Spark writes metadata that is empty as none, and would have another plan than what is noted as found.
            explicit = None if str(metadata.json()) == "{}" else metadata
            columns.append(_numbered(self._spark, own, a, explicit))
        project = java_class(self._spark, f"{_PLANS}.Project")
        self.found.append(project(sequence(self._spark, columns), new))
        return self.found[-1]

    def _shows_metadata(self, plan: Any) -> bool:
        """Whether this is the old plan with the hidden column behind its own, as Spark makes it where that is named."""
        own = _before_metadata(plan)
        return own is not None and self._old.nodeName() == "Project" and bool(own.equals(self._old.projectList()))

    def _is_copy(self, plan: Any) -> bool:
        # Names do not count for Spark: columns that were only renamed are the same to it.
        return self._is_marked and bool(plan.sameResult(self._old)) and _names_of(plan) == self._names

    @cached_property
    def _names(self) -> list[str]:
        return _names_of(self._old)

    @cached_property
    def _is_marked(self) -> bool:
        leaves = items_of(self._old.collectLeaves())
        return any(relation_option(leaf, self._mark) is not None for leaf in leaves)


def _names_of(plan: Any) -> list[str]:
    return [str(a.name()) for a in items_of(plan.output())]


def _before_metadata(plan: Any) -> Any:
    """The columns of a plan before the hidden one, which Spark has put behind them; ``None`` for any other plan.

    Before release 4.1, Spark puts it there once more for each step above the plan that names it.
    """
    if plan.nodeName() != "Project":
        return None
    columns, hidden = plan.projectList(), 0
    while hidden < columns.size() and str(columns.apply(columns.size() - hidden - 1).name()) == _METADATA:
        hidden += 1
    return columns.dropRight(hidden) if hidden else None


class _Exchanging:
    """A ``PartialFunction`` of Scala's over plans, in Python; the names of its methods are Scala's."""

    def __init__(self, parts: Sequence[_Exchanged]) -> None:
        # A plan of a hundred tables has hundreds of steps: to ask each table of each step takes seconds.
        self._parts: dict[object, list[_Exchanged]] = {}
        for part in parts:
            for key in part.found_by():
                self._parts.setdefault(key, []).append(part)

    def isDefinedAt(self, plan: Any) -> bool:
        """Whether there is a value: there is one for every plan."""
        return True

    def apply(self, plan: Any) -> Any:
        """The plan, or what takes its place."""
        own = _before_metadata(plan)
        keys = (plan.semanticHash(), None if own is None else (_METADATA, own.hashCode()))
        parts = (part for key in keys for part in self._parts.get(key, ()))
        return next((new for p in parts if (new := p.plan_for(plan)) is not None), plan)

    def applyOrElse(self, plan: Any, default: Any) -> Any:
        """The same, as there is a value for every plan."""
        return self.apply(plan)

    class Java:
        """What py4j implements for the JVM."""

        implements = ("scala.PartialFunction",)
