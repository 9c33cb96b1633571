"""Thrift structs in Trevni files (spec: "Type Mappings", "Thrift", which it leaves blank).

The schema is the ``thrift_spec`` that Apache Thrift's compiler puts into the Python classes it generates: a tuple, by
field id, of ``(id, type, name, type arguments, default)``.  That is plain data, so no Thrift library is needed to write
or read; a library would add a dependency and no knowledge.

The mapping follows that of Avro, with the same marks in column names.  A field may be unset in any struct, so each is
an array column of length 0 or 1: of the field's type if it is simple, else a null array column with what is in it
below.

=====================  ===========================================================================================
Thrift                 Trevni
=====================  ===========================================================================================
bool                   boolean
byte (i8), i16, i32    int
i64                    long
double                 double
string; binary         string; bytes (the type argument ``BINARY`` tells them apart)
enum                   int, its number: Thrift's compiler says i32
struct                 its fields, at the path of the struct and ``#``
list, set              an array column ``path[]``; below a null array column, if its elements are not simple
map                    a null array column ``path>`` with the children ``path>key`` and ``path>value``
=====================  ===========================================================================================

Values of maps and elements of lists are never unset.  Recursive structs are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import IO, Any

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings.shapes import (
    BoundSheet,
    Branch,
    Choice,
    Default,
    Pairs,
    Record,
    Repeated,
    Shape,
    Simple,
    Stream,
    read_records,
    write_file,
)

#: File metadata: the struct as JSON, types by name and fields with their ids.
STRUCT_KEY = "thrift.struct"

# The numbers of the wire protocol.
BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
_SIMPLE = {
    BOOL: ("bool", ValueType.BOOLEAN),
    BYTE: ("i8", ValueType.INT),
    I16: ("i16", ValueType.INT),
    I32: ("i32", ValueType.INT),
    I64: ("i64", ValueType.LONG),
    DOUBLE: ("double", ValueType.DOUBLE),
}
_BITS = {BYTE: 8, I16: 16, I32: 32, I64: 64}


class _ShapeBuilder(BoundSheet):
    def __init__(self, struct: type, file: TrevniFile | None = None) -> None:
        super().__init__(file)
        self.described, self.shape = self._struct(struct, _spec(struct), "", None, ())

    def _struct(
        self, struct: Any, spec: Sequence[Any], path: str, parent: Stream | None, seen: tuple[Any, ...]
    ) -> tuple[Any, Shape]:
        if struct in seen:
            raise InvalidArgumentError(
                f"the struct is recursive: {struct.__name__} contains itself; it cannot become columns"
            )
        fields: list[tuple[str, Shape]] = []
        described = []
        for entry in spec:
            if entry is None:
                continue
            number, kind, field, arguments = entry[:4]
            name = f"{path}#{field}" if path else field
            if self._file is not None and name not in self._by_name:
                fields.append((field, Default(entry[4] if len(entry) > 4 else None)))
                continue
            what, stream, inner = self._slot(kind, arguments, name, parent, (*seen, struct), array=True)
            branch = Branch(stream, inner, field, _is_set)
            fields.append((field, Choice([branch], name, nothing=True)))
            described.append({"id": number, "name": field, "type": what})
        return {"struct": struct.__name__, "fields": described}, Record(fields, getattr, _maker(struct))

    def _slot(
        self, kind: int, arguments: Any, name: str, parent: Stream | None, seen: tuple[Any, ...], *, array: bool
    ) -> tuple[Any, Stream | None, Shape]:
        """The column of a value that may be a field or an element (``array``), or stands in each place.

        Returns what the type is called, the array column if there is one, and the shape of the value itself.
        """
        simple = _simple(kind, arguments)
        if simple is not None:
            called, type_ = simple
            own = self.add(name, type_, parent, array=array)
            return called, own, Simple(own, _checker(kind, type_, name))
        above = self.add(name, ValueType.NULL, parent, array=True) if array else parent
        stream_or_none = above if array else None
        if kind == STRUCT:
            struct, spec = arguments[0], arguments[1] if len(arguments) > 1 and arguments[1] else _spec(arguments[0])
            described, inner = self._struct(struct, spec, name, above, seen)
            return described, stream_or_none, inner
        if kind in (LIST, SET):
            called, stream, element = self._slot(arguments[0], arguments[1], f"{name}[]", above, seen, array=True)
            assert stream is not None
            make: Callable[[list[Any]], Any] | None = set if kind == SET else None
            return {"set" if kind == SET else "list": called}, stream_or_none, Repeated(stream, element, make)
        if kind == MAP:
            pairs = self.add(f"{name}>", ValueType.NULL, above, array=True)
            of_key, _, key = self._slot(arguments[0], arguments[1], f"{name}>key", pairs, seen, array=False)
            of_value, _, value = self._slot(arguments[2], arguments[3], f"{name}>value", pairs, seen, array=False)
            return {"map": [of_key, of_value]}, stream_or_none, Pairs(pairs, key, value)
        raise InvalidArgumentError(f"the Thrift type {kind} of {name} is not known")


def _spec(struct: Any) -> Sequence[Any]:
    spec = getattr(struct, "thrift_spec", None)
    if not isinstance(spec, tuple | list):
        raise InvalidArgumentError(
            f"{struct!r} has no thrift_spec", help="pass a class that Apache Thrift's compiler generated for Python"
        )
    return spec


def _simple(kind: int, arguments: Any) -> tuple[str, ValueType] | None:
    if kind == STRING:
        return ("binary", ValueType.BYTES) if arguments == "BINARY" else ("string", ValueType.STRING)
    return _SIMPLE.get(kind)


def _checker(kind: int, type_: ValueType, name: str) -> Callable[[Any], Any]:
    """Checks what Thrift would write: Python's integers have no width, and text may come as bytes."""
    bits = _BITS.get(kind)

    def check(value: Any) -> Any:
        if bits is not None:
            if not isinstance(value, int) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
                raise SchemaMismatchError(f"{value!r} is not an integer of {bits} bits", column=name)
            return int(value)
        if type_ is ValueType.BYTES:
            return value.encode() if isinstance(value, str) else value
        if type_ is ValueType.BOOLEAN:
            return bool(value)
        return value

    return check


def _is_set(value: Any) -> bool:
    return value is not None


def _maker(struct: Any) -> Callable[[dict[str, Any]], Any]:
    if struct is SimpleNamespace:
        return lambda fields: SimpleNamespace(**fields)

    def make(fields: dict[str, Any]) -> Any:
        # Frozen structs take their fields at once, as all generated classes do.
        return struct(**fields)

    return make


def write_thrift(
    structs: Iterable[Any],
    struct: type,
    path: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
    *,
    codec: str | None = None,
    checksum: str | None = None,
    metadata: Mapping[str, bytes | str] | None = None,
    block_size: int = BLOCK_SIZE,
) -> int:
    """Write Thrift structs to a Trevni file and return how many.

    Parameters
    ----------
    structs: objects with the attributes that the class has fields for; ``None`` means unset.
    struct: the generated class, for its ``thrift_spec``.

    The other parameters are those of :class:`trilake.trevni.TrevniWriter`.

    Raises ``InvalidArgumentError`` for structs that cannot be stored and ``SchemaMismatchError`` for others than said.

    >>> from io import BytesIO
    >>> class Point:  # as Thrift's compiler makes it: of each field number, type (10 is i64), name and default
    ...     thrift_spec = (None, (1, 10, "x", None, None), (2, 10, "y", None, 0))
    ...     def __init__(self, x=None, y=0):
    ...         self.x, self.y = x, y
    >>> file = BytesIO()
    >>> write_thrift([Point(1, 2), Point(3)], Point, file)
    2
    >>> [(p.x, p.y) for p in read_thrift(file.getvalue(), Point)]
    [(1, 2), (3, 0)]
    """
    builder = _ShapeBuilder(struct)
    text = json.dumps(builder.described, separators=(",", ":"))
    whole = {**(metadata or {}), STRUCT_KEY: text}
    options: dict[str, Any] = {"codec": codec, "checksum": checksum, "metadata": whole, "block_size": block_size}
    return write_file(structs, builder.shape, builder.sheet, path, **options)


def read_thrift(file: TrevniFile | Any, struct: type | None = None) -> Iterator[Any]:
    """The structs of a file, one after another.

    Parameters
    ----------
    file: an open file, or what :class:`trilake.trevni.TrevniFile` opens.
    struct: the class to make; only columns of its fields are read, by name, and fields that the file does not have take
        the defaults of its ``thrift_spec``.  Without it, objects with the fields that the file's metadata describe.

    Raises ``SchemaMismatchError`` where file and class do not fit, and ``CorruptFileError``.

    >>> from io import BytesIO
    >>> class Name:  # as Thrift's compiler makes it: of each field number, type (10 is i64), name and default
    ...     thrift_spec = (None, (1, 10, "x", None, None))
    ...     def __init__(self, x=None):
    ...         self.x = x
    >>> file = BytesIO()
    >>> _ = write_thrift([Name(1), Name(2)], Name, file)
    >>> [struct.x for struct in read_thrift(file.getvalue())]
    [1, 2]
    """
    opened = file if isinstance(file, TrevniFile) else TrevniFile(file)
    builder = _ShapeBuilder(struct if struct is not None else _described_struct(opened), opened)
    return read_records(opened, builder.shape, builder.bound)


def _described_struct(file: TrevniFile) -> type:
    """A class like the one that a file's metadata describe."""
    if STRUCT_KEY not in file.metadata:
        raise SchemaMismatchError(
            f"the file has no {STRUCT_KEY} in its metadata", help="pass the class of its structs", file=file.uri
        )
    try:
        return _class(json.loads(file.metadata[STRUCT_KEY]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise CorruptFileError(f"the Thrift struct in the file cannot be read: {e!r}", file=file.uri) from e


_NUMBERS = {name: kind for kind, (name, _) in _SIMPLE.items()}


def _class(described: Mapping[str, Any]) -> type:
    spec = tuple((f["id"], *_arguments(f["type"], f["name"]), None) for f in described["fields"])
    return type(str(described["struct"]), (SimpleNamespace,), {"thrift_spec": spec})


def _arguments(type_: Any, name: str) -> tuple[int, str, Any]:
    kind, arguments = _type_arguments(type_)
    return kind, name, arguments


def _type_arguments(type_: Any) -> tuple[int, Any]:
    if isinstance(type_, str):
        if type_ in ("string", "binary"):
            return STRING, "BINARY" if type_ == "binary" else "UTF8"
        return _NUMBERS[type_], None
    if "struct" in type_:
        struct = _class(type_)
        return STRUCT, (struct, struct.thrift_spec)  # type: ignore[attr-defined]  # _class puts it there
    if "map" in type_:
        key, value = type_["map"]
        return MAP, (*_type_arguments(key), *_type_arguments(value), False)
    if "set" in type_:
        return SET, (*_type_arguments(type_["set"]), False)
    return LIST, (*_type_arguments(type_["list"]), False)
