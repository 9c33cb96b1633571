"""Records read with another schema than they were written with, by Avro's "Schema Resolution"."""

from __future__ import annotations

import io
from typing import Any

import pytest

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.trevni import TrevniFile, TrevniWriter
from trilake.trevni.mappings.avro import read_avro, write_avro

E = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
S = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]}
F = {"type": "fixed", "name": "F", "size": 2}
INTS = {"type": "array", "items": "int"}
NOTHING: Any = object()


def enum(*symbols: str, **more: str) -> dict[str, Any]:
    return {**E, "symbols": list(symbols), **more}


def struct(*fields: tuple[str, Any] | tuple[str, Any, Any], name: str = "S") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [field(*one) for one in fields]}


def field(name: str, type_: Any, default: Any = NOTHING) -> dict[str, Any]:
    return {"name": name, "type": type_, **({} if default is NOTHING else {"default": default})}


def written(type_: Any, values: list[Any], *, plain: bool = False) -> bytes:
    """A file of records with a field ``a``; with ``plain`` it does not state its schema."""
    sink = io.BytesIO()
    write_avro([{"a": value} for value in values], struct(("a", type_), name="R"), sink)
    if not plain:
        return sink.getvalue()
    file, other = TrevniFile(sink.getvalue()), io.BytesIO()
    with TrevniWriter(other, None, columns=file.columns) as writer:
        writer.write_columns(len(values), [file.column(column.number) for column in file.columns])
    return other.getvalue()


def read(data: bytes, reader_type: Any, default: Any, **options: Any) -> list[Any]:
    return [row["a"] for row in read_avro(data, struct(("a", reader_type, default), name="R"), **options)]


@pytest.mark.parametrize(
    ("stored", "values", "reader_type", "default", "expected"),
    [
        ("int", [1, 2], ["null", "int"], None, [1, 2]),
        ("int", [1, 2], ["string", "double"], "z", [1.0, 2.0]),
        ("string", ["x"], ["null", "bytes", "string"], None, ["x"]),
        (["null", "int"], [1, 2], "int", 0, [1, 2]),
        (["null", "int"], [1, None], ["null", "long"], None, [1, None]),
        (["int", "string"], [1, "x"], ["double", "null", "bytes"], 0.0, [1.0, b"x"]),
        (S, [{"x": 1}], ["null", S], None, [{"x": 1}]),
        (["null", S], [{"x": 1}], S, {"x": 5}, [{"x": 1}]),
        (S, [{"x": 1}], struct(("y", "int", 3)), {"y": 9}, [{"y": 3}]),
        (["null", S], [{"x": 1}, None], [struct(("y", "int", 3), ("x", "int")), "null"], {}, [{"x": 1, "y": 3}, None]),
        (INTS, [[1, 2], []], {"type": "array", "items": ["null", "int"]}, [], [[1, 2], []]),
        ({"type": "array", "items": ["null", S]}, [[{"x": 1}]], {"type": "array", "items": S}, [], [[{"x": 1}]]),
        ({"type": "map", "values": "int"}, [{"k": 1}], ["null", {"type": "map", "values": "long"}], None, [{"k": 1}]),
        (E, ["B", "C"], enum("C", "B", "A"), "A", ["B", "C"]),
        (E, ["B", "C"], enum("A", "B", default="A"), "A", ["B", "A"]),
        ({"type": "array", "items": E}, [["C", "A"]], {"type": "array", "items": enum("C", "A")}, [], [["C", "A"]]),
        (E, ["B"], "int", 7, [1]),
        (F, [b"ab"], "bytes", "", [b"ab"]),
    ],
)  # fmt: skip
def test_present_fields_are_read(
    stored: Any, values: list[Any], reader_type: Any, default: Any, expected: list[Any]
) -> None:
    """The default is only for fields missing in the file."""
    assert read(written(stored, values), reader_type, default) == expected


@pytest.mark.parametrize(
    ("stored", "values", "reader_type", "default", "message"),
    [
        (["null", "int"], [1, None], "int", 0, "null"),
        (["null", "int"], [1], ["null", "string"], None, "branch"),
        (["null", S], [{"x": 1}], ["null", {**S, "name": "S2"}], None, "branch"),
        (["null", E, "int"], ["A", 1], "int", 0, "branch"),
        (INTS, [[1]], "int", 7, "type array, but the schema expects int"),
        (INTS, [[1]], {"type": "map", "values": "int"}, {}, "schema expects map"),
        ("long", [1], ["null", "int"], None, "type long, but the schema expects null or int"),
        ("int", [1], E, "A", "schema expects E"),
        (E, ["C"], enum("A", "B"), "A", "'C' is not a symbol"),
        ("bytes", [b"\xff"], "string", "", "not a UTF-8 string"),
        (F, [b"ab"], {**F, "size": 3}, "zzz", "2 bytes"),
    ],
)  # fmt: skip
def test_values_outside_the_schema_raise(
    stored: Any, values: list[Any], reader_type: Any, default: Any, message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        read(written(stored, values), reader_type, default)


def test_aliases_of_fields_and_branches() -> None:
    reader_type = struct(name="R")
    reader_type["fields"] = [{"name": "new", "type": ["null", {**S, "name": "T", "aliases": ["S"]}], "aliases": ["a"]}]
    assert list(read_avro(written(["null", S], [{"x": 1}, None]), reader_type)) == [{"new": {"x": 1}}, {"new": None}]


def test_branch_names_of_the_requested_schema() -> None:
    stored = ["null", "int", "string"]
    reader_type = ["null", "long", "bytes"]
    assert read(written(stored, [1, "x", None]), reader_type, None, tagged=True) == [("long", 1), ("bytes", b"x"), None]
    assert read(written("int", [1]), reader_type, None, tagged=True) == [("long", 1)]
    assert read(written(["int"], [1]), "long", 0, tagged=True) == [1]


def test_files_without_a_schema() -> None:
    plain = written(["null", "int"], [1, None], plain=True)
    assert read(plain, ["null", "int"], None) == [1, None]
    others = struct(("b", ["null", "int"], None), ("c", {"type": "array", "items": S}, []), name="R")
    assert list(read_avro(plain, others)) == [{"b": None, "c": []}] * 2
    for reader_type, default in (("int", 0), (["null", "string"], None), (S, {"x": 0}), (INTS, [])):
        with pytest.raises(SchemaMismatchError, match=r"has 'a/int' where the schema has 'a"):
            read(plain, reader_type, default)
    assert read(written("int", [1, 2], plain=True), "double", 0) == [1.0, 2.0]
    assert read(written("bytes", [b"x"], plain=True), "string", "") == ["x"]
    with pytest.raises(SchemaMismatchError, match="not a UTF-8 string"):
        read(written("bytes", [b"\xff"], plain=True), "string", "")
    loop = struct(("a", {"type": "array", "items": "S"}))
    with pytest.raises(InvalidArgumentError, match="recursive"):
        list(read_avro(written({"type": "array", "items": S}, [], plain=True), loop))


def test_file_without_the_columns_of_its_schema() -> None:
    data = written("int", [1]).replace(b"trevni.name\x02a", b"trevni.name\x02b")
    with pytest.raises(SchemaMismatchError, match="not found in the file"):
        read(data, "int", 0)
    damaged = written(E, ["C"]).replace(b'["A","B","C"]', b'["A","B"    ]')
    with pytest.raises(CorruptFileError, match="out of range for an enum of 2 symbols"):
        list(read_avro(damaged))
