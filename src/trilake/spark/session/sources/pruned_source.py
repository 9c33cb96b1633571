"""A frame of a Python data source of trilake that reads only what a query needs.

Spark does not say which columns of a Python source a query uses, and what it says about filters is unsound: all uses of
one frame share a scan.  So the frame's table is an object of Python that the JVM asks for a scan whenever it plans a
query.  It returns Spark's own scan of the source with these columns and this filter.  Each plan has its own scan, so a
frame can be filtered in many ways, and joined with itself.

This needs a classic session; elsewhere, and on any surprise, all columns are read and Spark filters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.expr import parse_filter
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import JavaObject, frame_of_table, java_array, say_once, source_relation
from trilake.spark.session.runner import map_in_arrow
from trilake.spark.session.sources.api import HAS_DATA_SOURCES, DataSource
from trilake.spark.session.sources.filters import filter_text
from trilake.spark.session.sources.python_source import source_frame
from trilake.spark.session.sources.rows_source import FilterRows, rows_schema
from trilake.table.table import FilterLike, Table

_log = logging.getLogger("trilake.spark")
_READ = "org.apache.spark.sql.connector.read"

#: Makes the source's frame for some of its columns and with a filter, a SQL.
Load = Callable[[T.StructType, str | None], DataFrame]


def pruned_source_frame(
    spark: SparkSession,
    source: type[DataSource],
    path: str,
    options: Mapping[str, Any],
    rows: pa.Schema,
    schema: T.StructType | None = None,
) -> DataFrame:
    """The rows that a source reads at ``path``; each query reads only the columns and rows that it needs.

    Parameters are those of :func:`~trilake.spark.session.sources.python_source.source_frame`; the source has an option
    ``filter``, and ``rows`` are the columns that it may name.
    """
    whole = source_frame(spark, source, path, options, schema)
    if is_connect(spark) or not HAS_DATA_SOURCES:
        return whole
    # Option names are case-insensitive: one in other letters would replace the reader's own.
    option_filter = next((v for k, v in options.items() if k.lower() == "filter"), None)
    others = {k: v for k, v in options.items() if k.lower() != "filter"}

    def load(columns: T.StructType, filter: str | None) -> DataFrame:
        both = " AND ".join(f"({text})" for text in (option_filter, filter) if text is not None)
        return source_frame(spark, source, path, {**others, **({"filter": both} if both else {})}, columns)

    try:
        relation = source_relation(whole)
        table = PrunedTable(spark, relation, whole.schema, rows, load)
        return frame_of_table(spark, table)
    except Exception as e:  # noqa: BLE001 - py4j's errors, and what a renamed class of Spark gives
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
    """The columns ``output`` of a table, as the source declares them in ``schema``, for which ``filter`` is true.

    A SQL filter goes to the source, which skips files by it; any other one is a step after the read.  Raises
    ``FilterError``.
    """
    bound = parse_filter(filter, table.schema)  # raises here instead of in a task
    if bound is None or isinstance(filter, str):
        options = {**options, "filter": filter} if isinstance(filter, str) else options
        return pruned_source_frame(spark, source, table.uri, options, table.schema, schema)
    extra = [table.schema.field(name) for name in sorted(set(bound.columns) - set(output.names))]
    read_columns = rows_schema(pa.schema([*output, *extra]), table.uri)
    df = source_frame(spark, source, table.uri, options, read_columns)
    return map_in_arrow(df, FilterRows(bound), df.schema).select(*map(quote_name, output.names))


class PrunedTable(JavaObject):
    """A table that makes one scan per plan, with the method names of Spark's interface."""

    def __init__(self, spark: SparkSession, relation: Any, schema: T.StructType, rows: pa.Schema, load: Load) -> None:
        self.spark, self.schema_, self.rows, self.load = spark, schema, rows, load
        self._relation, self._table = relation, relation.table()

    def newScanBuilder(self, options: Any) -> object:
        """The builder that a plan configures."""
        return _ScanBuilder(self)

    def whole_scan(self) -> Any:
        """Spark's own scan of all columns."""
        return self._table.newScanBuilder(self._relation.options()).build()

    def scan(self, columns: Sequence[str], filters: Sequence[Any]) -> Any:
        """Spark's own scan of some columns and at least the rows for which the filters are true."""
        try:
            schema = self._columns(columns)
            text = filter_text(filters, self.rows) if filters else None
            if schema == self.schema_ and text is None:
                return self.whole_scan()
            _log.info("%s: columns %s where %s", self._table.name(), ", ".join(schema.names), text or "true")
            relation = source_relation(self.load(schema, text))
            return relation.table().newScanBuilder(relation.options()).build()
        except Exception as e:  # noqa: BLE001 - the scan of all columns is right for every plan
            say_once("a query reads all columns of trilake's source", e)
            return self.whole_scan()

    def _columns(self, names: Sequence[str]) -> T.StructType:
        used = set(names)
        fields = [f for f in self.schema_.fields if f.name in used]
        if not fields and self.schema_.fields:
            # Rows are only counted: read the cheapest column.
            fields = [min(self.schema_.fields, key=lambda f: not isinstance(f.dataType, T.NumericType))]
        return T.StructType(fields)

    def toString(self) -> str:
        """The name of the source, which plans show."""
        return str(self._table.name())

    def __getattr__(self, name: str) -> Any:
        # Everything else is that of Spark's own table of the source.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._table, name)

    class Java:
        implements = ("org.apache.spark.sql.connector.catalog.SupportsRead",)


class _ScanBuilder(JavaObject):
    """Collects what a plan needs, with the method names of Spark's interface."""

    def __init__(self, table: PrunedTable) -> None:
        self._table = table
        self._names: list[str] = table.schema_.names
        self._filters: list[Any] = []

    def pushFilters(self, filters: Any) -> Any:
        """Take the plan's filters; returns those that Spark must apply again: all."""
        self._filters = list(filters)
        return filters

    def pushedFilters(self) -> Any:
        """The filters that Spark need not apply: none."""
        return java_array(self._table.spark, "org.apache.spark.sql.sources.Filter", 0)

    def pruneColumns(self, required: Any) -> None:
        """Take the columns that the plan uses."""
        self._names = [str(n) for n in required.fieldNames()]

    def build(self) -> Any:
        return self._table.scan(self._names, self._filters)

    class Java:
        implements = (f"{_READ}.SupportsPushDownRequiredColumns", f"{_READ}.SupportsPushDownFilters")
