"""Data skipping is sound for random files, statistics and filters."""

from __future__ import annotations

import datetime as dt
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.expr.conditions import OPERATORS, compare, in_, is_null, not_, starts_with, to_filter
from tests.expr.skipping import ODD, PARTITIONS, SCHEMA, UTC, VALUES, make_files, seeds, terms
from trilake.expr import ColumnStats, FileStats, Filter, can_match, parse_filter
from trilake.expr.pushdown import successor


def _bounds(values: pa.ChunkedArray, cut: int) -> tuple[Any, Any]:
    """Minimum and maximum as Delta writes them: without NaN, strings truncated, timestamps widened to milliseconds."""
    present = [v for v in values.to_pylist() if v is not None and v == v]
    if not present:
        return None, None
    low, high = min(present), max(present)
    if isinstance(low, str) and cut:
        # Python compares code points, which is the order of UTF-8 bytes.
        prefix = high[:cut]
        return low[:cut], high if len(high) <= cut else successor(prefix)
    if isinstance(low, dt.datetime):
        low = low.replace(microsecond=low.microsecond // 1000 * 1000)
        high = high.replace(microsecond=high.microsecond // 1000 * 1000)
        ms = dt.timedelta(milliseconds=1)
        return low, dt.datetime.max.replace(tzinfo=UTC) if high.year == 9999 else high + ms
    return low, high


def make_statistics(random: Random, tables: list[pa.Table]) -> FileStats:
    """File statistics, with some missing and some wide, as after deletions."""
    columns: dict[tuple[str, ...], ColumnStats] = {}
    cut = random.choice([0, 1, 2])
    wide = [random.random() < 0.5 for _ in tables]
    counts = [t.num_rows if random.random() < 0.8 else None for t in tables]
    for field in tables[0].schema:
        name = field.name
        if name in PARTITIONS:
            values = [t[name][0].as_py() if t.num_rows else random.choice(VALUES[name]) for t in tables]
            columns[name,] = ColumnStats(value=pa.array(values, field.type))
            continue
        if random.random() < 0.2:
            continue
        low, high, nulls, counted = [], [], [], []
        for table, is_wide, count in zip(tables, wide, counts):
            a, b = _bounds(table[name], cut)
            counted.append(pa.types.is_floating(field.type) and random.random() < 0.5)
            if counted[-1] and pc.any(pc.is_nan(table[name])).as_py():
                b = None
            null = table[name].null_count
            if is_wide:
                within = pa.array([v for v in VALUES[name] if v == v]).cast(field.type, safe=False).to_pylist()
                a = None if a is None else min(a, random.choice(within))
                b = None if b is None else max(b, random.choice(within))
                if null not in (0, table.num_rows):
                    null = random.choice([n for n in (1, 2, 3) if n != count])
            keep = random.randrange(8)
            low.append(a if keep != 1 else None)
            high.append(b if keep != 2 else None)
            nulls.append(null if keep != 3 else None)
        columns[name,] = ColumnStats(
            min=pa.array(low, field.type),
            max=pa.array(high, field.type),
            null_count=pa.array(nulls, pa.int64()),
            max_counts_nan=pa.array(counted),
        )
    return FileStats.of(len(tables), columns, pa.array(counts, pa.int64()))


def _sound(bound: Filter, tables: list[pa.Table], stats: FileStats) -> None:
    result = can_match(bound, stats)
    rows = np.array([t.num_rows for t in tables])
    mask = bound.mask(pa.concat_tables(tables)).to_numpy()
    matching = np.bincount(np.repeat(np.arange(len(tables)), rows), weights=mask, minlength=len(tables))
    lost = ~result.keep & (matching > 0)
    assert not lost.any(), f"lost {matching[lost]} rows: {result.reason_strings().filter(pa.array(lost))}"
    assert (matching == rows)[result.every_row].all()
    assert (result.keep == (result.reason < 0)).all()


@pytest.mark.parametrize("column", SCHEMA.names)
def test_every_leaf_is_sound(column: str) -> None:
    random = Random(column)
    tables = make_files(random, 60)
    stats = make_statistics(random, tables)
    leaves = [compare(column, op, v) for op in OPERATORS for v in VALUES[column] + ODD[column]]
    leaves += [in_(column, random.sample([None, *VALUES[column], *ODD[column]], 2)) for _ in range(9)]
    if column in ("s", "p"):
        leaves += [starts_with(column, v) for v in VALUES[column]]
    for leaf in [*random.sample(leaves, min(60, len(leaves))), is_null(column)]:
        _sound(to_filter(leaf, SCHEMA), tables, stats)
        _sound(to_filter(not_(leaf), SCHEMA), tables, stats)


@settings(max_examples=40, deadline=None)
@given(seeds, st.lists(terms(), min_size=1, max_size=8))
def test_no_matching_row_is_skipped_and_no_claim_is_false(seed: int, several: list[str]) -> None:
    random = Random(seed)
    tables = make_files(random)
    for term in several:
        _sound(to_filter(term, SCHEMA), tables, make_statistics(random, tables))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> pc.Expression:
    kind = draw(
        st.sampled_from(["compare", "compare", "in", "null", "prefix", *(["and", "or", "not"] if depth else [])])
    )
    if kind in ("and", "or"):
        a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
        return a & b if kind == "and" else a | b
    if kind == "not":
        return ~draw(expressions(depth - 1))
    column = draw(st.sampled_from(SCHEMA.names))
    field, t = pc.field(column), SCHEMA.field(column).type
    if kind == "null":
        return draw(st.sampled_from([field.is_null(), field.is_valid(), field.is_null(nan_is_null=True)]))
    if kind == "in":
        values = draw(st.lists(st.one_of(st.none(), st.sampled_from(VALUES[column])), max_size=3))
        return field.isin(pa.array(values, t))
    if kind == "prefix":
        return pc.starts_with(pc.field("s"), draw(st.sampled_from(VALUES["s"])))
    value = pc.scalar(pa.scalar(draw(st.sampled_from(VALUES[column])), t))
    kernel = draw(st.sampled_from([pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]))
    return kernel(field, value) if draw(st.booleans()) else kernel(value, field)


@settings(max_examples=30, deadline=None)
@given(seeds, st.lists(expressions(), min_size=1, max_size=6))
def test_pyarrow_expressions_skip_by_arrow_semantics(seed: int, several: list[pc.Expression]) -> None:
    random = Random(seed)
    tables = make_files(random)
    for expression in several:
        bound = parse_filter(expression, SCHEMA)
        assert bound is not None
        _sound(bound, tables, make_statistics(random, tables))


SQL = [
    "upper(p) = 'X'",
    "q % 2 = 0",
    "q / 1 > 0.5 OR n > 1",
    "year(t) = 1970",
    "year(d) >= 2020",
    "CAST(t AS DATE) = '1970-01-01'",
    "CAST(t AS DATE) > '1969-12-31' AND q <> 1",
    "NOT (year(t) < 1970)",
    "s LIKE 'ab%' AND NOT s LIKE 'abc%'",
    "p = 'x' OR length(s) = 2",
    "coalesce(q, 1) = 1",
    "q + 0 = 1 OR n = 1",
    "CAST(q AS DOUBLE) > 0.5 AND CAST(tiny AS DOUBLE) >= 0",
    "CAST(d AS TIMESTAMP) > TIMESTAMP '1970-01-01 00:00:00'",
    "CAST(f AS DOUBLE) <= 0.1",
    "CAST(t AS DATE) IN ('1970-01-01', '2020-01-01') OR year(d) IN (1, 9999)",
    "isnan(x)",
    "NOT isnan(x) AND x > 1",
    "x > 1 IS NOT TRUE",
    "p IS NULL AND q IS NOT NULL",
    "n BETWEEN 1 AND 5 AND NOT b",
    "b IS NOT FALSE",
    "(n > 1) = (q > 0)",
]


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from(SQL))
def test_sql_skips_soundly(seed: int, text: str) -> None:
    random = Random(seed)
    tables = make_files(random)
    _sound(parsed(text), tables, make_statistics(random, tables))


@cache
def parsed(text: str) -> Filter:
    bound = parse_filter(text, SCHEMA)
    assert bound is not None
    return bound
