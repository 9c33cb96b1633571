"""``MetadataCommits``: commit a change of a table's metadata, and drop a feature once nothing needs it.

The steps of a change::

    newest version --> pure change (delta.metadata) --> existing rows satisfy it? --> commit
          ^                                                                               |
          +------------------ another writer changed schema or properties ----------------+

If another writer changes the metadata first, the change is recomputed on the newest metadata.

A writer feature can be dropped as soon as nothing in the newest version uses it.  A reader feature must also be gone
from the readable history, since readers without it would replay those commits wrongly (protocol: *Table Features*)::

    disable it (properties) --> traces in the newest version? rewrite those files, or raise and say what to do
      --> traces in older versions? raise until they are cleaned up --> protocol without the feature

Each feature's :class:`~trilake.delta.protocol.feature_definition.FeatureRemoval` says how to disable it, what its
traces are, and which files to rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.display import PublicNames
from trilake.delta.commands.optimize.bins import may_hold_dropped_columns, purge_bins, with_other_types
from trilake.delta.commands.optimize.optimize import TARGET_SIZE
from trilake.delta.commands.optimize.rewrite import RewriteRequest, rewrite
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, add_actions, commit
from trilake.delta.log import clustering
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import DAY_MS, cleanup_log
from trilake.delta.log.snapshot import Head, Snapshot, State
from trilake.delta.metadata.property_changes import set_properties
from trilake.delta.metadata.schema_changes import Condition, MetadataChange, logged_json
from trilake.delta.protocol.actions import ActionBatch, Metadata, Protocol
from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, Numbers, Past, Trace
from trilake.delta.protocol.features import (
    dependents,
    feature,
    features_of,
    with_features,
    without_feature,
)
from trilake.delta.protocol.iceberg import compat_versions
from trilake.delta.protocol.properties import FEATURE
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import StructType
from trilake.delta.protocol.table_features.checkpoint_protection import KEY as CHECKPOINT_PROTECTION
from trilake.delta.rules.constraints import RowSession, checks_in_session, parse_check, verify_checks
from trilake.delta.rules.defaults import JudgeDefault, check_defaults_allowed
from trilake.delta.rules.iceberg_compat import check_compatible, check_old_files
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.row_text import describe_row
from trilake.delta.scan.scan import plan_scan
from trilake.errors import (
    ConcurrentWriteError,
    ConflictError,
    ConstraintViolatedError,
    FeatureInUseError,
    InvalidArgumentError,
    ProtocolChangedError,
    UnsupportedExpressionError,
    stating,
)

#: Finds a row for which a condition is not true; ``None`` if there is none.
FindViolation: TypeAlias = Callable[[Snapshot, Condition], Mapping[str, Any] | None]

P = ParamSpec("P")
_ATTEMPTS = 20


class MetadataCommits(PublicNames):
    """Commits changes of one table's metadata, with the parameters of :class:`~.alter_table.Alter`."""

    def __init__(
        self,
        log: DeltaLog,
        *,
        find_violation: FindViolation | None = None,
        session: RowSession | None = None,
        run: Runner = run_here,
        judge_default: JudgeDefault | None = None,
        commits_always: bool = False,
        defaults_by_feature: bool = False,
    ) -> None:
        self.log, self.runtime, self.run = log, log.engine.runtime, run
        self.find_violation, self.session, self.judge = find_violation, session, judge_default
        self.commits_always, self.defaults_by_feature = commits_always, defaults_by_feature

    def _head(self) -> Head:
        head = self.log.head()
        head.check_writable()
        return head

    def _snapshot(self) -> Snapshot:
        snapshot = self.log.snapshot()
        snapshot.check_writable()
        return snapshot

    def _apply(
        self, change: Callable[Concatenate[Protocol, Metadata, P], MetadataChange], *args: P.args, **kwargs: P.kwargs
    ) -> int:
        return self._run(lambda h: change(h.protocol, h.metadata, *args, **kwargs))

    def _run(self, work_out: Callable[[Head], MetadataChange]) -> int:
        return self._again(lambda: self._once(work_out))

    def _again(self, attempt: Callable[[], int]) -> int:
        """Retry if another writer changes the metadata on which the change is based."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return attempt()
            except ConflictError as e:
                # After ``_ATTEMPTS`` attempts, another one is pointless.
                if not attempts_left or isinstance(e, ConcurrentWriteError):
                    raise
                self.runtime.sleep(0.002 * (_ATTEMPTS - attempts_left))
        raise AssertionError("the last attempt raises")

    def _once(self, work_out: Callable[[Head], MetadataChange], head: Head | None = None) -> int:
        head = head or self._head()
        change = work_out(head)
        if not self.commits_always and not change.changes(head.protocol, head.metadata):
            return head.version
        if self.defaults_by_feature and change.operation in ("CHANGE COLUMN", "CHANGE COLUMNS"):
            before = head.schema.fields
            new_columns = StructType(tuple(f for f in change.metadata.schema.fields if f not in before))
            check_defaults_allowed("ALTER TABLE", new_columns, features_of(head.protocol))
        if not change.conditions:
            return self._commit(head, change)
        snapshot = self._snapshot()
        change = work_out(snapshot)
        for condition in change.conditions:
            new = f"DELTA_NEW_{'NOT_NULL' if condition.kind.startswith('NOT NULL') else 'CHECK_CONSTRAINT'}_VIOLATION"
            with stating({None: new, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": new}):
                self._check_rows(snapshot, condition)
        return self._commit(snapshot, change, whole=True)

    def _commit(
        self, base: Head, change: MetadataChange, *, files: Sequence[Mapping[str, Any]] = (), whole: bool = False
    ) -> int:
        plan = CommitPlan(
            operation=change.operation,
            parameters=change.parameters,
            file_actions=files,
            metadata=change.metadata if change.metadata != base.state.metadata else None,
            protocol=change.protocol if change.protocol != base.protocol else None,
            read=ReadSet(whole_table=whole, changes_metadata=True),
            domains=change.domains,
        )
        return commit(self.log, base, plan)

    def _check_rows(self, snapshot: Snapshot, condition: Condition) -> None:
        what = f"{condition.kind} {condition.name} ({condition.sql})"
        check = parse_check(condition.kind, condition.name, condition.sql, snapshot.schema, self.runtime.now())
        [check] = checks_in_session((check,), snapshot.schema, self.session)
        if check.condition is None:
            if self.find_violation is None:
                raise UnsupportedExpressionError(
                    f"only Spark can evaluate {what} on the existing rows", help="make this change with Spark"
                )
            row = self.find_violation(snapshot, condition)
            if row is not None:
                raise ConstraintViolatedError(
                    f"{what} violated by row with values: {describe_row(row)}",
                    help="fix or delete these rows first; nothing was committed",
                    constraint=condition.name,
                )
            return
        columns = [f.name for f in snapshot.schema.fields if f.name in check.condition.columns]
        scan = plan_scan(snapshot, columns or None)
        for batch in read_tasks(self.log.store, scan.tasks(), scan.plan):
            verify_checks([check], batch)

    def _with_properties(self, head: Head, properties: Mapping[str, object]) -> MetadataChange:
        return set_properties(head.protocol, head.metadata, properties, new_id=self.runtime.new_id)

    def _iceberg(self, change: Callable[[Head], MetadataChange]) -> int:
        snapshot = self._snapshot()
        for tracked in (False, True):
            new = change(snapshot)
            check_compatible(snapshot.metadata, new.metadata, new.protocol)
            for version in compat_versions(new.metadata.configuration):
                check_old_files(version, new.metadata, snapshot.adds)
            needs = is_on(new.metadata.configuration, row_tracking.ENABLED)
            if tracked or not needs or snapshot.properties.is_on(row_tracking.ENABLED):
                break
            self._tracking(lambda h: self._with_properties(h, {row_tracking.ENABLED: "true"}))
            snapshot = self._snapshot()
        return self._commit(snapshot, new, whole=True)

    def _tracking(self, change: Callable[[Head], MetadataChange]) -> int:
        """Enable row tracking with ``change``: first the feature, then the ids of existing files, then the property.

        The property promises that all files have ids, so it is set on exactly the version for which that is true.
        """

        def assigning(head: Head) -> MetadataChange:
            change(head)  # raises if another writer has suspended row tracking since
            resumed = {row_tracking.SUSPENDED: "false"} if head.properties.is_on(row_tracking.SUSPENDED) else {}
            return self._with_properties(head, {f"{FEATURE}{row_tracking.FEATURE}": "supported", **resumed})

        self._run(assigning)
        snapshot = self._snapshot()
        if not row_tracking.supported(snapshot.protocol):
            raise ProtocolChangedError(
                f"another writer dropped the feature {row_tracking.FEATURE} while this command was enabling row"
                " tracking",
                help="repeat the command if row tracking is still wanted",
                uri=snapshot.uri,
                version=snapshot.version,
            )
        adds = snapshot.adds
        lacking = pc.or_(adds["baseRowId"].is_null(), adds["defaultRowCommitVersion"].is_null())
        files = add_actions(adds.filter(lacking), dataChange=False)
        if files:
            same = MetadataChange(snapshot.protocol, snapshot.metadata, "ROW TRACKING BACKFILL", {"batchId": "0"})
            snapshot = self.log.snapshot(self._commit(snapshot, same, files=files, whole=True))
        return self._once(change, snapshot)

    def _drop(self, name: str, truncate_history: bool, protect_history: bool) -> int:
        snapshot = before = self._snapshot()
        row, removal = removable(snapshot.protocol, name, truncate_history=truncate_history)
        if removal.in_past is not None:
            snapshot = self._turned_off(snapshot, row, removal)
        has_committed = snapshot.version > before.version
        if truncate_history or has_committed:
            # Log cleanup can truncate history only at a checkpoint.
            write_checkpoint(self.log, snapshot, self.runtime)
        if truncate_history:
            cleanup_log(self.log, self.runtime, retention_ms=DAY_MS)
        trace = trace_in(self.log, snapshot, row)
        older = None if trace is not None else history_trace(self.log, removal, changed=has_committed)
        if trace is not None or (older is not None and not protect_history):
            raise in_use(row.name, trace or older)
        protocol, metadata = (
            without_feature(snapshot.protocol, row.name),
            removal.metadata(row.turned_off(snapshot.metadata)),
        )
        if older is not None:  # protect the checkpoint and the history before this version
            protocol = with_features(protocol, ["checkpointProtection"])
            metadata = _configured(metadata, {CHECKPOINT_PROTECTION: str(snapshot.version + 1)})
        parameters = {"featureName": row.name, "truncateHistory": "true" if truncate_history else "false"}
        domains = dict.fromkeys(removal.domains)
        change = MetadataChange(protocol, metadata, "DROP FEATURE", parameters, domains=domains)
        files = bare_files(snapshot, removal)
        version = self._commit(snapshot, change, files=files, whole=True)
        if older is not None:
            # Readers without the feature start here and replay no older commit.
            write_checkpoint(self.log, self.log.opened(version), self.runtime)
        return version

    def _unmapped(self, properties: Mapping[str, str]) -> int:
        """Rewrite files with display names as column names, and set ``properties``; the table keeps the feature.

        Raises ``InvalidArgumentError`` if names, or changes in older versions, need column mapping.
        """
        snapshot = self._snapshot()
        row, removal = removable(snapshot.protocol, "columnMapping")
        trace = trace_in(self.log, snapshot, row)
        if trace is None:
            after = _configured(removal.metadata(row.turned_off(snapshot.metadata)), properties)
            domains = _clustering_domains(snapshot, after)
            change = MetadataChange(snapshot.protocol, after, "REMOVE COLUMN MAPPING", {}, domains=domains)
            return self._commit(snapshot, change, whole=True)
        outcome = rewrite_files(self.log, snapshot, row, run=self.run, properties=properties)
        if outcome is None:
            raise InvalidArgumentError(
                f"column mapping cannot be disabled: {trace.what}",
                help=trace.help,
                condition="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
            )
        return outcome

    def _turned_off(self, snapshot: Snapshot, row: Feature, removal: FeatureRemoval) -> Snapshot:
        """Disable a feature and rewrite its files if that helps; return the table after these commits, if any."""
        before = snapshot.version
        for rewritten in (False, True):
            # Check the version on which the commit is based: a rename in between is a conflict.
            used = trace_in(self.log, snapshot, row) is not None
            metadata = row.turned_off(snapshot.metadata)
            metadata = metadata if used else removal.metadata(metadata)
            keys = sorted(set(snapshot.metadata.configuration) - set(metadata.configuration))
            parameters = {"properties": logged_json(keys), "ifExists": "true"}
            domains = _clustering_domains(snapshot, metadata)
            off = MetadataChange(snapshot.protocol, metadata, "UNSET TBLPROPERTIES", parameters, domains=domains)
            if off.changes(snapshot.protocol, snapshot.metadata):
                snapshot = self.log.snapshot(self._commit(snapshot, off, whole=not used))
            if not used or rewritten:
                break
            outcome = rewrite_files(self.log, snapshot, row, run=self.run)
            snapshot = snapshot if outcome is None else self.log.snapshot(outcome)
        if (
            snapshot.version > before
            and removal.in_past is not None
            and removal.in_past(past_of(self.log.parse(self.log.commits(snapshot.version))))
        ):
            # The newest commit is itself a trace, since it removed files with vectors: history can only end after it.
            same = MetadataChange(snapshot.protocol, snapshot.metadata, "Empty Commit", {})
            snapshot = self.log.snapshot(self._commit(snapshot, same))
        return snapshot


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
    """Find what uses the feature in a version, except its properties."""
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
    if truncate_history and not (row.of_readers or row.removal.in_log):
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
        return rewrite(log, snapshot, work, run=run).version
    after = _configured(removal.metadata(row.turned_off(snapshot.metadata)), properties or {})
    work = RewriteRequest(
        bins,
        "REMOVE COLUMN MAPPING",
        {},
        TARGET_SIZE,
        metadata=after,
        domains=_clustering_domains(snapshot, after),
    )
    return rewrite(log, snapshot, work, run=run).version


def _clustering_domains(snapshot: Snapshot, after: Metadata) -> dict[str, str]:
    """The clustering domain with the physical names that the metadata ``after`` gives the columns, if they change."""
    columns = clustering.clustering_columns(snapshot)
    if not columns or after.column_mapping_mode == snapshot.metadata.column_mapping_mode:
        return {}
    return {clustering.DOMAIN: clustering.clustering_domain(after.schema, columns)}


def _configured(metadata: Metadata, properties: Mapping[str, str]) -> Metadata:
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

    ``changed`` indicates whether the feature was disabled just before.
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


def bare_files(snapshot: Snapshot, removal: FeatureRemoval) -> list[dict[str, Any]]:
    """``add`` actions without the feature's fields, for the files that have them; no row changes."""
    if not removal.fields:
        return []
    having = pa.repeat(False, snapshot.adds.num_rows)  # booleans, even without files
    for name in removal.fields:
        having = pc.or_(having, snapshot.adds[name].is_valid().combine_chunks())
    return add_actions(snapshot.adds.filter(having).drop_columns(list(removal.fields)), dataChange=False)
