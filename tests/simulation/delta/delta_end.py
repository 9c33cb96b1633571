"""Streams and change feeds of the simulation's Delta table, and the checks at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.simulation.delta.delta_feature_ops import COPY
from tests.simulation.delta.delta_history import WEEK_MS, DeltaHistory
from tests.simulation.delta.delta_rows import SCHEMA, model
from tests.simulation.model import difference
from tests.simulation.world import Violation
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import plan_write
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask
from trilake.delta.standard import standard_engine
from trilake.delta.stream.offset import Limit
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.sink import commit_batch
from trilake.delta.stream.source import DeltaStream
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import ForeignFilesError, MissingFileError
from trilake.table.streams import BatchId

if TYPE_CHECKING:
    from collections.abc import Iterable


def run_stream(source: DeltaLog, sink: DeltaLog, kept: dict[str, Any], files: int) -> None:
    """Run micro-batches like Spark until nothing is left; ``kept`` is the state that survives a crash."""
    head = source.head()
    stream = DeltaStream(source, Reading(head.metadata, head.version), StreamOptions(skip_change_commits=True))
    offsets = kept.setdefault("offsets", [])
    while True:
        if kept.get("commits", 0) == len(offsets):
            start = offsets[-1][1] if offsets else stream.initial()
            end = stream.latest(start, Limit(files))
            if end == start and offsets:
                return
            offsets.append((start, end))
        number = len(offsets) - 1
        start, end = offsets[number]
        if number == 0:
            start = stream.initial()
        batch = stream.batch(start, end)
        rows = [b for t in batch.tasks if isinstance(t, FileTask) for b in read_task(source.store, t, batch.plan)]
        table = pa.Table.from_batches(rows).select(SCHEMA.names) if rows else SCHEMA.empty_table()
        plan = plan_write(sink, WriteRequest("append", from_arrow(SCHEMA)))
        parts = [write_files(sink.store, plan.files, table.to_batches(), tasks=1)]
        commit_batch(sink, plan, BatchId("query", number), parts)
        kept["commits"] = number + 1


def check_feed(history: DeltaHistory, table: ArrowDeltaTable, start: int, end: int) -> None:
    """Check that the change feed equals the difference of snapshots."""
    changes: Iterable[dict[str, Any]] = table.changes(start, end).to_pylist()
    by_version: dict[int, list[dict[str, Any]]] = {}
    for change in changes:
        by_version.setdefault(change["_commit_version"], []).append(change)
    for version in range(start, end + 1):
        rows = dict(history.versions[version - 1].rows) if version else {}
        ordered = sorted(
            by_version.get(version, []), key=lambda c: c["_change_type"] not in ("delete", "update_preimage")
        )
        for change in ordered:
            id, row = change["id"], (change["k"], change["v"])
            if change["_change_type"] in ("delete", "update_preimage"):
                if rows.pop(id, None) != row:
                    raise Violation(f"the change feed of version {version} takes away {id}: {row}, which was not there")
            elif id in rows:
                raise Violation(f"the change feed of version {version} brings {id}, which is there")
            else:
                rows[id] = row
        if rows != history.versions[version].rows:
            raise Violation(f"the change feed of version {version}: {difference(history.versions[version].rows, rows)}")


def check_end(history: DeltaHistory) -> None:
    """Check at the end that the library's replay, with and without checkpoints, equals the history."""
    world = history.world
    world.now += 1000
    store = world.place("t")
    log = DeltaLog(store, standard_engine())
    snapshot = log.snapshot()
    newest = history.versions[-1]
    if snapshot.version != history.newest:
        raise Violation(f"the newest version is {history.newest}, and {snapshot.version} is shown")
    live = sorted(path for path, _ in newest.live)
    paths = sorted(snapshot.adds["path"].to_pylist())
    if [unquoted(p) for p in paths] != live:
        raise Violation(f"checkpoint and commits show the files {paths}, replay has {live}")
    table = ArrowDeltaTable(store, standard_engine())
    found = model(table.to_arrow())
    if found != newest.rows:
        raise Violation(f"the newest version as read at the end: {difference(newest.rows, found)}")
    oldest = max(history.cleaned, history.newest - 3)
    for version in range(oldest, history.newest):
        if world.now - history.current_since(version) < WEEK_MS:
            found = model(ArrowDeltaTable(store, standard_engine(), version=version).to_arrow())
            if found != history.versions[version].rows:
                raise Violation(
                    f"version {version} as read at the end: {difference(history.versions[version].rows, found)}"
                )
            break
    dropped = any(o.kind == "drop" for o in history.ops.values())
    if world.plan.options.get("delta.enableChangeDataFeed") and not history.cleaned and not dropped:
        # Files removed by a version, and its change files, are kept for a week after it.
        recent = [v for v, made in enumerate(history.versions) if world.now - made.time < WEEK_MS]
        if recent:
            check_feed(history, table, recent[0], history.newest)
    _check_stream(history)
    _check_copy(history)


def _check_copy(history: DeltaHistory) -> None:
    """Check that the last clone equals its source."""
    log = DeltaLog(history.world.place(COPY), standard_engine())
    if not log.exists():
        return
    infos = (log.commit_info(version) for version in range(log.head().version, -1, -1))
    source = next(int(i["operationParameters"]["sourceVersion"]) for i in infos if i["operation"] == "CLONE")
    try:
        found = model(ArrowDeltaTable(history.world.place(COPY), standard_engine()).to_arrow())
    except MissingFileError:
        if any(o.kind == "reclone" and o.args[1] % 4 == 0 for o in history.ops.values()):
            return  # a shallow clone names files that its source may have removed long ago
        raise
    if found != history.versions[source].rows:
        raise Violation(f"the copy of version {source}: {difference(history.versions[source].rows, found)}")


def unquoted(path: str) -> str:
    """Return a path of the log as a key."""
    from urllib.parse import unquote

    return unquote(path)


def _check_stream(history: DeltaHistory) -> None:
    """Check that the sink has every row of the stream once."""
    world = history.world
    kinds = {o.kind for o in world.plan.ops.values()}
    away = {"days", "column", "narrow", "drop", "rename", "bigger", "replace", "feature", "constraint", "unconstrain"}
    if "stream" not in world.plan.options or kinds & away:
        return
    source = DeltaLog(world.place("t"), standard_engine())
    sink = DeltaLog(world.place("s"), standard_engine())
    kept = world.actors[-1].kept
    try:
        run_stream(source, sink, kept, int(world.plan.options["stream"]))
    except ForeignFilesError:
        if sink.exists():
            raise
        return  # the first batch died long ago and left files, which the next one rejects as foreign
    first = kept["offsets"][0][0]
    expected = Counter(history.versions[first.reservoir_version].rows.items())
    for number in range(first.reservoir_version + 1, len(history.versions)):
        version = history.versions[number]
        changed = [a for a in version.removes if a["dataChange"]]
        if not changed and any(a["dataChange"] for a in version.adds):
            # A row that was deleted and restored is new again for a stream that skips deletes.
            before = history.versions[number - 1].rows
            expected.update((i, r) for i, r in version.rows.items() if i not in before)
    table = ArrowDeltaTable(world.place("s"), standard_engine()).to_arrow()
    ids, ks, vs = (table[n].to_pylist() for n in ("id", "k", "v"))
    found = Counter(zip(ids, zip(ks, vs, strict=True), strict=True))
    if found != expected:
        raise Violation(f"the stream lacks {dict(expected - found)} and has too many of {dict(found - expected)}")
