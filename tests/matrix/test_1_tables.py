"""Tables without a session, and the calls of the module."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trilake
from tests.matrix.calls import Lake, since


def test_arrow(lake: Lake) -> None:
    """`trilake.write`, `open`, `alter`, `create` without Spark"""
    place = lake.path("arrow")
    assert trilake.write(pa.table({"n": [1, 2], "s": ["a", None]}), place).version == 0
    trilake.alter(place).add_constraint("positive", "n > 0")
    with pytest.raises(trilake.TrilakeError, match="positive"):
        trilake.write(pa.table({"n": [-1], "s": ["x"]}), place, mode="append")
    assert trilake.open(place).to_arrow(filter="n > 1").num_rows == 1
    trilake.create(lake.path("created"), {"id": "bigint", "day": "date"}, partition_by="day")
    for name in ("lance", "trevni"):
        trilake.write(pa.table({"n": [1, 2]}), lake.path(f"arrow-{name}"), format=name)
        assert trilake.open(lake.path(f"arrow-{name}")).count() == 2


def test_write(lake: Lake) -> None:
    """`trilake.write` of a DataFrame: plain, partitioned, schema evolution, `replace_where`"""
    place = lake.path("write")
    assert trilake.write(lake.rows(), place).rows_added == 100
    assert trilake.write(lake.rows(), lake.path("write-parts"), partition_by="k").files_added >= 5
    more = lake.rows(10, 100).selectExpr("*", "1 AS extra")
    trilake.write(more, place, mode="append", schema_mode="merge")
    trilake.write(lake.rows(5, 200).selectExpr("*", "2 AS extra"), place, mode="overwrite", replace_where="id >= 100")
    assert sorted(trilake.open(place).to_arrow(["id"]).column(0).to_pylist())[-6:] == [99, 200, 201, 202, 203, 204]
    assert trilake.write(lake.simple(3), lake.path("write-few")).rows_added == 3


def test_read(lake: Lake) -> None:
    """`trilake.read`, `trilake.explain`: all types, projection, filter, version"""
    place = lake.path("read")
    trilake.write(lake.rows(), place, partition_by="k")
    trilake.write(lake.rows(10, 100), place, mode="append")
    df = trilake.read(lake.spark, place)
    expected = {tuple(r) for r in lake.rows(110).selectExpr("id", "s", "f", "ts", "d", "dec", "even", "st.x").collect()}
    found = df.selectExpr("id", "s", "f", "ts", "d", "dec", "even", "st.x").collect()
    assert {tuple(r) for r in found} == expected
    assert trilake.read(lake.spark, place, version=0).count() == 100
    assert trilake.read(lake.spark, place, columns=["s"], filter="k = 3 AND id > 50").count() == 12
    assert trilake.read(lake.spark, place, filter=pa.compute.field("id") < 7).count() == 7
    assert "scan" in str(trilake.explain(lake.spark, place))


def test_deleted_rows(lake: Lake) -> None:
    """`trilake.read` of files with deletion vectors"""
    place = lake.path("vectors")
    trilake.write(lake.rows(), place, properties={"delta.enableDeletionVectors": "true"})
    trilake.DeltaTable.forPath(lake.spark, place).delete("id % 3 = 0")
    assert trilake.read(lake.spark, place).count() == 66
    assert trilake.read(lake.spark, place, filter="id < 10").count() == 6


def test_renamed_columns(lake: Lake) -> None:
    """`trilake.read` and `write` with column mapping, type widening, defaults and generated columns"""
    place = lake.path("mapped")
    trilake.write(lake.simple(), place, properties={"delta.columnMapping.mode": "name"})
    trilake.alter(place).rename_column("s", "text")
    assert trilake.read(lake.spark, place).where("text = '7'").count() == 1
    widened = lake.path("widened")
    names = {"a": "int", "b": "float", "c": "decimal(5, 1)", "d": "short", "e": "date"}
    trilake.create(widened, names, properties={"delta.enableTypeWidening": "true"})
    rows = [f"CAST(id AS {kind}) AS {name}" for name, kind in names.items() if kind != "date"]
    trilake.write(lake.spark.range(5).selectExpr(*rows, "DATE'2024-01-02' AS e"), widened, mode="append")
    wider = {"a": "bigint", "b": "double", "c": "decimal(12, 3)", "d": "int", "e": "timestamp_ntz"}
    for name, kind in wider.items():
        trilake.alter(widened).change_type(name, kind)
    sums = "sum(a) + sum(b) + sum(c) + sum(d)"
    read = trilake.read(lake.spark, widened).selectExpr(sums, "CAST(max(e) AS string)").collect()[0]
    assert (float(read[0]), read[1]) == (40.0, "2024-01-02 00:00:00")
    columns = {"id": "bigint", "twice": "bigint", "n": "int"}
    trilake.create(lake.path("generated"), columns, generated={"twice": "id * 2"}, defaults={"n": "7"})
    trilake.write(lake.spark.range(5), lake.path("generated"), mode="append")
    assert trilake.read(lake.spark, lake.path("generated")).selectExpr("sum(twice + n)").collect()[0][0] == 55


def test_other_formats(lake: Lake) -> None:
    """`trilake.write` and `read` of Lance, Trevni, and Delta tables with `data_format`"""
    for name in ("lance", "trevni"):
        place = lake.path(f"table-{name}")
        trilake.write(lake.simple(), place, format=name)
        trilake.write(lake.simple(50, 50), place, format=name, mode="append")
        assert trilake.read(lake.spark, place, columns=["s"], filter="id > 89").count() == 10
        trilake.write(lake.simple(), lake.path(f"delta-of-{name}"), data_format=name)
        assert trilake.read(lake.spark, lake.path(f"delta-of-{name}")).count() == 50


def test_convert(lake: Lake) -> None:
    """`trilake.convert` and `convert_to_delta` with Spark"""
    trilake.write(lake.simple(), lake.path("convert-source"))
    for name in ("lance", "trevni"):
        done = trilake.convert(
            lake.path("convert-source"), lake.path(f"converted-{name}"), format=name, spark=lake.spark
        )
        assert done.rows == 50
    lake.simple().write.parquet(lake.path("parquet"))
    trilake.convert_to_delta(lake.path("parquet"))
    assert trilake.read(lake.spark, lake.path("parquet")).count() == 50


@since(3, 5)
def test_transactions(lake: Lake) -> None:
    """`trilake.Transaction` and idempotent writes"""
    place = lake.path("txn")
    trilake.write(lake.simple(), place, txn=("app", 1))
    trilake.write(lake.simple(), place, mode="append", txn=("app", 1))
    assert trilake.open(place).count() == 50
