"""``DeltaTable``: delta-spark's class, on a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.common.display import card
from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.commit.symlink_manifest import check_mode, generate_manifests
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TrilakeError, UnsupportedProtocolError, stating
from trilake.spark.catalog.named_tables import existing_delta_table, parts_of, table_at
from trilake.spark.delta.convert import convert_table
from trilake.spark.delta.frame_columns import FrameColumns
from trilake.spark.delta.maintenance import (
    check_is,
    clone_table,
    detail_frame,
    history_frame,
    restore_table,
    vacuum_table,
)
from trilake.spark.delta.merge.builder import DeltaMergeBuilder
from trilake.spark.delta.merge.source import merge_request
from trilake.spark.delta.optimize import DeltaOptimizeBuilder
from trilake.spark.delta.reading.read import explain_read, read_dataframe, violation_finder
from trilake.spark.delta.row_changes import delete_rows, update_rows
from trilake.spark.delta.settings import row_session, session_log
from trilake.spark.delta.table_builder import DeltaTableBuilder
from trilake.spark.live_frames.frames import following
from trilake.spark.live_frames.versions import ReadVersion, version_to_read
from trilake.spark.scan.columns import assignment_columns, checked_condition
from trilake.spark.scan.frame_tables import RowCount, WholeTable, note, noted
from trilake.spark.session.analysis_errors import java_error, raise_for_spark, raises_for_spark
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.settings import session_options, session_store, session_time_ms
from trilake.storage import open_store
from trilake.table.explanation import Explanation
from trilake.table.table import FilterLike

if TYPE_CHECKING:
    import pandas


@raises_for_spark
class DeltaTable:
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

    def __init__(
        self,
        spark: SparkSession,
        path: str = "",
        options: Mapping[str, str] | None = None,
        *,
        alias: str | None = None,
        frames: FrameColumns | None = None,
    ) -> None:
        if not path or options is None:
            raise InvalidArgumentError(
                "DeltaTable cannot be called to open a table",
                help="call DeltaTable.forPath(spark, path) or DeltaTable.forName(spark, name); without Spark,"
                " trilake.open(path)",
            )
        self._spark, self._path, self._alias = spark, path, alias
        #: The table's name in the catalog, which may qualify its columns if there is no alias.
        self._name: str | None = None
        self._full_name: str | None = None
        self._options = session_options(spark, path, options)
        #: The frames that :meth:`toDF` returned; conditions and values may name their columns.
        self._frames = frames or FrameColumns()

    @classmethod
    def forPath(cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None) -> Self:
        """The table at ``path``.

        ``sparkSession`` is the session that reads and changes it.  ``hadoopConf`` has options of the store, such as
        credentials and endpoint.  Raises ``TableNotFoundError`` if there is no Delta table.

        >>> import trilake
        >>> _ = trilake.write(spark.range(3), "lake/for-path", mode="overwrite")
        >>> trilake.DeltaTable.forPath(spark, "lake/for-path").toDF().count()
        3
        """
        if not isinstance(path, str):
            raise InvalidArgumentError(f"path must be a string, got {type(path).__name__}")
        table = cls(sparkSession, path, hadoopConf or {})
        with stating({"DELTA_PATH_DOES_NOT_EXIST": "DELTA_MISSING_DELTA_TABLE"}):
            table._log().segment()
        return table

    @classmethod
    def isDeltaTable(
        cls, sparkSession: SparkSession, identifier: str, hadoopConf: Mapping[str, str] | None = None
    ) -> bool:
        """Whether there is a Delta table at the path ``identifier``.

        ``sparkSession`` is the session, ``hadoopConf`` has options of the store.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/is-delta", mode="overwrite")
        >>> [trilake.DeltaTable.isDeltaTable(spark, path) for path in ("lake/is-delta", "lake/nothing")]
        [True, False]
        """
        return DeltaLog(session_store(sparkSession, identifier, hadoopConf), spark_engine()).exists()

    def _log(self) -> DeltaLog:
        return session_log(self._spark, open_store(self._path, self._options))

    def _open(self) -> ArrowDeltaTable:
        return ArrowDeltaTable(open_store(self._path, self._options), spark_engine())

    def _open_to_change(self) -> ArrowDeltaTable:
        """The newest version, whose commits get the session's user metadata."""
        log = self._log()
        return ArrowDeltaTable(log.store, log.engine, user_metadata=log.user_metadata)

    @property
    def _named(self) -> str | None:
        return self._name if self._alias is None else self._alias

    def toDF(self) -> DataFrame:
        """The newest version as a DataFrame, read by Spark's own scan if possible.

        The DataFrame, and DataFrames derived from it, always show the newest version.

        >>> import trilake
        >>> _ = trilake.write(spark.range(3), "lake/to-df", mode="overwrite")
        >>> sorted(row.id for row in trilake.DeltaTable.forPath(spark, "lake/to-df").toDF().where("id > 0").collect())
        [1, 2]
        """
        df = following(self._read)
        self._frames.note(df)
        if self._alias is not None:
            return df
        of_session = self._options == session_options(self._spark, self._path)
        return note(df, WholeTable("delta", self._path)) if of_session else df

    def _read(self) -> DataFrame:
        store = open_store(self._path, self._options)
        table = ArrowDeltaTable(store, spark_engine(), version=version_to_read(store.uri))
        df: DataFrame = read_dataframe(self._spark, table, options=self._options, newest=True)
        aliased = df if self._alias is None else note(df.alias(self._alias), noted(df, RowCount))
        return note(aliased, ReadVersion.of(table))

    def to_pandas(self) -> pandas.DataFrame:
        """The newest version as a pandas DataFrame.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2]}, "lake/to-pandas", mode="overwrite")
        >>> trilake.DeltaTable.forPath(spark, "lake/to-pandas").to_pandas()["n"].tolist()
        [1, 2]
        """
        return self._open().to_pandas()

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """The files that a read with ``filter`` needs, with reasons, and whether Spark scans them itself.

        Raises ``FilterError`` for a filter that does not fit the table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1, 2]}, "lake/table-explain", mode="overwrite")
        >>> plan = trilake.DeltaTable.forPath(spark, "lake/table-explain").explain("n > 5")
        >>> len(plan.kept), len(plan.skipped)
        (0, 1)
        """
        return explain_read(self._spark, self._open(), filter)

    def alias(self, aliasName: str) -> Self:
        """The same table with the alias ``aliasName`` for its DataFrame, conditions and values.

        >>> import trilake
        >>> _ = trilake.write({"id": [1], "n": [10]}, "lake/alias", mode="overwrite")
        >>> table = trilake.DeltaTable.forPath(spark, "lake/alias").alias("t")
        >>> table.update("t.id = 1", {"n": "t.n + 1"})
        >>> table.toDF().select("t.n").collect()
        [Row(n=11)]
        """
        table = type(self)(self._spark, self._path, self._options, alias=aliasName, frames=self._frames)
        table._full_name = self._full_name
        return table

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first, at most ``limit``.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/history", mode="overwrite")
        >>> trilake.DeltaTable.forPath(spark, "lake/history").history(1).select("version", "operation").collect()
        [Row(version=0, operation='WRITE')]
        """
        return history_frame(self._spark, self._open(), limit)

    def detail(self) -> DataFrame:
        """One row about the table: format, id, location, partitioning, size, properties and protocol.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/detail", mode="overwrite")
        >>> trilake.DeltaTable.forPath(spark, "lake/detail").detail().select("format", "numFiles").collect()
        [Row(format='delta', numFiles=1)]
        """
        return detail_frame(self._spark, self._open(), self._full_name)

    def __repr__(self) -> str:
        return f"<DeltaTable {self._path}>"

    def _repr_html_(self) -> str:
        try:
            return self._open()._repr_html_()
        except TrilakeError as e:  # a display shows the error instead of raising it
            return card(repr(self), [("error", str(e))])

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
        existing = existing_delta_table(sparkSession, tableOrViewName)
        table = cls.forPath(sparkSession, existing.location, hadoopConf)
        table._full_name = existing.name
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

        >>> ds = DeltaTable.create(spark).location("lake/create").addColumn("id", "BIGINT").execute()
        >>> ds.toDF().columns
        ['id']
        """
        return DeltaTableBuilder(_session(sparkSession), "create", hadoopConf, cls)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that is created if it does not exist; an existing table stays unchanged.

        Parameters and errors are those of :meth:`create`.

        >>> for _ in range(2):
        ...     ds = DeltaTable.createIfNotExists(spark).location("lake/if-not").addColumn("id", "BIGINT").execute()
        >>> ds.history().count()
        1
        """
        return DeltaTableBuilder(_session(sparkSession), "create_if_not_exists", hadoopConf, cls)

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that replaces an existing table and its rows.

        Parameters and errors are those of :meth:`create`; executing raises ``TableNotFoundError`` if there is no table.

        >>> import trilake
        >>> _ = trilake.write({"n": [1]}, "lake/replace", mode="overwrite")
        >>> ds = DeltaTable.replace(spark).location("lake/replace").addColumn("id", "BIGINT").execute()
        >>> ds.toDF().columns, ds.toDF().count()
        (['id'], 0)
        """
        return DeltaTableBuilder(_session(sparkSession), "replace", hadoopConf, cls)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that is created, or replaces an existing one.

        Parameters and errors are those of :meth:`create`.

        >>> ds = DeltaTable.createOrReplace(spark).location("lake/or-replace").addColumn("id", "BIGINT").execute()
        >>> ds.toDF().count()
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
        identifier: ``parquet.`/path```, or the name of an external Parquet table in the catalog.
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
        named = self._frames.named(checked_condition(condition), self._named)
        delete_rows(self._spark, table, named, alias=self._named)

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
        values = {name: self._frames.named(value, self._named) for name, value in assignment_columns(set).items()}
        named = self._frames.named(checked_condition(condition), self._named)
        update_rows(self._spark, self._open_to_change(), values, named, alias=self._named)

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
        check_is(int, version, "version")
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
        check_is(str, timestamp, "timestamp")
        return restore_table(self._spark, self._log(), timestamp=timestamp)

    def clone(
        self, target: str, isShallow: bool = False, replace: bool = False, properties: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Copy the table to ``target``, a path or a name; returns the new table.

        Parameters
        ----------
        target: a path, ``delta.`/path```, or a name in the catalog.
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
        return self._clone(target, isShallow, replace, properties)

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
        check_is(int, version, "version")
        return self._clone(target, isShallow, replace, properties, version=version)

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
        check_is(str, timestamp, "timestamp")
        version = self._log().version_at(session_time_ms(self._spark, timestamp), reached=True)
        return self._clone(target, isShallow, replace, properties, version=version)

    def _clone(self, *call: Any, version: int | None = None) -> DeltaTable:
        path = clone_table(self._spark, self._log(), self._options, *call, version=version)
        return DeltaTable(self._spark, path, self._options)

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
        spark, named = self._spark, self._named
        request = merge_request(spark, source, condition, named, self._frames, round_times=round_times)
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
        check_is(str, featureName, "featureName")
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
        check_is(str, featureName, "featureName")
        if truncateHistory is not None:
            check_is(bool, truncateHistory, "truncateHistory")
        self._alter().drop_feature(featureName, truncate_history=bool(truncateHistory))

    def _alter(self) -> Alter:
        finder = violation_finder(self._spark, self._path, self._options)
        return Alter(
            self._log(),
            find_violation=finder,
            session=row_session(self._spark),
            run=SparkRunner(self._spark, width=1),
        )


def _session(spark: SparkSession | None) -> SparkSession:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise InvalidArgumentError(
            "there is no active Spark session",
            help="pass sparkSession",
            condition="DELTA_ACTIVE_SPARK_SESSION_NOT_FOUND",
        )
    return session
