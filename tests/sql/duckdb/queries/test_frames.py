"""Queries over rows whose Arrow types Spark or DuckDB has in another form."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import trilake
from trilake.errors import InvalidArgumentError, UnsupportedExpressionError

_INSTANT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_DAY = _INSTANT.replace(tzinfo=None)
X = pa.table(
    {
        "u8": pa.array([1, 255, None], pa.uint8()),
        "u64": pa.array([1, 2**64 - 1, None], pa.uint64()),
        "half": pa.array(np.array([1, 2, 3], np.float16)),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        "ns": pa.array([1, 1500, None], pa.timestamp("ns")),
        "zone": pa.array([1, 1500, None], pa.timestamp("ns", "Europe/Berlin")),
        "time": pa.array([1, 2, None], pa.time64("us")),
        "view": pa.array(["x", "y", None], pa.string_view()),
        "pair": pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float32(), 2)),
        "nothing": pa.nulls(3),
        "both": pa.array(
            [{"t": _INSTANT, "n": _DAY}] * 3, pa.struct([("t", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us"))])
        ),
        'a "b': [1, 2, 3],
    }
)


@pytest.mark.parametrize(
    ("item", "kind", "first"),
    [
        ("u8", pa.int16(), 1),
        ("u8 + 1", pa.int32(), 2),
        ("u64", pa.decimal128(20, 0), decimal.Decimal(1)),
        ("half", pa.float32(), 1.0),
        ("word || '!'", pa.string(), "a!"),
        ("max(ns)", pa.timestamp("us"), _DAY.replace(1970, microsecond=1)),
        ("max(zone)", pa.timestamp("us", "UTC"), _INSTANT.replace(1970, microsecond=1)),
        ("time", pa.time64("us"), dt.time(0, 0, 0, 1)),
        ("upper(view)", pa.string(), "X"),
        ("pair[1]", pa.float32(), 2.0),
        ("nothing", pa.null(), None),
        ("both", X.schema.field("both").type, {"t": _INSTANT, "n": _DAY}),
        ("both.n", pa.timestamp("us"), _DAY),
        ("both.t", pa.timestamp("us", "UTC"), _INSTANT),
        ('`a "b` * 2', pa.int64(), 2),
    ],
)
def test_values_have_their_spark_types(item: str, kind: pa.DataType, first: object) -> None:
    found = trilake.sql(f"SELECT {item} FROM x", x=X)
    assert found.schema.types == [kind]
    assert found.column(0)[0].as_py() == first


def test_rows_without_a_struct_are_kept_where_its_fields_are_required() -> None:
    required = pa.struct([pa.field("t", pa.timestamp("us", "UTC"), nullable=False), ("n", pa.timestamp("us"))])
    rows = pa.table({"k": [1, 2], "both": pa.array([{"t": _INSTANT, "n": _DAY}, None], required)})
    found = trilake.sql("SELECT a.k, b.both FROM x a LEFT JOIN x b ON b.k = a.k + 1 UNION ALL SELECT * FROM x", x=rows)
    there = [row for row in found.to_pylist() if row["both"] is not None]
    assert (found.num_rows, there) == (4, [{"k": 1, "both": {"t": _INSTANT, "n": _DAY}}])
    assert found.schema.field("both").type.field("t").type == pa.timestamp("us", "UTC")


def test_times_of_two_queries_are_instants_where_either_has_them() -> None:
    def rows(*zones: str | None) -> pa.Table:
        kind = pa.struct([(name, pa.timestamp("us", zone)) for name, zone in zip("abc", zones, strict=True)])
        return pa.table({"s": pa.array([dict.fromkeys("abc", _DAY)], kind)})

    left, right, naive = rows("UTC", None, None), rows(None, "UTC", None), rows(None, None, None)
    for query in ("SELECT s FROM a UNION ALL SELECT s FROM b", "SELECT s FROM c UNION ALL SELECT s FROM a"):
        found = trilake.sql(query, a=left, b=right, c=naive).schema.field("s").type
        zones = {f.name: f.type.tz for f in found}
        assert zones == {"a": "UTC", "b": "UTC" if "b" in query else None, "c": None}, query


def test_what_has_no_type_is_refused_by_its_name() -> None:
    wide = pa.table({"w": pa.array([decimal.Decimal("1.5")], pa.decimal256(40, 2))})
    with pytest.raises(InvalidArgumentError, match="`w` is of type decimal256"):
        trilake.sql("SELECT 1 FROM x", x=wide)
    with pytest.raises(UnsupportedExpressionError, match="max of values of type time"):
        trilake.sql("SELECT max(time) FROM x", x=X)


def test_numbers_of_16_bits_are_read_from_lance(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4, dtype=np.float16)), 2)
    rows = pa.table({"id": [1, 2], "h": pa.array(np.array([1, 2], np.float16)), "v": vectors})
    trilake.write(rows, tmp_path / "l", format="lance")
    query = f"SELECT id, h + 1 AS more, v[0] AS v FROM lance.`{tmp_path}/l` WHERE h > 1"
    assert trilake.sql(query).to_pylist() == [{"id": 2, "more": 3.0, "v": 2.0}]


def test_frames_and_ctes_hide_one_another_as_in_spark() -> None:
    a, b = pa.table({"n": [1]}), pa.table({"n": [2]})
    assert trilake.sql("WITH a AS (SELECT 3 AS n) SELECT a.n + B.N AS s FROM a, b", a=a, b=b).to_pylist() == [{"s": 5}]
    assert trilake.sql("SELECT A.n FROM (SELECT n FROM b) A", a=a, b=b).to_pylist() == [{"n": 2}]


def test_many_joins_need_their_conditions_or_say_that_they_have_none() -> None:
    """The parser took twice as long with each join without one: some dozens would never have ended."""
    a = pa.table({"n": [1]})
    with pytest.raises(InvalidArgumentError, match="more than 10 joins without a condition"):
        trilake.sql("SELECT 1 FROM a x" + "".join(f" JOIN a x{i}" for i in range(40)), a=a)
    crossed = "".join(f" CROSS JOIN a x{i}" for i in range(20))
    on = "".join(f" JOIN a y{i} ON y{i}.n = x.n" for i in range(20))
    assert trilake.sql(f"SELECT count(*) AS c FROM a x{crossed}{on}", a=a).to_pylist() == [{"c": 1}]
