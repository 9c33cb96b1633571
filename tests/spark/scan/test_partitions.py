"""Partition columns: inferred by Spark only if that gives the logged values, else looked up; both skip files."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.spark.native_files import chunk, listed, numbered, plan, rows, settings, write
from trilake.spark.scan.partitions import distinct, hive_columns
from trilake.spark.scan.scan import native_frame

at = dt.datetime.fromisoformat
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_ODD = r"a b|a=b|a/b|100%|%41|é|日本|😀|it's|a\b|[x]|{y}|*|?|#|a:b|^|null|NULL|1|01|1.0|2020-01-01|true|+| lead|end |_x"
ODD_TEXTS = [*_ODD.split("|"), '"q"', "\x01", "\x7f"]


def escaped(text: str | None) -> str:
    """A folder name escaped like Hive and Spark."""
    special = "\"#%'*/:=?\\{[]^\x7f"
    return HIVE_NULL if text is None else "".join(f"%{ord(c):02X}" if c in special or c < " " else c for c in text)


def test_spark_infers_unusual_strings_and_prunes(spark: SparkSession, tmp_path: Path) -> None:
    texts = [*ODD_TEXTS, None]
    paths = numbered(tmp_path, [f"p={escaped(t)}" for t in texts])
    df = native_frame(spark, listed(tmp_path, paths, partitions={"p": pa.array(texts)}))
    assert rows(df) == sorted(enumerate(texts), key=repr)
    filtered = df.where("p = 'a=b' OR p IS NULL")
    assert rows(filtered) == [(1, "a=b"), (len(ODD_TEXTS), None)]
    assert "PartitionFilters: [(" in plan(filtered)


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_levels_and_types_that_spark_infers(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    values = {
        "i": pa.array([0, -5, None, 2**31 - 1], pa.int32()),
        "l": pa.array([2**63 - 1, -(2**63), 7, None], pa.int64()),
        "b": pa.array([-128, 127, 0, None], pa.int8()),
        "f": pa.array([True, False, None, True]),
        "d": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1582, 10, 10)]),
        "s": pa.array(["x", None, "é/1", "007"]),
    }
    texts = {n: pc.cast(v, pa.string()).to_pylist() for n, v in values.items()}
    paths = numbered(tmp_path, ["/".join(f"{n}={escaped(texts[n][i])}" for n in values) for i in range(4)])
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        df = native_frame(spark, listed(tmp_path, paths, partitions=values))
        assert rows(df) == sorted(((i, *(v[i].as_py() for v in values.values())) for i in range(4)), key=repr)
        text = plan(df.where("d > DATE'1500-01-01' AND i < 3"))
        assert "isnotnull(d#" in text.split("PartitionFilters: [")[1]


@pytest.mark.parametrize(
    ("folder", "value"),
    [
        ("p=1", pa.scalar(2)),  # another value
        ("p=01", pa.scalar(1)),  # not the canonical string
        ("p=+1", pa.scalar(1)),
        ("q=1", pa.scalar(1)),  # another column
        ("p=1/q=2", pa.scalar(1)),  # a further level
        ("x", pa.scalar(1)),  # no value
        ("", pa.scalar(1)),
        ("p=", pa.scalar("")),  # Spark asserts a non-empty string
        (f"p={HIVE_NULL}", pa.scalar(HIVE_NULL)),  # Spark reads a null
        (f"p={HIVE_NULL}", pa.scalar("x")),
        ("p=null", pa.scalar(None, pa.string())),
        ("p=%C3%A9", pa.scalar("é")),  # Spark takes each %XX for a character, not for a byte
        ("p=1.0", pa.scalar(1.0)),  # types that have several strings
        ("p=1.50", pa.scalar(Decimal("1.50"))),
        ("p=2020-01-01 00%3A00%3A00", pa.scalar(at("2020-01-01"))),
        ("p=ab", pa.scalar(b"ab")),
        ("p=%5Cu00ff", pa.scalar(b"\xff")),  # no string at all
    ],
)
def test_layouts_that_spark_would_misread_are_not_inferred(folder: str, value: pa.Scalar) -> None:
    values = {"p": chunk([value.as_py()], value.type)}
    assert hive_columns("file:///t", chunk([f"/t/{folder}/x".replace("//", "/")]), values, {}) is None


@pytest.mark.parametrize("path", ["/t2/p=1/x", "/tt/p=1/x", "s3a://t/p=1/x", "file:///t/p=1/x"])
def test_files_elsewhere_are_not_inferred(path: str) -> None:
    assert hive_columns("file:///t", chunk(["/t/p=1/x", path]), {"p": chunk([1, 1])}, {}) is None
    assert hive_columns("file:///t", chunk(["/t/p=1/x", "/t/p=1/y"]), {"p": chunk([1, 1])}, {}) == {"p": "p"}


def test_folders_in_other_order_or_with_other_names() -> None:
    paths = chunk(["/a b/y=2/x=1/f", "/a b/y=3/x=1/f", "/a b/y=3/x=1/g"])
    values = {"col-1": chunk([1, 1, 1]), "y": chunk([2, 3, 3])}
    assert hive_columns("file:///a%20b", paths, values, {"col-1": "x"}) == {"y": "y", "x": "col-1"}
    mixed = chunk(["/a b/y=2/x=1/f", "/a b/x=1/y=3/f"])
    assert hive_columns("file:///a%20b", mixed, {"x": chunk([1, 1]), "y": chunk([2, 3])}, {}) is None


def test_table_folder_name_is_not_a_partition(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would treat a ``=`` in the name of the table folder as a partition."""
    root = tmp_path / "x=1"
    paths = numbered(root, ["p=1", "p=2"])
    df = native_frame(spark, listed(root, paths, partitions={"p": pa.array([1, 2])}))
    assert df.columns == ["n", "p"]
    assert rows(df.where("p = 2")) == [(1, 2)]
    assert native_frame(spark, listed(root, paths)).columns == ["n"]


def test_partition_folder_named_like_a_data_column(spark: SparkSession, tmp_path: Path) -> None:
    """After renames, the folders of a partition column may have the name of another column in the files."""
    paths = [write(tmp_path / f"N={i}" / "x.parquet", pa.table({"n": [10 + i]})) for i in range(2)]
    df = native_frame(spark, listed(tmp_path, paths, partitions={"N": pa.array([0, 1])}))
    assert sorted(df.toArrow().to_pydict().values()) == [[0, 1], [10, 11]]


some_numbers, some_texts = st.none() | st.integers(0, 3), st.none() | st.sampled_from(["", "a", "b"])


@given(st.lists(st.tuples(some_numbers, some_texts), min_size=1))
def test_distinct_combinations(values: list[tuple[int | None, str | None]]) -> None:
    found = distinct({"i": chunk([v[0] for v in values], pa.int32()), "s": chunk([v[1] for v in values], pa.string())})
    assert len(set(values)) == len(found.values["i"]) == found.number.max() + 1
    again = zip(*(found.values[n].take(pa.array(found.number)).to_pylist() for n in ("i", "s")), strict=True)
    assert list(again) == values


FIRST, LAST = at("0001-01-01"), at("9999-12-31T23:59:59.999999")
ALL_TYPES = {
    "string": pa.array(["", "a\n\"b\\'\u0001é😀", None, "null"]),
    "binary": pa.array([b"", b"\xff\x00", None, b"\\u0041"]),
    "boolean": pa.array([True, False, None, True]),
    "byte": pa.array([-128, 127, None, 0], pa.int8()),
    "short": pa.array([-(2**15), 2**15 - 1, None, 0], pa.int16()),
    "int": pa.array([-(2**31), 2**31 - 1, None, 0], pa.int32()),
    "long": pa.array([-(2**63), 2**63 - 1, None, 0]),
    "float": pa.array([math.inf, -0.0, None, np.float32(0.1)], pa.float32()),
    "double": pa.array([-math.inf, 5e-324, None, 1.7976931348623157e308]),
    "decimal": pa.array([Decimal(f"-{'9' * 26}.{'9' * 12}"), Decimal("1.5"), None, Decimal(0)], pa.decimal128(38, 12)),
    "date": pa.array([FIRST.date(), LAST.date(), None, dt.date(1582, 10, 10)]),
    "timestamp": pa.array([FIRST, LAST, None, at("2020-03-29T01:30")], pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.array([FIRST, LAST, None, at("2020-03-29T02:30")], pa.timestamp("us")),
}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_values_of_every_type_are_looked_up(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    files = listed(tmp_path, numbered(tmp_path, ["."] * 4), partitions=ALL_TYPES)
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        found = native_frame(spark, files).orderBy("n").toArrow()
    for name, values in ALL_TYPES.items():
        assert found[name].cast(values.type).combine_chunks().equals(values), name


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_filters_on_looked_up_values_skip_files(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Only the matching file exists: reading any other would fail."""
    paths = [str(tmp_path / f"missing-{i}.parquet") for i in range(3)]
    paths.append(write(tmp_path / "3.parquet", pa.table({"n": [3]})))
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        df = native_frame(spark, listed(tmp_path, paths, partitions=ALL_TYPES)).select("n", *ALL_TYPES)
        for condition in (
            "string = 'null'",
            "decimal = 0",
            "int >= 0 AND int < 5",
            "timestamp = TIMESTAMP'2020-03-29T01:30:00Z'",
            "timestamp_ntz = TIMESTAMP_NTZ'2020-03-29T02:30:00'",
            "string IN ('null', 'other') AND n = 3",
            "year(date) = 1582",
        ):
            assert [r.n for r in df.where(condition).select("n").collect()] == [3], condition


def test_one_combination_is_a_constant(spark: SparkSession, tmp_path: Path) -> None:
    df = native_frame(spark, listed(tmp_path, numbered(tmp_path, ["."] * 2), partitions={"p": pa.array(["x", "x"])}))
    assert df.where("p = 'x'").count() == 2
    assert df.where("p = 'y'").count() == 0


@pytest.mark.parametrize("type_", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str)
def test_values_beyond_the_years_that_arrow_formats(spark: SparkSession, tmp_path: Path, type_: pa.DataType) -> None:
    """Spark got Arrow's "<value out of range>": an error, or nulls without ANSI mode."""
    days = [50_000_000, 0, None]
    micros = [None if d is None else d * 86_400_000_000 for d in days]
    values = pa.array(days, pa.int32()).cast(type_) if pa.types.is_date(type_) else pa.array(micros).cast(type_)
    files = listed(tmp_path, numbered(tmp_path, ["x", "y", "z"]), partitions={"p": values})
    for zone in ("UTC", "America/Los_Angeles"):
        with settings(spark, {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": "false"}):
            found = native_frame(spark, files).selectExpr("datediff(p, DATE'1970-01-01')").collect()
            away = int(zone != "UTC" and getattr(type_, "tz", None) is not None)
            assert sorted(r[0] for r in found if r[0] is not None) == [0 - away, 50_000_000 - away]
