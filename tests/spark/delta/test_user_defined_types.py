"""Columns of Spark's user-defined types: MLlib's vectors and matrices, and Python-only types."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.linalg import DenseMatrix, MatrixUDT, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.testing.objects import PythonOnlyPoint, PythonOnlyUDT

import trilake

SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("v", VectorUDT()),
        T.StructField("m", T.ArrayType(MatrixUDT())),
        T.StructField("s", T.StructType([T.StructField("p", PythonOnlyUDT())])),
    ]
)
DENSE, SPARSE = Vectors.dense([1.0, 2.0]), Vectors.sparse(4, [1], [5.0])
MATRIX = DenseMatrix(2, 2, [1.0, 2.0, 3.0, 4.0])
ROWS = [(1, DENSE, [MATRIX], (PythonOnlyPoint(1.0, 2.0),)), (2, SPARSE, None, None), (3, None, [], (None,))]
STRUCT = {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0]}


@pytest.fixture
def frame(sql: SparkSession) -> DataFrame:
    return sql.createDataFrame(ROWS, SCHEMA)


@pytest.fixture
def place(frame: DataFrame, tmp_path: Path) -> str:
    frame.coalesce(1).write.format("delta").save(str(tmp_path / "t"))
    return str(tmp_path / "t")


def _rows(sql: SparkSession, place: str) -> list[tuple[Any, ...]]:
    frame = sql.read.format("delta").load(place)
    assert frame.schema == SCHEMA
    return [tuple(tuple(v) if isinstance(v, T.Row) else v for v in row) for row in frame.orderBy("id").collect()]


def _logged(place: str) -> dict[str, Any]:
    lines = Path(place, "_delta_log", f"{0:020}.json").read_text().splitlines()
    metadata = next(a["metaData"] for a in map(json.loads, lines) if "metaData" in a)
    schema: dict[str, Any] = json.loads(metadata["schemaString"])
    return schema


def test_user_defined_types_round_trip(sql: SparkSession, place: str) -> None:
    assert _rows(sql, place) == ROWS
    assert _logged(place)["fields"][1]["type"] == VectorUDT().jsonValue()
    columns = trilake.open(place).to_arrow(["v", "m"]).to_pydict()
    assert columns["v"][0] == STRUCT
    assert columns["m"][0][0]["values"] == [1.0, 2.0, 3.0, 4.0]
    assert columns["v"][2] is None
    assert columns["m"][1:] == [None, []]
    assert trilake.open(place).count("v.size = 4") == 1
    assert trilake.verify(place).ok


def test_update_and_delete_keep_user_defined_types(sql: SparkSession, place: str) -> None:
    table = trilake.DeltaTable.forPath(sql, place)
    table.update("id = 1", {"id": "10", "m": "NULL"})
    table.delete("id = 3")
    assert _rows(sql, place) == [ROWS[1], (10, DENSE, None, ROWS[0][3])]


def test_merge_keeps_user_defined_types(sql: SparkSession, frame: DataFrame, place: str) -> None:
    source = frame.where("id < 3").withColumn("id", F.col("id") * 3)
    target = trilake.DeltaTable.forPath(sql, place).alias("t")
    clauses = target.merge(source.alias("s"), "t.id = s.id").whenMatchedUpdate(set={"v": "s.v"})
    clauses.whenNotMatchedInsertAll().execute()
    assert _rows(sql, place) == [ROWS[0], ROWS[1], (3, DENSE, *ROWS[2][2:]), (6, *ROWS[1][1:])]


def test_stream_keeps_user_defined_types(sql: SparkSession, place: str, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    stream = sql.readStream.format("delta").load(place).writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    stream.start(target).awaitTermination()
    assert _rows(sql, target) == ROWS


def test_rows_without_spark_are_written_to_user_defined_types(sql: SparkSession, place: str) -> None:
    rows = pa.table({"id": [4], "v": [{"values": [1.0, 2.0], "type": 1, "size": None, "indices": None}]})
    trilake.write(rows, place, mode="append")
    trilake.open(place).update(updates={"v": "NULL"}, where="id = 1")
    table = trilake.open(place)
    table.merge(table.to_arrow(filter="id = 2"), "target.id = source.id").when_matched_update_all().execute()
    copy = f"{place}-copy"
    trilake.write(trilake.open(place).to_arrow(), copy)
    expected = [(1, None, *ROWS[0][2:]), ROWS[1], ROWS[2], (4, DENSE, None, None)]
    assert _rows(sql, place) == expected == _rows(sql, copy)


def test_column_mapping_does_not_rename_fields_of_a_type(sql: SparkSession, frame: DataFrame, place: str) -> None:
    sql.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    sql.sql(f"ALTER TABLE delta.`{place}` RENAME COLUMN v TO w")
    frame.withColumnRenamed("v", "w").where("id = 1").write.format("delta").mode("append").save(place)
    read = sql.read.format("delta").load(place).where("id = 1").select("w").collect()
    assert [row.w for row in read] == [DENSE, DENSE]
    assert trilake.open(place).to_arrow(["w"], "id = 1")["w"].to_pylist() == [STRUCT, STRUCT]


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)

    def __init__(self, path: Path) -> None:
        self.path = str(path)


def test_pickled_class_is_not_loaded_without_spark(tmp_path: Path) -> None:
    trilake.write({"id": [1], "p": [[1.0, 2.0]]}, tmp_path / "t")
    log, touched = tmp_path / "t" / "_delta_log" / f"{0:020}.json", tmp_path / "touched"
    pickled = base64.b64encode(pickle.dumps(_Trap(touched))).decode()
    kind = {**PythonOnlyUDT().jsonValue(), "serializedClass": pickled}
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][1]["type"] = kind
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("".join(json.dumps(a) + "\n" for a in actions))
    trilake.write({"id": [2], "p": [[3.0, 4.0]]}, tmp_path / "t", mode="append")
    trilake.open(tmp_path / "t").update(updates={"id": "id + 1"})
    assert sorted(trilake.open(tmp_path / "t").to_arrow()["p"].to_pylist()) == [[1.0, 2.0], [3.0, 4.0]]
    assert trilake.verify(tmp_path / "t").ok
    assert not touched.exists()
    pickle.loads(base64.b64decode(pickled))
    assert touched.exists()
