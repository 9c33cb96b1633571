"""Run maintenance statements on tables without a Delta log, by the commands of their format."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.sql.parser.maintenance import History, Maintenance, Optimize, Restore, Vacuum
from trilake.table.registry import format_named
from trilake.table.table import Table
from trilake.table.upkeep import OptimizeOptions, VacuumOptions


def maintain(table: Table, statement: Maintenance, moment: Callable[[str], str]) -> pa.Table:
    """Run one statement; ``moment`` evaluates the expression of a timestamp.

    Raises ``InvalidArgumentError`` for statements that only Delta tables support, or that the format has no use for.
    """
    upkeep = format_named(table.format).upkeep()
    match statement:
        case History():
            return table.history(statement.limit)
        case Optimize():
            check_optimize(table.format, statement)
            metrics = upkeep.optimize(table, OptimizeOptions())
            return pa.table({"path": [table.uri], "metrics": [{k: v for k, v in metrics.items() if k != "uri"}]})
        case Vacuum(lite=None, inventory=None):
            how = VacuumOptions(statement.hours)
            if not statement.dry_run:
                upkeep.vacuum(table, how)
                return pa.table({"path": [table.uri]})
            paths = upkeep.unneeded(table, how).files["path"].to_pylist()
            return pa.table({"path": pa.array([f"{table.uri.rstrip('/')}/{p}" for p in paths], pa.string())})
        case Restore():
            at = None if statement.timestamp is None else moment(statement.timestamp)
            done = upkeep.restore(table, statement.version, at, ignore_missing=False)
            return pa.Table.from_pylist([{k: v for k, v in done.items() if k != "uri"}])
    raise InvalidArgumentError(
        f"{type(statement).__name__.upper()} is only supported for Delta tables",
        file=table.uri,
        condition="DELTA_TABLE_ONLY_OPERATION",
    )


def check_optimize(format: str, statement: Optimize) -> None:
    """Raise ``InvalidArgumentError`` for clauses that only Delta tables support."""
    clauses = {"FULL": statement.full, "WHERE": statement.where, "ZORDER BY": statement.zorder_by}
    used = [name for name, value in clauses.items() if value]
    if used:
        raise InvalidArgumentError(f"OPTIMIZE of {format} tables does not support {used[0]}", help="leave it out")
