"""``MetadataCommits``: commit a change of a table's metadata, and drop a feature once nothing needs it.

The steps of a change::

    newest version --> pure change (alter, alter_properties) --> existing rows satisfy it? --> commit
          ^                                                                                      |
          +------------------ another writer changed schema or properties -----------------------+

If another writer changes the metadata first, the change is recomputed on the newest metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias

from trilake.common.display import PublicNames
from trilake.common.runtime import Runtime
from trilake.delta.commands.alter import feature_removal
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.transaction import CommitPlan, commit
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import DAY_MS, cleanup_log
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.delta.metadata.property_changes import set_properties
from trilake.delta.metadata.schema_changes import Condition, MetadataChange, logged_json
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.table_features import Feature, FeatureRemoval
from trilake.delta.protocol.features import check_writable, features_of
from trilake.delta.protocol.iceberg import compat_versions
from trilake.delta.protocol.properties import FEATURE
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema import StructType
from trilake.delta.rules.constraints import checks_in_zone, parse_check, verify_checks
from trilake.delta.rules.defaults import JudgeDefault, check_defaults_allowed
from trilake.delta.rules.iceberg_compat import check_compatible, check_old_files
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.row_text import describe_row
from trilake.delta.scan.scan import plan_scan
from trilake.errors import (
    ConcurrentWriteError,
    ConflictError,
    ConstraintViolatedError,
    InvalidArgumentError,
    ProtocolChangedError,
    UnsupportedExpressionError,
    stating,
)

#: Finds a row for which a SQL condition is not true; ``None`` if there is none.
FindViolation: TypeAlias = Callable[[Snapshot, str], Mapping[str, Any] | None]

P = ParamSpec("P")
_ATTEMPTS = 20


class MetadataCommits(PublicNames):
    """Commits changes of one table's metadata, with the parameters of :class:`Alter`."""

    def __init__(
        self,
        log: DeltaLog,
        *,
        runtime: Runtime | None = None,
        find_violation: FindViolation | None = None,
        zoned: bool = False,
        run: Runner = run_here,
        judge_default: JudgeDefault | None = None,
        commits_always: bool = False,
        defaults_by_feature: bool = False,
    ) -> None:
        self.log, self.runtime, self.run = log, runtime or log.engine.runtime, run
        self.find_violation, self.zoned, self.judge = find_violation, zoned, judge_default
        self.commits_always, self.defaults_by_feature = commits_always, defaults_by_feature

    def _head(self) -> Head:
        head = self.log.head()
        check_writable(head.protocol, head.metadata, uri=head.uri, version=head.version)
        return head

    def _snapshot(self) -> Snapshot:
        snapshot = self.log.snapshot()
        check_writable(snapshot.protocol, snapshot.metadata, uri=snapshot.uri, version=snapshot.version)
        return snapshot

    def _apply(
        self, change: Callable[Concatenate[Protocol, Metadata, P], MetadataChange], *args: P.args, **kwargs: P.kwargs
    ) -> int:
        return self._run(lambda h: change(h.protocol, h.metadata, *args, **kwargs))

    def _run(self, work_out: Callable[[Head], MetadataChange]) -> int:
        return self._again(lambda: self._once(work_out))

    def _again(self, attempt: Callable[[], int]) -> int:
        """Retry if others first changed what the change is based on."""
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return attempt()
            except ConflictError as e:
                if not attempts_left or isinstance(
                    e, ConcurrentWriteError
                ):  # after that many attempts, another one is pointless
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
            self._check(snapshot, condition)
        return self._commit(snapshot, change, whole=True)

    def _commit(
        self, base: Head, change: MetadataChange, *, files: Sequence[Mapping[str, Any]] = (), whole: bool = False
    ) -> int:
        plan = CommitPlan(
            operation=change.operation,
            parameters=change.parameters,
            file_actions=files,
            metadata=change.metadata if change.metadata != base.metadata else None,
            protocol=change.protocol if change.protocol != base.protocol else None,
            read=ReadSet(whole_table=whole, changes_metadata=True, metadata=base.metadata),
            domains=change.domains,
        )
        return commit(self.log, base, plan, self.runtime).version

    def _check(self, snapshot: Snapshot, condition: Condition) -> None:
        """Raise ``ConstraintViolatedError`` if a row does not satisfy a condition."""
        new = f"DELTA_NEW_{'NOT_NULL' if condition.kind.startswith('NOT NULL') else 'CHECK_CONSTRAINT'}_VIOLATION"
        with stating({None: new, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": new}):
            self._check_rows(snapshot, condition)

    def _check_rows(self, snapshot: Snapshot, condition: Condition) -> None:
        what = f"{condition.kind} {condition.name} ({condition.sql})"
        check = parse_check(condition.kind, condition.name, condition.sql, snapshot.schema, self.runtime.now())
        if self.zoned:
            [check] = checks_in_zone([check], snapshot.schema)
        if check.condition is None:
            if self.find_violation is None:
                raise UnsupportedExpressionError(
                    f"only Spark can evaluate {what} on the existing rows", help="make this change with Spark"
                )
            row = self.find_violation(snapshot, condition.sql)
            if row is not None:
                raise ConstraintViolatedError(
                    f"{what} violated by row with values: {describe_row(row)}",
                    help="correct or delete such rows first; nothing was committed",
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
        """Enable Iceberg compatibility with ``change`` if the existing files fit it."""
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
        self._run(lambda h: self._with_properties(h, {f"{FEATURE}{row_tracking.FEATURE}": "supported"}))
        snapshot = self._snapshot()
        if not row_tracking.supported(snapshot.protocol):
            raise ProtocolChangedError(
                f"another writer dropped the feature {row_tracking.FEATURE} while this command was enabling row"
                " tracking",
                help="repeat the command if row tracking is still wanted",
                uri=snapshot.uri,
                version=snapshot.version,
            )
        files = feature_removal.without_row_ids(snapshot)
        if files:
            same = MetadataChange(snapshot.protocol, snapshot.metadata, "ROW TRACKING BACKFILL", {"batchId": "0"})
            snapshot = self.log.snapshot(self._commit(snapshot, same, files=files, whole=True))
        return self._once(change, snapshot)

    def _drop(self, name: str, truncate_history: bool, protect_history: bool) -> int:
        snapshot, has_committed = self._snapshot(), False
        row, removal = feature_removal.removable(snapshot.protocol, name, truncate_history=truncate_history)
        if removal.in_past is not None:
            snapshot, has_committed = self._turned_off(snapshot, row, removal)
            if truncate_history or has_committed:
                # Log cleanup can truncate history only at a checkpoint.
                write_checkpoint(self.log, snapshot, self.runtime)
            if truncate_history:
                cleanup_log(self.log, self.runtime, retention_ms=DAY_MS)
        trace = feature_removal.trace_in(self.log, snapshot, row)
        older = None if trace is not None else feature_removal.history_trace(self.log, removal, changed=has_committed)
        if trace is not None or (older is not None and not protect_history):
            raise feature_removal.in_use(row.name, trace or older)
        change = feature_removal.removed(
            snapshot.protocol, snapshot.metadata, row, removal, truncate_history=truncate_history
        )
        if older is not None:
            change = feature_removal.protected(change, snapshot.version + 1)
        files = feature_removal.bare_files(snapshot, removal)
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
        row, removal = feature_removal.removable(snapshot.protocol, "columnMapping")
        trace = feature_removal.trace_in(self.log, snapshot, row)
        if trace is None:
            after = feature_removal.with_properties(removal.metadata(row.turned_off(snapshot.metadata)), properties)
            change = MetadataChange(snapshot.protocol, after, "REMOVE COLUMN MAPPING", {})
            return self._commit(snapshot, change, whole=True)
        outcome = feature_removal.rewrite_files(
            self.log, snapshot, row, runtime=self.runtime, run=self.run, properties=properties
        )
        if outcome is None:
            raise InvalidArgumentError(
                f"column mapping cannot be turned off: {trace.what}",
                help=trace.help,
                condition="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
            )
        return outcome

    def _turned_off(self, snapshot: Snapshot, row: Feature, removal: FeatureRemoval) -> tuple[Snapshot, bool]:
        """Disable a feature and rewrite its files if that helps; return the table, and whether that took a commit."""
        before = snapshot.version
        for rewritten in (False, True):
            # Check the version on which the commit is based: a rename in between is a conflict.
            in_use = feature_removal.trace_in(self.log, snapshot, row) is not None
            metadata = row.turned_off(snapshot.metadata)
            metadata = metadata if in_use else removal.metadata(metadata)
            keys = sorted(set(snapshot.metadata.configuration) - set(metadata.configuration))
            parameters = {"properties": logged_json(keys), "ifExists": "true"}
            off = MetadataChange(snapshot.protocol, metadata, "UNSET TBLPROPERTIES", parameters)
            if off.changes(snapshot.protocol, snapshot.metadata):
                snapshot = self.log.snapshot(self._commit(snapshot, off, whole=not in_use))
            if not in_use or rewritten:
                break
            outcome = feature_removal.rewrite_files(self.log, snapshot, row, runtime=self.runtime, run=self.run)
            snapshot = snapshot if outcome is None else self.log.snapshot(outcome)
        has_committed = snapshot.version > before
        if (
            has_committed
            and removal.in_past is not None
            and removal.in_past(feature_removal.past_of(self.log.parse(self.log.commits(snapshot.version))))
        ):
            # The newest commit is itself a trace, since it removed files with vectors: history can only end after it.
            same = MetadataChange(snapshot.protocol, snapshot.metadata, "Empty Commit", {})
            snapshot = self.log.snapshot(self._commit(snapshot, same))
        return snapshot, has_committed
