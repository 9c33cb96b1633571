"""Averages and quotients of decimals are exact until they are rounded once, half away from zero, as Spark's are."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trilake
from trilake.sql.duckdb.queries.decimals import adjusted

_EXACT = Context(prec=200)


class _Kind(NamedTuple):
    precision: int
    scale: int

    def of(self, digits: int) -> Decimal:
        return Decimal(digits).scaleb(-self.scale, _EXACT)

    def values(self) -> st.SearchStrategy[Decimal]:
        """Values of all lengths, many of them near to the longest or with a last digit that is rounded."""
        most = 10**self.precision - 1
        near = st.integers(max(most - 5, 0), most)
        small = st.sampled_from([n for n in (0, 1, 2, 5, 25, 15, 10**9, 10**13 - 1, 10**13, 2**53 + 1) if n <= most])
        return st.builds(
            lambda n, sign: self.of(n * sign), near | small | st.integers(0, most), st.sampled_from((1, -1))
        )


def _kinds(longest: int) -> st.SearchStrategy[_Kind]:
    return st.integers(1, longest).flatmap(lambda p: st.builds(_Kind, st.just(p), st.integers(0, p)))


_KINDS, _SHORT_KINDS = _kinds(38), _kinds(18)


def _sum(values: Iterable[Decimal]) -> Decimal:
    return reduce(_EXACT.add, values, Decimal(0))


def _rounded(dividend: Decimal, divisor: int | Decimal, of: tuple[int, int]) -> Decimal | None:
    """The quotient, rounded once; none where it has more digits than the type."""
    last = Decimal(1).scaleb(-of[1])
    quotient = _EXACT.divide(dividend, Decimal(divisor)).quantize(last, ROUND_HALF_UP, _EXACT)
    return quotient if abs(quotient) < Decimal(10) ** (of[0] - of[1]) else None


@settings(deadline=None)
@given(st.data())
def test_an_average_is_the_exact_one_rounded(data: st.DataObject) -> None:
    kind = data.draw(_KINDS)
    groups = data.draw(st.lists(st.lists(st.none() | kind.values(), max_size=4), min_size=1, max_size=8))
    found = min(kind.precision + 4, 38), min(kind.scale + 4, 38)
    present = [[v for v in group if v is not None] for group in groups]
    expected = [_rounded(_sum(group), len(group), found) if group else None for group in present]
    if any(e is None and group for e, group in zip(expected, present, strict=True)):
        return
    if any(abs(_sum(group)) >= Decimal(10) ** (38 - kind.scale) for group in present):
        return  # Spark's sum has no more digits than that
    rows = [(n, v) for n, group in enumerate(groups) for v in (*group, None)]
    table = pa.table({"n": [n for n, _ in rows], "x": pa.array([v for _, v in rows], pa.decimal128(*kind))})
    answer = trilake.sql("SELECT n, avg(x) AS a FROM t GROUP BY n ORDER BY n", t=table)
    assert answer["a"].type == pa.decimal128(*found)
    assert answer["a"].to_pylist() == expected


@settings(deadline=None)
@given(st.data())
def test_a_quotient_is_the_exact_one_rounded(data: st.DataObject) -> None:
    left, right = data.draw(_SHORT_KINDS), data.draw(_SHORT_KINDS)
    pairs = data.draw(st.lists(st.tuples(left.values(), right.values().filter(bool)), min_size=1, max_size=8))
    scale = max(6, left.scale + right.precision + 1)
    found = adjusted(left.precision - left.scale + right.scale + scale, scale)
    expected = [_rounded(a, b, found) for a, b in pairs]
    if found[0] == 38 or None in expected:
        return
    kinds = pa.decimal128(*left), pa.decimal128(*right)
    columns = {n: pa.array(column, kind) for n, column, kind in zip("ab", zip(*pairs, strict=True), kinds, strict=True)}
    answer = trilake.sql("SELECT a / b AS q FROM t", t=pa.table(columns))["q"]
    assert answer.type == pa.decimal128(*found)
    assert answer.to_pylist() == expected


@pytest.mark.parametrize(("count", "value"), [(1, "1"), (1000, "99999999999.99"), (3000, "9999999999999.99")])
def test_an_average_of_many_is_exact_in_64_bits_and_in_128(count: int, value: str) -> None:
    table = pa.table({"x": pa.array([Decimal(value)] * count + [Decimal("0.01")], pa.decimal128(15, 2))})
    expected = _rounded(_EXACT.multiply(Decimal(value), count) + Decimal("0.01"), count + 1, (19, 6))
    assert trilake.sql("SELECT avg(x) AS a FROM t", t=table)["a"].to_pylist() == [expected]
