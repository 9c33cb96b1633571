"""``DeltaTable``: the class that delta-spark's users know, on a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.delta.commands.alter.alter_table import Alter
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.display import card
from trilake.errors import InvalidArgumentError, TrilakeError, UnsupportedProtocolError, stating
from trilake.spark.delta.clone import CloneCall, clone_table, convert_table
from trilake.spark.delta.conditions import violation_finder
from trilake.spark.delta.delete import delete_rows
from trilake.spark.delta.frame_columns import FrameColumns
from trilake.spark.delta.maintenance import (
    check_int,
    check_text,
    detail_frame,
    generate,
    history_frame,
    restore_table,
    vacuum_table,
)
from trilake.spark.delta.merge.merge import DeltaMergeBuilder
from trilake.spark.delta.merge.request import merge_request, source_frame
from trilake.spark.delta.names.catalogue import known_location, parts_of, table_at
from trilake.spark.delta.optimize import DeltaOptimizeBuilder
from trilake.spark.delta.read import explain_read, read_dataframe
from trilake.spark.delta.settings import session_log
from trilake.spark.delta.table_builder import DeltaTableBuilder
from trilake.spark.delta.update import update_rows
from trilake.spark.native.columns import assignment_columns, checked_condition
from trilake.spark.native.newest_frames import ReadVersion, following, note_version
from trilake.spark.native.row_counts import note_row_count, row_count
from trilake.spark.native.whole_tables import note_whole_table
from trilake.spark.session.analysis_errors import java_error, raise_for_spark, raises_for_spark
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.runner import SparkRunner
from trilake.spark.session.settings import is_utc
from trilake.spark.session.storage import session_options, session_store
from trilake.storage import open_store
from trilake.table import Explanation, FilterLike

if TYPE_CHECKING:
    import pandas


@raises_for_spark
class DeltaTable:
    """A Delta table on Spark.  Make one with :meth:`forPath`.

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
                "a DeltaTable is not made of arguments",
                help="write DeltaTable.forPath(spark, path) or DeltaTable.forName(spark, name); without Spark,"
                " trilake.open(path)",
            )
        self._spark, self._path, self._alias = spark, path, alias
        #: The table's own name in the catalogue, which may stand before its columns where it has no alias.
        self._name: str | None = None
        self._options = session_options(spark, path, options)
        #: The frames that were given away, whose columns conditions and values may name.
        self._frames = frames or FrameColumns()

    @classmethod
    def forPath(cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None) -> DeltaTable:
        """The table at ``path``.

        ``hadoopConf`` takes the place of delta-spark's argument of that name: options of the store that holds the
        table, such as credentials and endpoint.  Raises ``TableNotFoundError`` where there is no Delta table.
        """
        if not isinstance(path, str):
            raise InvalidArgumentError(f"path is a {type(path).__name__}, not a text")
        table = cls(sparkSession, path, hadoopConf or {})
        with stating({"DELTA_PATH_DOES_NOT_EXIST": "DELTA_MISSING_DELTA_TABLE"}):
            table._log().segment()
        return table

    @classmethod
    def forName(
        cls, sparkSession: SparkSession, tableOrViewName: str, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """The table of a name in Spark's catalogue, or of ``delta.`/path```.

        Raises ``TableNotFoundError`` where there is none, ``InvalidArgumentError`` for a view and for tables of other
        formats.
        """
        if not isinstance(tableOrViewName, str):
            raise InvalidArgumentError(f"the name is a {type(tableOrViewName).__name__}, not a text")
        table = cls.forPath(sparkSession, known_location(sparkSession, tableOrViewName), hadoopConf)
        if table_at(tableOrViewName) is None:
            table._name = parts_of(tableOrViewName)[-1]
        return table

    @classmethod
    def create(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a new table; making it fails where one is there already."""
        return DeltaTableBuilder(_session(sparkSession), "create", hadoopConf, cls)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that is made where none is there."""
        return DeltaTableBuilder(_session(sparkSession), "create_if_not_exists", hadoopConf, cls)

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that takes the place of one that is there, rows and all."""
        return DeltaTableBuilder(_session(sparkSession), "replace", hadoopConf, cls)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that is made, in place of one that may be there."""
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
        """Make a Delta table of a folder of Parquet files, where it is; no file is rewritten.

        Parameters
        ----------
        sparkSession: the session.
        identifier: ``parquet.`/path```, or the name of an external Parquet table of the catalogue.
        partitionSchema: the partition columns, ``"day date, n int"`` or a ``StructType``; inferred from folder names
            where it is left out.
        collectStats: whether the files' own statistics go into the log; only footers are read.
        hadoopConf: options of the store.

        Where a Delta table is there already, nothing happens.  Raises ``CorruptFileError`` for a file that is not
        Parquet, ``SchemaMismatchError`` for files that cannot be one table, ``InvalidArgumentError`` for folders that
        contradict each other.
        """
        assert sparkSession is not None
        path = convert_table(sparkSession, identifier, partitionSchema, collect_stats=collectStats, options=hadoopConf)
        return cls(sparkSession, path, hadoopConf or {})

    @classmethod
    def isDeltaTable(
        cls, sparkSession: SparkSession, identifier: str, hadoopConf: Mapping[str, str] | None = None
    ) -> bool:
        """Whether the path holds a Delta table."""
        return DeltaLog(session_store(sparkSession, identifier, hadoopConf), spark_engine()).exists()

    def _log(self) -> DeltaLog:
        return session_log(self._spark, open_store(self._path, self._options))

    def _open(self) -> ArrowDeltaTable:
        return ArrowDeltaTable(open_store(self._path, self._options), spark_engine())

    def _open_to_change(self) -> ArrowDeltaTable:
        """The newest version, whose commits carry what the session says."""
        log = self._log()
        return ArrowDeltaTable(log.store, log.engine, user_metadata=log.user_metadata)

    @property
    def _named(self) -> str | None:
        """What may stand before the table's columns."""
        return self._name if self._alias is None else self._alias

    def toDF(self) -> DataFrame:
        """The newest version as a DataFrame: Spark's native scan wherever that is possible.

        It shows the newest version whenever it is used, and so does what is made of it.
        """
        df = following(self._read)
        self._frames.note(df)
        if self._alias is not None:
            return df
        of_session = self._options == session_options(self._spark, self._path)
        return note_whole_table(df, "delta", self._path) if of_session else df

    def _read(self) -> DataFrame:
        table = self._open()
        df: DataFrame = read_dataframe(self._spark, table, options=self._options, newest=True)
        named = df if self._alias is None else note_row_count(df.alias(self._alias), row_count(df))
        return note_version(named, ReadVersion.of(table))

    def to_pandas(self) -> pandas.DataFrame:
        """The newest version as a pandas frame."""
        return self._open().to_pandas()

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Which files a read with ``filter`` needs and why, and whether Spark scans them itself."""
        return explain_read(self._spark, self._open(), filter)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under an alias, which its DataFrame carries."""
        return DeltaTable(self._spark, self._path, self._options, alias=aliasName, frames=self._frames)

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows for which ``condition``, a SQL text or a column, is true; all rows without one.

        A table with deletion vectors gets such, of others the files with such rows are written again.  Where no row
        matches, there is no commit; what was done is in :meth:`history`.

        Raises ``TypeError`` for anything else, and a ``ConflictError`` where another commit excludes this one.
        """
        table = self._open_to_change()
        delete_rows(self._spark, table, checked_condition(condition), alias=self._named, frames=self._frames)

    def update(self, condition: str | Column | None = None, set: Mapping[str, str | Column] | None = None) -> None:
        """Give the rows for which ``condition`` is true new values; all rows without one.

        Parameters
        ----------
        condition: a SQL text or a column.
        set: SQL texts or columns over the row as it was, by column (``"a"``, or ``"a.b"`` for a field of a struct).

        Raises ``ValueError`` without ``set``, ``TypeError`` for arguments of other types, ``SchemaMismatchError`` for
        an unknown column, ``ConstraintViolatedError`` for a row that breaks a rule of the table, ``WriteFailedError``
        for a job that failed and a ``ConflictError`` where another commit excludes this one.
        """
        values = assignment_columns(set)
        asked, table = checked_condition(condition), self._open_to_change()
        update_rows(self._spark, table, values, asked, alias=self._named, frames=self._frames)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first, at most ``limit`` of them."""
        return history_frame(self._spark, self._open(), limit)

    def detail(self) -> DataFrame:
        """One row about the table: format, id, location, partitioning, size, properties and protocol."""
        return detail_frame(self._spark, self._open())

    def vacuum(
        self,
        retentionHours: float | None = None,
        *,
        dryRun: bool = False,
        lite: bool | None = None,
        inventory: DataFrame | None = None,
    ) -> DataFrame:
        """Delete the files that no version within the retention needs; the DataFrame returned is empty.

        Parameters
        ----------
        retentionHours: how long removed files are kept; the table's ``delta.deletedFileRetentionDuration``, a week by
            default, otherwise.
        dryRun: delete nothing, and return the paths of the files that would go.
        lite: look at the log alone, not at the folder.
        inventory: the folder's files as a DataFrame of path, length, isDir and modificationTime.

        Raises ``InvalidArgumentError`` for a retention shorter than the table's, unless
        ``spark.databricks.delta.retentionDurationCheck.enabled`` is false.
        """
        return vacuum_table(self._spark, self._log(), retentionHours, dry_run=dryRun, lite=lite, inventory=inventory)

    def restoreToVersion(self, version: int) -> DataFrame:
        """Bring an older version back, as a new one; one row of metrics.

        Raises ``ValueError`` for a version that is no integer, ``MissingFileError`` where files of that version were
        deleted, unless ``spark.sql.files.ignoreMissingFiles`` is true.
        """
        check_int(version, "version")
        return restore_table(self._spark, self._log(), version=version)

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Bring the version back that was the newest at a time, such as ``2024-05-01 12:30:00`` in the session's zone.

        Raises as :meth:`restoreToVersion` does.
        """
        check_text(timestamp, "timestamp")
        return restore_table(self._spark, self._log(), timestamp=timestamp)

    def clone(
        self, target: str, isShallow: bool = False, replace: bool = False, properties: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Make a table at ``target``, a path or a name, that holds what this one holds; the new table.

        Parameters
        ----------
        target: a path, ``delta.`/path```, or a name in the catalogue.
        isShallow: name this table's files instead of copying them.
        replace: clone over a table that is there.
        properties: table properties that the target gets besides or instead of this table's.

        Raises ``ValueError`` for arguments of other types, ``TableExistsError`` where a table is there.
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
        """Like :meth:`clone`, of an older version."""
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
        """Like :meth:`clone`, of the version that was the newest at a time in the session's zone."""
        check_text(timestamp, "timestamp")
        return self._clone(CloneCall(target, isShallow, replace, properties, timestamp=timestamp))

    def _clone(self, call: CloneCall) -> DeltaTable:
        return DeltaTable(self._spark, clone_table(self._spark, self._log(), self._options, call), self._options)

    def generate(self, mode: str) -> None:
        """Generate manifests for other engines; the one ``mode`` is ``symlink_format_manifest``.

        Raises ``InvalidArgumentError`` for another mode, and for tables with deletion vectors or column mapping.
        """
        generate(self._log(), mode)

    def merge(self, source: Any, condition: str | Column, *, round_times: bool = False) -> DeltaMergeBuilder:
        """Describe a merge of ``source`` into the table: ``condition``, a SQL text or a column, says which rows match.

        Parameters
        ----------
        source: a DataFrame; or Arrow data or a frame of pandas or polars, which expressions call ``source``.
        condition: a SQL text or a column.
        round_times: whether times of pandas or Arrow in nanoseconds are rounded down to the microseconds that the table
            has; otherwise one that is between two microseconds is refused.

        Raises ``ValueError`` for ``None``, ``TypeError`` for arguments of other types.
        """
        frame = source_frame(self._spark, source, round_times=round_times)
        request = merge_request(frame, condition, self._named, self._frames)
        return DeltaMergeBuilder(self._spark, self._open_to_change, request)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Describe an OPTIMIZE command: ``where`` chooses partitions, an ``execute`` method runs it."""
        return DeltaOptimizeBuilder(self._spark, self._path, self._options)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the table's protocol to at least these versions.

        Raises ``InvalidArgumentError`` for versions that do not exist.
        """
        versions: dict[str, object] = {"readerVersion": readerVersion, "writerVersion": writerVersion}
        for name, value in versions.items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"The {name} needs to be an integer but got '{type(value)}'.")
        self._alter().upgrade_protocol(readerVersion, writerVersion)

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a table feature, and those it needs, to the table's protocol.

        Raises ``UnsupportedProtocolError`` for a feature that is unknown or that this library cannot write; it can be
        caught as ``Py4JJavaError`` too, which delta-spark raises here.
        """
        if not isinstance(featureName, str):
            raise ValueError(f"featureName needs to be a string but got '{type(featureName)}'.")
        try:
            self._alter().add_feature(featureName)
        except UnsupportedProtocolError as e:
            raise_for_spark(e, java_error(e))

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Take a table feature away.

        ``truncateHistory`` removes log entries older than a day, where those still need the feature.  Raises
        ``FeatureInUseError`` that says what is left to do, and ``InvalidArgumentError`` for a feature that is not there
        or cannot go, and for ``truncateHistory`` where readers need not know the feature.
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

    def __repr__(self) -> str:
        return f"<DeltaTable {self._path}>"

    def _repr_html_(self) -> str:
        try:
            return self._open()._repr_html_()
        except TrilakeError as e:  # a display never fails: it says why there is nothing to show
            return card(repr(self), [("error", str(e))])


def _session(spark: SparkSession | None) -> SparkSession:
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise InvalidArgumentError(
            "no Spark session is given, and none is active",
            help="pass sparkSession",
            condition="DELTA_ACTIVE_SPARK_SESSION_NOT_FOUND",
        )
    return session
