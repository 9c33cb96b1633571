"""The world of one run: a store, a clock, and actors that take turns at every store call.

Each actor is a thread, and one thread runs at a time: at each store call, and between two
operations, a seeded generator chooses the next actor, and the current one hands the turn over.  So
a run is deterministic for its seed.
"""

from __future__ import annotations

import _thread
import logging
import os
import random
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.fault_store import SimulatedCrash
from tests.simulation.plan import Op, Plan
from trilake.errors import TrilakeError
from trilake.storage import memory
from trilake.storage.memory import MemoryStore

START_MS = 1_700_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
#: Seconds after which an actor that does not return counts as hanging.
_HANGS = int(os.environ.get("TRILAKE_SIMULATION_HANGS", "600"))


class Stop(BaseException):
    """Ends an actor after the run; not an ``Exception``, so that nothing catches it."""


class Violation(Exception):
    """A promise was broken."""


@dataclass
class Outcome:
    """How an operation ended."""

    op: Op
    actor: int
    kind: str  # ok, error or crash
    value: Any = None
    faults: int = 0
    began: int = 0  # newest version when it began
    steps: tuple[int, int] = (0, 0)


class History(Protocol):
    """Observes the store and checks the promises."""

    def wrote(self, place: str, key: str, actor: int) -> None: ...

    def deleted(self, place: str, keys: tuple[str, ...], actor: int, requested: int) -> None: ...

    def ended(self, outcome: Outcome) -> None: ...

    @property
    def newest(self) -> int: ...


@dataclass
class _Late:
    due: int
    land: Callable[[], None]


class Actor(threading.Thread):
    """One process: it runs its operations in turn and restarts after a crash."""

    def __init__(self, world: World, number: int, ops: tuple[Op, ...]) -> None:
        super().__init__(name=f"actor-{number}", daemon=True)
        self.world, self.number, self.ops = world, number, ops
        self.go = _thread.allocate_lock()
        self.go.acquire()
        self.calls = self.puts = self.deletes = self.faults = self.skew_ms = self.wake = 0
        #: The largest clock skew since the operation began.
        self.most_skew_ms = 0
        self.crashed = self.done = self.between = False
        self.next_op: Op | None = None
        self.memory: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}
        #: Chooses the entries of a torn listing.
        self.listed = random.Random(f"listed {world.plan.seed} {number}")
        self._ids = random.Random(f"ids {world.plan.seed} {number}")
        self.op: Op | None = None

    def run(self) -> None:
        self.go.acquire()
        try:
            if self.world.stopping:
                raise Stop
            for op in self.ops:
                self.between, self.next_op = True, op
                self.pause()
                self.between = False
                self._do(op)
        except Stop:
            pass
        except BaseException as e:  # noqa: BLE001 - the scheduler reports errors of the simulation
            self.world.fail(f"the simulation itself failed: {e!r}", e)
        finally:
            self.done = True
            if not self.world.stopping:
                self.world.hand_over(self.world.turn())

    def _do(self, op: Op) -> None:
        world, before = self.world, self.faults
        self.op, self.crashed, self.most_skew_ms = op, False, self.skew_ms
        outcome = Outcome(op, self.number, "ok", began=world.history.newest, steps=(world.steps, 0))
        try:
            outcome.value = world.execute(self, op)
        except SimulatedCrash:
            outcome.kind = "crash"
            self.memory.clear()
        except TrilakeError as e:
            outcome.kind, outcome.value = "error", e
        except Exception as e:  # noqa: BLE001 - any other error breaks a promise
            if isinstance(e, Violation):
                world.fail(f"#{op.number} {op.kind}: {e}", e)
            else:
                world.fail(f"#{op.number} {op.kind} raised {type(e).__name__}, which is none of the library's: {e}", e)
            raise Stop from None
        if outcome.kind == "error" and self.crashed:
            world.fail(f"#{op.number} {op.kind} survived the death of its process: {outcome.value}")
            raise Stop
        outcome.faults = self.faults - before
        outcome.steps = (outcome.steps[0], world.steps)
        self.op = None
        world.outcomes.append(outcome)
        world.trace(self.number, f"{op.kind} {outcome.kind}", str(outcome.value)[:300])
        try:
            world.history.ended(outcome)
        except Violation as e:
            world.fail(f"#{op.number} {op.kind}: {e}", e)
            raise Stop from None

    def pause(self) -> None:
        """Hand over the turn and wait for the next one."""
        if self.world.stopping:
            raise Stop  # cleanup after a stop may call the store again
        chosen = self.world.turn()
        if chosen is not self:
            self.world.hand_over(chosen)
            self.go.acquire()
        if self.world.stopping:
            raise Stop

    # --- runtime of the process ---

    def clock_ms(self) -> int:
        time = self.world.now + self.skew_ms
        self.world.latest_clock = max(self.world.latest_clock, time)
        return time

    def clock_ns(self) -> int:
        return self.clock_ms() * 1_000_000

    def new_id(self) -> str:
        """Return an id that contains the number of the operation."""
        number = self.op.number if self.op is not None else 0
        return str(uuid.UUID(int=self._ids.getrandbits(96) << 32 | number))

    def sleep(self, seconds: float) -> None:
        self.wake = self.world.steps + 3


@dataclass
class World:
    """One run of a plan; ``execute`` does an operation for an actor."""

    plan: Plan
    make_history: Callable[[World], Any]
    execute: Callable[[Actor, Op], Any]
    now: int = START_MS
    steps: int = 0
    stopping: bool = False
    #: Undetectable damage has removed files that the table needs: no promise holds any more.
    moot: bool = False
    failure: str | None = None
    cause: BaseException | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    events: list[tuple[int, int, str, str]] = field(default_factory=list)
    late: list[_Late] = field(default_factory=list)
    file_times: dict[tuple[str, str], int] = field(default_factory=dict)
    #: The latest time that any actor has read from its clock.
    latest_clock: int = START_MS

    def __post_init__(self) -> None:
        self.over = _thread.allocate_lock()
        self.over.acquire()
        self.current: Actor | None = None
        self.rng = random.Random(f"schedule {self.plan.seed}")
        self.faults = {(f.actor, f.call): f.kind for f in self.plan.faults}
        self.row_metadata: dict[str, MemoryStore] = {}
        self.history = self.make_history(self)
        self.actors = [Actor(self, i, ops) for i, ops in enumerate(self.plan.actors)]

    def place(self, name: str) -> MemoryStore:
        """Return the store of one table."""
        if name not in self.row_metadata:
            self.row_metadata[name] = MemoryStore(f"simulation-{id(self):x}-{name}", clock=lambda: self.now)
        return self.row_metadata[name]

    def trace(self, actor: int, what: str, on: str = "") -> None:
        self.events.append((self.steps, actor, what, on))

    def fail(self, message: str, cause: BaseException | None = None) -> None:
        """Record the first broken promise."""
        if self.failure is None:
            self.failure, self.cause = message, cause

    def run(self) -> str | None:
        """Run the plan and return the broken promise, or ``None``."""
        log = logging.getLogger("trilake")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            for actor in self.actors:
                actor.start()
            self._schedule()
            if self.failure is None and not self.moot:
                self._land(always=True)
                try:
                    self.history.finish()
                except Violation as e:
                    self.fail(f"at the end: {e}", e)
                except TrilakeError as e:
                    self.fail(f"at the end, {type(e).__name__}: {e}", e)
        finally:
            log.setLevel(level)
            self.stopping = True
            for actor in self.actors:
                if actor.is_alive():
                    actor.go.release()
                    actor.join(_HANGS)
            for store in self.row_metadata.values():
                memory._SPACES.pop(store.uri.removeprefix("memory://"), None)
        return self.failure

    def _ready(self, actor: Actor) -> bool:
        if actor.wake > self.steps:
            return False
        # Days pass between operations only: an operation longer than the retention may lose files.
        if actor.between and actor.next_op is not None and actor.next_op.kind == "days":
            return all(a is actor or a.done or a.between for a in self.actors)
        return True

    def _schedule(self) -> None:
        """Run the actors until all are done or a promise is broken."""
        self.hand_over(self.turn())
        seen = -1
        while not self.over.acquire(timeout=_HANGS):
            if self.steps == seen:
                self.fail(f"{self.current.name if self.current else 'no one'} hangs")
                return
            seen = self.steps

    def hand_over(self, chosen: Actor | None) -> None:
        """Let an actor continue, or end the run if there is none."""
        (self.over if chosen is None else chosen.go).release()

    def turn(self) -> Actor | None:
        """Return the next actor, or ``None`` if all are done or a promise is broken."""
        try:
            self._between_turns()
            alive = [a for a in self.actors if not a.done]
            self.current = self._chosen(alive) if alive and self.failure is None and not self.moot else None
        except BaseException as e:  # noqa: BLE001 - raised in the thread of an actor, where it would be lost
            self.fail(f"the simulation itself failed: {e!r}", e)
            self.current = None
        self.steps += 1
        return self.current

    def _between_turns(self) -> None:
        self._land()

    def _chosen(self, alive: list[Actor]) -> Actor:
        while not (ready := [a for a in alive if self._ready(a)]):
            self.steps += 1
        if self.late and any(a.between and a.next_op is not None and a.next_op.kind == "days" for a in ready):
            self._land(always=True)  # no request takes days
        chosen = self.current
        if chosen is None or chosen not in ready or self.rng.random() >= self.plan.stay:
            chosen = self.rng.choice(ready)
        self.now += self.rng.randint(0, 20)
        return chosen

    def _land(self, *, always: bool = False) -> None:
        if not self.late:
            return
        due = [e for e in self.late if always or e.due <= self.steps]
        self.late = [e for e in self.late if e not in due]
        for request in due:
            try:
                request.land()
            except Violation as e:
                self.fail(f"a late request: {e}", e)

    def under_way(self, land: Callable[[], None]) -> None:
        """Add a request whose reply was lost and that lands some steps later."""
        self.late.append(_Late(self.steps + self.rng.randint(1, 40), land))
