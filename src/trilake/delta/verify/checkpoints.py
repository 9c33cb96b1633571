"""Checks of checkpoints: readable, complete, equal to the commits; of the hint; and of log compaction files."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace

from trilake.delta.log import last_checkpoint
from trilake.delta.log.checkpoint import sidecar_keys
from trilake.delta.log.segment import LAST_CHECKPOINT, LOG, LogSegment
from trilake.delta.log.snapshot import apply, empty_state
from trilake.delta.protocol.actions import parse_commits
from trilake.delta.verify.context import DeltaContext
from trilake.delta.verify.states import differences
from trilake.errors import ObjectNotFoundError, TrilakeError
from trilake.table.findings import Finding, unreadable

_PART = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.(\d{{10}})\.(\d{{10}})\.parquet")
#: The repair step that rewrites a checkpoint.
REWRITE = "delta.rewrite-checkpoint"
#: The repair step that removes a compaction file.
DROP = "delta.drop-compaction"
_DROP_HELP = "delete the file (trilake.repair): its commits have all actions"


def readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every checkpoint can be read."""
    for version, files in table.listing.checkpoints:
        try:
            table.checkpoint(version, files)
        except TrilakeError as e:
            file = str(e.context.get("file") or files[0].key).removeprefix(f"{table.store.uri}/")
            failure = unreadable("delta.checkpoint-unreadable", e, file=file, version=version)
            help = "rewrite it (trilake.repair), or restore it from a backup if its commits are missing"
            yield replace(failure, help=help, column=None, repair=REWRITE)
    return len(table.listing.checkpoints)


def same_as_commits(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every checkpoint equals the replay of its commits."""
    files = dict(table.listing.checkpoints)
    looked_at = 0
    for version, true in table.states(list(files)):
        try:
            checkpoint = table.checkpoint(version, files[version])
        except TrilakeError:
            continue  # reported by another check
        looked_at += 1
        wrong = differences(checkpoint, true, table.engine.query, whole=True)
        if wrong:
            yield Finding(
                "delta.checkpoint-differs",
                f"the checkpoint differs from its commits: {'; '.join(wrong)[:600]}",
                "rewrite it from the commits (trilake.repair)",
                file=files[version][0].key,
                version=version,
                repair=REWRITE,
            )
    return looked_at


def complete(table: DeltaContext) -> Generator[Finding, None, int]:
    """A checkpoint in several parts has all of them."""
    sets: dict[tuple[int, int], set[int]] = {}
    for meta in table.store.list(LOG):
        if (m := _PART.fullmatch(meta.key)) and int(m[1]) <= table.version and meta.size:
            sets.setdefault((int(m[1]), int(m[3])), set()).add(int(m[2]))
    for (version, total), parts in sorted(sets.items()):
        if len(parts) != total:
            yield Finding(
                "delta.checkpoint-incomplete",
                f"the checkpoint has {len(parts):,} of its {total:,} parts; readers ignore it",
                "no action is needed: its writer died or is still running, and log cleanup deletes it",
                severity="warning",
                file=f"{LOG}/{version:020d}.checkpoint.*.{total:010d}.parquet",
                version=version,
            )
    return len(sets)


def hint(table: DeltaContext) -> Generator[Finding, None, int]:
    """``_last_checkpoint`` refers to an existing checkpoint, and describes it correctly."""
    try:
        data = bytes(table.store.read(LAST_CHECKPOINT))
    except ObjectNotFoundError:
        return 0
    hint_content = last_checkpoint.read_hint(data)
    wrong: list[str] = []
    version = None
    if hint_content is None:
        wrong.append("it is not a JSON object with a version, or its checksum is wrong")
    else:
        version = hint_content.version
        files = dict(table.everything.checkpoints).get(version)
        if files is None:
            wrong.append(f"there is no checkpoint of version {version}")
        else:
            segment = LogSegment(version, version, files, ())
            try:
                names = [k.rpartition("/")[2] for k in sidecar_keys(table.store, segment)]
                wrong += hint_content.differences(files, names, table.checkpoint(version, files).adds.num_rows)
            except TrilakeError:
                return 1  # another check reports the checkpoint
    if wrong:
        yield Finding(
            "delta.last-checkpoint-wrong",
            f"the hint at the newest checkpoint is wrong: {'; '.join(wrong)[:400]}",
            "rewrite the checkpoint and its hint (trilake.repair)",
            file=LAST_CHECKPOINT,
            version=version,
            repair=REWRITE,
        )
    return 1


def compactions_same(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every compaction file can be read and equals its commits."""
    for first, last, file in table.listing.compactions:
        mendable = DROP if table.has_commits(first, last) else None
        try:
            actions = parse_commits([(last, file.key, table.store.read(file.key))], table.engine.query)
            state = apply(empty_state(), actions)
        except TrilakeError as e:
            failure = unreadable("delta.compaction-differs", e, file=file.key, version=last)
            yield replace(failure, help=_DROP_HELP, column=None, repair=mendable, details={})
            continue
        if mendable is None:
            continue
        true = apply(empty_state(), table.actions(first, last))
        wrong = differences(state, true, table.engine.query, whole=False)
        if wrong:
            yield Finding(
                "delta.compaction-differs",
                f"the compaction file differs from its commits {first} to {last}: {'; '.join(wrong)[:600]}",
                _DROP_HELP,
                file=file.key,
                version=last,
                repair=mendable,
            )
    return len(table.listing.compactions)
