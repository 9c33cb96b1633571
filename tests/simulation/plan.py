"""A plan: operations of every actor, faults and scheduling; made from a seed, stored as JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

#: Kinds of faults with their weights.  ``error``: nothing happened; ``lost``: it happened and the reply was lost;
#: ``late``: the reply was lost and the request lands later; ``slow``: other actors run first; ``crash`` and
#: ``crash after``: the process dies before or after the call; ``ahead`` and ``behind``: its clock jumps by days;
#: ``drift``: by minutes, within the tolerance.
FAULTS = {
    "error": 5,
    "lost": 6,
    "late": 2,
    "slow": 4,
    "crash": 3,
    "crash after": 3,
    "ahead": 1,
    "behind": 1,
    "drift": 2,
}
#: Number of first calls of an actor that may have faults.
_CALLS = 120


@dataclass(frozen=True)
class Op:
    """One operation; ``number`` is unique in its plan, so that a commit can be traced to it."""

    number: int
    kind: str
    args: tuple[int, ...] = ()


@dataclass(frozen=True)
class FaultAt:
    """A fault at the ``call``-th store call of an actor; -1 is its first ``put_if_absent``, -1001 its
    first ``delete``."""

    actor: int
    call: int
    kind: str


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run.

    ``stay`` is the chance that the current actor continues; ``page`` the number of entries that a listing shows
    at once, as object stores do.
    """

    seed: int
    format: str
    options: Mapping[str, str]
    actors: tuple[tuple[Op, ...], ...]
    faults: tuple[FaultAt, ...]
    stay: float
    page: int

    def to_json(self) -> str:
        """Return the plan as a string for ``--plan``."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Parse the output of :meth:`to_json`."""
        data = json.loads(text)
        actors = tuple(tuple(Op(o["number"], o["kind"], tuple(o["args"])) for o in ops) for ops in data["actors"])
        return replace(cls(**data), actors=actors, faults=tuple(FaultAt(**f) for f in data["faults"]))

    @property
    def ops(self) -> dict[int, Op]:
        """Operations by number."""
        return {op.number: op for ops in self.actors for op in ops}

    @cached_property
    def torn(self) -> bool:
        """Whether a listing may miss or show concurrent changes, like folders on a disk."""
        return "torn" in self.options or random.Random(f"torn {self.seed}").random() < 0.25

    def describe(self) -> str:
        """Describe the plan for people."""
        lines = [
            f"seed {self.seed}, {self.format}, {dict(self.options)}, stay {self.stay}, page {self.page}",
            *(["  torn listings"] if self.torn else []),
        ]
        for i, ops in enumerate(self.actors):
            lines.append(f"  actor {i}: " + "; ".join(f"#{o.number} {o.kind}{list(o.args) or ''}" for o in ops))
        lines += [f"  fault: actor {f.actor}, call {f.call}: {f.kind}" for f in self.faults]
        return "\n".join(lines)


#: Operations of each format with weights that prefer cheap ones, so that many seeds fit into a minute.
DELTA = {
    "append": 12, "delete": 3, "update": 2, "merge": 1, "overwrite": 2, "dynamic": 1, "where": 1, "optimize": 2,
    "vacuum": 2, "lite": 1, "restore": 2, "checkpoint": 3, "cleanup": 2, "compact": 2, "column": 1, "property": 1,
    "drop": 1, "clone": 1, "shallow": 1, "read": 4, "travel": 2, "changes": 1, "days": 3, "hours": 2,
}  # fmt: skip
LANCE = {
    "append": 10, "delete": 5, "update": 3, "upsert": 3, "overwrite": 1, "optimize": 4, "index": 3, "cleanup": 4,
    "restore": 1, "read": 5, "travel": 2, "search": 3, "days": 3, "hours": 2, "batch": 3,
}  # fmt: skip

DELTA_OPTIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    "delta.enableDeletionVectors": (0.5, ("true",)),
    "delta.enableChangeDataFeed": (0.3, ("true",)),
    "delta.enableRowTracking": (0.2, ("true",)),
    "delta.enableInCommitTimestamps": (0.3, ("true",)),
    "delta.isolationLevel": (0.4, ("Serializable",)),
    "delta.checkpointInterval": (0.45, ("2", "3", "5")),
    "delta.checkpointPolicy": (0.2, ("v2",)),
    "delta.columnMapping.mode": (0.2, ("name",)),
    "trilake.logCompactionInterval": (0.3, ("2", "3")),
    "trilake.checksums": (0.3, ("commit", "none")),
    "partitioned": (0.4, ("true",)),
}

#: Later operations, drawn separately so that seeds keep the rest of their plan, and the chance per actor of one.
LATER: dict[str, tuple[str, ...]] = {"delta": ("purge", "narrow", "column", "insert"), "lance": ("widen",)}
LATER_CHANCE = 0.1
LATER_OPTIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    "trilake.checkpoint.partSize": (0.15, ("1", "2")),
    "trilake.checkpoint.topLevelFormat": (0.3, ("json",)),
}
#: Drawn last: tables whose files are never read all at once, and whose checkpoints reuse sidecars.
LARGE_CHANCE = 0.15
LARGE = {
    "large": ("true",),
    "delta.checkpointPolicy": ("v2",),
    "delta.checkpointInterval": ("2", "3"),
    "trilake.checkpoint.partSize": ("1", "2", "4"),
}

#: Still later operations: table features, repeated clones, and damaged checkpoints.
NEWER: dict[str, tuple[str, ...]] = {"lance": (
    "insert", "prune", "unmatch", "refresh", "elsewhere", "tasks", "reindex", "unindex", "index_side", "side", "unside",
    "alter", "tag", "tagged", "rot",
), "delta": (
    "cluster", "rename", "bigger", "constraint", "unconstrain", "txn", "reclone", "tidy", "feature", "rot", "replace",
)}  # fmt: skip
NEWER_CHANCE = {"delta": 0.15, "lance": 0.3}
NEWER_OPTIONS: dict[str, tuple[float, tuple[str, ...]]] = {
    "identity": (0.1, ("true",)),
    "clustered": (0.1, ("true",)),
    "extra": (0.2, ("true",)),
    "delta.enableTypeWidening": (0.1, ("true",)),
}
#: Newest operations on tables with identity columns, whose values may also descend or be given.
NUMBERED = ("sync", "given")
NUMBERED_CHANCE = 0.4
NUMBERS = ("true", "descending", "given")
#: Drawn after everything else: tables partitioned by numbers that writers spell differently.
SPELLED_CHANCE = 0.12


def make_plan(seed: int, format: str | None = None) -> Plan:
    """The plan of a seed; the same in every process."""
    if format == "new":
        from tests.simulation.new_tables import make_new_plan  # which is built from parts of plans

        return make_new_plan(seed)
    rng = random.Random(f"plan {seed}")
    format = format or ("lance" if seed % 4 == 3 else "delta")
    options: dict[str, str] = {}
    weights = LANCE
    if format == "delta":
        weights = DELTA
        options = {k: rng.choice(v) for k, (chance, v) in DELTA_OPTIONS.items() if rng.random() < chance}
        if rng.random() < 0.2:
            options["stream"] = rng.choice(["1", "2"])
    kinds, chances = list(weights), list(weights.values())
    # A seed prefers a few operations, so that two of one kind meet more often.
    favourites = rng.sample(kinds, 3)
    chances = [c * (4 if k in favourites else 1) for k, c in zip(kinds, chances, strict=True)]
    actors: list[tuple[Op, ...]] = []
    number = 0
    for _ in range(rng.randint(2, 4)):
        ops = []
        for _ in range(rng.randint(1, 3)):
            number += 1
            ops.append(Op(number, rng.choices(kinds, chances)[0], (rng.randrange(4), rng.randrange(1 << 16))))
        actors.append(tuple(ops))
    if "stream" in options:
        actors.append(tuple(Op(number + i + 1, "stream", (0, rng.randrange(1 << 16))) for i in range(2)))
    faults = []
    if rng.random() < 0.75:
        names, odds = list(FAULTS), list(FAULTS.values())
        for _ in range(rng.randint(1, 4)):
            faults.append(FaultAt(rng.randrange(len(actors)), rng.randint(1, _CALLS), rng.choices(names, odds)[0]))
            if rng.random() < 0.7:  # most operations make few calls
                faults[-1] = replace(faults[-1], call=rng.randint(1, 25))
            if rng.random() < 0.5:  # the call that decides
                faults[-1] = replace(faults[-1], call=-rng.randint(1, 3))
    page = rng.choice([2, 3, 5, 1000, 1000])
    plan = Plan(seed, format, options, tuple(actors), tuple(faults), rng.choice([0.0, 0.0, 0.5, 0.8]), page)
    from tests.simulation.scenes import with_scene  # scenes are built from parts of plans

    plan = _with_newer(with_scene(_with_later(plan, random.Random(f"later {seed}"))), random.Random(f"newer {seed}"))
    plan = _numbered(_spelled(plan, random.Random(f"spelled {seed}")), random.Random(f"numbered {seed}"))
    return _with_files(plan, random.Random(f"files {seed}"))


def _with_files(plan: Plan, rng: random.Random) -> Plan:
    """Choose the legacy format or 2.x for files of Lance datasets."""
    files = rng.choice(["legacy", "legacy", "2.1", "2.2"])
    return replace(plan, options={**plan.options, "files": files}) if plan.format == "lance" else plan


def _with_later(plan: Plan, rng: random.Random) -> Plan:
    options = dict(plan.options)
    if plan.format == "delta":
        options |= {k: rng.choice(v) for k, (chance, v) in LATER_OPTIONS.items() if rng.random() < chance}
        drawn = random.Random(f"large {plan.seed}")
        if drawn.random() < LARGE_CHANCE:
            options |= {k: drawn.choice(v) for k, v in LARGE.items()}
    return replace(plan, options=options, actors=_with_more(plan, rng, LATER[plan.format], LATER_CHANCE))


def _with_newer(plan: Plan, rng: random.Random) -> Plan:
    options = dict(plan.options)
    if plan.format == "delta":
        drawn = {k: rng.choice(v) for k, (chance, v) in NEWER_OPTIONS.items() if rng.random() < chance}
        if "partitioned" in plan.options:
            drawn.pop("clustered", None)
        options = {**drawn, **options}
    kinds, chance = NEWER[plan.format], NEWER_CHANCE[plan.format]
    return replace(plan, options=options, actors=_with_more(plan, rng, kinds, chance))


def _numbered(plan: Plan, rng: random.Random) -> Plan:
    """Vary the identity column of a table that has one."""
    if "identity" not in plan.options:
        return plan
    options = {**plan.options, "identity": rng.choice(NUMBERS)}
    return replace(plan, options=options, actors=_with_more(plan, rng, NUMBERED, NUMBERED_CHANCE))


def _spelled(plan: Plan, rng: random.Random) -> Plan:
    if plan.format != "delta" or "clustered" in plan.options or rng.random() >= SPELLED_CHANCE:
        return plan
    options = {k: v for k, v in plan.options.items() if k != "partitioned"} | {"spelled": "true"}
    keyed = {"dynamic": "keyed", "where": "keyed"}
    actors = tuple(tuple(replace(op, kind=keyed.get(op.kind, op.kind)) for op in ops) for ops in plan.actors)
    return replace(plan, options=options, actors=actors)


def _with_more(plan: Plan, rng: random.Random, kinds: Sequence[str], chance: float) -> tuple[tuple[Op, ...], ...]:
    """Give some actors one more operation."""
    number, actors = max(plan.ops), list(plan.actors)
    for i, ops in enumerate(actors):
        if ops[0].kind != "stream" and rng.random() < chance:
            number += 1
            more = Op(number, rng.choice(kinds), (rng.randrange(4), rng.randrange(1 << 16)))
            at = rng.randint(0, len(ops))
            actors[i] = (*ops[:at], more, *ops[at:])
    return tuple(actors)
