"""Spark Connect: the same calls with the same rows, and scans that are Spark's own where the server sees the files.

In a process of its own, because a process has either a classic session or a Connect one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trilake.spark.session.java import ensure_java

_SCRIPT = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
import trilake

path, vectors = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
trilake.register(spark)

def rows(df):
    return sorted(tuple(r) for r in df.collect())

trilake.write(spark.createDataFrame(pa.table({"n": [1, 2, 3], "p": ["a", "b", "b"]})), path, partition_by="p")
spark.sql("SELECT 4L AS n, 'c' AS p").write.format("delta").mode("append").save(path)
wanted = [(1, "a"), (2, "b"), (3, "b"), (4, "c")]
table = trilake.DeltaTable.forPath(spark, path)
df = trilake.read(spark, path)
assert rows(df) == rows(table.toDF()) == rows(spark.read.format("delta").load(path)) == wanted
assert rows(trilake.read(spark, path, version=0, filter="p = 'b'")) == wanted[1:3]
assert "read by Spark's native scan" in str(table.explain())
plan = df._explain_string()
assert "FileScan parquet" in plan and "BatchScan" not in plan, plan
assert df.alias("l").join(table.toDF().alias("r"), F.expr("l.n = r.n")).count() == 4
if vectors:
    assert trilake.read(spark, vectors).count() == trilake.open(vectors).count()
print("all is well")
spark.stop()
"""


@pytest.mark.soak
def test_a_connect_session(tmp_path: Path, shared: Path) -> None:
    ensure_java()
    vectors = shared / "corpus" / "delta" / "golden" / "dv-partitioned-with-checkpoint" / "delta"
    # A soak test: the server alone takes half a minute to start where the machine is busy.
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "t"), str(vectors)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.endswith("all is well\n"), done.stderr[-3000:]
