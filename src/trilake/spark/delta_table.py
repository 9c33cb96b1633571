"""``DeltaTable``: the class that delta-spark's users know, on a Spark session."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.delta.alter_table import Alter
from trilake.delta.clustering import clustering_columns
from trilake.delta.features import writer_features
from trilake.delta.log import DeltaLog
from trilake.delta.schema_edit import path_text
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError
from trilake.spark.analysis_errors import raises_for_spark
from trilake.spark.catalogue import known_location
from trilake.spark.columns import assignment_columns, checked_condition
from trilake.spark.conditions import violation_finder
from trilake.spark.delta_delete import delete_rows
from trilake.spark.delta_merge import DeltaMergeBuilder, merge_request
from trilake.spark.delta_optimize import DeltaOptimizeBuilder
from trilake.spark.delta_read import explain_read, read_dataframe
from trilake.spark.delta_update import update_rows
from trilake.spark.runner import SparkRunner
from trilake.spark.table_builder import DeltaTableBuilder
from trilake.storage import open_store
from trilake.table import Explanation, FilterLike

_DETAIL = T.StructType(
    [
        T.StructField("format", T.StringType()),
        T.StructField("id", T.StringType()),
        T.StructField("name", T.StringType()),
        T.StructField("description", T.StringType()),
        T.StructField("location", T.StringType()),
        T.StructField("createdAt", T.TimestampType()),
        T.StructField("lastModified", T.TimestampType()),
        T.StructField("partitionColumns", T.ArrayType(T.StringType())),
        T.StructField("clusteringColumns", T.ArrayType(T.StringType())),
        T.StructField("numFiles", T.LongType()),
        T.StructField("sizeInBytes", T.LongType()),
        T.StructField("properties", T.MapType(T.StringType(), T.StringType())),
        T.StructField("minReaderVersion", T.IntegerType()),
        T.StructField("minWriterVersion", T.IntegerType()),
        T.StructField("tableFeatures", T.ArrayType(T.StringType())),
    ]
)


@raises_for_spark
class DeltaTable:
    """A Delta table on Spark.  Make one with :meth:`forPath`.

    The names are delta-spark's, so that existing code runs after changing its import.
    """

    def __init__(self, spark: SparkSession, path: str, options: Mapping[str, str], *, alias: str | None = None) -> None:
        self._spark, self._path, self._options, self._alias = spark, path, dict(options), alias

    @classmethod
    def forPath(cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None) -> DeltaTable:
        """The table at ``path``.

        ``hadoopConf`` takes the place of delta-spark's argument of that name: options of the store that holds the
        table, such as credentials and endpoint.  Raises ``TableNotFoundError`` where there is no Delta table.
        """
        if not isinstance(path, str):
            raise InvalidArgumentError(f"path is a {type(path).__name__}, not a text")
        table = cls(sparkSession, path, hadoopConf or {})
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
        return cls.forPath(sparkSession, known_location(sparkSession, tableOrViewName), hadoopConf)

    @classmethod
    def create(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Describe a new table; making it fails where one is there already."""
        return DeltaTableBuilder(_session(sparkSession), "create", hadoopConf)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Describe a table that is made where none is there."""
        return DeltaTableBuilder(_session(sparkSession), "create_if_not_exists", hadoopConf)

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Describe a table that takes the place of one that is there, rows and all."""
        return DeltaTableBuilder(_session(sparkSession), "replace", hadoopConf)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder:
        """Describe a table that is made, in place of one that may be there."""
        return DeltaTableBuilder(_session(sparkSession), "create_or_replace", hadoopConf)

    @classmethod
    def isDeltaTable(
        cls, sparkSession: SparkSession, identifier: str, hadoopConf: Mapping[str, str] | None = None
    ) -> bool:
        """Whether the path holds a Delta table."""
        return DeltaLog(open_store(identifier, dict(hadoopConf or {}))).exists()

    def _log(self) -> DeltaLog:
        return DeltaLog(open_store(self._path, self._options))

    def _open(self) -> ArrowDeltaTable:
        return ArrowDeltaTable(open_store(self._path, self._options))

    def toDF(self) -> DataFrame:
        """The newest version as a DataFrame: Spark's native scan wherever that is possible."""
        df: DataFrame = read_dataframe(self._spark, self._open(), options=self._options)
        return df if self._alias is None else df.alias(self._alias)

    def explain(self, filter: FilterLike | None = None) -> Explanation:
        """Which files a read with ``filter`` needs and why, and whether Spark scans them itself."""
        return explain_read(self._spark, self._open(), filter)

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under an alias, which its DataFrame carries."""
        return DeltaTable(self._spark, self._path, self._options, alias=aliasName)

    def delete(self, condition: str | Column | None = None) -> None:
        """Delete the rows for which ``condition``, a SQL text or a column, is true; all rows without one.

        A table with deletion vectors gets such, of others the files with such rows are written again.  Where no row
        matches, there is no commit; what was done is in :meth:`history`.

        Raises ``TypeError`` for anything else, and a ``ConflictError`` where another commit excludes this one.
        """
        delete_rows(self._spark, self._open(), checked_condition(condition), alias=self._alias)

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
        update_rows(self._spark, self._open(), values, checked_condition(condition), alias=self._alias)

    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first, as a DataFrame."""
        return self._spark.createDataFrame(self._open().history(limit))

    def detail(self) -> DataFrame:
        """One row about the table: format, id, location, partitioning, size, properties and protocol."""
        table = self._open()
        m, p = table.metadata, table.protocol
        commits = table.log.commits(end=table.version)
        times = table.log.commit_times(commits, m)
        row: dict[str, Any] = {
            "format": "delta",
            "id": m.id,
            "name": m.name,
            "description": m.description,
            "location": table.uri,
            "createdAt": _timestamp(m.created_time),
            "lastModified": _timestamp(times[-1] if times else None),
            "partitionColumns": list(m.partition_columns),
            "clusteringColumns": [path_text(c) for c in clustering_columns(table.snapshot)],
            "numFiles": table.snapshot.adds.num_rows,
            "sizeInBytes": pc.sum(table.snapshot.adds["size"]).as_py() or 0,
            "properties": dict(m.configuration),
            "minReaderVersion": p.min_reader_version,
            "minWriterVersion": p.min_writer_version,
            "tableFeatures": sorted({*writer_features(p), *(p.reader_features or ())}),
        }
        return self._spark.createDataFrame([tuple(row[n] for n in _DETAIL.names)], _DETAIL)

    def merge(self, source: DataFrame, condition: str | Column) -> DeltaMergeBuilder:
        """Describe a merge of ``source`` into the table: ``condition``, a SQL text or a column, says which rows match.

        Raises ``ValueError`` for ``None``, ``TypeError`` for arguments of other types.
        """
        return DeltaMergeBuilder(self._spark, self._open, merge_request(source, condition, self._alias))

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

        Raises ``UnsupportedProtocolError`` for a feature that is unknown or that this library cannot write.
        """
        if not isinstance(featureName, str):
            raise ValueError(f"featureName needs to be a string but got '{type(featureName)}'.")
        self._alter().add_feature(featureName)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:
        """Take a table feature away.

        ``truncateHistory`` removes log entries older than a day, where those still need the feature.  Raises
        ``FeatureInUseError`` that says what is left to do.
        """
        if not isinstance(featureName, str):
            raise ValueError(f"featureName needs to be a string but got '{type(featureName)}'.")
        if truncateHistory is not None and not isinstance(truncateHistory, bool):
            raise ValueError(f"truncateHistory needs to be a boolean but got '{type(truncateHistory)}'.")
        self._alter().drop_feature(featureName, truncate_history=bool(truncateHistory))

    def _alter(self) -> Alter:
        finder = violation_finder(self._spark, self._path, self._options)
        return Alter(self._log(), find_violation=finder, run=SparkRunner(self._spark, width=1))

    def __repr__(self) -> str:
        return f"<DeltaTable {self._path}>"


def _session(given: SparkSession | None) -> SparkSession:
    session = given or SparkSession.getActiveSession()
    if session is None:
        raise InvalidArgumentError("no Spark session is given, and none is active", help="pass sparkSession")
    return session


def _timestamp(ms: int | None) -> Any:
    return None if ms is None else dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
