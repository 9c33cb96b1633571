"""Templates of DataFrames in the JVM: plans with *slots* in place of tables, and functions that fill them.

A slot is a leaf of the plan: a file relation that lists no files and raises if it is executed.  Spark analyses a
template like any other plan: it gives both sides of a self-join new expression IDs, and adds ``_metadata`` if the query
names it.  Filling a template replaces its leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import orjson
from pyspark.sql import DataFrame, SparkSession

from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.errors import UnsupportedSparkError
from trilake.spark.session.compat import dataset_of
from trilake.spark.session.internals import (
    METADATA,
    PLANS,
    JavaObject,
    items_of,
    java_class,
    java_of,
    java_session,
    jvm,
    query_execution,
    relation_option,
    renumbered,
    sequence,
    start_callbacks,
)

#: Options of a slot: its number, and whether the hidden column is a regular column of the slot instead of Spark's.
_NUMBER, _OWN_HIDDEN = "trilakeSlot", "trilakeOwnHidden"
#: Option of a slot for columns with length limits: the number of projections above it, up to the one with the limits.
_LIMITS = "trilakeLimits"
_SOURCES = "org.apache.spark.sql.execution.datasources"


class Slot(NamedTuple):
    """A slot of a template for the table ``number``.  ``leaf`` is the slot in the plan, with the projection for length
    limits if there is one, ``visible`` it without its hidden column, and ``is_named`` indicates whether the plan names
    that column."""

    number: int
    leaf: Any
    visible: Any
    is_named: bool


def template(read: DataFrame, number: int) -> DataFrame:
    """A slot with the columns and expression IDs of a read."""
    spark, plan = read.sparkSession, query_execution(read).analyzed()
    start_callbacks(spark)
    columns = items_of(plan.output())
    limited = {i: _without_limit(spark, columns[i]) for i in _limited(plan)}
    plain = [limited.get(i, c) for i, c in enumerate(columns)]
    options = {_NUMBER: str(number)} | ({_LIMITS: "1"} if limited else {})
    slot = _slot(spark, plan.schema(), sequence(spark, plain), options)
    hidden = [a for a in items_of(plan.metadataOutput()) if a.name() == METADATA]
    if not hidden or [a.dataType() for a in items_of(slot.metadataOutput())] != [a.dataType() for a in hidden]:
        whole = query_execution(read.select("*", METADATA)).analyzed() if hidden else plan
        output = sequence(spark, [*plain, *items_of(whole.output().drop(len(plain)))])
        options |= {_OWN_HIDDEN: "true"} | ({_LIMITS: "2"} if limited else {})
        slot = _visible(spark, _slot(spark, plan.schema(), output, options), len(plain))
    pairs = [(p, c if i in limited else None) for i, (p, c) in enumerate(zip(plain, columns, strict=True))]
    return dataset_of(spark, renumbered(spark, slot, pairs, keep_metadata=False) if limited else slot)


def _limited(plan: Any) -> list[int]:
    """The positions of columns with a length limit.  Spark would pad them above a slot, as in its own tables, and with
    ``spark.sql.preserveCharVarcharTypeInfo`` even change their types."""
    schema = str(plan.schema().json())
    if TYPE_STRING not in schema:
        return []
    return [i for i, f in enumerate(orjson.loads(schema)["fields"]) if TYPE_STRING in f["metadata"]]


def _without_limit(spark: SparkSession, column: Any) -> Any:
    utils = java_class(spark, "org.apache.spark.sql.catalyst.util.CharVarcharUtils")
    return utils.cleanAttrMetadata(column).newInstance()


def num_columns(read: DataFrame) -> int:
    """The number of columns of a read, without fetching their types from the JVM."""
    return int(query_execution(read).analyzed().output().size())


def slots(frame: DataFrame, width: Callable[[int], int]) -> list[Slot]:
    """The slots of a template, including subqueries; ``width`` gives the number of columns of a slot's table."""
    spark, plan = frame.sparkSession, query_execution(frame).analyzed()
    out: list[Slot] = []
    paths: list[list[Any]] = []
    for leaf in _leaves(plan):
        option = relation_option(leaf, _NUMBER)
        if option is None:
            continue
        number = int(option)
        above = relation_option(leaf, _LIMITS)
        if above is not None:
            paths = paths or list(_paths(plan))
            top = next(path[-1 - int(above)] for path in paths if path[-1].equals(leaf))
            out.append(Slot(number, top, top, top.output().size() > width(number)))
            continue
        has_hidden = leaf.output().size() > width(number)
        if relation_option(leaf, _OWN_HIDDEN) is None:  # if a query names it, Spark shows its own hidden column
            out.append(Slot(number, leaf, leaf, has_hidden))
        elif has_hidden:
            out.append(Slot(number, leaf, _visible(spark, leaf, width(number)), False))
        else:  # a table without files
            out.append(Slot(number, leaf, leaf, False))
    with_hidden = [slot for slot in out if slot.visible is not slot.leaf]
    if not with_hidden:
        return out
    nothing = java_class(spark, f"{PLANS}.OneRowRelation")()
    remaining = _leaves(_exchanged(spark, plan, [(slot.visible, nothing) for slot in with_hidden]))
    return [
        slot
        if slot.visible is slot.leaf
        else slot._replace(is_named=any(slot.leaf.equals(other) for other in remaining))
        for slot in out
    ]


def filled(frame: DataFrame, leaves: list[Slot], read: Callable[[int], tuple[DataFrame, DataFrame]]) -> Any:
    """The JVM DataFrame of a template with its slots ``leaves`` filled.  ``read`` returns, for a slot number, the read
    from which the slot was made, and the read that fills it; columns match by name."""
    spark, fills = frame.sparkSession, []
    for slot in leaves:
        first, rows = read(slot.number)
        if slot.is_named:
            fills.append((slot.leaf, _under(spark, slot.leaf.output(), rows.select("*", METADATA))))
            if slot.visible is slot.leaf:
                continue
        plan, old = query_execution(rows).analyzed(), query_execution(first).analyzed()
        # A projection from IDs to the same IDs would get others whenever a plan above it is analysed.
        is_first = rows is first and bool(slot.visible.outputSet().equals(old.outputSet()))
        fills.append((slot.visible, plan if is_first else _under(spark, slot.visible.output(), rows)))
    return java_of(dataset_of(spark, _exchanged(spark, query_execution(frame).analyzed(), fills)))


def has_cached_rows(spark: SparkSession) -> bool:
    """Whether Spark's cache has rows of any DataFrame."""
    return not java_session(spark).sharedState().cacheManager().isEmpty()


def is_same_plan(one: DataFrame, other: DataFrame) -> bool:
    """Whether two reads have the same plan, for example after a commit that changes no files."""
    old, new = query_execution(one).analyzed(), query_execution(other).analyzed()
    return bool(old.sameResult(new)) and bool(old.schema().equals(new.schema()))


def read_outside_of_cache(frame: DataFrame, reads: list[DataFrame]) -> list[bool]:
    """For each read from which a DataFrame is built, whether Spark really reads it instead of using its cache."""
    if not has_cached_rows(frame.sparkSession) or frame.isStreaming:
        return [True] * len(reads)
    # The frame keeps the cached rows of its first use, so ask about a new frame with the same plan.
    again = dataset_of(frame.sparkSession, query_execution(frame).analyzed())
    leaves = _leaves(query_execution(again).withCachedData())
    if not any(leaf.nodeName().startswith("InMemoryRelation") for leaf in leaves):
        return [True] * len(reads)
    read_leaves = [_leaves(query_execution(read).analyzed()) for read in reads]
    return [
        any(a.nodeName() == b.nodeName() and a.sameResult(b) for a in leaves for b in of_read)
        for of_read in read_leaves
    ]


def _leaves(plan: Any) -> list[Any]:
    return [leaf for part in (plan, *items_of(plan.subqueriesAll())) for leaf in items_of(part.collectLeaves())]


def _paths(plan: Any) -> Iterator[list[Any]]:
    """The nodes from the root of a plan, or of a subquery, to each of its leaves."""
    waiting = [[part] for part in (plan, *items_of(plan.subqueriesAll()))]
    while waiting:
        path = waiting.pop()
        below = items_of(path[-1].children())
        waiting += [[*path, child] for child in below]
        if not below:
            yield path


def _exchanged(spark: SparkSession, plan: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """Replace some nodes of a plan, from the root down."""
    exchange = java_class(spark, "java.util.HashMap")()
    for old, new in pairs:
        exchange.put(old, new)
    return plan.transformWithSubqueries(jvm(spark).PythonUtils.toScalaMap(exchange))  # a map is a partial function


def _under(spark: SparkSession, columns: Any, rows: DataFrame) -> Any:
    """A projection that gives rows the names and expression IDs of ``columns``."""
    plan = query_execution(rows).analyzed()
    by_name = {str(a.name()): a for a in items_of(plan.output())}
    return renumbered(spark, plan, [(by_name[str(a.name())], a) for a in items_of(columns)])


def _visible(spark: SparkSession, leaf: Any, width: int) -> Any:
    """A slot that shows its hidden column only if a query names it."""
    project = java_class(spark, f"{PLANS}.Project")
    plan = project(leaf.output().take(width), leaf)
    plan.setTagValue(project.hiddenOutputTag(), leaf.output().drop(width))
    return plan


def _slot(spark: SparkSession, schema: Any, output: Any, options: Mapping[str, str]) -> Any:
    nothing = java_class(spark, "org.apache.spark.sql.types.StructType")()
    none = java_class(spark, "scala.Option").empty()
    format = java_class(spark, f"{_SOURCES}.parquet.ParquetFileFormat")()
    scala_options = jvm(spark).PythonUtils.toScalaMap(options)
    relation = java_class(spark, f"{_SOURCES}.HadoopFsRelation")(
        _NoFiles(spark), nothing, schema, none, format, scala_options, java_session(spark)
    )
    leaf = java_class(spark, f"{_SOURCES}.LogicalRelation")
    parameters = java_class(spark, "java.lang.Class").forName(f"{_SOURCES}.LogicalRelation")
    more = [none] * (parameters.getConstructors()[0].getParameterCount() - 4)  # a stream, from 4.0 on
    return leaf(relation, output, none, False, *more)


class _NoFiles(JavaObject):
    """The ``FileIndex`` of a slot, with the methods of Spark's interface."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        raise UnsupportedSparkError(
            "this plan is only a template and cannot be executed", help="use the DataFrame itself"
        )

    def inputFiles(self) -> Any:
        return self.listFiles(None, None)

    def rootPaths(self) -> Any:
        return sequence(self._spark, [])

    def partitionSchema(self) -> Any:
        return java_class(self._spark, "org.apache.spark.sql.types.StructType")()

    def refresh(self) -> None:
        """Do nothing."""

    def sizeInBytes(self) -> int:
        """A size that is too large for a broadcast."""
        return 1 << 40

    class Java:
        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)
