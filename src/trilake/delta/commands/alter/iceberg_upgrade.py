"""``REORG TABLE ... APPLY (UPGRADE UNIFORM ...)``: make a table and its files readable for Iceberg.

Rewrites files that do not fit the compatibility version or have deletion vectors, in the commit that enables it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.optimize.bins import purge_bins
from trilake.delta.commands.optimize.optimize import TARGET_SIZE, OptimizeResult, rewrite_metrics
from trilake.delta.commands.optimize.rewrite import RewriteOutcome, RewriteRequest, rewrite
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.metadata.property_changes import set_properties
from trilake.delta.protocol.column_mapping import MODE
from trilake.delta.protocol.iceberg import ENABLED
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.table_features.deletion_vectors import KEY as DELETION_VECTORS
from trilake.delta.protocol.table_features.row_tracking import KEY as ROW_TRACKING
from trilake.delta.rules.iceberg_compat import check_compatible, unfit_files
from trilake.errors import InvalidArgumentError

#: delta-spark's name for the operation, in the history.
_OPERATION = "REORG TABLE UPGRADE UNIFORM"


def upgrade_iceberg(log: DeltaLog, version: int, *, run: Runner = run_here) -> OptimizeResult:
    """Enable one version of Iceberg compatibility, disable any other, and rewrite files that do not fit it.

    Raises ``InvalidArgumentError`` for an unknown version and for a table that violates its rules, ``ConflictError`` if
    other writers have changed the table.
    """
    if type(version) is not int or version not in ENABLED:
        raise InvalidArgumentError(
            f"ICEBERG_COMPAT_VERSION must be 1, 2 or 3, got {version!r}",
            help="write REORG TABLE t APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))",
            condition="DELTA_ICEBERG_COMPAT_VIOLATION.COMPAT_VERSION_NOT_SUPPORTED",
        )
    started, snapshot = log.engine.runtime.clock_ms(), log.snapshot()
    properties = _properties(snapshot, version)
    change = set_properties(snapshot.protocol, snapshot.metadata, properties, new_id=log.engine.runtime.new_id)
    check_compatible(snapshot.metadata, change.metadata, change.protocol)
    if version == 3 and not snapshot.properties.is_on(ROW_TRACKING):
        Alter(log, run=run).set_properties({ROW_TRACKING: "true"})
        snapshot = log.snapshot()
        change = set_properties(snapshot.protocol, snapshot.metadata, properties, new_id=log.engine.runtime.new_id)
    others, vectors = unfit_files(version, snapshot.adds)
    unfit = np.flatnonzero(others | vectors)
    outcome = RewriteOutcome(snapshot.version)
    if len(unfit):
        work = RewriteRequest(
            purge_bins(snapshot, unfit, limit=TARGET_SIZE),
            _OPERATION,
            change.parameters,
            TARGET_SIZE,
            metadata=change.metadata,
            protocol=None if change.protocol == snapshot.protocol else change.protocol,
        )
        outcome = rewrite(log, snapshot, work, run=run)
    elif change.changes(snapshot.protocol, snapshot.metadata):
        altered = Alter(log, run=run).set_properties(properties)
        outcome = replace(outcome, version=altered)
    metrics = rewrite_metrics(snapshot, outcome, snapshot.adds.num_rows, started)
    return OptimizeResult(outcome.version, metrics)


def _properties(snapshot: Snapshot, version: int) -> dict[str, str]:
    now = snapshot.metadata.configuration
    out = {ENABLED[version]: "true"}
    out |= {key: "false" for v, key in ENABLED.items() if v != version and is_on(now, key)}
    if snapshot.metadata.column_mapping_mode == "none":
        out[MODE] = "name"
    if version < 3 and is_on(now, DELETION_VECTORS):
        out[DELETION_VECTORS] = "false"
    return out
