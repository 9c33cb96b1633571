"""The operations of the simulation on a Lance dataset, through the library's own commands."""

from __future__ import annotations

from typing import Any

from tests.simulation.delta.delta_ops import Watched
from tests.simulation.lance.lance_feature_ops import OPERATIONS, feature_explains
from tests.simulation.lance.lance_history import WEEK_MS, LanceHistory
from tests.simulation.lance.lance_rows import SCHEMA, arrow
from tests.simulation.model import Rows, new_rows, upserted
from tests.simulation.plan import Op
from tests.simulation.store import SimStore
from tests.simulation.world import DAY_MS, HOUR_MS, Actor, Violation, World
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.errors import (
    ClockError,
    ConflictError,
    InvalidArgumentError,
    MissingFileError,
    SchemaMismatchError,
    StorageError,
    TrilakeError,
    UnknownOutcomeError,
    VersionNotFoundError,
)
from trilake.lance.cleanup import cleanup
from trilake.lance.commands import columns, compaction, indices
from trilake.lance.commands.delete import delete
from trilake.lance.commands.fragment_writer import WriteOptions, write_fragments
from trilake.lance.commands.merge_insert import MergeInsert, merge_insert
from trilake.lance.commands.stream_sink import commit_batch
from trilake.lance.commands.update import update
from trilake.lance.commands.write import plan_write, write
from trilake.lance.file.storage_version import StorageVersion
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations, transaction
from trilake.table.streams import BatchId


def options_of(world: World) -> WriteOptions:
    """Return write options with the file version of the plan."""
    return WriteOptions(2, 2, storage_version=StorageVersion.parse(world.plan.options.get("files", "legacy")))


def begin(world: World) -> None:
    """Create the dataset of a plan before the actors start."""
    new_id = lambda: f"{world.rng.getrandbits(32):08x}-0000-4000-8000-000000000000"  # noqa: E731
    runtime = Runtime(lambda: world.now * 10**6, new_id, SYSTEM_RUNTIME.sleep)
    rows: Rows = {i: (i % 4, "v0") for i in range(1, 5)}
    write(Watched(world), SCHEMA, arrow(rows).to_batches(), "create", runtime, options_of(world))
    world.now += int(world.plan.options.get("aged", 0)) * DAY_MS


class LanceOps:
    """Run an operation for an actor."""

    def __call__(self, actor: Actor, op: Op) -> Any:
        return Job(actor, op).run()


class Job:
    """One operation of one actor."""

    def __init__(self, actor: Actor, op: Op) -> None:
        self.actor, self.op, self.world = actor, op, actor.world
        self.history: LanceHistory = actor.world.history
        self.store = SimStore(self.world.place("t"), actor, "t")
        self.runtime = Runtime(actor.clock_ns, actor.new_id, actor.sleep)
        #: The oldest version that the operation used, and the step when it was opened.
        self.base, self.opened = self.history.newest, self.world.steps

    def run(self) -> Any:
        began, faults = self.history.newest, self.actor.faults
        try:
            done = OPERATIONS.get(self.op.kind)
            return getattr(self, "_" + self.op.kind)() if done is None else done(self)
        except TrilakeError as e:
            if self.actor.faults == faults:
                self._explained(e, began)
            raise

    def _explained(self, e: TrilakeError, began: int) -> None:
        """Raise if nothing explains an error since the start of the operation or its handle."""
        began = min(began, self.base)
        if feature_explains(self, e, began):
            return
        if isinstance(e, ConflictError) and self.history.newest > began:
            return
        if isinstance(e, ClockError) and self.actor.most_skew_ms > 5 * 60_000:
            return
        if isinstance(e, VersionNotFoundError) and (self.op.kind in ("restore", "travel") or self._cleaned()):
            return
        if isinstance(e, InvalidArgumentError) and self.op.kind == "restore":
            return
        if isinstance(e, InvalidArgumentError) and self.op.kind == "widen" and self.history.newest > began + 1:
            return  # an overwrite or a restore has removed the column to drop
        if isinstance(e, SchemaMismatchError) and any(o.kind == "widen" for o in self.world.plan.ops.values()):
            return
        if isinstance(e, StorageError | MissingFileError) and self.op.kind == "travel" and self.history.going:
            return  # a failed clean-up left its manifest
        if self._cleaned() and isinstance(e, StorageError):
            return  # a handle on a removed version
        raise Violation(f"{type(e).__name__} without a reason: {e}") from e

    def _cleaned(self) -> bool:
        return self.history.cleaned_at >= self.opened

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Open the dataset, or reuse a handle of an earlier operation of the same process."""
        old: Snapshot | None
        old, opened = self.actor.memory.get("dataset", (None, 0))
        if version is None and old is not None and self.op.args[1] % 2:
            self.base, self.opened = min(self.base, old.version), min(self.opened, opened)
            return old
        opened = self.world.steps
        found = Snapshot.open(self.store, self.runtime, version)
        if version is None:
            self.actor.memory["dataset"] = found, opened
        return found

    # --- rows ---

    def _write(self, mode: Any) -> int:
        sided = mode == "append" and any(o.kind == "side" for o in self.world.plan.ops.values())
        rows = arrow(new_rows(self.op), Snapshot.open(self.store, self.runtime).schema if sided else SCHEMA)
        return write(self.store, rows.schema, rows.to_batches(), mode, self.runtime, options_of(self.world)).version

    def _append(self) -> int:
        return self._write("append")

    def _overwrite(self) -> int:
        return self._write("overwrite")

    def _delete(self) -> int:
        return delete(self.snapshot(), f"k = {self.op.args[0]}")[0].version

    def _update(self) -> int | None:
        where = f"k = {self.op.args[0]}"
        done = update(self.snapshot(), {"v": f"'u{self.op.number}'"}, where)
        return done.snapshot.version if done.num_rows_updated else None

    def _upsert(self) -> int:
        what = MergeInsert(("id",), update=True, insert=True)
        snapshot = self.snapshot()
        done, _ = merge_insert(snapshot, what, arrow(upserted(self.op), snapshot.schema))
        return done.version

    def _batch(self) -> int | None:
        """Run a batch of a stream, retried like in Spark."""
        batch = BatchId(f"q{self.op.number}", 0)
        first: TrilakeError | None = None
        for attempt in range(2):
            try:
                plan = plan_write(self.store, "append", self.runtime)
                target = plan.target(SCHEMA)
                rows = arrow(new_rows(self.op)).to_batches()
                fragments = write_fragments(self.store, rows, target, plan.options, self.runtime)
                commit_batch(self.store, plan, target, batch, fragments)
            except TrilakeError as e:
                if attempt == 0:
                    first = e
                elif isinstance(first, UnknownOutcomeError):
                    raise first from e  # the second attempt could not determine the outcome of the first
                elif first is not None:
                    raise  # otherwise the batch is committed, and only its repetition failed
        return None  # its version is unknown after a repetition

    def _restore(self) -> int:
        version = max(1, self.history.newest - 1 - self.op.args[0])
        begun = transaction.begin(self.snapshot().version, operations.Restore(version), self.runtime)
        return transaction.commit(self.store, begun, self.runtime).version

    # --- files ---

    def _optimize(self) -> None:
        compaction.compact(self.snapshot(), compaction.CompactionOptions(target_rows_per_fragment=4))

    def _widen(self) -> None:
        """Add a column and drop it again: concurrent writes lack it and fail."""
        name = f"w{self.op.number}"
        wide = columns.add_expressions(self.snapshot(), {name: "id * 2"})
        columns.drop_columns(wide, [name])

    def _index(self) -> None:
        column = "k" if self.op.args[1] % 3 else "v"
        indices.create_scalar_index(self.snapshot(), column)

    def _cleanup(self) -> None:
        cleanup(self.store, WEEK_MS, self.runtime, error_if_tagged=self.op.args[1] % 4 == 0)

    # --- readers ---

    def _read(self) -> None:
        self.history.check(self.snapshot())

    def _search(self) -> None:
        self.history.check(self.snapshot(), key=self.op.args[0])

    def _travel(self) -> None:
        self.history.check(self.snapshot(max(1, self.history.newest - 1 - self.op.args[0])))

    # --- time ---

    def _days(self) -> None:
        self.world.now += 8 * DAY_MS
        for actor in self.world.actors:
            actor.memory.clear()

    def _hours(self) -> None:
        self.world.now += (1 + self.op.args[0] * 4) * HOUR_MS
