"""Steps that mend files of the log which the commits make up again: checkpoints, compaction files, checksums.

What is removed or replaced is looked at once more, right before: only a file that is still false goes, whose commits
are all there, and that is the table's own (:mod:`trilake.storage.ownership`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trilake.delta.engine import Engine
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.segment import LAST_CHECKPOINT, LOG, LogSegment, checkpoint_key
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.verify import checkpoints, checksums, compactions
from trilake.delta.verify.context import DeltaContext
from trilake.errors import StorageError
from trilake.storage.base import Store
from trilake.storage.ownership import check_own, own_keys
from trilake.table.findings import Finding, NotCheckedError, PlannedStep, RepairStep

#: Names of the files that steps remove.
_REMOVED = rf"{LOG}/\d{{20}}(?:\.crc|\.\d{{20}}\.compacted\.json|\.checkpoint\.[0-9A-Za-z.-]+)"


def _fresh(store: Store, engine: Engine) -> DeltaContext:
    return DeltaContext(store, engine, None, "log")


def _remove(store: Store, keys: Sequence[str]) -> None:
    """Remove files of the log.  Raises ``StorageError`` for one that is not the table's own."""
    own = own_keys(store, keys, _REMOVED, what="repair")
    if set(own) != set(keys):
        raise StorageError(
            f"{len(set(keys) - set(own))} files are not the table's own, or lie behind a link: they stay",
            help="put a folder in the place of the link",
            file=store.uri,
        )
    store.delete(own)


def _files(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.file for f in findings if f.file is not None))


def drop_compactions(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove compaction files that are not what their commits give, which are all there."""
    files = _files(findings)

    def apply() -> None:
        now = compactions.same_as_commits(_fresh(store, engine))
        _remove(store, [f for f in _files(f for f in now if f.repair == compactions.DROP) if f in files])

    message = "remove log compaction files that are false; their commits, which are all there, say what they should"
    return [PlannedStep(RepairStep(compactions.DROP, message, ("delta.compaction-differs",), files), apply)]


def drop_checksums(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Remove version checksum files that are not true."""
    files = _files(findings)

    def apply() -> None:
        _remove(store, [f for f in _files(checksums.true(_fresh(store, engine))) if f in files])

    message = "remove version checksum files that are false; no reader needs one"
    return [PlannedStep(RepairStep(checksums.DROP, message, ("delta.checksum-differs",), files), apply)]


def rewrite_checkpoints(store: Store, engine: Engine, findings: Sequence[Finding]) -> list[PlannedStep]:
    """Write checkpoints again that cannot be read or are not what their commits give; each is a step."""
    context = _fresh(store, engine)
    versions = sorted({f.version for f in findings if f.version is not None and f.file != LAST_CHECKPOINT})
    known = dict(context.listing.checkpoints)
    out = []
    for version in versions:
        if version not in known or not context.has_commits(0, version):
            continue  # nothing vouches for what it should be: it stays as it is, and its finding with it
        codes = tuple(dict.fromkeys(f.code for f in findings if f.version == version))
        files = tuple(m.key for m in known[version])

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
    """Write the checkpoint of a version from the commits, then remove what the one before has besides."""
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
