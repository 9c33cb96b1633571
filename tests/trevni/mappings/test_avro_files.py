"""Avro data files to Trevni files and back."""

from __future__ import annotations

import io
import json
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trevni.corpus import AVRO, needs_corpus
from tests.trevni.crafted import zigzag
from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError, UnsupportedProtocolError
from trilake.trevni import TrevniFile, write
from trilake.trevni.mappings.avro import columns, read_avro
from trilake.trevni.mappings.avro_files import AvroFile, from_avro, to_avro

USER = {
    "type": "record",
    "name": "User",
    "namespace": "example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "mail", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "since", "type": {"type": "int", "logicalType": "date"}},
    ],
}
USERS = [
    {"id": 1, "mail": None, "tags": {"x": [1, 2], "y": []}, "kind": "B", "since": 19000},
    {"id": 2, "mail": "é@x", "tags": {}, "kind": "A", "since": -1},
]


def container(records: list[Any], schema: Any, codec: str = "deflate", **options: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), records, codec=codec, **options)
    return sink.getvalue()


def trevni(avro: bytes, **options: Any) -> TrevniFile:
    sink = io.BytesIO()
    from_avro(avro, sink, **options)
    return TrevniFile(sink.getvalue())


def back(file: TrevniFile, **options: Any) -> list[Any]:
    sink = io.BytesIO()
    count = to_avro(file, sink, **options)
    sink.seek(0)
    found = list(fastavro.reader(sink))
    assert count == len(found)
    return found


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_round_trip(codec: str, tmp_path: Path) -> None:
    source, target, again = tmp_path / "u.avro", tmp_path / "u.trv", tmp_path / "v.avro"
    source.write_bytes(container(USERS * 500, USER, codec, metadata={"origin": "tests"}, sync_interval=100))
    assert from_avro(source, target, codec="deflate") == 1000
    file = TrevniFile(target)
    assert [c.name for c in file.columns] == [c.name for c in columns(USER)]
    assert json.loads(file.metadata["avro.schema"])["name"] == "User"
    assert (file.metadata["origin"], file.metadata["trevni.codec"]) == (b"tests", b"deflate")
    assert to_avro(target, again, codec="null") == 1000
    with again.open("rb") as one, source.open("rb") as other:
        first, second = fastavro.reader(one), fastavro.reader(other)
        assert first.metadata["origin"] == "tests"
        assert first.writer_schema == second.writer_schema
        assert list(first) == list(second)


def recoded(codec: str, compress: Any) -> bytes:
    """A file of one block in a codec for which fastavro needs additional libraries."""
    plain = container(USERS, USER, "null")
    mark = plain[-16:]
    head, body = plain[: plain.index(mark) + 16], plain[plain.index(mark) + 16 : -16]
    raw = next(body[n:] for n in (2, 3) if body == zigzag(2) + zigzag(len(body) - n) + body[n:])
    stored = compress(raw)
    head = head.replace(b"\x14avro.codec\x08null", b"\x14avro.codec" + zigzag(len(codec)) + codec.encode())
    return head + zigzag(2) + zigzag(len(stored)) + stored + mark


def snappy(raw: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(raw).to_pybytes() + zlib.crc32(raw).to_bytes(4, "big"))


def test_snappy_and_zstandard() -> None:
    zstandard = recoded("zstandard", lambda raw: pa.Codec("zstd").compress(raw).to_pybytes())
    for good in (recoded("snappy", snappy), zstandard):
        assert [r["id"] for r in AvroFile(good).records()] == [1, 2]
        with pytest.raises(CorruptFileError):
            list(AvroFile(good[:-26] + bytes(10) + good[-16:]).records())
    with pytest.raises(CorruptFileError, match="checksum"):
        list(AvroFile(recoded("snappy", lambda raw: snappy(raw)[:-4] + bytes(4))).records())
    with pytest.raises(CorruptFileError, match="cannot hold"):
        list(AvroFile(recoded("snappy", lambda raw: b"\xff\xff\xff\xff\x07")).records())


def test_union_branches_are_kept() -> None:
    """Even if values are ambiguous: the bytes of the Avro file are not."""
    union = ["null", "int", "long", "float", "double", "string", "bytes", {"type": "fixed", "name": "F", "size": 2}]
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": union}, {"name": "v", "type": union[:2]}]}
    given = [("float", 0.5), ("double", 0.1), ("long", 1), ("int", 2), None, ("bytes", b"ab"), ("F", b"ab")]
    given += [("string", "x")]
    avro = container([{"u": u, "v": i} for i, u in enumerate(given)], schema)
    file = trevni(avro)
    assert [r["u"] for r in read_avro(file, tagged=True)] == given
    assert [r["v"] for r in read_avro(file)] == list(range(8))
    assert file.column("u/double").values.to_pylist() == [0.1]
    sink = io.BytesIO()
    to_avro(file, sink)
    assert [r["u"] for r in read_avro(trevni(sink.getvalue()), tagged=True)] == given


def test_logical_types_in_unions() -> None:
    date = {"type": "int", "logicalType": "date"}
    schema = {"type": "array", "items": [date, "long", {"type": "array", "items": date}]}
    avro = container([[("int", 5), ("long", 5), [6]]], schema)
    assert [str(v) for v in next(read_avro(trevni(avro)))] == ["1970-01-06", "5", "[datetime.date(1970, 1, 7)]"]
    assert back(trevni(avro)) == list(fastavro.reader(io.BytesIO(avro)))


SIMPLE = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


def _unions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(SIMPLE, min_size=1, max_size=4, unique=True) | inner.map(lambda s: {"type": "array", "items": s})


def _values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of(*(_values(b).map(lambda v, b=b: None if b == "null" else (b, v)) for b in schema))
    if isinstance(schema, dict):
        return st.lists(_values(schema["items"]), max_size=3)
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=5),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    }[schema]


@settings(max_examples=60)
@given(st.data())
def test_arbitrary_unions_round_trip(data: st.DataObject) -> None:
    inner = data.draw(st.recursive(st.lists(SIMPLE, min_size=1, max_size=4, unique=True), _unions, max_leaves=3))
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": inner}]}
    records = [{"f": v} for v in data.draw(st.lists(_values(inner), max_size=5))]
    avro = container(records, schema)
    file = trevni(avro)
    assert list(read_avro(file, tagged=True)) == records
    sink = io.BytesIO()
    to_avro(file, sink)
    assert list(read_avro(trevni(sink.getvalue()), tagged=True)) == records


@needs_corpus
@pytest.mark.parametrize("path", AVRO, ids=lambda p: p.stem)
def test_reference_files_round_trip(path: Path) -> None:
    file = TrevniFile(path)
    sink = io.BytesIO()
    to_avro(file, sink)
    again = trevni(sink.getvalue(), codec=None, checksum=None)
    assert again.metadata["avro.schema"] == file.metadata["avro.schema"]
    assert list(read_avro(again, tagged=True)) == list(read_avro(file, tagged=True))
    for number in range(len(file.columns)):
        assert file.column(number).values.equals(again.column(number).values)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[:3], "not an Avro data file"),
        (lambda b: b"Obj\x02" + b[4:], "not an Avro data file"),
        (lambda b: b[:40], "a value of the metadata needs"),
        (lambda b: b.replace(b'"long"', b'"lung"'), "invalid Avro schema"),
        (lambda b: b[:-1], "in"),
        (lambda b: b[:-16] + bytes(16), "sync marker after a block"),
        (lambda b: b[:-30], "a block claims"),
        (lambda b: b + b"\xff" * 30, "the count of a block"),
        (lambda b: b + zigzag(1 << 40) + zigzag(0) + b[-16:], "damaged"),
        (lambda b: b + zigzag(0) + zigzag(1 << 40), "a block claims"),
        (lambda b: b + zigzag(0) + zigzag(3) + b"abc" + b[-16:], "left after"),
        (lambda b: b"Obj\x01" + zigzag(-5) + zigzag(-1) + zigzag(-7), "a key of the metadata is negative: -7"),
    ],
)
def test_damaged_files(damage: Any, message: str) -> None:
    with pytest.raises(CorruptFileError, match=message) as e:
        trevni(damage(container(USERS, USER, "null")))
    assert {"file", "offset"} <= set(e.value.context)


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_damaged_blocks(codec: str) -> None:
    good = container(USERS, USER, codec)
    with pytest.raises(CorruptFileError):
        trevni(good[:-26] + bytes(10) + good[-16:])


def test_unsupported_conversions_raise(tmp_path: Path) -> None:
    lz4 = container(USERS, USER, "null").replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x06lz4")
    with pytest.raises(UnsupportedProtocolError, match="lz4"):
        trevni(lz4)
    write({"n": [1]}, tmp_path / "t.trv")
    with pytest.raises(SchemaMismatchError, match=r"avro\.schema"):
        to_avro(tmp_path / "t.trv", tmp_path / "t.avro")
    with pytest.raises(InvalidArgumentError, match="snappy"):
        to_avro(tmp_path / "t.trv", tmp_path / "t.avro", codec="snappy")
    assert [f.name for f in tmp_path.iterdir()] == ["t.trv"]
