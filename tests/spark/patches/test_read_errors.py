"""Spark's error messages for missing files of a trilake table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import SchemaMismatchError
from trilake.spark.patches.query_errors import damaged_file, missing_file, other_type
from trilake.spark.scan.frame_tables import note_root

_TEXT = (
    "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file"
    " {}. File does not exist. It is possible the underlying files have been updated."
)


def test_missing_file_of_a_table_is_named() -> None:
    note_root("file:///lake/a%20table%20")
    found = missing_file(_TEXT.format("file:///lake/a%20table%20/p=1/part-0.snappy.parquet"))
    assert found is not None
    assert found.context["file"] == "file:///lake/a%20table%20/p=1/part-0.snappy.parquet"
    assert len(str(found).splitlines()) == 1


def test_other_files_and_errors_are_left_to_spark() -> None:
    note_root("file:///lake/t")
    assert missing_file(_TEXT.format("file:/lake/t2/part-0.parquet")) is None
    assert missing_file("org.apache.spark.SparkException: cannot read file:/lake/t/part-0.parquet") is None


_DAMAGED = (
    "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file {}.  SQLSTATE"
)


def test_damage_of_a_file_is_described() -> None:
    note_root("file:///lake/t")
    text = _DAMAGED.format("file:///lake/t/part-0.parquet")
    cause = "java.lang.RuntimeException: file:/lake/t/part-0.parquet is not a Parquet file (length is too low: 0)"
    found = damaged_file(text, cause)
    assert found is not None
    assert found.message == "the Parquet file cannot be read: it is not a Parquet file (length is too low: 0)"
    assert found.context["file"] == "file:///lake/t/part-0.parquet"


def test_other_files_permissions_and_stores_are_left_to_spark() -> None:
    note_root("file:///lake/t")
    cause = "java.lang.RuntimeException: it is not a Parquet file"
    assert damaged_file(_DAMAGED.format("file:///lake/t2/part-0.parquet"), cause) is None
    ours = _DAMAGED.format("file:///lake/t/part-0.parquet")
    assert damaged_file(ours, "java.io.FileNotFoundException: /lake/t/part-0.parquet (Permission denied)") is None
    assert damaged_file(ours, "java.net.SocketTimeoutException: Read timed out") is None
    assert damaged_file(ours, "") is None


def test_file_with_another_column_type_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Collecting raised a py4j error with a Java stack trace."""
    place = tmp_path / "t"
    trilake.write(pa.table({"a": [1.5]}), place)
    (file,) = place.glob("*.parquet")
    pq.write_table(pa.table({"a": pa.array([1.5], pa.float32()).cast(pa.float16())}), file)
    trilake.register(spark)
    frame = spark.read.format("delta").load(str(place))
    with pytest.raises(
        SchemaMismatchError, match="cannot read FIXED_LEN_BYTE_ARRAY in a data file as double"
    ) as caught:
        frame.collect()
    assert caught.value.context["file"].endswith(file.name)
    assert caught.value.context["column"] == "a"
    if hasattr(frame, "toArrow"):
        with pytest.raises(SchemaMismatchError):
            frame.toArrow()


def test_messages_of_older_spark_releases() -> None:
    note_root("file:///lake/t")
    text = (
        "org.apache.spark.sql.execution.QueryExecutionException: Parquet column cannot be converted in file"
        " file:///lake/t/part-0.parquet. Column: [a], Expected: double, Found: FIXED_LEN_BYTE_ARRAY"
    )
    found = other_type(text)
    assert found is not None
    assert found.context["column"] == "a"
    assert other_type(text.replace("/lake/t/", "/lake/u/")) is None
