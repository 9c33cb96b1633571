"""Checks of the log's files: commits, checkpoints, compaction files and checksums."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.text import plural
from trilake.delta.log import last_checkpoint
from trilake.delta.log.checkpoint import sidecar_keys
from trilake.delta.log.checksum import VersionChecksum, differences_of
from trilake.delta.log.segment import LAST_CHECKPOINT, LOG, LogSegment, commit_key
from trilake.delta.log.snapshot import State, apply, apply_rare, empty_state, file_keys
from trilake.delta.protocol.actions import EMPTY_BATCH, Metadata, parse_commits
from trilake.delta.protocol.partitions import PartitionKeys, partition_fields
from trilake.delta.scan.statistics import record_counts
from trilake.delta.verify.context import DeltaContext
from trilake.errors import CorruptLogError, ObjectNotFoundError, TrilakeError
from trilake.expr.terms.engine import Query
from trilake.table.findings import Finding, NotCheckedError, unreadable

#: The repair step that drops the newest versions with torn commit files.
DROP_TORN = "delta.drop-torn-commits"


def no_gap(table: DeltaContext) -> Generator[Finding, None, int]:
    """The versions in the log are contiguous."""
    versions = sorted(table.listing.commits)
    for before, after in pairwise(versions):
        if after == before + 1:
            continue
        missing = after - before - 1
        readable = min((v for v, _ in table.listing.checkpoints if v >= after - 1), default=None)
        what = f"version {before + 1} is" if missing == 1 else f"versions {before + 1} to {after - 1} are"
        yield Finding(
            "delta.log-gap",
            f"the {'commit' if missing == 1 else 'commits'} of {what} missing"
            + (
                ""
                if readable is None
                else f"; versions {readable} to {table.version} can be read from the checkpoint of version"
                f" {readable}, but versions {before + 1} to {readable - 1} cannot be read"
            ),
            "restore the missing commit files from a backup"
            + ("" if readable is None else "; the newest version can be read without them"),
            severity="error" if readable is None else "warning",
            file=commit_key(before + 1),
            version=before + 1,
        )
    return len(versions)


def torn_commits(table: DeltaContext) -> list[int]:
    """The newest versions with unreadable commits, if no other file holds them and the version before is intact."""
    _ = table.batch
    first = table.version + 1
    while isinstance(table.bad_commits.get(first - 1), CorruptLogError):
        first -= 1
    newer = [v for v, _ in table.everything.checkpoints if v >= first]
    if not 0 < first <= table.version or newer or table.version != max(table.everything.commits):
        return []

    def is_readable(version: int) -> bool:
        try:
            table.log.snapshot(version)
        except TrilakeError:
            return False
        return True

    torn = not is_readable(table.version) and is_readable(first - 1)
    return list(range(first, table.version + 1)) if torn else []


def commits_readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every line of every commit is a JSON object with an action."""
    torn = torn_commits(table)
    for version, error in sorted(table.bad_commits.items()):
        finding = unreadable("delta.commit-unreadable", error, file=commit_key(version), version=version)
        if version in torn:
            finding = replace(finding, repair=DROP_TORN, help=_torn_help(torn))
        yield finding
    return len(table.listing.commits)


def version_readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Readers can reconstruct the version from the log."""
    try:
        _ = table.snapshot
    except NotCheckedError:
        if table.snapshot_error is None:
            raise
    error = table.snapshot_error
    if error is not None:
        torn = torn_commits(table)
        finding = unreadable("delta.version-unreadable", error)
        if isinstance(error.context.get("version"), int) and error.context["version"] in table.bad_commits:
            message = (
                f"version {table.version} needs the commit of version {error.context['version']}, which is damaged"
            )
            finding = replace(finding, message=message, version=table.version)
        yield replace(finding, repair=DROP_TORN, help=_torn_help(torn)) if torn else finding
    return 1


def _torn_help(torn: Sequence[int]) -> str:
    return (
        f"restore the file from a backup; version {torn[0] - 1} can be read; or drop newer versions (trilake.repair"
        " with accept_loss)"
    )


# --- checkpoints and compaction files --------------------------------------------------------------------------------

_PART = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.(\d{{10}})\.(\d{{10}})\.parquet")
#: The repair step that rewrites a checkpoint.
REWRITE_CHECKPOINT = "delta.rewrite-checkpoint"
#: The repair step that removes a compaction file.
DROP_COMPACTION = "delta.drop-compaction"
_COMPACTION_HELP = "delete the file (trilake.repair): its commits have all actions"


def checkpoints_readable(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every checkpoint can be read."""
    for version, files in table.listing.checkpoints:
        try:
            table.checkpoint(version, files)
        except TrilakeError as e:
            file = str(e.context.get("file") or files[0].key).removeprefix(f"{table.store.uri}/")
            failure = unreadable("delta.checkpoint-unreadable", e, file=file, version=version)
            help = "rewrite it (trilake.repair), or restore it from a backup if its commits are missing"
            yield replace(failure, help=help, column=None, repair=REWRITE_CHECKPOINT)
    return len(table.listing.checkpoints)


def checkpoints_same(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every checkpoint equals the replay of its commits."""
    files = dict(table.listing.checkpoints)
    looked_at = 0
    for version, true in table.states(list(files)):
        try:
            checkpoint = table.checkpoint(version, files[version])
        except TrilakeError:
            continue  # reported by another check
        looked_at += 1
        wrong = state_differences(checkpoint, true, table.engine.query, whole=True)
        if wrong:
            yield Finding(
                "delta.checkpoint-differs",
                f"the checkpoint differs from its commits: {'; '.join(wrong)[:600]}",
                "rewrite it from the commits (trilake.repair)",
                file=files[version][0].key,
                version=version,
                repair=REWRITE_CHECKPOINT,
            )
    return looked_at


def parts_complete(table: DeltaContext) -> Generator[Finding, None, int]:
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
            wrong.append(f"the checkpoint of version {version} does not exist")
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
            f"_last_checkpoint is wrong: {'; '.join(wrong)[:400]}",
            "rewrite the checkpoint and _last_checkpoint (trilake.repair)",
            file=LAST_CHECKPOINT,
            version=version,
            repair=REWRITE_CHECKPOINT,
        )
    return 1


def compactions_same(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every compaction file can be read and equals its commits."""
    for first, last, file in table.listing.compactions:
        mendable = DROP_COMPACTION if table.has_commits(first, last) else None
        try:
            actions = parse_commits([(last, file.key, table.store.read(file.key))], table.engine.query)
            state = apply(empty_state(), actions)
        except TrilakeError as e:
            failure = unreadable("delta.compaction-differs", e, file=file.key, version=last)
            yield replace(failure, help=_COMPACTION_HELP, column=None, repair=mendable, details={})
            continue
        if mendable is None:
            continue
        true = apply(empty_state(), table.actions(first, last))
        wrong = state_differences(state, true, table.engine.query, whole=False)
        if wrong:
            message = f"the compaction file differs from its commits {first} to {last}: {'; '.join(wrong)[:600]}"
            yield Finding(
                "delta.compaction-differs", message, _COMPACTION_HELP, file=file.key, version=last, repair=mendable
            )
    return len(table.listing.compactions)


# --- compare two states: that of a checkpoint or compaction file, and that of the commits ----------------------------

#: Fields of a file action that never change.
_LASTING = ("size", "modificationTime", "baseRowId", "defaultRowCommitVersion")
_NAMED_AT_MOST = 3


def state_differences(stated: State, true: State, query: Query, *, whole: bool) -> list[str]:
    """Where ``stated`` differs from ``true``; empty if they agree.

    A ``whole`` history, such as a checkpoint, may omit expired tombstones and transactions; a run of commits may not.
    """
    out = _different_files(stated.adds, true.adds, true.metadata, query)
    if whole:
        lost = _missing_keys(stated.removes, true.removes)
        out += [f"tombstones that are in no commit ({len(lost)}), such as {_examples(lost)}"] if len(lost) else []
    else:
        out += _different_keys(stated.removes, true.removes, "tombstones")
    if (stated.protocol and stated.protocol.unordered) != (true.protocol and true.protocol.unordered):
        out.append("different protocol")
    if (stated.metadata and stated.metadata.to_json()) != (true.metadata and true.metadata.to_json()):
        out.append("different metadata")
    out += _different_entries(stated.txns, true.txns, "version", "transactions", whole)
    out += _different_entries(stated.domains, true.domains, "configuration", "metadata domains", False)
    return out


def _different_entries(
    stated: Mapping[str, Mapping[str, Any]], true: Mapping[str, Mapping[str, Any]], field: str, what: str, expire: bool
) -> list[str]:
    stated_values, true_values = ({k: v.get(field) for k, v in m.items()} for m in (stated, true))
    if expire:
        true_values = {k: v for k, v in true_values.items() if k in stated_values}
    wrong = sorted(
        k
        for k in stated_values.keys() | true_values.keys()
        if stated_values.get(k) != true_values.get(k) or (k in stated_values) != (k in true_values)
    )
    return [f"different {what}: {', '.join(wrong[:_NAMED_AT_MOST])}"] if wrong else []


def _missing_keys(a: pa.Table, b: pa.Table) -> pa.ChunkedArray:
    keys = file_keys(a)
    return keys.filter(pc.invert(pc.is_in(keys, pc.unique(file_keys(b)))))


def _examples(keys: pa.ChunkedArray) -> str:
    return ", ".join(k.partition("\x00")[0] for k in keys.slice(0, _NAMED_AT_MOST).to_pylist())


def _different_keys(stated: pa.Table, true: pa.Table, what: str) -> list[str]:
    out = []
    for keys, how in ((_missing_keys(true, stated), "lacks"), (_missing_keys(stated, true), "has too many")):
        if len(keys):
            out.append(f"it {how}: {len(keys):,} {what}, such as {_examples(keys)}")
    return out


def _different_files(stated: pa.Table, true: pa.Table, metadata: Metadata | None, query: Query) -> list[str]:
    out = _different_keys(stated, true, "files")
    if stated.num_rows != len(pc.unique(file_keys(stated))):
        out.append("it lists files twice")
    # Both states of the same files, row by row.
    at = pc.index_in(file_keys(stated), pc.unique(file_keys(true)))
    both = pc.is_valid(at)
    stated_files, true_files = stated.filter(both), true.take(at.filter(both)) if true.num_rows else true.slice(0, 0)
    for name in _LASTING:
        out += _different_values(stated_files[name], true_files[name], name)
    for name in ("sizeInBytes", "cardinality"):
        vectors = [pc.struct_field(t["deletionVector"], name) for t in (stated_files, true_files)]
        out += _different_values(vectors[0], vectors[1], f"deletionVector.{name}")
    if metadata is not None:
        out += _different_partitions(stated_files, true_files, metadata)
    counts = record_counts(stated_files, query), record_counts(true_files, query)
    in_both = pc.and_(pc.is_valid(counts[0]), pc.is_valid(counts[1]))
    return out + _different_values(counts[0].filter(in_both), counts[1].filter(in_both), "numRecords")


def _different_values(a: pa.ChunkedArray, b: pa.ChunkedArray, name: str) -> list[str]:
    same = pc.fill_null(pc.equal(a, b), False)
    same = pc.or_(same, pc.and_(pc.is_null(a), pc.is_null(b)))
    wrong = len(same) - int(pc.sum(same).as_py() or 0)
    return [f"{name} differs in {plural(wrong, 'file')}"] if wrong else []


def _different_partitions(stated: pa.Table, true: pa.Table, metadata: Metadata) -> list[str]:
    pair = stated["partitionValues"], true["partitionValues"]
    maps = pa.chunked_array([c for v in pair for c in v.chunks], pair[0].type)
    try:
        codes = PartitionKeys.of(maps, partition_fields(metadata.schema, metadata.partition_columns)).codes
    except CorruptLogError:
        return []  # another check reports it
    wrong = int((codes[: stated.num_rows] != codes[stated.num_rows :]).sum())
    return [f"partitionValues differ in {plural(wrong, 'file')}"] if wrong else []


# --- version checksum files (``N.crc``) ------------------------------------------------------------------------------

#: The repair step that removes a checksum file.
DROP_CHECKSUM = "delta.drop-checksum"
_CHECKSUM_HELP = "delete the file: no reader needs it (trilake.repair)"
_TOTALS = ("numFiles", "tableSizeBytes", "numDeletionVectorsOpt", "numDeletedRecordsOpt")


def checksums_same(table: DeltaContext) -> Generator[Finding, None, int]:
    """Every checksum file can be read and matches the log."""
    start, at = table.origin
    versions = sorted(v for v in table.listing.checksums if v >= at)
    totals = _totals(table, start, at) if versions else {}
    state, reached = start, at
    for version in versions:
        rare = tuple(r for r in table.batch.rare if reached < r[0] <= version and r[1] != "commitInfo")
        state, reached = apply_rare(state, replace(EMPTY_BATCH, rare=rare)), version
        wrong = _wrong_in_checksum(table, version, state, _at(totals, version))
        if wrong:
            yield Finding(
                "delta.checksum-differs",
                f"the checksum file differs from the log: {'; '.join(wrong)[:600]}",
                _CHECKSUM_HELP,
                file=table.listing.checksums[version].key,
                version=version,
                repair=DROP_CHECKSUM,
            )
    return len(versions)


def _wrong_in_checksum(table: DeltaContext, version: int, state: State, totals: Mapping[str, int]) -> list[str]:
    try:
        data = bytes(table.store.read(table.listing.checksums[version].key))
        checksum = VersionChecksum.from_json(data, version=version)
    except ObjectNotFoundError:
        return []  # cleaned up concurrently
    except CorruptLogError as e:
        return [e.message]
    return differences_of(checksum, state, totals)


def _totals(table: DeltaContext, start: State, at: int) -> dict[str, npt.NDArray[np.int64]]:
    """The file totals of each version, in one pass over all actions: running sums."""
    batch = table.batch
    parts = [_moves(start.adds, 1, at)] if start.adds.num_rows else []
    parts += [_moves(t, kind, None) for t, kind in ((batch.add, 1), (batch.remove, 0)) if t.num_rows]
    if not parts:
        return {}
    moves = pa.concat_tables(parts)
    moves = moves.filter(pc.or_(pc.greater(moves["v"], at), pc.equal(moves["o"], -1)))
    # An action changes a total by the new size of its file minus the size in the previous action for this file.
    change = ", ".join(f"sum(k * {c} - coalesce(pk * p{c}, 0))::bigint as {c}" for c in ("n", "b", "d", "c"))
    before = ", ".join(f"lag({c}) over w as p{c}" for c in ("k", "n", "b", "d", "c"))
    changes = table.log.engine.query(
        f"select v, {change} from (select v, k, n, b, d, c, {before} from moves"
        " window w as (partition by f order by o)) group by v order by v",
        moves=moves,
    )
    sums = {name: np.cumsum(changes[c].to_numpy()) for name, c in zip(_TOTALS, ("n", "b", "d", "c"), strict=True)}
    return {"versions": changes["v"].to_numpy(), **sums}


def _moves(files: pa.Table, kind: int, at: int | None) -> pa.Table:
    rows = files.num_rows
    vectors = files["deletionVector"]
    return pa.table(
        {
            "f": file_keys(files),
            "v": files["version"] if at is None else pa.array(np.full(rows, at)),
            "o": files["order"] if at is None else pa.array(np.full(rows, -1)),
            "k": pa.array(np.full(rows, kind)),
            "n": pa.array(np.ones(rows, np.int64)),
            "b": pc.fill_null(files["size"], 0),
            "d": pc.is_valid(vectors).cast(pa.int64()),
            "c": pc.fill_null(pc.struct_field(vectors, "cardinality"), 0),
        }
    )


def _at(totals: Mapping[str, npt.NDArray[np.int64]], version: int) -> dict[str, int]:
    if not totals:
        return dict.fromkeys(_TOTALS, 0)
    number = int(np.searchsorted(totals["versions"], version, side="right")) - 1
    return {name: int(totals[name][number]) if number >= 0 else 0 for name in _TOTALS}
