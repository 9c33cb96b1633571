"""Round trips of Protocol Buffers messages."""

from __future__ import annotations

import io
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.trevni import TrevniFile
from trilake.trevni.mappings.protobuf import read_protobuf, write_protobuf

F = descriptor_pb2.FieldDescriptorProto
SCALARS = [t for t in F.Type.values() if t not in (F.TYPE_GROUP, F.TYPE_MESSAGE, F.TYPE_ENUM)]


def classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    m, s = file.message_type.add(name="M"), file.message_type.add(name="S")
    for i, type_ in enumerate(SCALARS):
        m.field.add(name=f"one{type_}", number=i + 1, type=type_, label=F.LABEL_OPTIONAL)
        m.field.add(name=f"many{type_}", number=i + 50, type=type_, label=F.LABEL_REPEATED)
    s.field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    s.field.add(name="names", number=2, type=F.TYPE_STRING, label=F.LABEL_REPEATED)
    for name, number, label in (("sub", 100, F.LABEL_OPTIONAL), ("subs", 101, F.LABEL_REPEATED)):
        m.field.add(name=name, number=number, type=F.TYPE_MESSAGE, type_name=".t.S", label=label)
    for name, number, key, value in (
        ("ByMsg", 102, F.TYPE_UINT64, F.TYPE_MESSAGE),
        ("ByInt", 103, F.TYPE_STRING, F.TYPE_FIXED32),
    ):
        entry = m.nested_type.add(name=f"{name}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key, label=F.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=value, label=F.LABEL_OPTIONAL)
        if value == F.TYPE_MESSAGE:
            entry.field[1].type_name = ".t.S"
        m.field.add(
            name=name, number=number, type=F.TYPE_MESSAGE, type_name=f".t.M.{name}Entry", label=F.LABEL_REPEATED
        )
    m.oneof_decl.add(name="either")
    m.field.add(name="a", number=104, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL, oneof_index=0)
    m.field.add(name="b", number=105, type=F.TYPE_MESSAGE, type_name=".t.S", label=F.LABEL_OPTIONAL, oneof_index=0)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="kids", number=1, type=F.TYPE_MESSAGE, type_name=".t.Tree", label=F.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{n}")) for n in ("M", "S", "Tree")}


MADE = classes()
M = MADE["M"]


def messages() -> list[Any]:
    full, other = M(), M()
    for type_ in SCALARS:
        field = M.DESCRIPTOR.fields_by_name[f"one{type_}"]
        value: Any = {
            F.TYPE_STRING: "é",
            F.TYPE_BYTES: b"\xff",
            F.TYPE_BOOL: True,
            F.TYPE_DOUBLE: -0.5,
            F.TYPE_FLOAT: 0.25,
        }.get(type_)
        if value is None:
            bits = 64 if type_ in (F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_FIXED64, F.TYPE_SFIXED64, F.TYPE_SINT64) else 32
            unsigned = type_ in (F.TYPE_UINT64, F.TYPE_FIXED64, F.TYPE_FIXED32, F.TYPE_UINT32)
            value = 2**bits - 1 if unsigned else -(2 ** (bits - 1))
        setattr(full, field.name, value)
        getattr(full, f"many{type_}").extend([value, value])
    full.sub.SetInParent()
    full.subs.add(x=1, names=["q", ""])
    full.subs.add()
    full.ByMsg[2**64 - 1].x = 3
    full.ByInt["k"] = 2**32 - 1
    full.a = 0
    other.b.names.append("z")
    return [full, other, M()]


def test_round_trip_with_and_without_the_class() -> None:
    sink = io.BytesIO()
    assert write_protobuf(messages(), M, sink, codec="deflate") == 3
    assert list(read_protobuf(sink.getvalue(), M)) == messages()
    again = [m.SerializeToString(deterministic=True) for m in read_protobuf(sink.getvalue())]
    assert again == [m.SerializeToString(deterministic=True) for m in messages()]


def test_columns() -> None:
    sink = io.BytesIO()
    write_protobuf([], M, sink)
    kinds = {c.name: (c.type, c.array, c.parent) for c in TrevniFile(sink.getvalue()).columns}
    assert kinds["one4"] == ("fixed64", False, None)
    assert kinds["many9[]"] == ("string", True, None)
    assert kinds["sub"] == ("null", True, None)
    assert kinds["subs[]#names[]"] == ("string", True, "subs[]")
    assert kinds["ByMsg>value#x"] == ("int", False, "ByMsg>")
    assert kinds["a"] == ("int", True, None)


def test_unsupported_schemas_raise() -> None:
    with pytest.raises(InvalidArgumentError, match="recursive"):
        write_protobuf([], MADE["Tree"], io.BytesIO())
    with pytest.raises(SchemaMismatchError):
        write_protobuf([MADE["S"]()], M, io.BytesIO())
    unknown = MADE["S"].FromString(messages()[0].SerializeToString())
    with pytest.raises(SchemaMismatchError, match="unknown"):
        write_protobuf([unknown], MADE["S"], io.BytesIO())


@pytest.mark.parametrize("name", [b"ByInt>key", b"ByInt>value", b"ByMsg>key"])
def test_file_without_the_columns_of_a_map(name: bytes) -> None:
    """Found by mutation: the descriptor has a field that is only partly in the file."""
    sink = io.BytesIO()
    write_protobuf(messages(), M, sink)
    renamed = sink.getvalue().replace(name, name[:-1] + b"X")
    with pytest.raises(SchemaMismatchError, match="not found in the file"):
        list(read_protobuf(renamed))


def test_map_descriptor_without_a_value() -> None:
    sink = io.BytesIO()
    write_protobuf(messages(), M, sink)
    # Names of fields in the descriptor: a tag, a length, the name.
    renamed = sink.getvalue().replace(b"\x0a\x05value", b"\x0a\x05valuX")
    with pytest.raises((SchemaMismatchError, CorruptFileError)):
        list(read_protobuf(renamed))


def message_of(kind: Any, label: Any = F.LABEL_OPTIONAL) -> Any:
    """A message of one field ``x``."""
    file = descriptor_pb2.FileDescriptorProto(name="u.proto", package="u", syntax="proto3")
    file.message_type.add(name="M").field.add(name="x", number=1, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("u.M"))


def test_field_that_became_repeated_or_single_raises() -> None:
    """Its values were read as defaults."""
    one, many = message_of(F.TYPE_INT32), message_of(F.TYPE_INT32, F.LABEL_REPEATED)
    for stored, expected, message in ((one, many, one(x=5)), (many, one, many(x=[5, 6]))):
        sink = io.BytesIO()
        write_protobuf([message], stored, sink)
        assert list(read_protobuf(sink.getvalue(), stored)) == [message]
        with pytest.raises(SchemaMismatchError, match="but the file has"):
            list(read_protobuf(sink.getvalue(), expected))


def test_strings_become_bytes_of_the_class() -> None:
    """It failed and reported a corrupt file."""
    stored, expected = message_of(F.TYPE_STRING), message_of(F.TYPE_BYTES)
    sink = io.BytesIO()
    write_protobuf([stored(x="\u00e9")], stored, sink)
    assert [message.x for message in read_protobuf(sink.getvalue(), expected)] == ["\u00e9".encode()]
