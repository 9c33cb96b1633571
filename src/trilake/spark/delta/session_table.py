"""``SessionTable``: finding and reading a Delta table in a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from pyspark.sql import DataFrame, SparkSession

from trilake.common.display import card
from trilake.delta.log.log import DeltaLog
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import InvalidArgumentError, TrilakeError, stating
from trilake.spark.delta.frame_columns import FrameColumns
from trilake.spark.delta.maintenance import detail_frame, history_frame
from trilake.spark.delta.read import explain_read, read_dataframe
from trilake.spark.delta.settings import session_log
from trilake.spark.live_frames.frames import following
from trilake.spark.live_frames.versions import ReadVersion, note_version, version_to_read
from trilake.spark.scan.frame_tables import note_row_count, note_whole_table, row_count
from trilake.spark.session.analysis_errors import raises_for_spark
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.storage import session_options, session_store
from trilake.storage import open_store
from trilake.table.explanation import Explanation
from trilake.table.table import FilterLike

if TYPE_CHECKING:
    import pandas


@raises_for_spark
class SessionTable:
    """The part of ``DeltaTable`` that reads: its location and newest rows."""

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
        return note_whole_table(df, "delta", self._path) if of_session else df

    def _read(self) -> DataFrame:
        store = open_store(self._path, self._options)
        table = ArrowDeltaTable(store, spark_engine(), version=version_to_read(store.uri))
        df: DataFrame = read_dataframe(self._spark, table, options=self._options, newest=True)
        aliased = df if self._alias is None else note_row_count(df.alias(self._alias), row_count(df))
        return note_version(aliased, ReadVersion.of(table))

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
        return type(self)(self._spark, self._path, self._options, alias=aliasName, frames=self._frames)

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
        return detail_frame(self._spark, self._open())

    def __repr__(self) -> str:
        return f"<DeltaTable {self._path}>"

    def _repr_html_(self) -> str:
        try:
            return self._open()._repr_html_()
        except TrilakeError as e:  # a display shows the error instead of raising it
            return card(repr(self), [("error", str(e))])
