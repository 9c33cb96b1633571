"""``ArrowDeltaTable``: a Delta table without Spark, read to Arrow and changed.

Code that reads or changes rows is imported on demand, so version, schema and properties load none of it
(tests/house/test_laziness.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trilake.common.arguments import also_called, checked_methods
from trilake.common.timestamps import TimestampLike, timestamp_ms
from trilake.delta.engine import Engine
from trilake.delta.log.descriptions import detail, history, overview, summary
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import PendingSnapshot, Snapshot, decoded_paths
from trilake.delta.protocol.actions import Metadata, Protocol
from trilake.delta.protocol.partitions import partition_fields, partitions_by_name
from trilake.delta.protocol.schema_edit import described_schema
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.explanation import Explanation
from trilake.table.table import FilterLike, Table

if TYPE_CHECKING:
    from trilake.delta.commands.maintenance.clone import CloneResult
    from trilake.delta.commands.maintenance.restore import RestoreResult
    from trilake.delta.commands.maintenance.vacuum import VacuumResult
    from trilake.delta.commands.merge.builder import MergeBuilder
    from trilake.delta.commands.optimize.optimize import OptimizeResult
    from trilake.delta.commit.symlink_manifest import ManifestResult
    from trilake.delta.scan.scan import Scan
    from trilake.expr import Filter
    from trilake.table.results import ChangeResult


@checked_methods
class ArrowDeltaTable(Table):
    """A Delta table at one version; changes apply to the newest one.

    Use :func:`trilake.open` to get one.  ``version`` and ``timestamp`` are mutually exclusive; with neither, it is the
    newest version.  An object keeps its version, whatever commits follow; :meth:`refresh` returns the newest.
    ``user_metadata`` is the default ``userMetadata`` of commits made from here.  ``known`` is the :attr:`opened`
    version of an earlier object, which is not read again if the log's files are the same.

    >>> import trilake
    >>> _ = trilake.write({"id": [1, 2, 3]}, "memory://doc-arrow-table")
    >>> table = trilake.open("memory://doc-arrow-table")
    >>> table.delete("id = 2").rows
    1
    >>> table.version, table.count(), table.refresh().version, table.refresh().count()
    (0, 3, 1, 2)
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
        self.log = DeltaLog(store, engine, user_metadata=user_metadata)
        self.uri = store.uri
        self._opened = self.log.opened(_version_at(self.log, version, timestamp), cached=known)

    def refresh(self) -> ArrowDeltaTable:
        """The same table at its newest version, replaying only new commits.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-refresh")
        >>> table = trilake.open("memory://doc-refresh")
        >>> _ = trilake.write({"n": [2]}, "memory://doc-refresh", mode="append")
        >>> table.version, table.refresh().version
        (0, 1)
        """
        fresh = object.__new__(type(self))
        fresh.log, fresh.uri = self.log, self.uri
        fresh._opened = self.log.updated(self._opened)
        return fresh

    # --- facts -------------------------------------------------------------------------------------------------------

    @property
    def opened(self) -> Snapshot | PendingSnapshot:
        """The version, with as much of it as has been read."""
        return self._opened

    @property
    def snapshot(self) -> Snapshot:
        """The version with all its files; for a very large table, the first call reads them.

        Raises ``CorruptLogError`` if they are damaged.
        """
        if isinstance(self._opened, PendingSnapshot):
            self._opened = self.log.load(self._opened)
        return self._opened

    def snapshot_for(self, filter: Filter | None) -> Snapshot:
        """The version with at least the files that may hold a row for which ``filter`` is true.

        Raises the errors of :attr:`snapshot`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-snapshot-for")
        >>> len(trilake.open("memory://doc-snapshot-for").snapshot_for(None).adds)
        1
        """
        from trilake.delta.scan.large_tables import snapshot_for

        return snapshot_for(self.log, self._opened, filter, lambda _: self.snapshot)

    @property
    def version(self) -> int:
        """The version of this object."""
        return self._opened.version

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, with comments; all nullable, since files may lack columns that the table requires."""
        from trilake.delta.scan.scan import read_schema

        return described_schema(read_schema(self._opened.schema))

    @property
    def protocol(self) -> Protocol:
        """The protocol action."""
        return self._opened.protocol

    @property
    def metadata(self) -> Metadata:
        """The metaData action."""
        return self._opened.metadata

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties of this version."""
        return self._opened.metadata.configuration

    def _scan(self, columns: Sequence[str] | None, filter: FilterLike | None) -> Scan:
        """The plan of a read; of a large table, only the files that the filter needs are kept in memory."""
        from trilake.delta.scan.scan import parse_table_filter, plan_scan, read_plan

        parsed = parse_table_filter(filter, self._opened)
        if isinstance(self._opened, PendingSnapshot):
            read_plan(self._opened, columns, parsed)  # report a missing column before reading a million files
        return plan_scan(self.snapshot_for(parsed), columns, parsed)

    def files(self, filter: FilterLike | None = None) -> pa.Table:
        """One row per data file with its statistics; see :meth:`trilake.table.table.Table.files`."""
        from trilake.delta.scan.statistics import record_counts

        adds = self._scan(None, filter).files
        partitions = partition_fields(self._opened.schema, self._opened.metadata.partition_columns)
        return pa.table(
            {
                "path": decoded_paths(adds["path"]),
                "partition_values": partitions_by_name(adds["partitionValues"], partitions),
                "size": adds["size"],
                "modification_time": adds["modificationTime"].cast(pa.timestamp("ms", "UTC")),
                "num_records": record_counts(adds, self.log.engine.query),
                "stats": adds["stats"],
                "deletion_vector": adds["deletionVector"],
            }
        )

    # --- rows --------------------------------------------------------------------------------------------------------

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: FilterLike | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of batches; see :meth:`trilake.table.table.Table.to_batches`."""
        from trilake.delta.scan.read import read_tasks

        scan = self._scan(columns, filter)
        return read_tasks(self.log.store, scan.tasks(), scan.plan)

    def to_reader(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which duckdb, polars and pandas accept."""
        from trilake.delta.scan.read import read_tasks

        scan = self._scan(columns, filter)
        return pa.RecordBatchReader.from_batches(scan.plan.schema, read_tasks(self.log.store, scan.tasks(), scan.plan))

    def to_arrow(self, columns: Sequence[str] | None = None, filter: FilterLike | None = None) -> pa.Table:
        """The rows as one table; see :meth:`trilake.table.table.Table.to_arrow`."""
        return self.to_reader(columns, filter).read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def plain_files(self) -> list[str] | None:
        """Paths of local Parquet files whose rows are exactly the table's; see :meth:`.Table.plain_files`."""
        from trilake.delta.scan.scan import plain_files

        return None if isinstance(self._opened, PendingSnapshot) else plain_files(self.snapshot, self.log.store)

    def count(self, filter: FilterLike | None = None) -> int:
        """The number of rows; from statistics only, unless the filter needs rows."""
        from trilake.delta.scan.large_tables import row_count
        from trilake.delta.scan.read import read_tasks
        from trilake.delta.scan.scan import stated_rows
        from trilake.delta.scan.statistics import record_counts

        pending = self._opened if filter is None and isinstance(self._opened, PendingSnapshot) else None
        if pending is not None and (rows := row_count(self.log, pending)) is not None:
            return rows
        scan = self._scan([], filter)
        if scan.plan.filter is None:
            rows = stated_rows(record_counts(scan.files, self.log.engine.query), scan.files["deletionVector"])
            if rows is not None:
                return rows
        return sum(b.num_rows for b in read_tasks(self.log.store, scan.tasks(), scan.plan))

    def changes(
        self,
        start: int | str | datetime,
        end: int | str | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The change data feed of versions ``start`` to ``end``, both included.

        A time (UTC without a zone) as ``start`` means the first version at or after it, as ``end`` the last at or
        before it.

        The rows have three more columns: ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage`` or
        ``delete``), ``_commit_version`` and ``_commit_timestamp``.  If ``columns`` names some of these, only the named
        columns are returned, in order.

        Raises ``ChangeFeedError`` if the feed was not recorded, and ``VersionNotFoundError`` for versions that are not
        in the log and for times after the newest.

        >>> import pyarrow as pa, trilake
        >>> on = {"delta.enableChangeDataFeed": "true"}
        >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-changes", properties=on)
        >>> trilake.open("memory://doc-changes").changes("2024-05-01")["_change_type"].to_pylist()
        ['insert', 'insert']
        """
        from trilake.delta.scan.changes import changes_table

        return changes_table(self.log, start, end, columns=columns)

    # --- descriptions ------------------------------------------------------------------------------------------------

    def detail(self) -> pa.Table:
        """One row about this version: format, id, location, partitioning, size, properties and protocol.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-facts")
        >>> trilake.open("memory://doc-facts").detail().select(["format", "numFiles", "minReaderVersion"]).to_pylist()
        [{'format': 'delta', 'numFiles': 1, 'minReaderVersion': 1}]
        """
        return detail(self.log, self.snapshot)

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits, newest first: when each was made, by which operation and by whom."""
        return history(self.log, self._opened, limit)

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that the application ``app_id`` wrote with ``txn=(app_id, version)``, or ``None``.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-txn", txn=("nightly", 7))
        >>> trilake.open("memory://doc-txn").transaction_version("nightly")
        7
        """
        txn = self._opened.state.txns.get(app_id)
        return None if txn is None else int(txn["version"])

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Which files ``filter`` keeps or skips, and why."""
        from trilake.delta.scan.scan import explain_files, parse_table_filter

        parsed = parse_table_filter(filter, self.snapshot)
        files = explain_files(self.snapshot, parsed)
        return Explanation(None if filter is None else str(filter), files, ("read as Arrow in this process",))

    def __repr__(self) -> str:
        return summary(self._opened if isinstance(self._opened, PendingSnapshot) else self.snapshot)

    def _repr_html_(self) -> str:
        return overview(self.snapshot)

    # --- changing rows -----------------------------------------------------------------------------------------------

    @also_called(predicate="where")
    def delete(self, where: FilterLike | None = None, *, user_metadata: str | None = None) -> ChangeResult:
        """Delete the rows of the newest version for which ``where`` is true, as one commit; without ``where``, all
        rows.

        Files whose rows all match are removed unread; of others, only the condition's columns are read.  Without
        matches, nothing is committed.  This object keeps its version: see :meth:`refresh`.  ``user_metadata`` is a
        string for the history.  deltalake's name ``predicate`` is accepted for ``where``.

        Raises ``InvalidArgumentError`` for an append-only table, ``FilterError`` for a condition that does not fit the
        table or fails on a row, and a ``ConflictError`` for a conflicting commit.

        >>> import pyarrow as pa, trilake
        >>> _ = trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-delete")
        >>> trilake.open("memory://doc-delete").delete("n > 1").rows
        2
        """
        from trilake.delta.commands.write.delete import delete_rows
        from trilake.delta.scan.scan import parse_table_filter

        snapshot = self.log.update(self.snapshot)
        filter = parse_table_filter(where, snapshot)
        return delete_rows(self.log, snapshot, filter, user_metadata=user_metadata)

    @also_called(updates="set", predicate="where")
    def update(
        self, set: Mapping[str, Any], where: FilterLike | None = None, *, user_metadata: str | None = None
    ) -> ChangeResult:
        """Update the rows of the newest version for which ``where`` is true, as one commit; without ``where``, all
        rows.

        Parameters
        ----------
        set: by column (``"a"``, or ``"a.b"`` for a field of a struct) a SQL expression over the old row, such as
            ``"'Rome'"`` or ``"upper(a)"``, or a value that is not a string, such as ``3``, ``None`` or a date.
        where: which rows; without matches, nothing is committed.
        user_metadata: a string for the history.

        Raises ``SchemaMismatchError`` for an unknown column and for a value that does not fit its column,
        ``ConstraintViolatedError`` for a row that violates a rule of the table, ``ExpressionError`` for an expression
        that is invalid or fails on a row, and the errors of :meth:`delete`.

        >>> import pyarrow as pa, trilake
        >>> _ = trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-update")
        >>> trilake.open("memory://doc-update").update({"n": "n * 10"}, "n > 1").rows
        2
        >>> sorted(trilake.open("memory://doc-update").to_arrow()["n"].to_pylist())
        [1, 20, 30]
        """
        from trilake.delta.commands.merge.builder import strings_are_sql
        from trilake.delta.commands.write.update import update_rows
        from trilake.delta.scan.scan import parse_table_filter

        if not set:
            raise InvalidArgumentError(
                "no values to set were given", help='pass values by column, such as {"n": "n + 1"}'
            )
        snapshot = self.log.update(self.snapshot)
        filter = parse_table_filter(where, snapshot)
        with strings_are_sql(set.values()):
            return update_rows(self.log, snapshot, set, filter, user_metadata=user_metadata)

    def _log(self, user_metadata: str | None) -> DeltaLog:
        """The log for a command whose commits have ``user_metadata``."""
        if user_metadata is None:
            return self.log
        return DeltaLog(self.log.store, self.log.engine, user_metadata=user_metadata)

    # --- its files ---------------------------------------------------------------------------------------------------

    def optimize(
        self,
        where: FilterLike | None = None,
        *,
        zorder_by: str | Sequence[str] = (),
        target_size: int | None = None,
        full: bool = False,
        user_metadata: str | None = None,
        **how: Any,
    ) -> OptimizeResult:
        """Rewrite the rows of the newest version into fewer, larger or clustered files, as one commit.

        Compacts small files, and files with many deleted rows.  A table with clustering columns is clustered instead,
        except large clusters of earlier runs.

        Parameters
        ----------
        where: a condition over partition columns that selects a part of the table.
        zorder_by: columns for data skipping: all files of a partition are rewritten along a Z-order curve.
        target_size: target bytes of a file; the table's ``delta.targetFileSize``, or 1 GiB.
        full: recluster all files, including large clusters and files clustered by other columns.
        user_metadata: a string for the history.
        how: the other fields of :class:`~trilake.delta.commands.optimize.optimize.OptimizeRequest`, such as
            ``min_file_size``, ``deleted_share``, ``check_statistics`` and ``memory`` (bytes for sorting).

        Raises ``InvalidArgumentError`` for a request that does not fit the table, and a ``ConflictError`` if other
        writers have removed all the files; appends do not conflict.

        >>> import pyarrow as pa, trilake
        >>> for n in range(3):
        ...     _ = trilake.write(pa.table({"n": [n]}), "memory://doc-optimize", mode="append")
        >>> result = trilake.open("memory://doc-optimize").optimize()
        >>> result.version, result.files_removed, result.files_added
        (3, 3, 1)
        """
        from trilake.delta.commands.optimize.optimize import OptimizeRequest, optimize

        columns = (zorder_by,) if isinstance(zorder_by, str) else tuple(zorder_by)
        request = OptimizeRequest(where=where, zorder_by=columns, target_size=target_size, full=full, **how)
        return optimize(self._log(user_metadata), request)

    def purge(
        self, where: FilterLike | None = None, *, target_size: int | None = None, user_metadata: str | None = None
    ) -> OptimizeResult:
        """Rewrite the files with deleted rows or dropped columns (``REORG TABLE ... APPLY (PURGE)``).

        The old files stay until they are vacuumed.

        Parameters
        ----------
        where: a condition over partition columns that selects a part of the table.
        target_size: target bytes of a file; the table's ``delta.targetFileSize``, or 1 GiB.
        user_metadata: a string for the history.

        Raises the errors of :meth:`optimize`.

        >>> import trilake
        >>> on = {"delta.enableDeletionVectors": "true"}
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-purge", properties=on)
        >>> _ = trilake.open("memory://doc-purge").delete("n = 2")
        >>> trilake.open("memory://doc-purge").purge().files_removed
        1
        """
        from trilake.delta.commands.optimize.optimize import purge

        return purge(self._log(user_metadata), where=where, target_size=target_size)

    def upgrade_iceberg_compat(self, version: int = 2, *, user_metadata: str | None = None) -> OptimizeResult:
        """Make the table readable for Iceberg: ``REORG TABLE ... APPLY (UPGRADE UNIFORM ...)``.

        Turns on ``icebergCompatV<version>`` with column mapping; turns off any other version and deletion vectors;
        rewrites files that do not follow its rules.  To write Iceberg metadata as well, set
        ``delta.universalFormat.enabledFormats`` to ``iceberg``.

        Parameters
        ----------
        version: 1, 2 or 3.
        user_metadata: a string for the history.

        Raises ``InvalidArgumentError`` for a table that violates a rule of that version, and a ``ConflictError`` if
        other writers have changed the table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-iceberg-compat")
        >>> trilake.open("memory://doc-iceberg-compat").upgrade_iceberg_compat(2).files_removed
        1
        >>> trilake.open("memory://doc-iceberg-compat").properties["delta.enableIcebergCompatV2"]
        'true'
        """
        from trilake.delta.commands.alter.iceberg_upgrade import upgrade_iceberg

        return upgrade_iceberg(self._log(user_metadata), version)

    @also_called(predicate="on")
    def merge(
        self,
        source: Any,
        on: str,
        source_alias: str = "source",
        target_alias: str = "target",
        *,
        round_times: bool = True,
    ) -> MergeBuilder:
        """Start a MERGE into the newest version: change, delete and insert rows according to the rows of ``source``.

        Parameters
        ----------
        source: an Arrow table, reader or dataset, or a DataFrame with the Arrow stream interface.  It is read once.
        on: the join condition as Spark SQL, such as ``"target.id = source.id"``.
        source_alias, target_alias: the names of both tables in expressions.
        round_times: whether to truncate nanosecond times of the source to microseconds; otherwise times that do not fit
            are rejected.

        Returns a builder; :meth:`~trilake.delta.commands.merge.builder.MergeBuilder.execute` runs the merge.  Raises
        ``InvalidArgumentError`` for a condition that is not a string.

        >>> import trilake
        >>> _ = trilake.write([{"id": 1, "n": 10}, {"id": 2, "n": 20}], "memory://doc-table-merge")
        >>> table = trilake.open("memory://doc-table-merge")
        >>> merge = table.merge([{"id": 2, "n": 21}, {"id": 3, "n": 30}], "target.id = source.id")
        >>> result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        >>> result.num_updated_rows, result.num_inserted_rows
        (1, 1)
        """
        from trilake.delta.commands.merge.builder import MergeBuilder, check_merge_condition
        from trilake.delta.commands.merge.commit import MergeRequest

        check_merge_condition(on, self.snapshot.schema.names, source_alias, target_alias)
        request = MergeRequest(on, (), source_alias, target_alias, round_times=round_times)
        return MergeBuilder(self.log, source, request, self._opened if isinstance(self._opened, Snapshot) else None)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        lite: bool = False,
        enforce_retention: bool = True,
        *,
        keep_versions: Sequence[int] = (),
        user_metadata: str | None = None,
    ) -> VacuumResult:
        """List the files that no version within the retention needs, or delete them.

        Parameters
        ----------
        retention_hours: how long to keep removed files; by default ``delta.deletedFileRetentionDuration`` (a week).
        dry_run: list what would be deleted, and change nothing; ``False`` deletes.
        lite: take the files from the log, without listing the folder.
        enforce_retention: reject a retention below the table's.
        keep_versions: older versions to keep readable as well.
        user_metadata: a string for the history.

        Raises ``InvalidArgumentError`` for a rejected retention, ``VersionNotFoundError`` for a version to keep that is
        not in the log; see :func:`trilake.delta.commands.maintenance.vacuum.vacuum`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-table-vacuum")
        >>> _ = trilake.write({"n": [2]}, "memory://doc-table-vacuum", mode="overwrite")
        >>> table = trilake.open("memory://doc-table-vacuum")
        >>> table.vacuum().files.num_rows
        0
        >>> table.vacuum(retention_hours=0, dry_run=False, enforce_retention=False).files.num_rows
        1
        """
        from trilake.delta.commands.maintenance.vacuum import vacuum

        how: dict[str, Any] = {"retention_hours": retention_hours, "enforce_retention": enforce_retention}
        log = self._log(user_metadata)
        return vacuum(log, dry_run=dry_run, lite=lite, keep_versions=keep_versions, cached=self.snapshot, **how)

    def restore(
        self,
        version: int | None = None,
        timestamp: TimestampLike | None = None,
        *,
        ignore_missing: bool = False,
        user_metadata: str | None = None,
    ) -> RestoreResult:
        """Restore an older version, as a new one.

        Parameters
        ----------
        version, timestamp: the version, or the newest version at that time; one of the two.
        ignore_missing: restore what exists, although files of the version were deleted since.
        user_metadata: a string for the history.

        Raises ``MissingFileError`` if files of the version were deleted since; see
        :func:`trilake.delta.commands.maintenance.restore.restore`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-table-restore")
        >>> table = trilake.open("memory://doc-table-restore")
        >>> _ = table.delete("n > 1")
        >>> table.restore(0).version, table.refresh().count()
        (2, 3)
        """
        from trilake.delta.commands.maintenance.restore import restore

        at = None if timestamp is None else timestamp_ms(timestamp)
        log = self._log(user_metadata)
        return restore(log, version=version, timestamp_ms=at, ignore_missing=ignore_missing, cached=self.snapshot)

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
        user_metadata: str | None = None,
    ) -> CloneResult:
        """Clone this table to ``target``.

        Parameters
        ----------
        target: the location of the clone.
        shallow: reference this table's files instead of copying them.
        version, timestamp: the version to clone; this object's version by default.
        replace: replace an existing table.  A repeated deep clone copies only new files.
        properties: table properties that add to or override this table's.
        storage_options: options of the target's store; by default those of this table.
        user_metadata: a string for the clone's history.

        Raises ``TableExistsError`` for an existing table; see :func:`trilake.delta.commands.maintenance.clone.clone`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-table-cloned")
        >>> result = trilake.open("memory://doc-table-cloned").clone("memory://doc-table-clone")
        >>> result.num_copied_files, trilake.open("memory://doc-table-clone").count()
        (1, 2)
        """
        from trilake.delta.commands.maintenance.clone import clone

        version = _version_at(self.log, version, timestamp)
        snapshot = self.snapshot if version is None else self.log.snapshot(version)
        options = self.log.store.options if storage_options is None else storage_options
        into = DeltaLog(open_store(target, options), self.log.engine, user_metadata=user_metadata)
        return clone(snapshot, self.log, into, shallow=shallow, replace_target=replace, properties=properties)

    def generate(self, mode: str = "symlink_format_manifest") -> ManifestResult:
        """Generate manifests of the newest version for engines that read Parquet but not the Delta log.

        Parameters
        ----------
        mode: ``"symlink_format_manifest"``, the only mode.

        Raises ``InvalidArgumentError`` for another mode, and for tables with deletion vectors or column mapping.

        >>> import trilake
        >>> _ = trilake.write({"p": ["a", "b"], "n": [1, 2]}, "memory://doc-generate", partition_by="p")
        >>> sorted(trilake.open("memory://doc-generate").generate().written)
        ['p=a', 'p=b']
        """
        from trilake.delta.commit.symlink_manifest import check_mode, generate_manifests

        check_mode(mode)
        return generate_manifests(self.log)


def _version_at(log: DeltaLog, version: int | None, timestamp: TimestampLike | None) -> int | None:
    if timestamp is None:
        return version
    if version is not None:
        raise InvalidArgumentError(
            "version and timestamp cannot both be given", help="pass one of them", condition="DELTA_ONEOF_IN_TIMETRAVEL"
        )
    return log.version_at(timestamp_ms(timestamp))
