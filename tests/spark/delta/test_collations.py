"""Collated columns: tables store no collations, and files are never skipped by collated comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trilake
from trilake import DeltaTable
from trilake.errors import InvalidArgumentError
from trilake.spark.session.compat import RELEASE

pytestmark = pytest.mark.skipif(RELEASE < (4, 0), reason="Spark knows no collations before 4.0")


@pytest.fixture
def collated(session: SparkSession) -> DataFrame:
    return session.createDataFrame([("a", 7)], "s string, i bigint").selectExpr("collate(s, 'UTF8_LCASE') AS s", "i")


def _table(place: Path) -> str:
    """A file for each of three strings."""
    for text in ("A", "a", "B"):
        trilake.write(pa.table({"s": [text], "i": [1]}), place, mode="append")
    return str(place)


def test_collations_are_not_stored(collated: DataFrame, tmp_path: Path) -> None:
    """It was lost: values equal in the DataFrame were not equal in the table."""
    new, uri = str(tmp_path / "new"), _table(tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match=r"collation UTF8_LCASE is not supported .*\(column: s"):
        collated.write.format("delta").save(new)
    for frame in (collated.withColumnRenamed("s", "z"), collated.selectExpr("i", "struct(s AS inner) AS z")):
        with pytest.raises(InvalidArgumentError, match="collation UTF8_LCASE"):
            frame.write.format("delta").mode("append").option("mergeSchema", "true").save(uri)
    for format in ("lance", "trevni"):
        with pytest.raises(InvalidArgumentError, match="collation UTF8_LCASE"):
            collated.write.format(format).save(str(tmp_path / format))
    collated.write.format("delta").mode("append").save(uri)  # the table decides how its column compares
    assert trilake.open(uri).count() == 4


def test_collations_in_the_log_are_read_as_bytes(session: SparkSession, tmp_path: Path) -> None:
    """Reading failed with a PySpark error about the version in the name."""
    uri = _table(tmp_path / "t")
    commit = tmp_path / "t/_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for meta in (a["metaData"] for a in actions if "metaData" in a):
        schema = json.loads(meta["schemaString"])
        schema["fields"][0]["metadata"] = {"__COLLATIONS": {"s": "icu.UNICODE_CI.75.1"}}
        meta["schemaString"] = json.dumps(schema)
    commit.write_text("\n".join(map(json.dumps, actions)) + "\n")
    for checksum in commit.parent.glob("*.crc"):
        checksum.unlink()
    frame = session.read.format("delta").load(uri)
    assert frame.schema["s"].dataType.simpleString() == "string"
    assert frame.where("s = 'a'").count() == trilake.open(uri).count("s = 'a'") == 1


def test_collated_merge_keys_skip_no_files(session: SparkSession, tmp_path: Path) -> None:
    """The row with ``A`` matches, and was not updated."""
    uri = _table(tmp_path / "t")
    source = session.createDataFrame([("a", 7)], "s string, i bigint")
    merge = DeltaTable.forPath(session, uri).alias("t").merge(source.alias("q"), "t.s = q.s COLLATE UTF8_LCASE")
    merge.whenMatchedUpdate(set={"i": "q.i"}).whenNotMatchedInsertAll().execute()
    assert sorted([*r.values()] for r in trilake.open(uri).to_arrow().to_pylist()) == [["A", 7], ["B", 1], ["a", 7]]
