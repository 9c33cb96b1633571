"""Deletion vectors: location, format, and the rows they delete."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tracemalloc
import uuid
import zlib
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.delta.tables import inline_vector, parquet, table_of
from trilake.delta.protocol.deletion_vectors import (
    MAGIC,
    DeletionVectorDescriptor,
    RowSet,
    file_bytes,
    serialize,
    z85_decode,
    z85_encode,
)
from trilake.errors import DeletionVectorError, MissingFileError
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.storage.memory import MemoryStore

ID = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
INLINE = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 44,
    "cardinality": 6,
}


def _vector(**fields: Any) -> DeletionVectorDescriptor:
    result = DeletionVectorDescriptor.from_json(fields)
    assert result is not None
    return result


def test_examples_of_the_specification() -> None:
    inline = _vector(**INLINE)
    assert list(inline.load(MemoryStore())) == [3, 4, 7, 11, 18, 29]
    relative = _vector(
        storageType="u", pathOrInlineDv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, sizeInBytes=40, cardinality=6
    )
    assert relative.relative_path() == f"ab/deletion_vector_{ID}.bin"
    assert relative.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"
    # The inline example of the specification uses an older format than the one it describes: the same bitmap,
    # behind another magic number in another byte order.
    older = _vector(
        **INLINE | {"pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40}
    )
    assert list(older.load(MemoryStore())) == [3, 4, 7, 11, 18, 29]
    assert inline.unique_id == "i" + INLINE["pathOrInlineDv"]  # type: ignore[operator]


def test_relative_path_without_and_with_long_prefix() -> None:
    encoded = z85_encode(ID.bytes)
    assert len(encoded) == 20
    assert _vector(storageType="u", pathOrInlineDv=encoded).relative_path() == f"deletion_vector_{ID}.bin"
    assert _vector(storageType="u", pathOrInlineDv=f"a/b{encoded}").relative_path() == f"a/b/deletion_vector_{ID}.bin"


@given(st.binary(max_size=64))
def test_z85_round_trip(data: bytes) -> None:
    decoded = z85_decode(z85_encode(data))
    assert decoded[: len(data)] == data
    assert len(decoded) == -(-len(data) // 4) * 4
    assert not any(decoded[len(data) :])


@pytest.mark.parametrize("text", ["a", "abcd", "abcdef", "ab de", 'ab"de', "#####", "%nSc1", "äbcde", "\0\0\0\0\0"])
def test_invalid_z85_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        z85_decode(text)


_ROWS = st.sets(st.integers(0, 200) | st.integers(0, 2**33) | st.integers(65_000, 66_000), min_size=1, max_size=30)


@given(_ROWS)
def test_inline_and_files_round_trip(deleted: set[int]) -> None:
    data = serialize(BitMap64(deleted))
    inline = _vector(storageType="i", pathOrInlineDv=z85_encode(data), sizeInBytes=len(data), cardinality=len(deleted))
    assert set(inline.load(MemoryStore())) == deleted
    other = serialize(BitMap64([1]))
    content, offsets = file_bytes([other, data, other])
    store = MemoryStore()
    vector = _vector(
        storageType="u",
        pathOrInlineDv=z85_encode(ID.bytes),
        offset=offsets[1],
        sizeInBytes=len(data),
        cardinality=len(deleted),
    )
    store.put(vector.relative_path(), content)
    assert set(vector.load(store)) == deleted


def _stored(store: Store, content: bytes, **change: Any) -> DeletionVectorDescriptor:
    fields = {
        "storageType": "u",
        "pathOrInlineDv": "ab" + z85_encode(ID.bytes),
        "offset": 1,
        "sizeInBytes": len(serialize(BitMap64([3, 5]))),
        "cardinality": 2,
        **change,
    }
    vector = _vector(**fields)
    store.put(f"ab/deletion_vector_{ID}.bin", content)
    return vector


def _frame(data: bytes, *, version: bytes = b"\1", size: int | None = None, crc: int | None = None) -> bytes:
    stated = len(data) if size is None else size
    checksum = zlib.crc32(data) if crc is None else crc
    return version + struct.pack(">i", stated) + data + struct.pack(">I", checksum)


_GOOD = serialize(BitMap64([3, 5]))


@pytest.mark.parametrize(
    ("content", "change", "why"),
    [
        (_frame(_GOOD, version=b"\2"), {}, "version"),
        (_frame(_GOOD, crc=0), {}, "CRC"),
        (_frame(_GOOD, size=len(_GOOD) - 1), {}, "bytes"),
        (_frame(_GOOD, size=-1), {}, "bytes"),
        (_frame(struct.pack("<I", MAGIC + 1) + _GOOD[4:]), {}, "magic"),
        (_frame(struct.pack(">I", MAGIC) + _GOOD[4:]), {}, "magic"),
        (_frame(_GOOD)[:-1], {}, "ends before"),
        (b"", {}, "ends before"),
        (b"\1", {}, "ends before"),
        (_frame(_GOOD), {"cardinality": 3}, "in the log is 3"),
        (_frame(_GOOD), {"cardinality": 0}, "in the log is 0"),
        (_frame(_GOOD), {"sizeInBytes": len(_GOOD) + 1}, ".+"),
        (_frame(_GOOD), {"sizeInBytes": 2**31 - 1}, "ends before"),
        (_frame(_GOOD), {"sizeInBytes": 0}, "too small"),
        (_frame(_GOOD), {"sizeInBytes": -5}, "too small"),
        (_frame(_GOOD), {"offset": 2**31 - 1}, "ends before"),
        (_frame(_GOOD), {"offset": 2}, ".+"),
        (_frame(_GOOD), {"offset": 0}, "offset must be at least 1, got 0"),
        (_frame(_GOOD), {"offset": -1}, "offset must be at least 1, got -1"),
        (_frame(_GOOD[:8]), {"sizeInBytes": 8}, "magic"),
        (_frame(_GOOD[:4] + struct.pack("<Q", 2**63) + _GOOD[12:]), {}, "bucket"),
        (_frame(_GOOD[:4] + struct.pack("<Q", 2) + _GOOD[12:]), {}, ".+"),
        (_frame(_GOOD[:4] + b"\xff" * (len(_GOOD) - 4)), {}, ".+"),
        (_frame(_GOOD[:-2] + b"\xff\xff"), {"cardinality": 3}, ".+"),
        (_frame(_GOOD), {"pathOrInlineDv": "short"}, "20 characters"),
        (_frame(_GOOD), {"pathOrInlineDv": "abcdefghij klmnopqrst"}, ".+"),
        (_frame(_GOOD), {"storageType": "x"}, "unknown"),
        (_frame(_GOOD), {"storageType": "p", "pathOrInlineDv": "relative/path"}, "absolute"),
        (_frame(_GOOD), {"storageType": "i", "pathOrInlineDv": "abc"}, ".+"),
        (_frame(_GOOD), {"storageType": "i", "pathOrInlineDv": ""}, ".+"),
        (_frame(_GOOD), {"storageType": "i", "pathOrInlineDv": z85_encode(_GOOD), "sizeInBytes": 4}, ".+"),
        (_frame(_GOOD), {"storageType": "i", "pathOrInlineDv": z85_encode(_GOOD), "cardinality": 1}, "in the log is 1"),
    ],
)
def test_inconsistent_vector_is_an_error(content: bytes, change: dict[str, Any], why: str) -> None:
    store = MemoryStore()
    vector = _stored(store, content, **change)
    tracemalloc.start()
    try:
        with pytest.raises(DeletionVectorError, match=why) as e:
            vector.load(store)
        assert e.value.context["file"].startswith(store.uri)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@given(st.data())
def test_damaged_bitmaps_never_have_a_wrong_cardinality(data: st.DataObject) -> None:
    content = bytearray(serialize(BitMap64([1, 2, 3, 70_000, 2**33, *range(100_000, 105_000)])))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    store = MemoryStore()
    vector = _stored(store, _frame(bytes(content)), sizeInBytes=len(content), cardinality=5005)
    with suppress(DeletionVectorError):
        assert len(vector.load(store)) == 5005


def test_missing_vector_file_is_an_error() -> None:
    vector = _vector(storageType="u", pathOrInlineDv=z85_encode(ID.bytes), offset=1, sizeInBytes=34, cardinality=2)
    with pytest.raises(MissingFileError, match=str(ID)):
        vector.load(MemoryStore())


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}"])
def test_vector_with_an_absolute_path(tmp_path: Any, spelling: str) -> None:
    file = tmp_path / "a b.bin"
    file.write_bytes(_frame(_GOOD))
    path = spelling.format(str(file).replace(" ", "%20"))
    vector = _vector(storageType="p", pathOrInlineDv=path, offset=1, sizeInBytes=len(_GOOD), cardinality=2)
    assert list(vector.load(open_store(tmp_path / "table"))) == [3, 5]


def test_null_descriptor_is_none() -> None:
    assert DeletionVectorDescriptor.from_json(None) is None
    assert DeletionVectorDescriptor.from_json({"storageType": None, "pathOrInlineDv": None}) is None


# --- rows ------------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 60)), st.integers(0, 50), st.integers(0, 20))
def test_keep_mask_excludes_deleted_rows(deleted: set[int], start: int, length: int) -> None:
    mask = RowSet(BitMap64(deleted)).keep_mask(start, length)
    expected = [start + i not in deleted for i in range(length)]
    assert (mask.to_pylist() if mask is not None else [True] * length) == expected


@settings(max_examples=25)
@given(st.sets(st.integers(0, 29), min_size=1), st.integers(1, 11))
def test_row_indexes_span_read_and_skipped_row_groups(deleted: set[int], group: int) -> None:
    data = parquet(pa.table({"a": list(range(30))}), row_group_size=group)
    table = table_of(data, schema=pa.schema([("a", pa.int64())]), fields=[{"deletionVector": inline_vector(*deleted)}])
    left = [i for i in range(30) if i not in deleted]
    assert table.to_arrow()["a"].to_pylist() == left
    assert table.count() == len(left)
    assert table.to_arrow(filter="a >= 17")["a"].to_pylist() == [i for i in left if i >= 17]
    assert table.to_arrow(columns=[]).num_rows == len(left)
    assert table.count("a >= 17") == len([i for i in left if i >= 17])


def test_count_from_statistics_subtracts_deleted_rows() -> None:
    fields = [{"stats": '{"numRecords":4}', "deletionVector": inline_vector(1, 2)}]
    assert table_of(pa.table({"a": [0, 1, 2, 3]}), fields=fields).count() == 2


@pytest.mark.parametrize("cardinality", [5, -1])
def test_count_rejects_an_impossible_cardinality(cardinality: int) -> None:
    fields = [{"stats": '{"numRecords":4}', "deletionVector": inline_vector(1, 2, cardinality=cardinality)}]
    table = table_of(
        pa.table({"a": [0, 1, 2, 3]}), pa.table({"a": [4, 5]}), fields=[*fields, {"stats": '{"numRecords":2}'}]
    )
    with pytest.raises(
        DeletionVectorError, match=f"it deletes 2 rows, but its cardinality in the log is {cardinality}"
    ):
        table.count()


@pytest.mark.parametrize("row", [3, 1 << 32, (1 << 32) + 1, 1 << 50, 1 << 63, (1 << 64) - 1])
def test_vector_beyond_the_file_is_an_error(row: int) -> None:
    table = table_of(pa.table({"a": [0, 1, 2]}), fields=[{"deletionVector": inline_vector(1, row)}])
    for read in (table.to_arrow, lambda: table.to_arrow(filter="a >= 0"), lambda: table.count("a < 9")):
        with pytest.raises(DeletionVectorError, match=f"row {row} of a file with 3 rows"):
            read()


@pytest.mark.parametrize("columns", [["a"], []])
@pytest.mark.parametrize("filter", ["a < 1", "a >= 5"])
def test_vector_range_includes_skipped_row_groups(filter: str, columns: list[str]) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": range(6)}), out, row_group_size=2)
    schema = pa.schema([("a", pa.int64())])
    inside = table_of(out.getvalue(), schema=schema, fields=[{"deletionVector": inline_vector(1, 3, 4)}])
    assert inside.to_arrow(columns, filter=filter).num_rows == 1
    beyond = table_of(out.getvalue(), schema=schema, fields=[{"deletionVector": inline_vector(1, 6)}])
    with pytest.raises(DeletionVectorError, match="row 6 of a file with 6 rows"):
        beyond.to_arrow(columns, filter=filter)


def test_file_with_all_rows_deleted() -> None:
    table = table_of(pa.table({"a": [0, 1]}), pa.table({"a": [7]}), fields=[{"deletionVector": inline_vector(0, 1)}])
    assert table.to_arrow()["a"].to_pylist() == [7]


_READ = """
import resource, sys
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from tests.delta.tables import table_of
from trilake.delta.protocol.deletion_vectors import serialize, store_vectors
from trilake.errors import DeletionVectorError
from trilake.storage.memory import MemoryStore

store = MemoryStore()
deleted = BitMap64(range(2, 1 << 30))
vector = store_vectors(store, [deleted], lambda: "00000000-0000-4000-8000-000000000000")[0]
assert vector["sizeInBytes"] < 300_000
features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
table = table_of(
    pa.table({"a": range(10)}),
    fields=[{"deletionVector": vector}],
    store=store,
    protocol_action={"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
)
table_of(pa.table({"a": range(10)})).count("a = 1")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for read in (lambda: table.to_arrow(), lambda: table.count("a = 1"), lambda: table.update({"a": "a + 1"}, "a = 1")):
    try:
        read()
    except DeletionVectorError as e:
        assert "a file with 10 rows" in str(e), e
    else:
        raise SystemExit("rows that the file does not have were deleted without a word")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_vector_of_many_rows_uses_little_memory() -> None:
    done = subprocess.run([sys.executable, "-c", _READ], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100


@given(st.sets(st.integers(0, 300), max_size=60), st.integers(0, 300), st.integers(1, 100))
def test_expanded_and_packed_row_sets_match(rows: set[int], start: int, length: int) -> None:
    expanded, packed = RowSet(BitMap64(rows)), RowSet(BitMap64(rows))
    packed._rows = None
    assert expanded.within(start, length).tolist() == packed.within(start, length).tolist()
