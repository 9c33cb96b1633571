"""Row groups read as one batch give the same rows as one by one, or none if one is damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.lance.v1.test_data_file import KEY, every_type, write
from trilake.errors import CorruptFileError, TrilakeError
from trilake.lance.v1.data_file import V1File
from trilake.storage import open_store
from trilake.storage.memory import MemoryStore

_EXTREMES = (b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80")
_JOINED = ("int8", "uint64", "double", "string", "large", "binary", "stamp", "dec", "fsb", "vector")


def _one_by_one(file: V1File, first: int, last: int) -> pa.RecordBatch:
    batches = [file.read_batch(i) for i in range(first, last)]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def test_every_type_that_can_be_joined(tmp_path: Path) -> None:
    table = every_type().select(_JOINED)
    schema = write(store := open_store(str(tmp_path)), table.to_batches(max_chunksize=7), table.schema)
    file = V1File.open(store, KEY, schema)
    for first, last in ((0, file.num_batches), (2, 5), (3, 4)):
        joined = file.read_joined(first, last, schema)
        assert joined is not None
        joined.validate(full=True)
        assert joined.equals(_one_by_one(file, first, last))


@pytest.mark.parametrize("name", ["bool", "list", "pairs", "struct", "dict", "null", "flags"])
def test_other_types_are_not_joined(name: str, tmp_path: Path) -> None:
    table = every_type().select(["int8", name])
    schema = write(store := open_store(str(tmp_path)), table.to_batches(max_chunksize=7), table.schema)
    assert V1File.open(store, KEY, schema).read_joined(0, 3, schema) is None


def test_strings_in_a_store_are_read_with_their_offsets() -> None:
    table = every_type().select(["string"])
    schema = write(store := MemoryStore("memory://joined"), table.to_batches(max_chunksize=7), table.schema)
    assert V1File.open(store, KEY, schema).read_joined(0, 3, schema) is None


@given(
    st.lists(st.lists(st.sampled_from([None, "", "a", "é", "longer than that"]), max_size=6), min_size=1, max_size=6)
)
@settings(max_examples=examples(60), deadline=None)
def test_strings_of_random_batches(tmp_path_factory: pytest.TempPathFactory, groups: list[list[str | None]]) -> None:
    schema = pa.schema({"n": pa.int32(), "t": pa.string()})
    batches = [pa.record_batch([pa.array(range(len(g)), pa.int32()), pa.array(g, pa.string())], schema) for g in groups]
    stored = write(store := open_store(str(tmp_path_factory.mktemp("t"))), batches, schema)
    file = V1File.open(store, KEY, stored)
    joined = file.read_joined(0, file.num_batches, stored)
    assert joined is not None
    joined.validate(full=True)
    assert joined.to_pylist() == [row for i in range(file.num_batches) for row in file.read_batch(i).to_pylist()]


def _falling(offsets: np.ndarray) -> None:
    offsets[2] = offsets[1] - 1


def _outside(offsets: np.ndarray) -> None:
    offsets[-1] = 1 << 40


def _far(offsets: np.ndarray) -> None:
    offsets[3] = -(1 << 62)


@pytest.mark.parametrize("change", [_falling, _outside, _far])
def test_damaged_offsets(change: Callable[[np.ndarray], None], tmp_path: Path) -> None:
    """If the end of a batch is wrong, :meth:`V1File.read_batch` reports it with the batch."""
    table = pa.table({"t": [f"value {i}" for i in range(40)]})
    schema = write(store := open_store(str(tmp_path)), table.to_batches(max_chunksize=10), table.schema)
    position = V1File.open(store, KEY, schema)._pages.field(0)[0][2]
    data = bytearray((tmp_path / KEY).read_bytes())
    change(np.frombuffer(data, "<i8", 11, position))
    (tmp_path / KEY).write_bytes(data)
    file = V1File.open(store, KEY, schema)
    with suppress(CorruptFileError):
        assert file.read_joined(0, 4, schema) is None
    with pytest.raises(CorruptFileError, match="offsets"):
        file.read_batch(2)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_damage_raises_typed_errors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    table = pa.table({"n": range(60), "t": [None if i % 5 == 0 else "é" * (i % 4) for i in range(60)]})
    folder = tmp_path_factory.mktemp("d")
    write(store := open_store(str(folder)), table.to_batches(max_chunksize=9), table.schema)
    broken = bytearray((folder / KEY).read_bytes())
    at = data.draw(st.integers(0, len(broken) - 9))
    broken[at : at + 8] = data.draw(st.one_of(st.binary(min_size=8, max_size=8), st.sampled_from(_EXTREMES)))
    (folder / KEY).write_bytes(broken)
    with suppress(TrilakeError):
        file = V1File.open(store, KEY)
        joined = file.read_joined(0, min(file.num_batches, 20), file.schema)
        if joined is not None:
            joined.validate(full=True)
            assert joined.equals(_one_by_one(file, 0, file.num_batches))
