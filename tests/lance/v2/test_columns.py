"""Columns by type, nulls, rows and version: files of pylance give the rows that pylance reads."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tests.lance.v2.columns import COLUMNS, NULLS, column
from tests.lance.v2.conftest import Written
from trilake.lance.v2.file import V2File

#: Combinations that pylance does not write, or cannot read back.
MAPS = {name for name, (arrow, _) in COLUMNS.items() if "map" in str(arrow)}
VECTORS_OF_STRUCTS = {"vector struct", "struct vector struct"}
#: Written from 2.3 on.
LATE = {"list vector struct"}
ALL = [
    (version, name, rows, nulls)
    for version in ("2.1", "2.2", "2.3")
    for name in COLUMNS
    for rows in (7, 3000)
    for nulls in NULLS
    if not (version == "2.1" and name in MAPS | VECTORS_OF_STRUCTS)
    and not (version < "2.3" and name in LATE)
    and not (name == "empty struct" and nulls != "none")
]


def same(got: pa.Table, expected: pa.Table, what: object) -> None:
    got.validate(full=True)
    assert got.schema.types == expected.schema.types, what
    if not got.equals(expected):  # NaN is not equal to itself
        assert str(got.to_pylist()) == str(expected.to_pylist()), what


def check(file: V2File, expected: pa.Table) -> None:
    """The whole file, ranges and single rows equal those of a table."""
    n = file.num_rows
    assert n == expected.num_rows
    same(pa.Table.from_batches([file.read_rows(0, n)]), expected, "all")
    for start, stop in ((0, 1), (n - 1, n), (n // 3, n // 2 + 1), (n, n)) if n else ():
        same(pa.Table.from_batches([file.read_rows(start, stop)]), expected.slice(start, stop - start), (start, stop))
    rows = np.random.default_rng(n).integers(0, n, min(n, 40))
    same(file.take(rows), expected.take(rows), "take")


def run(written: Written, case: tuple[str, str, int, str]) -> None:
    version, name, rows, nulls = case
    file, expected = written(pa.table({"c": column(name, rows, nulls)}), version)
    assert f"{file.version[0]}.{file.version[1]}" == version
    check(file, expected)


# A file per column is slow; the full product is for long runs.
@pytest.mark.parametrize("case", random.Random(1).sample(ALL, 60), ids=str)
def test_columns_match_pylance(written: Written, case: tuple[str, str, int, str]) -> None:
    run(written, case)


@pytest.mark.soak
@pytest.mark.parametrize("nulls", NULLS)
def test_all_columns_match_pylance(written: Written, nulls: str) -> None:
    for case in ALL:
        if case[-1] == nulls:
            run(written, case)


@pytest.mark.parametrize("nulls", NULLS)
def test_empty_structs_of_2_3_keep_their_nulls(written: Written, nulls: str) -> None:
    # pylance 14 writes them, but reads all of a column as valid.
    table = pa.table({"c": column("empty struct", 3000, nulls)})
    file, _ = written(table, "2.3")
    check(file, table)
