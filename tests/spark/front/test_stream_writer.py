"""``df.writeStream.toTable``: where the rows of a stream go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import trilake

_NAME = "stream_writer_t"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.register(spark)
    yield spark
    spark.sql(f"DROP TABLE IF EXISTS {_NAME}")


@pytest.mark.parametrize("format", ["delta", "lance"])
def test_the_place_of_a_table_that_a_stream_makes(session: SparkSession, tmp_path: Path, format: str) -> None:
    """A new table was made in the warehouse, whatever the path; one that was there got the rows of another place."""
    session.range(3).write.format("delta").save(str(tmp_path / "source"))
    rows = session.readStream.format("delta").load(str(tmp_path / "source"))

    def write(path: str) -> None:
        writer = rows.writeStream.format(format).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", path).trigger(availableNow=True).toTable(_NAME)
        query.awaitTermination()

    write(str(tmp_path / "here"))
    assert trilake.open(str(tmp_path / "here"), format=format).count() == 3
    with pytest.raises(AnalysisException, match="doesn't match the specified location"):
        write(str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()
    session.range(3, 5).write.format("delta").mode("append").save(str(tmp_path / "source"))
    write((tmp_path / "here").as_uri())
    assert session.table(_NAME).count() == 5
