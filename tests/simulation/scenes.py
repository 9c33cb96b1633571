"""Scenes: plans with combinations of operations that random choice rarely gives.

A third of the seeds play one.  A scene is a string: actors are separated by ``|``, an operation is a kind or several of
which the seed chooses one (``delete/update``), with an optional key (``delete:0``).  Faults name the
actor, its call (-1 is its first ``put_if_absent``) and their kind.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.simulation.plan import FaultAt, Op, Plan

CHANCE = 1 / 3


@dataclass(frozen=True)
class Scene:
    """The fixed parts of a scene; the seed chooses the rest."""

    actors: str
    options: Mapping[str, str] = field(default_factory=dict)
    faults: str = ""
    #: Whether all operations use the same key.
    one_key: bool = False


_DV = {"delta.enableDeletionVectors": "true"}
_WRITES = "merge/insert/update/delete/where"
DELTA: Mapping[str, Scene] = {
    # Old files are live, just removed, or removed long ago when a vacuum runs.
    "garbage": Scene("overwrite/delete/update vacuum | append/optimize vacuum/lite read", {"aged": "8"}),
    "old garbage": Scene("overwrite/optimize append days:0 vacuum/lite read | append/delete travel"),
    "vectors": Scene("delete:0 days:0 vacuum | update/purge read", _DV),
    "slow clock removes": Scene("overwrite/delete | vacuum/lite append | vacuum", {"aged": "8"}, "0@1 behind"),
    "fast clock cleans": Scene("overwrite/delete | vacuum/lite | append vacuum", {"aged": "8"}, "1@1 ahead"),
    "fast clock cleans the log": Scene(
        "append append checkpoint days:0 days:0 days:0 append cleanup | append read",
        {"delta.checkpointInterval": "2"},
        "0@1 ahead",
    ),
    "log of weeks": Scene(
        "append overwrite append days:2 append cleanup | append/checkpoint cleanup travel",
        {"delta.checkpointInterval": "2"},
    ),
    "log of today": Scene("append overwrite cleanup travel | append cleanup", {"delta.checkpointInterval": "2"}),
    "parts": Scene(
        "append append checkpoint | append read:2 | read:2 append read:2",
        {"delta.checkpointInterval": "2", "trilake.checkpoint.partSize": "1"},
    ),
    "one key": Scene(f"append {_WRITES} | {_WRITES} {_WRITES} | {_WRITES} {_WRITES}", one_key=True),
    "one table": Scene("append/overwrite delete | update/merge append | restore/optimize/append append"),
    "twins": Scene("batch:0 batch:1 | batch:0 batch:1 | append/optimize"),
    "queries": Scene("append append/optimize append | append optimize/delete", {"stream": "1"}),
    "lost replies": Scene("append delete | append/update append | overwrite/merge", faults="0@-1 late; 1@-1 lost/late"),
    "columns": Scene("column append | column/property property | append/drop update"),
    "tracked rows": Scene(
        "append update | append/merge append/optimize | append/restore delete", {"delta.enableRowTracking": "true"}
    ),
    "bursts": Scene(
        "append append append | append append append | read:2 update read:2 | read:2 read:2", {"torn": "true"}
    ),
}
#: Later scenes, drawn separately so that seeds keep their scenes.
NEWER: Mapping[str, Scene] = {
    "damaged checkpoint": Scene(
        "append append/delete checkpoint rot days:2 append cleanup | append/checkpoint cleanup read",
        {"delta.checkpointInterval": "10"},
    ),
    "damaged checkpoint meanwhile": Scene(
        "append append rot append days:2 append rot cleanup | read:2 update/append checkpoint cleanup read:2",
        {"delta.checkpointInterval": "2"},
    ),
    "ids of rows": Scene(
        "update/merge/delete optimize/purge restore | feature/drop update/restore append | restore/merge update",
        {"delta.enableRowTracking": "true"},
    ),
    "identities": Scene(
        "append merge/overwrite append | append insert/restore append | append/txn append", {"identity": "true"}
    ),
    "names": Scene(
        "rename update/append rename | append merge/narrow restore | optimize/update append read:2",
        {"extra": "true", "delta.columnMapping.mode": "name"},
    ),
    "types": Scene(
        "append bigger append | append/merge update read:2 | optimize restore/append read:2",
        {"extra": "true", "delta.enableTypeWidening": "true"},
    ),
    "constraints": Scene(
        "constraint/append append | delete/update constraint append | merge/insert/txn constraint/unconstrain append"
    ),
    "applications": Scene("txn:0 txn:1 txn:2 | txn:0 txn:1 append | txn:1 txn:2 optimize"),
    "copies": Scene(
        "append reclone append/delete reclone | reclone tidy update | overwrite days:0 tidy reclone vacuum",
        {"aged": "8"},
    ),
    "clusters": Scene(
        "append cluster optimize | append/merge optimize cluster | restore cluster/delete optimize read:2",
        {"clustered": "true"},
    ),
    "features": Scene("append feature update | feature/drop append delete | feature/restore merge/optimize checkpoint"),
    "new tables": Scene("replace append/column | append/merge replace restore | column/update replace read:2"),
}
NEWER_CHANCE = 0.2
NEWER_LANCE: Mapping[str, Scene] = {
    "keys": Scene("append insert delete | insert/prune insert/append | unmatch/delete/refresh insert", one_key=True),
    "merges": Scene("prune/unmatch upsert | refresh/upsert prune | append/insert unmatch/update"),
    "indices dropped": Scene("index unindex index search | append reindex search | reindex/unindex update search"),
    "columns": Scene("side append unside search | index_side append/elsewhere search | side/alter index_side search"),
    "columns of one id": Scene(
        "side:0 read unside side:1 search | read index_side read index_side read index_side search",
        {},
        "1@1 slow; 1@-1 slow; 1@-2 slow; 1@-3 slow; 1@-4 slow",
    ),
    "tags": Scene("tag:1 append tagged tagged | delete/append days:0 cleanup tagged | tag:2 cleanup", {"aged": "8"}),
    "fragments from elsewhere": Scene(
        "elsewhere delete elsewhere | overwrite/restore elsewhere | tasks/side elsewhere"
    ),
    "tasks": Scene("append tasks search | delete/update/upsert index tasks | append/insert tasks reindex search"),
    "lost manifests": Scene(
        "append insert elsewhere | prune/update tasks reindex | side/rot alter/append",
        faults="0@-2 late/lost; 1@-2 lost/late; 2@-2 crash after/lost",
    ),
    "copies of manifests": Scene("append rot append | rot read travel | update/optimize rot restore read"),
}
#: The latest scenes.
NEWEST_LANCE: Mapping[str, Scene] = {
    "names of indices": Scene("append named:0 search named | named:1 search | named/unindex append named search"),
    "damaged versions": Scene(
        "append spoil append travel restore | delete/update spoil days:0 cleanup travel"
        " | append/insert spoil cleanup read",
        {"aged": "8"},
    ),
    "damaged versions meanwhile": Scene(
        "read:2 append append spoil spoil travel | read:2 read:2 spoil/tag tagged append delete/upsert"
        " | append cleanup travel",
        {"aged": "8"},
        "2@-1002 slow",
    ),
    # The first file that a clean-up deletes is the one it wrote to get the store's time.
    "tags behind a clean-up": Scene(
        "read read read read read read tag:3 tag:3 move:3 tagged | append cleanup tagged"
        " | read read read read read read read read tag:3 move:3 tagged",
        {"aged": "8"},
        "1@-1002 slow/slow/late; 1@-1003 slow",
    ),
    "restores behind a clean-up": Scene(
        "append restore:1 read restore:2 read | append days:0 append cleanup read | restore:2 restore:1 read",
        {"aged": "8"},
        "1@-1001 slow; 1@-1002 slow/slow/late",
    ),
}
NEWEST: Mapping[str, Scene] = {
    "clustering": Scene(
        "cluster append | narrow/replace/restore/feature append | cluster/rename/optimize narrow",
        {"extra": "true", "clustered": "true", "delta.columnMapping.mode": "name"},
    ),
    "numbers": Scene("append sync append | given/merge sync append | restore/overwrite given", {"identity": "true"}),
}
NEWEST_CHANCE = 0.1
#: Scenes of writers that create one table (``--format new``).
NEW: Mapping[str, Scene] = {
    "first rows": Scene("append append | append/overwrite append | append/ignore append"),
    "one of several": Scene("error/ignore append | error/ignore/append | ignore append/overwrite"),
    "described": Scene(
        "create/create_if_not_exists append | create_if_not_exists append | create_or_replace/append read",
        {"table": "delta"},
    ),
    "jobs end together": Scene("append append append | append append append | append append", {"table": "trevni"}),
    "twins": Scene("batch:0 batch:1 | batch:0 batch:1 | append read", {"table": "trevni"}),
    "files land late": Scene(
        "append read append | append read | read read read",
        {"table": "trevni"},
        "0@20 late; 0@23 late; 1@20 late; 1@23 late",
    ),
}
LANCE: Mapping[str, Scene] = {
    "garbage": Scene("delete/update/optimize cleanup | append cleanup read", {"aged": "8"}),
    "fast clock cleans": Scene("append/delete | append cleanup | cleanup", {"aged": "6"}, "1@1 ahead; 2@1 ahead"),
    "ids": Scene("append restore:0 append | append/index search | delete search"),
    "one key": Scene("append upsert/update | upsert/delete upsert | update/delete upsert/append", one_key=True),
    "indices": Scene("index optimize search | update/delete index search | append/upsert optimize search"),
}


def with_scene(plan: Plan) -> Plan:
    """Return the plan of a seed, which may play a scene instead of its random operations."""
    delta = plan.format == "delta"
    for drawn, chance, scenes in (
        ("newest scene", NEWEST_CHANCE, NEWEST if delta else NEWEST_LANCE),
        ("newer scene", NEWER_CHANCE, NEWER if delta else NEWER_LANCE),
        ("scene", CHANCE, DELTA if delta else LANCE),
    ):
        rng = random.Random(f"{drawn} {plan.seed}")
        if rng.random() < chance:
            return with_operations(scenes[rng.choice(sorted(scenes))], plan, rng)
    return plan


def with_operations(scene: Scene, plan: Plan, rng: random.Random) -> Plan:
    """Return a plan with its operations replaced by a scene."""
    key, number = (rng.randrange(4), rng.randrange(1 << 16)), 0
    actors: list[tuple[Op, ...]] = []
    batches: dict[int, Op] = {}
    for text in scene.actors.split("|"):
        ops = []
        for word in text.split():
            kinds, _, what = word.partition(":")
            kind, number = rng.choice(kinds.split("/")), number + 1
            args = key if scene.one_key else (int(what or rng.randrange(4)), rng.randrange(1 << 16))
            op = Op(number, kind, args)
            # A batch is the same for every writer.
            ops.append(batches.setdefault(args[0], op) if kind == "batch" else op)
        actors.append(tuple(ops))
    options = {k: v for k, v in plan.options.items() if k != "stream"} | dict(scene.options)
    if "clustered" in options:
        options.pop("partitioned", None)
    if "stream" in options:
        actors.append(tuple(Op(number + i + 1, "stream", (0, rng.randrange(1 << 16))) for i in range(2)))
    faults = [f for f in plan.faults if f.actor < len(actors)]
    for text in filter(None, scene.faults.split("; ")):
        place, _, kinds = text.partition(" ")
        actor, call = map(int, place.split("@"))
        faults.append(FaultAt(actor, call, rng.choice(kinds.split("/"))))
    return replace(plan, options=options, actors=tuple(actors), faults=tuple(faults))
