"""Nested values assigned to columns through Spark: matched by name at any depth, never silently dropped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import trilake
from trilake import DeltaTable
from trilake.errors import SchemaMismatchError, TrilakeError

ANSI = "spark.sql.ansi.enabled"
AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
#: The struct type of the table, and columns with it at every depth.
PAIR = "STRUCT<a: BIGINT, b: STRING>"
COLUMNS = f"id BIGINT, s {PAIR}, l ARRAY<{PAIR}>, m MAP<STRING, STRUCT<i: {PAIR}>>"
#: What wraps a struct into a value of each column.
WRAPPED = {"s": "{}", "l": "array({})", "m": "map('k', named_struct('i', {}))"}
ROW = {"a": 1, "b": "x"}


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    trilake.install(spark)
    yield spark
    for key in (ANSI, AUTO_MERGE):
        spark.conf.unset(key)
    trilake.uninstall(spark)


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table with one row."""
    place = tmp_path_factory.mktemp("first") / "t"
    trilake.install(spark)
    spark.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta")
    values = ", ".join(w.format("named_struct('a', 1, 'b', 'x')") for w in WRAPPED.values())
    spark.sql(f"INSERT INTO delta.`{place}` VALUES (1, {values})")
    trilake.uninstall(spark)
    return place


@pytest.fixture
def t(first: Path, sql: SparkSession, tmp_path: Path) -> str:
    """The SQL name of a copy of that table."""
    shutil.copytree(first, tmp_path / "t")
    return f"delta.`{tmp_path}/t`"


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = trilake.open(_path(name)).to_arrow().sort_by("id").to_pylist()
    return found


def _path(name: str) -> str:
    return name.split("`")[1]


def inside(row: Mapping[str, Any], column: str) -> Any:
    """The struct in a column, at any depth."""
    value = row[column]
    return value if column == "s" else value[0] if column == "l" else dict(value)["k"]["i"]


def update_by_statement(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(f"UPDATE {name} SET {column} = {value}")


def update_by_call(spark: SparkSession, name: str, column: str, value: str) -> None:
    DeltaTable.forPath(spark, _path(name)).update(set={column: value})


def merge_update(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 1 AS id, {value} AS v) q ON t.id = q.id"
        f" WHEN MATCHED THEN UPDATE SET {column} = q.v"
    )


def insert_by_name(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(f"INSERT OVERWRITE {name} BY NAME SELECT {value} AS {column}")


def insert_by_position(spark: SparkSession, name: str, column: str, value: str) -> None:
    spark.sql(f"INSERT OVERWRITE {name} ({column}) SELECT {value}")


CHANGES = pytest.mark.parametrize("change", [update_by_statement, update_by_call, merge_update, insert_by_name])


@CHANGES
def test_fields_are_matched_by_name_at_any_depth(sql: SparkSession, t: str, change: Any) -> None:
    for column, wrapped in WRAPPED.items():
        change(sql, t, column, wrapped.format("named_struct('B', 'q', 'A', 5)"))
        assert inside(rows(t)[0], column) == {"a": 5, "b": "q"}


@CHANGES
@pytest.mark.parametrize(
    "value", ["named_struct('a', 5, 'b', 'q', 'z', 9)", "named_struct('x', 5, 'y', 'q')"], ids=["more", "others"]
)
def test_unknown_field_is_rejected(sql: SparkSession, t: str, change: Any, value: str) -> None:
    version = trilake.open(_path(t)).version
    for column, wrapped in WRAPPED.items():
        with pytest.raises(SchemaMismatchError, match=rf"column {column}.* has a field [xz], which the column lacks"):
            change(sql, t, column, wrapped.format(value))
    assert trilake.open(_path(t)).version == version
    assert rows(t) == [{"id": 1, "s": ROW, "l": [ROW], "m": [("k", {"i": ROW})]}]


@pytest.mark.parametrize("change", [update_by_statement, update_by_call, merge_update])
def test_change_requires_all_fields(sql: SparkSession, t: str, change: Any) -> None:
    for column, wrapped in WRAPPED.items():
        with pytest.raises(SchemaMismatchError, match=rf"column {column}.* has no field b"):
            change(sql, t, column, wrapped.format("named_struct('a', 5)"))
        change(sql, t, column, wrapped.format("CAST(NULL AS STRUCT<a: INT, b: STRING>)"))
        assert inside(rows(t)[0], column) is None


@pytest.mark.parametrize(
    "change",
    [
        *(update_by_statement, merge_update, insert_by_position),
        *(pytest.param(change, marks=pytest.mark.soak) for change in (update_by_call, insert_by_name)),
    ],
)
def test_misfits_are_rejected_at_any_depth_without_ansi(sql: SparkSession, t: str, change: Any) -> None:
    sql.conf.set(ANSI, "false")
    for column, wrapped in WRAPPED.items():
        for value in ("'no number'", "1e30D") if column == "s" else ("'no number'",):
            with pytest.raises(TrilakeError, match="does not fit bigint"):
                change(sql, t, column, wrapped.format(f"named_struct('a', {value}, 'b', 'q')"))
        change(sql, t, column, wrapped.format("named_struct('a', '7', 'b', 8)"))
        assert inside(rows(t)[0], column) == {"a": 7, "b": "8"}


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_mismatched_elements_keys_and_values_are_rejected(sql: SparkSession, tmp_path: Path, ansi: str) -> None:
    name = f"delta.`{tmp_path}/t`"
    sql.sql(f"CREATE TABLE {name} (id INT, l ARRAY<INT>, m MAP<INT, ARRAY<INT>>) USING delta")
    sql.sql(f"INSERT INTO {name} VALUES (1, array(1), map(1, array(1)))")
    sql.conf.set(ANSI, ansi)
    for column, value in (("l", "array('x')"), ("m", "map('x', array(1))"), ("m", "map(1, array('1', 'x'))")):
        for change in (update_by_call, merge_update, insert_by_position):
            with pytest.raises(TrilakeError, match=r"CAST_INVALID_INPUT|does not fit int"):
                change(sql, name, column, value)
    sql.sql(f"INSERT OVERWRITE {name} VALUES (1, array('2', NULL), map('3', array('4'), '5', NULL))")
    assert rows(name) == [{"id": 1, "l": [2, None], "m": [(3, [4]), (5, None)]}]


def test_insert_by_position_matches_structs_by_position(sql: SparkSession, t: str) -> None:
    for column, wrapped in WRAPPED.items():
        insert_by_position(sql, t, column, wrapped.format("named_struct('b', 5, 'a', 'q')"))
        assert inside(rows(t)[0], column) == {"a": 5, "b": "q"}


def test_structs_match_by_name_if_no_cast_is_needed(sql: SparkSession, t: str) -> None:
    """As on delta-spark: structs match by name if columns have the table's names and types, else by position."""

    def query(value: str, name: str = "id", id: str = "2L") -> str:
        return f"SELECT {id} AS {name}, " + ", ".join(f"{w.format(value)} AS {c}" for c, w in WRAPPED.items())

    def row(**fields: Any) -> dict[str, Any]:
        return {"id": 2, "s": fields, "l": [fields], "m": [("k", {"i": fields})]}

    reordered = "named_struct('b', '6', 'a', 5L)"
    swapped = t[:-1] + "2`"
    sql.sql(f"CREATE TABLE {swapped} USING delta AS {query(reordered)}")
    for statement in (f"INSERT INTO {t} SELECT * FROM {swapped}", f"INSERT OVERWRITE {t} TABLE {swapped}"):
        sql.sql(statement)
        assert rows(t)[-1] == row(a=5, b="6")
    sql.table(swapped).write.insertInto(t, overwrite=True)
    assert rows(t) == [row(a=5, b="6")]
    # A cast of one column, another name, or a list of columns: all by position.
    for rest in (query(reordered, id="2S"), query(reordered, name="other")):
        sql.sql(f"INSERT OVERWRITE {t} {rest}")
        assert rows(t) == [row(a=6, b="5")]
    sql.sql(f"INSERT OVERWRITE {t} ({', '.join(['id', *WRAPPED])}) {query(reordered)}")
    assert rows(t) == [row(a=6, b="5")]
    more = query(reordered.replace("'b'", "'z', 9, 'b'"))
    sql.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {t} {more}")
    assert rows(t)[-1] == row(a=5, b="6", z=9)


def test_insert_by_position_needs_equal_field_counts(sql: SparkSession, t: str) -> None:
    for column, wrapped in WRAPPED.items():
        for value in ("named_struct('a', 5)", "named_struct('a', 5, 'b', 'q', 'z', 9)"):
            with pytest.raises(SchemaMismatchError, match=rf"struct for column {column}.* the column has 2 \(a, b\)"):
                sql.sql(f"INSERT INTO {t} ({column}) SELECT {wrapped.format(value)}")
    values = ", ".join(w.format("struct(5, 'q', 9 AS z)") for w in WRAPPED.values())
    sql.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {t} SELECT 2, {values}")
    new = {"a": 5, "b": "q", "z": 9}
    assert rows(t)[1] == {"id": 2, "s": new, "l": [new], "m": [("k", {"i": new})]}


@pytest.mark.parametrize("how", ["clause", "setting"])
def test_insert_by_name_adds_fields_with_schema_evolution(sql: SparkSession, t: str, how: str) -> None:
    clause = " WITH SCHEMA EVOLUTION" if how == "clause" else ""
    if how == "setting":
        sql.conf.set(AUTO_MERGE, "true")
    values = ", ".join(w.format("named_struct('z', 9, 'b', 'q', 'a', 5)") + f" AS {c}" for c, w in WRAPPED.items())
    sql.sql(f"INSERT{clause} INTO {t} BY NAME SELECT 2 AS id, {values}, 'n' AS more")
    old, new = {**ROW, "z": None}, {"a": 5, "b": "q", "z": 9}
    assert rows(t) == [
        {"id": 1, "s": old, "l": [old], "m": [("k", {"i": old})], "more": None},
        {"id": 2, "s": new, "l": [new], "m": [("k", {"i": new})], "more": "n"},
    ]


def test_merge_adds_fields_with_schema_evolution(sql: SparkSession, t: str) -> None:
    values = ", ".join(w.format("named_struct('z', 9, 'a', 5)") + f" AS {c}" for c, w in WRAPPED.items())
    sql.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT 2 AS id, {values}) q ON t.id = q.id"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    new = {"a": 5, "b": None, "z": 9}
    assert rows(t)[1] == {"id": 2, "s": new, "l": [new], "m": [("k", {"i": new})]}


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_insert_by_name_into_other_formats(sql: SparkSession, tmp_path: Path, format: str) -> None:
    name = f"{format}.`{tmp_path}/t`"
    rows_of = "SELECT 1L AS id, named_struct('a', 1L, 'b', 'x') AS s, array(named_struct('a', 1L, 'b', 'x')) AS l"
    sql.sql(f"CREATE TABLE {name} USING {format} AS {rows_of}")
    reordered = "named_struct('b', 'q', 'a', 5)"
    sql.sql(f"INSERT INTO {name} BY NAME SELECT array({reordered}) AS l, {reordered} AS s, 2 AS id")
    new = {"a": 5, "b": "q"}
    assert rows(name) == [{"id": 1, "s": ROW, "l": [ROW]}, {"id": 2, "s": new, "l": [new]}]
    extra = "named_struct('b', 'q', 'a', 5, 'z', 9)"
    for one, many in ((extra, reordered), (reordered, extra)):
        with pytest.raises(SchemaMismatchError, match="has a field z, which the column lacks"):
            sql.sql(f"INSERT INTO {name} BY NAME SELECT array({many}) AS l, {one} AS s, 2 AS id")
        frame = sql.sql(f"SELECT 2L AS id, {one.replace('5', '5L')} AS s, array({many.replace('5', '5L')}) AS l")
        with pytest.raises(SchemaMismatchError, match=r"has a field z|do not (fit|match) the table.*: column [sl] is"):
            trilake.write(frame, _path(name), mode="append", format=format)
    with pytest.raises(TrilakeError, match="does not support schema evolution"):
        sql.sql(
            f"INSERT WITH SCHEMA EVOLUTION INTO {name} BY NAME SELECT array({reordered}) AS l, {reordered} AS s,"
            " 2 AS id, 3 AS more"
        )
    assert len(rows(name)) == 2
