"""``DeltaTable`` and its builders, and the jobs of Lance and Trevni."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import functions as F

import trilake
from tests.matrix.calls import Lake
from trilake import DeltaTable


def _table(lake: Lake, name: str, **properties: str) -> DeltaTable:
    trilake.write(lake.rows(), lake.path(name), properties=properties or None)
    return DeltaTable.forPath(lake.spark, lake.path(name))


def test_delete(lake: Lake) -> None:
    """`DeltaTable.delete`, with and without deletion vectors"""
    for vectors in ("true", "false"):
        table = _table(lake, f"delete-{vectors}", **{"delta.enableDeletionVectors": vectors})
        table.delete("id < 10")
        table.delete(F.col("s") == "77")
        assert table.toDF().count() == 89


def test_update(lake: Lake) -> None:
    """`DeltaTable.update`, with and without deletion vectors"""
    for vectors in ("true", "false"):
        table = _table(lake, f"update-{vectors}", **{"delta.enableDeletionVectors": vectors})
        table.update("id = 11", {"s": "'new'"})
        table.update(F.col("id") == 12, {"s": F.concat(F.col("s"), F.lit("!"))})
        found = {r[0] for r in table.toDF().where("id IN (11, 12)").select("s").collect()}
        assert found == {"new", "12!"}


def test_merge(lake: Lake) -> None:
    """`DeltaTable.merge`: update, insert, delete, by source, schema evolution"""
    for vectors in ("true", "false"):
        table = _table(lake, f"merge-{vectors}", **{"delta.enableDeletionVectors": vectors})
        source = lake.rows(20, 90).withColumn("s", F.lit("m"))
        (
            table.alias("t")
            .merge(source.alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.id = 95")
            .whenMatchedUpdate(set={"s": "s.s"})
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceDelete("t.id < 5")
            .execute()
        )
        assert table.toDF().count() == 104
        assert table.toDF().where("s = 'm'").count() == 19
    wide = lake.rows(1, 500).withColumn("more", F.lit(1))
    merge = table.alias("t").merge(wide.alias("s"), "t.id = s.id")
    merge.whenNotMatchedInsertAll().withSchemaEvolution().execute()
    assert table.toDF().where("more = 1").count() == 1


def test_merge_of_many(lake: Lake) -> None:
    """`DeltaTable.merge` of few rows into a large table"""
    trilake.write(lake.spark.range(200_000).selectExpr("id", "id AS v"), lake.path("large"))
    table = DeltaTable.forPath(lake.spark, lake.path("large"))
    source = lake.spark.range(199_990, 200_010).selectExpr("id", "-1L AS v")
    table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert table.toDF().where("v = -1").count() == 20
    assert table.toDF().count() == 200_010


def test_maintenance(lake: Lake) -> None:
    """`DeltaTable.history`, `detail`, `vacuum`, `generate`, `restoreToVersion`"""
    table = _table(lake, "maintenance")
    table.delete("id < 50")
    assert [r["operation"] for r in table.history().collect()] == ["DELETE", "WRITE"]
    assert table.detail().collect()[0]["numFiles"] >= 1
    table.generate("symlink_format_manifest")
    table.vacuum()
    table.restoreToVersion(0)
    assert table.toDF().count() == 100


def test_optimize(lake: Lake) -> None:
    """`DeltaTable.optimize`: compaction, Z-order, purge"""
    table = _table(lake, "optimize", **{"delta.enableDeletionVectors": "true"})
    trilake.write(lake.rows(100, 100), lake.path("optimize"), mode="append")
    table.optimize().executeCompaction().collect()
    table.optimize().executeZOrderBy("id").collect()
    table.delete("id = 3")
    table.optimize().executePurge().collect()
    assert table.toDF().count() == 199


def test_builder(lake: Lake) -> None:
    """`DeltaTable.createIfNotExists`, `replace`, `isDeltaTable`, `convertToDelta`, `addFeatureSupport`"""
    spark, place = lake.spark, lake.path("built")
    DeltaTable.createIfNotExists(spark).location(place).addColumn("id", "BIGINT").addColumn(
        "twice", "BIGINT", generatedAlwaysAs="id * 2"
    ).partitionedBy("id").execute()
    assert DeltaTable.isDeltaTable(spark, place)
    DeltaTable.replace(spark).location(place).addColumn("id", "BIGINT").clusterBy("id").execute()
    table = DeltaTable.forPath(spark, place)
    table.addFeatureSupport("deletionVectors")
    lake.simple().write.parquet(lake.path("to-convert"))
    DeltaTable.convertToDelta(spark, f"parquet.`{lake.path('to-convert')}`")
    assert DeltaTable.forPath(spark, lake.path("to-convert")).toDF().count() == 50


def test_clone(lake: Lake) -> None:
    """`DeltaTable.clone`, shallow and deep"""
    table = _table(lake, "cloned")
    for shallow in (True, False):
        table.clone(lake.path(f"clone-{shallow}"), isShallow=shallow)
        assert DeltaTable.forPath(lake.spark, lake.path(f"clone-{shallow}")).toDF().count() == 100


def test_lance_jobs(lake: Lake) -> None:
    """Lance in Spark's tasks: delete, update, compact, merge, vector index"""
    from trilake.lance.commands.merge_insert import MergeInsert
    from trilake.spark.lance import index_jobs, jobs, merge_job

    place = lake.path("lance-jobs")
    trilake.write(lake.simple(), place, format="lance")
    trilake.write(lake.simple(50, 50), place, format="lance", mode="append")
    jobs.delete(lake.spark, place, "id < 10")
    jobs.update(lake.spark, place, {"s": "'x'"}, "id = 20")
    what = MergeInsert(("id",), update=True, insert=True)
    merge_job.merge_insert(lake.spark, place, lake.simple(20, 90), "id", what)
    jobs.compact(lake.spark, place)
    assert trilake.open(place).count() == 100
    vectors = pa.array([[float(i), float(i % 7), 1.0, 2.0] for i in range(600)], pa.list_(pa.float32(), 4))
    trilake.write(pa.table({"id": range(600), "v": vectors}), lake.path("lance-vectors"), format="lance")
    index_jobs.create_index(lake.spark, lake.path("lance-vectors"), "v", num_partitions=2, num_sub_vectors=2)


def test_trevni_jobs(lake: Lake) -> None:
    """Trevni in Spark's tasks: Avro files to Trevni and back"""
    from trilake.spark.trevni import convert

    assert callable(convert.to_trevni)
    place = lake.path("trevni-parts")
    trilake.write(lake.rows().select("id", "k", "s"), place, format="trevni", partition_by="k")
    assert trilake.read(lake.spark, place, format="trevni", filter="k = 2").count() == 20
