"""Filters over rows: matching rows, rejected filters, and error messages."""

from __future__ import annotations

import datetime as dt
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.expr.semantics import ROWS
from trilake.errors import FilterError
from trilake.expr import Filter, parse_filter
from trilake.expr.sql import parse
from trilake.expr.terms.bind import char_field


def parsed(filter: str | pc.Expression, schema: pa.Schema = ROWS.schema) -> Filter:
    bound = parse_filter(filter, schema)
    assert bound is not None
    return bound


def kept(filter: str | pc.Expression, rows: pa.Table = ROWS) -> list[int]:
    # Arrow cannot filter columns of all types, but filters can use all types.
    ids: list[int] = rows["id"].filter(parsed(filter, rows.schema).mask(rows)).to_pylist()
    return ids


# --- the filter as an object ------------------------------------------------------------------------------------------


def test_none_means_no_filter() -> None:
    assert parse_filter(None, ROWS.schema) is None
    bound = parsed("i32 = 1")
    assert parse_filter(bound, ROWS.schema) is bound


def test_columns_are_matched_case_insensitively() -> None:
    bound = parsed("I32 > 1 AND mIxEd = 'p' AND ST.S = 'x' AND `A B` > 0 OR upper(W) = 'A'")
    assert bound.columns == {"i32", "Mixed", "st", "a b", "w"}
    assert ("st", "s") in bound.paths
    assert parsed("1 = 1").columns == frozenset()


def test_conjuncts_have_their_sql() -> None:
    bound = parsed("i32 > 1 and (s like 'a%' or b) AND (d is null AND not c)")
    assert [c.sql for c in bound.conjuncts] == ["i32 > 1", "s LIKE 'a%' OR b", "d IS NULL", "NOT c"]
    assert str(bound) == bound.sql


def test_masks_have_no_null_and_follow_the_rows() -> None:
    bound = parsed("i32 > 1")
    mask = bound.mask(ROWS)
    assert isinstance(mask, pa.ChunkedArray)
    assert mask.null_count == 0
    assert mask.to_pylist() == [v is not None and v > 1 for v in ROWS["i32"].to_pylist()]
    assert bound.evaluate(ROWS)[0].as_py() is None


@pytest.mark.parametrize("text", ["i32 > 1", "i32 % 2 = 1", "i32 > 1 AND upper(s) = 'ABC'", "TRUE", "FALSE"])
def test_batches_and_tables_give_equal_results(text: str) -> None:
    bound = parsed(text)
    batch = ROWS.combine_chunks().to_batches()[0]
    assert isinstance(bound.mask(batch), pa.BooleanArray)
    assert isinstance(bound.apply(batch), pa.RecordBatch)
    assert bound.apply(batch)["id"].to_pylist() == bound.apply(ROWS)["id"].to_pylist()
    assert bound.mask(ROWS.slice(0, 0)).to_pylist() == []
    chunked = pa.concat_tables([ROWS.slice(0, 5), ROWS.slice(5, 1), ROWS.slice(6)])
    assert bound.apply(chunked)["id"].to_pylist() == bound.apply(ROWS)["id"].to_pylist()


def test_rows_need_only_the_columns_of_the_filter() -> None:
    assert parsed("i32 > 1 OR upper(s) = 'A'").mask(ROWS.select(["s", "i32"])).to_pylist().count(True) == 8
    with pytest.raises(FilterError, match="column 's' not found"):
        parsed("s = 'a'").mask(ROWS.select(["i32"]))


def test_rows_keep_their_order_through_duckdb() -> None:
    n = 300_000
    rows = pa.table({"n": pa.chunked_array([range(n // 2), range(n // 2, n)])})
    found = parsed("n % 3 = 1", rows.schema).apply(rows)["n"].to_pylist()
    assert found == list(range(1, n, 3))


@pytest.mark.parametrize("text", ["i32 > 1", "i32 % 2 = 1 AND s IS NOT NULL"])
def test_filters_can_be_pickled(text: str) -> None:
    copy = pickle.loads(pickle.dumps(parsed(text)))
    assert copy.mask(ROWS).equals(parsed(text).mask(ROWS))


def test_now_is_given_by_the_caller() -> None:
    now = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)
    for text, ids in (("t > now()", [4, 5, 9, 10, 11]), ("d = current_date", [2]), ("d = current_date() - 1", [8])):
        bound = parse_filter(text, ROWS.schema, now=now)
        assert bound is not None
        assert bound.apply(ROWS)["id"].to_pylist() == ids, text


def test_sql_is_parsed_once_unless_it_uses_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    original = parse.parse_tree

    def spy(sql: str, names: frozenset[str]) -> object:
        parsed.append(sql)
        return original(sql, names)

    monkeypatch.setattr(parse, "parse_tree", spy)
    sql = "id IN (3, 5) AND id <> 4 AND 'once' = 'once'"
    assert [kept(sql) for _ in range(3)] == [[3, 5]] * 3
    assert parsed == [sql]
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    for day in range(3):
        bound = parse_filter("t > now() AND 'timed' = 'timed'", ROWS.schema, now=moment + dt.timedelta(days=day))
        assert bound is not None
    assert len(parsed) == 4


def test_same_sql_is_bound_to_each_schema() -> None:
    text = "X = '1' AND 'bound' = 'bound'"
    number, name = pa.table({"x": [1, 2]}), pa.table({"x": ["1", "01"], "id": [7, 8]})
    padded = pa.table([pa.array(["1  ", "2  "])], schema=pa.schema([char_field(pa.field("x", pa.string()), 3)]))
    for _ in range(2):
        assert parsed(text, number.schema).apply(number).num_rows == 1
        assert parsed(text, name.schema).apply(name)["id"].to_pylist() == [7]
        assert parsed(text, padded.schema).apply(padded).num_rows == 1
        unpadded = padded.cast(pa.schema({"x": pa.string()}))
        assert parsed(text, unpadded.schema).apply(unpadded).num_rows == 0
        with pytest.raises(FilterError, match="X"):
            parse_filter(text, number.schema, case_sensitive=True)


def test_rows_excluded_by_another_condition_do_not_fail() -> None:
    rows = pa.table({"id": [0, 1, 2], "n": [0, 1, 2], "s": ["x", "5", "6"]})
    assert kept("10 / n > 6 AND n <> 0", rows) == [1]
    assert kept("n = 0 OR 10 / n > 6", rows) == [0, 1]
    assert kept("n > 0 AND (s = 5 OR n = 9)", rows) == [1]
    assert kept("CASE WHEN n = 0 THEN FALSE ELSE 10 / n > 6 END", rows) == [1]
    assert kept("if(n <> 0 AND 10 / n > 6, TRUE, FALSE)", rows) == [1]
    with pytest.raises(FilterError, match="division by zero"):
        kept("10 / n > 6", rows)


# --- types of Arrow ---------------------------------------------------------------------------------------------------

VARIANTS = [
    (pa.array(["a", "b", None]).dictionary_encode(), "v = 'b'", "upper(v) = 'B'"),
    (pa.array(["a", "b", None], pa.large_string()), "v > 'a'", "length(v) = 1 AND v <> 'a'"),
    (pa.array(["a", "b", None], pa.string_view()), "v LIKE 'b%'", "v RLIKE 'b'"),
    (pa.array([b"a", b"b", None], pa.binary(1)), "v = X'62'", "length(v) = 1 AND v > X'61'"),
    (pa.array([b"a", b"b", None], pa.large_binary()), "v >= X'62'", "v = X'62' OR length(v) = 5"),
    (pa.array([1, 2, None], pa.uint8()), "v > 1", "v % 2 = 0"),
    (pa.array([1, 2**32 - 1, None], pa.uint32()), "v = 4294967295", "v % 10 = 5"),
    (pa.array([1, 2**64 - 1, None], pa.uint64()), "v = 18446744073709551615", "v % 10 = 5"),
    (pa.array([1, 1.5, None], pa.float16()), "v = 1.5", "v * 2 = 3"),
    (pa.array([0, 86_400_000, None], pa.date64()), "v = '1970-01-02'", "day(v) = 2"),
    (pa.array([0, 1, None], pa.timestamp("s")), "v = '1970-01-01 00:00:01'", "second(v) = 1"),
    (
        pa.array([999, 1_999, None], pa.timestamp("ns", "Asia/Tokyo")),
        "v = '1970-01-01 00:00:00.000001Z'",
        "unix_micros(v) = 1",
    ),
    (pa.array([1, -1, None], pa.timestamp("ns")), "v < '1970-01-01'", "year(v) + 0 = 1969"),
    (pa.array(["0.5", "1.5", None]).cast(pa.decimal128(5, 1)).cast(pa.decimal256(5, 1)), "v > 1", "v * 2 = 3"),
    (pa.array([[1], [2], None], pa.list_(pa.int64(), 1)), "v IS NOT NULL AND v[0] = 2", "size(v) = 1 AND v[0] > 1"),
    (pa.array([[1], [2], None], pa.large_list(pa.int64())), "array_contains(v, 2)", "v[0] = 2"),
]


@pytest.mark.parametrize(("values", "simple", "opaque"), VARIANTS, ids=[str(v[0].type) for v in VARIANTS])
def test_arrow_types_that_stand_for_one_spark_type(values: pa.Array, simple: str, opaque: str) -> None:
    rows = pa.table({"id": [0, 1, 2], "v": values})
    assert kept(simple, rows) == [1]
    assert kept(opaque, rows) == [1]


NESTED = pa.table(
    {
        "id": [0, 1, 2],
        "l": pa.array([[1_500_000_000], [None], None], pa.list_(pa.timestamp("ns", "Asia/Tokyo"))),
        "m": pa.array([[("k", 5)], [], None], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        "s": pa.array(
            [{"a": [1], "b": ["x"]}, {"a": None, "b": None}, None],
            pa.struct([("a", pa.list_(pa.uint8())), ("b", pa.large_list(pa.string_view()))]),
        ),
        "f": pa.array([[1], [2], None], pa.list_(pa.timestamp("us", "UTC"), 1)),
        "e": pa.array([["a"], ["b"], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "k": pa.array([[(1, "x")], [(2, "y")], None], pa.map_(pa.int64(), pa.string())),
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "size(l) > 0 AND l[0] = '1970-01-01 00:00:01.5'",
        "CAST(get(l, 0) AS STRING) = '1970-01-01 00:00:01.5'",
        "m['k'] = '1970-01-01 00:00:00.000005'",
        "s.a[0] = 1",
        "s['a'][0] = 1",
        "s['B'][0] = 'x'",
        "get(s.a, 0) + 255 = 256",
        "get(s.b, 0) = 'x'",
        "get(f, 0) < '1970-01-01 00:00:00.000002'",
        "get(e, 0) = 'a'",
        "k[1] = 'x'",
    ],
)
def test_values_in_lists_maps_and_structs(text: str) -> None:
    assert kept(text, NESTED) == [0]


def test_extension_types_filter_by_storage() -> None:
    rows = pa.table({"id": [0, 1], "u": pa.array([b"0" * 16, None], pa.uuid())})
    assert kept(f"u = X'{'30' * 16}'", rows) == [0]
    assert kept("u IS NULL", rows) == [1]


def test_rows_of_other_types_than_the_schema() -> None:
    schema = pa.schema({"n": pa.int64(), "st": pa.struct([("a", pa.int64())]), "t": pa.timestamp("us")})
    assert parsed("n > 1", schema).mask(pa.table({"n": pa.array([1, 2], pa.int8())})).to_pylist() == [False, True]
    for text, rows in (
        ("n > 1", pa.table({"n": ["x"]})),
        ("n % 2 > 1", pa.table({"n": ["x"]})),
        ("st.a > 1", pa.table({"st": [{"b": 1}]})),
        ("t > '2020-01-01'", pa.table({"t": pa.array([2**60], pa.timestamp("s"))})),
    ):
        with pytest.raises(FilterError):
            parsed(text, schema).mask(rows)


def test_columns_of_type_void_are_null() -> None:
    rows = pa.table({"id": [0], "v": pa.nulls(1)})
    assert kept("v IS NULL", rows) == [0]
    assert kept("v = 1", rows) == []
    assert kept("NOT v = 1 OR coalesce(v, 5) = 5", rows) == [0]


def test_fields_of_null_structs_are_null() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1, 2])], names=["a"], mask=pa.array([False, True]))
    rows = pa.table({"id": [0, 1], "v": hidden})
    assert kept("v.a IS NULL", rows) == [1]
    assert kept("v.a > 0", rows) == [0]
    assert kept("v.a + 0 > 0", rows) == [0]


def test_types_without_order_can_be_tested_for_null_only() -> None:
    rows = pa.table({"id": [0], "v": pa.array([1], pa.duration("s"))})
    assert kept("v IS NOT NULL", rows) == [0]
    with pytest.raises(FilterError, match="duration"):
        kept("v > 1", rows)


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_with_dots_spaces_and_backticks() -> None:
    rows = pa.table({"id": [0, 1], "a.b": [1, 2], "a b": [3, 4], "a`b": [5, 6], "a": [{"b": 7}, {"b": 8}], "": [9, 10]})
    assert kept("`a.b` = 2", rows) == [1]
    assert kept("a.b = 8", rows) == [1]
    assert kept("`a`.`b` = 7", rows) == [0]
    assert kept("`a b` = 4 AND `a``b` = 6", rows) == [1]


def test_names_that_differ_only_in_case() -> None:
    rows = pa.table({"id": [0, 1], "a": [1, 2], "A": [2, 1]})
    assert kept("a = 1", rows) == [0]
    assert kept("A = 1 AND A + 0 = 1", rows) == [1]
    both = pa.table({"id": [0, 1], "ab": [1, 2], "AB": [2, 1]})
    with pytest.raises(FilterError, match="2 columns"):
        kept("Ab = 1", both)


def test_case_sensitive_names() -> None:
    assert parse_filter("i32 = 1", ROWS.schema, case_sensitive=True) is not None
    with pytest.raises(FilterError, match="column 'I32' not found"):
        parse_filter("I32 = 1", ROWS.schema, case_sensitive=True)


# --- rejected filters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i33 > 1", r"column 'i33' not found.*line: 1, position: \d.*did you mean 'i32'"),
        ("st.zz = 1", "field 'zz' not found in column 'st'.*columns are a, s, in"),
        ("i32.x = 1", "i32.*has no field 'x'"),
        ("i32", "got i32 of type int"),
        ("i32 + 1", "must be boolean"),
        ("'a'", "of type string"),
        ("", "empty"),
        ("  \n", "empty"),
        ("i32 >", "cannot be parsed.*line: 1"),
        ("i32 > 1 AND", "cannot be parsed"),
        ("s = 'a", "cannot be parsed"),
        ("i32 > 1; DROP TABLE x", "must be a single condition"),
        ("sum(i32) > 1", "the aggregate function sum"),
        ("count(*) > 1", "the aggregate function count"),
        ("i32 > (SELECT 1)", "SELECT 1 contains a subquery"),
        ("EXISTS (SELECT 1)", "subquery.*condition: DELTA_UNSUPPORTED_SUBQUERY"),
        ("i32 IN (SELECT 1)", "cannot be used|subquery"),
        ("row_number() OVER (ORDER BY i32) = 1", "window function"),
        ("rand() > 0.5", "not deterministic"),
        ("uperr(s) = 'A'", "function uperr.*did you mean upper"),
        ("upper(s, s) = 'A'", "upper takes 1 argument, got 2"),
        ("upper(arr) = 'A'", "argument 1 of upper must be string, got integer"),
        ("i32 = :x", "parameter :x has no value"),
        ("i32 = 'one'", "the string 'one' cannot be cast to int.*column: i32"),
        ("d > 'yesterday'", "the string 'yesterday' cannot be cast to date"),
        ("d = DATE '2020-02-30'", "is not a date"),
        ("b = 1", "boolean column cannot be compared with a bigint"),
        ("d = 5", "date column cannot be compared"),
        ("d > 1.5", "date column cannot be compared"),
        ("i32 = TRUE", "cannot be compared with a boolean"),
        ("st = 1", "cannot be compared|have no common type"),
        ("m = m", "cannot be compared"),
        ("i32 = s AND b = d", "have no common type"),
        ("s LIKE w", "needs a constant pattern"),
        ("s LIKE 'a\\\\bc'", "escapes a character"),
        ("s RLIKE '(?=a)'", "regular expression"),
        ("s RLIKE w", "must be a constant"),
        ("CAST(s AS ARRAY<INT>) IS NULL", "cannot cast to"),
        ("CAST(arr AS STRING) = '[1]'", "to string"),
        ("CAST(i64 AS DECIMAL(i8, 2)) = 1", "not a Spark type"),
        ("f64 = .0.3D", "not a number"),
        ("dec DIV 2 = 1", "DIV needs integers in a filter, got decimal"),
        ("big / big = 1", "division of decimal"),
        ("d - d > 1", "arithmetic with values of type date"),
        ("s = '" + "\ud800" + "'", "Unicode"),
        ("i32 < " + "9" * 200, "200 digits"),
        ("SELECT 1", "subquery"),
        ("i32 > 1 AS x", "cannot be used"),
        ("*", "cannot be used"),
        ("NOT " * 5000 + "b", "nested too deeply"),
        ("x" * 5_000_000, "characters long"),
    ],
)
def test_errors_state_the_problem(text: str, message: str) -> None:
    with pytest.raises(FilterError, match=f"(?s){message}"):
        parse_filter(text, ROWS.schema)


def test_filter_must_be_sql_or_an_expression() -> None:
    with pytest.raises(FilterError, match="got 5"):
        parse_filter(5, ROWS.schema)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="nsb12.5'`()=<>!,+-*/%[] ANDORNTILKEx\\\"\n", max_size=30))
def test_any_string_is_a_filter_or_a_filter_error(text: str) -> None:
    schema = pa.schema({"n": pa.int64(), "s": pa.string(), "b": pa.bool_()})
    rows = pa.table({"n": [1, None], "s": ["1", None], "b": [True, None]})
    try:
        bound = parse_filter(text, schema)
        assert bound is not None
        bound.apply(rows)
    except FilterError:
        pass


@pytest.mark.parametrize("depth", [10, 60, 120])
def test_conditions_may_be_nested(depth: int) -> None:
    left = "(" * depth + "i32 = 0" + "".join(f" OR i32 = {i})" for i in range(1, depth + 1))
    assert kept(left) == [1, 2, 6, 7, 9, 10] if depth == 10 else len(kept(left)) >= 6
    assert kept("NOT (" * depth + "i32 = 1" + ")" * depth) == [2]


def test_long_lists_and_chains() -> None:
    assert kept(f"i64 IN ({', '.join(map(str, range(5000)))})") == [1, 2, 7, 9, 10]
    assert kept(" OR ".join(f"i64 = {i}" for i in range(1000))) == [1, 2, 7, 9, 10]


# --- pyarrow expressions ----------------------------------------------------------------------------------------------


def test_pyarrow_expressions_are_evaluated_by_arrow() -> None:
    assert kept(pc.field("f64") > 5) == [5, 11]  # NaN is not greater here
    assert kept("f64 > 5") == [4, 5, 11]
    assert kept((pc.field("i32") > 1) & (pc.utf8_upper(pc.field("s")) == "ABC")) == [4]
    assert kept(pc.field("st", "a") == 1) == [2, 6]
    bound = parsed((pc.field("i32") > 1) & pc.field("s").isin(["a", "abc"]))
    assert bound.columns == {"i32", "s"}
    assert bound.conjuncts[0].sql == "(i32 > 1)"
    assert isinstance(bound.mask(ROWS.combine_chunks().to_batches()[0]), pa.BooleanArray)
    assert kept(pc.scalar(True)) == list(range(12))


def test_pyarrow_expressions_with_nested_extension_types() -> None:
    rows = pa.table(
        {"s": pa.nulls(2, pa.struct({"u": pa.uuid(), "n": pa.int64()})), "l": pa.nulls(2, pa.list_(pa.uuid()))}
    )
    rows = rows.append_column("a", pa.array([1, 2]))
    for expression in (pc.field("a") > 1, pc.add(pc.field("a"), pc.field("a")) > 3):
        assert parse_filter(expression, rows.schema).mask(rows).to_pylist() == [False, True]


def test_pyarrow_comparison_with_null_is_null() -> None:
    null = pc.field("i32") == pa.scalar(None, pa.int32())
    assert kept(null) == kept(~null) == kept(null & (pc.field("s") == "abc")) == []
    assert kept(null | (pc.field("s") == "abc")) == kept(pc.field("s") == "abc") != []
    assert parsed(null).mask(ROWS.select(["i32"])).to_pylist() == [False] * len(ROWS)


def test_columns_of_undecodable_pyarrow_expressions() -> None:
    assert parsed(pc.add(pc.field("i32"), pc.field("j")) > 3).columns == {"i32", "j"}
    assert {"i32"} <= parsed(pc.round(pc.field("i32"), ndigits=1) > 3).columns


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (pc.field("zz") > 1, "zz"),
        (pc.field("I32") > 1, "case-sensitive"),
        (pc.field(0) > 1, "by position"),
        (pc.field("i32"), "must be boolean"),
        (pc.field("s") > 1, "cannot evaluate"),
    ],
)
def test_unsupported_pyarrow_expressions_are_rejected(expression: pc.Expression, message: str) -> None:
    with pytest.raises(FilterError, match=message):
        parse_filter(expression, ROWS.schema)


@pytest.mark.parametrize(
    ("kind", "values", "looked_for", "answer"),
    [
        (pa.int8(), [1, 2], "1", True),
        (pa.int16(), [1, 2], "300L", False),
        (pa.int32(), [1, 2], "1.5D", False),
        (pa.int32(), [1, 2], "2D", True),
        (pa.int32(), [1, 2], "2.0", True),
        (pa.int64(), [16777217], "cast(16777216 as float)", True),
        (pa.float32(), [1.0], "1", True),
        (pa.float32(), [1.0], "1.0", True),
        (pa.float32(), [0.1], "0.1D", False),
        (pa.float32(), [0.1], "cast(0.1 as float)", True),
        (pa.float32(), [float("nan")], "cast('NaN' as double)", True),
    ],
)
def test_array_contains_with_mixed_types(kind: pa.DataType, values: list[float], looked_for: str, answer: bool) -> None:
    """Results are from Spark 4.3."""
    for array in (pa.array([values], pa.list_(kind)), pa.array([values], pa.list_(kind, len(values)))):
        table = pa.table({"v": array})
        condition = parse_filter(f"array_contains(v, {looked_for})", table.schema)
        assert condition is not None
        assert condition.mask(table).to_pylist() == [answer]


def test_string_among_numbers_is_rejected() -> None:
    schema = pa.schema([("v", pa.list_(pa.int16()))])
    with pytest.raises(FilterError, match="must be smallint like the elements, got string"):
        parse_filter("array_contains(v, '1')", schema)


@pytest.mark.parametrize(
    "text",
    [
        "\"Color\" <> 'red'",
        '"n" > 5 OR n = 1',
        'NOT ("Color" IS NULL)',
        "\"color\" IN ('red', 'blue')",
        'length("Color") BETWEEN 1 AND 5',
        '"Color" = "n"',
    ],
)
def test_double_quoted_column_name_is_rejected(text: str) -> None:
    # In deltalake it means the column; as a string, the condition is the same for all rows, and a delete removes all.
    with pytest.raises(FilterError, match="compares a string, not the column") as e:
        parse_filter(text, pa.schema([("Color", pa.string()), ("n", pa.int64())]))
    assert "backticks" in str(e.value)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('Color = "n"', 1),
        ('Color IN ("n", "x")', 1),
        ("'Color' = 'Color'", 2),
        ("\"x\" = 'x'", 2),
        ("concat(\"n\", '') = Color", 1),
        ("Color <> '\"n\"'", 2),
    ],
)
def test_other_double_quoted_strings_are_strings(text: str, rows: int) -> None:
    table = pa.table({"Color": ["n", "a"], "n": [1, 2]})
    found = parse_filter(text, table.schema)
    assert found is not None
    assert found.apply(table).num_rows == rows
