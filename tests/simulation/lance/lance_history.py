"""The history of a Lance dataset as seen by the store, and the checks at each step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from tests.simulation.lance.lance_rows import SIDE, side_columns, wrong_side
from tests.simulation.model import CHANGES, Rows, difference, effect
from tests.simulation.plan import Op
from tests.simulation.world import DAY_MS, Outcome, Violation
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import UnknownOutcomeError
from trilake.lance.cleanup import files_of
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import operations, transaction
from trilake.lance.versions.holds import REMOVALS
from trilake.lance.versions.manifest import Manifest
from trilake.lance.versions.versions import TAGS, list_versions

if TYPE_CHECKING:
    from tests.simulation.world import World

WEEK_MS = 7 * DAY_MS
_MANIFEST = re.compile(r"_versions/(\d+)\.manifest\Z")
_LAST = 2**64 - 1
_ROWS = (operations.Append, operations.Delete, operations.Update, operations.Overwrite, operations.Restore)


def _version_of(key: str) -> int | None:
    """Return the version of a manifest key in either naming scheme, or ``None``."""
    match = _MANIFEST.match(key)
    if match is None:
        return None
    return _LAST - int(match[1]) if len(match[1]) == 20 else int(match[1])


@dataclass
class Version:
    """One version."""

    rows: Rows
    manifest: Manifest
    time: int
    op: Op | None


class LanceHistory:
    """Versions of the dataset ``t``, by number."""

    def __init__(self, world: World) -> None:
        self.world, self.ops = world, world.plan.ops
        self.versions: dict[int, Version] = {}
        self.committed: dict[int, list[int]] = {}
        self.owner: dict[str, int] = {}
        self.never: list[Outcome] = []
        self.cleaned_at = -1
        #: Versions by acknowledged tag, and whether a clean-up has announced its deletions.
        self.tags: dict[str, int] = {}
        self.announced = False
        #: Versions that lost files to a clean-up that may not have deleted their manifests yet.
        self.going: set[int] = set()
        #: Older versions with manifests damaged on purpose, with the step of the damage.
        self.spoiled: dict[int, int] = {}

    @property
    def newest(self) -> int:
        """The newest version."""
        return max(self.versions, default=0)

    def wrote(self, place: str, key: str, actor: int) -> None:
        """Check a completed write."""
        number = _version_of(key)
        if number is not None:
            self._commit(number)
            return
        self.owner.setdefault(key, actor)
        self.announced |= key.startswith(f"{REMOVALS}/")
        name = key.removeprefix(f"{TAGS}/").removesuffix(".json")
        if name in self.tags:  # the tag moved, and from now on the other version must stay
            self.tags[name] = orjson.loads(bytes(self.world.place("t").read(key)))["version"]

    def _commit(self, number: int) -> None:
        if number != self.newest + 1:
            raise Violation(f"version {number} was committed after version {self.newest}")
        store = self.world.place("t")
        manifest = transaction.load(store, number, list_versions(store))
        text = manifest.transaction_file.removesuffix(".txn")
        op = self.ops.get(int(text[-8:], 16))
        done = transaction.parse(bytes(store.read(f"_transactions/{manifest.transaction_file}"))).operation
        for key in files_of(manifest):
            there = any(True for _ in store.list(key)) if key.endswith("/") else _has(store, key)
            if not there:
                raise Violation(f"version {number} names {key}, which is not in the store")
        last = self.versions[number - 1].manifest.max_fragment_id if number > 1 else 0
        if manifest.max_fragment_id < last:
            raise Violation(f"version {number} counts fragments from {manifest.max_fragment_id} on, {last} was given")
        found = Version(read(Snapshot(store, manifest, SYSTEM_RUNTIME)), manifest, self.world.now, op)
        before = self.versions[number - 1].rows if number > 1 else {}
        expected = before
        if op is not None and op.kind in CHANGES and isinstance(done, _ROWS):
            self.committed.setdefault(op.number, []).append(number)
            if len(self.committed[op.number]) > 1:
                raise Violation(f"#{op.number} {op.kind} was committed twice, as {self.committed[op.number]}")
            old = self.versions[done.version].rows if isinstance(done, operations.Restore) else None
            expected = effect(op, before, old)
        elif number == 1:
            expected = found.rows
        if expected != found.rows:
            what = f"#{op.number} {op.kind}" if op else "nobody"
            raise Violation(f"version {number} by {what} ({type(done).__name__}): {difference(expected, found.rows)}")
        self._indices(number, found)
        self.versions[number] = found

    def _indices(self, number: int, found: Version) -> None:
        """Check that no dropped index returns, and none takes a name that it must not replace."""
        op, before = found.op, self.versions[number - 1].manifest.indices if number > 1 else ()
        back = {i.name for i in found.manifest.indices} - {i.name for i in before}
        if back and op is not None and op.kind in ("reindex", "unindex"):
            raise Violation(f"version {number} by #{op.number} {op.kind} has the index {min(back)}, which was dropped")
        if op is not None and op.kind == "named" and self.takes_name(op, number - 1):
            raise Violation(f"version {number} by #{op.number} has an index in place of one that it must not replace")

    def takes_name(self, op: Op, number: int) -> bool:
        """Return whether an operation's index takes a name in a version that it must not replace."""
        if number not in self.versions:
            return False
        manifest = self.versions[number].manifest
        fields = [manifest.schema.by_id(i.fields[0]) for i in manifest.indices if i.name == "shared"]
        return any(op.args[1] % 3 == 0 or f is None or f.name != "kv"[op.args[0] % 2] for f in fields)

    def deleted(self, place: str, keys: tuple[str, ...], actor: int, requested: int) -> None:
        """Check deleted objects; the deletion was requested at step ``requested``."""
        now = self.world.now
        young = [v for v in self.versions.values() if now - v.manifest.timestamp_ns // 10**6 < WEEK_MS]
        needed = set().union(*(files_of(v.manifest) for v in [*young, self.versions[self.newest]]))
        tagged = [self.versions[v] for v in set(self.tags.values())]
        needed |= set().union(*(files_of(v.manifest) for v in tagged))
        every = set().union(*(files_of(v.manifest) for v in self.versions.values()))
        lost = {n for n, v in self.versions.items() if files_of(v.manifest).intersection(keys)}
        if lost:
            self.going |= lost
            self.cleaned_at = self.world.steps
        self._not_in_doubt([k for k in keys if k in every or _version_of(k) is not None], actor, requested)
        for key in keys:
            number = _version_of(key)
            folder = "/".join(key.split("/")[:2]) + "/"
            if number is not None:
                self.cleaned_at = self.world.steps
                self.spoiled.pop(number, None)
                version = self.versions[number]
                if number == self.newest or version in young or version in tagged:
                    raise Violation(f"version {number} was deleted")
            elif key.startswith(f"{REMOVALS}/"):
                continue  # left by a clean-up that died
            elif key in needed or folder in needed:
                raise Violation(f"{key} was deleted, and a version that stays needs it")
            elif not {key, folder} & every and self.owner.get(key) != actor and ".trilake-" not in key:
                if now - self.world.file_times.get((place, key), now) >= WEEK_MS:
                    continue
                raise Violation(f"{key}, which another writer has just written, was deleted")

    def _not_in_doubt(self, keys: list[str], actor: int, requested: int) -> None:
        """Check that a clean-up that deletes files found no damaged manifest."""
        listing = list_versions(self.world.place("t"))
        for version, spoiled in self.spoiled.items() if keys else ():
            on = f"t:{listing.key(version)}"
            looks = (s for s, who, _, what in self.world.events if (who, what) == (actor, on) and s <= requested)
            if max(looks, default=-1) > spoiled:
                raise Violation(f"{keys[0]} was deleted, and the damaged manifest of version {version} may name it")

    def ended(self, outcome: Outcome) -> None:
        """Check the outcome of an operation."""
        op, versions = outcome.op, self.committed.get(outcome.op.number, [])
        if op.kind not in CHANGES:
            return
        if outcome.kind == "ok":
            if versions and outcome.value is not None and outcome.value != versions[0]:
                raise Violation(f"it says that it is version {outcome.value}, it is version {versions[0]}")
            unchanged = op.kind not in ("append", "batch", "elsewhere", "restore", "overwrite") and any(
                effect(op, v.rows) == v.rows for n, v in self.versions.items() if n >= outcome.began
            )
            if not versions and not unchanged:
                raise Violation("it was acknowledged and is in no version")
        elif outcome.kind == "error" and not isinstance(outcome.value, UnknownOutcomeError):
            if versions:
                raise Violation(f"it failed with {outcome.value!r}, and is version {versions[0]}")
            self.never.append(outcome)

    def finish(self) -> None:
        """Check the history at the end of a run."""
        for outcome in self.never:
            if self.committed.get(outcome.op.number):
                raise Violation(
                    f"#{outcome.op.number} {outcome.op.kind} failed with {outcome.value!r} and landed later"
                )
        snapshot = Snapshot.open(self.world.place("t"), SYSTEM_RUNTIME)
        if snapshot.version != self.newest:
            raise Violation(f"the newest version is {self.newest}, and {snapshot.version} is shown")
        self.check(snapshot)
        self.check(snapshot, key=1)
        tagged = list(self.tags.values())
        for number in {*list_versions(snapshot.store).versions[-3:-1], *tagged}:
            if number in self.spoiled or (number in self.going and number not in tagged):
                continue
            self.check(Snapshot.open(self.world.place("t"), SYSTEM_RUNTIME, number))

    def check(self, snapshot: Snapshot, key: int | None = None) -> None:
        """Check the rows of a version, or those of one key."""
        rows = self.versions[snapshot.version].rows
        expected = rows if key is None else {i: r for i, r in rows.items() if r[0] == key}
        found = read(snapshot, None if key is None else f"k = {key}")
        if found != expected:
            raise Violation(f"version {snapshot.version} as read, k = {key}: {difference(expected, found)}")
        if key is not None:
            self._check_indices(snapshot, rows, key)

    def _check_indices(self, snapshot: Snapshot, rows: Rows, key: int) -> None:
        """Check that a filter with an index finds the rows of a scan."""
        for index in snapshot.manifest.indices:
            field = snapshot.manifest.schema.by_id(index.fields[0])
            if field is None:
                raise Violation(f"version {snapshot.version}: index {index.name} is of no column")
            if field.name == "v":
                for value in {v for _, v in rows.values()}:
                    self._check_filter(snapshot, f"v = '{value}'", {i: r for i, r in rows.items() if r[1] == value})
            elif side_columns([field.name]):
                number = SIDE[field.name[0]] + key
                having = {i: r for i, r in rows.items() if r[0] == key}
                if _may_lack(snapshot):
                    having = read(snapshot, f"{field.name} + 0 = {number}")  # without the index
                self._check_filter(snapshot, f"{field.name} = {number}", having)

    def _check_filter(self, snapshot: Snapshot, filter: str, expected: Rows) -> None:
        found = read(snapshot, filter)
        if found != expected:
            raise Violation(f"version {snapshot.version}, {filter}: {difference(expected, found)}")


def _may_lack(snapshot: Snapshot) -> bool:
    """Return whether rows may lack columns added concurrently, as 2.x files allow."""
    return not snapshot.manifest.storage_version.is_legacy


def read(snapshot: Snapshot, filter: str | None = None) -> Rows:
    """Return the rows of a version; raise if a row occurs twice."""
    batches: Any = list(snapshot.scan(snapshot.plan(None, filter)))
    table = pa.Table.from_batches(batches, schema=snapshot.schema)
    wrong = wrong_side(table, may_lack=_may_lack(snapshot))
    if wrong is not None:
        raise Violation(f"version {snapshot.version}: {wrong}")
    columns = [table[n].to_pylist() for n in ("id", "k", "v")]
    rows = {i: (k, v) for i, k, v in zip(*columns, strict=True)}
    if len(rows) < table.num_rows:
        raise Violation(f"a row is visible twice in version {snapshot.version}")
    return rows


def _has(store: Any, key: str) -> bool:
    return store._root + key in store._space.objects
