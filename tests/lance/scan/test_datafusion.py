"""SQL for pylance's names follows DataFusion: compared with pylance."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import lance as pylance
import pyarrow as pa
import pytest

import trilake
from trilake import lance
from trilake.errors import UnsupportedExpressionError

INFINITY = float("inf")
ROWS = pa.table(
    {
        "i": pa.array([-3, 0, 1, 2, 7, None], pa.int64()),
        "i32": pa.array([1, 2, 3, 4, 5, None], pa.int32()),
        "f": pa.array([0.5, -1.5, None, 2.0, INFINITY, float("nan")]),
        "zero": pa.array([0.0, 1.0, -1.0, 10.0, -INFINITY, None]),
        "dec": pa.array([Decimal(x) for x in ("1.10", "2.25", "-3.00", "0.00", "9.99")] + [None], pa.decimal128(6, 2)),
        "s": ["a", "B", None, "abc éa aB", "5,-x", "a\\b"],
        "bin": [b"a", b"", None, b"\x00\xff", b"zz", b"a"],
        "d": pa.array([dt.date(2020, 2, i + 1) for i in range(5)] + [None]),
        "ts": pa.array([*range(1583021107250000, 1583039107250000, 3600000000), None], pa.timestamp("us")),
        "l": [[1, 2, 1], [], None, [3, None], [5], [1]],
        "ls": [["a"], ["b", "c"], None, [None], [], ["a", None, "a"]],
        "items": [[{"x": n, "y": [n, -n]}] for n in range(6)],
    }
)
EXPRESSIONS = [
    *("i / 2", "i32 / 2", "f / 2", "dec / 2", "f / 0", "i / i32", "i / f"),
    *("l[1]", "l[2]", "l[0]", "l[-1]", "l[9]", "l[i32]", "ls[1]", "items[1]['x']", "items[1]['y'][2]"),
    *(
        "ln(f)",
        "ln(zero)",
        "log10(zero)",
        "log2(i)",
        "log(f)",
        "log(2, f)",
        "log(i32, 8)",
        "trunc(f)",
        "trunc(zero, 1)",
    ),
    *(
        f"{name}({column})"
        for name in (
            *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
            *("degrees", "radians"),
        )
        for column in ("f", "zero")
    ),
    *("cot(f)", "atan2(f, zero)", "isnan(f)", "iszero(zero)", "nanvl(f, zero)"),
    *("factorial(i32)", "gcd(i, 4)", "lcm(i, i32)"),
    *("concat(s, 'q')", "concat(s, i)", "concat(s, NULL, s)", "s || 'q'"),
    *("octet_length(s)", "bit_length(s)", "ascii(s)", "initcap(s)", "to_hex(i)"),
    *(
        "encode(bin, 'hex')",
        "encode(s, 'base64')",
        "string_to_array(s, ',')",
        "string_to_array(replace(s, 'a', ''), ',')",
    ),
    *(
        "left(s, -1)",
        "right(s, -1)",
        "left(s, i)",
        "upper(substr(s, -1, 3))",
        "upper(substr(s, i))",
        "regexp_replace(s, 'a', 'q')",
        "regexp_replace(s, '(a)(B|b)', '\\2\\1', 'g')",
        "regexp_count(s, 'a|é')",
    ),
    *(f"date_part('{unit}', ts)" for unit in ("year", "week", "dow", "doy", "hour", "second", "epoch")),
    *(
        "date_part('dow', d)",
        "date_part('epoch', d)",
        "to_char(d, '%Y/%j')",
        "to_char(ts, '%d %H:%M')",
        "to_unixtime(ts)",
    ),
    *("array_length(l, 1)", "array_empty(l)", "array_element(l, -1)", "array_contains(l, 1)", "array_contains(l, 9)"),
    *("array_position(l, 1)", "array_position(ls, 'c')", "array_positions(l, 1)", "list_position(l, i)"),
    *("array_append(l, 9)", "list_append(ls, s)", "array_prepend(i, l)", "array_concat(l, l)"),
    *("array_union(l, [1, 9])", "array_intersect(l, [1, 3, 3])", "array_except(l, [1])", "array_except(ls, ['b'])"),
    *(
        "array_distinct(l)",
        "array_distinct(ls)",
        "array_remove(l, 1)",
        "array_remove(ls, 'a')",
        "array_remove_all(l, 1)",
    ),
    *("array_replace(l, 1, 8)", "array_replace_all(ls, 'a', 'z')", "array_reverse(l)"),
    *("array_slice(l, 1, 1)", "array_slice(l, -2, -1)", "array_slice(l, 2, 9)", "array_slice(l, 2, 1)"),
    *("array_pop_back(l)", "array_pop_front(ls)", "array_sort(l)", "array_sort(ls, 'DESC')"),
    *("array_sort(l, 'ASC', 'NULLS LAST')", "array_max(l)", "array_min(ls)", "array_any_value(l)"),
    *("array_to_string(l, ',')", "array_to_string(ls, '-')", "array_to_string(l, ',', 'none')", "flatten([l, l])"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("datafusion") / "rows.lance"
    lance.write_dataset(ROWS, path)
    return path


def same(value: object) -> object:
    """Doubles to 14 digits, since libraries compute functions differently in the last one."""
    return f"{value:.13e}" if isinstance(value, float) else value


@pytest.mark.parametrize("sql", EXPRESSIONS)
def test_value_equals_that_of_pylance(path: Path, sql: str) -> None:
    ours = lance.dataset(path).to_table(columns={"v": sql})["v"]
    expected = pylance.dataset(path).to_table(columns={"v": sql})["v"]
    assert [same(v) for v in ours.to_pylist()] == [same(v) for v in expected.to_pylist()]


@pytest.mark.parametrize(
    "sql",
    [
        "i / 2 = 1",
        "l[1] = 1",
        "l[-1] IS NULL",
        "items[1]['x'] > 3",
        "concat(s, 'q') = 'q'",
        "NOT array_contains(l, 9)",
        "NOT isnan(f)",
        "isnan(f)",
        "s = 'a\\b'",
        "s LIKE '%\\%'",
        "regexp_like(s, '\\d')",
        "s = 'it''s \\'",
    ],
)
def test_rows_of_a_filter_equal_those_of_pylance(path: Path, sql: str) -> None:
    expected = pylance.dataset(path).to_table(columns=["i32"], filter=sql)
    dataset = lance.dataset(path)
    assert dataset.to_table(columns=["i32"], filter=sql) == expected
    assert dataset.count_rows(sql) == expected.num_rows
    (fragment,) = dataset.get_fragments()
    assert fragment.count_rows(sql) == expected.num_rows


def test_backslash_in_a_name_stays(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"a\\b": ["x\\y", "z"]}), tmp_path / "names")
    assert ds.count_rows("`a\\b` = 'x\\y'") == 1


def test_changes_by_pylances_names_follow_datafusion(tmp_path: Path) -> None:
    ds = lance.write_dataset(pa.table({"id": [1, 2, 3, 5], "l": [[1, 2], [2], [3], [5]]}), tmp_path / "changed")
    assert ds.update({"id": "id / 2 + 100"}, where="l[2] = 2") == {"num_rows_updated": 1}
    ds.add_columns({"half": "id / 2"})
    assert ds.to_table().sort_by("id")["half"].to_pylist() == [1, 1, 2, 50]
    assert ds.delete("id / 2 = 1") == {"num_deleted_rows": 2}
    merge = ds.merge_insert("id").when_matched_update_all("target.id / 2 = 2")
    done = merge.execute(pa.table({"id": [5, 100], "l": [[0], [0]], "half": [0, 0]}))
    assert done["num_updated_rows"] == 1
    assert ds.get_fragments()[0].delete("l[1] = 5 AND id / 2 = 3") is not None


def test_the_same_dataset_as_a_table_of_trilake_follows_spark(path: Path) -> None:
    table = trilake.open(path)
    assert table.to_arrow(["i32"], filter="i / 2 = 0.5")["i32"].to_pylist() == [3]
    assert table.to_arrow(["i32"], filter="l[1] = 2")["i32"].to_pylist() == [1]


def test_error_of_an_unknown_function_suggests_another_instead_of_spark(path: Path) -> None:
    with pytest.raises(UnsupportedExpressionError, match=r"cannot evaluate sinn\(f\): .*did you mean sin\?") as caught:
        lance.dataset(path).to_table(columns={"v": "sinn(f)"})
    assert "use Spark" not in str(caught.value)
