"""Store Thrift structs in Trevni files; the spec leaves this mapping blank.

The schema is the ``thrift_spec`` of the Python classes that Apache Thrift's compiler generates: a tuple, by field id,
of ``(id, type, name, type arguments, default)``.  It is plain data, so no Thrift library is needed.

The mapping follows that of Avro and uses its marks in column names.  Any field may be unset, so each is an array column
of length 0 or 1: of the field's type if it is simple, else a null array column with children.

=====================  ===========================================================================================
Thrift                 Trevni
=====================  ===========================================================================================
bool                   boolean
byte (i8), i16, i32    int
i64                    long
double                 double
string; binary         string; bytes (binary has the type argument ``BINARY``)
enum                   int, its number: an i32 for Thrift's compiler
struct                 its fields, at the path of the struct and ``#``
list, set              an array column ``path[]``; below a null array column, if its elements are not simple
map                    a null array column ``path>`` with the children ``path>key`` and ``path>value``
=====================  ===========================================================================================

Values of maps and elements of lists are always set.  Recursive structs raise ``InvalidArgumentError``.
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
from trilake.trevni.mappings import shapes

#: Key of file metadata: the struct as JSON, with type names and field ids.
STRUCT_KEY = "thrift.struct"

# Type numbers of the wire protocol.
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


class _Structs(shapes.Sheet):
    def __init__(self, struct: type, file: TrevniFile | None = None) -> None:
        super().__init__(file)
        #: The struct in the form of :data:`STRUCT_KEY`.
        self.description, self.shape = self._struct(struct, _spec(struct), "", None, ())

    def _struct(
        self, struct: Any, spec: Sequence[Any], path: str, parent: shapes.Stream | None, seen: tuple[Any, ...]
    ) -> tuple[Any, shapes.Shape]:
        if struct in seen:
            raise InvalidArgumentError(
                f"recursive structs cannot be stored as columns: {struct.__name__} contains itself"
            )
        fields: list[tuple[str, shapes.Shape]] = []
        descriptions = []
        for entry in spec:
            if entry is None:
                continue
            number, kind, field, arguments = entry[:4]
            name = f"{path}#{field}" if path else field
            if self.file is not None and name not in self._by_name:
                fields.append((field, shapes.Default(entry[4] if len(entry) > 4 else None)))
                continue
            type_, stream, inner = self._slot(kind, arguments, name, parent, (*seen, struct), array=True)
            assert stream is not None
            branch = shapes.Branch(stream, inner, field, lambda value: value is not None)
            fields.append((field, shapes.Choice([branch], name, nothing=True)))
            descriptions.append({"id": number, "name": field, "type": type_})
        # Structs may be frozen, so pass all fields to the constructor.
        record = shapes.Record(fields, getattr, lambda values: struct(**values))
        return {"struct": struct.__name__, "fields": descriptions}, record

    def _slot(
        self, kind: int, arguments: Any, name: str, parent: shapes.Stream | None, seen: tuple[Any, ...], *, array: bool
    ) -> tuple[Any, shapes.Stream | None, shapes.Shape]:
        """Add the column of a field or element (``array``), or of a key or value of a map.

        Returns the description of the type, the array column if there is one, and the shape of the value.
        """
        simple = _simple(kind, arguments)
        if simple is not None:
            description, type_ = simple
            column = self.add(name, type_, parent, array=array)
            return description, column, shapes.Simple(column, _checker(kind, type_, name))
        own = self.add(name, ValueType.NULL, parent, array=True) if array else None
        above = own or parent
        if kind == STRUCT:
            struct, spec = arguments[0], arguments[1] if len(arguments) > 1 and arguments[1] else _spec(arguments[0])
            description, inner = self._struct(struct, spec, name, above, seen)
            return description, own, inner
        if kind in (LIST, SET):
            description, stream, element = self._slot(arguments[0], arguments[1], f"{name}[]", above, seen, array=True)
            assert stream is not None
            make: Callable[[list[Any]], Any] | None = set if kind == SET else None
            return {"set" if kind == SET else "list": description}, own, shapes.Repeated(stream, element, make)
        if kind == MAP:
            pairs = self.add(f"{name}>", ValueType.NULL, above, array=True)
            of_key, _, key = self._slot(arguments[0], arguments[1], f"{name}>key", pairs, seen, array=False)
            of_value, _, value = self._slot(arguments[2], arguments[3], f"{name}>value", pairs, seen, array=False)
            return {"map": [of_key, of_value]}, own, shapes.Pairs(pairs, key, value)
        raise InvalidArgumentError(f"unknown Thrift type {kind} of {name}")


def _spec(struct: Any) -> Sequence[Any]:
    spec = getattr(struct, "thrift_spec", None)
    if not isinstance(spec, tuple | list):
        raise InvalidArgumentError(
            f"expected a class with a thrift_spec, got {struct!r}",
            help="pass a class that Apache Thrift's compiler generated for Python",
        )
    return spec


def _simple(kind: int, arguments: Any) -> tuple[str, ValueType] | None:
    if kind == STRING:
        return ("binary", ValueType.BYTES) if arguments == "BINARY" else ("string", ValueType.STRING)
    return _SIMPLE.get(kind)


def _checker(kind: int, type_: ValueType, name: str) -> Callable[[Any], Any] | None:
    """Return the function that checks and converts values as Thrift does; ``None`` if there is nothing to do."""
    bits = _BITS.get(kind)
    if bits is None:
        encode = {ValueType.BOOLEAN: bool, ValueType.BYTES: lambda v: v.encode() if isinstance(v, str) else v}
        return encode.get(type_)

    def check(value: Any) -> Any:
        """Check the range, since Python's integers have no width."""
        if not isinstance(value, int) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise SchemaMismatchError(f"expected an integer of {bits} bits, got {value!r}", column=name)
        return int(value)

    return check


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
    """Write Thrift structs to a Trevni file, and return their number.

    Parameters
    ----------
    structs: objects with an attribute for each field; ``None`` means unset.
    struct: the generated class, for its ``thrift_spec``.

    The other parameters are those of :class:`trilake.trevni.TrevniWriter`.

    Raises ``InvalidArgumentError`` for structs that cannot be stored, and ``SchemaMismatchError`` for other objects.

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
    sheet = _Structs(struct)
    description = json.dumps(sheet.description, separators=(",", ":"))
    return sheet.write(
        structs,
        path,
        codec=codec,
        checksum=checksum,
        metadata={**(metadata or {}), STRUCT_KEY: description},
        block_size=block_size,
    )


def read_thrift(file: TrevniFile | Any, struct: type | None = None) -> Iterator[Any]:
    """Iterate over the structs of a file.

    Parameters
    ----------
    file: an open file, or anything that :class:`trilake.trevni.TrevniFile` opens.
    struct: the class of the structs, by default created from the file metadata.  Only the columns of its fields are
        read, by name; missing fields get the defaults of its ``thrift_spec``.

    Raises ``SchemaMismatchError`` if the file does not match the class, and ``CorruptFileError``.

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
    return _Structs(struct if struct is not None else _struct_in(opened), opened).read()


def _struct_in(file: TrevniFile) -> type:
    """Create a class with the fields in the file metadata."""
    if STRUCT_KEY not in file.metadata:
        raise SchemaMismatchError(
            f"the file has no {STRUCT_KEY} in its metadata", help="pass the class of its structs", file=file.uri
        )
    try:
        return _class(json.loads(file.metadata[STRUCT_KEY]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise CorruptFileError(f"the Thrift struct in the file cannot be read: {e!r}", file=file.uri) from e


_NUMBERS = {name: kind for kind, (name, _) in _SIMPLE.items()}


def _class(description: Mapping[str, Any]) -> type:
    spec = []
    for field in description["fields"]:
        kind, arguments = _type_arguments(field["type"])
        spec.append((field["id"], kind, field["name"], arguments, None))
    return type(str(description["struct"]), (SimpleNamespace,), {"thrift_spec": tuple(spec)})


def _type_arguments(type_: Any) -> tuple[int, Any]:
    if isinstance(type_, str):
        if type_ in ("string", "binary"):
            return STRING, "BINARY" if type_ == "binary" else "UTF8"
        return _NUMBERS[type_], None
    if "struct" in type_:
        struct: Any = _class(type_)
        return STRUCT, (struct, struct.thrift_spec)
    if "map" in type_:
        key, value = type_["map"]
        return MAP, (*_type_arguments(key), *_type_arguments(value), False)
    if "set" in type_:
        return SET, (*_type_arguments(type_["set"]), False)
    return LIST, (*_type_arguments(type_["list"]), False)
