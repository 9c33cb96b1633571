"""``DeltaTableBuilder`` and ``IdentityGenerator``: delta-spark's builder of new tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.common.display import PublicNames
from trilake.delta.commands.write.create import (
    CreateMode,
    CreateResult,
    TableDescription,
    check_same_table,
    create_table,
    stated_checks,
)
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import PrimitiveType, StructField, StructType
from trilake.delta.protocol.sql_types import parse_sql_type, without_limits
from trilake.delta.rules.defaults import CURRENT_DEFAULT
from trilake.delta.rules.identity import START, identity_metadata
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.spark.catalog.named_tables import (
    default_location,
    find_delta_table,
    find_table,
    new_name,
    refresh_name,
    same_location,
    table_at,
)
from trilake.spark.delta.settings import default_properties, session_log
from trilake.spark.delta.storing.computed import judge_checks, judge_defaults, judge_generated
from trilake.spark.session.analysis_errors import parse_error, raises_for_spark, unsupported_error
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import session_store

#: The class of tables that :meth:`DeltaTableBuilder.execute` returns.
Opened = TypeVar("Opened")


@dataclass(frozen=True)
class IdentityGenerator:
    """Values of an identity column: ``start``, ``start + step`` and so on.

    >>> import trilake
    >>> ds = (
    ...     trilake.DeltaTable.createOrReplace(spark)
    ...     .location("lake/identity")
    ...     .addColumn("id", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=100, step=10))
    ...     .addColumn("n", "INT")
    ...     .execute()
    ... )
    >>> _ = trilake.write([{"n": 1}], "lake/identity", mode="append")
    >>> ds.toDF().collect()
    [Row(id=100, n=1)]
    """

    start: int = 1
    step: int = 1


@raises_for_spark
class DeltaTableBuilder(PublicNames, Generic[Opened]):
    """Describes a table and creates it; returned by :meth:`DeltaTable.create` and similar methods.

    A table has a location, a name in Spark's catalog, or both.  :meth:`execute` creates it in one commit.

    >>> import trilake
    >>> ds = (
    ...     trilake.DeltaTable.createOrReplace(spark)
    ...     .location("lake/events")
    ...     .addColumn("at", "TIMESTAMP", nullable=False)
    ...     .addColumn("day", "DATE", generatedAlwaysAs="CAST(at AS DATE)")
    ...     .partitionedBy("day")
    ...     .property("delta.appendOnly", "true")
    ...     .execute()
    ... )
    >>> ds.toDF().columns, trilake.open("lake/events").metadata.partition_columns
    (['at', 'day'], ('day',))

    With a name in Spark's catalog, a schema, and clustering columns:

    >>> ds = (
    ...     trilake.DeltaTable.createOrReplace(spark)
    ...     .tableName("people")
    ...     .comment("who works here")
    ...     .addColumns(spark.range(1).selectExpr("id", "'' AS name").schema)
    ...     .clusterBy("id")
    ...     .execute()
    ... )
    >>> spark.catalog.tableExists("people")
    True
    """

    def __init__(
        self,
        spark: SparkSession,
        mode: CreateMode,
        options: Mapping[str, str] | None,
        open_table: Callable[[SparkSession, str, Mapping[str, str]], Opened],
    ) -> None:
        self._open_table = open_table
        self._spark, self._mode, self._options = spark, mode, dict(options or {})
        self._name: str | None = None
        self._location: str | None = None
        self._table = TableDescription(StructType(()))

    def tableName(self, identifier: str) -> Self:
        """Set the name in Spark's catalog: ``identifier`` is ``table``, ``database.table`` or ``delta.`/path```."""
        self._name = _string("Identifier", identifier)
        return self

    def location(self, location: str) -> Self:
        """Set the table's ``location``: a path or URI."""
        self._location = _string("Location", location)
        return self

    def comment(self, comment: str) -> Self:
        """Set the table's ``comment``."""
        self._table = replace(self._table, comment=_string("Table comment", comment))
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | T.DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
        *,
        default: str | None = None,
    ) -> Self:
        """Add a column.

        Parameters
        ----------
        colName: the name of the column.
        dataType: a Spark type, or its SQL.
        nullable: whether the column may hold nulls.
        generatedAlwaysAs: a SQL expression over other columns, for a generated column; or an ``IdentityGenerator`` for
            values that writes cannot set.
        generatedByDefaultAs: an ``IdentityGenerator`` for values that writes omit.
        comment: describes the column.
        default: a SQL expression for values that writes omit.

        Raises ``TypeError`` for arguments of other types, ``ValueError`` for both kinds of generated values,
        ``InvalidArgumentError`` for an unknown type.
        """
        name = _string("Column name", colName)
        if not isinstance(nullable, bool):
            raise _wrong("Column nullable must be bool", nullable)
        field = _column(name, dataType)
        metadata = {**field.metadata, **_rule(generatedAlwaysAs, generatedByDefaultAs)}
        if START in metadata and field.type != PrimitiveType("long"):
            wrong = InvalidArgumentError(
                f"an identity column must be BIGINT, got {field.type}",
                help="declare it as BIGINT",
                column=name,
                condition="DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
            )
            raise unsupported_error(wrong)
        if comment is not None:
            metadata["comment"] = _string("Column comment", comment)
        if default is not None:
            metadata[CURRENT_DEFAULT] = _string("Column default", default)
        return self._add(replace(field, nullable=nullable, metadata=metadata))

    def addColumns(self, cols: T.StructType | Iterable[T.StructField]) -> Self:
        """Add the columns ``cols``: a schema, or its fields.  Raises ``TypeError`` for other types."""
        if not isinstance(cols, list | tuple | T.StructType):
            raise _wrong("Column list must be list of StructField or StructType", cols)
        for f in cols:
            if not isinstance(f, T.StructField):
                raise _wrong("Column in existing schema must be StructField", f)
            self._add(_from_spark(f))
        return self

    def _add(self, field: StructField) -> Self:
        self._table = replace(self._table, schema=StructType((*self._table.schema.fields, field)))
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> Self:
        """Set the partition columns: ``cols`` are passed one by one or as one list."""
        self._table = replace(self._table, partition_by=_strings("Partitioning column", cols))
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> Self:
        """Set the clustering columns: ``cols`` are passed one by one or as one list; nested ones have dots."""
        self._table = replace(self._table, cluster_by=_strings("Clustering column", cols))
        return self

    def property(self, key: str, value: str) -> Self:
        """Set the table property ``key`` to ``value``."""
        properties = {**self._table.properties, _string("Key of property", key): _string("Value of property", value)}
        self._table = replace(self._table, properties=properties)
        return self

    def execute(self) -> Opened:
        """Create the table.

        ``create`` with a new name and the location of a table adds the name, if the table is as described.

        Raises ``TableExistsError``, ``TableNotFoundError`` (for ``replace``), ``InvalidArgumentError``,
        ``SchemaMismatchError`` or ``ExpressionError`` for an invalid description.
        """
        table = find_delta_table(self._spark, self._name) if self._name is not None else None
        existing = None if table is None else table.location
        path = self._chosen_location(existing)
        named = self._name if self._name is not None and table_at(self._name) is None else None
        managed = named is not None and self._location is None if table is None else table.managed
        self._table = replace(self._table, managed=managed)
        if named is None or existing is not None:
            self._run(path, named, existing)
        else:
            try:
                with new_name(
                    self._spark,
                    named,
                    self._table.schema,
                    path=self._location,
                    comment=self._table.comment,
                    options=self._options,
                    replaces=self._mode == "create_or_replace",
                ) as location:
                    path = location
                    self._run(path, named, existing)
            except TableExistsError:
                if self._mode in ("create", "replace") or find_table(self._spark, named) is None:
                    raise
                return self.execute()  # another process has created the table
        return self._open_table(self._spark, path, self._options)

    def _run(self, path: str, name: str | None, existing: str | None) -> None:
        log = session_log(self._spark, session_store(self._spark, path, self._options))
        named = name is not None and existing is None
        if named and self._mode == "create" and self._location is not None and log.exists():
            own, checks = stated_checks(self._table.properties)
            check_same_table(log, replace(self._table, properties=own, checks=checks))
            created = False
        else:
            created = self._make(log, name).created
        if name is not None and (created or named):
            refresh_name(self._spark, name, path, log, managed=self._table.managed)

    def _make(self, log: DeltaLog, name: str | None) -> CreateResult:
        try:
            own, checks = stated_checks(self._table.properties)
            properties = {**default_properties(self._spark), **own}
            judge_generated(self._spark, self._table.schema)
            judge_defaults(self._spark, self._table.schema)
            judge_checks(self._spark, self._table.schema, checks)
            table = replace(self._table, name=name, properties=properties, checks=checks)
            return create_table(log, table, mode=self._mode)
        except TableExistsError as e:
            if name is None:
                raise
            raise TableExistsError(f"table {name} already exists", help=e.help, **e.context) from e
        except TableNotFoundError as e:
            if name is None:
                raise
            raise TableNotFoundError(f"table {name} cannot be found", help=e.help, **e.context) from e

    def _chosen_location(self, existing: str | None) -> str:
        """The table's location: as given, or of the existing name, or the default of a new name."""
        if self._name is None and self._location is None:
            raise InvalidArgumentError(
                "a table needs a name or a location",
                help="call tableName or location",
                condition="DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION",
            )
        differs = existing is not None and self._location is not None and not same_location(existing, self._location)
        if differs and self._name is not None and table_at(self._name) is not None:
            raise InvalidArgumentError(
                f"the table's name refers to {existing}, but its location is {self._location}",
                help="leave one of the two out",
                condition="DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH",
            )
        if differs:
            raise TableExistsError(
                f"the table {self._name} exists at {existing}, not at {self._location}",
                help="leave the location out, or drop the table first",
                condition="DELTA_TABLE_LOCATION_MISMATCH",
            )
        if (
            existing is not None
            and self._mode == "create"
            and not DeltaLog(session_store(self._spark, existing, self._options), spark_engine()).exists()
        ):
            return existing
        if self._location is not None:
            return self._location
        assert self._name is not None
        return existing or default_location(self._spark, self._name)


def _column(name: str, kind: str | T.DataType) -> StructField:
    if isinstance(kind, str):
        try:
            parsed, metadata = parse_sql_type(kind)
        except InvalidArgumentError as e:
            raise parse_error(e) from e
        return StructField(name, parsed, metadata=metadata)
    if isinstance(kind, T.DataType):
        return _from_spark(T.StructField(name, kind))
    raise _wrong("Column data type must be str or DataType", kind)


def _from_spark(f: T.StructField) -> StructField:
    """Convert a field of Spark, with the identity and generation rules in its metadata."""
    field = from_spark(T.StructType([f]), keep_nullability=True).fields[0]
    rules = {k: v for k, v in (f.metadata or {}).items() if k.startswith(("delta.identity.", "delta.generation"))}
    return without_limits(StructType((replace(field, metadata={**field.metadata, **rules}),))).fields[0]


def described_schema(schema: T.StructType) -> StructType:
    """Convert Spark's columns to those of a new table, with comments, defaults and rules."""
    return StructType(tuple(_from_spark(f) for f in schema.fields))


def _rule(always: Any, by_default: Any) -> dict[str, Any]:
    if always is not None and by_default is not None:
        raise ValueError("generatedByDefaultAs and generatedAlwaysAs cannot both be set.")
    if isinstance(always, str):
        return {GENERATION_EXPRESSION: always}
    if always is not None and not isinstance(always, IdentityGenerator):
        raise _wrong("Generated always as expression must be str or IdentityGenerator", always)
    if by_default is not None and not isinstance(by_default, IdentityGenerator):
        raise _wrong("Generated by default expression must be IdentityGenerator", by_default)
    generator = always or by_default
    if generator is None:
        return {}
    if generator.step == 0:
        raise ValueError("Column identity generation requires step to be non-zero.")
    return identity_metadata(generator.start, generator.step, explicit=by_default is not None)


def _wrong(message: str, value: object) -> TypeError:
    return TypeError(f"{message}. Found {value} with type {type(value)}.")


def _string(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(f"{what} must be str", value)
    return value


def _strings(what: str, values: tuple[Any, ...]) -> tuple[str, ...]:
    if len(values) == 1 and isinstance(values[0], list | tuple):
        values = tuple(values[0])
    return tuple(_string(what, v) for v in values)
