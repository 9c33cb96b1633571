"""The repair steps of a Delta table, in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import format_time, plain, plural
from trilake.delta.commands.maintenance.analyze import compute_statistics
from trilake.delta.commands.maintenance.restore import drop_files, gone
from trilake.delta.engine import Engine
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import LAST_CHECKPOINT, LOG, LogSegment, checkpoint_key, commit_key
from trilake.delta.log.snapshot import Snapshot, decoded_paths
from trilake.delta.scan.statistics import record_counts
from trilake.delta.verify import data_files, log_files, rows
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.data_files import DROP_DAMAGED, DROP_MISSING, RECOMPUTE
from trilake.delta.verify.log_files import DROP_CHECKSUM, DROP_COMPACTION, DROP_TORN, REWRITE_CHECKPOINT, torn_commits
from trilake.errors import StorageError
from trilake.expr.terms.engine import Query
from trilake.storage.base import Store
from trilake.storage.ownership import check_own, own_keys
from trilake.table.findings import Finding, NotCheckedError, PlannedStep, RepairStep

_Planner = Callable[[Store, Engine, Sequence[Finding]], list[PlannedStep]]

# --- Files of the log -------------------------------------------------------------------------------------------------
# Checkpoints, compaction files and checksums can be rebuilt from the commits.  Right before each repair, check again
# that the file is still wrong, that all its commits exist, and that it belongs to the table (`storage/ownership.py`).

#: The folder for torn commits; readers ignore other folders.
_TORN = f"{LOG}/_torn"
#: Pattern of the files that steps remove.
_REMOVED = rf"{LOG}/\d{{20}}(?:\.crc|\.\d{{20}}\.compacted\.json|\.checkpoint\.[0-9A-Za-z.-]+)"


def _fresh(store: Store, engine: Engine) -> DeltaContext:
    return DeltaContext(store, engine, None, "log")


def _remove(store: Store, keys: Sequence[str], *, names: str = _REMOVED) -> None:
    """Remove files of the log.  Raises ``StorageError`` for a file that does not belong to the table."""
    deletable = own_keys(store, keys, names, what="repair")
    if set(deletable) != set(keys):
        raise StorageError(
            f"{plural(len(set(keys) - set(deletable)), 'file')} not deleted: not part of the table, or behind a"
            " symbolic link",
            help="replace the symbolic link with a folder",
            file=store.uri,
        )
    store.delete(deletable)


def drop_torn(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Drop the newest versions if their commit files are torn and did not change; the bytes stay beside the log."""
    torn = torn_commits(_fresh(store, engine))
    if not torn:
        return []
    files = tuple(commit_key(v) for v in torn)
    planned = [bytes(data) for data in store.read_many(files)]

    def apply() -> None:
        now = _fresh(store, engine)
        if torn_commits(now) != torn or [bytes(data) for data in store.read_many(files)] != planned:
            raise NotCheckedError("the log has changed since the repair was planned", file=store.uri)
        run = engine.runtime.new_hex_id()
        for key, data in zip(files, planned, strict=True):
            store.put_if_absent(f"{_TORN}/{key.rpartition('/')[2].removesuffix('.json')}.{run}.json", data)
        checksums = [now.listing.checksums[v].key for v in torn if v in now.listing.checksums]
        for key in reversed((*files, *checksums)):  # the newest first, so that the rest is a valid log at any time
            _remove(store, [key], names=rf"{LOG}/\d{{20}}\.(?:json|crc)")

    which = f"version {torn[0]}" if len(torn) == 1 else f"versions {torn[0]} to {torn[-1]}"
    parts = "; ".join(f"version {v}: {_readable(data)}" for v, data in zip(torn, planned, strict=True))
    message = (
        f"drop {which}, so that version {torn[0] - 1} becomes the newest ({parts}). The torn bytes are saved in {_TORN}"
    )
    codes = _codes(findings)
    return [PlannedStep(RepairStep(DROP_TORN, message, codes, files, None, needs="accept_loss"), apply)]


def _readable(data: bytes) -> str:
    actions: list[dict[str, Any]] = []
    lines = [line for line in data.split(b"\n") if line.strip(b" \r\t\0")]
    for line in lines:
        try:
            action = json.loads(line)
        except ValueError:
            continue
        if isinstance(action, dict):
            actions.append(action)
    if not actions:
        return f"{plural(len(data), 'byte')}, none readable"
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if isinstance(a.get("commitInfo"), dict)), {})
    kinds = Counter(kind for a in actions for kind in a if kind != "commitInfo")
    parts = [f"{info['operation']}" if info.get("operation") else "an unknown operation"]
    if isinstance(info.get("timestamp"), int):
        parts.append(f"at {format_time(info['timestamp'])}")
    if info.get("engineInfo"):
        parts.append(f"by {info['engineInfo']}")
    what = ", ".join(plural(n, f"{kind} action") for kind, n in kinds.items()) or "no actions"
    return plain(f"{' '.join(parts)}, {len(actions)} of {plural(len(lines), 'line')} readable, with {what}", 300)


def _files(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.file for f in findings if f.file is not None))


def _codes(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.code for f in findings))


def _remover(repair: str, message: str, check: Callable[[DeltaContext], Iterable[Finding]]) -> _Planner:
    """The planner of a step that removes the files of findings, if they still have them."""

    def plan(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
        files = _files(findings)

        def apply() -> None:
            now = _files(f for f in check(_fresh(store, engine)) if f.repair == repair)
            _remove(store, [f for f in now if f in files])

        return [PlannedStep(RepairStep(repair, message, _codes(findings), files), apply)]

    return plan


def rewrite_checkpoints(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Rewrite checkpoints that are unreadable or differ from their commits, one step each."""
    context = _fresh(store, engine)
    versions = sorted({f.version for f in findings if f.version is not None and f.file != LAST_CHECKPOINT})
    existing = dict(context.listing.checkpoints)
    out = []
    for version in versions:
        if version not in existing or not context.has_commits(0, version):
            continue  # its correct content is unknown: keep both the checkpoint and its finding
        codes = _codes(f for f in findings if f.version == version)
        files = tuple(m.key for m in existing[version])

        def apply(version: int = version, old: tuple[str, ...] = files) -> None:
            _rewrite(_fresh(store, engine), version, old)

        message = f"rewrite the checkpoint of version {version} from its commits, and _last_checkpoint"
        out.append(PlannedStep(RepairStep(REWRITE_CHECKPOINT, message, codes, files), apply))
    hints = [f for f in findings if f.file == LAST_CHECKPOINT]
    if hints and context.has_commits(0, context.version):

        def newest() -> None:
            again = _fresh(store, engine)
            _rewrite(again, again.version, ())

        message = f"write a checkpoint of version {context.version} from its commits, and _last_checkpoint"
        codes = _codes(hints)
        out.append(PlannedStep(RepairStep(REWRITE_CHECKPOINT, message, codes, (LAST_CHECKPOINT,)), newest))
    return out


def _rewrite(table: DeltaContext, version: int, old: Sequence[str]) -> None:
    """Write the checkpoint of a version from the commits, then remove the old one's other files."""
    check_own(table.store, [checkpoint_key(version)], what="repair")
    for _, state in table.states([version]):
        segment = LogSegment(version, None, (), ())
        snapshot = Snapshot(table.store.uri, version, state, segment, table.engine)
        if state.protocol is None or state.metadata is None or not table.has_commits(0, version):
            break
        before = {m.key for m in table.store.list(LOG)}
        write_checkpoint(table.log, snapshot, table.engine.runtime, replace=True)
        new = {m.key for m in table.store.list(LOG)} - before
        # Readers would still use an old checkpoint under another name.
        _remove(table.store, [k for k in old if k not in new and k != checkpoint_key(version)])
        return
    raise NotCheckedError(f"version {version} cannot be reconstructed from its commits", file=table.store.uri)


# --- Repair steps that commit a new version: recompute statistics, remove references to missing files (FSCK) ----------


def _chosen(snapshot: Snapshot, paths: Sequence[str]) -> pa.Table:
    adds = snapshot.adds
    return adds.filter(pc.is_in(decoded_paths(adds["path"]), pa.array(list(paths), pa.string())))


def _live_rows(files: pa.Table, query: Query) -> int | None:
    counts = record_counts(files, query)
    if counts.null_count:
        return None
    deleted = pc.sum(pc.struct_field(files["deletionVector"], "cardinality")).as_py() or 0
    return int((pc.sum(counts).as_py() or 0) - deleted)


def drop_missing(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove missing files from the table, as one commit, and report the lost rows."""
    snapshot = DeltaLog(store, engine).snapshot()
    paths = gone(store, decoded_paths(snapshot.adds["path"]).to_pylist())  # the findings list only some
    return [_drop(store, engine, findings, DROP_MISSING, paths, lambda: gone(store, paths))]


def drop_damaged(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove unreadable files from the table, as one commit; they stay in the store until VACUUM."""
    paths = _files(findings)
    reads_rows = any(f.code == "delta.rows-unreadable" for f in findings)

    def damaged() -> list[str]:
        table = DeltaContext(store, engine, None, "rows" if reads_rows else "files")
        checks = (data_files.readable, rows.readable) if reads_rows else (data_files.readable,)
        return [f.file for check in checks for f in check(table) if f.repair == DROP_DAMAGED and f.file in paths]

    return [_drop(store, engine, findings, DROP_DAMAGED, paths, damaged)]


def _drop(
    store: Store,
    engine: Engine,
    findings: Sequence[Finding],
    code: str,
    paths: Sequence[str],
    look: Callable[[], list[str]],
) -> PlannedStep:
    """The step that removes the files in ``paths``; ``look`` checks them again right before."""
    log = DeltaLog(store, engine)
    snapshot = log.snapshot()
    lost = _live_rows(_chosen(snapshot, paths), engine.query)
    number = "an unknown number of rows" if lost is None else plural(lost, "row")
    whole = " (all files of the table)" if paths and len(paths) == snapshot.adds.num_rows else ""
    verb = "is" if lost == 1 else "are"
    what = plural(len(paths), "missing file" if code == DROP_MISSING else "damaged file")
    message = f"remove {what} from the table{whole}: {number} {verb} lost permanently"

    def apply() -> int:
        now = log.snapshot()
        now.check_removable()
        garbage = _chosen(now, look())
        return drop_files(log, now, garbage, {"numRemovedFiles": str(garbage.num_rows)})

    codes = _codes(findings)
    return PlannedStep(RepairStep(code, message, codes, tuple(paths), lost, needs="accept_loss"), apply)


def recompute_statistics(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Recompute statistics of files from their rows, as one commit that changes no row."""
    paths = _files(findings)
    log = DeltaLog(store, engine)

    def apply() -> int:
        return compute_statistics(log, paths=paths).version

    message = f"recompute the statistics of {plural(len(paths), 'file')} from the rows, in a commit that changes no row"
    codes = _codes(findings)
    return [PlannedStep(RepairStep(RECOMPUTE, message, codes, paths), apply)]


#: The planner of each step, by code.  The log comes first, since commits depend on it.
STEPS: dict[str, _Planner] = {
    DROP_TORN: drop_torn,
    DROP_COMPACTION: _remover(
        DROP_COMPACTION,
        "delete log compaction files that differ from their commits, which are all present",
        log_files.compactions_same,
    ),
    DROP_CHECKSUM: _remover(
        DROP_CHECKSUM,
        "delete version checksum files that differ from the log; no reader needs them",
        log_files.checksums_same,
    ),
    REWRITE_CHECKPOINT: rewrite_checkpoints,
    DROP_MISSING: drop_missing,
    DROP_DAMAGED: drop_damaged,
    RECOMPUTE: recompute_statistics,
}


def plan_delta(store: Store, engine: Engine, code: str, findings: Sequence[Finding]) -> list[PlannedStep]:
    """The steps that repair findings of one kind."""
    return STEPS[code](store, engine, findings)
