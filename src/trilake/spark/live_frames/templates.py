"""Templates of frames in the JVM: plans with *slots* in place of tables, and the plans that fill them.

A slot is a leaf of Spark's: a relation of files that lists no files and raises where it is run.  So Spark analyses a
template as it does any plan, gives the two sides of a self-join columns of their own, and adds ``_metadata`` where it
is named; and to fill a template is to exchange leaves.  What is put in has no slots, so nothing is exchanged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from trilake.errors import UnsupportedSparkError
from trilake.spark.session.compat import dataset_of
from trilake.spark.session.internals import (
    items_of,
    java_class,
    java_of,
    java_session,
    jvm,
    query_execution,
    relation_option,
    sequence,
    start_callbacks,
)

#: The options of a slot's files: its number, and whether the hidden column is one of its own columns, and not Spark's.
_NUMBER, _OWN_HIDDEN = "trilakeSlot", "trilakeOwnHidden"
#: The hidden column about the file of a row.
_METADATA = "_metadata"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_SOURCES = "org.apache.spark.sql.execution.datasources"


class Slot(NamedTuple):
    """A slot of a template.

    Parameters
    ----------
    number: which table it stands for.
    leaf: the slot in the plan, with the hidden column behind the others, where it is one of its own or named.
    place: the leaf without its hidden column, as the plan has it where that is not named.
    is_named: whether the hidden column is named in the plan.
    """

    number: int
    leaf: Any
    place: Any
    is_named: bool


def template(read: DataFrame, number: int) -> DataFrame:
    """A slot in place of the rows of a read, with the same columns under the same numbers."""
    spark, plan = read.sparkSession, query_execution(read).analyzed()
    start_callbacks(spark)
    slot = _slot(spark, plan.schema(), plan.output(), {_NUMBER: str(number)})
    hidden = [a for a in items_of(plan.metadataOutput()) if a.name() == _METADATA]
    if hidden and [a.dataType() for a in items_of(slot.metadataOutput())] == [a.dataType() for a in hidden]:
        return dataset_of(spark, slot)
    whole = query_execution(read.select("*", _METADATA)).analyzed() if hidden else plan
    slot = _slot(spark, plan.schema(), whole.output(), {_NUMBER: str(number), _OWN_HIDDEN: "true"})
    return dataset_of(spark, _place(spark, slot, len(read.columns)))


def slots(frame: DataFrame, width: Callable[[int], int]) -> list[Slot]:
    """The slots of a template, subqueries included; ``width`` tells how many columns the table of a slot shows."""
    spark, plan = frame.sparkSession, query_execution(frame).analyzed()
    found: list[Slot] = []
    for leaf in _leaves(plan):
        option = relation_option(leaf, _NUMBER)
        if option is None:
            continue
        number = int(option)
        if relation_option(leaf, _OWN_HIDDEN) is None:  # Spark shows its own hidden column where that is named
            found.append(Slot(number, leaf, leaf, leaf.output().size() > width(number)))
        else:
            found.append(Slot(number, leaf, _place(spark, leaf, width(number)), False))
    own = [slot for slot in found if slot.place is not slot.leaf]
    if not own:
        return found
    nothing = java_class(spark, f"{_PLANS}.OneRowRelation")()
    left = _leaves(_exchanged(spark, plan, [(slot.place, nothing) for slot in own]))
    return [
        slot if slot.place is slot.leaf else slot._replace(is_named=any(slot.leaf.equals(other) for other in left))
        for slot in found
    ]


def filled(frame: DataFrame, leaves: list[Slot], read: Callable[[int], tuple[DataFrame, DataFrame]]) -> Any:
    """The JVM's frame of a template whose slots are filled.

    Parameters
    ----------
    frame: the template.
    leaves: its :func:`slots`.
    read: for the number of a slot, the read that it was made of, and the one that fills it, whose columns are found
        by name.
    """
    spark, fills = frame.sparkSession, []
    for slot in leaves:
        first, rows = read(slot.number)
        if slot.is_named:
            fills.append((slot.leaf, _under(spark, slot.leaf.output(), rows.select("*", _METADATA))))
            if slot.place is slot.leaf:
                continue
        shown = slot.place.output()
        plan, old = query_execution(rows).analyzed(), query_execution(first).analyzed()
        is_first = rows is first and bool(shown.equals(old.output()))
        fills.append((slot.place, plan if is_first else _under(spark, shown, rows)))
    return java_of(dataset_of(spark, _exchanged(spark, query_execution(frame).analyzed(), fills)))


def has_cached_rows(spark: SparkSession) -> bool:
    """Whether Spark's cache has rows of any frame."""
    return not java_session(spark).sharedState().cacheManager().isEmpty()


def is_same_plan(one: DataFrame, other: DataFrame) -> bool:
    """Whether two reads have the same plan, as after a commit that leaves the files as they were."""
    old, new = query_execution(one).analyzed(), query_execution(other).analyzed()
    return bool(old.sameResult(new)) and bool(old.schema().equals(new.schema()))


def read_outside_of_cache(frame: DataFrame, reads: list[DataFrame]) -> list[bool]:
    """For each read that a frame is made of, whether Spark reads it, and does not have all its rows in the cache."""
    if not has_cached_rows(frame.sparkSession) or frame.isStreaming:
        return [True] * len(reads)
    leaves = _leaves(query_execution(frame).withCachedData())
    if not any(leaf.nodeName().startswith("InMemoryRelation") for leaf in leaves):
        return [True] * len(reads)
    own = [_leaves(query_execution(read).analyzed()) for read in reads]
    return [any(a.nodeName() == b.nodeName() and a.sameResult(b) for a in leaves for b in of_read) for of_read in own]


def _leaves(plan: Any) -> list[Any]:
    return [leaf for part in (plan, *items_of(plan.subqueriesAll())) for leaf in items_of(part.collectLeaves())]


def _exchanged(spark: SparkSession, plan: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """A plan in which others take the place of some parts, from the root down."""
    exchange = java_class(spark, "java.util.HashMap")()
    for old, new in pairs:
        exchange.put(old, new)
    return plan.transformWithSubqueries(jvm(spark).PythonUtils.toScalaMap(exchange))  # a map is a partial function


def _under(spark: SparkSession, columns: Any, rows: DataFrame) -> Any:
    """The plan of some rows, whose columns have the names and numbers of others."""
    plan = query_execution(rows).analyzed()
    by_name = {str(a.name()): a for a in items_of(plan.output())}
    alias = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Alias")
    nothing, none = java_class(spark, "scala.Option").empty(), sequence(spark, [])
    named = [
        alias(by_name[name], name, a.exprId(), a.qualifier(), nothing, none)
        for a in items_of(columns)
        for name in [str(a.name())]
    ]
    return java_class(spark, f"{_PLANS}.Project")(sequence(spark, named), plan)


def _place(spark: SparkSession, leaf: Any, width: int) -> Any:
    """A slot without its hidden column, which only those see who name it."""
    project = java_class(spark, f"{_PLANS}.Project")
    plan = project(leaf.output().take(width), leaf)
    plan.setTagValue(project.hiddenOutputTag(), leaf.output().drop(width))
    return plan


def _slot(spark: SparkSession, schema: Any, output: Any, named: Mapping[str, str]) -> Any:
    nothing = java_class(spark, "org.apache.spark.sql.types.StructType")()
    none = java_class(spark, "scala.Option").empty()
    format = java_class(spark, f"{_SOURCES}.parquet.ParquetFileFormat")()
    options = jvm(spark).PythonUtils.toScalaMap(named)
    relation = java_class(spark, f"{_SOURCES}.HadoopFsRelation")(
        _NoFiles(spark), nothing, schema, none, format, options, java_session(spark)
    )
    leaf = java_class(spark, f"{_SOURCES}.LogicalRelation")
    parameters = java_class(spark, "java.lang.Class").forName(f"{_SOURCES}.LogicalRelation")
    more = [none] * (parameters.getConstructors()[0].getParameterCount() - 4)  # a stream, from 4.0 on
    return leaf(relation, output, none, False, *more)


class _NoFiles:
    """The ``FileIndex`` of a slot; the names of its methods are Spark's."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """Raises: a slot has no rows."""
        raise UnsupportedSparkError(
            "a plan was run that stands for any version of a table", help="use the frame itself, not its template"
        )

    def inputFiles(self) -> Any:
        """Raises: a slot has no files."""
        return self.listFiles(None, None)

    def rootPaths(self) -> Any:
        """No paths."""
        return sequence(self._spark, [])

    def partitionSchema(self) -> Any:
        """No columns."""
        return java_class(self._spark, "org.apache.spark.sql.types.StructType")()

    def refresh(self) -> None:
        """Nothing."""

    def sizeInBytes(self) -> int:
        """More than is sent to all executors."""
        return 1 << 40

    def equals(self, other: object) -> bool:
        """Whether this is ``other``: the JVM asks only where they are not the same object."""
        return False

    def hashCode(self) -> int:
        """A number that is the same for the same object."""
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        """What logs of Spark show."""
        return "slot"

    class Java:
        """What py4j implements for the JVM."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)
