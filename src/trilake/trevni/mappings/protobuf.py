"""Store Protocol Buffers messages in Trevni files; the spec leaves this mapping blank.

The mapping follows that of Avro and uses its marks in column names: ``#`` before a field of a message, ``[]`` after a
repeated field, ``>`` after a map, with the children ``key`` and ``value``.

=====================================================  ===============================================================
field                                                  columns
=====================================================  ===============================================================
scalar without presence (proto3)                       one column; the field's default is a value like any other
scalar with presence (optional, oneof, proto2)         an array column of length 0 or 1
message                                                a null array column of length 0 or 1, the message's fields below
repeated scalar                                        an array column ``name[]``
repeated message                                       a null array column ``name[]``, the message's fields below
map                                                    a null array column ``name>``, children ``key`` and ``value``
=====================================================  ===============================================================

int32, sint32 and enums (by number) are stored as int; int64, sint64 and uint32 as long; uint64, fixed64 and sfixed64 as
fixed64; fixed32 and sfixed32 as fixed32; other types as the type of the same name.  Unsigned values keep their bits.
Recursive messages, and messages with extensions, groups or unknown fields, cannot be stored.

The file metadata has the name of the message and a ``FileDescriptorSet``, so that the file can be read without the
generated class.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, TypeVar, cast, overload

from trilake.common.extras import missing
from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings.shapes import Branch, Choice, Pairs, Record, Repeated, Shape, Sheet, Simple, Stream

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.message import DecodeError, Message
except ImportError:
    raise missing("google.protobuf", "protobuf messages", "trevni") from None

#: Keys of file metadata: full name of the message, and the files that define it.
MESSAGE_KEY, DESCRIPTOR_KEY = "protobuf.message", "protobuf.descriptor"

_Read = TypeVar("_Read", bound=Message)
_F = FieldDescriptor
_TYPES = {
    _F.TYPE_DOUBLE: ValueType.DOUBLE,
    _F.TYPE_FLOAT: ValueType.FLOAT,
    _F.TYPE_INT64: ValueType.LONG,
    _F.TYPE_UINT64: ValueType.FIXED64,
    _F.TYPE_INT32: ValueType.INT,
    _F.TYPE_FIXED64: ValueType.FIXED64,
    _F.TYPE_FIXED32: ValueType.FIXED32,
    _F.TYPE_BOOL: ValueType.BOOLEAN,
    _F.TYPE_STRING: ValueType.STRING,
    _F.TYPE_BYTES: ValueType.BYTES,
    _F.TYPE_UINT32: ValueType.LONG,
    _F.TYPE_ENUM: ValueType.INT,
    _F.TYPE_SFIXED32: ValueType.FIXED32,
    _F.TYPE_SFIXED64: ValueType.FIXED64,
    _F.TYPE_SINT32: ValueType.INT,
    _F.TYPE_SINT64: ValueType.LONG,
}
#: Number of bits of unsigned types that are stored as signed values.
_UNSIGNED = {_F.TYPE_UINT64: 64, _F.TYPE_FIXED64: 64, _F.TYPE_FIXED32: 32}


def _is_repeated(field: FieldDescriptor) -> bool:
    # Newer protobuf releases have a property instead of the label.
    repeated: Any = getattr(field, "is_repeated", None)
    return bool(repeated) if repeated is not None else getattr(field, "label", 0) == _F.LABEL_REPEATED


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _scalar(field: FieldDescriptor, stream: Stream) -> Shape:
    bits = _UNSIGNED.get(field.type)
    if bits is None:
        return Simple(stream)
    return Simple(
        stream,
        lambda value: value - (1 << bits) if value >> (bits - 1) else value,
        lambda value: value & ((1 << bits) - 1),
    )


class _Message(Record):
    """The fields of a message, by name; fields that are not set are ``None``."""

    def __init__(self, descriptor: Descriptor, new: type[Message], fields: list[tuple[str, Shape]]) -> None:
        optional = {f.name for f in descriptor.fields if f.has_presence}
        self._name = descriptor.full_name
        super().__init__(
            fields,
            lambda value, name: None if name in optional and not value.HasField(name) else getattr(value, name),
            lambda values: new(**values),
        )

    def write(self, value: Any) -> None:
        if len(unknown_fields.UnknownFieldSet(value)):
            raise SchemaMismatchError(f"a {self._name} has unknown fields, which cannot be stored")
        super().write(value)

    def read(self) -> Any:
        try:
            return super().read()
        except (ValueError, TypeError) as e:
            raise CorruptFileError(f"a value does not fit into {self._name}: {e}") from e


class _Messages(Sheet):
    def __init__(self, new: type[Message], file: TrevniFile | None = None) -> None:
        super().__init__(file)
        self.shape = self._message(cast(Descriptor, new.DESCRIPTOR), "", None, (), new)

    def _message(
        self, of: Descriptor, path: str, parent: Stream | None, seen: tuple[str, ...], new: type[Message] | None = None
    ) -> Shape:
        if of.full_name in seen:
            raise InvalidArgumentError(
                f"recursive messages cannot be stored as columns: {of.full_name} contains itself"
            )
        if of.is_extendable and of.file.pool.FindAllExtensions(of):
            raise InvalidArgumentError(f"{of.full_name} has extensions, which cannot be stored as columns")
        seen = (*seen, of.full_name)
        fields: list[tuple[str, Shape]] = []
        for field in of.fields:
            name = f"{path}#{field.name}" if path else field.name
            # An absent field has its default, as in the wire format.
            if self.file is None or self._has_column(field, name):
                fields.append((field.name, self._field(field, name, parent, seen)))
        return _Message(of, new or message_factory.GetMessageClass(of), fields)

    def _has_column(self, field: FieldDescriptor, name: str) -> bool:
        column = f"{name}{'>' if _is_map(field) else '[]' if _is_repeated(field) else ''}"
        if column in self._by_name:
            return True
        other = next((one for mark in ("", "[]", ">") if (one := f"{name}{mark}") in self._by_name), None)
        if other is not None:
            assert self.file is not None
            raise SchemaMismatchError(
                f"the message has the column {column!r}, but the file has {other!r}",
                help="read the file without a class, or with the class that wrote it",
                file=self.file.uri,
                column=other,
            )
        return False

    def _field(self, field: FieldDescriptor, name: str, parent: Stream | None, seen: tuple[str, ...]) -> Shape:
        if field.type == _F.TYPE_GROUP:
            raise InvalidArgumentError(f"{field.full_name} is a group, which cannot be stored as columns")
        if _is_map(field):
            return self._map(field, f"{name}>", parent, seen)
        repeated = _is_repeated(field)
        name = f"{name}[]" if repeated else name
        if field.message_type is None:
            stream = self.add(name, _TYPES[field.type], parent, array=repeated or field.has_presence)
            value = _scalar(field, stream)
        else:
            stream = self.add(name, ValueType.NULL, parent, array=True)
            value = self._message(field.message_type, name, stream, seen)
        if repeated:
            return Repeated(stream, value)
        if not field.has_presence:
            return value
        return Choice([Branch(stream, value, field.name, lambda one: one is not None)], name, nothing=True)

    def _map(self, field: FieldDescriptor, name: str, parent: Stream | None, seen: tuple[str, ...]) -> Shape:
        assert field.message_type is not None
        stream = self.add(name, ValueType.NULL, parent, array=True)
        of_key, of_value = (field.message_type.fields_by_name.get(part) for part in ("key", "value"))
        if of_key is None or of_value is None:
            raise SchemaMismatchError(f"{field.full_name} is not a map: it has no key or no value", column=name)
        key = _scalar(of_key, self.add(f"{name}key", _TYPES[of_key.type], stream))
        if of_value.message_type is not None:
            return Pairs(stream, key, self._message(of_value.message_type, f"{name}value", stream, seen))
        return Pairs(stream, key, _scalar(of_value, self.add(f"{name}value", _TYPES[of_value.type], stream)))


def _descriptor_set(descriptor: Descriptor) -> bytes:
    """Serialize the files that define a message, each after its dependencies."""
    files: dict[str, FileDescriptor] = {}

    def visit(file: FileDescriptor) -> None:
        for needed in file.dependencies:
            visit(needed)
        files.setdefault(file.name, file)

    visit(descriptor.file)
    every = descriptor_pb2.FileDescriptorSet()
    for file in files.values():
        file.CopyToProto(every.file.add())
    return every.SerializeToString(deterministic=True)


def message_class(file: TrevniFile) -> type[Message]:
    """Create the message class from a file's metadata.  Raises ``SchemaMismatchError`` and ``CorruptFileError``."""
    if DESCRIPTOR_KEY not in file.metadata or MESSAGE_KEY not in file.metadata:
        raise SchemaMismatchError(
            f"the file has no {DESCRIPTOR_KEY} in its metadata", help="pass the class of its messages", file=file.uri
        )
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(file.metadata[DESCRIPTOR_KEY])
        pool = descriptor_pool.DescriptorPool()
        for one in files.file:
            pool.Add(one)
        descriptor = pool.FindMessageTypeByName(file.metadata[MESSAGE_KEY].decode())
    except (DecodeError, TypeError, KeyError, ValueError) as e:
        raise CorruptFileError(f"the message descriptor in the file cannot be read: {e}", file=file.uri) from e
    return message_factory.GetMessageClass(descriptor)


def write_protobuf(
    messages: Iterable[Message],
    message_type: type[Message],
    path: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
    *,
    codec: str | None = None,
    checksum: str | None = None,
    metadata: Mapping[str, bytes | str] | None = None,
    block_size: int = BLOCK_SIZE,
) -> int:
    """Write messages to a Trevni file, and return their number.

    Parameters
    ----------
    messages: instances of ``message_type``.
    message_type: the class, generated or created from a descriptor.

    The other parameters are those of :class:`trilake.trevni.TrevniWriter`.

    Raises ``InvalidArgumentError`` for messages that cannot be stored, and ``SchemaMismatchError`` for other objects.

    >>> from io import BytesIO
    >>> from google.protobuf.duration_pb2 import Duration
    >>> file = BytesIO()
    >>> write_protobuf([Duration(seconds=1), Duration(nanos=2)], Duration, file)
    2
    >>> [(d.seconds, d.nanos) for d in read_protobuf(file.getvalue(), Duration)]
    [(1, 0), (0, 2)]
    """
    descriptor = cast(Descriptor, message_type.DESCRIPTOR)
    return _Messages(message_type).write(
        _checked(messages, descriptor),
        path,
        codec=codec,
        checksum=checksum,
        metadata={**(metadata or {}), MESSAGE_KEY: descriptor.full_name, DESCRIPTOR_KEY: _descriptor_set(descriptor)},
        block_size=block_size,
    )


def _checked(messages: Iterable[Any], descriptor: Descriptor) -> Iterator[Message]:
    for message in messages:
        if not isinstance(message, Message) or message.DESCRIPTOR.full_name != descriptor.full_name:
            raise SchemaMismatchError(f"expected a {descriptor.full_name}, got {type(message).__name__}")
        if not message.IsInitialized():
            missing_fields = ", ".join(cast(Any, message).FindInitializationErrors())
            raise SchemaMismatchError(f"a {descriptor.full_name} lacks the required fields {missing_fields}")
        yield message


@overload
def read_protobuf(file: TrevniFile | Any, message_type: type[_Read]) -> Iterator[_Read]: ...
@overload
def read_protobuf(file: TrevniFile | Any, message_type: None = None) -> Iterator[Message]: ...
def read_protobuf(file: TrevniFile | Any, message_type: type[Message] | None = None) -> Iterator[Message]:
    """Iterate over the messages of a file.

    Parameters
    ----------
    file: an open file, or anything that :class:`trilake.trevni.TrevniFile` opens.
    message_type: the class of the messages, by default created from the file metadata.  Only the columns of its fields
        are read, by name; missing fields have their defaults.

    Raises ``SchemaMismatchError`` if the file does not match the class, and ``CorruptFileError``.

    >>> from io import BytesIO
    >>> from google.protobuf.duration_pb2 import Duration
    >>> file = BytesIO()
    >>> _ = write_protobuf([Duration(seconds=1)], Duration, file)
    >>> [message.seconds for message in read_protobuf(file.getvalue())]
    [1]
    """
    opened = file if isinstance(file, TrevniFile) else TrevniFile(file)
    return _Messages(message_type if message_type is not None else message_class(opened), opened).read()
