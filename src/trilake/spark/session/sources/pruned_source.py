"""A DataFrame over a Python data source of trilake that reads only the columns and rows that a query needs.

Spark does not tell a Python source which columns a query uses, and its filters cannot be trusted, since all uses of one
DataFrame share a scan.  So the table behind the DataFrame is a Python object, which the JVM asks for a scan whenever it
plans a query.  It returns Spark's own scan of the source with these columns and this filter.  Each plan has its own
scan, so a DataFrame can be filtered in many ways, and joined with itself.

This needs a classic session.  In others, and if an internal differs, all columns are read and Spark filters.
"""

from __future__ import annotations

import datetime as dt
import decimal
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.common.text import quote_name, split_parts
from trilake.errors import FilterError
from trilake.expr import parse_filter
from trilake.expr.terms import bind
from trilake.expr.terms.literals import Literal
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import (
    MISSING_NAME,
    JavaObject,
    frame_of_table,
    java_array,
    say_once,
    source_relation,
)
from trilake.spark.session.runner import map_in_arrow
from trilake.spark.session.sources.api import HAS_DATA_SOURCES, DataSource
from trilake.spark.session.sources.python_source import source_frame
from trilake.spark.session.sources.rows_source import rows_schema
from trilake.table.table import FilterLike, Table

_log = logging.getLogger("trilake.spark")
_READ = "org.apache.spark.sql.connector.read"

#: Makes the source's frame for some of its columns, with a SQL filter.
Load = Callable[[T.StructType, str | None], DataFrame]


def pruned_source_frame(
    spark: SparkSession,
    source: type[DataSource],
    path: str,
    options: Mapping[str, Any],
    rows: pa.Schema,
    schema: T.StructType | None = None,
) -> DataFrame:
    """The rows that a source reads at ``path``; each query reads only the columns and rows that it needs.  Parameters
    are those of :func:`~trilake.spark.session.sources.python_source.source_frame`; the source has an option ``filter``,
    which may name the columns ``rows``."""
    whole = source_frame(spark, source, path, options, schema)
    if is_connect(spark) or not HAS_DATA_SOURCES:
        return whole
    # Option names are case-insensitive: the same name in other letters would replace the reader's own option.
    option_filter = next((v for k, v in options.items() if k.lower() == "filter"), None)
    others = {k: v for k, v in options.items() if k.lower() != "filter"}

    def load(columns: T.StructType, filter: str | None) -> DataFrame:
        both = " AND ".join(f"({sql})" for sql in (option_filter, filter) if sql is not None)
        return source_frame(spark, source, path, {**others, **({"filter": both} if both else {})}, columns)

    try:
        relation = source_relation(whole)
        table = PrunedTable(spark, relation, whole.schema, rows, load)
        return frame_of_table(spark, table)
    except MISSING_NAME as e:
        say_once("queries read all columns of trilake's sources", e)
    return whole


def filtered_frame(
    spark: SparkSession,
    source: type[DataSource],
    table: Table,
    filter: FilterLike | None,
    options: Mapping[str, Any],
    output: pa.Schema,
    schema: T.StructType,
) -> DataFrame:
    """The columns ``output`` of a table, as the source declares them in ``schema``, for which ``filter`` is true.  A
    SQL filter goes to the source, which skips files; any other filter is a step after the read."""
    bound = parse_filter(filter, table.schema)  # raises here instead of in a task
    if bound is None or isinstance(filter, str):
        options = {**options, "filter": filter} if isinstance(filter, str) else options
        return pruned_source_frame(spark, source, table.uri, options, table.schema, schema)
    extra = [table.schema.field(name) for name in sorted(set(bound.columns) - set(output.names))]
    read_columns = rows_schema(pa.schema([*output, *extra]), table.uri)
    df = source_frame(spark, source, table.uri, options, read_columns)
    filtered = map_in_arrow(df, lambda batches: map(bound.apply, batches), df.schema)
    return filtered.select(*map(quote_name, output.names))


class PrunedTable(JavaObject):
    """A table that makes one scan per plan, with the methods of Spark's interface."""

    def __init__(self, spark: SparkSession, relation: Any, schema: T.StructType, rows: pa.Schema, load: Load) -> None:
        self.spark, self.schema_, self.rows, self.load = spark, schema, rows, load
        self._relation, self._table = relation, relation.table()

    def newScanBuilder(self, options: Any) -> object:
        return _ScanBuilder(self)

    def whole_scan(self) -> Any:
        return self._table.newScanBuilder(self._relation.options()).build()

    def scan(self, columns: Sequence[str], filters: Sequence[Any]) -> Any:
        """Spark's own scan of some columns and at least the rows for which the filters are true."""
        try:
            schema = self._columns(columns)
            sql = filter_sql(filters, self.rows)
            if schema == self.schema_ and sql is None:
                return self.whole_scan()
            _log.info("%s: columns %s where %s", self._table.name(), ", ".join(schema.names), sql or "true")
            relation = source_relation(self.load(schema, sql))
            return relation.table().newScanBuilder(relation.options()).build()
        except MISSING_NAME as e:  # the scan of all columns is right for every plan
            say_once("a query reads all columns of trilake's source", e)
            return self.whole_scan()

    def _columns(self, names: Sequence[str]) -> T.StructType:
        used = set(names)
        fields = [f for f in self.schema_.fields if f.name in used]
        if not fields and self.schema_.fields:
            # The query only counts rows: read the cheapest column.
            fields = [min(self.schema_.fields, key=lambda f: not isinstance(f.dataType, T.NumericType))]
        return T.StructType(fields)

    def toString(self) -> str:
        return str(self._table.name())

    def __getattr__(self, name: str) -> Any:
        # For all other methods, use Spark's own table of the source.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._table, name)

    class Java:
        implements = ("org.apache.spark.sql.connector.catalog.SupportsRead",)


class _ScanBuilder(JavaObject):
    """Collects what a plan needs, with the methods of Spark's interface."""

    def __init__(self, table: PrunedTable) -> None:
        self._table = table
        self._names: list[str] = table.schema_.names
        self._filters: list[Any] = []

    def pushFilters(self, filters: Any) -> Any:
        """Take the plan's filters; returns those that Spark must apply again, which are all."""
        self._filters = list(filters)
        return filters

    def pushedFilters(self) -> Any:
        return java_array(self._table.spark, "org.apache.spark.sql.sources.Filter", 0)

    def pruneColumns(self, required: Any) -> None:
        self._names = [str(n) for n in required.fieldNames()]

    def build(self) -> Any:
        return self._table.scan(self._names, self._filters)

    class Java:
        implements = (f"{_READ}.SupportsPushDownRequiredColumns", f"{_READ}.SupportsPushDownFilters")


# --- Spark's filters for data sources, as SQL for trilake's readers; they are JVM objects ----------------------------

#: Comparisons, by the name of Spark's class.
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def filter_sql(filters: Sequence[Any], schema: pa.Schema) -> str | None:
    """The conjunction of the filters that can be translated; ``None`` if there are none.  Spark applies all filters
    again, so omitting one costs time, never rows."""
    conditions = (_sql(f, schema) for f in filters)
    return " AND ".join(sql for sql in conditions if sql is not None) or None


def _sql(f: Any, schema: pa.Schema) -> str | None:
    kind = str(f.getClass().getSimpleName())
    if kind in ("And", "Or"):
        left, right = _sql(f.left(), schema), _sql(f.right(), schema)
        return None if left is None or right is None else f"({left} {kind.upper()} {right})"
    if kind == "Not":
        inner = _sql(f.child(), schema)
        return None if inner is None else f"NOT ({inner})"
    parts = (split_parts(str(f.attribute())) if hasattr(f, "attribute") else None) or []
    if len(parts) != 1 or parts[0] not in schema.names:
        return None  # it is not about one whole column
    try:  # each call of ``bind`` raises for a value that cannot be compared with the column
        column, _ = bind.resolve(tuple(parts), schema)
        if kind in ("IsNull", "IsNotNull"):
            return f"{column.sql} IS {'NOT ' if kind == 'IsNotNull' else ''}NULL"
        if kind in _COMPARISONS:
            op, literal = _COMPARISONS[kind], Literal.of(_value(f.value()))
            bind.compare(column, "=" if op == "<=>" else op, literal)
            return f"{column.sql} {op} {literal.sql}"
        if kind == "In":
            literals = [Literal.of(_value(v)) for v in f.values()]
            bind.is_in(column, literals)
            return f"{column.sql} IN ({', '.join(v.sql for v in literals)})" if literals else "FALSE"
        if kind == "StringStartsWith":
            literal = Literal.of(str(f.value()))
            bind.starts_with(column, literal)
            return f"startswith({column.sql}, {literal.sql})"
    except (_UnknownValueError, FilterError):
        pass
    return None


class _UnknownValueError(Exception):
    """A JVM value without a counterpart in Python."""


def _value(value: Any) -> object:
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray | decimal.Decimal):
        return bytes(value) if isinstance(value, bytearray) else value
    kind = str(value.getClass().getName())
    with suppress(ValueError, OverflowError):  # a year that Python does not have
        if kind in ("java.sql.Date", "java.time.LocalDate"):
            return dt.date.fromisoformat(str(value.toString()))
        if kind == "java.sql.Timestamp":
            seconds, nanos = int(value.getTime()) // 1000, int(value.getNanos())
            return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds, microseconds=nanos // 1000)
        if kind == "java.time.LocalDateTime":
            return dt.datetime.fromisoformat(str(value.toString()))
    raise _UnknownValueError(kind)
