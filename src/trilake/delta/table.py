"""``ArrowDeltaTable``: a Delta table opened without Spark, read to Arrow.

What reads and what changes rows is imported when it is called: who asks for version, schema or properties loads
neither, and who reads loads no command (tests/house/test_laziness.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from trilake.arguments import checked_methods
from trilake.delta.engine import Engine
from trilake.delta.log.detail import detail, overview, summary
from trilake.delta.log.history import history
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.replay import decoded_paths
from trilake.delta.log.snapshot import Head, PendingSnapshot, Snapshot
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.all_fields import described_schema
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table import Explanation, FilterLike, Table
from trilake.timestamps import TimestampLike, timestamp_ms

if TYPE_CHECKING:
    from trilake.delta.commands.maintenance.clone import CloneResult
    from trilake.delta.commands.maintenance.restore import RestoreResult
    from trilake.delta.commands.maintenance.vacuum import VacuumResult
    from trilake.delta.commands.merge.builder import MergeBuilder
    from trilake.delta.commands.optimize.optimize import OptimizeResult
    from trilake.delta.commands.rows.change_result import ChangeResult
    from trilake.delta.commit.symlink_manifest import ManifestResult
    from trilake.delta.scan.scan import Scan
    from trilake.expr import Filter


@checked_methods
class ArrowDeltaTable(Table):
    """A Delta table at one version.

    Use :func:`trilake.open` to get one.  ``version`` and ``timestamp`` exclude each other; with neither, the newest
    version is shown.  ``user_metadata`` is a text that commits made from here carry where they have none of their own.
    ``known`` is what an earlier object has :attr:`opened`: it is not read again where the log's files are the same.
    """

    format = "delta"

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        version: int | None = None,
        timestamp: TimestampLike | None = None,
        user_metadata: str | None = None,
        known: Snapshot | PendingSnapshot | None = None,
    ) -> None:
        if version is not None and timestamp is not None:
            raise InvalidArgumentError(
                "version and timestamp exclude each other",
                help="pass one of them",
                condition="DELTA_ONEOF_IN_TIMETRAVEL",
            )
        self.log = DeltaLog(store, engine, user_metadata=user_metadata)
        self.uri = store.uri
        if timestamp is not None:
            version = self.log.version_at(timestamp_ms(timestamp))
        self._opened = self.log.opened(version, known=known)

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def opened(self) -> Snapshot | PendingSnapshot:
        """The version as far as it was read."""
        return self._opened

    @property
    def snapshot(self) -> Snapshot:
        """The version with all its files: those of a table that has very many are read at the first call.

        Raises ``CorruptLogError`` where they cannot be.
        """
        if isinstance(self._opened, PendingSnapshot):
            self._opened = self.log.load(self._opened)
        return self._opened

    def snapshot_for(self, filter: Filter | None) -> Snapshot:
        """The version with those files at least that may hold a row for which ``filter`` is true.

        Raises as :attr:`snapshot` does.
        """
        from trilake.delta.scan.narrowed import snapshot_for

        return snapshot_for(self.log, self._opened, filter, lambda _: self.snapshot)

    @property
    def _head(self) -> Head:
        """The version without its files."""
        return self._opened

    @property
    def version(self) -> int:
        """The version this object shows."""
        return self._head.version

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, with comments; all parts nullable: files may lack columns that the table requires."""
        from trilake.delta.scan.scan import read_schema

        return described_schema(read_schema(self._head.schema))

    @property
    def protocol(self) -> Protocol:
        """The protocol action in force."""
        return self._head.protocol

    @property
    def metadata(self) -> Metadata:
        """The metaData action in force."""
        return self._head.metadata

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties of this version."""
        return self._head.metadata.configuration

    def refresh(self) -> ArrowDeltaTable:
        """The same table at its newest version, replaying only the commits that are new."""
        fresh = object.__new__(ArrowDeltaTable)
        fresh.log, fresh.uri = self.log, self.uri
        fresh._opened = self.log.updated(self._opened)
        return fresh

    def _scan(self, columns: Sequence[str] | None, filter: FilterLike | None) -> Scan:
        """The plan of a read; of a large table's files, those that the filter needs are all that is kept in memory."""
        from trilake.delta.scan.scan import parse_table_filter, plan_scan, read_plan

        parsed = parse_table_filter(filter, self._head)
        if isinstance(self._opened, PendingSnapshot):
            read_plan(self._opened, columns, parsed)  # a missing column is known before a million files are read
        return plan_scan(self.snapshot_for(parsed), columns, parsed)

    def files(self, filter: FilterLike | None = None) -> pa.Table:
        """One row a data file; see :meth:`trilake.table.Table.files`."""
        from trilake.delta.scan.statistics import record_counts

        adds = self._scan(None, filter).files
        return pa.table(
            {
                "path": decoded_paths(adds["path"]),
                "partition_values": adds["partitionValues"],
                "size": adds["size"],
                "modification_time": adds["modificationTime"].cast(pa.timestamp("ms", "UTC")),
                "num_records": record_counts(adds),
                "stats": adds["stats"],
                "deletion_vector": adds["deletionVector"],
            }
        )

    # --- rows --------------------------------------------------------------------------------------------------------

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of batches; see :meth:`trilake.table.Table.to_batches`."""
        from trilake.delta.scan.read import read_tasks

        scan = self._scan(columns, filter)
        return read_tasks(self.log.store, scan.tasks(), scan.plan)

    def to_reader(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which duckdb, polars and pandas take as it is."""
        from trilake.delta.scan.read import read_tasks

        scan = self._scan(columns, filter)
        return pa.RecordBatchReader.from_batches(scan.plan.schema, read_tasks(self.log.store, scan.tasks(), scan.plan))

    def to_arrow(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.Table:
        """The rows as one table; see :meth:`trilake.table.Table.to_arrow`."""
        return self.to_reader(columns, filter).read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def plain_files(self) -> list[str] | None:
        """The paths of local Parquet files whose rows are the table's; see :meth:`trilake.table.Table.plain_files`."""
        from trilake.delta.scan.plain_files import plain_files

        return None if isinstance(self._opened, PendingSnapshot) else plain_files(self.snapshot, self.log.store)

    def count(self, filter: FilterLike | None = None) -> int:
        """Number of rows; from the statistics alone where the filter leaves no file in doubt."""
        from trilake.delta.scan.narrowed import row_count
        from trilake.delta.scan.read import read_tasks
        from trilake.delta.scan.scan import vector_count
        from trilake.delta.scan.statistics import record_counts

        pending = self._opened if filter is None and isinstance(self._opened, PendingSnapshot) else None
        if pending is not None and (rows := row_count(self.log, pending)) is not None:
            return rows
        scan = self._scan([], filter)
        if scan.plan.filter is None:
            counts = record_counts(scan.files)
            if not counts.null_count:
                return int(pc.sum(counts).as_py() or 0) - vector_count(scan.files)
        return sum(b.num_rows for b in read_tasks(self.log.store, scan.tasks(), scan.plan))

    def changes(
        self,
        start: int | str | datetime,
        end: int | str | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The change data feed of versions ``start`` to ``end``, both included.

        A time (UTC without a zone) as ``start`` is the first version at or after it, as ``end`` the last at or before.

        The rows have three more columns: ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage`` or
        ``delete``), ``_commit_version`` and ``_commit_timestamp``.  Where ``columns`` names some of these, it names
        all that are given, in its order.

        Raises ``ChangeFeedError`` where the feed was not recorded, ``VersionNotFoundError`` for versions the log does
        not hold and for times after the newest.

        >>> import pyarrow as pa, trilake
        >>> on = {"delta.enableChangeDataFeed": "true"}
        >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-changes", properties=on)
        >>> trilake.open("memory://doc-changes").changes("2024-05-01")["_change_type"].to_pylist()
        ['insert', 'insert']
        """
        from trilake.delta.scan.changes import changes_table

        return changes_table(self.log, start, end, columns=columns)

    # --- changing rows -----------------------------------------------------------------------------------------------

    def delete(self, predicate: FilterLike | None = None, *, user_metadata: str | None = None) -> ChangeResult:
        """Delete the rows of the newest version for which ``predicate`` is true, as one commit; all without one.

        Files of which every row goes are removed unread, others are read by the columns of the predicate alone.  Where
        no row matches, nothing is committed.  This object still shows the version that it showed: see :meth:`refresh`.

        Raises ``InvalidArgumentError`` for an append-only table, ``FilterError`` for a predicate that does not fit the
        table or fails on a row, and a ``ConflictError`` where another commit excludes this one.

        >>> import pyarrow as pa, trilake
        >>> _ = trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-delete")
        >>> trilake.open("memory://doc-delete").delete("n > 1").rows
        2
        """
        from trilake.delta.commands.write.delete import delete_rows
        from trilake.delta.scan.scan import parse_table_filter

        snapshot = self.log.update(self.snapshot)
        filter = parse_table_filter(predicate, snapshot)
        return delete_rows(self.log, snapshot, filter, user_metadata=user_metadata)

    def update(
        self, set: Mapping[str, Any], where: FilterLike | None = None, *, user_metadata: str | None = None
    ) -> ChangeResult:
        """Give the rows of the newest version for which ``where`` is true new values, as one commit; all without one.

        Parameters
        ----------
        set: by column (``"a"``, or ``"a.b"`` for a field of a struct) a SQL expression over the row as it was, or a
            value that is no text, such as ``3``, ``None`` or a date.
        where: which rows; where none match, nothing is committed.

        Raises ``SchemaMismatchError`` for an unknown column and for a value that does not fit its column,
        ``ConstraintViolatedError`` for a row that breaks a rule of the table, ``ExpressionError`` for an expression
        that is wrong or fails on a row, and otherwise as :meth:`delete`.

        >>> import pyarrow as pa, trilake
        >>> _ = trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-update")
        >>> trilake.open("memory://doc-update").update({"n": "n * 10"}, "n > 1").rows
        2
        >>> sorted(trilake.open("memory://doc-update").to_arrow()["n"].to_pylist())
        [1, 20, 30]
        """
        from trilake.delta.commands.write.update import update_rows
        from trilake.delta.scan.scan import parse_table_filter

        if not set:
            raise InvalidArgumentError("nothing is to be set", help='pass values by column, such as {"n": "n + 1"}')
        snapshot = self.log.update(self.snapshot)
        filter = parse_table_filter(where, snapshot)
        return update_rows(self.log, snapshot, set, filter, user_metadata=user_metadata)

    # --- its files ---------------------------------------------------------------------------------------------------

    def optimize(
        self,
        where: FilterLike | None = None,
        *,
        zorder_by: str | Sequence[str] = (),
        target_size: int | None = None,
        full: bool = False,
        **how: Any,
    ) -> OptimizeResult:
        """Put the rows of the newest version into fewer, larger or better ordered files, as one commit.

        Small files, and files with many deleted rows, are put together.  A table with clustering columns is clustered
        by them instead; large clusters of earlier runs are left alone.

        Parameters
        ----------
        where: a condition over partition columns, for a part of the table.
        zorder_by: columns by which files are to be skipped: all files of a partition are written again in the order of
            a curve through them.
        target_size: bytes of a file that is large enough; the table's ``delta.targetFileSize``, or 1 GiB.
        full: cluster all files anew, those of large clusters and of other clustering columns included.
        how: the other fields of :class:`~trilake.delta.commands.optimize.optimize.OptimizeRequest`, such as
            ``min_file_size``, ``deleted_share``, ``check_statistics`` and ``memory`` (bytes of rows that sorting
            holds).

        Raises ``InvalidArgumentError`` for a request that does not fit the table, and a ``ConflictError`` where other
        writers removed all the files meanwhile; appends are no conflict.

        >>> import pyarrow as pa, trilake
        >>> for n in range(3):
        ...     _ = trilake.write(pa.table({"n": [n]}), "memory://doc-optimize", mode="append")
        >>> done = trilake.open("memory://doc-optimize").optimize()
        >>> done.version, done.files_removed, done.files_added
        (3, 3, 1)
        """
        from trilake.delta.commands.optimize.optimize import OptimizeRequest, optimize

        columns = (zorder_by,) if isinstance(zorder_by, str) else tuple(zorder_by)
        request = OptimizeRequest(where=where, zorder_by=columns, target_size=target_size, full=full, **how)
        return optimize(self.log, request)

    def purge(self, where: FilterLike | None = None, *, target_size: int | None = None) -> OptimizeResult:
        """Write the files again that hold deleted rows or dropped columns (``REORG TABLE ... APPLY (PURGE)``).

        Parameters are those of :meth:`optimize`.  The old files stay until they are vacuumed.
        """
        from trilake.delta.commands.optimize.footers import purgeable
        from trilake.delta.commands.optimize.optimize import purge

        store = self.log.store
        return purge(self.log, lambda s: purgeable(store, s), where=where, target_size=target_size)

    def merge(
        self,
        source: Any,
        on: str,
        source_alias: str = "source",
        target_alias: str = "target",
        *,
        round_times: bool = False,
    ) -> MergeBuilder:
        """Change, remove and add rows by what ``source`` holds: the beginning of a MERGE into the newest version.

        Parameters
        ----------
        source: an Arrow table, reader or dataset, or a frame with the Arrow stream interface.  It is read once.
        on: the condition that says which rows belong together, as Spark SQL.
        source_alias, target_alias: what expressions call the two.
        round_times: whether times of the source in nanoseconds are rounded down to the microseconds that the table has;
            otherwise one that is between two microseconds is refused.
        """
        from trilake.delta.commands.merge.builder import MergeBuilder
        from trilake.delta.commands.merge.commit import MergeRequest

        if not isinstance(on, str):
            raise InvalidArgumentError(f"the condition of a merge is a {type(on).__name__}, not SQL text")
        request = MergeRequest(on, (), source_alias, target_alias, round_times=round_times)
        return MergeBuilder(self.log, source, request, self._opened if isinstance(self._opened, Snapshot) else None)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = False,
        lite: bool = False,
        enforce_retention: bool = True,
        *,
        keep_versions: Sequence[int] = (),
    ) -> VacuumResult:
        """Delete the files that no version within the retention needs.

        Parameters
        ----------
        retention_hours: how long removed files are kept; ``delta.deletedFileRetentionDuration`` (a week) by default.
        dry_run: say what would be deleted, and change nothing.
        lite: take the files from the log alone, without listing the folder.
        enforce_retention: refuse a retention shorter than the table's.
        keep_versions: older versions that stay readable as well.

        Raises ``InvalidArgumentError`` for a retention that is refused, ``VersionNotFoundError`` for a version to keep
        that the log does not hold; see :func:`trilake.delta.commands.maintenance.vacuum.vacuum`.
        """
        from trilake.delta.commands.maintenance.vacuum import vacuum

        how: dict[str, Any] = {"retention_hours": retention_hours, "enforce_retention": enforce_retention}
        return vacuum(self.log, dry_run=dry_run, lite=lite, keep_versions=keep_versions, known=self.snapshot, **how)

    def restore(
        self,
        version: int | None = None,
        timestamp: TimestampLike | None = None,
        *,
        ignore_missing: bool = False,
    ) -> RestoreResult:
        """Bring an older version back, as a new one.

        Raises ``MissingFileError`` where files of it were deleted since; see
        :func:`trilake.delta.commands.maintenance.restore.restore`.
        """
        from trilake.delta.commands.maintenance.restore import restore

        at = None if timestamp is None else timestamp_ms(timestamp)
        return restore(self.log, version=version, timestamp_ms=at, ignore_missing=ignore_missing, known=self.snapshot)

    def clone(
        self,
        target: str | PathLike[str],
        shallow: bool = False,
        version: int | None = None,
        timestamp: TimestampLike | None = None,
        *,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> CloneResult:
        """Make a table at ``target`` that holds what this one holds.

        Parameters
        ----------
        target: where the clone is to be.
        shallow: name this table's files instead of copying them.
        version, timestamp: the version to clone; the one that this object shows by default.
        replace: clone over a table that is there.  A repeated deep clone copies only files that are new.
        properties: table properties that the clone gets besides or instead of this table's.
        storage_options: options of the target's store; this table's own by default.

        Raises ``TableExistsError`` where a table is there; see :func:`trilake.delta.commands.maintenance.clone.clone`.
        """
        from trilake.delta.commands.maintenance.clone import clone

        if version is not None and timestamp is not None:
            raise InvalidArgumentError(
                "version and timestamp exclude each other",
                help="pass one of them",
                condition="DELTA_ONEOF_IN_TIMETRAVEL",
            )
        if timestamp is not None:
            version = self.log.version_at(timestamp_ms(timestamp))
        snapshot = self.snapshot if version is None else self.log.snapshot(version)
        options = self.log.store.options if storage_options is None else storage_options
        into = DeltaLog(open_store(target, options), self.log.engine)
        return clone(snapshot, self.log, into, shallow=shallow, replace_target=replace, properties=properties)

    def generate(self, mode: str = "symlink_format_manifest") -> ManifestResult:
        """Generate manifests of the newest version for engines that read Parquet but no Delta log.

        Raises ``InvalidArgumentError`` for tables with deletion vectors or column mapping.
        """
        from trilake.delta.commit.symlink_manifest import check_mode, generate_manifests

        check_mode(mode)
        return generate_manifests(self.log)

    # --- about it ----------------------------------------------------------------------------------------------------

    def detail(self) -> pa.Table:
        """One row about this version: format, id, location, partitioning, size, properties and protocol."""
        return detail(self.log, self.snapshot)

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits, newest first, with who did what and when."""
        return history(self.log, self._head, limit)

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application has written with ``txn=(app_id, version)``; ``None`` without one."""
        txn = self._head.state.txns.get(app_id)
        return None if txn is None else int(txn["version"])

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Which files ``filter`` keeps and which it skips, and why."""
        from trilake.delta.scan.scan import parse_table_filter
        from trilake.delta.scan.skipping import explain_files

        parsed = parse_table_filter(filter, self.snapshot)
        files = explain_files(self.snapshot, parsed)
        return Explanation(None if filter is None else str(filter), files, ("read as Arrow in this process",))

    def __repr__(self) -> str:
        return summary(self._opened if isinstance(self._opened, PendingSnapshot) else self.snapshot)

    def _repr_html_(self) -> str:
        return overview(self.snapshot)
