"""The repair steps of a Delta table, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trilake.delta.engine import Engine
from trilake.delta.repair import data_files, log_files
from trilake.delta.verify import checkpoints, checksums, compactions, footers
from trilake.delta.verify import log_files as verified_log
from trilake.storage.base import Store
from trilake.table.findings import Finding, PlannedStep

_Planner = Callable[[Store, Engine, Sequence[Finding]], list[PlannedStep]]

#: Code of the step -> its planner.  The log first: commits depend on it.
STEPS: dict[str, _Planner] = {
    verified_log.DROP_TORN: log_files.drop_torn,
    compactions.DROP: log_files.drop_compactions,
    checksums.DROP: log_files.drop_checksums,
    checkpoints.REWRITE: log_files.rewrite_checkpoints,
    footers.DROP_MISSING: data_files.drop_missing,
    footers.DROP_DAMAGED: data_files.drop_damaged,
    footers.RECOMPUTE: data_files.recompute_statistics,
}


def plan_delta(store: Store, engine: Engine, code: str, findings: Sequence[Finding]) -> list[PlannedStep]:
    """The steps of one kind for some findings."""
    return STEPS[code](store, engine, findings)
