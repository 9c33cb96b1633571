"""``DeltaTable``: delta-spark's class, on a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commit.symlink_manifest import check_mode, generate_manifests
from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.spark.delta.clone import CloneCall, clone_table, convert_table
from trilake.spark.delta.delete import delete_rows
from trilake.spark.delta.maintenance import (
    check_int,
    check_string,
    restore_table,
    vacuum_table,
)
from trilake.spark.delta.merge.builder import DeltaMergeBuilder
from trilake.spark.delta.merge.request import merge_request, source_frame
from trilake.spark.delta.names.catalogue import existing_location, parts_of, table_at
from trilake.spark.delta.optimize import DeltaOptimizeBuilder
from trilake.spark.delta.reading.conditions import violation_finder
from trilake.spark.delta.session_table import SessionTable
from trilake.spark.delta.table_builder import DeltaTableBuilder
from trilake.spark.delta.update import update_rows
from trilake.spark.scan.columns import assignment_columns, checked_condition
from trilake.spark.session.analysis_errors import java_error, raise_for_spark, raises_for_spark
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.settings import is_utc


@raises_for_spark
class DeltaTable(SessionTable):
    """A Delta table on Spark; open one with :meth:`forPath`.

    The names are delta-spark's, so that existing code runs after changing its import.

    >>> import trilake
    >>> _ = trilake.write(spark.range(4), "lake/numbers", mode="overwrite")
    >>> numbers = DeltaTable.forPath(spark, "lake/numbers")
    >>> _ = numbers.update("id = 3", {"id": "id * 10"})
    >>> _ = numbers.delete("id < 2")
    >>> sorted(row.id for row in numbers.toDF().collect())
    [2, 30]
    >>> [row.operation for row in numbers.history().select("operation").collect()]
    ['DELETE', 'UPDATE', 'WRITE']
    """

    @classmethod
    def forName(
        cls, sparkSession: SparkSession, tableOrViewName: str, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """The table with a name in Spark's catalog, or at ``delta.`/path```.

        ``sparkSession`` is the session, ``tableOrViewName`` the name, ``hadoopConf`` has options of the store.  Raises
        ``TableNotFoundError`` if there is none, ``InvalidArgumentError`` for a view and for tables of other formats.

        >>> _ = DeltaTable.createIfNotExists(spark).tableName("counts").addColumn("n", "INT").execute()
        >>> DeltaTable.forName(spark, "counts").toDF().columns
        ['n']
        """
        if not isinstance(tableOrViewName, str):
            raise InvalidArgumentError(f"the name must be a string, got {type(tableOrViewName).__name__}")
        table = cls.forPath(sparkSession, existing_location(sparkSession, tableOrViewName), hadoopConf)
        if table_at(tableOrViewName) is None:
            table._name = parts_of(tableOrViewName)[-1]
        return table

    @classmethod
    def create(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a new table; creating it fails if it exists.

        ``sparkSession`` is the session, the active one by default; ``hadoopConf`` has options of the store.  Raises
        ``InvalidArgumentError`` without an active session.

        >>> made = DeltaTable.create(spark).location("lake/create").addColumn("id", "BIGINT").execute()
        >>> made.toDF().columns
        ['id']
        """
        return DeltaTableBuilder(_session(sparkSession), "create", hadoopConf, cls)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that is created if it does not exist; an existing table stays unchanged.

        ``sparkSession`` is the session, the active one by default; ``hadoopConf`` has options of the store.  Raises
        ``InvalidArgumentError`` without an active session.

        >>> for _ in range(2):
        ...     made = DeltaTable.createIfNotExists(spark).location("lake/if-not").addColumn("id", "BIGINT").execute()
        >>> made.history().count()
        1
        """
        return DeltaTableBuilder(_session(sparkSession), "create_if_not_exists", hadoopConf, cls)

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that replaces an existing table and its rows.

        ``sparkSession`` is the session, the active one by default; ``hadoopConf`` has options of the store.  Raises
        ``InvalidArgumentError`` without an active session.  Executing raises ``TableNotFoundError`` if there is no
        table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/replace", mode="overwrite")
        >>> made = DeltaTable.replace(spark).location("lake/replace").addColumn("id", "BIGINT").execute()
        >>> made.toDF().columns, made.toDF().count()
        (['id'], 0)
        """
        return DeltaTableBuilder(_session(sparkSession), "replace", hadoopConf, cls)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that is created, or replaces an existing one.

        ``sparkSession`` is the session, the active one by default; ``hadoopConf`` has options of the store.  Raises
        ``InvalidArgumentError`` without an active session.

        >>> made = DeltaTable.createOrReplace(spark).location("lake/or-replace").addColumn("id", "BIGINT").execute()
        >>> made.toDF().count()
        0
        """
        return DeltaTableBuilder(_session(sparkSession), "create_or_replace", hadoopConf, cls)

    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | T.StructType | None = None,
        collectStats: bool = True,
        *,
        hadoopConf: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Convert a folder of Parquet files to a Delta table in place; no file is rewritten.

        Parameters
        ----------
        sparkSession: the session.
        identifier: ``parquet.`/path```, or the name of an external Parquet table in the catalogue.
        partitionSchema: the partition columns, ``"day date, n int"`` or a ``StructType``; inferred from folder names
            by default.
        collectStats: whether to store the files' statistics in the log; only footers are read.
        hadoopConf: options of the store.

        If there already is a Delta table, nothing happens.  Raises ``CorruptFileError`` for a file that is not
        Parquet, ``SchemaMismatchError`` for files that cannot form one table, and ``InvalidArgumentError`` for folders
        that contradict each other.

        >>> spark.range(3).write.mode("overwrite").parquet("lake/parquet")
        >>> DeltaTable.convertToDelta(spark, "parquet.`lake/parquet`").toDF().count()
        3
        """
        assert sparkSession is not None
        path = convert_table(sparkSession, identifier, partitionSchema, collect_stats=collectStats, options=hadoopConf)
        return cls(sparkSession, path, hadoopConf or {})

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows for which ``condition``, a SQL string or a column, is true; all rows without a condition.

        Tables with deletion vectors get new vectors; in other tables, files with such rows are rewritten.  If no row
        matches, nothing is committed.  :meth:`history` has the metrics.

        Raises ``TypeError`` for other types, and ``ConflictError`` if a concurrent commit conflicts.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/delete", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/delete")
        >>> table.delete("n > 1")
        >>> table.toDF().collect()
        [Row(n=1)]
        """
        table = self._open_to_change()
        delete_rows(self._spark, table, checked_condition(condition), alias=self._named, frames=self._frames)

    def update(self, condition: str | Column | None = None, set: Mapping[str, str | Column] | None = None) -> None:
        """Update the rows for which ``condition`` is true; all rows without a condition.

        Parameters
        ----------
        condition: a SQL string or a column.
        set: SQL strings or columns over the old row, by column (``"a"``, or ``"a.b"`` for a field of a struct).

        Raises ``ValueError`` without ``set``, ``TypeError`` for arguments of other types, ``SchemaMismatchError`` for
        an unknown column, ``ConstraintViolatedError`` for a row that violates a rule of the table, ``WriteFailedError``
        for a failed job, and ``ConflictError`` if a concurrent commit conflicts.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/update", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/update")
        >>> table.update("n > 1", {"n": "n * 10"})
        >>> sorted(row.n for row in table.toDF().collect())
        [1, 20, 30]
        """
        values = assignment_columns(set)
        checked, table = checked_condition(condition), self._open_to_change()
        update_rows(self._spark, table, values, checked, alias=self._named, frames=self._frames)

    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: bool = False,
        lite: bool | None = None,
        inventory: DataFrame | None = None,
    ) -> DataFrame:
        """Delete the files that no version within the retention needs; returns an empty DataFrame.

        Parameters
        ----------
        retentionHours: how long to keep removed files; by default the table's ``delta.deletedFileRetentionDuration``,
            or a week.
        dryRun: delete nothing, and return the paths of the files that would be deleted.
        lite: find files only from the log, without listing the folder.
        inventory: the folder's files as a DataFrame of path, length, isDir and modificationTime.

        Raises ``InvalidArgumentError`` for a retention below the table's, unless
        ``spark.databricks.delta.retentionDurationCheck.enabled`` is false.

        >>> import trilake
        >>> for n in 1, 2:
        ...     _ = trilake.write({"n": [n]}, "lake/vacuum", mode="overwrite")
        >>> DeltaTable.forPath(spark, "lake/vacuum").vacuum(dryRun=True).count()
        0
        """
        return vacuum_table(self._spark, self._log(), retentionHours, dry_run=dryRun, lite=lite, inventory=inventory)

    def restoreToVersion(self, version: int) -> DataFrame:
        """Restore ``version`` as a new version; returns one row of metrics.

        Raises ``ValueError`` if ``version`` is not an integer, and ``MissingFileError`` if files of that version were
        deleted, unless ``spark.sql.files.ignoreMissingFiles`` is true.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/restore", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/restore")
        >>> table.delete("n > 1")
        >>> [row.num_restored_files for row in table.restoreToVersion(0).collect()]
        [1]
        >>> table.toDF().count()
        3
        """
        check_int(version, "version")
        return restore_table(self._spark, self._log(), version=version)

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Restore the version that was the newest at a time, such as ``2024-05-01 12:30:00`` in the session's time
        zone.

        ``timestamp`` is that time.  Raises ``ValueError`` if it is not a string, ``VersionNotFoundError`` for a time
        before the first version, and the errors of :meth:`restoreToVersion`.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/restore-time", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/restore-time")
        >>> written = table.history(1).selectExpr("CAST(timestamp AS string) AS at").first().at
        >>> table.delete()
        >>> _ = table.restoreToTimestamp(written)
        >>> table.toDF().count()
        1
        """
        check_string(timestamp, "timestamp")
        return restore_table(self._spark, self._log(), timestamp=timestamp)

    def clone(
        self, target: str, isShallow: bool = False, replace: bool = False, properties: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Copy the table to ``target``, a path or a name; returns the new table.

        Parameters
        ----------
        target: a path, ``delta.`/path```, or a name in the catalogue.
        isShallow: reference this table's files instead of copying them.
        replace: replace an existing table.
        properties: table properties that override this table's.

        Raises ``ValueError`` for arguments of other types, ``TableExistsError`` if the table exists.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2]}, "lake/cloned", mode="overwrite")
        >>> copy = DeltaTable.forPath(spark, "lake/cloned").clone("lake/clone", replace=True)
        >>> copy.toDF().count()
        2
        """
        return self._clone(CloneCall(target, isShallow, replace, properties))

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Like :meth:`clone`, for an older version.

        Parameters
        ----------
        version: the version to clone.
        target, isShallow, replace, properties: as in :meth:`clone`.

        Raises ``VersionNotFoundError``, and ``TableExistsError`` if the target exists.

        >>> import trilake
        >>> for n in 1, 2:
        ...     _ = trilake.write({"n": [n]}, "lake/cloned-at", mode="append")
        >>> DeltaTable.forPath(spark, "lake/cloned-at").cloneAtVersion(0, "lake/clone-at").toDF().collect()
        [Row(n=1)]
        """
        check_int(version, "version")
        return self._clone(CloneCall(target, isShallow, replace, properties, version=version))

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Like :meth:`clone`, for the version that was the newest at a time in the session's time zone.

        Parameters
        ----------
        timestamp: the time, such as ``2024-05-01 12:30:00``.
        target, isShallow, replace, properties: as in :meth:`clone`.

        Raises ``VersionNotFoundError``, and ``TableExistsError`` if the target exists.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/cloned-time", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/cloned-time")
        >>> written = table.history(1).selectExpr("CAST(timestamp AS string) AS at").first().at
        >>> table.cloneAtTimestamp(written, "lake/clone-time").toDF().count()
        1
        """
        check_string(timestamp, "timestamp")
        return self._clone(CloneCall(target, isShallow, replace, properties, timestamp=timestamp))

    def _clone(self, call: CloneCall) -> DeltaTable:
        return DeltaTable(self._spark, clone_table(self._spark, self._log(), self._options, call), self._options)

    def generate(self, mode: str) -> None:
        """Generate manifests for other engines; the only ``mode`` is ``symlink_format_manifest``.

        Raises ``InvalidArgumentError`` for another mode, and for tables with deletion vectors or column mapping.

        >>> import os, trilake
        >>> _ = trilake.write({"n": [1]}, "lake/generate", mode="overwrite")
        >>> DeltaTable.forPath(spark, "lake/generate").generate("symlink_format_manifest")
        >>> os.listdir("lake/generate/_symlink_format_manifest")
        ['manifest']
        """
        check_mode(mode)
        generate_manifests(self._log())

    def merge(self, source: Any, condition: str | Column, *, round_times: bool = True) -> DeltaMergeBuilder:
        """Describe a merge of ``source`` into the table; ``condition`` says which rows match.

        Parameters
        ----------
        source: a DataFrame; or Arrow, pandas or polars data, which has the name ``source`` in expressions.
        condition: a SQL string or a column.
        round_times: whether to truncate times in nanoseconds to microseconds, the precision of tables; otherwise they
            must be whole microseconds.

        Raises ``ValueError`` for ``None``, ``TypeError`` for arguments of other types.

        >>> import trilake
        >>> _ = trilake.write([{"id": 1, "n": 10}, {"id": 2, "n": 20}], "lake/merge", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/merge").alias("t")
        >>> news = spark.createDataFrame([(2, 21), (3, 30)], "id bigint, n bigint").alias("s")
        >>> _ = table.merge(news, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        >>> sorted(row.n for row in table.toDF().collect())
        [10, 21, 30]
        """
        frame = source_frame(self._spark, source, round_times=round_times)
        request = merge_request(frame, condition, self._named, self._frames)
        return DeltaMergeBuilder(self._spark, self._open_to_change, request)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Describe an OPTIMIZE command: ``where`` selects partitions, and an ``execute`` method runs it.

        >>> import trilake
        >>> for n in range(3):
        ...     _ = trilake.write({"n": [n]}, "lake/optimize", mode="append")
        >>> table = DeltaTable.forPath(spark, "lake/optimize")
        >>> table.optimize().executeCompaction().selectExpr("metrics.numFilesRemoved AS n").collect()
        [Row(n=3)]
        """
        return DeltaOptimizeBuilder(self._spark, self._path, self._options)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the table's protocol to at least ``readerVersion`` and ``writerVersion``.

        Raises ``ValueError`` for versions that are not integers, ``InvalidArgumentError`` for versions that do not
        exist.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/upgrade", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/upgrade")
        >>> table.upgradeTableProtocol(1, 3)
        >>> table.detail().select("minWriterVersion").collect()
        [Row(minWriterVersion=3)]
        """
        versions: dict[str, object] = {"readerVersion": readerVersion, "writerVersion": writerVersion}
        for name, value in versions.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"The {name} needs to be an integer but got '{type(value)}'.")
        self._alter().upgrade_protocol(readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Add the table feature ``featureName``, and its dependencies, to the table's protocol.

        Raises ``UnsupportedProtocolError`` for a feature that is unknown or that trilake cannot write; it can also be
        caught as ``Py4JJavaError``, which delta-spark raises here.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/feature", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/feature")
        >>> table.addFeatureSupport("deletionVectors")
        >>> "deletionVectors" in table.detail().first().tableFeatures
        True
        """
        if not isinstance(featureName, str):
            raise ValueError(f"featureName needs to be a string but got '{type(featureName)}'.")
        try:
            self._alter().add_feature(featureName)
        except UnsupportedProtocolError as e:
            raise_for_spark(e, java_error(e))

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Drop the table feature ``featureName``.

        ``truncateHistory`` removes log entries older than a day if they still need the feature.  Raises
        ``FeatureInUseError``, which says what is left to do, and ``InvalidArgumentError`` for a feature that the table
        lacks or that cannot be dropped, and for ``truncateHistory`` with a feature that readers need not support.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/drop-feature", mode="overwrite")
        >>> table = DeltaTable.forPath(spark, "lake/drop-feature")
        >>> table.dropFeatureSupport("appendOnly")
        >>> table.history(1).select("operation").collect()
        [Row(operation='DROP FEATURE')]
        """
        if not isinstance(featureName, str):
            raise ValueError(f"featureName needs to be a string but got '{type(featureName)}'.")
        if truncateHistory is not None and not isinstance(truncateHistory, bool):
            raise ValueError(f"truncateHistory needs to be a boolean but got '{type(truncateHistory)}'.")
        self._alter().drop_feature(featureName, truncate_history=bool(truncateHistory))

    def _alter(self) -> Alter:
        finder = violation_finder(self._spark, self._path, self._options)
        zoned = not is_utc(self._spark)
        return Alter(self._log(), find_violation=finder, zoned=zoned, run=SparkRunner(self._spark, width=1))


def _session(spark: SparkSession | None) -> SparkSession:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise InvalidArgumentError(
            "there is no active Spark session",
            help="pass sparkSession",
            condition="DELTA_ACTIVE_SPARK_SESSION_NOT_FOUND",
        )
    return session
