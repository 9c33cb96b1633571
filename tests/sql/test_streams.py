"""``STREAM t`` in a query reads a table as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import trilake
from trilake.errors import InvalidArgumentError
from trilake.spark.session.compat import RELEASE

pytestmark = pytest.mark.skipif(RELEASE < (4, 0), reason="this release has no streams in SQL")


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.sql("CREATE TABLE streamed_t USING delta AS SELECT id FROM range(3)")
    yield spark
    spark.sql("DROP TABLE streamed_t")
    trilake.uninstall(spark)


def test_stream_table_in_a_query(session: SparkSession, tmp_path: Path) -> None:
    """It was a batch DataFrame, or a syntax error."""
    place = session.sql("DESCRIBE DETAIL streamed_t").collect()[0].location
    for name in (
        "STREAM(streamed_t)",
        "STREAM streamed_t",
        f"STREAM delta.`{place}`",
        "STREAM(default.streamed_t) AS u",
    ):
        assert session.sql(f"SELECT id + 1 AS n FROM {name}").isStreaming, name
    rows = session.sql("SELECT s.id * 2 AS twice FROM STREAM(streamed_t) AS s WHERE s.id > 0")
    stream = rows.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "c"))
    stream.trigger(availableNow=True).start(str(tmp_path / "t")).awaitTermination()
    assert sorted(r.twice for r in session.read.format("delta").load(str(tmp_path / "t")).collect()) == [2, 4]
    with pytest.raises(InvalidArgumentError, match="a stream cannot read a fixed version"):
        session.sql(f"SELECT * FROM STREAM(delta.`{place}@v0`)")
