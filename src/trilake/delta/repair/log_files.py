"""Repair steps for files of the log: checkpoints, compaction files and checksums, which can be rebuilt from the
commits, and torn commits.

Each file is checked again right before: it must still be wrong, its commits must all exist, and it must belong to the
table (:mod:`trilake.storage.ownership`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from trilake.common.text import plain, plural, time_text
from trilake.delta.engine import Engine
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.segment import LAST_CHECKPOINT, LOG, LogSegment, checkpoint_key, commit_key
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.verify import checkpoints, checksums, compactions
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.log_files import DROP_TORN, torn_commits
from trilake.errors import StorageError
from trilake.storage.base import Store
from trilake.storage.ownership import check_own, own_keys
from trilake.table.findings import Finding, NotCheckedError, PlannedStep, RepairStep

#: Where torn commits are kept: readers ignore other folders.
_TORN = f"{LOG}/_torn"
#: Descriptions of the files that steps remove.
_REMOVED = rf"{LOG}/\d{{20}}(?:\.crc|\.\d{{20}}\.compacted\.json|\.checkpoint\.[0-9A-Za-z.-]+)"


def _fresh(store: Store, engine: Engine) -> DeltaContext:
    return DeltaContext(store, engine, None, "log")


def _remove(store: Store, keys: Sequence[str], *, names: str = _REMOVED) -> None:
    """Remove files of the log.  Raises ``StorageError`` for one that does not belong to the table."""
    deletable = own_keys(store, keys, names, what="repair")
    if set(deletable) != set(keys):
        raise StorageError(
            f"{len(set(keys) - set(deletable))} files do not belong to the table, or are behind a link: they are kept",
            help="put a folder in the place of the link",
            file=store.uri,
        )
    store.delete(deletable)


def drop_torn(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Drop the newest versions with torn commit files; their bytes are kept beside the log.

    A commit that is still being written looks the same: only bytes that did not change since the plan are dropped.
    """
    torn = torn_commits(_fresh(store, engine))
    if not torn:
        return []
    files = tuple(commit_key(v) for v in torn)
    planned = [bytes(data) for data in store.read_many(files)]

    def apply() -> None:
        now = _fresh(store, engine)
        if torn_commits(now) != torn or [bytes(data) for data in store.read_many(files)] != planned:
            raise NotCheckedError("the log has changed since it was looked at", file=store.uri)
        run = engine.runtime.new_hex_id()
        for key, data in zip(files, planned, strict=True):
            store.put_if_absent(f"{_TORN}/{key.rpartition('/')[2].removesuffix('.json')}.{run}.json", data)
        checksums = [now.listing.checksums[v].key for v in torn if v in now.listing.checksums]
        for key in reversed((*files, *checksums)):  # the newest first: at any time the rest is a valid log
            _remove(store, [key], names=rf"{LOG}/\d{{20}}\.(?:json|crc)")

    which = f"version {torn[0]}" if len(torn) == 1 else f"versions {torn[0]} to {torn[-1]}"
    parts = "; ".join(f"of version {v}, {_readable(data)}" for v, data in zip(torn, planned, strict=True))
    message = (
        f"drop {which}, so that version {torn[0] - 1} becomes the newest: {parts}. The torn bytes are kept in {_TORN}"
    )
    codes = tuple(dict.fromkeys(f.code for f in findings))
    return [PlannedStep(RepairStep(DROP_TORN, message, codes, files, None, needs="accept_loss"), apply)]


def _readable(data: bytes) -> str:
    """The readable part of a torn commit."""
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
        return f"nothing of {plural(len(data), 'byte')} can be read"
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if isinstance(a.get("commitInfo"), dict)), {})
    kinds = Counter(kind for a in actions for kind in a if kind != "commitInfo")
    parts = [f"{info['operation']}" if info.get("operation") else "an unknown operation"]
    if isinstance(info.get("timestamp"), int):
        parts.append(f"at {time_text(info['timestamp'])}")
    if info.get("engineInfo"):
        parts.append(f"by {info['engineInfo']}")
    what = ", ".join(plural(n, f"{kind} action") for kind, n in kinds.items()) or "no action"
    return plain(f"{' '.join(parts)}: {what} can be read in {len(actions)} of {plural(len(lines), 'line')}", 300)


def _files(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.file for f in findings if f.file is not None))


def drop_compactions(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove compaction files that differ from their commits, which all exist."""
    files = _files(findings)

    def apply() -> None:
        now = compactions.same_as_commits(_fresh(store, engine))
        _remove(store, [f for f in _files(f for f in now if f.repair == compactions.DROP) if f in files])

    message = "remove log compaction files that are false; their commits, which are all there, say what they should"
    return [PlannedStep(RepairStep(compactions.DROP, message, ("delta.compaction-differs",), files), apply)]


def drop_checksums(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove wrong version checksum files."""
    files = _files(findings)

    def apply() -> None:
        _remove(store, [f for f in _files(checksums.true(_fresh(store, engine))) if f in files])

    message = "remove version checksum files that are false; no reader needs one"
    return [PlannedStep(RepairStep(checksums.DROP, message, ("delta.checksum-differs",), files), apply)]


def rewrite_checkpoints(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Rewrite checkpoints that are unreadable or differ from their commits; each is a step."""
    context = _fresh(store, engine)
    versions = sorted({f.version for f in findings if f.version is not None and f.file != LAST_CHECKPOINT})
    existing = dict(context.listing.checkpoints)
    out = []
    for version in versions:
        if version not in existing or not context.has_commits(0, version):
            continue  # its correct content is unknown: keep it, and its finding
        codes = tuple(dict.fromkeys(f.code for f in findings if f.version == version))
        files = tuple(m.key for m in existing[version])

        def apply(version: int = version, old: tuple[str, ...] = files) -> None:
            _rewrite(_fresh(store, engine), version, old)

        message = f"write the checkpoint of version {version} again from its commits, and the hint at the newest one"
        out.append(PlannedStep(RepairStep(checkpoints.REWRITE, message, codes, files), apply))
    hints = [f for f in findings if f.file == LAST_CHECKPOINT]
    if hints and context.has_commits(0, context.version):

        def newest() -> None:
            again = _fresh(store, engine)
            _rewrite(again, again.version, ())

        message = f"write a checkpoint of version {context.version} from its commits, and the hint at it"
        codes = tuple(dict.fromkeys(f.code for f in hints))
        out.append(PlannedStep(RepairStep(checkpoints.REWRITE, message, codes, (LAST_CHECKPOINT,)), newest))
    return out


def _rewrite(table: DeltaContext, version: int, old: Sequence[str]) -> None:
    """Write the checkpoint of a version from the commits, then remove extra files of the old one."""
    check_own(table.store, [checkpoint_key(version)], what="repair")
    for _, state in table.states([version]):
        segment = LogSegment(version, None, (), ())
        snapshot = Snapshot(table.store.uri, version, state, segment, table.engine)
        if state.protocol is None or state.metadata is None or not table.has_commits(0, version):
            break
        before = {m.key for m in table.store.list(LOG)}
        write_checkpoint(table.log, snapshot, table.engine.runtime, replace=True)
        after = replace(table, bad_commits={})
        new = {m.key for m in after.store.list(LOG)} - before
        # A checkpoint under the same name was replaced; one under another name would still be read.
        _remove(table.store, [k for k in old if k not in new and k != checkpoint_key(version)])
        return
    raise NotCheckedError(f"version {version} cannot be made up from its commits", file=table.store.uri)
