"""Spark jobs that convert row-major files to Trevni and back."""

from __future__ import annotations

from pathlib import Path

import fastavro
import pytest
from pyspark.sql import SparkSession

from tests.trevni.mappings.test_avro_files import USER, USERS, container
from trilake.errors import CorruptFileError, InvalidArgumentError, TableExistsError, TableNotFoundError
from trilake.spark.trevni.convert import from_trevni, to_trevni
from trilake.trevni import TrevniFile, TrevniTable
from trilake.trevni.mappings.avro import read_avro


@pytest.fixture
def avro(tmp_path: Path) -> Path:
    """Three Avro files in two partition folders."""
    folder = tmp_path / "avro"
    for i, part in enumerate(["day=1/a", "day=1/b", "day=2/c"]):
        path = folder / f"{part}.avro"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(container(USERS * (i + 1), USER))
    return folder


def records(folder: Path) -> list[object]:
    found = []
    for path in sorted(folder.rglob("*.avro")):
        with path.open("rb") as file:
            found.append((path.parent.name, list(fastavro.reader(file))))
    return found


def test_avro_round_trip(spark: SparkSession, avro: Path, tmp_path: Path) -> None:
    target, again = tmp_path / "trevni", tmp_path / "again"
    done = to_trevni(spark, str(avro), str(target), format="avro", properties={"codec": "deflate"})
    assert (done.files_added, done.rows_added) == (3, 12)
    assert [p.parent.name for p in sorted(target.rglob("*.trv"))] == ["day=1", "day=1", "day=2"]
    first = TrevniFile(min(target.rglob("*.trv")))
    assert first.metadata["trevni.codec"] == b"deflate"
    assert next(iter(read_avro(first)))["mail"] is None
    assert TrevniTable(target).count("day = 1") == 6
    assert not (target / "_staged").exists()
    done = from_trevni(spark, str(target), str(again), format="avro")
    assert done is not None
    assert done.rows_added == 12
    assert records(again) == records(avro)
    with pytest.raises(TableExistsError):
        to_trevni(spark, str(avro), str(target), format="avro")
    to_trevni(spark, str(avro), str(target), format="avro", mode="append")
    assert TrevniTable(target).count() == 24
    to_trevni(spark, str(avro / "day=2"), str(target), format="avro", mode="overwrite")
    assert TrevniTable(target).count() == 6


def test_unconvertible_file_leaves_nothing(spark: SparkSession, avro: Path, tmp_path: Path) -> None:
    target = tmp_path / "trevni"
    to_trevni(spark, str(avro), str(target), format="avro")
    (avro / "day=2" / "bad.avro").write_bytes(b"Obj\x01no")
    for mode in ("append", "overwrite"):
        with pytest.raises(CorruptFileError, match=r"bad\.avro"):
            to_trevni(spark, str(avro), str(target), format="avro", mode=mode)
        assert TrevniTable(target).count() == 12


def test_json_and_csv_round_trip(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 1, "b": ["x", null], "c": {"d": 1.5}}\n{"a": null}\n')
    (tmp_path / "in.csv").write_text("n,s\n1,x\n2,\n")
    target = str(tmp_path / "j")
    assert to_trevni(spark, str(tmp_path / "in.json"), target, format="json").rows_added == 2
    from_trevni(spark, target, str(tmp_path / "out"), format="json", options={"ignoreNullFields": "false"})
    before, after = (spark.read.json(str(tmp_path / name)) for name in ("in.json", "out"))
    assert after.schema == before.schema
    assert after.collect() == before.collect()
    csv = {"header": "true", "inferSchema": "true"}
    how = {"codec": "bzip2", "values": "n"}
    to_trevni(
        spark,
        str(tmp_path / "in.csv"),
        str(tmp_path / "c"),
        format="csv",
        options=csv,
        properties=how,
        partition_by=["s"],
    )
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == ["s=__HIVE_DEFAULT_PARTITION__", "s=x"]
    from_trevni(spark, str(tmp_path / "c"), str(tmp_path / "d"), format="csv", options={"header": "true"})
    found = spark.read.csv(str(tmp_path / "d"), header=True, inferSchema=True)
    assert {(r.n, r.s) for r in found.collect()} == {(1, "x"), (2, None)}


def test_invalid_arguments_are_rejected(spark: SparkSession, avro: Path, tmp_path: Path) -> None:
    source, target = str(avro), str(tmp_path / "t")
    for bad in (
        {"options": {"header": "true"}},
        {"partition_by": ["id"]},
        {"properties": {"values": "id"}},
        {"properties": {"codec": "zip"}},
        {"mode": "ignore"},
    ):
        with pytest.raises(InvalidArgumentError):
            to_trevni(spark, source, target, format="avro", **bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="snappy"):
        from_trevni(spark, source, target, format="avro", properties={"codec": "snappy"})
    with pytest.raises(TableNotFoundError, match="no files to convert"):
        to_trevni(spark, str(tmp_path / "none"), target, format="avro")
    assert not Path(target).exists()
