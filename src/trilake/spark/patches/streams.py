"""``trilake.write_stream`` and ``trilake.stream_lag``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame, SparkSession

from trilake.delta.log.log import DeltaLog
from trilake.errors import InvalidArgumentError, UnsupportedSparkError
from trilake.spark.patches.foreach_batch import foreach_batch
from trilake.spark.session.compat import is_connect
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.settings import session_options
from trilake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def write_stream(
    df: DataFrame,
    path: str | PathLike[str],
    *,
    checkpoint: str | PathLike[str],
    output_mode: Literal["append", "complete"] = "append",
    partition_by: str | Sequence[str] | None = None,
    merge_schema: bool = False,
    properties: Mapping[str, str] | None = None,
    query_name: str | None = None,
    available_now: bool = False,
    processing_time: str | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Write a streaming DataFrame to a Delta table, every row exactly once, and return the running query.

    It does more than ``df.writeStream.format("delta")``: the rows go through :func:`trilake.write`, so generated
    columns and constraints may have expressions that only Spark evaluates, and optimized writes work.

    Parameters
    ----------
    df: a streaming DataFrame.
    path: the path of the table.
    checkpoint: the folder of the query's checkpoint, which identifies the query: each query needs its own.
    output_mode: ``append``, or ``complete`` to replace all rows with each batch.
    partition_by, properties: partition columns and properties of a new table.
    merge_schema: add columns that the table lacks.
    query_name: the query's name in the session.
    available_now: read the available rows, in batches within the limits, and stop.
    processing_time: how often to look for new data, such as ``"10 seconds"``.
    user_metadata: a string to store in each commit.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``InvalidArgumentError`` for a DataFrame that is not a stream, and ``UnsupportedSparkError`` on Spark
    Connect.

    >>> import trilake
    >>> _ = trilake.write(spark.range(3), "lake/raw", mode="overwrite")
    >>> rows = spark.readStream.format("delta").load("lake/raw")
    >>> query = write_stream(rows, "lake/copy", checkpoint="lake/checkpoints/copy", available_now=True)
    >>> query.awaitTermination()
    >>> trilake.open("lake/copy").count()
    3
    """
    if is_connect(df.sparkSession):
        raise UnsupportedSparkError(
            "over Spark Connect, trilake cannot find the query of a batch",
            help='use df.writeStream.format("delta"), or trilake.foreach_batch with an app_id',
        )
    if not df.isStreaming:
        raise InvalidArgumentError("the DataFrame is not a stream", help="use trilake.write")
    if output_mode not in ("append", "complete"):
        raise InvalidArgumentError(
            f"output_mode must be append or complete, got {output_mode!r}",
            help="update rows with trilake.foreach_batch.merge",
        )
    if available_now and processing_time is not None:
        raise InvalidArgumentError("available_now and processing_time cannot be used together", help="pass one of them")
    how: dict[str, Any] = {
        "partition_by": partition_by,
        "merge_schema": merge_schema,
        "properties": properties,
        "user_metadata": user_metadata,
        "storage_options": storage_options,
    }
    write = foreach_batch.append(path, **how) if output_mode == "append" else foreach_batch.overwrite(path, **how)
    stream = df.writeStream.outputMode(output_mode).option("checkpointLocation", fspath(checkpoint)).foreachBatch(write)
    if query_name is not None:
        stream = stream.queryName(query_name)
    if available_now:
        stream = stream.trigger(availableNow=True)
    elif processing_time is not None:
        stream = stream.trigger(processingTime=processing_time)
    return stream.start()


@dataclass(frozen=True)
class StreamLag:
    """How far a query is behind one of its sources.

    ``version`` is the newest version whose rows were all read, -1 if there is none; ``newest`` is the source's newest
    version; ``versions`` is how many are left.  While the first snapshot is read, all of that counts as one version.
    """

    table_id: str
    version: int
    newest: int

    @property
    def versions(self) -> int:
        """Versions that are still to be read."""
        return max(0, self.newest - self.version)


def stream_lag(
    query: StreamingQuery, path: str | PathLike[str] | None = None, *, storage_options: Mapping[str, str] | None = None
) -> list[StreamLag]:
    """Return how many versions ``query`` has yet to read: one entry for each of its Delta sources.

    The versions come from the query's last progress, so they are as old as the last trigger.  With ``path``, only the
    source at that location counts, and its newest version is looked up with ``storage_options`` and the session's
    settings for the store.

    For a query without progress, the list is empty.

    >>> import trilake
    >>> _ = trilake.write(spark.range(3), "lake/lag", mode="overwrite")
    >>> rows = spark.readStream.format("delta").load("lake/lag")
    >>> query = write_stream(rows, "lake/lag-copy", checkpoint="lake/checkpoints/lag", available_now=True)
    >>> query.awaitTermination()
    >>> _ = trilake.write(spark.range(3), "lake/lag", mode="append")
    >>> [lag.versions for lag in stream_lag(query, "lake/lag")]
    [1]
    """
    progress = query.lastProgress
    if progress is None:
        return []
    newest: int | None = None
    table_id: str | None = None
    if path is not None:
        spark = SparkSession.getActiveSession()
        options = storage_options if spark is None else session_options(spark, path, storage_options)
        head = DeltaLog(open_store(path, dict(options or {})), spark_engine()).head()
        newest, table_id = head.version, head.metadata.id
    return [
        lag
        for source in json.loads(progress.json).get("sources", [])
        if (lag := _lag(source, newest)) is not None and table_id in (None, lag.table_id)
    ]


def _lag(source: Mapping[str, Any], newest: int | None) -> StreamLag | None:
    end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
    if end is None:
        return None
    version = int(end["reservoirVersion"]) - 1
    if newest is None:
        newest = version if latest is None else int(latest["reservoirVersion"]) - 1
    return StreamLag(str(end["reservoirId"]), version, newest)


def _offset(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return None
    return value if isinstance(value, dict) and "reservoirVersion" in value else None
