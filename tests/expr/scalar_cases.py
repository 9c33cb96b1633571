"""Rows and expressions whose values and types must be Spark's; ``spark_values.json`` holds what Spark 4 computed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

ROWS = pa.table(
    {
        "i": pa.array([None, 0, 7, -7, 100], pa.int32()),
        "n": pa.array([None, 0, 12345, -3, 2**53 + 1], pa.int64()),
        "b": pa.array([None, 0, 1, -128, 127], pa.int8()),
        "x": pa.array([None, 0.5, -2.5, 1e15, 2.675], pa.float64()),
        "f": pa.array([None, 0.5, -2.5, 1.0, 0.1], pa.float32()),
        "dec": pa.array([None, *map(Decimal, ["0.00", "12.34", "-5.55", "99.99"])], pa.decimal128(10, 2)),
        "s": pa.array([None, "", "Hello-World", "straße x", "a-b-c"], pa.string()),
        "day": pa.array([None, "2020-02-29", "1999-12-31", "2024-01-01", "1969-07-20"], pa.string()),
        "flag": pa.array([None, True, False, True, False], pa.bool_()),
        "d": pa.array(
            [None, dt.date(2020, 2, 29), dt.date(1999, 12, 31), dt.date(2024, 1, 1), dt.date(1969, 7, 20)], pa.date32()
        ),
        "t": pa.array([None, 0, 1_582_983_045_123_456, -1_000_001, 1_704_067_199_000_000], pa.timestamp("us", "UTC")),
        "w": pa.array([None, 0, 1_582_983_045_123_456, -1_000_001, 1_704_067_199_000_000], pa.timestamp("us")),
        "st": pa.array(
            [
                None,
                {"a": 1, "q": {"r": "deep"}},
                {"a": None, "q": None},
                {"a": 3, "q": {"r": None}},
                {"a": 4, "q": None},
            ],
            pa.struct([("a", pa.int64()), ("q", pa.struct([("r", pa.string())]))]),
        ),
        "l": pa.array([None, [], [1], [1, None, 3], [5, 6]], pa.list_(pa.int32())),
    }
)

_TIMES = [
    *(f"{name}({{}})" for name in ("year", "quarter", "month", "weekofyear", "day", "dayofmonth", "dayofweek")),
    *(f"{name}({{}})" for name in ("weekday", "dayofyear", "hour", "minute", "second", "last_day", "to_date", "date")),
    *("dayname({})", "monthname({})", "add_months({}, 1)", "date_add({}, 5)", "date_sub({}, 40)"),
    *("CAST({} AS DATE)", "CAST({} AS TIMESTAMP)", "CAST({} AS STRING)", "datediff({}, DATE '2020-01-01')"),
    *(f"trunc({{}}, '{u}')" for u in ("YEAR", "quarter", "MM", "WEEK")),
    *(f"date_trunc('{u}', {{}})" for u in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")),
    *(
        f"date_format({{}}, {p})"
        for p in ("'yyyy-MM'", "'yyyy-MM-dd'", "'yyyy-MM-dd-HH'", "'yyyyMMddHHmmss'", "'d/M/yy h:m:s a'", "'HH'", "'E'")
    ),
    *(f"date_format({{}}, {p})" for p in ("'EEEE, d MMMM yyyy'", "'MMM dd'", "'DDD'", "'SSS'", "'SSSSSS'", "'100%'")),
    "date_format({}, \"yyyy-MM-dd'T'HH:mm:ss\")",
    *("extract(YEAR FROM {})", "extract(DOW FROM {})", "concat('p', year({}), month({}))", "{} + INTERVAL 1 DAY"),
]

EXPRESSIONS = [
    # columns and constants
    *("i", "N", "st.a", "st.q.r", "1", "1L", "1.5", "1.5D", "'text'", "TRUE", "NULL", "DATE '2020-01-01'", "X'1F'"),
    # numbers
    *("i + 1", "i + n", "i * 2L", "-i", "i - n", "i / 2", "n / i", "i % 3", "i DIV 2", "x * 2", "f * 2", "x + i"),
    *(
        "dec + 1",
        "dec * 2",
        "dec * dec",
        "dec + dec",
        "dec - 0.005",
        "dec % 3",
        "abs(i)",
        "abs(dec)",
        "abs(x)",
        "b + 1",
    ),
    *(
        "floor(x)",
        "ceil(x)",
        "floor(dec)",
        "ceil(dec)",
        "floor(i)",
        "round(x)",
        "round(x, 2)",
        "round(dec, 1)",
        "round(i)",
    ),
    *("sign(x)", "pmod(i, 3)", "mod(n, 10)", "greatest(i, n, 5)", "least(i, x)", "i & 3", "i | 8", "i ^ 1", "~i"),
    *("sqrt(abs(x))", "pow(i, 2)", "n * 1000 % 7", "CAST(i AS TINYINT)", "CAST(x AS INT)", "CAST(x AS DECIMAL(20,1))"),
    *("CAST(x AS STRING)", "CAST(x * 1e10 AS STRING)", "CAST(x / 1e6 AS STRING)", "CAST(-x * 1e300 AS STRING)"),
    *("concat('a', x)", "CAST(1e7D AS STRING)", "CAST(9999999D AS STRING)"),
    *("CAST(0.001D AS STRING)", "CAST(0.00099D AS STRING)", "CAST(123456789.125D AS STRING)", "CAST(1e16D AS STRING)"),
    *("CAST(CAST('NaN' AS DOUBLE) AS STRING)", "CAST(CAST('-Infinity' AS DOUBLE) AS STRING)"),
    *("CAST(i AS STRING)", "CAST(dec AS STRING)", "CAST(dec AS INT)", "CAST(n AS DOUBLE)", "CAST(flag AS INT)"),
    *("CAST(i AS BOOLEAN)", "CAST(flag AS STRING)", "CAST(i AS DECIMAL(12,3))", "try_divide(i, 0)", "try_add(i, 1)"),
    # strings
    *(
        "upper(s)",
        "lower(s)",
        "length(s)",
        "char_length(s)",
        "concat(s, '-', i)",
        "s || '!'",
        "concat_ws('/', s, i, 'z')",
    ),
    *(
        "substring(s, 1, 3)",
        "substr(s, -3)",
        "substring(s, 0, 2)",
        "left(s, 2)",
        "right(s, 2)",
        "trim(s)",
        "reverse(s)",
    ),
    *("substring(s FROM 2 FOR 3)", "replace(s, '-', '_')", "translate(s, 'el', 'ip')", "lpad(s, 4, '*')", "rpad(s, 4)"),
    *(
        "instr(s, '-')",
        "locate('o', s)",
        "position('-' IN s)",
        "startswith(s, 'H')",
        "contains(s, 'lo')",
        "s LIKE '%-%'",
    ),
    *(
        "split(s, '-')",
        "split(s, '-')[0]",
        "split_part(s, '-', 2)",
        "split_part(s, '-', -1)",
        "regexp_extract(s, '(\\\\w+)-')",
    ),
    *("regexp_extract(s, '(\\\\w)-(\\\\w)', 2)", "s RLIKE '^H'", "md5(s)", "sha1(s)", "sha2(s, 256)", "repeat(s, 2)"),
    *("hex(s)", "hex(CAST(s AS BINARY))", "hex(i)", "hex(n)", "hex(-i)", "hex(b)"),
    *("CAST(day AS DATE)", "to_date(day)", "to_date(day, 'yyyy-MM-dd')", "to_timestamp(day, 'yyyy-MM-dd')"),
    *("to_date('31.12.2020', 'dd.MM.yyyy')", "to_timestamp('20201231 235958', 'yyyyMMdd HHmmss')", "CAST('12' AS INT)"),
    # conditions
    *(
        "i > 0",
        "i <=> NULL",
        "flag AND i > 0",
        "NOT flag",
        "i IN (0, 7)",
        "i BETWEEN 0 AND 7",
        "s IS NULL",
        "isnotnull(s)",
    ),
    *("CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' ELSE 'z' END", "CASE i WHEN 7 THEN 1 END", "IF(flag, i, n)"),
    *("coalesce(i, 0)", "coalesce(s, day, '?')", "nvl(i, n)", "nullif(i, 0)", "ifnull(dec, 0)", "nvl2(i, 1, 2)"),
    # nested
    *("size(l)", "try_element_at(l, 1)", "array_contains(l, 3)", "get(l, 1)", "st.q"),
    # dates and times
    *(e.replace("{}", column) for column in ("d", "t", "w") for e in _TIMES),
    *(
        "unix_date(d)",
        "unix_micros(t)",
        "unix_seconds(t)",
        "unix_millis(t)",
        "timestamp_seconds(i)",
        "from_unixtime(n)",
    ),
    *("from_unixtime(i, 'yyyy-MM-dd HH')", "make_date(2020, 2, 29)", "date_from_unix_date(i)", "timestamp_micros(n)"),
]

#: Expressions stored in a column of a type, by Spark's store assignment: Spark's name of the type, and Arrow's.
STORED = [
    *((e, "BIGINT") for e in ("i", "x", "dec", "f", "1.9D", "-1.9D")),
    *((e, "INT") for e in ("n % 1000", "dec", "year(t)", "floor(dec)")),
    *((e, "STRING") for e in ("i", "dec", "flag", "d", "t", "year(d)")),
    *((e, "DATE") for e in ("t", "w", "date_trunc('MONTH', t)")),
    *((e, "TIMESTAMP") for e in ("d", "w")),
    *((e, "DECIMAL(12,1)") for e in ("i", "dec", "x", "2.25", "-2.25")),
    *((e, "DOUBLE") for e in ("i", "n", "dec", "f")),
    *((e, "FLOAT") for e in ("i", "x", "dec")),
]
ARROW = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DECIMAL(12,1)": pa.decimal128(12, 1),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
}


def as_strings(values: list[Any]) -> list[str]:
    """Values as strings that JSON keeps apart."""
    return [str(v.replace(tzinfo=None)) if isinstance(v, dt.datetime) else repr(v) for v in values]
