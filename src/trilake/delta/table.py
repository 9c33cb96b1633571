"""``ArrowDeltaTable``: a Delta table opened without Spark, read to Arrow and changed.

What changes rows is imported when it is called: who reads loads no command (tests/house/test_laziness.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from trilake.common.arguments import also_called, checked_methods
from trilake.common.timestamps import TimestampLike, timestamp_ms
from trilake.delta.log.log import DeltaLog
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.version import DeltaVersion
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.table.table import FilterLike

if TYPE_CHECKING:
    from trilake.delta.commands.maintenance.clone import CloneResult
    from trilake.delta.commands.maintenance.restore import RestoreResult
    from trilake.delta.commands.maintenance.vacuum import VacuumResult
    from trilake.delta.commands.merge.builder import MergeBuilder
    from trilake.delta.commands.optimize.optimize import OptimizeResult
    from trilake.delta.commands.rows.change_result import ChangeResult
    from trilake.delta.commit.symlink_manifest import ManifestResult


@checked_methods
class ArrowDeltaTable(DeltaVersion):
    """A Delta table at one version; changes are made to the newest one.

    Use :func:`trilake.open` to get one.  ``version`` and ``timestamp`` exclude each other; with neither, the newest
    version is shown.  An object goes on showing its version, whatever it or others commit; :meth:`refresh` gives the
    newest.

    >>> import trilake
    >>> _ = trilake.write({"id": [1, 2, 3]}, "memory://doc-arrow-table")
    >>> table = trilake.open("memory://doc-arrow-table")
    >>> table.delete("id = 2").rows
    1
    >>> table.version, table.count(), table.refresh().version, table.refresh().count()
    (0, 3, 1, 2)
    """

    def refresh(self) -> ArrowDeltaTable:
        """The same table at its newest version, replaying only the commits that are new.

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

    # --- changing rows -----------------------------------------------------------------------------------------------

    @also_called(predicate="where")
    def delete(self, where: FilterLike | None = None, *, user_metadata: str | None = None) -> ChangeResult:
        """Delete the rows of the newest version for which ``where`` is true, as one commit; all without one.

        Files of which every row goes are removed unread, others are read by the columns of the condition alone.  Where
        no row matches, nothing is committed.  This object still shows the version that it showed: see :meth:`refresh`.
        ``user_metadata`` is a string that is kept with the commit.  deltalake's name ``predicate`` is known too.

        Raises ``InvalidArgumentError`` for an append-only table, ``FilterError`` for a condition that does not fit the
        table or fails on a row, and a ``ConflictError`` where another commit excludes this one.

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
        """Give the rows of the newest version for which ``where`` is true new values, as one commit; all without one.

        Parameters
        ----------
        set: by column (``"a"``, or ``"a.b"`` for a field of a struct) a SQL expression over the row as it was, such as
            ``"'Rome'"`` or ``"upper(a)"``, or a value that is not a string, such as ``3``, ``None`` or a date.
        where: which rows; where none match, nothing is committed.
        user_metadata: a string of the caller's own that is kept with the commit.

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
        from trilake.delta.commands.rows.set_values import strings_are_sql
        from trilake.delta.commands.write.update import update_rows
        from trilake.delta.scan.scan import parse_table_filter

        if not set:
            raise InvalidArgumentError(
                "there are no values to set", help='pass values by column, such as {"n": "n + 1"}'
            )
        snapshot = self.log.update(self.snapshot)
        filter = parse_table_filter(where, snapshot)
        with strings_are_sql(set.values()):
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
        full: cluster all files again, those of large clusters and of other clustering columns included.
        how: the other fields of :class:`~trilake.delta.commands.optimize.optimize.OptimizeRequest`, such as
            ``min_file_size``, ``deleted_share``, ``check_statistics`` and ``memory`` (bytes of rows that sorting
            holds).

        Raises ``InvalidArgumentError`` for a request that does not fit the table, and a ``ConflictError`` where other
        writers removed all the files in the meantime; appends are not a conflict.

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

        The old files stay until they are vacuumed.

        Parameters
        ----------
        where: a condition over partition columns, for a part of the table.
        target_size: bytes of a file that is large enough; the table's ``delta.targetFileSize``, or 1 GiB.

        Raises as :meth:`optimize`.

        >>> import trilake
        >>> on = {"delta.enableDeletionVectors": "true"}
        >>> _ = trilake.write({"n": [1, 2, 3]}, "memory://doc-purge", properties=on)
        >>> _ = trilake.open("memory://doc-purge").delete("n = 2")
        >>> trilake.open("memory://doc-purge").purge().files_removed
        1
        """
        from trilake.delta.commands.optimize.footers import purgeable
        from trilake.delta.commands.optimize.optimize import purge

        store = self.log.store
        return purge(self.log, lambda s: purgeable(store, s), where=where, target_size=target_size)

    def upgrade_iceberg_compat(self, version: int = 2) -> OptimizeResult:
        """Make the table fit for Iceberg readers: ``REORG TABLE ... APPLY (UPGRADE UNIFORM ...)``.

        Turns on ``icebergCompatV<version>`` with column mapping, and any other version and deletion vectors off; files
        that were written otherwise are written again.  Iceberg metadata is not written.

        Parameters
        ----------
        version: 1, 2 or 3.

        Raises ``InvalidArgumentError`` for a table that breaks a rule of that version, a ``ConflictError`` where other
        writers changed the table in the meantime.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "memory://doc-iceberg-compat")
        >>> trilake.open("memory://doc-iceberg-compat").upgrade_iceberg_compat(2).files_removed
        1
        >>> trilake.open("memory://doc-iceberg-compat").properties["delta.enableIcebergCompatV2"]
        'true'
        """
        from trilake.delta.commands.alter.iceberg_upgrade import upgrade_iceberg

        return upgrade_iceberg(self.log, version)

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
        """Change, remove and add rows by what ``source`` holds: the beginning of a MERGE into the newest version.

        Parameters
        ----------
        source: an Arrow table, reader or dataset, or a frame with the Arrow stream interface.  It is read once.
        on: the condition that says which rows belong together, as Spark SQL, such as ``"target.id = source.id"``.
        source_alias, target_alias: what expressions call the two.
        round_times: whether times of the source in nanoseconds are cut to the microsecond before, the finest that the
            table has; otherwise one that is between two microseconds is refused.

        Returns a builder; :meth:`~trilake.delta.commands.merge.builder.MergeBuilder.execute` runs the merge.  Raises
        ``InvalidArgumentError`` for a condition that is not a string.

        >>> import trilake
        >>> _ = trilake.write([{"id": 1, "n": 10}, {"id": 2, "n": 20}], "memory://doc-table-merge")
        >>> table = trilake.open("memory://doc-table-merge")
        >>> merge = table.merge([{"id": 2, "n": 21}, {"id": 3, "n": 30}], "target.id = source.id")
        >>> done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        >>> done.num_updated_rows, done.num_inserted_rows
        (1, 1)
        """
        from trilake.delta.commands.merge.builder import MergeBuilder
        from trilake.delta.commands.merge.commit import MergeRequest
        from trilake.delta.commands.rows.set_values import check_merge_condition

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
    ) -> VacuumResult:
        """List the files that no version within the retention needs, or delete them.

        Parameters
        ----------
        retention_hours: how long removed files are kept; ``delta.deletedFileRetentionDuration`` (a week) by default.
        dry_run: say what would be deleted, and change nothing; ``False`` deletes.
        lite: take the files from the log alone, without listing the folder.
        enforce_retention: refuse a retention shorter than the table's.
        keep_versions: older versions that stay readable as well.

        Raises ``InvalidArgumentError`` for a retention that is refused, ``VersionNotFoundError`` for a version to keep
        that the log does not hold; see :func:`trilake.delta.commands.maintenance.vacuum.vacuum`.

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
        return vacuum(self.log, dry_run=dry_run, lite=lite, keep_versions=keep_versions, cached=self.snapshot, **how)

    def restore(
        self,
        version: int | None = None,
        timestamp: TimestampLike | None = None,
        *,
        ignore_missing: bool = False,
    ) -> RestoreResult:
        """Bring an older version back, as a new one.

        Parameters
        ----------
        version, timestamp: the version, or the one that was newest at that time; one of the two.
        ignore_missing: bring back what is there, although files of the version were deleted since.

        Raises ``MissingFileError`` where files of it were deleted since; see
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
        return restore(self.log, version=version, timestamp_ms=at, ignore_missing=ignore_missing, cached=self.snapshot)

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
        properties: table properties that the clone gets apart from or instead of this table's.
        storage_options: options of the target's store; this table's own by default.

        Raises ``TableExistsError`` where a table is there; see :func:`trilake.delta.commands.maintenance.clone.clone`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2]}, "memory://doc-table-cloned")
        >>> done = trilake.open("memory://doc-table-cloned").clone("memory://doc-table-clone")
        >>> done.num_copied_files, trilake.open("memory://doc-table-clone").count()
        (1, 2)
        """
        from trilake.delta.commands.maintenance.clone import clone

        if version is not None and timestamp is not None:
            raise InvalidArgumentError(
                "version and timestamp cannot both be given",
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

        Parameters
        ----------
        mode: ``"symlink_format_manifest"``, which is the only one.

        Raises ``InvalidArgumentError`` for another mode, and for tables with deletion vectors or column mapping.

        >>> import trilake
        >>> _ = trilake.write({"p": ["a", "b"], "n": [1, 2]}, "memory://doc-generate", partition_by="p")
        >>> sorted(trilake.open("memory://doc-generate").generate().written)
        ['p=a', 'p=b']
        """
        from trilake.delta.commit.symlink_manifest import check_mode, generate_manifests

        check_mode(mode)
        return generate_manifests(self.log)
