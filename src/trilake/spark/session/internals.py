"""The private names of PySpark and the JVM that the Spark layer uses, and what happens without them.

Tested with PySpark 4.3.0.  Differences between releases are in ``compat.py``, plans in ``live_frames/templates.py``.
If a release renames a private name, reads get slower or a feature is missing, but rows are never wrong.  A missing name
raises :class:`InternalsError`, a subclass of py4j's error, so ``except Py4JError`` covers both.

What each name is for, and what happens without it:

* the plan of a DataFrame (``_jdf.queryExecution()``): sizes, literals and keys are unknown; rows go through a job
* the SQL of a column (``_jc``, analysed plans): it does not skip files
* how Spark parses and keeps names (``_jsparkSession.sessionState()``): SQL's output is parsed instead
* settings of the session in one call (``_jsparkSession.conf()``): SQL's ``SET`` is read instead
* the batch of a stream (``activeStreamingQueries``, ``lastExecution``): its rows come through the Python source
* whether delta-spark's jar is there (``_jvm``, its class loader): the name ``delta`` is registered
* columns and filters of a query for Python sources (``DataSourceV2Relation``, py4j's callbacks): all columns are read
* what a DataFrame reads (``collectLeaves``, ``subqueriesAll``): a table that was read counts as read entirely
* files chosen when a query is planned (``HadoopFsRelation``, ``FileIndex``, py4j's callbacks): all files are scanned
* partition values that folders do not spell (``PartitionDirectory``, ``Filter``, ``executeCollect``): the query fails
* the active session (``_jvm``, ``setActiveSession``): sources are registered only with the first session
* the user's line in a column's errors (``_enable_debugging_cache``): columns are built slowly
* many columns at once (``_jdf.selectExpr``, py4j's ``JavaClass``): they are selected one by one
* non-nullable columns (``HadoopFsRelation``, ``KnownNotNull``): they are nullable
* numbers in a plan (``UnsafeArrayData``, ``Literal``, ``Invoke``): a join carries them
* a table's name before columns (``SubqueryAlias``, ``AliasIdentifier``, ``Project``): columns have no qualifier
* a newer version in a DataFrame (``LogicalRelation``, ``transformWithSubqueries``): DataFrames are pinned
* columns of ``toDF()`` (``AttributeReference``, ``ColumnReference``, ``_plan_id``): they are not found
* a hidden column of a DataFrame (``Project.hiddenOutputTag``, ``__metadata_col``): ``_metadata`` has no row IDs
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException, utils
from pyspark.sql import Column, DataFrame, SparkSession

from trilake.spark.session.compat import column_of, dataset_of, expression_of, expression_tree, is_connect

_log = logging.getLogger("trilake.spark")
_lock = threading.Lock()
_logged: set[str] = set()
#: Separates strings that are sent as one.
_BETWEEN = "\x01"
#: Spark's class of file relations.
_FILES = ".HadoopFsRelation"
#: Spark's hidden column with facts about a row's file.
METADATA = "_metadata"
#: Package of Spark's logical plans.
PLANS = "org.apache.spark.sql.catalyst.plans.logical"


class InternalsError(Py4JError):  # type: ignore[misc]  # py4j has no types
    """A private name of Spark is missing or works differently; users never see this error."""


#: What a call of Spark raises.
SPARK_ERRORS = (PySparkException, Py4JError)
#: What a private name raises if a release lacks it: a JVM method, a JVM class, an attribute of PySpark.
MISSING_NAME = (*SPARK_ERRORS, TypeError, AttributeError)


def say_once(what: str, error: object) -> None:
    """Log, once for each internal, that it differs from what trilake expects."""
    with _lock:
        if what in _logged:
            return
        _logged.add(what)
    _log.warning("this Spark release differs from the tested releases, so %s: %r", what, error)


#: The value of PySpark's setting before each :func:`lines_unrecorded` that runs.
_recorded: list[bool | None] = []


@contextmanager
def lines_unrecorded() -> Iterator[None]:
    """In the block, build columns without noting the line of the user's code, for which PySpark calls the JVM a dozen
    times per column.  The setting belongs to the process, so columns of other threads have no line then either."""
    module: Any = utils
    if not hasattr(module, "_enable_debugging_cache"):  # before 4.1
        yield
        return
    with _lock:
        _recorded.append(module._enable_debugging_cache if not _recorded else _recorded[0])
        module._enable_debugging_cache = False
    try:
        yield
    finally:
        with _lock:
            before = _recorded.pop()
            if not _recorded:
                module._enable_debugging_cache = before


class JavaObject:
    """A Python object that the JVM calls; a subclass names its interfaces in a class ``Java``, as py4j requires."""

    def equals(self, other: object) -> bool:
        """Return false: the JVM compares the object only with others."""
        return False

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        return type(self).__name__


def jvm(spark: SparkSession) -> Any:
    """The JVM behind a classic session.  Raises :class:`InternalsError` on Spark Connect."""
    java = None if is_connect(spark) else getattr(spark, "_jvm", None)
    if java is None:
        raise InternalsError("the session has no JVM")
    return java


def java_session(spark: SparkSession) -> Any:
    """The JVM's session.  Raises :class:`InternalsError` on Spark Connect."""
    session = None if is_connect(spark) else getattr(spark, "_jsparkSession", None)
    if session is None:
        raise InternalsError("the session has no JVM")
    return session


def java_column(column: Column) -> Any:
    """The JVM's column.  Raises :class:`InternalsError` on Spark Connect."""
    java = getattr(column, "_jc", None)
    if java is None:
        raise InternalsError("the column has no JVM column")
    return java


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make a classic session the active one of this thread in the block."""
    try:
        sessions = jvm(spark).org.apache.spark.sql.SparkSession
        before = sessions.getActiveSession()
        sessions.setActiveSession(java_session(spark))
    except Py4JError:  # a Connect session, or other names
        yield
        return
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def knows_class(spark: SparkSession, name: str) -> bool:
    """Whether the driver's JVM has a class; always false on Spark Connect."""
    try:
        jvm(spark).java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JError:  # InternalsError, or py4j's form of ClassNotFoundException
        return False
    return True


def connect_plan(df: DataFrame) -> Any:
    """The client's plan of a Connect DataFrame; ``None`` for a classic DataFrame."""
    return getattr(df, "__dict__", {}).get("_plan")  # getattr would look for a column in the JVM


def plan_id(df: DataFrame) -> int | None:
    """The ID by which columns refer to a Connect DataFrame; ``None`` for a classic DataFrame."""
    number = getattr(connect_plan(df), "_plan_id", None)
    return number if isinstance(number, int) else None


def query_execution(df: DataFrame) -> Any:
    """The query execution of a DataFrame, with its plans.  Raises :class:`InternalsError` on Spark Connect."""
    java = getattr(df, "_jdf", None)
    if java is None:
        raise InternalsError("the frame has no JVM frame")
    return java.queryExecution()


def java_of(df: DataFrame) -> Any:
    """The JVM DataFrame of a classic DataFrame."""
    return df._jdf


def file_relation(df: DataFrame) -> Any:
    """The ``HadoopFsRelation`` of a DataFrame that is a single file scan.  Raises :class:`InternalsError` for
    others."""
    plan = query_execution(df).analyzed()
    relation = _file_relation(plan)
    if relation is None:
        raise InternalsError(f"a read of files is a {plan.nodeName()}")
    return relation


def _file_relation(leaf: Any) -> Any:
    relation = leaf.relation() if leaf.nodeName().startswith("LogicalRelation") else None
    return relation if relation is not None and relation.getClass().getName().endswith(_FILES) else None


def running_query_id(spark: SparkSession) -> str | None:
    """The ID of the streaming query that runs in this thread, if any; ``None`` on Spark Connect."""
    query_id = None if is_connect(spark) else spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    return query_id or None


def relation_options(df: DataFrame, name: str) -> list[str]:
    """The values of an option in the file scans of a plan, including subqueries."""
    plan = query_execution(df).analyzed()
    plans = (plan, *items_of(plan.subqueriesAll()))
    values = (relation_option(leaf, name) for part in plans for leaf in items_of(part.collectLeaves()))
    return [str(v) for v in values if v is not None]


def relation_option(leaf: Any, name: str) -> Any:
    """The value of an option of a leaf's file scan, or ``None``."""
    relation = _file_relation(leaf)
    value = None if relation is None else relation.options().get(name)
    return value.get() if value is not None and value.isDefined() else None


def frame_with_files(
    spark: SparkSession, relation: Any, index: object, required: Collection[str] = (), partitions: Any = None
) -> DataFrame:
    """A DataFrame like ``relation`` over the files that ``index``, a ``FileIndex`` in Python, lists.  ``required``
    columns are non-nullable; ``partitions`` is the JVM schema of the partition values, if it differs."""
    start_callbacks(spark)
    return _of_files(spark, relation, index, required, partitions)


def frame_without_nulls(spark: SparkSession, df: DataFrame, required: Collection[str]) -> DataFrame:
    """A file scan in which the columns ``required`` are non-nullable."""
    relation = file_relation(df)
    return _of_files(spark, relation, relation.location(), required)


def column_without_nulls(spark: SparkSession, column: Column) -> Column:
    """The column, non-nullable.  Raises :class:`InternalsError` on Spark Connect."""
    known_not_null = jvm(spark).org.apache.spark.sql.catalyst.expressions.KnownNotNull
    return column_of(known_not_null(expression_of(java_column(column))))


def number_at(spark: SparkSession, numbers: npt.NDArray[np.int64], place: Column) -> Column:
    """The number at index ``place``, an int column, which must be non-null and in range (not checked).  The plan
    carries the numbers without printing them: no job is needed, and each row reads an array of longs."""
    java = jvm(spark)
    expressions, types = java.org.apache.spark.sql.catalyst.expressions, java.org.apache.spark.sql.types
    longs = java_array(spark, "long", len(numbers))
    little = java.java.nio.ByteOrder.LITTLE_ENDIAN
    java.java.nio.ByteBuffer.wrap(numbers.astype("<i8").tobytes()).order(little).asLongBuffer().get(longs)
    values = expressions.UnsafeArrayData.fromPrimitiveArray(longs)
    literal = expressions.Literal(values, types.ObjectType(values.getClass()))
    at, nothing = sequence(spark, [expression_of(java_column(place))]), sequence(spark, [])
    long = types.DataType.fromJson('"long"')
    return column_of(expressions.objects.Invoke(literal, "getLong", long, at, nothing, True, False, True))


def _of_files(
    spark: SparkSession, relation: Any, index: object, required: Collection[str], partitions: Any = None
) -> DataFrame:
    copied = relation.copy(
        index,
        _without_nulls(spark, relation.partitionSchema() if partitions is None else partitions, required),
        _without_nulls(spark, relation.dataSchema(), required),
        relation.bucketSpec(),
        relation.fileFormat(),
        relation.options(),
        relation.sparkSession(),
    )
    return java_frame(spark, java_session(spark).baseRelationToDataFrame(copied))


def _without_nulls(spark: SparkSession, schema: Any, required: Collection[str]) -> Any:
    parsed = json.loads(str(schema.json()))
    if not any(f["name"] in required for f in parsed["fields"]):
        return schema
    fields = [{**f, "nullable": f["nullable"] and f["name"] not in required} for f in parsed["fields"]]
    return java_session(spark).parseDataType(json.dumps({**parsed, "fields": fields}))


def source_relation(df: DataFrame) -> Any:
    """The ``DataSourceV2Relation`` of a DataFrame that is a single table.  Raises :class:`InternalsError` for
    others."""
    plan = query_execution(df).analyzed()
    if not plan.getClass().getName().endswith(".DataSourceV2Relation"):
        raise InternalsError(f"a read of a data source is a {plan.nodeName()}")
    return plan


def frame_of_table(spark: SparkSession, table: object) -> DataFrame:
    """The DataFrame of a table with the methods of Spark's ``Table``, which the JVM calls."""
    start_callbacks(spark)
    java = jvm(spark)
    none = java.scala.Option.empty()
    relations = java.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
    return dataset_of(spark, relations.create(table, none, none))


def java_array(spark: SparkSession, cls: str, size: int) -> Any:
    """A JVM array of nulls."""
    gateway: Any = spark.sparkContext._gateway
    element: Any = jvm(spark)
    for part in cls.split("."):
        element = getattr(element, part)
    return gateway.new_array(element, size)


def java_frame(spark: SparkSession, java: Any) -> DataFrame:
    """A JVM DataFrame as a PySpark DataFrame."""
    from pyspark.sql import DataFrame as Frame  # in classic sessions, the base class constructs the classic frame

    return Frame(java, spark)


def select_expressions(df: DataFrame, expressions: Sequence[str]) -> DataFrame:
    """``df.selectExpr(*expressions)`` in a few JVM calls.  Raises :class:`InternalsError` if it cannot be done."""
    java = getattr(df, "_jdf", None)
    if java is None or not expressions or any(_BETWEEN in t for t in expressions):
        raise InternalsError("the strings contain the separator")
    spark: Any = df.sparkSession
    array = java_class(spark, "java.util.regex.Pattern").compile(_BETWEEN).split(_BETWEEN.join(expressions))
    return java_frame(spark, java.selectExpr(array))


def hidden_column(spark: SparkSession, df: DataFrame) -> DataFrame:
    """The DataFrame with its last column hidden, as Spark hides one of the two columns of a natural join."""
    below = query_execution(df).analyzed()
    output = below.output()
    hidden = output.last()
    mark = java_class(spark, "org.apache.spark.sql.types.Metadata")
    marked = hidden.withMetadata(mark.fromJson(json.dumps({"__metadata_col": hidden.name()})))
    project = java_class(spark, f"{PLANS}.Project")
    plan = project(output.take(output.size() - 1), below)
    plan.setTagValue(project.hiddenOutputTag(), sequence(spark, [marked]))
    return dataset_of(spark, plan)


def frame_named(spark: SparkSession, df: DataFrame, names: Sequence[str]) -> DataFrame:
    """The DataFrame with a multi-part qualifier for its columns, as Spark's own tables have; a ``SubqueryAlias`` would
    hide ``_metadata``."""
    plan = query_execution(df).analyzed()
    *qualifier, name = names
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.AliasIdentifier")(name, sequence(spark, qualifier))
    alias = java_class(spark, f"{PLANS}.SubqueryAlias")(identifier, plan)
    project = java_class(spark, f"{PLANS}.Project")
    return dataset_of(spark, project(alias.output(), plan))


def renumbered(spark: SparkSession, plan: Any, pairs: Iterable[tuple[Any, Any]], *, keep_metadata: bool = True) -> Any:
    """A projection of a plan that gives attributes the names and expression IDs of others, if those are set, and their
    metadata unless an attribute shall keep its own."""
    alias = java_class(spark, "org.apache.spark.sql.catalyst.expressions.Alias")
    option, none = java_class(spark, "scala.Option"), sequence(spark, [])
    nothing = option.empty()
    columns = [
        new
        if old is None
        else alias(
            new,
            str(old.name()),
            old.exprId(),
            old.qualifier(),
            nothing if keep_metadata else option.apply(old.metadata()),
            none,
        )
        for new, old in pairs
    ]
    return java_class(spark, f"{PLANS}.Project")(sequence(spark, columns), plan)


def java_class(spark: SparkSession, name: str) -> Any:
    """A JVM class, without a call for each part of its name."""
    java = jvm(spark)
    return JavaClass(name, java._gateway_client)


def sequence(spark: SparkSession, items: list[Any]) -> Any:
    """A Scala sequence."""
    return jvm(spark).PythonUtils.toSeq(items)


def items_of(sequence: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [sequence.apply(i) for i in range(sequence.size())]


def with_names(column: Column, names: Mapping[int, str]) -> Column:
    """Replace the attributes with these expression IDs by names, which may be qualified."""
    java: Any = SparkContext._jvm
    expression = expression_tree(java_column(column))
    unresolved = java.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
    exchange = java.java.util.HashMap()
    for leaf in items_of(expression.collectLeaves()):
        name = names.get(int(leaf.exprId().id())) if leaf.nodeName() == "AttributeReference" else None
        if name is not None:
            exchange.put(leaf, unresolved.quotedString(name))
    return column_of(expression.transform(java.PythonUtils.toScalaMap(exchange)))  # a map is a partial function


def hadoop_path(spark: SparkSession, uri: str) -> Any:
    """A URI as Hadoop's ``Path``."""
    return java_class(spark, "org.apache.hadoop.fs.Path")(java_class(spark, "java.net.URI").create(uri))


def start_callbacks(spark: SparkSession) -> None:
    """Let the JVM call Python, as for ``foreachBatch``."""
    from pyspark.java_gateway import ensure_callback_server_started

    start: Any = ensure_callback_server_started
    start(spark.sparkContext._gateway)


# --- Scala case classes; releases add fields, which keep their value or get their default ----------------------------


def changed(value: Any, **changes: Any) -> Any:
    """A copy of a case class with some fields changed."""
    parts = [changes[name] if name in changes else getattr(value, name)() for name in _field_names(value)]
    return value.copy(*parts)


def _field_names(value: Any) -> list[str]:
    try:
        iterator = value.productElementNames()
    except Py4JError:  # Scala 2.12, with Spark 3.5: the first fields of the class
        return [str(f.getName()) for f in value.getClass().getDeclaredFields()][: value.productArity()]
    names = []
    while iterator.hasNext():
        names.append(str(iterator.next()))
    return names


def case_class_value(spark: SparkSession, name: str, *parts: Any) -> Any:
    """A case class with its first fields as given and defaults for the others, by its qualified name."""
    java = jvm(spark)
    companion = java
    for part in name.split("."):
        companion = getattr(companion, part)
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    kind = java.java.lang.Class.forName(name, True, loader)
    count = max(len(c.getParameterTypes()) for c in kind.getConstructors())
    defaults = [getattr(companion, f"apply$default${i}")() for i in range(len(parts) + 1, count + 1)]
    return companion.apply(*parts, *defaults)


def some(spark: SparkSession, value: object) -> Any:
    """An ``Option``; Python's ``None`` becomes Scala's."""
    return jvm(spark).scala.Option.apply(value)


def string_map(spark: SparkSession, values: Mapping[str, str]) -> Any:
    """An immutable Scala map of strings."""
    return jvm(spark).PythonUtils.toScalaMap(dict(values))
