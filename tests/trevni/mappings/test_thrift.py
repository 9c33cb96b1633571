"""Thrift structs, there and back, with classes as Apache Thrift's compiler writes them."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.trevni import TrevniFile
from trilake.trevni.mappings.thrift import (
    BOOL,
    DOUBLE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRING,
    STRUCT,
    read_thrift,
    write_thrift,
)


class Generated:
    thrift_spec: Any = ()

    def __init__(self, **fields: Any) -> None:
        for entry in self.thrift_spec:
            if entry is not None:
                setattr(self, entry[2], fields.pop(entry[2], entry[4]))
        assert not fields

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)


class Part(Generated):
    thrift_spec = (None, (1, STRING, "name", "UTF8", None), (2, I32, "n", None, 7))


class Whole(Generated):
    thrift_spec = (
        None,
        (1, STRUCT, "part", [Part, Part.thrift_spec], None),
        (2, LIST, "ints", (I32, None, False), None),
        (3, LIST, "parts", (STRUCT, (Part, Part.thrift_spec), False), None),
        (4, MAP, "map", (STRING, "UTF8", LIST, (I64, None, False), False), None),
        (5, SET, "set", (STRING, "BINARY", False), None),
        None,
        (7, BOOL, "flag", None, None),
        (8, LIST, "deep", (LIST, (I16, None, False), False), None),
        (9, DOUBLE, "x", None, None),
    )


class Node(Generated):
    pass


Node.thrift_spec = (None, (1, LIST, "kids", (STRUCT, (Node, None), False), None))

ROWS = [
    Whole(),
    Whole(part=Part(name="a"), ints=[1, 2], parts=[Part(), Part(name="q", n=3)], map={"a": [1], "b": []}, x=-0.5),
    Whole(part=Part(n=None), ints=[], set={b"\xff", b""}, flag=False, deep=[[1], [], [2, 3]]),
]


def test_round_trip_with_and_without_the_class() -> None:
    sink = io.BytesIO()
    assert write_thrift(ROWS, Whole, sink) == 3
    assert list(read_thrift(sink.getvalue(), Whole)) == ROWS
    bare = list(read_thrift(sink.getvalue()))
    assert (bare[1].part.name, bare[1].parts[1].n, bare[2].set, bare[0].ints) == ("a", 3, {b"\xff", b""}, None)
    kinds = {c.name: (c.type, c.array, c.parent) for c in TrevniFile(sink.getvalue()).columns}
    assert kinds["part#n"] == ("int", True, "part")
    assert kinds["map>value[]"] == ("long", True, "map>")
    assert kinds["deep[][]"] == ("int", True, "deep[]")


def test_class_with_fewer_and_other_fields() -> None:
    class Newer(Generated):
        thrift_spec = (None, (2, LIST, "ints", (I32, None, False), None), (20, I32, "added", None, 5))

    sink = io.BytesIO()
    write_thrift(ROWS, Whole, sink)
    assert [(row.ints, row.added) for row in read_thrift(sink.getvalue(), Newer)] == [(None, 5), ([1, 2], 5), ([], 5)]


def test_unsupported_schemas_raise() -> None:
    with pytest.raises(InvalidArgumentError, match="recursive"):
        write_thrift([], Node, io.BytesIO())
    with pytest.raises(InvalidArgumentError, match="thrift_spec"):
        write_thrift([], int, io.BytesIO())
    for wrong in (Whole(ints=[2**31]), Whole(deep=[[40_000]]), Whole(parts=3), Whole(x="y")):
        with pytest.raises(SchemaMismatchError):
            write_thrift([wrong], Whole, io.BytesIO())


def test_fields_with_wider_types() -> None:
    """Values came as they were stored: a double was an int, and binary a text."""

    def struct(*kinds: tuple[int, Any]) -> Any:
        spec = tuple((i, kind, f"f{i}", what, None) for i, (kind, what) in enumerate(kinds))
        return type("P", (SimpleNamespace,), {"thrift_spec": spec})

    stored, wanted = struct((10, None), (11, "UTF8"), (11, "BINARY")), struct((4, None), (11, "BINARY"), (11, "UTF8"))
    sink = io.BytesIO()
    write_thrift([stored(f0=5, f1="x", f2=b"y"), stored(f0=None, f1=None, f2=None)], stored, sink)
    first, second = read_thrift(sink.getvalue(), wanted)
    assert repr(vars(first)) == repr({"f0": 5.0, "f1": b"x", "f2": "y"})
    assert vars(second) == {"f0": None, "f1": None, "f2": None}
