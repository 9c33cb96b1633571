"""Messages of a query that a trilake error stopped."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import trilake
from trilake.errors import SchemaMismatchError
from trilake.spark.patches.query_errors import stopped_by

_ID = "a53e46c3-38b0-4584-bd38-6f79d262e6de"
_TEXT = (
    f"org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = {_ID}, runId = {_ID[::-1]}]"
    " terminated with exception: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most"
    ' recent call last):\n  File "source.py", line 315, in write\n    return self.job.write(iterator)\n'
)


def test_trilake_error_is_extracted_from_the_traceback() -> None:
    found = stopped_by(f"{_TEXT}trilake.errors.SchemaMismatchError: [SCHEMA_MISMATCH] no. Help: cast\n SQLSTATE: 38000")
    assert isinstance(found, SchemaMismatchError)
    assert str(found) == f"[SCHEMA_MISMATCH] no (query: {_ID}). Help: cast"


def test_error_of_a_format_class_is_extracted() -> None:
    from trilake.lance.file.errors import RowsDoNotFitError

    found = stopped_by(f"{_TEXT}trilake.lance.file.errors.RowsDoNotFitError: [SCHEMA_MISMATCH] a null would be lost\n")
    assert type(found) is RowsDoNotFitError


def test_other_errors_are_left_to_spark() -> None:
    assert stopped_by(f"{_TEXT}ZeroDivisionError: integer division or modulo by zero\n SQLSTATE: 38000") is None
    assert stopped_by(f"{_TEXT}java.io.FileNotFoundException: /elsewhere/part-0.parquet") is None


def test_query_stopped_in_a_batch_has_not_failed(spark: SparkSession, tmp_path: Path) -> None:
    """``query.awaitTermination()`` raised the error of the interrupted job, unlike with Spark's sinks."""
    trilake.write(spark.range(1), tmp_path / "out")

    def write(batch: DataFrame, number: int) -> None:
        slow = batch.sparkSession.range(1).selectExpr("id", "reflect('java.lang.Thread', 'sleep', 20000L) AS slept")
        trilake.write(slow, tmp_path / "out", mode="append", schema_mode="merge")

    stream = spark.readStream.format("rate").load()
    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    jobs = spark.sparkContext.statusTracker()
    while not jobs.getJobIdsForGroup(str(query.runId)) and query.isActive:
        time.sleep(0.05)
    time.sleep(0.5)
    query.stop()
    assert query.awaitTermination(10)
    assert query.exception() is None
    assert trilake.open(tmp_path / "out").version == 0
