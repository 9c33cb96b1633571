"""Writers that create one table at the same time: of Delta, of Lance, or of Trevni files.

Each operation writes one row to each of two files, in one of the write modes, or creates a table without
rows.  Promises:

1. acknowledged writes are in the table as their mode requires, and failed ones are not;
2. a failed statement deletes nothing of others: no file that a version names or a committed job has added;
3. ``ignore`` and ``IF NOT EXISTS`` never raise that a table exists, and ``append`` never fails because of others;
4. readers see all of a write or nothing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from tests.simulation import scenes
from tests.simulation.plan import FAULTS, FaultAt, Op, Plan
from tests.simulation.store import SimStore
from tests.simulation.world import Actor, Outcome, Violation, World
from trilake.common.runtime import SYSTEM_RUNTIME, Runtime
from trilake.delta.commands.write.create import TableDescription, create_table
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import finish_write, plan_write
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ConflictError,
    ObjectNotFoundError,
    StorageError,
    TableExistsError,
    TrilakeError,
    UnknownOutcomeError,
    WriteFailedError,
)
from trilake.lance.commands.fragment_writer import WriteOptions
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.table import write_table as write_lance
from trilake.lance.versions import transaction
from trilake.lance.versions.versions import list_versions
from trilake.storage.base import Store
from trilake.table.streams import BatchId
from trilake.trevni import TrevniFile
from trilake.trevni.tables.dataset import list_files
from trilake.trevni.tables.stream import commit_batch
from trilake.trevni.tables.table_write import finish_table_write, give_up, plan_table_write, write_rows

TABLES = ("delta", "lance", "trevni")
SCHEMA = pa.schema([("n", pa.int64()), ("half", pa.int64())])
#: Kinds of operations with their weights.
KINDS: Mapping[str, int] = {"append": 5, "error": 3, "ignore": 3, "overwrite": 3, "read": 2}
#: Kinds of operations that only Delta tables have.
DELTA_KINDS: Mapping[str, int] = {"create": 2, "create_if_not_exists": 3, "create_or_replace": 2}
#: Clocks stay close: files of a running write must not look old.
_FAULTS = {kind: weight for kind, weight in FAULTS.items() if kind not in ("ahead", "behind")}
_NUMBER = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}([0-9a-f]{8})")


def make_new_plan(seed: int) -> Plan:
    """Return the plan of a seed, the same in every process."""
    rng = random.Random(f"new table {seed}")
    table = TABLES[seed % len(TABLES)]
    weights = {**KINDS, **(DELTA_KINDS if table == "delta" else {})}
    kinds, chances = list(weights), list(weights.values())
    actors: list[tuple[Op, ...]] = []
    number = 0
    for _ in range(rng.randint(2, 4)):
        ops = []
        for _ in range(rng.randint(1, 2)):
            number += 1
            ops.append(Op(number, rng.choices(kinds, chances)[0]))
        actors.append(tuple(ops))
    faults = []
    if rng.random() < 0.7:
        names, odds = list(_FAULTS), list(_FAULTS.values())
        for _ in range(rng.randint(1, 3)):
            call = rng.choice((rng.randint(1, 25), -rng.randint(1, 3), -1000 - rng.randint(1, 4)))
            faults.append(FaultAt(rng.randrange(len(actors)), call, rng.choices(names, odds)[0]))
    stay, page = rng.choice([0.0, 0.5, 0.8, 0.9]), rng.choice([2, 5, 1000])
    plan = Plan(seed, "new", {"table": table}, tuple(actors), tuple(faults), stay, page)
    if rng.random() >= scenes.CHANCE:
        return plan
    known = [n for n, s in sorted(scenes.NEW.items()) if s.options.get("table", table) == table]
    return scenes.with_operations(scenes.NEW[rng.choice(known)], plan, rng)


def number_of(name: str) -> int:
    """Return the operation whose id is in a name, or 0."""
    found = _NUMBER.search(name)
    return int(found[1], 16) if found is not None else 0


def halves(op: Op) -> list[pa.RecordBatch]:
    """Return the rows of an operation, each in a separate file."""
    return [pa.record_batch([pa.array([op.number]), pa.array([half])], schema=SCHEMA) for half in range(2)]


# --- operations ------------------------------------------------------------------------------------------------------


def execute(actor: Actor, op: Op) -> Any:
    """Run an operation and return whether it has written."""
    world, faults = actor.world, actor.faults
    store = SimStore(world.place("t"), actor, "t")
    runtime = Runtime(actor.clock_ns, actor.new_id, actor.sleep)
    history: NewHistory = world.history
    table = world.plan.options["table"]
    began = history.newest
    try:
        if op.kind == "read":
            history.check_whole(rows_of(store, table, runtime))
            return False
        return {"delta": _delta, "lance": _lance, "trevni": _trevni}[table](store, op, runtime)
    except TrilakeError as e:
        if actor.faults == faults:
            since = {world.plan.ops[n].kind for n in history.committed[began:]}
            _explained(op, e, others=bool(since), there=began > 0, table=table, overwritten="overwrite" in since)
        raise


def _explained(op: Op, e: TrilakeError, *, others: bool, there: bool, table: str, overwritten: bool) -> None:
    """Raise if nothing explains an error of an operation without a fault."""
    if isinstance(e, TableExistsError) and op.kind in ("error", "create") and (there or others):
        return
    if isinstance(e, ConflictError) and op.kind in ("overwrite", "create_or_replace") and others:
        return
    if isinstance(e, ConflictError) and op.kind == "append" and table == "lance" and overwritten:
        return  # rows may be for other columns
    if op.kind == "read" and (not there or (table == "trevni" and isinstance(e, ObjectNotFoundError) and others)):
        return  # an overwrite of a folder deletes files under its readers
    if op.kind == "batch" and isinstance(e, WriteFailedError | StorageError):
        return  # another process took it for dead and has written it
    raise Violation(f"{type(e).__name__} without a reason: {e}") from e


def _delta(store: Store, op: Op, runtime: Runtime) -> bool:
    log = DeltaLog(store, standard_engine(runtime=runtime))
    if op.kind.startswith("create"):
        mode: Any = op.kind
        return create_table(log, TableDescription(from_arrow(SCHEMA)), mode=mode).created
    mode = op.kind
    plan = plan_write(log, WriteRequest(mode, from_arrow(SCHEMA)))
    parts = [] if plan.nothing else [write_files(store, plan.files, [b], tasks=1) for b in halves(op)]
    return finish_write(log, plan, parts).files_added > 0


def _lance(store: Store, op: Op, runtime: Runtime) -> bool:
    done, _, _ = write_lance(store, SCHEMA, halves(op), runtime=runtime, mode=op.kind, options=WriteOptions(1, 1))
    return done is not None


def _trevni(store: Store, op: Op, runtime: Runtime) -> bool:
    plan = plan_table_write(store, SCHEMA, mode="append" if op.kind == "batch" else op.kind, runtime=runtime)
    if plan.nothing:
        return False
    try:
        files = [f for i, b in enumerate(halves(op)) for f in write_rows(store, plan, [b], task=str(i))]
    except TrilakeError:
        give_up(store, plan)
        raise
    if op.kind == "batch":
        return commit_batch(store, plan, BatchId("query", op.args[0]), files)
    return finish_table_write(store, plan, files, runtime=runtime).files_added > 0


def rows_of(store: Store, table: str, runtime: Runtime, version: int | None = None) -> list[tuple[int, int]]:
    """Return the rows of a version as readers see them.  Raises ``TableNotFoundError`` except for Trevni."""
    if table == "delta":
        rows = ArrowDeltaTable(store, standard_engine(runtime=runtime), version=version).to_arrow()
    elif table == "lance":
        snapshot = Snapshot.open(store, runtime, version)
        rows = pa.Table.from_batches(snapshot.scan(snapshot.plan(None, None)), snapshot.schema)
    else:
        files = [TrevniFile((store, f.key)).read() for f in list_files(store)]
        rows = pa.concat_tables([SCHEMA.empty_table(), *files])
    return sorted(zip(rows["n"].to_pylist(), rows["half"].to_pylist(), strict=True))


# --- checks ----------------------------------------------------------------------------------------------------------


@dataclass
class NewHistory:
    """Commits of operations in order, and the files that must stay."""

    world: World
    #: The operation of each version, or of each committed Trevni job, in order.
    committed: list[int] = field(default_factory=list)
    #: Delta: the version that each operation has read.
    read: list[int] = field(default_factory=list)
    #: Files named by a version or a committed job; for Trevni without those replaced by an overwrite.
    needed: set[str] = field(default_factory=set)
    outcomes: list[Outcome] = field(default_factory=list)
    _ended: set[str] = field(default_factory=set)
    _plans: dict[str, tuple[set[str], set[str]]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return len(self.committed)

    def wrote(self, place: str, key: str, actor: int) -> None:
        data = bytes(self.world.place(place).read(key))
        table = self.world.plan.options["table"]
        if table == "delta" and key == commit_key(self.newest):
            actions = [orjson.loads(line) for line in data.splitlines()]
            info = actions[0]["commitInfo"]
            self._commits(number_of(info["txnId"]))
            self.read.append(info.get("readVersion", -1))
            self.needed |= {key, *(a["add"]["path"] for a in actions if "add" in a)}
        elif table == "lance" and re.fullmatch(r"_versions/\d+\.manifest", key):
            manifest = transaction.read_manifest(self.world.place(place), key, self.newest + 1)
            self._commits(number_of(manifest.transaction_file))
            self.needed |= {key, *(file.key for f in manifest.fragments for file in f.files)}
        elif key.endswith(".plan"):
            plan = orjson.loads(data)
            self._plans[key.removesuffix(".plan")] = set(plan["adds"]), set(plan["removes"])
        elif key.endswith(".end") and data == b"committed":
            if key not in self._ended:  # otherwise the request lands after the end of the job
                self._commits(number_of(key))
                self._ended.add(key)
            adds, removes = self._plans[key.removesuffix(".end")]
            self.needed = (self.needed | adds) - removes

    def _commits(self, number: int) -> None:
        if number in self.committed:
            raise Violation(f"operation {number} has committed twice")
        self.committed.append(number)

    def deleted(self, place: str, keys: tuple[str, ...], actor: int, requested: int) -> None:
        gone = self.needed.intersection(keys)
        if gone:
            raise Violation(f"deleted what is needed: {sorted(gone)[:2]}")

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        number, kind = outcome.op.number, outcome.op.kind
        if outcome.kind == "ok":
            # A committed batch is not written again.
            if bool(outcome.value) != (number in self.committed) and not (kind == "batch" and not outcome.value):
                raise Violation(f"told that it has {'' if outcome.value else 'not '}written")
            if not outcome.value and not self.newest and kind != "read":
                raise Violation("told that a table is there, and none is")
        elif number in self.committed and outcome.kind == "error" and not _unknown(outcome.value) and kind != "batch":
            raise Violation(f"committed, and told {type(outcome.value).__name__}: {outcome.value}")

    @staticmethod
    def check_whole(rows: Sequence[tuple[int, int]]) -> None:
        """Raise if readers see a part of a write."""
        half = [n for n, _ in rows if rows.count((n, 0)) != 1 or rows.count((n, 1)) != 1]
        if half:
            raise Violation(f"a part of operation {half[0]} is seen")

    def finish(self) -> None:
        for outcome in self.outcomes:
            sure = outcome.kind == "ok" or (outcome.kind == "error" and not _unknown(outcome.value))
            if outcome.op.kind == "batch":  # several processes may write it, and one of them succeeds
                if outcome.kind == "ok" and outcome.op.number not in self.committed:
                    raise Violation(f"batch {outcome.op.number} is said to be there, and is not")
            elif sure and (outcome.kind == "ok" and bool(outcome.value)) != (outcome.op.number in self.committed):
                raise Violation(f"operation {outcome.op.number} was told otherwise than it went")
        store, table = self.world.place("t"), self.world.plan.options["table"]
        runtime = Runtime(lambda: self.world.now * 10**6, SYSTEM_RUNTIME.new_id, SYSTEM_RUNTIME.sleep)
        if table == "trevni":
            rows = rows_of(store, table, runtime)
            self.check_whole(rows)
            self._check_jobs({n for n, _ in rows})
            return
        versions = list_versions(store).versions if table == "lance" else range(self.newest)
        if len(versions) != self.newest:
            raise Violation(f"{self.newest} versions were made, and {len(versions)} are there")
        for version, expected in zip(versions, self._states(), strict=True):
            rows = rows_of(store, table, runtime, version)
            self.check_whole(rows)
            if {n for n, _ in rows} != expected:
                raise Violation(
                    f"version {version} has rows of {sorted({n for n, _ in rows})}, not of {sorted(expected)}"
                )

    def _states(self) -> Iterator[set[int]]:
        """Return the operations whose rows each version has."""
        have: set[int] = set()
        for at, number in enumerate(self.committed):
            kind = self.world.plan.ops[number].kind
            if at and kind in ("error", "ignore", "create", "create_if_not_exists"):
                raise Violation(f"operation {number} ({kind}) made version {at}, where a table was")
            its_rows = set() if kind.startswith("create") else {number}
            # An overwrite is ordered before rows that others have added since its read (WriteSerializable).
            since = self.committed[self.read[at] + 1 : at] if self.read else []
            later_appends = (
                {n for n in since if self.world.plan.ops[n].kind == "append"} if kind == "overwrite" else set()
            )
            have = have | its_rows if kind == "append" else its_rows | later_appends
            yield have

    def _check_jobs(self, seen: set[int]) -> None:
        """Check Trevni jobs: an overwrite replaces jobs that ended before it began, and may replace others.

        First writes and overwrites come one after the other.
        """
        steps = {o.op.number: o.steps for o in self.outcomes}
        kinds = self.world.plan.ops
        for number in self.committed:
            over = [o for o in self.committed if kinds[o].kind == "overwrite" and o != number]
            if number not in seen and not any(steps[o][1] > steps[number][0] for o in over):
                raise Violation(f"operation {number} is committed, and its rows are gone")
            if number in seen and any(steps[o][0] > steps[number][1] for o in over if _is_acknowledged(self, number)):
                raise Violation(f"operation {number} is seen beside a later overwrite")
        alone = [n for n in self.committed if kinds[n].kind in ("error", "ignore", "overwrite")]
        for at, number in enumerate(alone[1:], 1):
            if kinds[number].kind != "overwrite":
                raise Violation(f"operation {number} ({kinds[number].kind}) was committed, where a table was")
            if seen.intersection(alone[:at]):
                raise Violation(f"operations {alone[:at]} are seen beside the overwrite {number} that came later")
        if seen - set(self.committed):
            raise Violation(f"operations {sorted(seen - set(self.committed))} are seen, and not committed")


def _is_acknowledged(history: NewHistory, number: int) -> bool:
    return any(o.op.number == number and o.kind == "ok" for o in history.outcomes)


def _unknown(value: object) -> bool:
    return isinstance(value, UnknownOutcomeError)
