"""Random nested columns are read back by Lance and by trilake, whole, by range and by row."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.lance.v2.files import NULLS, column, differences, read, write
from tests.lance.v2.test_writer import ALONE, VERSIONS, columns
from trilake.lance.v2.file import V2File
from trilake.storage import open_store

pytestmark = pytest.mark.long

LEAVES = st.sampled_from(
    [
        *(pa.int8(), pa.int32(), pa.uint64(), pa.float32(), pa.bool_(), pa.string(), pa.large_binary(), pa.binary(3)),
        *(pa.decimal128(20, 2), pa.timestamp("us", "UTC"), pa.dictionary(pa.int8(), pa.string()), pa.binary(260)),
        *(
            pa.list_(pa.int16(), 3),
            pa.list_(pa.bool_(), 5),
            pa.list_(pa.float32(), 70),
            pa.list_(pa.list_(pa.int8(), 2), 2),
        ),
    ]
)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)])
        ),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    )


TYPES = st.recursive(LEAVES, nested, max_leaves=4)


def has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(has_map(kind.field(i).type) for i in range(kind.num_fields))


def check(folder: Path, table: pa.Table, version: str, batch_rows: int | None, cache: int | None) -> None:
    path, _ = write(folder, table, version, batch_rows=batch_rows, data_cache_bytes=cache)
    assert not list(differences(table, read(path)))
    check_here(folder, table)


def check_here(folder: Path, table: pa.Table) -> None:
    """With trilake's reader: all rows, a range, and single rows."""
    file = V2File.open(open_store(str(folder)), "x.lance")
    count = table.num_rows
    rows = np.random.default_rng(count).integers(0, count, 5)
    part = range(count // 3, count // 3 + count // 2)
    for expected, actual in (
        (table, pa.Table.from_batches([file.read_rows(0, count)])),
        (table.slice(part.start, len(part)), pa.Table.from_batches([file.read_rows(part.start, part.stop)])),
        (table.take(rows), file.take(rows)),
    ):
        assert not list(differences(expected, actual))


@settings(
    max_examples=500 if os.environ.get("TRILAKE_SOAK") else 15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    kind=TYPES,
    rows=st.sampled_from([1, 2, 9, 130, 1100]),
    pattern=st.sampled_from(NULLS),
    seed=st.integers(0, 3),
    batch_rows=st.sampled_from([None, 40]),
    cache=st.sampled_from([None, 2000]),
)
def test_random_columns_are_read_back(
    kind: pa.DataType, rows: int, pattern: str, seed: int, batch_rows: int | None, cache: int | None
) -> None:
    table = pa.table({"a": column(kind, rows, pattern, seed=seed)})
    with tempfile.TemporaryDirectory() as folder:
        for version in ["2.2"] if has_map(kind) else ["2.1", "2.2"]:
            check(Path(folder), table, version, batch_rows, cache)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pattern", NULLS)
def test_every_type_is_read_back_here(tmp_path: Path, version: str, pattern: str) -> None:
    for rows in (1, 7, 1500):
        table = pa.table(dict(columns(version, rows, pattern)))
        write(tmp_path, table, version, batch_rows=600, data_cache_bytes=1)
        check_here(tmp_path, table)


@pytest.mark.parametrize("name", ALONE)
def test_separate_types_are_read_back_here(tmp_path: Path, name: str) -> None:
    for pattern in NULLS if name != "empty struct" else ["none"]:
        table = pa.table({name: column(ALONE[name], 700, pattern)})
        write(tmp_path, table, batch_rows=300, data_cache_bytes=1)
        check_here(tmp_path, table)


def test_sliced_and_masked_arrays_are_read_back(tmp_path: Path) -> None:
    """Values under nulls and outside of slices are not written."""
    inner = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 5, 7, 9], pa.int32()),
        pa.array([f"v{i}" for i in range(9)]),
        mask=pa.array([False, False, True, False, False]),
    )
    masked = pa.StructArray.from_arrays(
        [inner, pa.array(range(5))], ["l", "i"], mask=pa.array([False, True, False, True, False])
    )
    outer = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 3, 5], pa.int32()), masked, mask=pa.array([False, True, False, False])
    )
    table = pa.table({"s": masked.slice(1), "o": outer})
    for version in ("2.1", "2.2"):
        check(tmp_path, table, version, None, None)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_more_levels_than_fit_in_a_chunk(tmp_path: Path, version: str) -> None:
    """Many empty lists between few values: pages have fewer rows, and one such row uses full-zip."""
    rows = [[] if i % 50_000 else [i] for i in range(200_000)]
    one_row = [[[] for _ in range(150_000)] + [[1, 2], [], [3]], [[4]]]
    check(tmp_path, pa.table({"a": pa.array(rows, pa.list_(pa.int64()))}), version, None, None)
    check(tmp_path, pa.table({"a": pa.array(one_row, pa.list_(pa.list_(pa.int64())))}), version, None, None)
    long_row = pa.table({"a": pa.array([list(range(300_000)), None, [1]], pa.list_(pa.int64()))})
    check(tmp_path, long_row, version, None, None)
