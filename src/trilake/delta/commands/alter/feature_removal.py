"""Drop a table feature: which traces of it must be removed first.

Protocol: *Table Features*.  A writer feature can be dropped as soon as nothing in the newest version uses it.  A reader
feature must also be gone from the readable history, since readers without it would replay those commits wrongly::

    disable it (properties) --> traces in the newest version? rewrite those files, or raise and say what to do
      --> traces in older versions? raise until they are cleaned up --> protocol without the feature

Each feature's :class:`~trilake.delta.protocol.table_features.FeatureRemoval` says how to disable it, what its
traces are, and which files to rewrite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.runtime import Runtime
from trilake.delta.commands.optimize.bins import purge_bins
from trilake.delta.commands.optimize.footers import may_hold_dropped_columns, with_other_types
from trilake.delta.commands.optimize.optimize import TARGET_SIZE
from trilake.delta.commands.optimize.rewrite import RewriteRequest, rewrite
from trilake.delta.commands.rows.row_changes import Runner
from trilake.delta.commit.transaction import add_actions
from trilake.delta.log import clustering
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot, State
from trilake.delta.metadata.schema_changes import MetadataChange
from trilake.delta.protocol.actions import ActionBatch, Metadata, Protocol
from trilake.delta.protocol.features import dependents, feature, features_of, with_features, without_feature
from trilake.delta.protocol.table_features import CHECKPOINT_PROTECTION, Feature, FeatureRemoval, Numbers, Past, Trace
from trilake.errors import FeatureInUseError, InvalidArgumentError


@dataclass(frozen=True)
class SnapshotInspection:
    """A snapshot and its log, in the form that features inspect."""

    log: DeltaLog
    snapshot: Snapshot

    @property
    def adds(self) -> pa.Table:
        return self.snapshot.adds

    @property
    def metadata(self) -> Metadata:
        return self.snapshot.metadata

    @property
    def domains(self) -> Mapping[str, Mapping[str, Any]]:
        return self.snapshot.state.domains

    def checkpoint_keys(self) -> Sequence[str]:
        listing = self.log.listing()
        return [f.key for _, files in (*listing.checkpoints, *listing.others) for f in files]

    def oldest_version(self) -> int:
        return oldest_version(self.log)

    def may_hold_dropped_columns(self) -> bool:
        return may_hold_dropped_columns(self.snapshot)

    def files_of_other_types(self) -> Numbers:
        return with_other_types(self.log.store, self.snapshot)


def past_of(source: State | ActionBatch) -> Past:
    """What a state or some commits show about older versions."""
    if isinstance(source, State):
        return Past(() if source.metadata is None else (source.metadata,), (source.adds, source.removes))
    metadatas = tuple(Metadata.from_json(m, version=v) for v, m in source.of("metaData"))
    return Past(metadatas, (source.add, source.remove))


def trace_in(log: DeltaLog, snapshot: Snapshot, row: Feature) -> Trace | None:
    """What in a version uses the feature, except its properties."""
    return None if row.removal is None else row.removal.in_use(SnapshotInspection(log, snapshot))


_UNKNOWN = "UNSUPPORTED_CLIENT_FEATURE"


def removable(protocol: Protocol, name: str, *, truncate_history: bool = False) -> tuple[Feature, FeatureRemoval]:
    """The feature, and how to remove it.

    Raises ``InvalidArgumentError`` if the table does not have it or cannot lose it, or if ``truncate_history`` is set
    for a writer feature, and ``FeatureInUseError`` if another feature needs it.
    """
    is_property = name.lower().startswith("delta.")
    row = feature(name, condition=f"DELTA_FEATURE_DROP_{'FEATURE_IS_DELTA_PROPERTY' if is_property else _UNKNOWN}")
    there = features_of(protocol)
    if row.name not in there:
        raise InvalidArgumentError(
            f"the table does not have the feature {row.name}",
            help=f"the table's features are {', '.join(sorted(there)) or 'none'}",
            condition="DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT",
        )
    if row.removal is None:
        raise InvalidArgumentError(
            f"the feature {row.name} cannot be dropped",
            help="copy the rows into a new table",
            condition="DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE",
        )
    if truncate_history and not row.of_readers:
        raise InvalidArgumentError(
            f"TRUNCATE HISTORY is not supported for {row.name}: it is not a reader feature, so older versions stay"
            " readable",
            help="leave out TRUNCATE HISTORY (truncate_history)",
            condition="DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED",
        )
    needed_by = dependents(protocol, row.name)
    if needed_by:
        what, first = f"it is required by {', '.join(needed_by)}", "drop those features first"
        raise in_use(row.name, Trace(what, first, condition="DELTA_FEATURE_DROP_DEPENDENT_FEATURE"))
    return row, row.removal


def rewrite_files(
    log: DeltaLog,
    snapshot: Snapshot,
    row: Feature,
    *,
    runtime: Runtime,
    run: Runner,
    properties: Mapping[str, str] | None = None,
) -> int | None:
    """Rewrite the files that use a feature; return the outcome, or ``None`` if that is impossible.

    ``properties`` are set in the same commit.  Raises a ``ConflictError`` if other writers removed these files.
    """
    trace, removal = trace_in(log, snapshot, row), row.removal
    if removal is None or removal.rewritten is None or trace is None or not trace.rewrite:
        return None
    bins = purge_bins(snapshot, removal.rewritten(SnapshotInspection(log, snapshot)), limit=TARGET_SIZE)
    if not removal.renames:
        work = RewriteRequest(bins, "REORG", {"predicate": [], "applyPurge": True}, TARGET_SIZE)
        return rewrite(log, snapshot, work, runtime=runtime, run=run).version
    after = with_properties(removal.metadata(row.turned_off(snapshot.metadata)), properties or {})
    columns = clustering.clustering_columns(snapshot)
    domain = clustering.clustering_domain(after.schema, columns)
    work = RewriteRequest(
        bins,
        "REMOVE COLUMN MAPPING",
        {},
        TARGET_SIZE,
        metadata=after,
        domains={clustering.DOMAIN: domain} if columns else {},
    )
    return rewrite(log, snapshot, work, runtime=runtime, run=run).version


def with_properties(metadata: Metadata, properties: Mapping[str, str]) -> Metadata:
    """The metadata with these properties added."""
    return replace(metadata, configuration={**metadata.configuration, **properties})


def in_use(name: str, trace: Trace | None) -> FeatureInUseError:
    """The error for a feature that cannot be dropped yet."""
    assert trace is not None
    return FeatureInUseError(
        f"the feature {name} cannot be dropped: {trace.what}", help=trace.help, feature=name, condition=trace.condition
    )


def oldest_version(log: DeltaLog) -> int:
    """The oldest version that the log can reconstruct."""
    listing = log.listing()
    if 0 in listing.commits:
        return 0
    return min([v for v, _ in listing.checkpoints], default=min(listing.commits, default=0))


def history_trace(log: DeltaLog, removal: FeatureRemoval, *, changed: bool = False) -> Trace | None:
    """What in the log, including older versions, still uses a reader feature.

    ``changed`` says whether the feature was disabled just before.
    """
    if removal.in_past is None:
        return None
    oldest = oldest_version(log)
    if not removal.in_past(past_of(log.snapshot(oldest).state)) and not removal.in_past(
        past_of(log.parse(log.commits()))
    ):
        return None
    return Trace(
        f"it is disabled now, but readable versions from {oldest} on still use it",
        "once those versions are older than a day, drop the feature again with truncate_history; or wait until log"
        " cleanup has removed them (delta.logRetentionDuration) and drop it again",
        condition=f"DELTA_FEATURE_DROP_{'WAIT_FOR_RETENTION_PERIOD' if changed else 'HISTORICAL_VERSIONS_EXIST'}",
    )


def removed(
    protocol: Protocol, metadata: Metadata, row: Feature, removal: FeatureRemoval, *, truncate_history: bool
) -> MetadataChange:
    """The change that removes an unused feature from the protocol."""
    return MetadataChange(
        without_feature(protocol, row.name),
        removal.metadata(row.turned_off(metadata)),
        "DROP FEATURE",
        {"featureName": row.name, "truncateHistory": "true" if truncate_history else "false"},
        domains=dict.fromkeys(removal.domains),
    )


def protected(change: MetadataChange, version: int) -> MetadataChange:
    """The change, extended to protect the checkpoint and the history before ``version``."""
    configuration = {**change.metadata.configuration, CHECKPOINT_PROTECTION: str(version)}
    protocol = with_features(change.protocol, ["checkpointProtection"])
    return replace(change, protocol=protocol, metadata=replace(change.metadata, configuration=configuration))


def bare_files(snapshot: Snapshot, removal: FeatureRemoval) -> list[dict[str, Any]]:
    """``add`` actions without the feature's fields, for the files that have them; no row changes."""
    if not removal.fields:
        return []
    having = pa.repeat(False, snapshot.adds.num_rows)  # booleans, even without files
    for name in removal.fields:
        having = pc.or_(having, snapshot.adds[name].is_valid().combine_chunks())
    return add_actions(snapshot.adds.filter(having).drop_columns(list(removal.fields)), dataChange=False)


def without_row_ids(snapshot: Snapshot) -> list[dict[str, Any]]:
    """``add`` actions for the files without row ids, for a commit that assigns them; no row changes."""
    lacking = pc.or_(snapshot.adds["baseRowId"].is_null(), snapshot.adds["defaultRowCommitVersion"].is_null())
    return add_actions(snapshot.adds.filter(lacking), dataChange=False)
