"""Delta's entry in the registry of formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trilake.common.timestamps import TimestampLike
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.expr.views import in_microseconds_all
from trilake.storage.base import Store
from trilake.table.format import Format, TableWrite
from trilake.table.results import WriteResult
from trilake.table.table import Table

if TYPE_CHECKING:
    from trilake.table.conversion import Source, Target, TargetRequest
    from trilake.table.dropping import TableFiles
    from trilake.table.findings import Depth, Finding, Findings, PlannedStep
    from trilake.table.report_facts import Facts
    from trilake.table.table import FilterLike
    from trilake.table.upkeep import Upkeep


class DeltaFormat(Format):
    """Delta tables."""

    name = "delta"
    fills_columns = True

    def detect(self, store: Store) -> bool:
        return DeltaLog(store, standard_engine()).exists()

    def open(self, store: Store, version: int | None, timestamp: TimestampLike | None) -> ArrowDeltaTable:
        return ArrowDeltaTable(store, standard_engine(), version=version, timestamp=timestamp)

    def write(self, store: Store, data: Any, write: TableWrite) -> WriteResult:
        # Loaded lazily: a process that only opens tables needs none of this (tests/house/test_laziness.py).
        from trilake.delta.commands.write.overwrite import check_dynamic_alone
        from trilake.delta.commands.write.request import WriteRequest
        from trilake.delta.commands.write.write import write_arrow
        from trilake.table.frames import arrow_batches

        schema, batches = arrow_batches(data)
        log_only = dict(write.log_only)
        schema, batches = in_microseconds_all(schema, batches, round_down=log_only.pop("round_times", True))
        request = WriteRequest(
            mode=write.mode,
            schema=from_arrow(schema),
            partition_by=write.partition_by,
            properties=write.properties or None,
            **log_only,
        )
        check_dynamic_alone(request, store.uri)
        return write_arrow(DeltaLog(store, standard_engine()), schema, batches, request)

    def store_of(self, table: Table) -> Store:
        assert isinstance(table, ArrowDeltaTable)
        return table.log.store

    def verify(self, store: Store, version: int | None, depth: Depth, sample: int | None, limit: int) -> Findings:
        from trilake.delta.verify.run import verify_delta

        return verify_delta(store, standard_engine(), version, depth, sample, limit)

    def repair_steps(self) -> tuple[str, ...]:
        from trilake.delta.repair import STEPS

        return tuple(STEPS)

    def plan_repair(self, store: Store, code: str, findings: Sequence[Finding]) -> list[PlannedStep]:
        from trilake.delta.repair import plan_delta

        return plan_delta(store, standard_engine(), code, findings)

    def report_facts(self, table: Table) -> Facts:
        from trilake.delta.report import delta_facts

        assert isinstance(table, ArrowDeltaTable)
        return delta_facts(table)

    def source(self, table: Table, columns: list[str] | None, filter: FilterLike | None) -> Source:
        from trilake.delta.conversion import delta_source

        assert isinstance(table, ArrowDeltaTable)
        return delta_source(table, columns, filter)

    def target(self, store: Store, source: Source, request: TargetRequest, exists: bool) -> Target:
        from trilake.delta.conversion import delta_target

        return delta_target(store, source, request, exists)

    def upkeep(self) -> Upkeep:
        from trilake.delta.upkeep import UPKEEP

        return UPKEEP

    def table_files(self, store: Store) -> TableFiles:
        from trilake.delta.commands.maintenance.vacuum import table_files

        return table_files(DeltaLog(store, standard_engine()))


DELTA = DeltaFormat()
