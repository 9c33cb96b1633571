"""A frame of one of our Python data sources that reads only what a query needs.

Spark tells a Python source neither which columns a query uses nor, soundly, how it filters: all uses of one frame
share a scan.  Here the frame's table is one in Python that the JVM asks for a scan whenever it plans a query, and that
answers with Spark's own scan of our source, made for these columns and with this filter.  Each plan has a scan of its
own, so a frame may be filtered in many ways, and joined with itself.

This takes a classic session; elsewhere, and on any surprise, all columns are read and Spark filters.
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
from trilake.spark.session.internals import (
    frame_of_table,
    java_array,
    say_once,
    source_relation,
)
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
    """The rows that a source reads at ``path``, of which each query reads what it needs.

    Parameters are those of :func:`~trilake.spark.session.sources.python_source.source_frame`; the source has an option
    ``filter``, and ``rows`` are the columns that it may name.
    """
    whole = source_frame(spark, source, path, options, schema)
    if is_connect(spark) or not HAS_DATA_SOURCES:
        return whole
    # Names of options know no case: a second one, spelled otherwise, would take the place of the reader's own.
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

    A filter that is SQL goes to the source, which chooses files by it; any other is a step behind the read.
    Raises ``FilterError``.
    """
    bound = parse_filter(filter, table.schema)  # a mistake shows here, and not in a task
    if bound is None or isinstance(filter, str):
        own = {**options, "filter": filter} if isinstance(filter, str) else options
        return pruned_source_frame(spark, source, table.uri, own, table.schema, schema)
    extra = [table.schema.field(name) for name in sorted(set(bound.columns) - set(output.names))]
    wanted = rows_schema(pa.schema([*output, *extra]), table.uri)
    df = source_frame(spark, source, table.uri, options, wanted)
    return map_in_arrow(df, FilterRows(bound), df.schema).select(*map(quote_name, output.names))


class PrunedTable:
    """A table of Spark's catalogue interface, in Python, that makes one scan a plan; method names are Spark's."""

    def __init__(self, spark: SparkSession, relation: Any, schema: T.StructType, rows: pa.Schema, load: Load) -> None:
        self.spark, self.schema_, self.rows, self.load = spark, schema, rows, load
        self._relation, self._table = relation, relation.table()

    def newScanBuilder(self, options: Any) -> object:
        """What a plan says it needs is told to this."""
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
        wanted = set(names)
        fields = [f for f in self.schema_.fields if f.name in wanted]
        if not fields and self.schema_.fields:
            # Rows are only counted: the column that is least work will do.
            fields = [min(self.schema_.fields, key=lambda f: not isinstance(f.dataType, T.NumericType))]
        return T.StructType(fields)

    def equals(self, other: object) -> bool:
        """Whether this is ``other``: the JVM asks only where they are not the same object."""
        return False

    def hashCode(self) -> int:
        """A number that is the same for the same object."""
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        """What plans show."""
        return str(self._table.name())

    def __getattr__(self, name: str) -> Any:
        # Name, columns and abilities are those of Spark's own table of the source.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._table, name)

    class Java:
        """What py4j implements for the JVM."""

        implements = ("org.apache.spark.sql.connector.catalog.SupportsRead",)


class _ScanBuilder:
    """What one plan needs of a table; method names are Spark's."""

    def __init__(self, table: PrunedTable) -> None:
        self._made_for = table
        self._names: list[str] = table.schema_.names
        self._filters: list[Any] = []

    def pushFilters(self, filters: Any) -> Any:
        """Takes the filters of the plan; those that Spark applies to the rows again, which is all."""
        self._filters = list(filters)
        return filters

    def pushedFilters(self) -> Any:
        """The filters that Spark need not apply: none."""
        return java_array(self._made_for.spark, "org.apache.spark.sql.sources.Filter", 0)

    def pruneColumns(self, required: Any) -> None:
        """Takes the columns that the plan uses."""
        self._names = [str(n) for n in required.fieldNames()]

    def build(self) -> Any:
        return self._made_for.scan(self._names, self._filters)

    def equals(self, other: object) -> bool:
        return False

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        """What logs of Spark show."""
        return f"scan of {self._made_for.toString()}"

    class Java:
        """What py4j implements for the JVM."""

        implements = (f"{_READ}.SupportsPushDownRequiredColumns", f"{_READ}.SupportsPushDownFilters")
