"""Spark Connect: the same calls give the same rows, with native scans if the server can access the files.

In a separate process, because a process has either a classic or a Connect session.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connect_session import run_apart

_SCRIPT = """
import gc
import glob
import logging
import os
import sys
from datetime import timedelta
import pyarrow as pa
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession, functions as F
import trilake
from tests.connect_session import connect_session
from trilake.spark.catalog import named_tables
from trilake.spark.catalog import entries
from trilake.sql.spark.session import session

said = []
listener = logging.Handler(logging.WARNING)
listener.emit = lambda record: said.append(record.getMessage())
logging.getLogger("trilake").addHandler(listener)
path, vectors = sys.argv[1:]
spark = connect_session(**{"spark.sql.warehouse.dir": f"file:{path}-warehouse"})
assert type(spark).__module__.startswith("pyspark.sql.connect")
trilake.register(spark)

def truncate(file):
    os.truncate(file, 20)

def rows(df):
    return sorted(tuple(r) for r in df.collect())

trilake.write(spark.createDataFrame(pa.table({"n": [1, 2, 3], "p": ["a", "b", "b"]})), path, partition_by="p")
spark.sql("SELECT 4L AS n, 'c' AS p").write.format("delta").mode("append").save(path)
expected = [(1, "a"), (2, "b"), (3, "b"), (4, "c")]
table = trilake.DeltaTable.forPath(spark, path)
df = trilake.read(spark, path)
assert rows(df) == rows(table.toDF()) == rows(spark.read.format("delta").load(path)) == expected
assert rows(trilake.read(spark, path, version=0, filter="p = 'b'")) == expected[1:3]
assert "read by Spark's native scan" in str(table.explain())
plan = df._explain_string()
assert "FileScan parquet" in plan and "BatchScan" not in plan, plan
assert df.alias("l").join(table.toDF().alias("r"), F.expr("l.n = r.n")).count() == 4
aliased = table.toDF().alias("u").alias("v")
table.update(aliased["n"] == 4, {"p": F.concat(aliased["p"], F.lit(""))})
table.delete(table.toDF().alias("u")["n"] == 5)
merge = table.alias("t").merge(aliased.where("n = 6").alias("s"), F.col("t.n") == F.col("s.n"))
merge.whenMatchedDelete(table.toDF().alias("u")["p"] == "b").execute()
assert rows(table.toDF()) == expected

# What is made of a frame shows the newest rows; a frame that is cached, and one that is being written, stay.
again, other = path + "-again", spark.createDataFrame([(1, "x"), (3, "y")], "n long, o string")
trilake.write(pa.table({"n": [1, 2]}), again)
frame = spark.read.format("delta").load(again)
made = [
    frame.where(frame["n"] > 0),
    other.join(frame, "n").select("n"),
    frame.alias("l").join(frame.alias("r"), F.expr("l.n = r.n")).select("l.n"),
    frame.groupBy("n").agg(F.max("n")).select("n"),
    trilake.DeltaTable.forPath(spark, again).alias("t").toDF().where("t.n > 0"),
]
trilake.install(spark)
made[0].createOrReplaceTempView("again_view")
made.append(spark.sql("SELECT n FROM again_view"))
counts = [[2, 1, 2, 2, 2, 2], [3, 2, 3, 3, 3, 3]]
assert [len(rows(m)) for m in made] == counts[0]
trilake.write(pa.table({"n": [3], "more": [1]}), again, mode="append", schema_mode="merge")
assert [len(rows(m)) for m in made] == counts[1] and rows(frame) == [(1,), (2,), (3,)]
kept = spark.read.format("delta").load(again).cache()
also_kept = made[0].cache()
above = also_kept.where("n > 1")
assert (kept.count(), also_kept.count(), above.count()) == (3, 3, 2)
trilake.open(again).delete("n = 1")
used = (also_kept.count(), above.count(), also_kept.is_cached, frame.count())
assert used == (3, 2, True, 2), used
# The server remembers the files of its last five reads only.
for n in range(6):
    trilake.write(pa.table({"n": [n]}), again + "-other", mode="append")
    assert spark.read.format("delta").load(again + "-other").count() == n + 1
assert (kept.count(), also_kept.count(), above.count(), frame.count()) == (3, 3, 2, 2)
assert [t.name for t in spark.catalog.listTables() if "kept" in t.name] == []
assert (also_kept.unpersist().count(), above.count(), also_kept.is_cached) == (2, 2, False)
assert (kept.count(), kept.unpersist().count(), frame.where(frame["n"] > 1).count()) == (3, 2, 2)
assert made[3].cache().count() == 2
# Names of columns stay where rows are cached.
joined = frame.alias("l").join(frame.alias("r"), F.expr("l.n = r.n")).cache()
assert (joined.select("l.n", "r.n").count(), joined.is_cached) == (2, True)
files = frame.where("_metadata.file_name IS NOT NULL").alias("f").cache()
assert (files.count(), files.is_cached) == (2, True)
trilake.open(again).delete("n = 2")
assert made[3].count() == 2
spark.catalog.clearCache()
assert (made[3].count(), made[3].is_cached) == (1, False)
trilake.write(pa.table({"n": [2], "more": [1]}), again, mode="append")
made[0].write.format("delta").mode("overwrite").save(again)
assert sorted(trilake.open(again).to_arrow()["n"].to_pylist()) == [2, 3]
trilake.write(pa.table({"n": ["x"]}), again, mode="overwrite", schema_mode="overwrite")
for use in (made[1].collect, made[1].count, lambda: made[1].write.format("delta").save(path + "-not")):
    try:
        use()
    except AnalysisException as e:
        assert "from bigint to string" in str(e) and e.getCondition() == "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"
    else:
        raise AssertionError("a column of another type is shown")
trilake.uninstall(spark)

# A new name of the catalog is made with its columns, and no read of it by Spark.
frame = spark.createDataFrame([(1, "a")], "`n-1` int, p string")
for format in ("delta", "lance"):
    frame.write.format(format).saveAsTable(f"saved_{format}")
    assert rows(spark.table(f"saved_{format}")) == [(1, "a")]
assert [f.name for f in spark.catalog.listColumns("saved_delta")] == ["n-1", "p"]

# The name of an external table is made anew where its columns change, and stays where that fails.
def rejected(*args, **more):
    raise OSError("the catalog is gone")

def widened(column):
    frame = spark.sql(f"SELECT 1 AS n, 2 AS {column}")
    frame.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable("outside")

spark.sql("SELECT 1 AS n").write.format("delta").option("path", f"{path}-outside").saveAsTable("outside")
widened("a")
own, named_tables.make_entry = named_tables.make_entry, rejected
try:
    widened("b")
except OSError as e:
    assert "is gone" in str(e), e
else:
    raise AssertionError("the name was made")
named_tables.make_entry = own
assert [f.name for f in spark.catalog.listColumns("outside")] == ["n", "a"]
assert [t.name for t in spark.catalog.listTables() if t.name.startswith("outside")] == ["outside"]
assert spark.table("outside").count() == 3
spark.sql("DROP TABLE outside")

# A query of SQL keeps the frames that it names, however late it is asked for rows, and whatever is made of it.
trilake.install(spark)
query = spark.sql(f"SELECT n, p FROM delta.`{path}` WHERE n > :low", args={"low": 2})
joined = spark.sql(f"SELECT q.n, t.p FROM {{q}} q JOIN delta.`{path}` t USING (n)", q=query.where("n < 4"))
spark.sql(f"CREATE TEMPORARY VIEW seen AS SELECT n FROM delta.`{path}`")
assert rows(query) == expected[2:] and rows(joined) == expected[2:3] and query.columns == ["n", "p"]
trilake.write(pa.table({"n": [5], "p": ["c"]}), path, mode="append")
assert rows(spark.sql("SELECT count(*) FROM seen")) == [(5,)]
spark.range(2).createOrReplaceTempView("seen")
assert rows(spark.sql("SELECT count(*) FROM seen")) == [(2,)]
spark.catalog.dropTempView("seen")
if hasattr(spark, "newSession"):  # PySpark 4.1 or newer
    other = spark.newSession()
    spark.sql(f"SELECT * FROM delta.`{path}` WHERE n > 4").createGlobalTempView("global")
    other.table("global_temp.global").createTempView("seen")
    assert rows(other.sql("SELECT n FROM seen JOIN global_temp.global USING (n)")) == [(5,)]
    spark.catalog.dropGlobalTempView("global")
    other.client.close()
spark.sql(f"DELETE FROM delta.`{path}` WHERE n = 5")
for delete in (
    lambda: spark.sql(f"DELETE FROM delta.`{path}` WHERE rand() > 2"),
    lambda: table.delete("rand() > 2"),
):
    try:
        delete()
        raise AssertionError("a condition that is must be deterministic was taken")
    except AnalysisException as e:
        assert e.getCondition() == "INVALID_NON_DETERMINISTIC_EXPRESSIONS", e
assert not [t.name for t in spark.catalog.listTables() if "trilake" in t.name]
spark.sql("CREATE TABLE made (n BIGINT NOT NULL COMMENT 'it''s', s STRUCT<`x-y`: INT>) USING delta COMMENT 'why'")
spark.sql("INSERT INTO made VALUES (1, struct(2))")
assert rows(spark.sql("SELECT n, s.`x-y` FROM made")) == [(1, 2)]
spark.sql("CREATE TABLE files USING parquet AS SELECT n FROM made")
spark.sql("CREATE TABLE chosen USING lance AS SELECT n FROM files")
assert rows(spark.sql("SELECT * FROM chosen")) == [(1,)]
try:
    spark.sql("CREATE TABLE wrong USING delta AS SELECT raise_error('no') * 1L AS x FROM made").collect()
    raise AssertionError("the table was made")
except AssertionError:
    raise
except Exception:
    assert not spark.catalog.tableExists("wrong")
try:
    spark.sql("SELECT n FROM made WHERE nope = 1")
    raise AssertionError("the query was taken")
except AnalysisException as e:
    assert "line 1 pos 25" in str(e), e
try:
    spark.sql("CREATE VIEW stays AS SELECT * FROM made")
    raise AssertionError("the view was made")
except trilake.errors.UnsupportedSparkError:
    assert not spark.catalog.tableExists("stays")

# A permanent view that is not ours is Spark's business, and one over our table, of a classic session, is known.
spark.sql("CREATE VIEW plain (a, b) AS SELECT 1 AS x, 'it''s' AS y")
assert [r[0] for r in spark.sql("DESCRIBE TABLE plain").collect()] == ["a", "b"]
for of in ("DESCRIBE DETAIL", "OPTIMIZE", "VACUUM", "DELETE FROM", "TRUNCATE TABLE"):
    try:
        spark.sql(f"{of} plain").collect()
        raise AssertionError(f"{of} was taken")
    except (AttributeError, AssertionError):
        raise
    except Exception as e:
        assert "view" in str(e).lower() or "PARSE_SYNTAX_ERROR" in str(e) or "relation" in str(e), (of, e)
entry = entries.Entry("default", "plain", "VIEW")
entries.change_view(SparkSession._instantiatedSession, entry, f"SELECT n AS x,\\n p AS y FROM delta.`{path}`")
assert rows(spark.sql("SELECT a, b FROM plain")) == rows(spark.table("plain")) == expected

# Streams in queries, and a name that nothing is called by, where no row would tell.
for of in ("STREAM(made)", "STREAM made", f"STREAM delta.`{path}`", "STREAM(default.made) AS u"):
    assert spark.sql(f"SELECT n FROM {of}").isStreaming, of
spark.sql("CREATE TABLE bare (n BIGINT) USING delta")
try:
    trilake.DeltaTable.forName(spark, "bare").delete("nosuch = 1")
    raise AssertionError("the condition was taken")
except trilake.errors.FilterError as e:
    assert "column 'nosuch' not found" in str(e), e
spark.sql("DROP TABLE bare")

# Versions by Spark's other words and by any expression, whole tables, names of spark.read, rows without values.
first = min(trilake.open(path).history()["timestamp"].to_pylist())
moment = f"timestamp'{first - timedelta(seconds=1)}' + INTERVAL 1 SECOND"
for version in ("FOR SYSTEM_VERSION AS OF 0", f"TIMESTAMP AS OF {moment}", f"FOR SYSTEM_TIME AS OF ({moment})"):
    query = f"SELECT t.n FROM delta.`{path}` {version} t WHERE t.n > 1"
    assert rows(spark.sql(query)) == [(2,), (3,)], query
spark.sql("CREATE TABLE copied (n BIGINT, s STRUCT<`x-y`: INT>) USING delta")
spark.sql("INSERT INTO TABLE copied TABLE made")
assert rows(spark.read.table("copied")) == [(1, (2,))]
spark.sql("INSERT INTO copied VALUES (DEFAULT, DEFAULT), (DEFAULT, DEFAULT)")
spark.range(3).select().write.format("delta").mode("append").saveAsTable("copied")
assert spark.table("copied").count() == 6
assert not said, said  # what Connect cannot do is no surprise

# Without what PySpark has from 4.0 on, views stay as long as their queries.
session.CARRIES = False
query = spark.sql(f"SELECT n FROM delta.`{path}`").where("n = 1")
assert rows(query) == [(1,)]
trilake.open(path).delete("n = 1")
assert rows(query) == []
trilake.open(path).restore(trilake.open(path).version - 1)
assert rows(query) == [(1,)]
del query
gc.collect()
spark.sql(f"SELECT n FROM delta.`{path}`").collect()
gc.collect()
spark.sql("DROP TABLE made")
spark.sql(f"DELETE FROM delta.`{path}` WHERE n IN (SELECT n FROM delta.`{path}` WHERE n = 4)")
assert not [t.name for t in spark.catalog.listTables() if "trilake" in t.name]

# What stopped a query, and what is wrong with files, is said in a line.
trilake.write(spark.createDataFrame(pa.table({"n": [1]})), path + "-rows")
rows_of = spark.readStream.format("delta").load(path + "-rows").selectExpr("array(n) n", "'a' p")
stopped = rows_of.writeStream.format("delta").option("checkpointLocation", path + "-checkpoint").start(path)
for ask in (stopped.processAllAvailable, stopped.awaitTermination):
    try:
        ask()
        raise AssertionError("the rows were taken")
    except trilake.errors.SchemaMismatchError as e:
        assert isinstance(e, StreamingQueryException) and str(e).count("\\n") == 0 and stopped.id in str(e), e
assert isinstance(stopped.exception(), trilake.errors.SchemaMismatchError)
df = spark.read.format("delta").load(path + "-rows")
for harm, error in ((truncate, trilake.errors.CorruptFileError), (os.remove, trilake.errors.MissingFileError)):
    harm(glob.glob(path + "-rows/*.parquet")[0])
    try:
        df.collect()
        raise AssertionError("the rows were read")
    except error as e:
        assert str(e).count("\\n") == 0 and "part-" in str(e), e
# Sinks and sources run in a folder of the server's: places are those of this process.
os.makedirs(path + "-cwd")
os.chdir(path + "-cwd")
spark.range(3).write.format("delta").save("source")
read = spark.readStream.format("delta")
for stream in (read.load("source"), spark.readStream.format("delta").option("path", "source").load()):
    near = stream.writeStream.format("delta").option("checkpointLocation", "checkpoint").trigger(availableNow=True)
    near.start("copy").awaitTermination()
    assert trilake.open("copy").count() == 3 and os.path.isdir("checkpoint")
# The sink of a stream knows no zone but UTC: it made the day of another one.
spark.conf.set("spark.sql.session.timeZone", "America/New_York")
spark.sql(f"CREATE TABLE delta.`{path}-days` (t TIMESTAMP, d DATE GENERATED ALWAYS AS (CAST(t AS DATE))) USING delta")
trilake.write(spark.sql("SELECT TIMESTAMP'2024-06-01 23:30:00' t"), path + "-times")
days = spark.readStream.format("delta").load(path + "-times").writeStream.format("delta")
try:
    days.option("checkpointLocation", path + "-days-checkpoint").start(path + "-days")
    raise AssertionError("the stream was started")
except trilake.errors.UnsupportedExpressionError as e:
    assert "generated column d" in str(e), e
spark.conf.set("spark.sql.session.timeZone", "UTC")
if vectors:
    assert trilake.read(spark, vectors).count() == trilake.open(vectors).count()
print("all is well")
spark.stop()
"""


@pytest.mark.soak
def test_connect_session(tmp_path: Path, shared: Path) -> None:
    vectors = shared / "corpus" / "delta" / "golden" / "dv-partitioned-with-checkpoint" / "delta"
    # A soak test: the server takes half a minute to start on a busy machine.
    done = run_apart(_SCRIPT, str(tmp_path / "t"), str(vectors))
    assert done.stdout.endswith("all is well\n"), done.stderr[-3000:]
