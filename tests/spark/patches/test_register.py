"""``register`` for a session and for sessions derived from it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trilake

FORMATS = ("delta", "lance", "trevni")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table of each format, under its name."""
    for format in FORMATS:
        trilake.write(pa.table({"id": [1, 2, 3]}), tmp_path / format, format=format)
    return tmp_path


def test_new_session_needs_no_second_register(session: SparkSession, lake: Path) -> None:
    new = session.newSession().newSession()
    assert not {name for name in FORMATS if new.readStream.format(name).load(str(lake / name)).columns != ["id"]}
    new.sql(f"CREATE TEMPORARY VIEW registered_view USING delta OPTIONS (path '{lake / 'delta'}')")
    assert new.table("registered_view").count() == 3
    try:
        session.range(3).write.format("lance").saveAsTable("registered_name")
        assert session.newSession().table("registered_name").count() == 3
    finally:
        session.sql("DROP TABLE IF EXISTS registered_name")


def test_streams_of_a_foreign_session_find_the_formats(session: SparkSession, lake: Path) -> None:
    # As created by JVM libraries, and by Spark for streaming batches.
    other = SparkSession(session.sparkContext, session._jsparkSession.newSession())
    rows = other.readStream.format("delta").load(str(lake / "delta"))
    writer = rows.writeStream.format("lance").option("checkpointLocation", str(lake / "checkpoint"))
    writer.trigger(availableNow=True).start(str(lake / "copy")).awaitTermination()
    assert trilake.open(lake / "copy").count() == 3
