"""The Arrow expression pushed down for a filter never drops a matching row."""

from __future__ import annotations

import datetime as dt
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.expr.conditions import OPERATORS, compare, in_, not_, starts_with, to_filter
from tests.expr.skipping import ODD, SCHEMA, VALUES, make_files, seeds, terms
from trilake.expr import Filter, parse_filter
from trilake.expr.pushdown import successor, superset


def parsed(text: str, schema: pa.Schema = SCHEMA) -> Filter:
    bound = parse_filter(text, schema)
    assert bound is not None
    return bound


def _parquet(table: pa.Table, rows: int) -> ds.ParquetFileFragment:
    """A Parquet file with row groups of a few rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows)
    return ds.ParquetFileFormat().make_fragment(pa.BufferReader(sink.getvalue()))


def _keeps_all(bound: Filter, table: pa.Table, fragment: ds.ParquetFileFragment) -> None:
    pushed = superset(bound.predicate, {})
    if pushed is not None:
        read = fragment.to_table(filter=pushed)
        assert bound.apply(read).num_rows == bound.apply(table).num_rows, (bound.sql, str(pushed))


@settings(max_examples=25, deadline=None)
@given(seeds, st.lists(terms(), min_size=1, max_size=8))
def test_no_matching_row_is_pruned(seed: int, several: list[str]) -> None:
    table = pa.concat_tables(make_files(Random(seed), 6))
    fragment = _parquet(table, 2)
    for term in several:
        _keeps_all(to_filter(term, SCHEMA), table, fragment)


@pytest.mark.parametrize("column", SCHEMA.names)
def test_every_leaf_keeps_matching_rows(column: str) -> None:
    random = Random(column)
    table = pa.concat_tables(make_files(random, 40)).select([column])
    fragment = _parquet(table, 2)
    leaves = [compare(column, op, v) for op in OPERATORS for v in VALUES[column] + ODD[column]]
    leaves += [in_(column, random.sample([None, *VALUES[column], *ODD[column]], 2)) for _ in range(9)]
    if column in ("s", "p"):
        leaves += [starts_with(column, v) for v in VALUES[column]]
    for leaf in random.sample(leaves, min(40, len(leaves))):
        _keeps_all(to_filter(leaf, SCHEMA), table, fragment)
        _keeps_all(to_filter(not_(leaf), SCHEMA), table, fragment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n > 5", pc.field("n") > 5),
        ("n > 5 AND upper(s) = 'A'", pc.field("n") > 5),
        ("n > 5 OR upper(s) = 'A'", None),
        ("upper(s) = 'A'", None),
        ("n > 5 OR s = 'a'", (pc.field("n") > 5) | (pc.field("s") == "a")),
        ("NOT (n > 5 OR s = 'a')", (pc.field("n") <= 5) & (pc.field("s") != "a")),
        ("NOT (n > 5 AND upper(s) = 'a')", None),
        ("x > 5.0", None),
        ("x >= 5.0", None),
        ("x != 5.0", None),
        ("NOT (x < 5.0)", None),
        ("x < 5.0", pc.field("x") < 5.0),
        ("x = 5.0", pc.field("x") == 5.0),
        ("x = 'nan'", None),
        ("n IS NULL", pc.field("n").is_null()),
        ("n IS NOT NULL", pc.field("n").is_valid()),
        ("s LIKE 'ab%'", (pc.field("s") >= "ab") & (pc.field("s") < "ac")),
        ("s LIKE '%ab'", None),
        ("tiny > 1000", pc.scalar(False)),
        ("TRUE", None),
        ("FALSE", pc.scalar(False)),
    ],
)
def test_pushed_expression(text: str, expected: pc.Expression | None) -> None:
    pushed = superset(parsed(text).predicate, {})
    if expected is None:
        assert pushed is None
    else:
        # Literals may differ in type (int8 for a tinyint column), which the string does not show.
        assert str(pushed) == str(expected)


def test_columns_are_renamed_and_missing_and_nested_ones_omitted() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.struct([("x", pa.int64())]), "c": pa.int64()})
    bound = parsed("a > 1 AND b.x > 2 AND c > 3", schema)
    assert superset(bound.predicate, {"a": "col-1", "c": None}).equals(pc.field("col-1") > 1)
    assert superset(bound.predicate, {"b": "col-2"}).equals((pc.field("a") > 1) & (pc.field("c") > 3))


def test_nanoseconds_in_the_file_are_finer_than_the_filter() -> None:
    table = pa.table({"t": pa.array([1_000, 1_001, 1_999, 2_000], pa.timestamp("ns", "UTC"))})
    for op in ("=", "<=", ">", ">=", "<", "!="):
        bound = to_filter(compare("t", op, dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)), table.schema)
        pushed = superset(bound.predicate, {})
        kept = table if pushed is None else table.filter(pushed)
        assert bound.apply(kept).equals(bound.apply(table)), op
    far = parsed("t <= '9999-01-01'", table.schema)
    assert superset(far.predicate, {}) is None  # out of range for nanoseconds
    assert far.apply(table).num_rows == 4


@given(st.text(max_size=4), st.text(max_size=4))
def test_successor_is_the_least_string_above_a_prefix(prefix: str, rest: str) -> None:
    after = successor(prefix)
    if after is not None:
        assert (prefix + rest).encode() < after.encode()
        assert not after.startswith(prefix)
