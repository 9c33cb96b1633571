"""The history of a Delta table as seen by the store, replayed without the library, and the checks at each step."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson
import pyarrow.parquet as pq

from tests.simulation.delta.commit_rules import BLIND, CommitRules
from tests.simulation.delta.derived_files import FileId, check_derived, check_sidecar_deleted, file_id
from tests.simulation.delta.row_rules import Columns, RowRules
from tests.simulation.model import CHANGES, Rows, difference, effect
from tests.simulation.plan import Op
from tests.simulation.world import DAY_MS, Outcome, Violation
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor
from trilake.errors import PostCommitHookError, UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.world import World
    from trilake.storage.memory import MemoryStore

WEEK_MS = 7 * DAY_MS
_COMMIT = re.compile(r"_delta_log/(\d{20})\.json\Z")
_CHECKPOINT = re.compile(
    r"_delta_log/(\d{20})\.checkpoint(?:\.[0-9a-f-]{36})?(?:\.\d{10}\.\d{10})?\.(?:parquet|json)\Z"
)
#: The part number of a multi-part checkpoint.
_PART = re.compile(r"(?<=\.checkpoint)\.\d{10}(?=\.\d{10}\.)")
#: Calls that return the content of an object.
_LOOKS = ("read", "read_range", "read_ranges", "open_input")
_VERSIONED = re.compile(r"_delta_log/(\d{20})\.")
#: Operations of commits that never change rows.
_KEEPS = frozenset(("OPTIMIZE", "VACUUM START", "VACUUM END", "REORG"))
#: The columns of every row, and the identity column that some tables have.
MAIN_COLUMNS = ("id", "k", "p", "v", "n")


@dataclass
class Version:
    """One version: its rows, its live files and its commit."""

    rows: Rows
    live: dict[FileId, dict[str, Any]]
    info: dict[str, Any]
    time: int
    op: Op | None
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    #: Transactions by application, domains by name, and the tombstones of files that are not live.
    keyed: dict[str, dict[str, Any]]
    tombstones: dict[FileId, dict[str, Any]]
    actions: list[tuple[str, dict[str, Any]]]
    appended: set[int] = field(default_factory=set)
    adds: list[dict[str, Any]] = field(default_factory=list)
    removes: list[dict[str, Any]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    #: Row id and version of each row, where rows are tracked, and identity value, where there is one.
    row_ids: dict[int, tuple[int, int]] = field(default_factory=dict)
    numbers: dict[int, int | None] = field(default_factory=dict)


class DeltaHistory:
    """Versions of the table ``t``; other places are only protected from damage."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ops = world.plan.ops
        self.versions: list[Version] = []
        self.committed: dict[int, list[int]] = {}
        self.referenced: dict[str, int] = {}  # data file -> true time when it left the table, or -1 while it is live
        self.owner: dict[str, int] = {}
        self.cleaned = 0  # versions before this have lost their commits
        self.cleaned_at = -1  # step of the last clean-up of the log
        self.sinks: dict[str, set[str]] = {}
        self.acknowledged: list[Outcome] = []
        self.never: list[Outcome] = []
        self._rows: dict[str, tuple[list[tuple[int, tuple[int, str]]], Columns]] = {}
        self._rules, self._row_rules = CommitRules(), RowRules()
        #: Checkpoints damaged on purpose, with the step of the damage.
        self.rotten: dict[str, int] = {}
        numbers = Counter(op.number for ops in world.plan.actors for op in ops)
        #: Operations done by two processes, of which the slower one fails.
        self.twins = {number for number, count in numbers.items() if count > 1}

    @property
    def newest(self) -> int:
        """The newest version."""
        return len(self.versions) - 1

    # --- the store ---

    def wrote(self, place: str, key: str, actor: int) -> None:
        """Check a completed write."""
        match = _COMMIT.match(key)
        if match is not None and place == "t":
            self._commit(int(match[1]))
        elif match is None and place == "t" and key.startswith("_delta_log/"):
            self.rotten.pop(key, None)
            check_derived(self, key)
        elif match is None and place == "t":
            if key in self.referenced:
                raise Violation(f"the data file {key} was written over")
            self.owner[key] = actor

    def _commit(self, version: int) -> None:
        if version != len(self.versions):
            raise Violation(f"version {version} was committed after version {self.newest}")
        store = self.world.place("t")
        lines = [orjson.loads(line) for line in bytes(store.read(f"_delta_log/{version:020d}.json")).splitlines()]
        before = self.versions[-1] if self.versions else None
        info: dict[str, Any] = next((a["commitInfo"] for a in lines if "commitInfo" in a), {})
        metadata = next((a["metaData"] for a in lines if "metaData" in a), before.metadata if before else {})
        protocol = next((a["protocol"] for a in lines if "protocol" in a), before.protocol if before else {})
        note = str(info.get("userMetadata") or "")
        op = self.ops.get(int(note[3:])) if note.startswith("op:") else None
        live = dict(before.live) if before else {}
        now = self.world.now
        actions = [(n, d) for line in lines for n, d in line.items()]
        keyed = _keyed(before, actions)
        tombstones = dict(before.tombstones) if before else {}
        found = Version({}, live, info, now, op, metadata, protocol, keyed, tombstones, actions)
        for action in lines:
            if "remove" in action:
                file = file_id(action["remove"])
                if live.pop(file, None) is None:
                    raise Violation(f"version {version} removes {file}, which is not in the table")
                found.removes.append(action["remove"])
                tombstones[file] = action["remove"]
        for action in lines:
            if "add" in action:
                self._add(version, action["add"], found)
            if "cdc" in action:
                path = unquote(action["cdc"]["path"])
                self._present(path, version)
                self.referenced[path] = now
        found.files = {f for add in live.values() for f in _files(add)}
        for path, left in list(self.referenced.items()):
            if path in found.files:
                self.referenced[path] = -1
            elif left == -1:
                self.referenced[path] = now
        found.rows = self._visible(version, found)
        old = self._judge(version, found, before)
        self._row_rules.check(version, found, before, old)
        self._rules.check(version, found, before, old)
        self.versions.append(found)

    def _add(self, version: int, add: dict[str, Any], found: Version) -> None:
        file = file_id(add)
        again = found.live.get(file)
        if (again is not None and add["dataChange"]) or (again is None and any(p == file[0] for p, _ in found.live)):
            raise Violation(f"version {version} adds {file}, which is there already")
        found.live[file] = add
        found.tombstones.pop(file, None)
        found.adds.append(add)
        for path in _files(add):
            self._present(path, version)
            self.referenced[path] = -1

    def _present(self, path: str, version: int) -> None:
        if not _has(self.world.place("t"), path):
            raise Violation(f"version {version} names {path}, which is not in the store")

    def _visible(self, number: int, version: Version) -> Rows:
        names = _physical(version.metadata)
        rows: Rows = {}
        for add in version.live.values():
            path = unquote(add["path"])
            if path not in self._rows:
                table = pq.ParquetFile(self.world.place("t").open_input(path)).read(use_threads=False)
                partition = add["partitionValues"].get(names["k"])
                k = (
                    [int(partition)] * table.num_rows
                    if names["k"] not in table.column_names
                    else table[names["k"]].to_pylist()
                )
                columns = [table[names["id"]].to_pylist(), k, table[names["v"]].to_pylist()]
                others = {n: table[n].to_pylist() for n in table.column_names if n.startswith("_row-")}
                if "n" in names:
                    others["n"] = table[names["n"]].to_pylist()
                self._rows[path] = [(i, (k, v)) for i, k, v in zip(*columns, strict=True)], others
            gone = self._deleted(add)
            for index, (id, row) in enumerate(self._rows[path][0]):
                if index in gone:
                    continue
                if id in rows:
                    raise Violation(f"row {id} is visible twice, in {path} and in another file")
                rows[id] = row
                self._row_rules.seen(number, version, add, index, id, self._rows[path][1])
        return rows

    def _deleted(self, add: dict[str, Any]) -> set[int]:
        descriptor = DeletionVectorDescriptor.from_json(add.get("deletionVector"))
        if descriptor is None:
            return set()
        return set(descriptor.load(self.world.place("t")).to_array())

    # --- commits ---

    def _judge(self, version: int, found: Version, before: Version | None) -> Version | None:
        """Check the rows, and return the version that a restore names."""
        if before is None or not self.world.steps:  # the table is created
            return None
        op, name = found.op, str(found.info.get("operation"))
        rows, expected = before.rows, before.rows
        restored: Version | None = None
        if op is not None and op.kind in CHANGES and name not in _KEEPS:
            self.committed.setdefault(op.number, []).append(version)
            if len(self.committed[op.number]) > 1:
                raise Violation(f"#{op.number} {op.kind} was committed twice, as {self.committed[op.number]}")
            if op.kind in BLIND:
                expected = effect(op, rows)
                found.appended = set(expected) - set(rows)
            else:
                unseen = self._unseen(version, found)
                seen = {i: r for i, r in rows.items() if i not in unseen}
                if op.kind == "restore":
                    parameters = found.info["operationParameters"]
                    restored = self.versions[int(parameters["version"])]
                old = None if restored is None else restored.rows
                expected = effect(op, seen, old) | {i: r for i, r in rows.items() if i in unseen}
        if expected != found.rows:
            what = f"#{op.number} {op.kind}" if op else name
            raise Violation(f"version {version} by {what} ({name}): {difference(expected, found.rows)}")
        return restored

    def _unseen(self, version: int, found: Version) -> set[int]:
        """Return rows of blind appends that WriteSerializable may order after this commit."""
        level = found.metadata["configuration"].get("delta.isolationLevel", "WriteSerializable")
        read = found.info.get("readVersion")
        if level != "WriteSerializable" or read is None:
            return set()
        return set().union(*(v.appended for v in self.versions[read + 1 : version]), set())

    # --- deletions ---

    def deleted(self, place: str, keys: tuple[str, ...], actor: int, requested: int) -> None:
        """Check deleted objects; the deletion was requested at step ``requested``."""
        for key in keys if place == "t" else ():
            if ".trilake-" in key:
                continue
            if key.startswith("_delta_log/"):
                self._log_file_deleted(key, actor, requested)
            else:
                self._data_file_deleted(key, actor)

    def _data_file_deleted(self, key: str, actor: int) -> None:
        left = self.referenced.get(key)
        if left == -1:
            raise Violation(f"{key} was deleted and the newest version needs it")
        if left is not None:
            age = self.world.now - left
            if age < WEEK_MS:
                raise Violation(
                    f"{key} was deleted {age / DAY_MS:.2f} days after it left the table, within the retention"
                )
            del self.referenced[key]
        elif self.owner.get(key) != actor:
            written = self._written(key)
            if self.world.now - written < WEEK_MS:
                raise Violation(f"{key}, which another writer has just written, was deleted")

    def _written(self, key: str) -> int:
        return self.world.file_times.get(("t", key), self.world.now)

    def _log_file_deleted(self, key: str, actor: int, requested: int) -> None:
        check_sidecar_deleted(self, key)
        match = _COMMIT.match(key)
        if match is not None:
            version = int(match[1])
            if self._newest_intact_checkpoint(self.rotten) <= version:
                looks = self._reads_before_deletion(actor, requested)
                if (
                    self._newest_intact_checkpoint(k for k, step in self.rotten.items() if looks.get(k, step) >= step)
                    <= version
                ):
                    raise Violation(f"the commit of version {version} was deleted and no checkpoint stands for it")
                self.world.moot = True  # intact when it was read, and damaged before the deletion
            follower = self.versions[version + 1].time if version < self.newest else self.world.now
            if version < self.newest:  # in-commit timestamps count if there are any, and a clock may be behind
                follower = min(follower, self.versions[version + 1].info.get("inCommitTimestamp", follower))
            if self.world.now - follower < 30 * DAY_MS:
                raise Violation(
                    f"version {version} was current {(self.world.now - follower) / DAY_MS:.2f} days ago and cannot be"
                    " read any more"
                )
            self.cleaned = max(self.cleaned, version + 1)
        if _VERSIONED.match(key):
            self.cleaned_at = self.world.steps

    def _newest_intact_checkpoint(self, rotten: Iterable[str]) -> int:
        """Return the newest version with a checkpoint without ``rotten`` files, or -1."""
        damaged = {_PART.sub("", key) for key in rotten}
        found = (m for m in map(_CHECKPOINT.match, self._log_keys()) if m and _PART.sub("", m[0]) not in damaged)
        return max((int(m[1]) for m in found), default=-1)

    def _reads_before_deletion(self, actor: int, requested: int) -> dict[str, int]:
        """Return the objects that an actor has read since it listed the log, with the step of the last read."""
        looks: dict[str, int] = {}
        for step, who, what, on in self.world.events:
            call = what.partition(" ")[0]
            if who == actor and step <= requested:
                if (call, on) == ("list", "t:_delta_log"):
                    looks = {}
                elif call in _LOOKS:
                    looks[on.removeprefix("t:")] = step
        return looks

    def _log_keys(self) -> list[str]:
        return [m.key for m in self.world.place("t").list("_delta_log")]

    # --- operations ---

    def skipped_checkpoint(self, segment: Any) -> None:
        """Check that a checkpoint that a reader skipped is damaged."""
        if not any(o.kind == "rot" for o in self.ops.values()) and all(
            _has(self.world.place("t"), f.key) for f in segment.checkpoint_files
        ):
            raise Violation(f"the checkpoint of version {segment.checkpoint_version} was taken for damaged")

    def current_since(self, version: int) -> int:
        """Return the true time until which a version was the newest; now for the newest."""
        return self.versions[version + 1].time if version < self.newest else self.world.now

    def ended(self, outcome: Outcome) -> None:
        """Check the outcome of an operation."""
        op = outcome.op
        versions = self.committed.get(op.number, [])
        if op.kind in CHANGES and op.kind != "stream":
            if outcome.kind == "ok":
                if versions and outcome.value is not None and outcome.value not in (versions[0], None):
                    raise Violation(f"it says that it is version {outcome.value}, it is version {versions[0]}")
                if not versions and not self._may_do_nothing(outcome):
                    raise Violation("it was acknowledged and is in no version")
            elif outcome.kind == "error" and not isinstance(outcome.value, UnknownOutcomeError | PostCommitHookError):
                if op.number in self.twins:
                    return
                if versions:
                    raise Violation(f"it failed with {outcome.value!r}, and is version {versions[0]}")
                self.never.append(outcome)

    def _may_do_nothing(self, outcome: Outcome) -> bool:
        """Return whether the operation changes nothing on some version that it may have read."""
        op = outcome.op
        if op.kind in ("append", "batch", "restore", "replace"):
            return False
        if op.kind == "txn":  # the table already has this version of the application or a newer one
            txn = self.versions[-1].keyed["txn"].get("application")
            return txn is not None and int(txn["version"]) >= op.args[0]
        return any(effect(op, v.rows) == v.rows for v in self.versions[outcome.began :])

    def finish(self) -> None:
        """Check the history at the end of a run."""
        for outcome in self.never:
            if self.committed.get(outcome.op.number):
                raise Violation(
                    f"#{outcome.op.number} {outcome.op.kind} failed with {outcome.value!r} and landed later"
                )
        from tests.simulation.delta.delta_end import check_end

        check_end(self)


def _has(store: MemoryStore, key: str) -> bool:
    return store._root + key in store._space.objects


def _keyed(before: Version | None, actions: list[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return transactions by application and domains by name after the actions of a commit."""
    found = {n: dict(before.keyed[n]) if before else {} for n in ("txn", "domainMetadata")}
    for name, data in actions:
        if name == "txn":
            found[name][data["appId"]] = data
        elif name == "domainMetadata":
            found[name][data["domain"]] = data
            if data.get("removed"):
                del found[name][data["domain"]]
    return found


def _files(add: dict[str, Any]) -> list[str]:
    found = [unquote(add["path"])]
    vector = DeletionVectorDescriptor.from_json(add.get("deletionVector"))
    if vector is not None and vector.storage_type == "u":
        found.append(vector.relative_path())
    return found


def _physical(metadata: dict[str, Any]) -> dict[str, str]:
    fields = orjson.loads(metadata["schemaString"])["fields"]
    return {f["name"]: f["metadata"].get("delta.columnMapping.physicalName", f["name"]) for f in fields}
