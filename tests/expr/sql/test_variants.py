"""``variant_get`` in filters: results of Spark 4.3, or an error if a value is not supported."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.parquet.test_shredding import variants
from trilake.errors import FilterError
from trilake.expr import parse_filter

VALUES = [
    *({"a": 1}, {"a": "7"}, {"a": True}, {"a": [10, 20]}, {"a": {"b": "x"}}, {"a": None}, 3, {"b": 1}, ...),
    *({"a": 300}, {"a": 3000000000}, {"a": "2020-01-02"}, {"a": ""}),
]
ROWS = pa.table({"n": range(len(VALUES)), "v": variants(VALUES)})


def kept(filter: str) -> list[int]:
    bound = parse_filter(filter, ROWS.schema)
    assert bound is not None
    return ROWS.filter(bound.mask(ROWS))["n"].to_pylist()


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("try_variant_get(v, '$.a', 'int') = 1", [0, 2]),
        ("try_variant_get(v, '$.a', 'int') >= 7", [1, 9]),
        ("try_variant_get(v, '$.a', 'tinyint') IS NULL", [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
        ("try_variant_get(v, '$.a', 'double') = 3e9", [10]),
        ("try_variant_get(v, '$.a', 'boolean')", [0, 2, 9, 10]),
        ("try_variant_get(v, '$.a', 'date') = DATE '2020-01-02'", [11]),
        ("variant_get(v, '$.a[1]', 'int') = 20", [3]),
        ("variant_get(v, '$.a[0]', 'BIGINT') = 10", [3]),
        ("variant_get(v, '$.a[7]', 'int') IS NOT NULL", []),
        ("variant_get(v, '$[\"a\"].b', 'string') = 'x'", [4]),
        ("try_variant_get(v, \"$['a']\", 'int') = 300", [9]),
        ("n < 3 AND variant_get(v, '$.a', 'string') IN ('1', 'true')", [0, 2]),
        ("try_variant_get(v, '$', 'int') = 3", [6]),
    ],
)
def test_variant_get_in_filters(filter: str, expected: list[int]) -> None:
    assert kept(filter) == expected


@pytest.mark.parametrize(
    ("filter", "says"),
    [
        ("variant_get(v, '$.a', 'int') = 1", "out of range|cannot be cast to int|its type is"),
        ("try_variant_get(v, '$.a', 'string') = 'x'", "its type is"),
        ("variant_get(n, '$.a', 'int') = 1", "argument 1 of variant_get must be variant, got bigint"),
        ("variant_get(v, 'a', 'int') = 1", "is not a valid variant path"),
        ("variant_get(v, '$.a[x]', 'int') = 1", "is not a valid variant path"),
        ("variant_get(v, '$.a', 'timestamp') IS NULL", "cannot extract timestamp from a variant"),
        ("variant_get(v, '$.a', 'nothing') IS NULL", "nothing"),
        ("variant_get(v, '$.a', CAST(n AS STRING)) IS NULL", "must be a constant"),
    ],
)
def test_unsupported_variant_reads(filter: str, says: str) -> None:
    with pytest.raises(FilterError, match=says):
        kept(filter)
