"""The real commit over every interleaving of the calls of a few writers, with one fault at each call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from tests.simulation.model_check import Checked
from tests.simulation.plan import FaultAt, Op, Plan
from tests.simulation.store import SimStore
from tests.simulation.world import Actor, Outcome, Violation, World
from trilake.common.runtime import Runtime
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.engine import Engine
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.segment import commit_key
from trilake.delta.log.snapshot import Head
from trilake.errors import ConflictError, StorageError, UnknownOutcomeError

_COMMIT = re.compile(r"_delta_log/(\d{20})\.json\Z")
_FIRST = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
            "configuration": {},
        }
    },
]


class _Commits:
    """Which transaction made which version, and the reply to each writer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: list[tuple[int, int]] = []
        self.replies: dict[int, str] = {}

    @property
    def newest(self) -> int:
        return len(self.made)

    def wrote(self, place: str, key: str, actor: int) -> None:
        match = _COMMIT.match(key)
        if match is None:
            return
        if int(match[1]) != self.newest + 1:
            raise Violation(f"version {int(match[1])} after version {self.newest}")
        info = orjson.loads(bytes(self.world.place("t").read(key)).splitlines()[0])["commitInfo"]
        self.made.append((int(info["operationParameters"]["writer"]), info["readVersion"]))

    def deleted(self, place: str, keys: tuple[str, ...], actor: int) -> None:
        raise Violation(f"a commit deleted {keys}")

    def ended(self, outcome: Outcome) -> None:
        reply = outcome.kind
        if isinstance(outcome.value, UnknownOutcomeError):
            reply = "unknown"
        elif isinstance(outcome.value, ConflictError):
            reply = "conflict"
        self.replies[outcome.op.number] = reply

    def finish(self) -> None:
        writers = [w for w, _ in self.made]
        kinds = {op.number: op.kind for op in self.world.plan.ops.values()}
        if len(set(writers)) < len(writers):
            raise Violation("a transaction is in the log twice")
        for writer, reply in self.replies.items():
            if reply == "ok" and writer not in writers:
                raise Violation(f"writer {writer} was told that it is committed, and it is in no version")
            if reply in ("conflict", "error") and writer in writers:
                raise Violation(f"writer {writer} was told {reply}, and it is committed")
        for at, (writer, read) in enumerate(self.made):
            if kinds[writer] == "change" and any(kinds[w] == "change" for w, _ in self.made[read:at]):
                raise Violation(f"version {at + 1} did not see a change that came before it")


def _execute(actor: Actor, op: Op) -> int:
    runtime = Runtime(actor.clock_ns, actor.new_id, actor.sleep)
    log = DeltaLog(SimStore(actor.world.place("t"), actor, "t"), Engine(hooks=(), runtime=runtime))
    base: Head = actor.world.base  # type: ignore[attr-defined]
    add = {"path": f"f{op.number}", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    read = ReadSet(whole_table=op.kind == "change")
    plan = CommitPlan(operation="TEST", parameters={"writer": str(op.number)}, file_actions=[{"add": add}], read=read)
    return commit(log, base, plan)


class _Scripted(World):
    """A world whose scheduler follows a script, then takes the first ready actor."""

    def __init__(self, plan: Plan, script: Sequence[int]) -> None:
        super().__init__(plan, _Commits, _execute)
        self.script, self.taken = list(script), list[tuple[int, int]]()
        store = self.place("t")
        store.put(commit_key(0), b"\n".join(orjson.dumps(a) for a in _FIRST))
        self.base = DeltaLog(store, Engine(hooks=())).head()

    def _between_turns(self) -> None:
        """Requests under way land at the end."""

    def _chosen(self, alive: list[Actor]) -> Actor:
        ready = [a for a in alive if a.wake <= self.steps] or alive
        at = len(self.taken)
        choice = self.script[at] if at < len(self.script) else 0
        self.taken.append((choice, len(ready)))
        return ready[choice]


def every_interleaving(kinds: Sequence[str], *, fault: str | None = None, most: int = 100_000) -> Checked:
    """Run writers with one commit each, ``append`` or ``change``, in every order of their store calls.

    With ``fault``, once per early call of the first writer, which fails there; at most ``most`` runs.
    """
    runs = 0
    for call in range(1, 8) if fault else (0,):
        faults = (FaultAt(0, call, fault),) if fault else ()
        ops: tuple[Any, ...] = tuple((Op(i + 1, kind),) for i, kind in enumerate(kinds))
        script: list[int] | None = []
        while script is not None and runs < most:
            world = _Scripted(Plan(0, "delta", {}, ops, faults, 0.0, 1000), script)
            failure = world.run()
            runs += 1
            if failure is not None:
                return Checked(runs, failure, tuple(f"{a} {what} {on}" for _, a, what, on in world.events))
            script = _next(world.taken)
    return Checked(runs)


def _next(taken: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return the next script in depth-first order."""
    for at in range(len(taken) - 1, -1, -1):
        choice, options = taken[at]
        if choice + 1 < options:
            return [*(c for c, _ in taken[:at]), choice + 1]
    return None


__all__ = ["StorageError", "every_interleaving"]
