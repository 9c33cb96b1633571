"""Files of other writers: each quirk of docs/internals/trevni.md has one interpretation."""

from __future__ import annotations

import bz2
import zlib

import pytest

from tests.trevni.crafted import ARRAY, Block, Col, child, craft, raw_deflate, zigzag
from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.trevni import TrevniFile


def one(file: bytes, column: str | int = 0) -> list[object]:
    return TrevniFile(file).column(column).values.to_pylist()


INTS = b"".join(map(zigzag, [1, -1, 300]))


@pytest.mark.parametrize("version", [1, 2])
def test_versions(version: int) -> None:
    data = craft(3, [Col("a", "int", [Block(3, INTS)])], magic=b"Trv" + bytes([version]))
    assert one(data) == [1, -1, 300]
    assert TrevniFile(data).version == version


def test_unknown_versions_raise() -> None:
    for version in (0, 3, 255):
        with pytest.raises(UnsupportedProtocolError):
            TrevniFile(craft(0, [], magic=b"Trv" + bytes([version])))


@pytest.mark.parametrize(
    ("code", "lengths"),
    [(-1, [0, 0]), (-2, [1, 1]), (-3, [0, 0, 0]), (-4, [1, 1, 1]), (-5, [0] * 4), (-6, [1] * 4), (2, [2]), (0, [0])],
)
def test_runs_of_lengths(code: int, lengths: list[int]) -> None:
    values = sum(lengths)
    data = craft(len(lengths), [Col("a", "null", [Block(len(lengths), zigzag(code))], ARRAY)])
    column = TrevniFile(data).column("a")
    assert column.lengths is not None
    assert (column.lengths.tolist(), len(column.values)) == (lengths, values)


def test_runs_of_ones_precede_their_values() -> None:
    payload = zigzag(-4) + INTS
    assert TrevniFile(craft(3, [Col("a", "int", [Block(3, payload)], ARRAY)])).read()["a"].to_pylist() == [
        [1],
        [-1],
        [300],
    ]
    # The reference reader starts a new byte for each element of a run.
    payload = zigzag(-4) + b"\1\0\1"
    assert one(craft(3, [Col("a", "boolean", [Block(3, payload)], ARRAY)])) == [True, False, True]


def test_booleans_of_children_and_of_arrays() -> None:
    lengths = zigzag(3) + zigzag(7)
    parent = Col("p", "null", [Block(2, lengths)], ARRAY)
    kid = Col("k", "boolean", [Block(2, b"\xff\x01")], child("p"))
    assert TrevniFile(craft(2, [parent, kid])).column("k").values.to_pylist() == [True] * 9 + [False]
    own = Col("a", "boolean", [Block(2, zigzag(3) + b"\x07" + zigzag(7) + b"\x00")], ARRAY)
    assert one(craft(2, [own])) == [True] * 3 + [False] * 7


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_checksums(codec: str) -> None:
    stored = INTS if codec == "null" else raw_deflate(INTS)
    crc = zlib.crc32(INTS)

    def read(name: str, check: bytes) -> list[object]:
        block = Block(3, stored, len(INTS), check=check)
        return one(craft(3, [Col("a", "int", [block])], {"trevni.codec": codec, "trevni.checksum": name}))

    big, little = crc.to_bytes(4, "big"), crc.to_bytes(4, "little")
    assert read("crc32", big) == read("crc-32", big) == read("crc-32", little) == [1, -1, 300]
    for name, wrong in (("crc32", little), ("crc32", b"\1\2\3\4"), ("crc-32", b"\1\2\3\4")):
        with pytest.raises(CorruptFileError, match="checksum") as e:
            read(name, wrong)
        assert {"column", "block", "offset"} <= set(e.value.context)
    if codec == "null":
        # A bug of the reference writer: it hashes a consumed buffer.
        assert read("crc32", b"\0\0\0\0") == [1, -1, 300]
    else:
        with pytest.raises(CorruptFileError):
            read("crc32", b"\0\0\0\0")


def test_column_overrides_codec_and_checksum() -> None:
    mine = Col("a", "int", [Block(3, INTS)], {"trevni.codec": "null", "trevni.checksum": "null"})
    theirs = Col("b", "int", [Block(3, raw_deflate(INTS), len(INTS), check=zlib.crc32(INTS).to_bytes(4, "big"))])
    file = craft(3, [mine, theirs], {"trevni.codec": "deflate", "trevni.checksum": "crc32"})
    assert one(file, "a") == one(file, "b") == [1, -1, 300]


@pytest.mark.parametrize("codec", ["deflate", "bzip2"])
def test_bytes_after_the_end_of_a_stream_are_ignored(codec: str) -> None:
    stored = raw_deflate(INTS) + b"tail" if codec == "deflate" else bz2.compress(INTS) + bz2.compress(b"second")
    assert one(craft(3, [Col("a", "int", [Block(3, stored, len(INTS))])], {"trevni.codec": codec})) == [1, -1, 300]


def test_long_forms_of_integers() -> None:
    padded = b"\x80\x80\x80\x80\x00" + b"\x82\x00" + zigzag(5)
    assert one(craft(3, [Col("a", "int", [Block(3, padded)])])) == [0, 1, 5]
    # 33 bits: the reference drops the bits above 32, which would be another number.
    with pytest.raises(CorruptFileError, match="more bits"):
        one(craft(1, [Col("a", "int", [Block(1, b"\x80\x80\x80\x80\x10")])]))
    with pytest.raises(CorruptFileError, match="does not end"):
        one(craft(2, [Col("a", "long", [Block(2, b"\x80" * 10 + b"\x00")])]))


def test_names_and_properties() -> None:
    first, second = Col("a", "int", [Block(3, INTS)]), Col("a", "INT", [Block(3, INTS[::-1][:0] + zigzag(7) * 3)])
    nameless = Col(None, "Long", [Block(3, zigzag(9) * 3)])
    file = TrevniFile(craft(3, [first, second, nameless], [("k", "1"), ("z", "2"), ("k", "3")]))
    assert dict(file.metadata) == {"k": b"3", "z": b"2"}
    assert list(file.metadata) == ["k", "z"]
    # By name, the last of two; both are accessible by number.
    assert file.column("a").values.to_pylist() == [7, 7, 7]
    assert file.column(0).values.to_pylist() == [1, -1, 300]
    assert file.columns[2].name is None
    assert file.read().num_columns == 3


def test_array_and_values_are_true_if_present() -> None:
    array = Col("a", "int", [Block(1, zigzag(2) + zigzag(1) + zigzag(2))], {"trevni.array": "false"})
    values = Col("v", "int", [Block(1, zigzag(4), first=zigzag(4))], {"trevni.values": "false"})
    file = TrevniFile(craft(1, [array, values]))
    assert (file.columns[0].array, file.columns[1].values, file.columns[1].blocks[0].first_value) == (True, True, 4)


def test_gaps_and_blocks_without_rows() -> None:
    blocks = [Block(0, b""), Block(2, INTS[:2]), Block(0, b""), Block(1, INTS[2:])]
    file = craft(3, [Col("a", "int", blocks), Col("b", "int", [Block(3, INTS)])], gap=b"\0" * 5)
    assert one(file, "a") == one(file, "b") == [1, -1, 300]


def test_blocks_of_parent_and_child_end_at_different_rows() -> None:
    parent = Col(
        "p", "int", [Block(1, zigzag(1) + zigzag(7)), Block(2, zigzag(2) + zigzag(8) + zigzag(9) + zigzag(0))], ARRAY
    )
    kid = Col("k", "string", [Block(2, b"\2a\2b\2c"), Block(1, b"")], child("p"))
    file = TrevniFile(craft(3, [parent, kid]))
    rows = [[{"value": 7, "k": "a"}], [{"value": 8, "k": "b"}, {"value": 9, "k": "c"}], []]
    assert file.read()["p"].to_pylist() == rows
    for row in range(3):
        assert file.read(rows=[row])["p"].to_pylist() == [rows[row]]
