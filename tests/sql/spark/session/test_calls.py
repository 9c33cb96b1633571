"""SQL calls the JVM and reads the log little more often than the Python API, and hardly ever for statements without
table of trilake.

Counts instead of times, because counts are the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import trilake
from trilake import DeltaTable
from trilake.delta.log.log import DeltaLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAIN = """\
WITH bounds AS (SELECT min(v) AS low FROM new_rows), -- delta.`/no/table`
named AS (SELECT id, v LIKE '%delta%' AS named FROM new_rows n, bounds WHERE id > 0 /* merge into nothing */)
SELECT count(*) FROM named JOIN new_rows ON named.id = new_rows.id LEFT JOIN bounds ON true"""


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    spark.createDataFrame([(1, "x"), (5, "y")], "id long, v string").createOrReplaceTempView("new_rows")
    yield spark
    spark.catalog.dropTempView("new_rows")
    trilake.uninstall(spark)


@pytest.fixture
def counted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], Counter[str]]:
    """Counts JVM calls and log reads of an action, in its second run, when everything is loaded."""
    seen: Counter[str] = Counter()
    client: Any = type(spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]
    send, segment = client.send_command, DeltaLog.segment

    def sent(self: Any, command: str, *args: Any, **more: Any) -> Any:
        seen["calls"] += not command.startswith("m\nd\n")  # objects that Python no longer needs
        return send(self, command, *args, **more)

    def looked(self: DeltaLog, *args: Any, **more: Any) -> Any:
        seen["looks"] += 1
        return segment(self, *args, **more)

    monkeypatch.setattr(client, "send_command", sent)
    monkeypatch.setattr(DeltaLog, "segment", looked)

    def count(action: Callable[[], object]) -> Counter[str]:
        action()
        seen.clear()
        action()
        return Counter(seen)

    return count


def test_sql_makes_few_more_jvm_calls_than_python(
    sql: SparkSession, tmp_path: Path, counted: Callable[[Callable[[], object]], Counter[str]]
) -> None:
    for name in "ab":
        sql.table("new_rows").write.format("delta").save(f"{tmp_path}/{name}")
    one, two = f"{tmp_path}/a", f"delta.`{tmp_path}/b`"

    def select() -> object:
        return sql.read.format("delta").load(one).groupBy("v").count().collect()

    def insert() -> object:
        return sql.table("new_rows").write.format("delta").mode("append").save(one)

    def inserted() -> object:
        return sql.sql(f"INSERT INTO {two} SELECT * FROM new_rows")

    def selected() -> object:
        return sql.sql(f"SELECT v, count(*) FROM {two} GROUP BY v").collect()

    for api, text in ((insert, inserted), (select, selected)):
        expected, found = counted(api), counted(text)
        assert found["looks"] == expected["looks"]
        # The cost of parsing and name resolution, in addition to the calls for the rows (30 for this SELECT), and
        # the question whether it is a stream.
        assert found["calls"] <= expected["calls"] + 17


@pytest.mark.soak
def test_merge_by_sql_makes_the_jvm_calls_of_python(
    sql: SparkSession, tmp_path: Path, counted: Callable[[Callable[[], object]], Counter[str]]
) -> None:
    for name in "ab":
        sql.table("new_rows").write.format("delta").save(f"{tmp_path}/{name}")

    def merge() -> object:
        target = DeltaTable.forPath(sql, f"{tmp_path}/a").alias("t")
        return target.merge(sql.table("new_rows").alias("s"), "t.id = s.id").whenMatchedUpdateAll().execute()

    text = f"MERGE INTO delta.`{tmp_path}/b` t USING new_rows s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    expected, found = counted(merge), counted(lambda: sql.sql(text))
    assert found["looks"] <= expected["looks"]
    assert found["calls"] <= 1.05 * expected["calls"]


def test_jvm_calls_of_a_statement_without_trilake_tables(
    sql: SparkSession, counted: Callable[[Callable[[], object]], Counter[str]]
) -> None:
    installed = counted(lambda: sql.sql(_PLAIN))["calls"]
    trilake.uninstall(sql)
    assert installed <= counted(lambda: sql.sql(_PLAIN))["calls"] + 2
