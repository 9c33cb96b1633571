"""``trilake.foreach_batch``: functions for ``df.writeStream.foreachBatch`` that write each batch exactly once.

Spark may call such a function again for a batch that is already written.  Each function commits with the query's ID and
the batch's number, and skips a batch that the table already has::

    df.writeStream.foreachBatch(trilake.foreach_batch.append("/data/t")).option("checkpointLocation", "/cp").start()

A query may write to several tables, each with its own function.  Two functions that write to the same table need
different ``app_id`` values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.common.arguments import checked, column_names
from trilake.delta.commands.rows.row_changes import Runner, run_here
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import WritePlan
from trilake.delta.files.file_plan import WrittenFiles
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.schema import StructType
from trilake.delta.stream.sink import batch_request, commit_batch, committed
from trilake.errors import ConflictError, InvalidArgumentError
from trilake.spark.delta.merge.builder import DeltaMergeBuilder
from trilake.spark.delta.native_batch import BatchRows, with_rows
from trilake.spark.delta.source_writer import write_request
from trilake.spark.delta.table import DeltaTable
from trilake.spark.delta.write import write_dataframe
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import running_query_id
from trilake.spark.session.options import Options
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import session_store
from trilake.table.results import WriteResult
from trilake.table.streams import BatchId, StreamError

#: Attempts of a merge that conflicts with other commits.
_ATTEMPTS = 5


def running_query(df: DataFrame, app_id: str | None) -> str:
    """The ID with which batches of ``df`` are committed: ``app_id``, or the ID of the running query.  Raises
    ``StreamError`` outside a query, and on Spark Connect, where the query is unknown."""
    if app_id is not None:
        return app_id
    query_id = running_query_id(df.sparkSession)
    if query_id is None:
        raise StreamError(
            "the query of this batch is unknown, so a retried batch cannot be recognized",
            help="use the function with df.writeStream.foreachBatch, or pass an app_id that only this query uses",
        )
    return query_id


@dataclass(frozen=True)
class WriteBatch:
    """Writes each batch as one commit."""

    path: str
    #: The request of each batch, without its columns and transaction.
    request: WriteRequest
    app_id: str | None = None
    store: Mapping[str, str] = field(default_factory=dict)
    #: Options that override the session's settings.
    decided: tuple[str, ...] = ()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        batch = BatchId(running_query(df, self.app_id), batch_id)
        if committed(DeltaLog(session_store(df.sparkSession, self.path, self.store), spark_engine()), batch):
            return
        request = batch_request(replace(self.request, schema=from_spark(df.schema, limits=True)), batch)

        def finish(
            log: DeltaLog, plan: WritePlan, written: Iterable[WrittenFiles], *, run: Runner = run_here
        ) -> WriteResult:
            return commit_batch(log, plan, batch, written, run=run)

        def write(rows: BatchRows) -> None:
            frame = rows.frame if rows.here is None else df
            write_dataframe(frame, self.path, self.store, request, finish=finish, decided=self.decided, here=rows.here)

        with_rows(df, write, small=True)


def sink_batches(path: str, options: Options, schema: T.StructType, *, complete: bool) -> WriteBatch:
    """The function that writes the batches of ``df.writeStream.format("delta")`` with these options.

    Raises ``InvalidArgumentError`` for invalid options.
    """
    request = write_request(options, schema, complete)
    if request.txn is not None:
        raise InvalidArgumentError("foreach_batch sets txnAppId and txnVersion itself", help="leave both options out")
    decided = ("partitionOverwriteMode", *options.values)
    return WriteBatch(path, replace(request, replace_matches=None), store=dict(options.store), decided=decided)


@dataclass(frozen=True)
class MergeBatch:
    """Merges each batch as one commit."""

    path: str
    condition: str
    describe: Callable[[DeltaMergeBuilder], DeltaMergeBuilder]
    target_alias: str
    source_alias: str
    app_id: str | None = None
    store: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Merge a batch, unless the table already has it; retries after conflicts."""
        batch = BatchId(running_query(df, self.app_id), batch_id)
        log = DeltaLog(session_store(df.sparkSession, self.path, self.store), spark_engine())
        if not committed(log, batch):
            with_rows(df, lambda rows: self._merge(rows.frame, log, batch))

    def _merge(self, rows: DataFrame, log: DeltaLog, batch: BatchId) -> None:
        for attempt in range(_ATTEMPTS):
            table = DeltaTable.forPath(rows.sparkSession, self.path, self.store).alias(self.target_alias)
            builder = table.merge(rows.alias(self.source_alias), self.condition)
            try:
                self.describe(builder).withTransaction(batch.query_id, batch.batch).execute()
                return
            except ConflictError:
                if committed(log, batch):
                    return
                if attempt + 1 == _ATTEMPTS:
                    raise


class foreach_batch:
    """Functions for ``foreachBatch`` that write each batch exactly once.

    >>> import trilake
    >>> write = trilake.foreach_batch.append("lake/batches", app_id="batches")
    >>> write(spark.range(2), 0)  # as ``df.writeStream.foreachBatch(write)`` calls it
    >>> write(spark.range(2), 1)
    >>> trilake.open("lake/batches").count()
    4
    """

    @staticmethod
    @checked
    def append(
        path: str | PathLike[str],
        *,
        partition_by: str | Sequence[str] | None = None,
        merge_schema: bool = False,
        properties: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
        app_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> WriteBatch:
        """Append the rows of each batch to a Delta table.

        Parameters
        ----------
        path: the path of the table.
        partition_by, properties: partition columns and properties of a new table.
        merge_schema: add columns that the table lacks.
        user_metadata: a string to store in each commit.
        app_id: identifies batches instead of the query's ID.
        storage_options: credentials, region and endpoint of an object store.

        >>> import trilake
        >>> write = foreach_batch.append("lake/appended", app_id="nightly")
        >>> write(spark.range(3), 0)
        >>> write(spark.range(3), 0)  # the same batch again
        >>> trilake.open("lake/appended").count()
        3
        """
        request = WriteRequest(
            "append",
            StructType(()),
            column_names(partition_by),
            properties,
            schema_mode="merge" if merge_schema else None,
            user_metadata=user_metadata,
        )
        return WriteBatch(fspath(path), request, app_id, dict(storage_options or {}))

    @staticmethod
    @checked
    def overwrite(
        path: str | PathLike[str],
        *,
        replace_where: str | None = None,
        dynamic_partitions: bool | None = None,
        overwrite_schema: bool = False,
        merge_schema: bool = False,
        partition_by: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        user_metadata: str | None = None,
        app_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> WriteBatch:
        """Replace rows with those of each batch: all rows, those of ``replace_where``, or the batch's partitions.

        Parameters
        ----------
        path: the path of the table.
        replace_where: replace the rows for which this condition is true.
        dynamic_partitions: whether to replace only the batch's partitions; by default, the session's
            ``spark.sql.sources.partitionOverwriteMode`` decides.
        overwrite_schema: give the table the batch's columns.
        merge_schema, partition_by, properties, user_metadata, app_id, storage_options: as in :meth:`append`.

        Raises ``InvalidArgumentError`` for mutually exclusive arguments.

        >>> import trilake
        >>> write = foreach_batch.overwrite("lake/latest", app_id="latest")
        >>> for number in range(3):
        ...     write(spark.range(number, number + 1), number)
        >>> trilake.open("lake/latest").to_arrow()["id"].to_pylist()
        [2]
        """
        _exclude("overwrite_schema and merge_schema", overwrite_schema and merge_schema)
        _exclude("overwrite_schema and replace_where", overwrite_schema and replace_where is not None)
        _exclude("dynamic_partitions and replace_where", bool(dynamic_partitions) and replace_where is not None)
        _exclude("dynamic_partitions and overwrite_schema", bool(dynamic_partitions) and overwrite_schema)
        request = WriteRequest(
            "overwrite",
            StructType(()),
            column_names(partition_by),
            properties,
            replace_where=replace_where,
            partition_overwrite="dynamic" if dynamic_partitions else "static",
            schema_mode="overwrite" if overwrite_schema else "merge" if merge_schema else None,
            user_metadata=user_metadata,
        )
        decided = () if dynamic_partitions is None else ("partitionOverwriteMode",)
        return WriteBatch(fspath(path), request, app_id, dict(storage_options or {}), decided)

    @staticmethod
    @checked
    def merge(
        path: str | PathLike[str],
        condition: str,
        *,
        update_all: bool = False,
        insert_all: bool = False,
        update: Mapping[str, str] | None = None,
        insert: Mapping[str, str] | None = None,
        delete: str | None = None,
        build: Callable[[DeltaMergeBuilder], DeltaMergeBuilder] | None = None,
        schema_evolution: bool = False,
        target_alias: str = "t",
        source_alias: str = "s",
        app_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> MergeBatch:
        """Merge each batch into an existing Delta table.

        Parameters
        ----------
        path: the path of the table.
        condition: says which rows of the table, ``t``, and of the batch, ``s``, match: ``"t.id = s.id"``.
        update_all, insert_all: set all columns of matched rows; insert rows without a match.
        update, insert: the same with some columns: expressions by column.
        delete: delete matched rows for which this condition is true; comes before the update.
        build: adds other clauses to the builder, after those above.
        schema_evolution: add columns that the table lacks.
        target_alias, source_alias: the names of table and batch in conditions and expressions.
        app_id: identifies batches instead of the query's ID.
        storage_options: credentials, region and endpoint of an object store.

        A batch that conflicts with another commit is merged again.  A batch that changes nothing creates no version.
        Raises ``InvalidArgumentError`` without clauses.

        >>> import trilake
        >>> _ = trilake.write([{"id": 1, "n": 1}], "lake/merged", mode="overwrite")
        >>> write = foreach_batch.merge("lake/merged", "t.id = s.id", update_all=True, insert_all=True, app_id="m")
        >>> write(spark.createDataFrame([(1, 10), (2, 20)], "id bigint, n bigint"), 0)
        >>> sorted(trilake.open("lake/merged").to_arrow()["n"].to_pylist())
        [10, 20]
        """
        _exclude("update_all and update", update_all and update is not None)
        _exclude("insert_all and insert", insert_all and insert is not None)
        for name, chosen in (("update", update), ("insert", insert)):
            if chosen is not None and not chosen:
                raise InvalidArgumentError(f"{name} must not be empty", help=f"leave it out, or pass {name}_all=True")
        if not (update_all or insert_all or update or insert or delete is not None or build):
            raise InvalidArgumentError(
                "the merge has no clauses", help="pass update_all=True, insert_all=True, or other clauses"
            )

        def describe(builder: DeltaMergeBuilder) -> DeltaMergeBuilder:
            if delete is not None:
                builder = builder.whenMatchedDelete(delete)
            if update_all:
                builder = builder.whenMatchedUpdateAll()
            elif update is not None:
                builder = builder.whenMatchedUpdate(set=update)
            if insert_all:
                builder = builder.whenNotMatchedInsertAll()
            elif insert is not None:
                builder = builder.whenNotMatchedInsert(values=insert)
            if build is not None:
                builder = build(builder)
            return builder.withSchemaEvolution() if schema_evolution else builder

        store = dict(storage_options or {})
        return MergeBatch(fspath(path), condition, describe, target_alias, source_alias, app_id, store)


def _exclude(names: str, both: bool) -> None:
    if both:
        raise InvalidArgumentError(f"{names} cannot be used together", help="pass one of them")
