"""Texts of Spark's that say that a file of a table of ours is gone."""

from __future__ import annotations

from trilake.spark.front.read_errors import missing_file
from trilake.spark.native.roots import note_root

_TEXT = (
    "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file"
    " {}. File does not exist. It is possible the underlying files have been updated."
)


def test_a_file_of_a_table_that_was_read_is_named() -> None:
    note_root("file:///lake/a%20table%20")
    found = missing_file(_TEXT.format("file:///lake/a%20table%20/p=1/part-0.snappy.parquet"))
    assert found is not None
    assert found.context["file"] == "file:///lake/a%20table%20/p=1/part-0.snappy.parquet"
    assert len(str(found).splitlines()) == 1


def test_other_files_and_other_errors_are_spark_s() -> None:
    note_root("file:///lake/t")
    assert missing_file(_TEXT.format("file:/lake/t2/part-0.parquet")) is None
    assert missing_file("org.apache.spark.SparkException: cannot read file:/lake/t/part-0.parquet") is None
