"""The statements that only Delta's grammar knows: OPTIMIZE, VACUUM, RESTORE, CONVERT, GENERATE, REORG, FSCK, DESCRIBE.

A statement is a frozen record; :func:`parse_maintenance` reads one, without Spark, and :func:`run_maintenance` runs it
in a session.
"""

from __future__ import annotations

from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.delta.clone import convert_table
from trilake.spark.delta.maintenance import detail_frame, history_frame, restore_table, vacuum_table
from trilake.spark.delta.optimize import DeltaOptimizeBuilder
from trilake.spark.delta.table import DeltaTable
from trilake.sql.grammar.maintenance import (
    Convert,
    Detail,
    Fsck,
    Generate,
    History,
    Optimize,
    Reorg,
    Restore,
    Vacuum,
)
from trilake.sql.session import catalogue
from trilake.sql.session.frames import iso, log_to_change, moment_ms, open_delta
from trilake.sql.session.relations import query
from trilake.sql.session.results import nothing
from trilake.sql.session.session import SqlSession
from trilake.sql.session.table_of import known_table
from trilake.sql.session.targets import Target, find_entry, path_target
from trilake.sql.show import describe_other
from trilake.text import quote_name

Statement: TypeAlias = Optimize | Vacuum | History | Detail | Restore | Convert | Generate | Reorg | Fsck


def run_maintenance(session: SqlSession, statement: Statement) -> DataFrame:
    """Run one statement.  Raises what the Python interface raises."""
    spark = session.spark
    if isinstance(statement, Convert):
        return _convert(session, statement)
    if isinstance(statement, Detail):
        return _detail(session, statement)
    target = place_of_statement(session, statement.parts, type(statement).__name__.upper())
    if isinstance(statement, History):
        return history_frame(spark, open_delta(session, target), statement.limit)
    if isinstance(statement, Optimize) and target.format == "lance":
        return describe_other.optimize_lance(session, target)
    if target.format != "delta":
        raise InvalidArgumentError(f"{type(statement).__name__.upper()} is for Delta tables only", file=target.path)
    open_delta(session, target)
    if isinstance(statement, Optimize):
        builder = _optimize(session, target, statement.where)
        if statement.zorder_by:
            return builder.executeZOrderBy(list(statement.zorder_by))
        return builder.executeCompaction(full=statement.full)
    if isinstance(statement, Reorg):
        return _optimize(session, target, statement.where).executePurge()
    if isinstance(statement, Vacuum):
        return _vacuum(session, target, statement)
    if isinstance(statement, Restore):
        return _restore(session, target, statement)
    if isinstance(statement, Generate):
        DeltaTable(spark, target.path, target.options).generate(statement.mode)
        return nothing(session)
    return describe_other.fsck(session, target, dry_run=statement.dry_run)


def place_of_statement(session: SqlSession, parts: tuple[str, ...], what: str) -> Target:
    """The table of a statement: a name, ``delta.`/path```, or a path as a string.

    Raises ``TableNotFoundError`` and ``InvalidArgumentError``.
    """
    if len(parts) == 1 and "/" in parts[0]:
        found = path_target(session, ("delta", parts[0]))
    else:
        found = known_table(session, parts)
    if found is None:
        if find_entry(session, parts) is not None:
            raise InvalidArgumentError(
                f"{'.'.join(parts)} is not a Delta table. {what} is only supported for Delta tables"
            )
        raise TableNotFoundError(f"the table {'.'.join(parts)} cannot be found", help="check the name")
    return found


def _optimize(session: SqlSession, target: Target, where: str | None) -> DeltaOptimizeBuilder:
    builder = DeltaOptimizeBuilder(session.spark, target.path, target.options)
    return builder if where is None else builder.where(where)


def _vacuum(session: SqlSession, target: Target, statement: Vacuum) -> DataFrame:
    inventory = None
    if statement.inventory is not None:
        inventory = query(session, statement.inventory)
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
    return session.spark.createDataFrame([(target.path,)], "path string")


def _restore(session: SqlSession, target: Target, statement: Restore) -> DataFrame:
    log = log_to_change(session, target)
    if statement.version is not None:
        done = restore_table(session.spark, log, version=statement.version)
    else:
        assert statement.timestamp is not None
        done = restore_table(session.spark, log, timestamp=iso(moment_ms(session, statement.timestamp)))
    catalogue.refresh(session, target)
    return done


def _convert(session: SqlSession, statement: Convert) -> DataFrame:
    identifier = ".".join(quote_name(p) for p in statement.parts)
    partitions: str | T.StructType | None = statement.partitions
    if partitions is None and len(statement.parts) == 2 and "/" in statement.parts[1]:
        partitions = T.StructType([])  # the folders of a path without named partitions are none
    convert_table(session.spark, identifier, partitions, collect_stats=statement.statistics)
    return nothing(session)


def _detail(session: SqlSession, statement: Detail) -> DataFrame:
    parts = statement.parts
    if len(parts) == 1 and "/" in parts[0]:
        target = path_target(session, ("delta", parts[0]))
        assert target is not None
        if not target.log.exists():
            return describe_other.path_detail(session, parts[0])
    else:
        found = known_table(session, parts)
        if found is None or found.format != "delta":
            return describe_other.detail(session, parts, found)
        target = found
    frame = detail_frame(session.spark, open_delta(session, target))
    if target.entry is None:
        return frame
    return frame.withColumn("name", F.lit(target.catalog_name))
