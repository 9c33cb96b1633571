"""Rows and filters on which trilake and Spark must agree; ``spark_filters.txt`` has the filters, one a line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

NAN, INF = float("nan"), float("inf")


def _ts(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def _ntz(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


#: One list per column; row 0 is all null.
ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int32()),
        "i8": pa.array([None, 0, 1, -1, 127, -128, 5, 7, 100, 3, 2, -7], pa.int8()),
        "i16": pa.array([None, 0, 1, -1, 32767, -32768, 5, 7, 100, 3, 2, -7], pa.int16()),
        "i32": pa.array([None, 0, 1, -1, 2**31 - 1, -(2**31), 5, 7, 100, 3, 2, -7], pa.int32()),
        "i64": pa.array([None, 0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 7, 2**53, 3, 2, -7], pa.int64()),
        "j": pa.array([None, 0, 3, 2, 1, None, -3, 2, 7, 0, 5, 2], pa.int32()),
        "f32": pa.array([None, 0.0, -0.0, 0.1, NAN, INF, -INF, 1.5, -1.5, 2.5, 16777216.0, 100.0], pa.float32()),
        "f64": pa.array([None, 0.0, -0.0, 0.1, NAN, INF, -INF, 1.5, -1.5, 2.5, 1.005, 100.0], pa.float64()),
        "dec": pa.array(
            [
                None,
                *map(
                    Decimal,
                    [
                        "0.00",
                        "1.00",
                        "-1.00",
                        "99999999.99",
                        "-99999999.99",
                        "1.50",
                        "2.55",
                        "0.10",
                        "-0.10",
                        "7.00",
                        "100.00",
                    ],
                ),
            ],
            pa.decimal128(10, 2),
        ),
        "big": pa.array(
            [
                None,
                *map(
                    Decimal,
                    ["0", "1", "-1", "9999999999999999999999999999", "0.0000000001", "1.5", "2", "3", "4", "5", "6"],
                ),
            ],
            pa.decimal128(38, 10),
        ),
        "s": pa.array(
            [None, "", "a", "A", "abc", "a%b", "a_b\\", "straße", "ΑΣ", "\U0001f600", "\uffff", " x\n"], pa.string()
        ),
        "n": pa.array(
            [None, "0", "1", " -1 ", "007", "5", "+12", "100", "3", "2", "9223372036854775807", "1"], pa.string()
        ),
        "w": pa.array(
            [None, "abc", "bcd", "abcabc", "b", "ab", "foo.bar", "2020-01-01", "cab\n", "Abc", "x y", "a1b2"],
            pa.string(),
        ),
        "bin": pa.array(
            [None, b"", b"\x00", b"a", b"abc", b"\xff", b"\x80", b"\x7f", b"b", b"ab", b"\x00\x01", b"A"], pa.binary()
        ),
        "b": pa.array([None, True, False, True, False, None, True, False, True, False, True, False], pa.bool_()),
        "c": pa.array([None, True, False, False, True, True, None, False, True, None, False, True], pa.bool_()),
        "d": pa.array(
            [
                None,
                *map(
                    dt.date.fromisoformat,
                    [
                        "1970-01-01",
                        "2020-01-01",
                        "2020-01-31",
                        "2020-02-29",
                        "9999-12-31",
                        "0001-01-01",
                        "1969-12-31",
                        "2019-12-31",
                        "2021-06-15",
                        "2020-12-27",
                        "2000-03-01",
                    ],
                ),
            ],
            pa.date32(),
        ),
        "t": pa.array(
            [
                None,
                *map(
                    _ts,
                    [
                        *("1970-01-01", "2020-01-01", "2020-01-01 00:00:00.000001", "2020-01-01 12:34:56.789012"),
                        *(
                            "9999-12-31 23:59:59.999999",
                            "0001-01-01",
                            "1969-12-31 23:59:59.500000",
                            "2019-12-31 23:59:59",
                        ),
                        *("2020-02-29 06:00:00", "2020-01-02", "2021-06-15 01:02:03.004000"),
                    ],
                ),
            ],
            pa.timestamp("us", "UTC"),
        ),
        "z": pa.array(
            [
                None,
                *map(
                    _ntz,
                    [
                        *("1970-01-01", "2020-01-01", "2020-01-01 00:00:00.000001", "2020-01-01 12:34:56.789012"),
                        *(
                            "9999-12-31 23:59:59.999999",
                            "0001-01-01",
                            "1969-12-31 23:59:59.500000",
                            "2019-12-31 23:59:59",
                        ),
                        *("2020-02-29 06:00:00", "2020-01-02", "2021-06-15 01:02:03.004000"),
                    ],
                ),
            ],
            pa.timestamp("us"),
        ),
        "st": pa.array(
            [
                None,
                {"a": None, "s": None, "in": None},
                {"a": 1, "s": "x", "in": {"q": True}},
                {"a": 2, "s": "y", "in": {"q": False}},
                {"a": 3, "s": None, "in": {"q": None}},
                *[{"a": i, "s": str(i), "in": None} for i in range(7)],
            ],
            pa.struct([("a", pa.int32()), ("s", pa.string()), ("in", pa.struct([("q", pa.bool_())]))]),
        ),
        "arr": pa.array(
            [None, [], [1], [None], [1, 2, 3], [3, None, 1], [2], [2, 2], [0], [5, 6], [-1], [7, 8, 9, 10]],
            pa.list_(pa.int32()),
        ),
        "m": pa.array(
            [
                None,
                [],
                [("k", 1)],
                [("k", None)],
                [("j", 1), ("k", 2)],
                *[[("k", i), ("l", -i)] for i in range(7)],
            ],
            pa.map_(pa.string(), pa.int32()),
        ),
        "a b": pa.array(range(0, 120, 10), pa.int64()),
        "x.y": pa.array([None, *range(11)], pa.int64()),
        "Mixed": pa.array(["p", "q"] * 6, pa.string()),
    }
)

#: ``spark_answers.json`` has Spark 4's rows for each.
FILTERS = (Path(__file__).parent / "spark_filters.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
