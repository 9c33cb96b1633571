"""Inconsistent Parquet files raise an error and never crash the process."""

from __future__ import annotations

import io
import subprocess
import sys
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delta.tables import parquet
from tests.mutations import footer_start, mutated_parquet
from trilake.parquet.files import DAMAGE, checked_footer, open_parquet

_MARK = 0x1122334455667788


def _with_footer(data: bytes, footer: bytes) -> bytes:
    return data[: footer_start(data)] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _file() -> bytes:
    return parquet(pa.table({"a": [_MARK, _MARK], "s": ["x", None]}), store_schema=False)


def _short_bound() -> bytes:
    """A minimum of a long column with only four bytes."""
    data = _file()
    footer = data[footer_start(data) : -8]
    mark = b"\x08" + _MARK.to_bytes(8, "little")
    assert mark in footer
    return _with_footer(data, footer.replace(mark, b"\x04" + mark[1:5]))


def _encrypted_chunk() -> bytes:
    """A column chunk marked as encrypted with its own key, in an unencrypted file."""
    data = _file()
    footer = data[footer_start(data) : -8]
    crypto = b"\x5c\x2c\x19\x18\x01a\x00\x00"
    end = b"\x00\x00\x16"  # of the chunk and of the list of chunks, before the size of the row group
    at = footer.rindex(end) + 1
    return _with_footer(data, footer[:at] + crypto + footer[at:])


def _other_type() -> bytes:
    """A chunk of bytes in a column of longs."""
    data = _file()
    footer = data[footer_start(data) : -8]
    start = b"\x1c\x15\x04"  # meta_data {type: INT64
    assert footer.count(start) == 1
    return _with_footer(data, footer.replace(start, b"\x1c\x15\x0c"))


def _checked(data: bytes) -> pq.ParquetFile:
    source = pa.BufferReader(data)
    file = open_parquet(source)
    checked_footer(source, file)
    return file


@pytest.mark.parametrize("make", [_short_bound, _encrypted_chunk, _other_type])
def test_footer_that_crashes_arrow_is_rejected(make: object) -> None:
    assert callable(make)
    data = make()
    with pytest.raises(pa.ArrowInvalid, match="column "):
        _checked(data)
    # Why it is rejected: Arrow crashes on it; drop the check once a release of Arrow raises.
    script = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "m = pq.ParquetFile(pa.BufferReader(sys.stdin.buffer.read())).metadata\n"
        "[m.row_group(0).column(i).statistics for i in range(2)]\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, check=False)
    assert ended.returncode != 0


def test_valid_footer_is_walked_as_arrow_reads_it() -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, 3], pa.int32()),
            "l": pa.array([[1, 2], [], None], pa.list_(pa.int64())),
            "t": pa.array(["a", None, None]),
            "b": pa.array([True, False, None]),
            "d": pa.array([1, 2, None], pa.int8()).cast(pa.decimal128(20, 2)),
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
            "n": pa.nulls(3, pa.struct([("x", pa.float64()), ("y", pa.binary(5))])),
        }
    )
    for options in ({}, {"version": "1.0"}, {"write_page_index": True}, {"data_page_version": "2.0"}):
        data = parquet(table, row_group_size=2, **options)
        source = pa.BufferReader(data)
        file = open_parquet(source)
        groups = checked_footer(source, file)
        for g, chunks in enumerate(groups):
            for i, chunk in enumerate(chunks):
                there = file.metadata.row_group(g).column(i)
                assert (chunk.physical_type, chunk.num_values) == (there.physical_type, there.num_values)
                statistics = there.statistics
                if statistics is not None and statistics.has_null_count:
                    assert chunk.null_count == statistics.null_count


def test_flipped_bit_in_a_page_fails_the_checksum() -> None:
    table = pa.table({"a": pa.array(range(10_000))})
    plain = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    data = bytearray(parquet(table, **plain))
    data[5_000] ^= 1
    assert pq.read_table(io.BytesIO(data)) != table  # checksums are off by default
    with pytest.raises(OSError, match=r"(?i)crc"):
        open_parquet(pa.BufferReader(bytes(data))).read()


def test_damaged_footers_raise_or_are_safe_to_walk() -> None:
    data = parquet(pa.table({"a": range(100), "s": [str(i) for i in range(100)]}), row_group_size=40)
    random = Random(7)
    walked = 0
    for _ in range(5_000):
        try:
            file = _checked(mutated_parquet(data, random))
        except (*DAMAGE, OSError):
            continue
        groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
        walked += len([group.column(i).statistics for group in groups for i in range(file.metadata.num_columns)])
    assert walked
