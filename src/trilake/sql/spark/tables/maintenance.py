"""Run Delta's own statements: OPTIMIZE, VACUUM, RESTORE, CONVERT, GENERATE, REORG, FSCK, DESCRIBE."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.common.text import quote_parts
from trilake.common.timestamps import iso
from trilake.delta.commands.maintenance.restore import fsck
from trilake.delta.commit.symlink_manifest import format_path
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TableNotFoundError, stating
from trilake.spark.delta.convert import convert_table
from trilake.spark.delta.maintenance import (
    detail_frame,
    detail_schema,
    history_frame,
    many_runner,
    restore_table,
    vacuum_table,
)
from trilake.spark.delta.optimize import DeltaOptimizeBuilder
from trilake.spark.delta.table import DeltaTable
from trilake.spark.session.compat import arrow_frame
from trilake.spark.session.format import spark_format_named
from trilake.sql.parser.maintenance import (
    Convert,
    Detail,
    Generate,
    History,
    Maintenance,
    Optimize,
    Reorg,
    Restore,
    Vacuum,
)
from trilake.sql.spark.session import entries
from trilake.sql.spark.session.frames import log_to_change, moment_ms, open_delta
from trilake.sql.spark.session.relations import query
from trilake.sql.spark.session.session import SqlSession, nothing, rows
from trilake.sql.spark.session.targets import (
    Target,
    find_entry,
    names_view,
    not_found,
    path_target,
    whole_table_of,
)
from trilake.sql.upkeep import check_optimize, maintain
from trilake.table.registry import DEFAULT, open_table


def run_maintenance(session: SqlSession, statement: Maintenance) -> DataFrame:
    """Run one statement."""
    spark = session.spark
    if isinstance(statement, Convert):
        return _convert(session, statement)
    if isinstance(statement, Detail):
        return _detail(session, statement)
    target = place_of_statement(session, statement.parts, type(statement).__name__.upper())
    if isinstance(statement, Optimize) and not target.has_log:
        check_optimize(target.format, statement)
        totals = spark_format_named(target.format).optimize(session.spark, target.path)
        metrics = T.StructType([T.StructField(name, T.LongType()) for name in totals])
        schema = T.StructType([T.StructField("path", T.StringType()), T.StructField("metrics", metrics)])
        return rows(session, schema, [(target.path, dict(totals))])
    if not target.has_log:
        table = open_table(session.store(target.path), target.format)
        return arrow_frame(spark, maintain(table, statement, lambda time: iso(moment_ms(session, time))))
    if isinstance(statement, History):
        return history_frame(spark, _with_history(session, target), statement.limit)
    open_delta(session, target)
    if isinstance(statement, Optimize):
        builder = _optimize(session, target, statement.where)
        if statement.zorder_by:
            return builder.executeZOrderBy(list(statement.zorder_by))
        return builder.executeCompaction(full=statement.full)
    if isinstance(statement, Reorg):
        if statement.compat is not None:
            return _optimize(session, target, None).upgrade_iceberg_compat(statement.compat)
        return _optimize(session, target, statement.where).executePurge()
    if isinstance(statement, Vacuum):
        return _vacuum(session, target, statement)
    if isinstance(statement, Restore):
        return _restore(session, target, statement)
    if isinstance(statement, Generate):
        DeltaTable(spark, target.path, target.options).generate(statement.mode)
        return nothing(session)
    log = log_to_change(session, target)
    missing = fsck(log, dry_run=statement.dry_run, run=many_runner(session.spark, log.store, least=32))
    return rows(session, "dataFilePath string, dataFileMissing boolean", [(p, True) for p in missing])


def place_of_statement(session: SqlSession, parts: tuple[str, ...], what: str) -> Target:
    """The table of a statement: a name, ``delta.`/path```, or a path as a string literal.  Raises
    ``TableNotFoundError`` and ``InvalidArgumentError``."""
    if len(parts) == 1 and "/" in parts[0]:
        target = path_target(session, (DEFAULT, parts[0]))
    else:
        _check_no_view(session, parts, what, "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE")
        target = whole_table_of(session, parts)
    if target is None:
        if find_entry(session, parts) is not None:
            raise InvalidArgumentError(
                f"{'.'.join(parts)} is not a Delta table. {what} is only supported for Delta tables",
                condition="DELTA_TABLE_ONLY_OPERATION",
            )
        raise not_found(parts)
    return target


def _check_no_view(session: SqlSession, parts: tuple[str, ...], what: str, condition: str) -> None:
    if names_view(session, parts):
        raise InvalidArgumentError(
            f"{what} needs a table, but {'.'.join(parts)} is a view",
            help="name the table of the view",
            condition=condition,
        )


def _optimize(session: SqlSession, target: Target, where: str | None) -> DeltaOptimizeBuilder:
    builder = DeltaOptimizeBuilder(session.spark, target.path, target.options)
    return builder if where is None else builder.where(where)


def _vacuum(session: SqlSession, target: Target, statement: Vacuum) -> DataFrame:
    inventory = None if statement.inventory is None else query(session, statement.inventory)
    frame = vacuum_table(
        session.spark,
        log_to_change(session, target),
        statement.hours,
        dry_run=statement.dry_run,
        lite=statement.lite,
        inventory=inventory,
    )
    if statement.dry_run:
        return frame
    return session.spark.createDataFrame([(format_path(target.store.uri),)], "path string")


def _with_history(session: SqlSession, target: Target) -> ArrowDeltaTable:
    with stating(
        {"DELTA_TABLE_NOT_FOUND": "DELTA_TABLE_ONLY_OPERATION", "PATH_NOT_FOUND": "DELTA_TABLE_ONLY_OPERATION"}
    ):
        return open_delta(session, target)


def _restore(session: SqlSession, target: Target, statement: Restore) -> DataFrame:
    log = log_to_change(session, target)
    if statement.version is not None:
        result = restore_table(session.spark, log, version=statement.version)
    else:
        assert statement.timestamp is not None
        result = restore_table(session.spark, log, timestamp=iso(moment_ms(session, statement.timestamp)))
    entries.refresh(session, target)
    return result


def _convert(session: SqlSession, statement: Convert) -> DataFrame:
    identifier = quote_parts(statement.parts)
    partitions: str | T.StructType | None = statement.partitions
    if partitions is None and len(statement.parts) == 2 and "/" in statement.parts[1]:
        partitions = T.StructType([])  # without PARTITIONED BY, a path has no partitions
    convert_table(session.spark, identifier, partitions, collect_stats=statement.statistics)
    return nothing(session)


def _detail(session: SqlSession, statement: Detail) -> DataFrame:
    parts = statement.parts
    if len(parts) == 1 and "/" in parts[0]:
        target = path_target(session, (DEFAULT, parts[0]))
        assert target is not None
        if not target.log.exists():
            return _detail_of_folder(session, parts[0])
    else:
        _check_no_view(session, parts, "DESCRIBE DETAIL", "DELTA_UNSUPPORTED_DESCRIBE_DETAIL_VIEW")
        table = whole_table_of(session, parts)
        if table is None or not table.has_log:
            return _detail_of_other(session, parts, table)
        target = table
    name = None if target.entry is None else target.catalog_name
    return detail_frame(session.spark, open_delta(session, target), name)


def _detail_row(
    session: SqlSession,
    format: str,
    name: str | None,
    location: str | None,
    sizes: Sequence[int],
    partitions: Sequence[str] = (),
) -> DataFrame:
    row: dict[str, object] = {
        "format": format,
        "name": name,
        "location": location,
        "partitionColumns": list(partitions),
        "clusteringColumns": [],
        "numFiles": len(sizes),
        "sizeInBytes": sum(sizes),
        "properties": {},
    }
    schema = detail_schema()
    return session.spark.createDataFrame([tuple(row.get(f.name) for f in schema.fields)], schema)


def _detail_of_other(session: SqlSession, parts: tuple[str, ...], target: Target | None) -> DataFrame:
    """DESCRIBE DETAIL of a table in the catalog that is not a Delta table.  Raises ``TableNotFoundError``."""
    if target is not None:
        files = open_table(session.store(target.path), target.format).files()
        return _detail_row(session, target.format, target.catalog_name, target.path, files["size"].to_pylist())
    entry = find_entry(session, parts)
    if entry is None:
        raise not_found(parts)
    inside = [
        c.name for c in session.spark.catalog.listColumns(quote_parts((entry.database, entry.table))) if c.isPartition
    ]
    return _detail_row(
        session, entry.provider, entry.full_name, entry.location, _file_sizes(session, entry.location), inside
    )


def _detail_of_folder(session: SqlSession, path: str) -> DataFrame:
    """DESCRIBE DETAIL of a folder without a Delta table.  Raises ``TableNotFoundError`` for an empty one."""
    if next(iter(session.store(path).list()), None) is None:
        raise TableNotFoundError(
            f"{path} does not exist or is empty", help="check the path", file=path, condition="DELTA_FILE_NOT_FOUND"
        )
    return _detail_row(session, "parquet", None, path, _file_sizes(session, path))


def _file_sizes(session: SqlSession, location: str | None) -> list[int]:
    files = session.store(location).list() if location else []
    return [o.size for o in files if not o.key.split("/")[-1].startswith((".", "_"))]
