"""Repair steps that commit a new version: recompute statistics, remove references to missing files (FSCK)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plural
from trilake.delta.commands.maintenance.analyze import compute_statistics
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.commit.transaction import commit, remove_action
from trilake.delta.engine import Engine
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.rules.append_only import APPEND_ONLY, removal_refused
from trilake.delta.scan.read import locate
from trilake.delta.scan.statistics import record_counts
from trilake.delta.verify import footers, rows
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.footers import DROP_DAMAGED, DROP_MISSING, RECOMPUTE
from trilake.errors import ObjectNotFoundError
from trilake.storage.base import Store
from trilake.table.findings import Finding, PlannedStep, RepairStep


def _paths(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.file for f in findings if f.file is not None))


def _gone(store: Store, paths: Sequence[str]) -> list[str]:
    """The files that do not exist by the store's answer; any other answer is an error."""
    out = []
    for path in paths:
        place, key = locate(store, path)
        try:
            place.head(key)
        except ObjectNotFoundError:
            out.append(path)
    return out


def _chosen(snapshot: Snapshot, paths: Sequence[str]) -> pa.Table:
    """The files of a version at some decoded paths."""
    adds = snapshot.adds
    return adds.filter(pc.is_in(decoded_paths(adds["path"]), pa.array(list(paths), pa.string())))


def _rows(files: pa.Table) -> int | None:
    """The number of undeleted rows of files; ``None`` where statistics do not state it."""
    counts = record_counts(files)
    if counts.null_count:
        return None
    deleted = pc.sum(pc.struct_field(files["deletionVector"], "cardinality")).as_py() or 0
    return int((pc.sum(counts).as_py() or 0) - deleted)


def all_missing(store: Store, engine: Engine) -> list[str]:
    """Every missing file of the newest version: findings only list some."""
    snapshot = DeltaLog(store, engine).snapshot()
    return _gone(store, decoded_paths(snapshot.adds["path"]).to_pylist())


def drop_missing(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove missing files from the table, as one commit, and report their lost rows."""
    paths = all_missing(store, engine)
    return [_drop(store, engine, findings, DROP_MISSING, paths, lambda: _gone(store, paths))]


def drop_damaged(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove unreadable files from the table, as one commit; they stay in the store until VACUUM."""
    paths = _paths(findings)
    reads_rows = any(f.code == "delta.rows-unreadable" for f in findings)

    def damaged() -> list[str]:
        table = DeltaContext(store, engine, None, "rows" if reads_rows else "files")
        checks = (footers.readable, rows.readable) if reads_rows else (footers.readable,)
        return [
            f.file for check in checks for f in check(table) if f.repair == footers.DROP_DAMAGED and f.file in paths
        ]

    return [_drop(store, engine, findings, DROP_DAMAGED, paths, damaged)]


def _drop(
    store: Store,
    engine: Engine,
    findings: Sequence[Finding],
    code: str,
    paths: Sequence[str],
    look: Callable[[], list[str]],
) -> PlannedStep:
    """The step that removes the files of ``paths``; ``look`` checks again right before."""
    log = DeltaLog(store, engine)
    snapshot = log.snapshot()
    lost = _rows(_chosen(snapshot, paths))
    number = "an unknown number of rows" if lost is None else plural(lost, "row")
    whole = " (all that the table has)" if paths and len(paths) == snapshot.adds.num_rows else ""
    verb = "is" if lost == 1 else "are"
    what = plural(len(paths), "missing file" if code == DROP_MISSING else "damaged file")
    message = f"take {what} out of the table{whole}: {number} {verb} lost for good"

    def apply() -> int:
        now = log.snapshot()
        if now.properties.is_on(APPEND_ONLY):
            raise removal_refused(store.uri, help="unset the property first")
        removed = _chosen(now, look())
        clock = engine.runtime.clock_ms()
        plan = CommitPlan(
            operation="FSCK",
            parameters={"numRemovedFiles": str(removed.num_rows)},
            file_actions=[remove_action(row, clock) for row in removed.to_pylist()],
            metrics={"numRemovedFiles": removed.num_rows},
            read=ReadSet(removed=frozenset(removed["path"].to_pylist())),
        )
        return commit(log, now, plan).version

    codes = tuple(dict.fromkeys(f.code for f in findings))
    return PlannedStep(RepairStep(code, message, codes, tuple(paths), lost, needs="accept_loss"), apply)


def recompute_statistics(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Recompute statistics of files from their rows, as one commit that changes no row."""
    paths = _paths(findings)
    log = DeltaLog(store, engine)

    def apply() -> int:
        return compute_statistics(log, paths=paths).version

    message = f"compute the statistics of {len(paths):,} files again from their rows, as a commit that changes no row"
    codes = tuple(dict.fromkeys(f.code for f in findings))
    return [PlannedStep(RepairStep(RECOMPUTE, message, codes, paths), apply)]
