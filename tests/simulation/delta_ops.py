"""The operations of the simulation on a Delta table, through the library's own commands."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.runtimes import runtime_in_ms
from tests.simulation.delta_history import WEEK_MS, DeltaHistory
from tests.simulation.model import Rows, difference, new_rows, source_rows
from tests.simulation.plan import Op
from tests.simulation.store import SimStore
from tests.simulation.world import DAY_MS, HOUR_MS, Actor, Violation, World
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import plan_write, write_arrow
from trilake.delta.files.write_files import write_files
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.scan.read import read_task
from trilake.delta.scan.scan import FileTask
from trilake.delta.stream.errors import StreamDataLossError, StreamSchemaChangedError
from trilake.delta.stream.offset import Limit
from trilake.delta.stream.options import StreamOptions
from trilake.delta.stream.schema import Reading
from trilake.delta.stream.sink import BatchId, commit_batch
from trilake.delta.stream.source import DeltaStream
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine
from trilake.errors import (
    ClockError,
    ConflictError,
    ForeignFilesError,
    InvalidArgumentError,
    MissingFileError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
    TrilakeError,
    VersionNotFoundError,
)
from trilake.runtime import Runtime
from trilake.storage.base import Store

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("p", pa.string()), ("v", pa.string())])


def arrow(rows: Rows) -> pa.Table:
    """Rows of the model as a table."""
    columns = {
        "id": list(rows),
        "k": [k for k, _ in rows.values()],
        "p": [str(k % 2) for k, _ in rows.values()],
        "v": [v for _, v in rows.values()],
    }
    return pa.table(columns, schema=SCHEMA)


def model(table: pa.Table) -> Rows:
    """A table as rows of the model; a row that comes twice is a broken promise."""
    columns = [table[n].to_pylist() for n in ("id", "k", "v")]
    found = {i: (k, v) for i, k, v in zip(*columns, strict=True)}
    if len(found) < table.num_rows:
        raise Violation("a row was read twice")
    return found


def runtime_of(actor: Actor) -> Runtime:
    """What the process of an actor takes from the world."""
    return Runtime(actor.clock_ns, actor.new_id, actor.sleep)


def begin(world: World) -> None:
    """Make the table of a plan, before anybody is at work."""
    options = {k: v for k, v in world.plan.options.items() if "." in k}
    request = WriteRequest(
        "error",
        from_arrow(SCHEMA),
        partition_by=("p",) if "partitioned" in world.plan.options else None,
        properties=options,
    )
    runtime = runtime_in_ms(lambda: world.now, lambda: f"00000000-0000-4000-8000-{world.rng.getrandbits(48):012x}")
    store = Watched(world)
    log = DeltaLog(store, standard_engine(runtime=runtime))
    write_arrow(log, SCHEMA, arrow({1: (0, "v0"), 2: (1, "v0"), 3: (2, "v0")}).to_batches(), request)
    world.now += int(world.plan.options.get("aged", 0)) * DAY_MS


class Watched(SimStore):
    """The store before anybody is at work: every call succeeds at once."""

    def __init__(self, world: World) -> None:
        self.world, self.inner, self.place = world, world.place("t"), "t"
        self.uri, self.options = self.inner.uri, self.inner.options

    def list(self, prefix: str = "", start_after: str | None = None) -> Any:
        return self.inner.list(prefix, start_after)

    def _write(self, op: str, key: str, call: Any) -> None:
        call()
        self.world.file_times["t", key] = self.world.now
        self.world.history.wrote("t", key, -1)

    def _do(self, op: str, keys: Any, call: Any, late: Any = None) -> Any:
        return call()


class DeltaOps:
    """Does an operation for an actor."""

    def __init__(self) -> None:
        self.world: World | None = None

    def __call__(self, actor: Actor, op: Op) -> Any:
        return Job(actor, op).run()


class Job:
    """One operation of one actor."""

    def __init__(self, actor: Actor, op: Op) -> None:
        self.actor, self.op, self.world = actor, op, actor.world
        self.history: DeltaHistory = actor.world.history
        self.engine = standard_engine(runtime=runtime_of(actor))

    def run(self) -> Any:
        began, faults = self.history.newest, self.actor.faults
        steps = self.world.steps
        try:
            return getattr(self, "_" + self.op.kind)()
        except TrilakeError as e:
            if self.actor.faults == faults:
                self._explained(e, began, steps)
            raise

    def _explained(self, e: TrilakeError, began: int, steps: int) -> None:
        """Raise where nothing that happened explains an error."""
        kind = self.op.kind
        changed = {n for v in self.history.versions[began + 1 :] for n, _ in v.actions}
        if isinstance(e, SchemaMismatchError) and kind == "narrow" and "metaData" in changed:
            return  # the column that it has seen is not there any more
        if isinstance(e, ConflictError) and self.history.newest > began:
            if kind == "append" and not changed & {"metaData", "protocol"}:
                raise Violation(f"an append conflicts with {sorted(changed)}: {e}") from e
            return
        if isinstance(e, ConflictError) and kind in ("clone", "shallow", "stream"):
            return
        if isinstance(e, ClockError) and self.actor.most_skew_ms > 5 * 60_000:
            return
        if isinstance(e, VersionNotFoundError) and (self.history.cleaned_at >= steps or self._asked_for_the_past(e)):
            return
        if isinstance(e, MissingFileError) and kind in ("restore", "shallow"):
            return
        if isinstance(e, InvalidArgumentError) and kind in ("restore", "drop", "column", "narrow", "property"):
            return
        if isinstance(e, ForeignFilesError) and kind == "stream":
            return  # the first batch died long ago and left files
        if isinstance(e, TableExistsError) and kind in ("clone", "shallow"):
            return
        if kind == "drop" or isinstance(e, StreamSchemaChangedError | StreamDataLossError):
            return
        raise Violation(f"{type(e).__name__} without a reason: {e}") from e

    def _asked_for_the_past(self, e: TrilakeError) -> bool:
        return self.history.cleaned > 0 and self.op.kind in ("restore", "travel", "changes", "lite", "compact")

    # --- tables ---

    def store(self, place: str = "t") -> SimStore:
        return SimStore(self.world.place(place), self.actor, place)

    def log(self, store: Store | None = None) -> DeltaLog:
        return DeltaLog(store or self.store(), self.engine, user_metadata=f"op:{self.op.number}")

    def table(self, version: int | None = None) -> ArrowDeltaTable:
        """The table, at times a handle of an earlier operation of the same process."""
        old = self.actor.memory.get("table")
        if version is None and old is not None and self.op.args[1] % 2:
            old.log = self.log()
            return old
        found = ArrowDeltaTable(self.store(), self.engine, version=version, user_metadata=f"op:{self.op.number}")
        if version is None:
            self.actor.memory["table"] = found
        return found

    def _write(self, rows: Rows, mode: Any, **how: Any) -> int | None:
        request = WriteRequest(mode, from_arrow(SCHEMA), **how)
        return write_arrow(self.log(), SCHEMA, arrow(rows).to_batches(), request).version

    # --- rows ---

    def _append(self) -> int | None:
        return self._write(new_rows(self.op), "append")

    def _overwrite(self) -> int | None:
        return self._write(new_rows(self.op), "overwrite")

    def _dynamic(self) -> int | None:
        if "partitioned" not in self.world.plan.options:
            rows = new_rows(self.op)
            parts = sorted({str(k % 2) for k, _ in rows.values()})
            return self._write(rows, "overwrite", replace_where=f"p in ({', '.join(map(repr, parts))})")
        return self._write(new_rows(self.op), "overwrite", partition_overwrite="dynamic")

    def _where(self) -> int | None:
        key = self.op.args[0]
        rows = {i: (key, v) for i, (_, v) in new_rows(self.op).items()}
        return self._write(rows, "overwrite", replace_where=f"k = {key} and p = '{key % 2}'")

    def _delete(self) -> int | None:
        return self.table().delete(f"k = {self.op.args[0]}").version

    def _update(self) -> int | None:
        return self.table().update({"v": f"'u{self.op.number}'"}, f"k = {self.op.args[0]}").version

    def _merge(self) -> int | None:
        merge = self.table().merge(arrow(source_rows(self.op)), "t.k = s.k", source_alias="s", target_alias="t")
        columns = {n: f"s.{n}" for n in SCHEMA.names}
        done = merge.when_matched_update({"v": "s.v"}).when_not_matched_insert(columns).execute()
        return done.version

    def _insert(self) -> int | None:
        merge = self.table().merge(arrow(source_rows(self.op)), "t.k = s.k", source_alias="s", target_alias="t")
        return merge.when_not_matched_insert({n: f"s.{n}" for n in SCHEMA.names}).execute().version

    def _batch(self) -> None:
        """A batch of a query that two processes run, after those before it."""
        batches = {op.args[0]: op for op in self.history.ops.values() if op.kind == "batch"}
        for number in range(self.op.args[0] + 1):
            op = batches[number]
            log = DeltaLog(self.store(), self.engine, user_metadata=f"op:{op.number}")
            plan = plan_write(log, WriteRequest("append", from_arrow(SCHEMA)))
            rows = arrow(new_rows(op)).to_batches()
            parts = [write_files(log.store, plan.files, rows, tasks=1, runtime=self.engine.runtime)]
            commit_batch(log, plan, BatchId("query", number), parts)

    def _restore(self) -> int | None:
        table = self.table()
        back = 1 + self.op.args[1] % 3
        return table.restore(max(0, self.history.newest - back)).version

    # --- files and log ---

    def _optimize(self) -> None:
        self.table().optimize(zorder_by=("k",) if self.op.args[1] % 4 == 0 else ())

    def _purge(self) -> None:
        self.table().purge()

    def _vacuum(self) -> None:
        self.table().vacuum()

    def _lite(self) -> None:
        self.table().vacuum(lite=True)

    def _checkpoint(self) -> None:
        log = self.log()
        write_checkpoint(log, log.opened(), self.engine.runtime)

    def _cleanup(self) -> None:
        cleanup_log(self.log(), self.engine.runtime)

    def _compact(self) -> None:
        log = self.log()
        newest = log.head().version
        if newest >= 2:
            start = max(0, newest - 1 - self.op.args[0])
            compact_log(log, start, newest)

    # --- schema and protocol ---

    def _column(self) -> int:
        return Alter(self.log()).add_columns({f"c{self.op.number}": "int"})

    def _narrow(self) -> int | None:
        """Drop a column that somebody has added, where columns are mapped by name; its files keep it until a purge."""
        log = self.log()
        extra = [f.name for f in log.head().metadata.schema.fields if f.name not in SCHEMA.names]
        if not extra or "delta.columnMapping.mode" not in self.world.plan.options:
            return None
        return Alter(log).drop_columns(extra[0])

    def _property(self) -> int:
        return Alter(self.log()).set_properties({"note": f"#{self.op.number}"})

    def _drop(self) -> int:
        feature = ("deletionVectors", "rowTracking", "inCommitTimestamp", "changeDataFeed")[self.op.args[0]]
        return Alter(self.log()).drop_feature(feature)

    # --- copies ---

    def _clone(self, *, shallow: bool = False) -> None:
        log = self.log()
        source = log.snapshot()
        place = f"clone{self.op.number}"
        into = DeltaLog(self.store(place), self.engine)
        if shallow:
            # What a shallow clone names belongs to the source, whose vacuum does not know it: it is read at once.
            clone(source, log, into, shallow=True)
        else:
            clone(source, log, into)
        found = model(ArrowDeltaTable(self.store(place), self.engine).to_arrow())
        expected = self.history.versions[source.version].rows
        if found != expected:
            raise Violation(f"the clone of version {source.version}: {difference(expected, found)}")

    def _shallow(self) -> None:
        self._clone(shallow=True)

    # --- readers ---

    def _same(self, version: int, found: Rows) -> None:
        expected = self.history.versions[version].rows
        if found != expected:
            raise Violation(f"version {version} as read: {difference(expected, found)}")

    def _read(self) -> None:
        table = self.table()
        table = table.refresh() if self.op.args[1] % 3 == 0 else table
        self._read_at(table)

    def _read_at(self, table: ArrowDeltaTable) -> None:
        version = table.version
        try:
            if self.op.args[0] == 0:
                key = self.op.args[1] % 4
                found = model(table.to_arrow(filter=f"k = {key}"))
                expected = {i: r for i, r in self.history.versions[version].rows.items() if r[0] == key}
                if found != expected:
                    raise Violation(f"version {version} where k = {key}: {difference(expected, found)}")
            elif self.op.args[0] == 1:
                count = table.count()
                if count != len(self.history.versions[version].rows):
                    raise Violation(f"version {version} counts {count} rows")
            else:
                self._same(version, model(table.to_arrow()))
        except MissingFileError:
            if self.world.now - self.history.current_since(version) < WEEK_MS:
                raise Violation(f"version {version}, which the retention protects, lost files") from None
            raise StorageError("the version is older than the retention") from None

    def _travel(self) -> None:
        version = max(0, self.history.newest - 1 - self.op.args[1] % 4)
        try:
            self._read_at(self.table(version))
        except StorageError as e:
            if "older than the retention" not in str(e):
                raise

    def _changes(self) -> None:
        feed_on = self.world.plan.options.get("delta.enableChangeDataFeed")
        if feed_on and self.history.cleaned == 0 and not self._dropped("changeDataFeed"):
            newest = self.history.newest
            check_feed(self.history, ArrowDeltaTable(self.store(), self.engine), max(0, newest - 2), newest)

    def _dropped(self, feature: str) -> bool:
        return any(o.kind == "drop" for o in self.history.ops.values())

    # --- time ---

    def _days(self) -> None:
        self.world.now += (8 if self.op.args[0] < 2 else 32) * DAY_MS
        for actor in self.world.actors:
            actor.memory.clear()  # a handle of days ago may show versions that are gone

    def _hours(self) -> None:
        self.world.now += (1 + self.op.args[0] * 4) * HOUR_MS

    # --- streams ---

    def _stream(self) -> None:
        run_stream(self.log(), self.log(self.store("s")), self.actor.kept, int(self.world.plan.options["stream"]))


def run_stream(source: DeltaLog, sink: DeltaLog, kept: dict[str, Any], files: int) -> None:
    """Micro-batches as Spark runs them until nothing is left; ``kept`` is what survives a crash."""
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
        parts = [write_files(sink.store, plan.files, table.to_batches(), tasks=1, runtime=sink.engine.runtime)]
        commit_batch(sink, plan, BatchId("query", number), parts)
        kept["commits"] = number + 1


def check_feed(history: DeltaHistory, table: ArrowDeltaTable, start: int, end: int) -> None:
    """The change feed is the difference of snapshots."""
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
    """When all is quiet: the library's replay, with and without checkpoints, is the history's."""
    world = history.world
    world.now += 1000
    store = world.place("t")
    log = DeltaLog(store, standard_engine())
    snapshot = log.snapshot()
    newest = history.versions[-1]
    if snapshot.version != history.newest:
        raise Violation(f"the newest version is {history.newest}, and {snapshot.version} is shown")
    live = sorted(path for path, _ in newest.live)
    shown = sorted(snapshot.adds["path"].to_pylist())
    if [unquoted(p) for p in shown] != live:
        raise Violation(f"checkpoint and commits show the files {shown}, replay has {live}")
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
        # The files that a version has taken away, and those of its changes, are kept for a week from itself on.
        recent = [v for v, made in enumerate(history.versions) if world.now - made.time < WEEK_MS]
        if recent:
            check_feed(history, table, recent[0], history.newest)
    _check_stream(history)


def unquoted(path: str) -> str:
    """A path of the log as a key."""
    from urllib.parse import unquote

    return unquote(path)


def _check_stream(history: DeltaHistory) -> None:
    """The sink has every row that the stream promises, once."""
    world = history.world
    kinds = {o.kind for o in world.plan.ops.values()}
    if "stream" not in world.plan.options or kinds & {"days", "column", "narrow", "drop"}:
        return
    source = DeltaLog(world.place("t"), standard_engine())
    sink = DeltaLog(world.place("s"), standard_engine())
    kept = world.actors[-1].kept
    try:
        run_stream(source, sink, kept, int(world.plan.options["stream"]))
    except ForeignFilesError:
        if sink.exists():
            raise
        return  # the first batch died long ago and left files, which the next does not take for its own
    first = kept["offsets"][0][0]
    expected = Counter(history.versions[first.reservoir_version].rows.items())
    for number in range(first.reservoir_version + 1, len(history.versions)):
        version = history.versions[number]
        changed = [a for a in version.removes if a["dataChange"]]
        if not changed and any(a["dataChange"] for a in version.adds):
            # A row that a delete took and a restore brought back is new again to who passes deletes over.
            before = history.versions[number - 1].rows
            expected.update((i, r) for i, r in version.rows.items() if i not in before)
    table = ArrowDeltaTable(world.place("s"), standard_engine()).to_arrow()
    ids, ks, vs = (table[n].to_pylist() for n in ("id", "k", "v"))
    found = Counter(zip(ids, zip(ks, vs, strict=True), strict=True))
    if found != expected:
        raise Violation(f"the stream lacks {dict(expected - found)} and has too many of {dict(found - expected)}")
