"""Delta tables on S3 through Spark, whose PySpark has no file system for it: rows travel as Arrow."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

import trilake


def test_dataframes_to_s3_and_back(spark: SparkSession, s3_options: Mapping[str, str]) -> None:
    uri = "s3://lake/spark/t"
    df = spark.range(10).selectExpr("id", "id % 2 AS p")
    trilake.write(df, uri, partition_by="p", storage_options=s3_options)
    back = trilake.read(spark, uri, filter="p = 1", columns=["id"], storage_options=s3_options)
    assert sorted(r.id for r in back.collect()) == [1, 3, 5, 7, 9]
    trilake.register(spark)
    df.write.format("delta").mode("append").options(**s3_options).save(uri)
    assert spark.read.format("delta").options(**s3_options).load(uri).count() == 20
    assert trilake.DeltaTable.forPath(spark, uri, dict(s3_options)).detail().collect()[0].numFiles == 8
