"""Operations of the simulation on Delta features: constraints, clustering, column changes, repeated clones and damaged
checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tests.simulation.delta.commit_rules import EXTRA
from tests.simulation.delta.delta_history import MAIN_COLUMNS
from tests.simulation.delta.delta_rows import model
from tests.simulation.delta.derived_files import damageable
from tests.simulation.model import difference, new_rows
from tests.simulation.world import Violation
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commands.maintenance.clone import clone
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import (
    ConstraintViolatedError,
    CorruptLogError,
    InvalidArgumentError,
    MetadataChangedError,
    MissingFileError,
    SchemaMismatchError,
    TrilakeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.delta.delta_ops import Job

COPY = "copy"
_FEATURES = (
    {"delta.enableRowTracking": "true"},
    {"delta.enableDeletionVectors": "true"},
    {"delta.enableInCommitTimestamps": "true"},
    {"delta.columnMapping.mode": "name"},
)
_KEYS = (("k",), ("id",), ("k", "id"), ())


def _extra(job: Job) -> list[str]:
    """Return the columns that not every row has."""
    return [f.name for f in job.log().head().metadata.schema.fields if f.name not in MAIN_COLUMNS]


def _cluster(job: Job) -> int:
    extra = _extra(job) if job.op.args[1] % 2 else []  # which others drop
    return Alter(job.log()).cluster_by(*(extra[:1] or _KEYS[job.op.args[0]]))


def _rename(job: Job) -> int | None:
    extra = _extra(job)
    if not extra or "delta.columnMapping.mode" not in job.world.plan.options:
        return None
    mark = EXTRA if extra[0].startswith(EXTRA) else "r"
    return Alter(job.log()).rename_column(extra[0], f"{mark}{job.op.number}")


def _bigger(job: Job) -> int | None:
    extra = _extra(job)
    if not extra or "delta.enableTypeWidening" not in job.world.plan.options:
        return None
    return Alter(job.log()).change_type(extra[0], "bigint")


def _constraint(job: Job) -> int:
    return Alter(job.log()).add_constraint(f"c{job.op.number}", f"k <> {job.op.args[0]}")


def _unconstrain(job: Job) -> int | None:
    names = [k for k in job.log().head().metadata.configuration if k.startswith("delta.constraints.")]
    return Alter(job.log()).drop_constraint(min(names).rpartition(".")[2], if_exists=True) if names else None


def _feature(job: Job) -> int:
    return Alter(job.log()).set_properties(_FEATURES[job.op.args[0]])


def _txn(job: Job) -> int | None:
    """Append as a version of an application; a second attempt leaves the table unchanged."""
    return job.write(new_rows(job.op), "append", txn=("application", job.op.args[0]))


def _sync(job: Job) -> int | None:
    return Alter(job.log()).sync_identity("n") if "n" in job.log().head().schema.names else None


def _given(job: Job) -> int | None:
    """Append rows with identity values that no writer generates, if the table accepts them."""
    rows = new_rows(job.op)
    accepts = job.world.plan.options.get("identity") == "given" and "n" in job.log().head().schema.names
    return job.write(rows, "append", numbers=[-id for id in rows] if accepts else None)


def _replace(job: Job) -> int | None:
    """Replace the rows with a new schema that has none of the added columns."""
    return job.write(new_rows(job.op), "overwrite", bare=True, schema_mode="overwrite")


def _reclone(job: Job) -> None:
    """Clone over the previous clone, concurrently with other clones and vacuums of the copy."""
    log = job.log()
    source = log.snapshot()
    into = DeltaLog(job.store(COPY), job.engine)
    done = clone(source, log, into, shallow=job.op.args[1] % 4 == 0, replace_target=True)
    try:
        found = model(ArrowDeltaTable(job.store(COPY), job.engine, version=done.version).to_arrow())
    except MissingFileError as e:
        raise Violation(f"the clone of version {source.version} was committed and lacks a file: {e}") from e
    expected = job.history.versions[source.version].rows
    if found != expected:
        raise Violation(f"the clone of version {source.version}: {difference(expected, found)}")


def _tidy(job: Job) -> None:
    """Vacuum the copy; files that a shallow clone names belong to the source and stay."""
    if DeltaLog(job.store(COPY), job.engine).exists():
        ArrowDeltaTable(job.store(COPY), job.engine).vacuum()


def _rot(job: Job) -> None:
    """Damage a checkpoint while every commit before it exists."""
    store, history = job.world.place("t"), job.history
    keys = [] if history.cleaned else damageable(store)
    if not keys:
        return
    key = keys[-1 - job.op.args[0] % len(keys)]
    content, kind = bytes(store.read(key)), job.op.args[1] % 3
    half = len(content) // 2
    store.put(key, (content[:half], b"", content[: half // 2] + bytes(half) + content[half // 2 + half :])[kind])
    history.rotten[key] = job.world.steps
    job.world.trace(job.actor.number, "rot", f"{key} {kind}")


def _modes_differ(job: Job, began: int) -> bool:
    """Return whether a version that it may have cloned has another mapping mode than the copy to replace."""
    modes: set[str] = set()
    copy = job.world.place(COPY)
    for meta in copy.list("_delta_log/"):
        if meta.key.endswith(".json"):
            for line in bytes(copy.read(meta.key)).splitlines():
                modes.update(_mode(m) for n, m in orjson.loads(line).items() if n == "metaData")
    sources = {_mode(v.metadata) for v in job.history.versions[max(0, began) :]}
    return len(sources | modes) > 1


def _mode(metadata: dict[str, Any]) -> str:
    return str(metadata["configuration"].get("delta.columnMapping.mode", "none"))


def feature_explains(job: Job, e: TrilakeError, began: int, changed: set[str]) -> bool:
    """Return whether the table's features explain an error; ``changed`` is what commits did since the operation
    began on version ``began``."""
    kind, history = job.op.kind, job.history
    if isinstance(e, ConstraintViolatedError):
        known = (v.metadata["configuration"] for v in history.versions[max(0, began) :])
        return kind == "constraint" or any(k.startswith("delta.constraints.") for c in known for k in c)
    if isinstance(e, InvalidArgumentError) and (kind == "cluster" or e.condition == "DELTA_CLUSTERING_WITH_ZORDER_BY"):
        return True  # a table is partitioned or clustered, and a clustered table already has an order
    if kind == "reclone" and e.condition == "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE":
        return _modes_differ(job, began)
    if isinstance(e, SchemaMismatchError | InvalidArgumentError) and "metaData" in changed:
        # The column was dropped in the meantime.
        return kind in ("narrow", "rename", "bigger", "cluster", "sync", "given") or "extra" in job.world.plan.options
    # Nothing is deleted if a checkpoint is damaged or was replaced in the meantime.
    in_doubt = isinstance(e, CorruptLogError | MetadataChangedError)
    return in_doubt and bool(history.rotten) and kind in ("cleanup", "drop")


OPERATIONS: dict[str, Callable[[Job], object]] = {
    "cluster": _cluster,
    "rename": _rename,
    "bigger": _bigger,
    "constraint": _constraint,
    "unconstrain": _unconstrain,
    "feature": _feature,
    "txn": _txn,
    "sync": _sync,
    "given": _given,
    "replace": _replace,
    "reclone": _reclone,
    "tidy": _tidy,
    "rot": _rot,
}
