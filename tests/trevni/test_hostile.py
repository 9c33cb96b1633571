"""Hostile files: a typed error with the position, and memory bounded by the file's content."""

from __future__ import annotations

import bz2
import os
import random
import resource
import struct
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.trevni.corpus import AVRO, REFERENCE
from tests.trevni.crafted import ARRAY, Block, Col, child, craft, raw_deflate, zigzag
from tests.trevni.test_arrow import written
from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.trevni import TrevniFile

pytestmark = pytest.mark.long

DEFLATE: dict[str, bytes | str] = {"trevni.codec": "deflate"}
BZIP2: dict[str, bytes | str] = {"trevni.codec": "bzip2"}
INTS = b"".join(map(zigzag, [1, -1, 300]))
BIG = 0x7FFFFFFF
SNAPPY_BOMB = b"\xff\xff\xff\xff\x07" + b"\0a" * 4


def consume(data: bytes) -> None:
    """Use all reader methods."""
    file = TrevniFile(data)
    file.columns  # noqa: B018 - reads all block descriptors
    for number in range(len(file.header.columns)):
        file.column(number)
    file.read()
    if file.row_count:
        file.read(rows=[0, file.row_count - 1])


def ints(*blocks: Block, **extra: str) -> Col:
    return Col("a", "int", list(blocks), {f"trevni.{k}": v for k, v in extra.items()})


def claiming(type_: pa.DataType, *columns: Col) -> bytes:
    """A file of one row with a given Arrow schema of one field ``c``."""
    return craft(1, list(columns), {"arrow.schema": pa.schema([("c", type_)]).serialize().to_pybytes()})


#: A null fixed-size list, which takes as much space as a list.
ABSENT = Col("c?", "null", [Block(1, zigzag(0))], {**ARRAY, "arrow.presence": "0"})


GOOD = craft(3, [ints(Block(3, INTS))])
NESTED = [Col("p", "null", [Block(2, zigzag(1) + zigzag(2))], ARRAY), Col("k", "int", [Block(2, INTS)], child("p"))]

CASES: dict[str, bytes] = {
    "empty": b"",
    "three bytes": b"Trv",
    "only the magic": b"Trv\x02",
    "wrong magic": b"Trw\x02" + GOOD[4:],
    "negative row count": craft(-1, []),
    "rows without bytes": craft(1 << 40, []),
    "rows of nulls": craft(BIG, [Col("n", "null", [Block(BIG, b"")])]),
    "negative column count": craft(0, [], count=-1),
    "more columns than bytes": craft(0, [], count=BIG),
    "metadata count": b"Trv\x02" + struct.pack("<qi", 0, 0) + zigzag(BIG),
    "negative metadata count": b"Trv\x02" + struct.pack("<qi", 0, 0) + zigzag(-3),
    "metadata value length": b"Trv\x02" + struct.pack("<qi", 0, 0) + zigzag(1) + b"\2k" + zigzag(BIG),
    "negative key length": b"Trv\x02" + struct.pack("<qi", 0, 0) + zigzag(1) + zigzag(-1) + b"\0",
    "endless varint in the header": b"Trv\x02" + struct.pack("<qi", 0, 0) + b"\xff" * 50,
    "name is not UTF-8": craft(0, [Col("a", "int", extra={"trevni.name": b"\xff\xfe"})]),
    "unknown type": craft(0, [Col("a", "uuid")]),
    "no type": craft(0, [Col("a", "int")]).replace(b"trevni.type", b"trevni.kind"),
    "unknown parent": craft(0, [Col("a", "int", extra=child("p"))]),
    "itself as parent": craft(0, [Col("a", "int", extra={**ARRAY, **child("a")})]),
    "parent is not an array": craft(0, [Col("p", "int"), Col("a", "int", extra=child("p"))]),
    "values with parent": craft(
        0, [Col("p", "int", extra=ARRAY), Col("a", "int", extra={**child("p"), "trevni.values": ""})]
    ),
    "values with array": craft(0, [Col("a", "int", extra={**ARRAY, "trevni.values": ""})]),
    "start in the header": craft(3, [ints(Block(3, INTS))], starts={0: -30}),
    "start behind the end": craft(3, [ints(Block(3, INTS))], starts={0: 1 << 40}),
    "negative start": craft(3, [ints(Block(3, INTS))], starts={0: -(1 << 40)}),
    "two columns at one start": craft(3, [ints(Block(3, INTS)), Col("b", "int", [Block(3, INTS)])], starts={1: -20}),
    "overlapping columns": craft(3, [ints(Block(3, INTS)), Col("b", "int", [Block(3, INTS)])], starts={1: -3}),
    "negative block count": craft(3, [Col("a", "int", [], count=-1)]),
    "more blocks than bytes": craft(3, [Col("a", "int", [], count=BIG)]),
    "negative rows": craft(3, [ints(Block(-1, b""), Block(4, INTS + b"\0"))]),
    "negative raw size": craft(3, [ints(Block(3, INTS, raw_size=-4))]),
    "negative stored size": craft(3, [ints(Block(3, INTS, stored_size=-4))]),
    "block behind the end": craft(3, [ints(Block(3, INTS, BIG, BIG))]),
    "too few rows": craft(4, [ints(Block(3, INTS))]),
    "too many rows": craft(2, [ints(Block(3, INTS))]),
    "no blocks for rows": craft(3, [ints()]),
    "raw size of a stored block": craft(3, [ints(Block(3, INTS, raw_size=len(INTS) + 1))]),
    "bytes left over": craft(3, [ints(Block(3, INTS + b"\0"))]),
    "values missing": craft(3, [ints(Block(3, INTS[:-1]))]),
    "endless varint": craft(1, [ints(Block(1, b"\xff" * 40))]),
    "long of eleven bytes": craft(1, [Col("a", "long", [Block(1, b"\xff" * 10 + b"\1")])]),
    "string longer than the block": craft(1, [Col("a", "string", [Block(1, zigzag(1000) + b"x")])]),
    "strings without lengths": craft(4, [Col("a", "string", [Block(4, zigzag(40) + b"x" * 40)])]),
    "more strings than bytes": craft(900, [Col("a", "bytes", [Block(900, zigzag(400) + b"x" * 400)])]),
    "string of negative length": craft(1, [Col("a", "string", [Block(1, zigzag(-1))])]),
    "string is not UTF-8": craft(1, [Col("a", "string", [Block(1, b"\4\xc3\x28")])]),
    "character cut in two": craft(2, [Col("a", "string", [Block(2, b"\2\xc3\2\xa9")])]),
    "fixed32 of three bytes": craft(1, [Col("a", "fixed32", [Block(1, b"abc")])]),
    "booleans of too many bytes": craft(3, [Col("a", "boolean", [Block(3, b"\1\1")])]),
    "null with bytes": craft(3, [Col("a", "null", [Block(3, b"\0")])]),
    "a billion elements in five bytes": craft(1, [Col("a", "null", [Block(1, zigzag(BIG))], ARRAY)]),
    "a billion empty lists": craft(1 << 30, [Col("a", "int", [Block(1 << 30, zigzag(3 - (2 << 30)))], ARRAY)]),
    "run longer than the block": craft(2, [Col("a", "null", [Block(2, zigzag(-100))], ARRAY)]),
    "array of more values than bytes": craft(1, [Col("a", "int", [Block(1, zigzag(BIG))], ARRAY)]),
    "array of fixed values": craft(1, [Col("a", "fixed64", [Block(1, zigzag(BIG >> 2))], ARRAY)]),
    "array of booleans": craft(1, [Col("a", "boolean", [Block(1, zigzag(BIG))], ARRAY)]),
    "lengths of nothing": craft(2, [Col("a", "int", [Block(2, b"")], ARRAY)]),
    "child has more values": craft(2, [NESTED[0], Col("k", "int", [Block(2, INTS + b"\0")], child("p"))]),
    "child has fewer values": craft(2, [NESTED[0], Col("k", "int", [Block(2, INTS[:-2])], child("p"))]),
    "child of other rows": craft(2, [NESTED[0], Col("k", "int", [Block(1, INTS)], child("p"))]),
    "unknown codec": craft(3, [ints(Block(3, INTS), codec="zip")]),
    "unknown checksum": craft(3, [ints(Block(3, INTS), checksum="md5")]),
    "deflate: garbage": craft(3, [ints(Block(3, b"\xff" * 9, 4), codec="deflate")]),
    "deflate: cut off": craft(3, [ints(Block(3, raw_deflate(INTS)[:-3], 4), codec="deflate")]),
    "deflate: more than stated": craft(3, [ints(Block(3, raw_deflate(INTS * 9), 4), codec="deflate")]),
    "deflate: less than stated": craft(3, [ints(Block(3, raw_deflate(INTS), 5), codec="deflate")]),
    "bzip2: garbage": craft(3, [ints(Block(3, b"BZh9 no", 4), codec="bzip2")]),
    "bzip2: cut off": craft(3, [ints(Block(3, bz2.compress(INTS)[:-6], 4), codec="bzip2")]),
    "snappy: bomb": craft(1, [Col("a", "bytes", [Block(1, SNAPPY_BOMB, BIG)], {"trevni.codec": "snappy"})]),
    "empty lists in many columns": craft(
        1 << 22, [Col(f"a{i}", "int", [Block(1 << 22, zigzag(3 - (2 << 22)))], ARRAY) for i in range(20)]
    ),
    "empty lists below a million nulls": craft(
        1,
        [Col("c0", "null", [Block(1, zigzag(1 << 20))], ARRAY)]
        + [
            Col(f"c{i}", "null", [Block(1, zigzag(2 - (2 << 20)))], {**ARRAY, **child(f"c{i - 1}")})
            for i in range(1, 60)
        ],
    ),
    "fixed list of a billion": claiming(
        pa.list_(pa.int8(), 1 << 30), ABSENT, Col("c", "int", [Block(1, b"")], {**ARRAY, **child("c?")})
    ),
    "fixed lists in each other": claiming(
        pa.list_(pa.list_(pa.list_(pa.int8(), 1 << 11), 1 << 11), 1 << 11),
        ABSENT,
        Col("c", "null", [Block(1, b"")], {**ARRAY, **child("c?")}),
        Col("d", "null", [Block(1, b"")], {**ARRAY, **child("c")}),
        Col("e", "int", [Block(1, b"")], {**ARRAY, **child("d")}),
    ),
    "snappy: garbage": craft(3, [ints(Block(3, b"\4\xff\xff", 4), codec="snappy")]),
    "first value longer than the column": craft(
        1, [Col("a", "string", [Block(1, b"\0", first=zigzag(BIG))], {"trevni.values": ""})]
    ),
    "Arrow schema that is none": craft(3, [ints(Block(3, INTS))], {"arrow.schema": b"\0\1\2"}),
    "Arrow schema of other columns": craft(
        3, [ints(Block(3, INTS))], {"arrow.schema": pa.schema([("a", pa.string())]).serialize().to_pybytes()}
    ),
    "nesting without end": craft(
        0,
        [Col("c0", "null", extra=ARRAY)]
        + [Col(f"c{i}", "null", extra={**ARRAY, **child(f"c{i - 1}")}) for i in range(1, 3000)],
    ),
}

#: Cases of many megabytes, which only the tests that need them create.
BOMBS: dict[str, Callable[[], bytes]] = {
    "deflate: bomb": lambda: craft(
        1, [Col("a", "string", [Block(1, raw_deflate(bytes(1 << 27)), 4)], {"trevni.codec": "deflate"})]
    ),
    "deflate: honest bomb": lambda: craft(
        1, [Col("a", "bytes", [Block(1, raw_deflate(bytes(1 << 27)), 1 << 27)], {"trevni.codec": "deflate"})]
    ),
    "bzip2: bomb": lambda: craft(
        1, [Col("a", "bytes", [Block(1, bz2.compress(bytes(1 << 27)), 1 << 27)], {"trevni.codec": "bzip2"})]
    ),
    "deflate: thousands of blocks": lambda: craft(
        4000 << 16, [Col("a", "int", [Block(1 << 16, raw_deflate(bytes(1 << 16)), 1 << 16)] * 4000, DEFLATE)]
    ),
    "bzip2: hundreds of blocks": lambda: craft(
        300 << 20, [Col("a", "boolean", [Block(8 << 17, bz2.compress(bytes(1 << 17)), 1 << 17)] * 2400, BZIP2)]
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    consume(GOOD)


@pytest.mark.parametrize("name", [*CASES, *BOMBS])
def test_hostile_files_raise_in_little_memory(name: str) -> None:
    data = CASES[name] if name in CASES else BOMBS[name]()
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises((CorruptFileError, UnsupportedProtocolError)) as e:
        consume(data)
    assert e.value.context["file"] == "<memory>"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB
    # Includes compilation if nothing is cached yet.
    assert time.process_time() - start < 20


def test_errors_state_their_position() -> None:
    with pytest.raises(CorruptFileError) as e:
        consume(CASES["bytes left over"])
    assert e.value.context == {
        "file": "<memory>",
        "column": "a",
        "block": 0,
        "offset": len(CASES["bytes left over"]) - 5,
    }


@pytest.mark.parametrize(
    "name",
    ["unknown type", "unknown parent", "parent is not an array", "values with parent", "no type", "values with array"],
)
def test_errors_of_the_header_name_the_column(name: str) -> None:
    with pytest.raises(CorruptFileError) as e:
        consume(CASES[name])
    assert e.value.context["column"] == "a"


def test_repetitive_columns_are_read() -> None:
    """Files of constants and of null columns are not rejected as bombs."""
    rows = 1_000_000
    table = pa.table({"n": pa.array(range(rows)), **{f"c{i}": pa.nulls(rows, pa.int64()) for i in range(20)}})
    table = table.append_column("s", pa.array(["constant"] * rows))
    file = written(table, codec="deflate", checksum="crc32")
    assert file.read(["n", "c7", "s"]).equals(table.select(["n", "c7", "s"]))
    assert sum(b.num_rows for b in file.batches(size=1 << 22)) == rows
    assert file.read([f"c{i}" for i in range(20)]).num_rows == rows


def test_trusted_files_may_inflate() -> None:
    file = TrevniFile(craft(1, [Col("a", "null", [Block(1, zigzag(1 << 26))], ARRAY)]), trusted=True)
    assert len(file.column("a").values) == 1 << 26


def _seeds() -> list[bytes]:
    table = pa.table(
        {
            "a": [1, None, 3] * 10,
            "s": ["x", None, "zz"] * 10,
            "m": pa.array([[("k", 1)], None, []] * 10, pa.map_(pa.string(), pa.int64())),
            "l": pa.array([[1, None], None, []] * 10),
            "st": pa.array([{"p": None}, None, {"p": {"q": 1}}] * 10),
            "d": pa.array([None, "1.23", "4.5"] * 10).cast(pa.decimal128(20, 2)),
            "v": pa.array(range(30)),
        }
    )
    found = [path.read_bytes() for path in [*REFERENCE, *AVRO] if path.stat().st_size < 6000]
    for codec in ("null", "deflate", "snappy", "bzip2"):
        file = written(
            table,
            codec=codec,
            checksum="crc32" if codec == "snappy" else "null",
            block_size=16,
            columns={"v": {"values": True}},
        )
        found.append(file._source.read(0, file.size).to_pybytes())
    return found


def _mutated(rng: random.Random, seed: bytes) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data))
        match rng.randrange(8):
            case 0 | 1 | 2:
                data[at] ^= 1 << rng.randrange(8)
            case 3:
                data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0xFE])
            case 4:
                data[at : at + 4] = struct.pack("<i", rng.choice([BIG, -1, -BIG - 1, 1 << 28]))
            case 5:
                del data[at : at + rng.randrange(1, 9)]
            case 6:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case _:
                del data[at:]
        data = data or bytearray(b"T")
    return bytes(data)


def test_mutated_files_give_rows_or_typed_errors() -> None:
    """No crash, hang or high memory use with any bytes changed: 100,000 files with TRILAKE_SOAK=1."""
    rounds = int(os.environ.get("TRILAKE_FUZZ", "100000" if os.environ.get("TRILAKE_SOAK") == "1" else "5000"))
    seeds = _seeds()
    for seed in seeds:
        consume(seed)
    rng = random.Random(int(os.environ.get("TRILAKE_FIRST_SEED", "20")))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest = 0.0
    errors: list[str] = []
    for _ in range(rounds):
        data = _mutated(rng, rng.choice(seeds))
        start = time.process_time()
        try:
            consume(data)
        except TrilakeError as e:
            errors.append(str(e))
        slowest = max(slowest, time.process_time() - start)
    assert slowest < 5
    assert all(errors)
    assert rounds // 2 < len(errors) < rounds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
