"""Dropping table features: what each must leave behind before a table can do without it.

Protocol: *Table Features*.  A feature that only writers know goes as soon as nothing in the newest version uses it.
One that readers know must be gone from the history too, as far as it can still be read: a reader without the feature
would replay those commits, and go wrong.  The life of a removal::

    turn it off (properties) --> traces in the newest version? write those files again, or refuse and say what to do
      --> traces in older versions? refuse until they are cleaned up --> protocol without the feature

A row of :data:`REMOVALS` says how a feature is turned off, what its traces are, and which files must be written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commands.optimize.bins import Numbers, purge_bins
from trilake.delta.commands.optimize.footers import may_hold_dropped_columns, with_other_types
from trilake.delta.commands.optimize.optimize import TARGET_SIZE
from trilake.delta.commands.optimize.run import Work, rewrite
from trilake.delta.commands.rows.row_changes import Runner, records_changes
from trilake.delta.commit import row_tracking
from trilake.delta.log import clustering
from trilake.delta.log.log import DeltaLog, Snapshot
from trilake.delta.log.replay import State
from trilake.delta.metadata.schema_changes import Change
from trilake.delta.protocol import in_commit_timestamps, type_widening
from trilake.delta.protocol.actions import ActionBatch, Metadata, Protocol
from trilake.delta.protocol.column_mapping import FORBIDDEN, MAX_COLUMN_ID, MODE, strip
from trilake.delta.protocol.features import dependents, feature, features_of, without_feature
from trilake.delta.protocol.schema import contains_type, nested_fields
from trilake.delta.rules.constraints import INVARIANTS, PREFIX
from trilake.delta.rules.defaults import CURRENT_DEFAULT
from trilake.delta.rules.identity import START, STEP
from trilake.delta.runtime import Runtime
from trilake.delta.scan.generated import GENERATION_EXPRESSION
from trilake.errors import FeatureInUseError, InvalidArgumentError

V2_NAME = re.compile(r"\.checkpoint\.[0-9a-fA-F-]{36}\.(json|parquet)$")
PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"


@dataclass(frozen=True)
class Trace:
    """Something that still uses a feature, and what to do about it."""

    what: str
    help: str


#: What is done about a trace by the removal itself.
_REWRITTEN = "write those files again"

Check = Callable[[DeltaLog, Snapshot], Trace | None]


def _nothing(_: DeltaLog, __: Snapshot) -> Trace | None:
    return None


@dataclass(frozen=True)
class Removal:
    """How a feature leaves a table.

    ``properties`` turn it off when they are gone; ``metadata`` takes away what else it left there, which the check for
    ``in_use`` has found to be harmless.  ``in_history`` says of a state or of commits whether they use the feature;
    ``None`` where older versions do not matter.  ``domains`` are removed with it, and files are added again without
    ``fields``.  ``rewritten`` names the files that must be written again where the feature is in use, by position;
    with ``renames`` they are written for the metadata without it, which their commit sets.
    """

    properties: tuple[str, ...] = ()
    in_use: Check = _nothing
    metadata: Callable[[Metadata], Metadata] = lambda m: m
    in_history: Callable[[State | ActionBatch], bool] | None = None
    domains: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    rewritten: Callable[[DeltaLog, Snapshot], Numbers] | None = None
    renames: bool = False

    def turned_off(self, metadata: Metadata) -> Metadata:
        """The metadata without the feature's properties."""
        left = {k: v for k, v in metadata.configuration.items() if k not in self.properties}
        return metadata if left == metadata.configuration else replace(metadata, configuration=left)


# --- traces ----------------------------------------------------------------------------------------------------------


def _metadatas(source: State | ActionBatch) -> list[Metadata]:
    if isinstance(source, State):
        return [] if source.metadata is None else [source.metadata]
    return [Metadata.from_json(m, version=v) for v, m in source.of("metaData")]


def _any_metadata(test: Callable[[Metadata], bool]) -> Callable[[State | ActionBatch], bool]:
    return lambda source: any(test(m) for m in _metadatas(source))


def _vectors(files: pa.Table) -> int:
    return len(files) - int(files["deletionVector"].null_count)


def _vectors_in_history(source: State | ActionBatch) -> bool:
    tables = (source.adds, source.removes) if isinstance(source, State) else (source.add, source.remove)
    return any(_vectors(t) > 0 for t in tables)


def _vectors_in_use(_: DeltaLog, snapshot: Snapshot) -> Trace | None:
    found = _vectors(snapshot.adds)
    return Trace(f"{found} files have deletion vectors", _REWRITTEN) if found else None


def _columns(test: Callable[[Mapping[str, Any]], bool], what: str, help: str, nullable: bool | None = None) -> Check:
    """Columns whose metadata, or nullability, uses a feature."""

    def check(_: DeltaLog, snapshot: Snapshot) -> Trace | None:
        found = [f.name for f in nested_fields(snapshot.schema) if test(f.metadata) or f.nullable is nullable]
        return Trace(f"{what}: {', '.join(found)}", help) if found else None

    return check


def _type_in_use(name: str) -> Check:
    def check(_: DeltaLog, snapshot: Snapshot) -> Trace | None:
        found = [f.name for f in snapshot.schema.fields if contains_type(f.type, name)]
        return Trace(f"columns are of type {name}: {', '.join(found)}", "drop those columns first") if found else None

    return check


def _has_type(name: str) -> Callable[[State | ActionBatch], bool]:
    return _any_metadata(lambda m: contains_type(m.schema, name))


def _constraints_in_use(_: DeltaLog, snapshot: Snapshot) -> Trace | None:
    found = [k[len(PREFIX) :] for k in sorted(snapshot.metadata.configuration) if k.startswith(PREFIX)]
    return Trace(f"the table has the CHECK constraints {', '.join(found)}", "drop them first") if found else None


def _domains_in_use(_: DeltaLog, snapshot: Snapshot) -> Trace | None:
    found = sorted(d for d, v in snapshot.state.domains.items() if not v.get("removed"))
    help = "remove them with the engine that they belong to"
    return Trace(f"the table has the metadata domains {', '.join(found)}", help) if found else None


def _names_in_use(_: DeltaLog, snapshot: Snapshot) -> Trace | None:
    """Whether files know columns by other names than the table, or hold columns that the table dropped."""
    if not snapshot.adds.num_rows:
        return None
    other = [f.name for f in nested_fields(snapshot.schema) if f.physical_name != f.name]
    odd = [f.name for f in nested_fields(snapshot.schema) if set(f.name) & set(FORBIDDEN)]
    if odd:
        return Trace(f"columns have names that need it: {', '.join(map(repr, odd))}", "rename these columns first")
    if not other and not may_hold_dropped_columns(snapshot):
        return None
    what = f"files know these columns by other names: {', '.join(other)}" if other else "files may hold dropped columns"
    if records_changes(snapshot):
        # Changes of older versions would be looked for under names that only these versions know.
        return Trace(what, "turn the change data feed off first (delta.enableChangeDataFeed=false)")
    return Trace(what, _REWRITTEN)


def _all_files(_: DeltaLog, snapshot: Snapshot) -> Numbers:
    return np.arange(snapshot.adds.num_rows, dtype=np.int64)


def _without_mapping(metadata: Metadata) -> Metadata:
    left = {k: v for k, v in metadata.configuration.items() if k not in (MODE, MAX_COLUMN_ID)}
    return replace(metadata, schema_string=strip(metadata.schema).json(), configuration=left)


def _narrow(log: DeltaLog, snapshot: Snapshot) -> Numbers:
    """Files written before a column's type was widened, as their footers say."""
    widened = type_widening.has_type_changes(snapshot.schema) and snapshot.metadata.provider.lower() == "parquet"
    return with_other_types(log.store, snapshot) if widened else np.array([], dtype=np.int64)


def _narrow_files(log: DeltaLog, snapshot: Snapshot) -> Trace | None:
    if not type_widening.has_type_changes(snapshot.schema) or not snapshot.adds.num_rows:
        return None
    if snapshot.metadata.provider.lower() != "parquet":
        return Trace("older files may hold narrower types", "copy the rows into a new table")
    found = len(_narrow(log, snapshot))
    return Trace(f"{found} files hold narrower types than their columns have by now", _REWRITTEN) if found else None


def _classic_checkpoints_only(log: DeltaLog, _: Snapshot) -> Trace | None:
    """Checkpoints of version 2 have names that readers without the feature do not know."""
    names = [f.key for _, files in log.listing().checkpoints for f in files if V2_NAME.search(f.key)]
    help = "let log cleanup remove them: drop the feature again later, with truncate_history"
    return Trace(f"{len(names)} checkpoints of version 2 are in the log", help) if names else None


def _protected(log: DeltaLog, snapshot: Snapshot) -> Trace | None:
    before = int(snapshot.property(PROTECTED, "0") or 0)
    oldest = oldest_version(log)
    if oldest >= before:
        return None
    return Trace(f"versions before {before} are in the log, from {oldest} on", "let log cleanup remove them first")


# --- the rows --------------------------------------------------------------------------------------------------------


def _row(*properties: str, **more: Any) -> Removal:
    return Removal(properties, **more)


_DEFAULTS = _columns(lambda m: CURRENT_DEFAULT in m, "columns have defaults", "drop the defaults first")
_NTZ, _VARIANT = "timestamp_ntz", "variant"
_WIDENING = _row(
    type_widening.ENABLED,
    in_use=_narrow_files,
    metadata=lambda m: replace(m, schema_string=type_widening.without_type_changes(m.schema).json()),
    in_history=_any_metadata(lambda m: type_widening.has_type_changes(m.schema)),
    rewritten=_narrow,
)
_VARIANTS = _row(in_use=_type_in_use(_VARIANT), in_history=_has_type(_VARIANT))

REMOVALS: dict[str, Removal] = {
    "appendOnly": _row("delta.appendOnly"),
    "invariants": _row(
        in_use=_columns(lambda m: INVARIANTS in m, "columns have rules", "set these columns nullable first", False)
    ),
    "checkConstraints": _row(in_use=_constraints_in_use),
    "changeDataFeed": _row("delta.enableChangeDataFeed"),
    "generatedColumns": _row(
        in_use=_columns(lambda m: GENERATION_EXPRESSION in m, "columns are generated", "drop these columns first")
    ),
    "identityColumns": _row(
        in_use=_columns(lambda m: START in m or STEP in m, "columns are identities", "drop these columns first")
    ),
    "columnMapping": _row(
        in_use=_names_in_use,
        metadata=_without_mapping,
        in_history=_any_metadata(lambda m: m.column_mapping_mode != "none"),
        rewritten=_all_files,
        renames=True,
    ),
    "deletionVectors": _row(
        "delta.enableDeletionVectors",
        in_use=_vectors_in_use,
        in_history=_vectors_in_history,
        rewritten=lambda _, snapshot: np.flatnonzero(np.asarray(pc.is_valid(snapshot.adds["deletionVector"]))),
    ),
    "timestampNtz": _row(in_use=_type_in_use(_NTZ), in_history=_has_type(_NTZ)),
    "v2Checkpoint": _row("delta.checkpointPolicy", in_use=_classic_checkpoints_only, in_history=lambda _: False),
    "domainMetadata": _row(in_use=_domains_in_use),
    "vacuumProtocolCheck": _row(),
    "rowTracking": _row(
        row_tracking.ENABLED,
        "delta.rowTrackingSuspended",
        row_tracking.ID_COLUMN,
        row_tracking.VERSION_COLUMN,
        domains=(row_tracking.DOMAIN,),
        fields=("baseRowId", "defaultRowCommitVersion"),
    ),
    "typeWidening": _WIDENING,
    "typeWidening-preview": _WIDENING,
    "inCommitTimestamp": _row(
        in_commit_timestamps.ENABLED, in_commit_timestamps.SINCE_VERSION, in_commit_timestamps.SINCE_TIME
    ),
    "clustering": _row(domains=(clustering.DOMAIN,)),
    "allowColumnDefaults": _row(in_use=_DEFAULTS),
    "variantType": _VARIANTS,
    "variantType-preview": _VARIANTS,
    "checkpointProtection": _row(PROTECTED, in_use=_protected),
    "icebergCompatV1": _row("delta.enableIcebergCompatV1"),
    "icebergCompatV2": _row("delta.enableIcebergCompatV2"),
}


# --- the removal -----------------------------------------------------------------------------------------------------


def removal(protocol: Protocol, name: str) -> tuple[str, Removal]:
    """The feature's name as the protocol spells it, and how it is removed.

    Raises ``InvalidArgumentError`` where the table does not have it or cannot lose it, ``FeatureInUseError`` where
    another feature needs it.
    """
    row = feature(name)
    there = features_of(protocol)
    if row.name not in there:
        raise InvalidArgumentError(
            f"the table does not have the feature {row.name}", help=f"it has {', '.join(sorted(there)) or 'none'}"
        )
    if row.name not in REMOVALS:
        raise InvalidArgumentError(f"the feature {row.name} cannot be dropped", help="copy the rows into a new table")
    needed_by = dependents(protocol, row.name)
    if needed_by:
        raise in_use(row.name, Trace(f"{', '.join(needed_by)} needs it", "drop those features first"))
    return row.name, REMOVALS[row.name]


def rewrite_files(
    log: DeltaLog, snapshot: Snapshot, name: str, row: Removal, *, runtime: Runtime, run: Runner
) -> int | None:
    """Write the files again that use a feature; the version of that, ``None`` where it cannot be done.

    Raises as :func:`trilake.delta.commands.optimize.optimize.optimize` does.
    """
    trace = row.in_use(log, snapshot)
    if row.rewritten is None or trace is None or trace.help != _REWRITTEN:
        return None
    bins = purge_bins(snapshot, row.rewritten(log, snapshot), limit=TARGET_SIZE)
    if not row.renames:
        work = Work(bins, "REORG", {"predicate": [], "applyPurge": True}, TARGET_SIZE)
        return rewrite(log, snapshot, work, runtime=runtime, run=run).version
    after = row.metadata(row.turned_off(snapshot.metadata))
    columns = clustering.clustering_columns(snapshot)
    domain = clustering.clustering_domain(after.schema, columns, partitioned=bool(after.partition_columns))
    work = Work(
        bins,
        "REMOVE COLUMN MAPPING",
        {"featureName": name},
        TARGET_SIZE,
        metadata=after,
        domains={clustering.DOMAIN: domain} if columns else {},
    )
    return rewrite(log, snapshot, work, runtime=runtime, run=run).version


def in_use(name: str, trace: Trace) -> FeatureInUseError:
    """The error for a feature that cannot go yet."""
    return FeatureInUseError(f"the feature {name} cannot be dropped: {trace.what}", help=trace.help, feature=name)


def oldest_version(log: DeltaLog) -> int:
    """The oldest version that the log can still make up."""
    listing = log.listing()
    if 0 in listing.commits:
        return 0
    return min([v for v, _ in listing.checkpoints], default=min(listing.commits, default=0))


def history_trace(log: DeltaLog, name: str, row: Removal) -> Trace | None:
    """What of the log, older versions included, still uses a feature that readers must know."""
    if row.in_history is None:
        return None
    oldest = oldest_version(log)
    if not row.in_history(log.snapshot(oldest).state) and not row.in_history(log.parse(log.commits())):
        return None
    return Trace(
        f"it is turned off, but versions from {oldest} on, which can still be read, need it",
        "once those versions are older than a day, drop the feature again with truncate_history; or wait until log"
        " cleanup has removed them (delta.logRetentionDuration) and drop it again",
    )


def removed(protocol: Protocol, metadata: Metadata, name: str, row: Removal, *, truncate_history: bool) -> Change:
    """The change that takes a feature without traces from the protocol."""
    return Change(
        without_feature(protocol, name),
        row.metadata(row.turned_off(metadata)),
        "DROP FEATURE",
        {"featureName": name, "truncateHistory": "true" if truncate_history else "false"},
        domains=dict.fromkeys(row.domains),
    )


def bare_files(snapshot: Snapshot, row: Removal) -> list[dict[str, Any]]:
    """``add`` actions that take the feature's fields from files that have them; no row changes."""
    if not row.fields:
        return []
    having = pa.array([False] * snapshot.adds.num_rows)
    for name in row.fields:
        having = pc.or_(having, snapshot.adds[name].is_valid().combine_chunks())
    return [
        {"add": _action({k: v for k, v in add.items() if k not in row.fields})}
        for add in snapshot.adds.filter(having).to_pylist()
    ]


def without_row_ids(snapshot: Snapshot) -> list[dict[str, Any]]:
    """``add`` actions for the files that have no row ids yet, for a commit that assigns some; no row changes."""
    lacking = pc.or_(snapshot.adds["baseRowId"].is_null(), snapshot.adds["defaultRowCommitVersion"].is_null())
    return [{"add": _action(add)} for add in snapshot.adds.filter(lacking).to_pylist()]


def _action(add: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the snapshot's files as the JSON object of an action that changes no data."""
    out = {k: v for k, v in add.items() if v is not None}
    for name in ("partitionValues", "tags"):
        if name in out:
            out[name] = dict(out[name])
    if "deletionVector" in out:
        out["deletionVector"] = {k: v for k, v in out["deletionVector"].items() if v is not None}
    return {**out, "partitionValues": out.get("partitionValues", {}), "dataChange": False}
