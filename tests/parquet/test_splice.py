"""Splicing Parquet files: Thrift round-trips, copied pages are checked, and Arrow reads the result."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mutations import footer_start
from trilake.parquet import thrift
from trilake.parquet.files import open_parquet
from trilake.parquet.splice import NotSpliceable, Parts, SpliceWriter, check_pages, same_values
from trilake.parquet.thrift import Struct, Value, number, parse_struct, struct_bytes, struct_list

ROWS = 1000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "s": [None if i % 5 == 0 else f"text {i % 50}" for i in range(ROWS)],
        "l": [[i, None] if i % 3 else None for i in range(ROWS)],
        "t": [{"x": i, "y": {"z": str(i)}} for i in range(ROWS)],
        "v": pa.array([i / 2 for i in range(ROWS)], pa.float64()),
    }
)


def _file(table: pa.Table = TABLE, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **{"row_group_size": 300, "write_page_checksum": True, **options})
    return out.getvalue()


def _parts(data: bytes) -> Parts:
    return Parts(pa.BufferReader(data))


def _spliced(old: bytes, new: pa.Table, rows: int = 300, **options: Any) -> bytes:
    out = io.BytesIO()
    writer = SpliceWriter(out, _parts(old))
    for start in range(0, new.num_rows, rows):
        part = new.slice(start, rows)
        writer.write_group(pa.py_buffer(_file(part, row_group_size=rows, store_schema=False, **options)))
    assert writer.close() == out.tell()
    return out.getvalue()


def _read(data: bytes) -> pa.Table:
    return open_parquet(pa.BufferReader(data)).read()


# --- Thrift ----------------------------------------------------------------------------------------------------------


def _again(value: Value) -> Value:
    """The value after parsing and writing all its structs and lists of structs."""
    if value.kind == thrift.STRUCT:
        return Value(value.kind, struct_bytes({k: _again(v) for k, v in parse_struct(value.data).items()}))
    if value.kind == thrift.LIST:
        elements = list(thrift.parse_list(value))
        if elements and elements[0].kind == thrift.STRUCT:
            return struct_list(parse_struct(_again(e).data) for e in elements)
    return value


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_page_version": "2.0", "compression": "zstd", "row_group_size": 10},
        {"write_page_index": True, "sorting_columns": [pq.SortingColumn(0)], "use_dictionary": False},
    ],
    ids=["plain", "many groups", "indexes"],
)
def test_footer_round_trips(options: dict[str, Any]) -> None:
    data = _file(**options)
    footer = data[footer_start(data) : -8]
    assert _again(Value(thrift.STRUCT, footer)).data == footer


_VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(number),
    st.sampled_from([Value(thrift.TRUE, b""), Value(thrift.FALSE, b"")]),
    st.binary(max_size=200).map(lambda b: Value(thrift.TEXT, thrift.unsigned(len(b)) + b)),
)
_STRUCTS: st.SearchStrategy[Struct] = st.recursive(
    st.dictionaries(st.integers(-(2**15), 2**15 - 1), _VALUES, max_size=5),
    lambda inner: st.dictionaries(
        st.integers(1, 40),
        st.one_of(
            inner.map(lambda s: Value(thrift.STRUCT, struct_bytes(s))), st.lists(inner, max_size=20).map(struct_list)
        ),
        max_size=4,
    ),
    max_leaves=12,
)


@given(_STRUCTS)
def test_structs_round_trip(struct: Struct) -> None:
    data = struct_bytes(struct)
    assert parse_struct(data) == struct
    assert _again(Value(thrift.STRUCT, data)).data == data


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_round_trip(value: int) -> None:
    assert thrift.to_int(number(value)) == value


@given(st.binary(max_size=60))
def test_bytes_that_are_not_a_struct_are_rejected(data: bytes) -> None:
    try:
        struct = parse_struct(data)
    except (ValueError, IndexError):
        return
    assert parse_struct(struct_bytes(struct)) == struct


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_spliced_file_has_old_rows_with_new_columns(codec: str, version: str) -> None:
    old = _file(compression=codec, data_page_version=version, data_page_size=512, write_page_index=True)
    new = pa.table({"s": [f"new {i}" for i in range(ROWS)], "v": pa.array([None, 1.5] * (ROWS // 2))})
    data = _spliced(old, new)
    expected = TABLE.set_column(1, "s", new["s"]).set_column(4, "v", new["v"])
    assert _read(data).equals(expected)
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert metadata.metadata == pq.read_metadata(pa.BufferReader(old)).metadata
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        chunks = [group.column(i) for i in range(group.num_columns)]
        assert group.total_byte_size == sum(c.total_uncompressed_size for c in chunks)
        assert not any(c.has_offset_index or c.has_column_index for c in chunks)
        assert {c.compression for c in chunks if c.path_in_schema in "sv"} == {"SNAPPY"}


def test_bytes_of_other_columns_are_copied_unchanged() -> None:
    old, data = _file(), _spliced(_file(), pa.table({"s": ["x"] * ROWS}))
    groups = [pq.read_metadata(io.BytesIO(d)).to_dict()["row_groups"] for d in (old, data)]
    for before, after in zip(*groups, strict=True):
        end = 0
        for a, b in zip(before["columns"], after["columns"], strict=True):
            start, size = b["dictionary_page_offset"] or b["data_page_offset"], b["total_compressed_size"]
            assert end in (0, start)  # contiguous, in schema order
            end = start + size
            if b["path_in_schema"] != "s":
                first = a["dictionary_page_offset"] or a["data_page_offset"]
                assert data[start:end] == old[first : first + size]
                assert a["statistics"] == b["statistics"]


def test_new_columns_must_keep_their_stored_type() -> None:
    for new in [
        pa.table({"id": pa.array(range(ROWS), pa.int32())}),
        pa.table({"id": pa.array(range(ROWS), pa.uint64())}),
        pa.table({"s": pa.array([b"x"] * ROWS)}),
        pa.table({"l": [[1]] * ROWS}),
        pa.table({"missing": [1] * ROWS}),
        pa.table([range(ROWS)], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])),
        pa.table([range(ROWS)], schema=pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"})])),
        pa.table({"id": range(299)}),
    ]:
        with pytest.raises(NotSpliceable):
            _spliced(_file(), new)


def test_close_without_all_row_groups_is_rejected() -> None:
    writer = SpliceWriter(io.BytesIO(), _parts(_file()))
    writer.write_group(pa.py_buffer(_file(pa.table({"s": ["x"] * 300}))))
    with pytest.raises(NotSpliceable, match="missing"):
        writer.close()


def _element(kind: int, **fields: Value) -> Struct:
    keys = {"converted": 6, "logical": 10}
    return {1: number(kind, 5), 3: number(1, 5), **{keys[name]: value for name, value in fields.items()}}


def test_converted_type_may_lack_a_logical_type() -> None:
    text, string = number(0, 5), Value(thrift.STRUCT, b"\x1c\x00\x00")
    micros, instant = number(10, 5), Value(thrift.STRUCT, b"\x8c\x11\x1c\x2c\x00\x00\x00\x00")
    assert same_values(_element(6, converted=text), _element(6, converted=text, logical=string))
    assert not same_values(_element(2, converted=micros), _element(2, converted=micros, logical=instant))
    assert same_values(_element(2, logical=instant), _element(2, converted=micros, logical=instant))
    assert same_values(_element(1, converted=number(17, 5)), _element(1))
    assert not same_values(_element(1, converted=number(15, 5)), _element(1))
    assert not same_values(_element(6), _element(6, converted=text, logical=string))


# --- damage ----------------------------------------------------------------------------------------------------------


def test_page_with_wrong_checksum_is_not_copied() -> None:
    old = bytearray(_file(compression="none"))
    chunk = pq.ParquetFile(io.BytesIO(bytes(old))).metadata.row_group(1).column(0)
    old[chunk.data_page_offset + 200] ^= 1
    with pytest.raises(NotSpliceable, match="checksum"):
        _spliced(bytes(old), pa.table({"s": ["x"] * ROWS}))


def test_damaged_column_chunk_is_never_copied() -> None:
    data = _file(pa.table({"a": range(50)}), row_group_size=50, use_dictionary=True)
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    start, size = chunk.dictionary_page_offset, chunk.total_compressed_size
    good = data[start : start + size]
    check_pages(memoryview(good), 50)
    for cut in range(1, size):
        with pytest.raises((ValueError, IndexError)):
            check_pages(memoryview(good[:cut]), 50)
    with pytest.raises(ValueError, match="50 values"):
        check_pages(memoryview(good), 51)
    passed = []
    for at in range(size):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            try:
                check_pages(memoryview(bytes(bad)), 50)
            except (ValueError, IndexError):
                continue
            passed.append(at)
    # A page header has no checksum; damage to checksummed bytes never passes.
    bodies = set(range(size)) - set(passed)
    assert len(bodies) > size // 2


@pytest.mark.parametrize("seed", range(3))
def test_damaged_footer_yields_a_readable_file_or_none(seed: int) -> None:
    random, old = Random(seed), _file(pa.table({"a": range(50), "s": ["x"] * 50}), row_group_size=50)
    first = footer_start(old)
    for _ in range(300):
        bad = bytearray(old)
        bad[random.randrange(first, len(bad) - 8)] = random.randrange(256)
        try:
            _spliced(bytes(bad), pa.table({"s": ["y"] * 50}), rows=50)
        except NotSpliceable:
            continue
