"""The operations of the simulation on a Delta table, through the library's own commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.runtimes import runtime_in_ms
from tests.simulation.delta.commit_rules import EXTRA
from tests.simulation.delta.delta_end import check_feed, run_stream
from tests.simulation.delta.delta_feature_ops import OPERATIONS, feature_explains
from tests.simulation.delta.delta_history import MAIN_COLUMNS, WEEK_MS, DeltaHistory
from tests.simulation.delta.delta_rows import FIRST_ROWS, SCHEMA, arrow, model
from tests.simulation.model import Rows, difference, new_rows, source_rows
from tests.simulation.plan import Op
from tests.simulation.store import SimStore
from tests.simulation.world import DAY_MS, HOUR_MS, Actor, Violation, World
from trilake.common.runtime import Runtime
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.commands.write.create import TableDescription, create_table, with_rules
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import plan_write, write_arrow
from trilake.delta.files.write_files import write_files
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import cleanup_log
from trilake.delta.log.log_compaction import compact_log
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.stream.errors import StreamSchemaChangedError
from trilake.delta.stream.sink import commit_batch
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ClockError,
    ConflictError,
    ForeignFilesError,
    InvalidArgumentError,
    MissingFileError,
    StorageError,
    TableExistsError,
    TrilakeError,
    VersionNotFoundError,
)
from trilake.storage.base import Store
from trilake.table.streams import BatchId, StreamDataLossError

if TYPE_CHECKING:
    pass


def runtime_of(actor: Actor) -> Runtime:
    """Return the runtime of an actor's process."""
    return Runtime(actor.clock_ns, actor.new_id, actor.sleep)


def begin(world: World) -> None:
    """Create the table of a plan before the actors start."""
    options, rows = {k: v for k, v in world.plan.options.items() if "." in k}, arrow(FIRST_ROWS)
    request = WriteRequest(
        "error",
        from_arrow(SCHEMA),
        partition_by=("p",)
        if "partitioned" in world.plan.options
        else ("k",)
        if "spelled" in world.plan.options
        else None,
        cluster_by=("k",) if "clustered" in world.plan.options else None,
        properties=options,
    )
    runtime = runtime_in_ms(lambda: world.now, lambda: f"00000000-0000-4000-8000-{world.rng.getrandbits(48):012x}")
    store = Watched(world)
    log = DeltaLog(store, standard_engine(runtime=runtime))
    if "identity" in world.plan.options or "extra" in world.plan.options:
        _create(log, world, request)
        if "extra" in world.plan.options:
            rows = rows.append_column(EXTRA, rows["id"].cast("int32"))
        request = WriteRequest("append", from_arrow(rows.schema))
    write_arrow(log, rows.schema, rows.to_batches(), request)
    world.now += int(world.plan.options.get("aged", 0)) * DAY_MS


def _create(log: DeltaLog, world: World, request: WriteRequest) -> None:
    """Create the table without rows, for columns that need a definition."""
    columns = {"id": "bigint", "k": "bigint", "p": "string", "v": "string"}
    more = {n: t for n, o, t in (("n", "identity", "bigint"), (EXTRA, "extra", "int")) if o in world.plan.options}
    how = world.plan.options.get("identity")
    numbers = {"n": (1, -3) if how == "descending" else (1, 1)} if how else {}
    schema = with_rules({**columns, **more}, {}, numbers, {}, explicit=how == "given")
    parts, keys = request.partition_by or (), request.cluster_by or ()
    create_table(log, TableDescription(schema, parts, request.properties or {}, cluster_by=keys))


class Watched(SimStore):
    """The store before the actors start: every call succeeds at once."""

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
    """Run an operation for an actor."""

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
            done = OPERATIONS.get(self.op.kind)
            return getattr(self, "_" + self.op.kind)() if done is None else done(self)
        except TrilakeError as e:
            if self.actor.faults == faults:
                self._explained(e, began, steps)
            raise

    def _explained(self, e: TrilakeError, began: int, steps: int) -> None:
        """Raise if nothing that happened explains an error."""
        kind = self.op.kind
        changed = {n for v in self.history.versions[began + 1 :] for n, _ in v.actions}
        if feature_explains(self, e, began, changed):
            return
        if isinstance(e, ConflictError) and self.history.newest > began:
            if kind == "append" and not changed & {"metaData", "protocol"}:
                raise Violation(f"an append conflicts with {sorted(changed)}: {e}") from e
            return
        if isinstance(e, ConflictError) and kind in ("clone", "shallow", "reclone", "tidy", "stream"):
            return
        if isinstance(e, ClockError) and self.actor.most_skew_ms > 5 * 60_000:
            return
        if isinstance(e, VersionNotFoundError) and (self.history.cleaned_at >= steps or self._needs_old_versions(e)):
            return
        if isinstance(e, MissingFileError) and kind in ("restore", "shallow", "reclone"):
            return
        if isinstance(e, InvalidArgumentError) and kind in ("restore", "drop", "column", "narrow", "property"):
            return
        if isinstance(e, ForeignFilesError) and kind in ("stream", "reclone"):
            return  # the first batch or clone died long ago and left files
        if isinstance(e, TableExistsError) and kind in ("clone", "shallow"):
            return
        if kind == "drop" or isinstance(e, StreamSchemaChangedError | StreamDataLossError):
            return
        raise Violation(f"{type(e).__name__} without a reason: {e}") from e

    def _needs_old_versions(self, e: TrilakeError) -> bool:
        return self.history.cleaned > 0 and self.op.kind in ("restore", "travel", "changes", "lite", "compact")

    # --- tables ---

    def store(self, place: str = "t") -> SimStore:
        return SimStore(self.world.place(place), self.actor, place)

    def log(self, store: Store | None = None) -> DeltaLog:
        return DeltaLog(store or self.store(), self.engine, user_metadata=f"op:{self.op.number}")

    def table(self, version: int | None = None) -> ArrowDeltaTable:
        """Open the table, or reuse a handle of an earlier operation of the same process."""
        old: ArrowDeltaTable | None = self.actor.memory.get("table")
        if version is None and old is not None and self.op.args[1] % 2:
            old.log = self.log()
            return old
        found = ArrowDeltaTable(self.store(), self.engine, version=version, user_metadata=f"op:{self.op.number}")
        if version is None:
            self.actor.memory["table"] = found
        return found

    def write(
        self, rows: Rows, mode: Any, *, bare: bool = False, numbers: list[int] | None = None, **how: Any
    ) -> int | None:
        """Write rows; ``bare``: without the table's additional columns; ``numbers`` are their identity values."""
        table = arrow(rows) if bare else self._with_extra(arrow(rows))
        table = table if numbers is None else table.append_column("n", pa.array(numbers, pa.int64()))
        request = WriteRequest(mode, from_arrow(table.schema), **how)
        return write_arrow(self.log(), table.schema, table.to_batches(), request).version

    def _with_extra(self, rows: pa.Table) -> pa.Table:
        """Return rows with the table's ``EXTRA`` column as its writer sees it."""
        if "extra" in self.world.plan.options:
            names = [f.name for f in self.log().head().metadata.schema.fields if f.name.startswith(EXTRA)]
            for name in names:
                rows = rows.append_column(name, rows["id"].cast("int32"))
        return rows

    # --- rows ---

    def _append(self) -> int | None:
        return self.write(new_rows(self.op), "append")

    def _overwrite(self) -> int | None:
        return self.write(new_rows(self.op), "overwrite")

    def _dynamic(self) -> int | None:
        if "partitioned" not in self.world.plan.options:
            rows = new_rows(self.op)
            parts = sorted({str(k % 2) for k, _ in rows.values()})
            return self.write(rows, "overwrite", replace_where=f"p in ({', '.join(map(repr, parts))})")
        return self.write(new_rows(self.op), "overwrite", partition_overwrite="dynamic")

    def _keyed(self) -> int | None:
        return self.write(new_rows(self.op), "overwrite", partition_overwrite="dynamic")

    def _where(self) -> int | None:
        key = self.op.args[0]
        rows = {i: (key, v) for i, (_, v) in new_rows(self.op).items()}
        return self.write(rows, "overwrite", replace_where=f"k = {key} and p = '{key % 2}'")

    def _delete(self) -> int | None:
        return self.table().delete(f"k = {self.op.args[0]}").version

    def _update(self) -> int | None:
        return self.table().update({"v": f"'u{self.op.number}'"}, f"k = {self.op.args[0]}").version

    def _merge(self) -> int | None:
        source = self._with_extra(arrow(source_rows(self.op)))
        merge = self.table().merge(source, "t.k = s.k", source_alias="s", target_alias="t")
        columns = {n: f"s.{n}" for n in source.column_names}
        done = merge.when_matched_update({"v": "s.v"}).when_not_matched_insert(columns).execute()
        return done.version

    def _insert(self) -> int | None:
        merge = self.table().merge(arrow(source_rows(self.op)), "t.k = s.k", source_alias="s", target_alias="t")
        return merge.when_not_matched_insert({n: f"s.{n}" for n in SCHEMA.names}).execute().version

    def _batch(self) -> None:
        """Run the next batch of a query that two processes run."""
        batches = {op.args[0]: op for op in self.history.ops.values() if op.kind == "batch"}
        for number in range(self.op.args[0] + 1):
            op = batches[number]
            log = DeltaLog(self.store(), self.engine, user_metadata=f"op:{op.number}")
            plan = plan_write(log, WriteRequest("append", from_arrow(SCHEMA)))
            rows = arrow(new_rows(op)).to_batches()
            parts = [write_files(log.store, plan.files, rows, tasks=1)]
            commit_batch(log, plan, BatchId("query", number), parts)

    def _restore(self) -> int | None:
        table = self.table()
        back = 1 + self.op.args[1] % 3
        return table.restore(max(0, self.history.newest - back)).version

    # --- files and log ---

    def _optimize(self) -> None:
        by = "id" if "spelled" in self.world.plan.options else "k"
        self.table().optimize(zorder_by=(by,) if self.op.args[1] % 4 == 0 else ())

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
        """Drop an added column with column mapping; its files keep it until a purge."""
        log = self.log()
        extra = [f.name for f in log.head().metadata.schema.fields if f.name not in MAIN_COLUMNS]
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
            # The source's vacuum does not know the files that a shallow clone names, so it is read at once.
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
            start = max(0, newest - 2)
            try:
                check_feed(self.history, ArrowDeltaTable(self.store(), self.engine), start, newest)
            except MissingFileError:
                if self.world.now - self.history.versions[start].time < WEEK_MS:
                    raise Violation(f"changes since {start}, which the retention protects, lost files") from None

    def _dropped(self, feature: str) -> bool:
        return any(o.kind == "drop" for o in self.history.ops.values())

    # --- time ---

    def _days(self) -> None:
        self.world.now += (8 if self.op.args[0] < 2 else 32) * DAY_MS
        for actor in self.world.actors:
            actor.memory.clear()  # a handle that is days old may show removed versions

    def _hours(self) -> None:
        self.world.now += (1 + self.op.args[0] * 4) * HOUR_MS

    # --- streams ---

    def _stream(self) -> None:
        run_stream(self.log(), self.log(self.store("s")), self.actor.kept, int(self.world.plan.options["stream"]))
