"""Comparisons of ``char(n)`` columns with Spark 4.3's results over the same rows, padded or not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import trilake
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.table import ArrowDeltaTable
from trilake.expr import parse_filter
from trilake.expr.terms.bind import CHAR, char_field, compare_padded, compare_value, without_chars
from trilake.expr.terms.evaluate import Rows, evaluate
from trilake.expr.terms.predicate import Opaque

#: The numbers of the rows that match in ``ROWS`` on Spark 4.3.
SPARK = {
    "m = 'x'": [1],
    "'x' = m": [1],
    "m <> 'x'": [2, 3, 5],
    "m <=> 'x'": [1],
    "NOT (m <=> 'x')": [2, 3, 4, 5],
    "m > 'x'": [2, 3],
    "m >= 'x'": [1, 2, 3],
    "m < 'x'": [5],
    "m <= 'x'": [1, 5],
    "m <= 'x    '": [1, 5],
    "m = 'x     '": [1],
    "m = 'x '": [1],
    "NOT m = 'x'": [2, 3, 5],
    "m IN ('x')": [1],
    "m IN ('x', 'y')": [1, 2],
    "m IN ('x', 'yyyyy')": [1],
    "m NOT IN ('x')": [2, 3, 5],
    "m NOT IN ('x', NULL)": [],
    "m IN ('x', s)": [2],
    "m IN ('x', l)": [],
    "m IN (l)": [1],
    "m BETWEEN 'x' AND 'y'": [1, 5],
    "m NOT BETWEEN 'x' AND 'x'": [1, 2, 3, 5],
    "m LIKE 'x'": [],
    "m LIKE 'x  '": [1],
    "m LIKE 'x%'": [1, 5],
    "m LIKE 'x %'": [1],
    "startswith(m, 'x ')": [1],
    "CASE m WHEN 'x' THEN true END": [1],
    "nullif(m, 'x') IS NULL": [4],
    "m = l": [1],
    "m <=> l": [1, 4],
    "m = s": [2],
    "m = v": [],
    "v = 'x '": [],
    "s = 'x '": [],
    "m = concat('x', '')": [1],
    "m = CAST('x' AS STRING)": [1],
    "CAST(m AS STRING) = 'x'": [],
    "length(m) = 3": [1, 2, 3, 5],
    "coalesce(m, 'x') = 'x'": [4],
    "m || '' = 'x'": [],
    "if(m = 'x', true, false)": [1],
    "n = 1 OR m = 'y'": [1, 2],
    "n = 2 AND m = 'y'": [2],
    "m = 'x' OR m = 'y' OR m = 'z' OR m = 'a' OR m = 'b' OR m = 'c'": [1, 2, 3],
    "rtrim(m) = 'x'": [1],
}
ROWS = (
    "('x', 'x', 'x', 'x', 1), ('y', 'z', 'y  ', 'y', 2), ('z', 'zz', 'z', 'z', 3),"
    " (NULL, NULL, NULL, NULL, 4), ('x\t', 'x', 'x', 'x', 5)"
)
COLUMNS = "m CHAR(3), l CHAR(5), s STRING, v VARCHAR(3), n INT"


def _table(folder: Path, *, partitioned: bool = False) -> tuple[str, ArrowDeltaTable]:
    name = f"delta.`{folder}/t`"
    trilake.sql(f"CREATE TABLE {name} ({COLUMNS}){' PARTITIONED BY (m)' if partitioned else ''}")
    trilake.sql(f"INSERT INTO {name} VALUES {ROWS}")
    table = trilake.open(str(folder / "t"))
    assert isinstance(table, ArrowDeltaTable)
    return name, table


@pytest.mark.parametrize("partitioned", [False, True])
def test_conditions_match_spark(tmp_path: Path, partitioned: bool) -> None:
    _, table = _table(tmp_path, partitioned=partitioned)
    for condition, found in SPARK.items():
        read = table.to_arrow(filter=condition)
        assert sorted(read["n"].to_pylist()) == found, condition


@pytest.mark.parametrize("partitioned", [False, True])
def test_queries_compare_stored_values(tmp_path: Path, partitioned: bool) -> None:
    name, _ = _table(tmp_path, partitioned=partitioned)
    for condition, rows in (("m = 'x'", []), ("m = 'x  '", [1]), ("rtrim(m) = 'x'", [1])):
        assert trilake.sql(f"SELECT n FROM {name} WHERE {condition}")["n"].to_pylist() == rows


def test_unpadded_rows_compare_as_padded(tmp_path: Path) -> None:
    _, table = _table(tmp_path)
    rows = table.to_arrow()
    bare = rows.set_column(0, "m", pc.utf8_rtrim(rows["m"], " ")).set_column(1, "l", pc.utf8_rtrim(rows["l"], " "))
    schema = filter_schema(table.metadata.schema)
    for condition, found in SPARK.items():
        filter = parse_filter(condition, schema)
        assert filter is not None
        assert filter.apply(bare)["n"].to_pylist() == found, condition


@pytest.mark.parametrize("condition", [c for c in SPARK if "n = " not in c])
def test_changes_match_the_rows_of_a_select(tmp_path: Path, condition: str) -> None:
    name, table = _table(tmp_path)
    trilake.sql(f"UPDATE {name} SET n = -n WHERE {condition}")
    now = trilake.sql(f"SELECT n FROM {name}")["n"].to_pylist()
    assert sorted(-n for n in now if n < 0) == SPARK[condition]
    trilake.sql(f"UPDATE {name} SET n = abs(n)")
    table.refresh().delete(condition)
    assert {1, 2, 3, 4, 5} - set(table.refresh().to_arrow()["n"].to_pylist()) == set(SPARK[condition])


def test_merge_compares_a_literal_like_spark(tmp_path: Path) -> None:
    name, table = _table(tmp_path)
    trilake.sql(
        f"MERGE INTO {name} t USING (SELECT 1 AS k) u ON t.m = 'x' WHEN MATCHED AND t.m <> 'y' THEN UPDATE SET s = t.m"
    )
    assert trilake.sql(f"SELECT n FROM {name} WHERE s = 'x  '")["n"].to_pylist() == [1]
    table.refresh().update({"n": "CASE WHEN m = 'x' THEN 10 ELSE n END"})
    assert sorted(table.refresh().to_arrow()["n"].to_pylist()) == [2, 3, 4, 5, 10]


@pytest.mark.parametrize("partitioned", [False, True])
def test_replace_where_on_char_columns(tmp_path: Path, partitioned: bool) -> None:
    name, table = _table(tmp_path, partitioned=partitioned)
    rows = pa.table({"m": ["x"], "l": ["n"], "s": ["n"], "v": ["n"], "n": pa.array([10], pa.int32())})
    trilake.write(rows, table.uri, mode="overwrite", replace_where="m = 'x'")
    assert sorted(table.refresh().to_arrow()["n"].to_pylist()) == [2, 3, 4, 5, 10]
    trilake.sql(f"INSERT INTO {name} REPLACE WHERE m = 'x' VALUES ('x', 'n', 'n', 'n', 11)")
    assert sorted(table.refresh().to_arrow()["n"].to_pylist()) == [2, 3, 4, 5, 11]


def test_files_are_skipped_by_stored_values(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    trilake.sql(f"CREATE TABLE {name} (m CHAR(3), n INT)")
    for i, text in enumerate("abcd"):
        trilake.sql(f"INSERT INTO {name} VALUES ('{text}', {i})")
    table = trilake.open(str(tmp_path / "t"))
    for condition, files in {"m = 'b'": 1, "m IN ('b', 'c')": 2, "m > 'b'": 2, "m >= 'b'": 3, "m < 'b'": 1}.items():
        assert len(table.explain(condition).kept) == files, condition


@pytest.mark.parametrize("partitions", ["", "PARTITIONED BY (m)"])
def test_query_reads_only_files_that_can_match(tmp_path: Path, partitions: str) -> None:
    name = f"delta.`{tmp_path}/t`"
    trilake.sql(f"CREATE TABLE {name} (m CHAR(3), n INT) {partitions}")
    for i, text in enumerate("abc"):
        trilake.sql(f"INSERT INTO {name} VALUES ('{text}', {i})")
    [kept] = trilake.open(str(tmp_path / "t")).explain("m = 'b'").kept
    for file in (tmp_path / "t").rglob("*.parquet"):
        if file.name != Path(kept).name:
            file.unlink()
    assert trilake.sql(f"SELECT n FROM {name} WHERE m = 'b  '").to_pylist() == [{"n": 1}]


def test_pyarrow_expression_compares_stored_values(tmp_path: Path) -> None:
    _, table = _table(tmp_path)
    assert table.to_arrow(filter=pc.field("m") == "x  ")["n"].to_pylist() == [1]
    assert table.to_arrow(filter=pc.field("m") == "x").num_rows == 0


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_stored_strings_compare_as_padded(op: str) -> None:
    kernels = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater}
    kernel = kernels.get(op, pc.greater_equal)
    alphabet = ["", " ", "\t", "a", "~"]
    texts = [a + b + c for a in alphabet for b in alphabet for c in alphabet]
    rows = Rows.of(pa.table({"c": texts}))
    for literal in [*texts, "a   ", "    ", "a  \t"]:
        longest = max(3, len(literal))
        filled = pc.utf8_rpad(pa.array(texts), longest, " ")
        padded = evaluate(compare_padded(("c",), op, literal, pa.string(), 3), rows)
        assert padded.to_pylist() == kernel(filled, literal.ljust(longest)).to_pylist(), literal
        plain = evaluate(compare_value(("c",), op, literal, pa.string(), 3), rows)
        assert plain.to_pylist() == kernel(pc.utf8_rpad(pa.array(texts), 3, " "), literal).to_pylist(), literal


def test_long_strings_are_left_to_the_engine() -> None:
    schema = pa.schema([char_field(pa.field("c", pa.string()), 5_000)])
    filter = parse_filter("c = 'a' OR c > 'b'", schema)
    assert filter is not None
    assert any(isinstance(node, Opaque) for node in filter.predicate.walk())
    assert filter.apply(pa.table({"c": ["a", "a" + " " * 4_999, "b", "c", None]})).num_rows == 3
    assert CHAR not in (without_chars(schema).field("c").metadata or {})
