"""Operations of the simulation on Lance features: more kinds of merges, column and index changes, tags, and changes
that one process makes and another commits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.simulation.lance.lance_rows import SIDE, arrow, side_columns
from tests.simulation.model import new_rows, source_rows, upserted
from tests.simulation.world import Violation
from trilake.errors import (
    ConflictError,
    CorruptLogError,
    InvalidArgumentError,
    SchemaMismatchError,
    StorageError,
    TrilakeError,
    VersionNotFoundError,
)
from trilake.lance.commands import columns, compaction, index_segments, indices
from trilake.lance.commands.fragment_writer import Target, WriteOptions, write_fragments
from trilake.lance.commands.merge_insert import MergeInsert, merge_insert
from trilake.lance.file.errors import IndexExistsError, TaggedVersionError, UnknownIndexError
from trilake.lance.pylance.lance_dataset import LanceDataset
from trilake.lance.pylance.operation import LanceOperation
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.versions import transaction
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.versions import LATEST, list_versions, read_tag

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.lance.lance_ops import Job
    from tests.simulation.model import Rows


# --- rows ---


def _merged(job: Job, what: MergeInsert, rows: Rows) -> int:
    snapshot = job.snapshot()
    return merge_insert(snapshot, what, arrow(rows, snapshot.schema))[0].version


def _insert(job: Job) -> int:
    """Insert rows of missing keys."""
    return _merged(job, MergeInsert(("k",), insert=True), source_rows(job.op))


def _prune(job: Job) -> int:
    """Run a merge that also deletes rows of one key that are not in the source."""
    what = MergeInsert(("id",), update=True, insert=True, delete_unmatched=True, delete_if=f"k = {job.op.args[0]}")
    return _merged(job, what, upserted(job.op))


def _unmatch(job: Job) -> int:
    """Run a merge that deletes matched rows."""
    return _merged(job, MergeInsert(("id",), delete_matched=True), upserted(job.op))


def _refresh(job: Job) -> int:
    """Run a merge that updates rows if a condition over both sides holds, and inserts none."""
    return _merged(job, MergeInsert(("id",), update=True, update_if="source.k = target.k"), upserted(job.op))


def _elsewhere(job: Job) -> int:
    """Append fragments that one process writes and another commits from JSON strings."""
    base = job.snapshot()
    rows = arrow(new_rows(job.op), base.schema).to_batches()
    target = Target(base.manifest.schema, base.manifest.storage_version)
    made = write_fragments(job.store, rows, target, WriteOptions(2, 2), job.runtime)
    texts = [json.dumps(FragmentMetadata.of(f).to_json()) for f in made]
    append = LanceOperation.Append([FragmentMetadata.from_json(t) for t in texts])
    begun = transaction.begin(base.version, append.resolve(base.manifest), job.runtime)
    return transaction.commit(job.store, begun, job.runtime).version


# --- files ---


def _tasks(job: Job) -> None:
    """Compact with tasks that run in other processes."""
    base = job.snapshot()
    plan = compaction.plan_compaction(base, compaction.CompactionOptions(target_rows_per_fragment=4))
    tasks = [compaction.CompactionTask.from_json(t.json()) for t in plan.tasks]
    done = [compaction.rewrite(base, t).json() for t in tasks]
    compaction.commit_compaction(base, [compaction.RewriteResult.from_json(t) for t in done])


def _reindex(job: Job) -> None:
    index_segments.optimize(job.snapshot())


def _unindex(job: Job) -> None:
    base = job.snapshot()
    if base.manifest.indices:
        indices.drop_index(base, base.manifest.indices[0].name)


def _named(job: Job) -> None:
    """Create an index on one of two columns with a shared name, with or without ``replace``."""
    column, may_replace = "kv"[job.op.args[0] % 2], job.op.args[1] % 3 > 0
    indices.create_scalar_index(job.snapshot(), column, name="shared", replace=may_replace)


def _index_side(job: Job) -> None:
    base = job.snapshot()
    for name in side_columns(base.schema.names)[:1]:
        indices.create_scalar_index(base, name)


# --- columns ---


def _side(job: Job) -> None:
    """Add a column with the key plus the number for its first letter."""
    letter = "ce"[job.op.args[0] % 2]
    columns.add_expressions(job.snapshot(), {f"{letter}{job.op.number}": f"k + {SIDE[letter]}"})


def _unside(job: Job) -> None:
    base = job.snapshot()
    for name in side_columns(base.schema.names)[:1]:
        columns.drop_columns(base, [name])


def _alter(job: Job) -> None:
    """Rename a side column, change its type, or both."""
    base, choice = job.snapshot(), job.op.args[0] % 3
    for name in side_columns(base.schema.names)[:1]:
        change: dict[str, object] = {"path": name}
        if choice != 1:
            change["name"] = f"{name[0]}{job.op.number}"
        if choice:
            change["data_type"] = pa.int32() if base.schema.field(name).type == pa.int64() else pa.int64()
        columns.alter_columns(base, [change])


# --- versions ---


def _tag(job: Job) -> None:
    version, name = max(1, job.history.newest - job.op.args[0]), f"t{job.op.number}"
    LanceDataset.of(job.snapshot(), job.store.uri).tags.create(name, version)
    job.history.tags[name] = version
    _check_tag(job, name)


def _move(job: Job) -> None:
    """Move a tag of this process to another version, or delete it."""
    tags = LanceDataset.of(job.snapshot(), job.store.uri).tags
    for name in [f"t{op.number}" for op in job.actor.ops if f"t{op.number}" in job.history.tags]:
        if job.op.args[1] % 4 == 0:
            del job.history.tags[name]
            tags.delete(name)
        else:
            tags.update(name, max(1, job.history.newest - job.op.args[0]))
            _check_tag(job, name)


def _check_tag(job: Job, name: str) -> None:
    """Check that the version of an acknowledged tag exists now."""
    try:
        job.history.check(Snapshot.open(job.world.place("t"), job.runtime, job.history.tags[name]))
    except CorruptLogError:
        if job.history.tags[name] not in job.history.spoiled:
            raise
    except (StorageError, VersionNotFoundError) as e:
        raise Violation(f"the tag {name} was acknowledged, and its version is gone: {e}") from e


def _tagged(job: Job) -> None:
    """Check that tagged versions read as before."""
    for name in sorted(job.history.tags):
        faults, found = job.actor.faults, 0
        try:
            found = read_tag(job.store, name).version
            job.history.check(Snapshot.open(job.store, job.runtime, found))
        except CorruptLogError:
            if found not in job.history.spoiled:
                raise
        except (StorageError, VersionNotFoundError) as e:
            if job.actor.faults > faults:
                raise
            if name in job.history.tags and job.history.tags[name] in (0, found):
                raise Violation(f"version {found} of the tag {name} cannot be read: {e}") from e


def _rot(job: Job) -> None:
    """Damage or delete the copy of the newest manifest, which no reader needs."""
    store = job.world.place("t")
    if job.op.args[0] % 2:
        store.delete([LATEST])
    else:
        store.put(LATEST, b"damaged"[: job.op.args[1] % 8])
    job.world.trace(job.actor.number, "rot", LATEST)


def _spoil(job: Job) -> None:
    """Damage the manifest of an older version, or overwrite it with the newest one."""
    store, history = job.world.place("t"), job.history
    listing = list_versions(store)
    older = [v for v in listing.versions[:-1] if v not in history.spoiled]
    if not older:
        return
    version, kind = older[-1 - job.op.args[0] % len(older)], job.op.args[1] % 4
    content, newest = (bytes(store.read(listing.key(v))) for v in (version, listing.latest))
    store.put(listing.key(version), (content[: len(content) // 2], b"", bytes(len(content)), newest)[kind])
    history.spoiled[version] = job.world.steps
    job.world.trace(job.actor.number, "spoil", f"version {version} {kind}")


def feature_explains(job: Job, e: TrilakeError, began: int) -> bool:
    """Return whether the dataset's features explain an error of an operation that began on version ``began``."""
    kind, later = job.op.kind, job.history.newest > began
    kinds = {op.kind for op in job.world.plan.ops.values()}
    if isinstance(e, CorruptLogError) and job.history.spoiled:
        # A requested version, one that was the newest since it began, or any that may stay.
        meanwhile = range(began, job.history.newest + 1)
        asks = kind in ("cleanup", "travel", "restore", "batch")
        return asks or any(v in job.history.spoiled for v in meanwhile)
    if isinstance(e, TaggedVersionError):
        return kind == "cleanup" and "tag" in kinds
    if isinstance(e, VersionNotFoundError) and kind in ("tag", "move"):
        return job.history.cleaned_at >= 0
    if isinstance(e, ConflictError) and kind in ("tag", "move", "restore") and "a cleanup is deleting" in e.message:
        return job.history.announced
    if isinstance(e, IndexExistsError):
        return kind == "named" and any(job.history.takes_name(job.op, v) for v in range(began, job.history.newest + 1))
    if isinstance(e, UnknownIndexError):
        return kind == "unindex" and later
    if isinstance(e, SchemaMismatchError):
        return "side" in kinds  # batches and overwrites have no additional columns
    return isinstance(e, InvalidArgumentError) and kind in ("unside", "alter", "index_side") and later


OPERATIONS: dict[str, Callable[[Job], object]] = {
    "insert": _insert,
    "prune": _prune,
    "unmatch": _unmatch,
    "refresh": _refresh,
    "elsewhere": _elsewhere,
    "tasks": _tasks,
    "reindex": _reindex,
    "unindex": _unindex,
    "named": _named,
    "index_side": _index_side,
    "side": _side,
    "unside": _unside,
    "alter": _alter,
    "tag": _tag,
    "move": _move,
    "tagged": _tagged,
    "rot": _rot,
    "spoil": _spoil,
}
