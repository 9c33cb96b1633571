"""Delta as a row of the registry of formats."""

from __future__ import annotations

from typing import Any

from trilake.common.timestamps import TimestampLike
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.expr.nanoseconds import rounded_down
from trilake.storage.base import Store
from trilake.table.format import Format, TableWrite
from trilake.table.results import WriteResult


class DeltaFormat(Format):
    """Delta tables."""

    name = "delta"

    def detect(self, store: Store) -> bool:
        return DeltaLog(store, standard_engine()).exists()

    def open(self, store: Store, version: int | None, timestamp: TimestampLike | None) -> ArrowDeltaTable:
        return ArrowDeltaTable(store, standard_engine(), version=version, timestamp=timestamp)

    def write(self, store: Store, data: Any, write: TableWrite) -> WriteResult:
        # Loaded here: a process that only opens tables needs none of it (tests/house/test_laziness.py).
        from trilake.delta.commands.write.replaced import check_dynamic_alone
        from trilake.delta.commands.write.request import WriteRequest
        from trilake.delta.commands.write.write import write_arrow
        from trilake.table.frames import arrow_batches

        schema, batches = arrow_batches(data)
        log_only = dict(write.log_only)
        if log_only.pop("round_times", False):
            schema, batches = rounded_down(schema, batches)
        request = WriteRequest(
            mode=write.mode,
            schema=from_arrow(schema),
            partition_by=write.partition_by,
            properties=write.properties or None,
            **log_only,
        )
        check_dynamic_alone(request, store.uri)
        return write_arrow(DeltaLog(store, standard_engine()), schema, batches, request)


DELTA = DeltaFormat()
