"""Small files of one layout are read as one: the rows of each follow those of the one before."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.lance.v2.columns import COLUMNS, NULLS, column
from tests.lance.v2.conftest import Written
from tests.lance.v2.test_columns import LATE, MAPS, VECTORS_OF_STRUCTS, check
from trilake.errors import CorruptFileError
from trilake.lance.v2.file import V2File

ALL = [
    (version, name)
    for version in ("2.1", "2.2", "2.3")
    for name in COLUMNS
    if not (version == "2.1" and name in MAPS | VECTORS_OF_STRUCTS) and not (version < "2.3" and name in LATE)
]


def joined(files: list[V2File], rows: list[int] | None = None) -> V2File:
    first = files[0]
    ids, columns = zip(*first.columns.items(), strict=True)
    contents = [file.container.source.read(0, file.size) for file in files]
    counts = rows or [file.num_rows for file in files]
    return V2File.join(list(zip([f.file for f in files], contents, counts, strict=True)), first.schema, ids, columns)


def run(written: Written, case: tuple[str, str]) -> None:
    version, name = case
    chosen = random.Random(name)
    files, tables = [], []
    for seed, rows in enumerate((3, 1, 40, 7, 2000, 1, 5)):
        nulls = "none" if name == "empty struct" else chosen.choice(NULLS)
        file, table = written(pa.table({"c": column(name, rows, nulls, seed)}), version)
        files.append(file)
        tables.append(table)
    check(joined(files), pa.concat_tables(tables).combine_chunks())


@pytest.mark.parametrize("case", random.Random(2).sample(ALL, 40), ids=str)
def test_joined_files_have_the_rows_of_each(written: Written, case: tuple[str, str]) -> None:
    run(written, case)


@pytest.mark.soak
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_joined_files_of_all_columns(written: Written, version: str) -> None:
    for case in ALL:
        if case[0] == version:
            run(written, case)


def test_files_with_other_numbers_of_rows_are_not_joined(written: Written) -> None:
    """Otherwise the rows of one file would be read as those of another."""
    files = [written(pa.table({"c": range(rows)}), "2.2")[0] for rows in (3, 4)]
    with pytest.raises(CorruptFileError, match="the file has 3 rows, not 4"):
        joined(files, [4, 3])


def test_files_of_other_versions_are_not_joined(written: Written) -> None:
    files = [written(pa.table({"c": range(3)}), version)[0] for version in ("2.1", "2.2")]
    with pytest.raises(CorruptFileError, match="different versions"):
        joined(files)
