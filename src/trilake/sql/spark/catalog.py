"""``spark.catalog`` for trilake tables: create, describe and cache them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import catalog
from pyspark.sql.catalog import Column, Table

from trilake.common.text import quote_parts
from trilake.delta.protocol.schema_edit import format_path
from trilake.errors import InvalidArgumentError
from trilake.spark.patches.recorder import Action
from trilake.sql.parser.cursor import name_parts
from trilake.sql.spark.session.frames import cache, is_cached
from trilake.sql.spark.session.problems import errors_of_spark
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target, exists, path_target, target_of
from trilake.table.registry import format_of_provider

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def columns(session: SqlSession, target: Target) -> list[Column]:
    """The table's current columns."""
    from trilake.sql.spark.show import describe, shown_type

    about = describe(session, target)
    clustered = {format_path(c) for c in about.clustering}
    out = []
    for field in about.schema.fields:
        comment = field.metadata.get("comment")
        out.append(
            Column(
                field.name,
                None if comment is None else str(comment),
                shown_type(field),
                field.nullable,
                field.name in about.partition_columns,
                isBucket=False,
                **({"isCluster": field.name in clustered} if "isCluster" in Column._fields else {}),  # not before 4.0
            )
        )
    return out


def table(session: SqlSession, target: Target, spark_method: Callable[[], Table]) -> Table:
    """Spark's description of a table, with the table's own comment and the right table type.  Spark shows a table of
    any Python data source as managed."""
    from trilake.sql.spark.show import describe

    comment = describe(session, target).comment  # raises if there is no table
    if target.entry is None:
        return Table(target.path, "spark_catalog", [target.format], comment, "EXTERNAL", False)
    entry = spark_method()._replace(tableType="MANAGED" if target.entry.managed else "EXTERNAL")
    return entry._replace(description=comment) if target.has_log else entry


#: ``method(session, original, *args, **kwargs)``: ``original`` is Spark's method.
Method: TypeAlias = "Callable[..., Action | None]"


def _parts(name: Any, database: Any = None) -> tuple[str, ...] | None:
    """The parts of a table's name; ``None`` for an invalid one, for which Spark raises."""
    parts = name_parts(name)
    if parts is None or not isinstance(database, str | None):
        return None
    return parts if database is None else (database, *parts)


def _target(session: SqlSession, name: Any, database: Any = None) -> Target | None:
    parts = _parts(name, database)
    return None if parts is None else target_of(session, parts)


def _create_table(
    session: SqlSession,
    original: Any,
    tableName: Any,
    path: Any = None,
    source: Any = None,
    schema: Any = None,
    description: Any = None,
    **options: Any,
) -> Action | None:
    parts = _parts(tableName)
    if parts is None:
        return None
    by_path = path_target(session, parts)
    if source is None and by_path is not None:
        format: str | None = by_path.format
    else:
        format = format_of_provider(str(source or session.setting("spark.sql.sources.default", "parquet")))
    if format is None:
        return None
    strings = {key: (str(value).lower() if isinstance(value, bool) else str(value)) for key, value in options.items()}
    if path is not None:
        strings["path"] = str(path)
    spark_method = partial(original, tableName, path, source, schema, description, **options)

    def act() -> DataFrame:
        from trilake.sql.spark.tables.create_tables import create_by_catalog

        return create_by_catalog(session, parts, format, schema, description or None, strings, spark_method)

    return errors_of_spark()(act)


def _list_columns(session: SqlSession, original: Any, tableName: Any, dbName: Any = None) -> Action | None:
    target = _target(session, tableName, dbName)
    if target is None:
        return None

    return errors_of_spark()(partial(columns, session, target))


def _of_table(act: Callable[..., Any]) -> Method:
    """A method that calls ``act(session, target, *args, **kwargs)`` for a trilake table."""

    def method(session: SqlSession, original: Any, tableName: Any, *args: Any, **kwargs: Any) -> Action | None:
        target = _target(session, tableName)
        return None if target is None else errors_of_spark()(partial(act, session, target, *args, **kwargs))

    return method


def _table_exists(session: SqlSession, original: Any, tableName: Any, dbName: Any = None) -> Action | None:
    parts = _parts(tableName, dbName)
    target = None if parts is None else path_target(session, parts)
    return None if target is None else errors_of_spark()(partial(exists, target))


def _get_table(session: SqlSession, original: Any, tableName: Any) -> Action | None:
    target = _target(session, tableName)
    if target is None:
        return None

    return errors_of_spark()(partial(table, session, target, partial(original, tableName)))


def _list_tables(session: SqlSession, original: Any, *args: Any, **kwargs: Any) -> Action:
    return lambda: [_with_kind(session, table) for table in original(*args, **kwargs)]


def _with_kind(session: SqlSession, table: Any) -> Any:
    if table.tableType != "MANAGED" or table.catalog != "spark_catalog" or table.database is None:
        return table
    target = target_of(session, (table.database, table.name))
    external = target is not None and target.entry is not None and not target.entry.managed
    return table._replace(tableType="EXTERNAL") if external else table


def _statement(sql: str, answer: Callable[[DataFrame], Any] = lambda _: None) -> Method:
    """A method that runs a statement; ``answer`` converts its result."""
    return _of_table(lambda session, target: answer(_run(session, sql, target)))


def _run(session: SqlSession, sql: str, target: Target) -> DataFrame:
    from trilake.sql.spark.statements import run

    return run(session, sql.format(quote_parts(target.parts)), is_trilake=True)


def _create_table_string(session: SqlSession, target: Target, asSerde: bool = False) -> str:
    if asSerde:
        raise InvalidArgumentError(
            f"{target.display_name} is a {target.format} table, not a Hive table", help="pass asSerde=False"
        )
    return str(_run(session, "SHOW CREATE TABLE {}", target).collect()[0][0])


def _analyze_table(session: SqlSession, target: Target, noScan: bool = False) -> None:
    _run(session, "ANALYZE TABLE {} COMPUTE STATISTICS" + (" NOSCAN" if noScan else ""), target)


def _cache_table(session: SqlSession, target: Target, storageLevel: Any = None) -> None:
    cache(session, target, storageLevel)


METHODS: dict[str, Method] = {
    "createTable": _create_table,
    "listColumns": _list_columns,
    "tableExists": _table_exists,
    "getTable": _get_table,
    "listTables": _list_tables,
    "listPartitions": _statement(  # since Spark 4.3
        "SHOW PARTITIONS {}", lambda f: [catalog.TablePartition(partition=r[0]) for r in f.collect()]
    ),
    "getTableProperties": _statement("SHOW TBLPROPERTIES {}", lambda f: {r[0]: r[1] for r in f.collect()}),
    "getCreateTableString": _of_table(_create_table_string),
    "truncateTable": _statement("TRUNCATE TABLE {}"),
    "analyzeTable": _of_table(_analyze_table),
    "cacheTable": _of_table(_cache_table),
    "isCached": _of_table(is_cached),
    "uncacheTable": _statement("UNCACHE TABLE {}"),
    "refreshTable": _statement("REFRESH TABLE {}"),
    "recoverPartitions": _statement("ALTER TABLE {} RECOVER PARTITIONS"),
}
