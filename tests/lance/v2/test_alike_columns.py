"""Columns of equal layout are read together, and each has its own rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
import pytest

from tests.lance.v2.columns import COLUMNS, NULLS, column
from tests.lance.v2.conftest import Written
from tests.lance.v2.test_columns import check
from tests.lance.v2.test_joined_files import joined
from trilake.errors import CorruptFileError
from trilake.lance.v2.column import group_alike
from trilake.lance.v2.file import V2File

VERSIONS = ("2.1", "2.2", "2.3")


def wide(names: list[str], rows: int, seed: int = 0) -> pa.Table:
    """Several columns of each type: with nulls and without, alone and in a struct."""
    columns = {}
    for n, name in enumerate(names):
        patterns = *NULLS, NULLS[n % len(NULLS)]
        made = [column(name, rows, pattern, seed + i) for i, pattern in enumerate(patterns)]
        columns |= {f"{name} {i}": array for i, array in enumerate(made)}
        columns[f"{name} s"] = pa.StructArray.from_arrays(made[-2:], ["a", "b"])
    return pa.table(columns)


FLAT = [name for name, (kind, _) in COLUMNS.items() if not pt.is_nested(kind)]


def groups(file: V2File) -> list[list[int]]:
    columns = [(kind, 1, file.container.column(i)) for i, kind in enumerate(file.schema.to_arrow().types)]
    return group_alike(columns, file.num_rows)


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("version", VERSIONS)
def test_many_columns_of_each_type_have_their_rows(written: Written, version: str, rows: int) -> None:
    check(*written(wide([*FLAT, "vector4", "list", "struct"], rows), version))


def test_joined_files_with_many_columns_have_their_rows(written: Written) -> None:
    chosen = ["int32", "string", "bool", "decimal128", "small16"]
    files, tables = zip(*(written(wide(chosen, rows, rows), "2.2") for rows in (3, 40, 7)), strict=True)
    check(joined(list(files)), pa.concat_tables(tables).combine_chunks())


def test_groups_have_columns_of_one_type_and_layout(written: Written) -> None:
    rng = np.random.default_rng(0)
    numbers = {f"n{i}": rng.integers(0, 1 << 62, 50) for i in range(3)}
    other = {"f": rng.random(50), "null": pa.array([None, *range(49)], pa.int64()), "list": [[i] for i in range(50)]}
    file, _ = written(pa.table(numbers | other), "2.2")
    assert groups(file) == [[0, 1, 2], [3], [4], [5]]


def test_groups_leave_out_large_columns(written: Written) -> None:
    rng = np.random.default_rng(0)
    file, _ = written(pa.table({f"n{i}": rng.integers(0, 1 << 62, 20_000) for i in range(2)}), "2.2")
    assert groups(file) == [[0], [1]]


def test_damage_of_one_of_many_columns_names_it(written: Written) -> None:
    rng = np.random.default_rng(0)
    file, _ = written(pa.table({f"n{i}": rng.integers(0, 1 << 62, 50) for i in range(5)}), "2.2")
    (position, size), *_ = file.container.column(3).pages[0].buffers
    content = bytearray(file.container.source.read(0, file.size).to_pybytes())
    content[position : position + size] = b"\xff" * size
    ids, columns = zip(*file.columns.items(), strict=True)
    damaged = V2File.join([("f", pa.py_buffer(bytes(content)), 50)], file.schema, ids, columns)
    with pytest.raises(CorruptFileError, match="n3"):
        damaged.read_rows(0, 50)
