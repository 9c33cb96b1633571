"""``Alter``: changes of a table's columns, properties, constraints and protocol, each one commit.

The life of a change::

    newest version --> pure change (alter, alter_properties) --> rows that are there satisfy it? --> commit
          ^                                                                                          |
          +--------------------- another writer changed schema or properties meanwhile --------------+

A change is a statement about the table as it is, so when another writer changed the table's metadata first, it is
worked out again on what that writer left, as if it had been asked for later.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import orjson

from trilake.arguments import checked_methods
from trilake.delta.commands.alter import feature_removal
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commit import row_tracking
from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.plan import CommitPlan
from trilake.delta.commit.transaction import commit
from trilake.delta.log.checkpoint_writer import write_checkpoint
from trilake.delta.log.clustering import clustering_columns
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.log_cleanup import DAY_MS, cleanup_log
from trilake.delta.log.snapshot import Head, Snapshot
from trilake.delta.metadata import property_changes as alter_properties
from trilake.delta.metadata import schema_changes as alter
from trilake.delta.metadata.column_changes import ColumnChange, change_columns, identity_column, sync_identity
from trilake.delta.metadata.column_definitions import ColumnsLike, TypeLike, new_columns
from trilake.delta.metadata.column_replacement import replace_columns
from trilake.delta.metadata.schema_changes import Condition, MetadataChange, NewColumn
from trilake.delta.protocol.feature import Feature, FeatureRemoval
from trilake.delta.protocol.features import check_writable
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.schema_edit import FIRST, PathLike, Position
from trilake.delta.rules.constraints import checks_in_zone, parse_check, verify_checks
from trilake.delta.rules.defaults import JudgeDefault
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
from trilake.runtime import Runtime

#: Looks for a row for which a SQL condition is not true; ``None`` where there is none.
FindViolation: TypeAlias = Callable[[Snapshot, str], Mapping[str, Any] | None]

_ATTEMPTS = 20


@checked_methods
class Alter:
    """Changes one table.  Each method is one commit and returns the version it made.

    Where nothing would change, nothing is committed and the newest version is returned.

    Parameters
    ----------
    log: the table's log.
    runtime: clock, ids and waiting.
    run: who writes files again that use a feature which is dropped.
    find_violation: evaluates conditions that the embedded engine cannot, as Spark does; without it such conditions are
        refused.
    zoned: whether that is a session of another zone than UTC: then it evaluates all that may depend on the zone.
    judge_default: refuses defaults of columns that only Spark knows, and that are none.

    Raises, besides what each method says: ``TableNotFoundError``, ``UnsupportedProtocolError`` for a table that may not
    be written, ``ConflictError`` where other writers won again and again, ``UnknownOutcomeError``.

    >>> import pyarrow as pa, trilake
    >>> from trilake.engine import standard_engine
    >>> from trilake.storage import open_store
    >>> trilake.write(pa.table({"n": [1, 2]}), "memory://doc-alter", mode="overwrite").version
    0
    >>> table = Alter(DeltaLog(open_store("memory://doc-alter"), standard_engine()))
    >>> table.add_columns({"note": "string"}), table.add_constraint("positive", "n > 0")
    (1, 2)
    """

    def __init__(
        self,
        log: DeltaLog,
        *,
        runtime: Runtime | None = None,
        find_violation: FindViolation | None = None,
        zoned: bool = False,
        run: Runner = run_here,
        judge_default: JudgeDefault | None = None,
    ) -> None:
        self.log, self.runtime, self.run = log, runtime or log.engine.runtime, run
        self.find_violation, self.zoned, self.judge = find_violation, zoned, judge_default

    # --- columns -----------------------------------------------------------------------------------------------------

    def add_columns(self, columns: ColumnsLike, *, first: bool = False, after: str | None = None) -> int:
        """Add columns; rows that are there read as null in them.

        Parameters
        ----------
        columns: a schema, fields, or types by path: ``{"note": "string", "address.zip": "varchar(10)"}``.
        first, after: where the columns go among their neighbours, in the order given; at the end by default.

        Raises ``InvalidArgumentError`` for names that are taken and columns that old rows have no value for.
        """
        fields = new_columns(columns)
        placed, position = [], _position(first, after)
        for c in fields:
            placed.append(NewColumn(c.field, c.parent, position))
            position = Position(c.field.name) if position is not None else None
        return self._run(lambda h: alter.add_columns(h.protocol, h.metadata, placed, new_id=self.runtime.new_id))

    def add(self, *columns: NewColumn) -> int:
        """Add columns, each at a place of its own.  Raises as :meth:`add_columns`."""
        return self._run(lambda h: alter.add_columns(h.protocol, h.metadata, columns, new_id=self.runtime.new_id))

    def rename_column(self, path: PathLike, new_name: str) -> int:
        """Rename a column, nested or not; no file is rewritten.

        Raises ``InvalidArgumentError`` without column mapping, for a name that is taken, and where a constraint or
        generated column mentions the column.
        """
        return self._run(lambda h: alter.rename_column(h.protocol, h.metadata, path, new_name))

    def drop_columns(self, *paths: PathLike) -> int:
        """Drop columns, nested or not; no file is rewritten.  Raises as :meth:`rename_column`."""
        return self._run(lambda h: alter.drop_columns(h.protocol, h.metadata, paths, clustering=clustering_columns(h)))

    def replace_columns(self, columns: ColumnsLike) -> int:
        """Give the table a list of columns: those that are there stay, others are new, the rest is dropped.

        The same holds for fields of structs.  Raises as :meth:`add_columns`, :meth:`drop_columns` and
        :meth:`change_type`.
        """
        given = new_columns(columns)
        if any(c.parent for c in given):
            raise InvalidArgumentError("columns are replaced as a whole", help="give the type of the whole column")
        fields = [c.field for c in given]

        def change(h: Head) -> MetadataChange:
            return replace_columns(
                h.protocol,
                h.metadata,
                fields,
                clustering=clustering_columns(h),
                new_id=self.runtime.new_id,
                version=h.version + 1,
            )

        return self._run(change)

    def move_column(self, path: PathLike, *, first: bool = False, after: str | None = None) -> int:
        """Put a column first, or after one of its neighbours."""
        position = _position(first, after)
        if position is None:
            raise InvalidArgumentError("say first=True, or after which column")
        return self._run(lambda h: alter.move_column(h.protocol, h.metadata, path, position))

    def change_columns(self, *changes: ColumnChange) -> int:
        """Change several things of columns in one commit: all of them, or none.

        Raises what the methods for one thing raise.
        """
        now = self._now()
        judge = self.judge
        return self._run(
            lambda h: change_columns(h.protocol, h.metadata, changes, version=h.version + 1, now=now, judge=judge)
        )

    def change_type(self, path: PathLike, type: TypeLike) -> int:
        """Widen the type of a column, element, key or value; no file is rewritten.

        Raises ``InvalidArgumentError`` where the one type cannot become the other, or without
        ``delta.enableTypeWidening``.
        """
        return self.change_columns(ColumnChange(path, type=type))

    def set_nullable(self, path: PathLike) -> int:
        """Allow nulls in a column (``DROP NOT NULL``)."""
        return self._run(lambda h: alter.set_nullable(h.protocol, h.metadata, path))

    def set_not_null(self, path: PathLike) -> int:
        """Forbid nulls in a column.  Raises ``ConstraintViolatedError`` where a row holds one."""
        return self._run(lambda h: alter.set_not_null(h.protocol, h.metadata, path))

    def comment(self, comment: str | None, path: PathLike | None = None) -> int:
        """Describe a column, or the table where no column is named; ``None`` removes the text."""
        if path is None:
            return self._run(
                lambda h: alter_properties.set_description(h.protocol, h.metadata, comment, new_id=self.runtime.new_id)
            )
        return self._run(lambda h: alter.comment_column(h.protocol, h.metadata, path, comment))

    def set_default(self, column: PathLike, expression: str) -> int:
        """Give a column a default, which rows to come take where they leave the column out.

        Raises ``ExpressionError`` for an expression that reads columns or does not fit the column.
        """
        now = self._now()
        return self._run(
            lambda h: alter.set_default(h.protocol, h.metadata, column, expression, now=now, judge=self.judge)
        )

    def drop_default(self, column: PathLike) -> int:
        """Take a column's default away."""
        return self._run(lambda h: alter.drop_default(h.protocol, h.metadata, column))

    def sync_identity(self, column: PathLike) -> int:
        """Let an identity column go on behind the furthest value that rows hold (``SYNC IDENTITY``).

        Raises ``InvalidArgumentError`` for a column that is no identity column.
        """

        def attempt() -> int:
            snapshot = self._snapshot()
            # Its mark may be a value that somebody gave, which is none of its own: that is looked at as any other.
            known = replace(identity_column(snapshot.schema, column), mark=None)
            scan = plan_scan(snapshot, [known.name])
            reached = None
            for batch in read_tasks(self.log.store, scan.tasks(), scan.plan):
                reached = known.further(reached, known.reach(batch.column(0)))
            change = sync_identity(snapshot.protocol, snapshot.metadata, column, reached)
            if not change.changes(snapshot.protocol, snapshot.metadata):
                return snapshot.version
            return self._commit(snapshot, change, whole=True)

        return self._again(attempt)

    def cluster_by(self, *columns: PathLike) -> int:
        """Set the columns by which an optimization keeps rows near each other; none ends clustering.

        Raises ``InvalidArgumentError`` for a partitioned table, and for columns that cannot cluster rows.
        """

        def change(h: Head) -> MetadataChange:
            return alter_properties.cluster_by(h.protocol, h.metadata, columns, before=clustering_columns(h))

        return self._run(change)

    # --- properties and constraints ----------------------------------------------------------------------------------

    def set_properties(self, properties: Mapping[str, object]) -> int:
        """Set table properties, with the table features that they need.

        Turning on ``delta.enableRowTracking`` gives row ids to the files that are there first, which takes up to two
        commits more.  Raises ``UnknownOptionError`` for an unknown key of the ``delta.`` namespace,
        ``InvalidArgumentError`` for a value that cannot be.
        """

        def change(h: Head) -> MetadataChange:
            return alter_properties.set_properties(h.protocol, h.metadata, properties, new_id=self.runtime.new_id)

        def attempt() -> int:
            head = self._head()
            wanted, key = change(head).metadata.configuration, row_tracking.ENABLED
            if is_on(wanted, key) and not head.properties.is_on(key):
                return self._tracking(change)
            return self._once(change, head)

        return self._again(attempt)

    def unset_properties(self, *keys: str, if_exists: bool = False) -> int:
        """Remove table properties.  Raises ``InvalidArgumentError`` for one that is not set."""
        return self._run(
            lambda h: alter_properties.unset_properties(
                h.protocol, h.metadata, keys, new_id=self.runtime.new_id, if_exists=if_exists
            )
        )

    def add_constraint(self, name: str, expression: str) -> int:
        """Add a CHECK constraint.

        Raises ``ConstraintViolatedError`` with the values of the first row that breaks it, ``InvalidArgumentError`` for
        a name that is taken, ``ExpressionError`` for an expression that is no condition over the table's columns.
        """
        now = self._now()
        return self._run(lambda h: alter_properties.add_constraint(h.protocol, h.metadata, name, expression, now=now))

    def drop_constraint(self, name: str, *, if_exists: bool = False) -> int:
        """Remove a CHECK constraint."""
        return self._run(lambda h: alter_properties.drop_constraint(h.protocol, h.metadata, name, if_exists=if_exists))

    # --- protocol ----------------------------------------------------------------------------------------------------

    def add_feature(self, name: str) -> int:
        """Add a table feature and those it needs.  Raises ``UnsupportedProtocolError`` for an unknown one."""
        return self._run(
            lambda h: alter_properties.add_feature(h.protocol, h.metadata, name, new_id=self.runtime.new_id)
        )

    def upgrade_protocol(self, reader: int, writer: int) -> int:
        """Raise the protocol's versions.  Raises ``InvalidArgumentError`` for versions that do not exist."""
        return self._run(lambda h: alter_properties.raise_versions(h.protocol, h.metadata, reader, writer))

    def drop_feature(self, name: str, *, truncate_history: bool = False, protect_history: bool = False) -> int:
        """Take a table feature away.

        A feature that readers must know is turned off first, in a commit of its own, and goes once no version that can
        still be read needs it; ``truncate_history`` removes what is older than a day from the log for that.
        ``protect_history`` lets it go at once where only older versions need it: the table gets the feature
        *checkpointProtection*, by which the checkpoint that new readers begin at stays as long as those versions do.

        Raises ``FeatureInUseError`` that says what is left to do.
        """
        return self._again(lambda: self._drop(name, truncate_history, protect_history and not truncate_history))

    def _drop(self, name: str, truncate_history: bool, protect_history: bool) -> int:
        snapshot, changed = self._snapshot(), False
        row, removal = feature_removal.removable(snapshot.protocol, name, truncate_history=truncate_history)
        if removal.in_past is not None:
            snapshot, changed = self._turned_off(snapshot, row, removal)
            if truncate_history or changed:
                # Log cleanup can cut off the history only where a checkpoint is.
                write_checkpoint(self.log, snapshot, self.runtime)
            if truncate_history:
                cleanup_log(self.log, self.runtime, retention_ms=DAY_MS)
        trace = feature_removal.trace_in(self.log, snapshot, row)
        older = None if trace is not None else feature_removal.history_trace(self.log, removal, changed=changed)
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
            # Readers without the feature begin here, and replay nothing before it.
            write_checkpoint(self.log, self.log.opened(version), self.runtime)
        return version

    def _turned_off(self, snapshot: Snapshot, row: Feature, removal: FeatureRemoval) -> tuple[Snapshot, bool]:
        """The table with a feature turned off, and no longer used where writing files again helps; whether that took a
        commit."""
        before = snapshot.version
        for rewritten in (False, True):
            # Judged on the very version that the commit stands on: a rename in between is a conflict.
            used = feature_removal.trace_in(self.log, snapshot, row) is not None
            off = _turn_off(snapshot, row, removal, used=used)
            if off.changes(snapshot.protocol, snapshot.metadata):
                snapshot = self.log.snapshot(self._commit(snapshot, off, whole=not used))
            if not used or rewritten:
                break
            done = feature_removal.rewrite_files(self.log, snapshot, row, runtime=self.runtime, run=self.run)
            snapshot = snapshot if done is None else self.log.snapshot(done)
        changed = snapshot.version > before
        if (
            changed
            and removal.in_past is not None
            and removal.in_past(feature_removal.past_of(self.log.parse(self.log.commits(snapshot.version))))
        ):
            # The newest commit is itself a trace, as it removed files with vectors: the history can end behind it only.
            same = MetadataChange(snapshot.protocol, snapshot.metadata, "Empty Commit", {})
            snapshot = self.log.snapshot(self._commit(snapshot, same))
        return snapshot, changed

    # --- how a change happens ----------------------------------------------------------------------------------------

    def _now(self) -> dt.datetime:
        return self.runtime.now()

    def _head(self) -> Head:
        head = self.log.head()
        check_writable(head.protocol, head.metadata, uri=head.uri, version=head.version)
        return head

    def _snapshot(self) -> Snapshot:
        snapshot = self.log.snapshot()
        check_writable(snapshot.protocol, snapshot.metadata, uri=snapshot.uri, version=snapshot.version)
        return snapshot

    def _run(self, work_out: Callable[[Head], MetadataChange]) -> int:
        """Work a change out on the newest version and commit it."""
        return self._again(lambda: self._once(work_out))

    def _again(self, attempt: Callable[[], int]) -> int:
        """Try again where others changed first what this change was worked out on."""
        for left in reversed(range(_ATTEMPTS)):
            try:
                return attempt()
            except ConflictError as e:
                if not left or isinstance(e, ConcurrentWriteError):  # one that lost a thousand times will lose again
                    raise
                self.runtime.sleep(0.002 * (_ATTEMPTS - left))
        raise AssertionError("the last attempt raises")

    def _once(self, work_out: Callable[[Head], MetadataChange], head: Head | None = None) -> int:
        head = head or self._head()
        change = work_out(head)
        if not change.changes(head.protocol, head.metadata):
            return head.version
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
        """Raise ``ConstraintViolatedError`` where a row of the table does not satisfy a condition."""
        new = f"DELTA_NEW_{'NOT_NULL' if condition.kind.startswith('NOT NULL') else 'CHECK_CONSTRAINT'}_VIOLATION"
        with stating({None: new, "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": new}):
            self._check_rows(snapshot, condition)

    def _check_rows(self, snapshot: Snapshot, condition: Condition) -> None:
        what = f"{condition.kind} {condition.name} ({condition.text})"
        check = parse_check(condition.kind, condition.name, condition.text, snapshot.schema, self._now())
        if self.zoned:
            [check] = checks_in_zone([check], snapshot.schema)
        if check.condition is None:
            if self.find_violation is None:
                raise UnsupportedExpressionError(
                    f"only Spark can evaluate {what} on the rows that are there",
                    help="make this change through Spark",
                )
            row = self.find_violation(snapshot, condition.text)
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

    def _tracking(self, change: Callable[[Head], MetadataChange]) -> int:
        """Turn row tracking on by ``change``, which promises that all files have row ids: first the feature, then the
        ids, then the promise, on the very version that keeps it.
        """
        self._run(
            lambda h: alter_properties.add_feature(
                h.protocol, h.metadata, row_tracking.FEATURE, new_id=self.runtime.new_id
            )
        )
        snapshot = self._snapshot()
        if not row_tracking.supported(snapshot.protocol):
            raise ProtocolChangedError(
                f"somebody dropped the feature {row_tracking.FEATURE} while row tracking was turned on",
                help="agree on one of the two and repeat it",
                uri=snapshot.uri,
                version=snapshot.version,
            )
        files = feature_removal.without_row_ids(snapshot)
        if files:
            same = MetadataChange(snapshot.protocol, snapshot.metadata, "ROW TRACKING BACKFILL", {"batchId": "0"})
            snapshot = self.log.snapshot(self._commit(snapshot, same, files=files, whole=True))
        return self._once(change, snapshot)


def _turn_off(head: Head, row: Feature, removal: FeatureRemoval, *, used: bool) -> MetadataChange:
    """The change that turns a feature off, and takes its traces from the metadata unless it is still ``used``."""
    off = row.turned_off(head.metadata)
    if not used:
        off = removal.metadata(off)
    keys = sorted(set(head.metadata.configuration) - set(off.configuration))
    parameters = {"properties": orjson.dumps(keys).decode(), "ifExists": "true"}
    return MetadataChange(head.protocol, off, "UNSET TBLPROPERTIES", parameters)


# --- arguments -------------------------------------------------------------------------------------------------------


def _position(first: bool, after: str | None) -> Position | None:
    if first and after is not None:
        raise InvalidArgumentError("a column goes first, or after another, not both")
    return FIRST if first else None if after is None else Position(after)
