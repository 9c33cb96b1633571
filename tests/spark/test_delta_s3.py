"""Delta tables on S3 through Spark without an S3 file system: rows are transferred as Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

import trilake


def test_dataframes_round_trip_on_s3(spark: SparkSession, s3_options: Mapping[str, str]) -> None:
    uri = "s3://lake/spark/t"
    df = spark.range(10).selectExpr("id", "id % 2 AS p")
    trilake.write(df, uri, partition_by="p", storage_options=s3_options)
    back = trilake.read(spark, uri, filter="p = 1", columns=["id"], storage_options=s3_options)
    assert sorted(r.id for r in back.collect()) == [1, 3, 5, 7, 9]
    trilake.register(spark)
    df.write.format("delta").mode("append").options(**s3_options).save(uri)
    assert spark.read.format("delta").options(**s3_options).load(uri).count() == 20
    assert trilake.DeltaTable.forPath(spark, uri, dict(s3_options)).detail().collect()[0].numFiles == 8


def test_names_of_tables_on_s3(spark: SparkSession, s3_options: Mapping[str, str]) -> None:
    """A write by name takes its credentials from options, and creates the name first."""
    trilake.register(spark)
    uri = "s3://lake/spark/named"
    df = spark.range(10).selectExpr("id", "id % 2 AS p")
    df.write.format("delta").options(**s3_options).option("path", uri).saveAsTable("on_s3")
    df.write.format("delta").mode("append").options(**s3_options).saveAsTable("on_s3")
    df.writeTo("on_s3_too").using("delta").options(**s3_options).option("path", uri + "2").create()
    df.writeTo("on_s3_too").options(**s3_options).append()
    assert trilake.open(uri, storage_options=s3_options).count() == 20
    assert trilake.open(uri + "2", storage_options=s3_options).count() == 20
    # Without credentials nothing is written, and no name is left.
    for name, save in (("lost", "saveAsTable"), ("lost_too", "create")):
        try:
            if save == "saveAsTable":
                df.write.format("delta").option("path", "s3://nowhere-at-all/t").options(**_REJECTED).saveAsTable(name)
            else:
                df.writeTo(name).using("delta").option("path", "s3://nowhere-at-all/t").options(**_REJECTED).create()
        except trilake.TrilakeError:
            assert not spark.catalog.tableExists(name)
        else:
            raise AssertionError("a write without a store went well")
    for name in ("on_s3", "on_s3_too"):
        spark.sql(f"DROP TABLE {name}")


_REJECTED = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "allow_http": "true", "max_retries": "0", "retry_timeout": "1s"}


def _hadoop(s3_options: Mapping[str, str]) -> dict[str, str]:
    """The options under Hadoop's names."""
    return {
        "fs.s3a.access.key": s3_options["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": s3_options["AWS_SECRET_ACCESS_KEY"],
        "fs.s3a.endpoint": s3_options["AWS_ENDPOINT_URL"],
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }


def _query(progress: str) -> Any:
    """A finished streaming query."""
    return SimpleNamespace(lastProgress=SimpleNamespace(json=progress))


def test_credentials_come_from_the_session(spark: SparkSession, s3_options: Mapping[str, str]) -> None:
    """The session's Hadoop settings apply to reads, writes, commands and names."""
    settings = _hadoop(s3_options)
    trilake.register(spark)
    df = spark.range(10).selectExpr("id", "id % 2 AS p")
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        trilake.write(df, "s3a://lake/spark/conf")
        df.write.format("delta").mode("append").save("s3a://lake/spark/conf")
        assert trilake.read(spark, "s3a://lake/spark/conf").count() == 20
        assert spark.read.format("delta").load("s3a://lake/spark/conf").count() == 20
        trilake.DeltaTable.forPath(spark, "s3a://lake/spark/conf").delete("p = 0")
        assert trilake.stream_lag(_query('{"sources": []}'), "s3a://lake/spark/conf") == []
        df.write.format("delta").option("path", "s3a://lake/spark/conf-named").saveAsTable("conf_named")
        assert trilake.DeltaTable.forName(spark, "conf_named").toDF().count() == 10
        assert spark.table("conf_named").count() == 10
        spark.sql("DROP TABLE conf_named")
    finally:
        for key in settings:
            spark.conf.unset(key)
    assert trilake.open("s3://lake/spark/conf", storage_options=s3_options).count() == 10


def test_credentials_of_sql_come_from_the_session(spark: SparkSession, s3_options: Mapping[str, str]) -> None:
    """The session's Hadoop settings apply to statements of every kind."""
    settings = _hadoop(s3_options)
    table, other, lance = "delta.`s3a://lake/spark/sql`", "delta.`s3a://lake/spark/sql2`", "lance.`s3a://lake/spark/l`"
    trilake.install(spark)
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        spark.sql(f"CREATE TABLE {table} (id BIGINT, s STRING) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
        spark.sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT c CHECK (id > 0)")
        spark.sql(f"UPDATE {table} SET s = 'x' WHERE id = 2")
        spark.sql(f"DELETE FROM {table} WHERE id = 3")
        spark.sql(
            f"MERGE INTO {table} t USING (SELECT 9L AS id, 'm' AS s) v ON t.id = v.id WHEN NOT MATCHED THEN INSERT *"
        )
        spark.sql(f"OPTIMIZE {table}")
        spark.sql("CREATE TABLE sql_on_s3 USING delta LOCATION 's3a://lake/spark/sql'")
        assert sorted(tuple(r) for r in spark.sql("SELECT * FROM sql_on_s3").collect()) == [
            (1, "a"),
            (2, "x"),
            (9, "m"),
        ]
        assert spark.sql("SELECT count(*) FROM table_changes('sql_on_s3', 1)").collect()[0][0] == 7
        spark.sql("DROP TABLE sql_on_s3")
        spark.sql(f"CREATE TABLE {other} DEEP CLONE {table}")
        spark.sql(f"CREATE TABLE {lance} AS SELECT * FROM {other} WHERE id > 1")
        spark.sql(f"DELETE FROM {lance} WHERE id = 9")
        assert [tuple(r) for r in spark.sql(f"SELECT * FROM {lance}").collect()] == [(2, "x")]
    finally:
        for key in settings:
            spark.conf.unset(key)
        trilake.uninstall(spark)
    assert trilake.open("s3://lake/spark/sql2", storage_options=s3_options).count() == 3
