"""Avro records in Trevni files, laid out as the reference does (spec: "Type Mappings", "Avro").

Columns are produced by a depth-first walk of the schema.  A path grows as it goes: ``#`` before a record's field,
``[]`` behind an array, ``>`` behind a map with its children ``key`` and ``value``, ``/`` before the name of a union's
branch. An array of something simple is one array column; of anything else, a null array column with children.  Each
branch of a union that is not null is an array column of lengths 0 and 1.  Enums are ints, fixed values are
bytes.  Recursive schemas are refused.  The schema is kept in the file's metadata, under :data:`SCHEMA_KEY`.

Records are what fastavro reads and writes: dictionaries, with ``(branch name, value)`` where a union's branch cannot be
told from the value, and values of logical types as their Python classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.blocks.layout import ColumnDescriptor, ValueType
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings.avro_library import fastavro
from trilake.trevni.mappings.avro_schema import AvroSchema, SchemaLike, branch_name, is_named_branch
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

#: File metadata: the schema of the records, as JSON.
SCHEMA_KEY = "avro.schema"

_SIMPLE = {
    "null": ValueType.NULL,
    "boolean": ValueType.BOOLEAN,
    "int": ValueType.INT,
    "long": ValueType.LONG,
    "float": ValueType.FLOAT,
    "double": ValueType.DOUBLE,
    "string": ValueType.STRING,
    "bytes": ValueType.BYTES,
    "enum": ValueType.INT,
    "fixed": ValueType.BYTES,
}
_INFINITY = float("inf")
_RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}


# --- the walk --------------------------------------------------------------------------------------------------------


class _ShapeBuilder(BoundSheet):
    """Builds the shape of a schema; with a file, over those of the columns that the file has."""

    def __init__(
        self, schema: AvroSchema, file: TrevniFile | None = None, *, tagged: bool = False, named: bool = False
    ) -> None:
        super().__init__(file)
        self.schema, self._tagged, self._named = schema, tagged, named
        self._seen: list[str] = []
        self.shape = self._walk(schema.root, None, None)

    def _walk(self, schema: Any, path: str | None, parent: Stream | None) -> Shape:
        schema = self.schema.resolve(schema)
        kind = self.schema.kind(schema)
        if kind in _SIMPLE:
            name = path if path is not None else self.schema.full_name(schema)
            return self._simple(schema, kind, self.add(name, _SIMPLE[kind], parent))
        if kind in ("record", "error"):
            return self._record(schema, path, parent)
        if kind == "array":
            name = f"{path or ''}[]"
            stream, inner = self._array(name, schema["items"], parent)
            return Repeated(stream, inner)
        if kind == "map":
            name = f"{path or ''}>"
            stream = self.add(name, ValueType.NULL, parent, array=True)
            key = Simple(self.add(f"{name}key", ValueType.STRING, stream), _text)
            return Pairs(stream, key, self._walk(schema["values"], f"{name}value", stream))
        if kind == "union":
            return self._union(schema, path, parent)
        raise InvalidArgumentError(f"the Avro type {kind!r} is not known")

    def _array(self, name: str, element: Any, parent: Stream | None) -> tuple[Stream, Shape]:
        """An array column, and what its elements are."""
        element = self.schema.resolve(element)
        kind = self.schema.kind(element)
        if kind in _SIMPLE:
            stream = self.add(name, _SIMPLE[kind], parent, array=True)
            return stream, self._simple(element, kind, stream)
        stream = self.add(name, ValueType.NULL, parent, array=True)
        return stream, self._walk(element, name, stream)

    def _simple(self, schema: Any, kind: str, stream: Stream) -> Simple:
        if kind == "enum":
            symbols = list(schema["symbols"])
            codes = {symbol: code for code, symbol in enumerate(symbols)}
            return Simple(stream, _Enum(codes, stream.name), _Symbol(symbols, stream.name, schema.get("default")))
        if kind == "fixed":
            return Simple(stream, _Fixed(schema, stream.name), self._reader(schema, stream))
        read = self._reader(schema, stream)
        if read is None and self._file is not None:
            read = _promotion(self._file.header.columns[self._by_name[stream.name]].type, stream.type)
        return Simple(stream, _logical_writer(schema) or (_text if kind == "string" else None), read)

    def _reader(self, schema: Any, stream: Stream) -> Any:
        return _logical_reader(schema, column=stream.name, file=None if self._file is None else self._file.uri)

    def _record(self, schema: Any, path: str | None, parent: Stream | None) -> Shape:
        name = schema["name"]
        if name in self._seen:
            raise InvalidArgumentError(f"the schema is recursive: {name} contains itself; it cannot become columns")
        self._seen.append(name)
        fields: list[tuple[str, Shape]] = []
        defaults: dict[str, Any] = {}
        for field in schema["fields"]:
            below = field["name"] if path is None else f"{path}#{field['name']}"
            if self._file is not None and self._is_missing(field["type"], below):
                if "default" not in field:
                    raise SchemaMismatchError(
                        f"the file has no field {below!r}, and the schema gives no default for it", file=self._file.uri
                    )
                fields.append((field["name"], Default(self._default(field["type"], field["default"]))))
                continue
            if "default" in field:
                defaults[field["name"]] = self._default(field["type"], field["default"])
            fields.append((field["name"], self._walk(field["type"], below, parent)))
        self._seen.pop()
        return Record(fields, _FieldGetter(name, defaults), dict)

    def _union(self, schema: list[Any], path: str | None, parent: Stream | None) -> Shape:
        branches: list[Branch] = []
        nothing = False
        for branch in schema:
            kind, tag = self.schema.kind(branch), self.schema.full_name(branch)
            if kind == "null":
                nothing = True
                continue
            name = tag if path is None else f"{path}/{tag}"
            if self._file is not None and name not in self._by_name:
                branches.append(Branch(None, Default(None), tag, _never))
                continue
            stream, inner = self._array(name, branch, parent)
            if self._named and is_named_branch(self.schema, schema, branch):
                branches.append(Branch(stream, _Named(inner), branch_name(branch), _never))
                continue
            accepts = _BranchTest(self.schema, branch)
            # A Python float is a double; only what can be nothing else becomes a float.
            last = kind == "float" and any(self.schema.kind(other) == "double" for other in schema)
            branches.append(Branch(stream, inner, tag, _never if last else accepts))
        foreign = self._foreign(path, parent, {b.stream.name for b in branches if b.stream is not None})
        tagged = (lambda branch: True) if self._tagged else None
        return Choice(branches, path or "union", nothing=nothing, tagged=tagged, foreign=foreign)

    def _foreign(self, path: str | None, parent: Stream | None, known: set[str]) -> list[Stream]:
        """Columns of branches that the file has and the schema asked for has not."""
        if self._file is None or SCHEMA_KEY not in self._file.metadata:
            return []
        above = None if parent is None else self._by_name[parent.name]
        streams = []
        for column in self._file.header.columns:
            name = column.name or ""
            start = "" if path is None else f"{path}/"
            tail = name[len(start) :]
            if name in known or not name.startswith(start) or column.parent != above or not column.array:
                continue
            # Deeper columns have a mark behind the branch's name.
            if tail and not set(tail) & set("/#[]>"):
                streams.append(self.add(name, column.type, parent, array=True))
        return streams

    def _is_missing(self, schema: Any, path: str) -> bool:
        """Whether the file has none of the columns that the schema has at this path."""
        names = list(self._names(schema, path, []))
        return bool(names) and not any(name in self._by_name for name in names)

    def _names(self, schema: Any, path: str, seen: list[str]) -> Iterator[str]:
        """The names of the outermost columns of a type."""
        schema = self.schema.resolve(schema)
        kind = self.schema.kind(schema)
        if kind in _SIMPLE:
            yield path
        elif kind == "array":
            yield f"{path}[]"
        elif kind == "map":
            yield f"{path}>"
        elif kind == "union":
            for branch in schema:
                if self.schema.kind(branch) != "null":
                    yield f"{path}/{self.schema.full_name(branch)}"
        elif schema["name"] not in seen:
            for field in schema["fields"]:
                yield from self._names(field["type"], f"{path}#{field['name']}", [*seen, schema["name"]])

    def _default(self, schema: Any, value: Any) -> Any:
        """A default, which JSON gives, as a value: bytes are text of code points below 256."""
        schema = self.schema.resolve(schema)
        kind = self.schema.kind(schema)
        if kind == "union":
            return self._default(schema[0], value)
        if kind in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1", "replace")
        elif kind in ("float", "double") and isinstance(value, int | float):
            value = float(value)
        elif kind in ("record", "error"):
            record = dict(value)
            return {
                f["name"]: self._default(f["type"], record[f["name"]] if f["name"] in record else f.get("default"))
                for f in schema["fields"]
            }
        elif kind == "array":
            return [self._default(schema["items"], item) for item in value]
        elif kind == "map":
            return {key: self._default(schema["values"], item) for key, item in value.items()}
        read = _logical_reader(schema)
        return value if read is None else read(value)


# --- values ----------------------------------------------------------------------------------------------------------


def _never(value: Any) -> bool:
    return False


class _Named(Shape):
    """A branch whose values come as records of one field, see ``with_named_branches``."""

    def __init__(self, inner: Shape) -> None:
        self._inner = inner

    def write(self, value: Any) -> None:
        self._inner.write(value["v"])

    def read(self) -> Any:
        return self._inner.read()


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


class _FieldGetter:
    """Takes a field from a dictionary; a field that is not there has its default."""

    def __init__(self, name: str, defaults: Mapping[str, Any]) -> None:
        self._name, self._defaults = name, defaults

    def __call__(self, record: Any, field: str) -> Any:
        if not isinstance(record, Mapping):
            raise SchemaMismatchError(f"a {type(record).__name__} is no record {self._name}")
        if field in record:
            return record[field]
        # As fastavro does it: what has no default is null, which the field's type must allow.
        return self._defaults.get(field)


class _Enum:
    def __init__(self, codes: Mapping[str, int], column: str) -> None:
        self._codes, self._column = codes, column

    def __call__(self, value: Any) -> int:
        if value not in self._codes:
            raise SchemaMismatchError(f"{value!r} is none of {', '.join(self._codes)}", column=self._column)
        return self._codes[value]


class _Symbol:
    def __init__(self, symbols: Sequence[str], column: str, default: str | None) -> None:
        self._symbols, self._column, self._default = symbols, column, default

    def __call__(self, code: int) -> str:
        if 0 <= code < len(self._symbols):
            return self._symbols[code]
        raise CorruptFileError(f"{code} is no symbol of an enum of {len(self._symbols)}", column=self._column)


class _Fixed:
    def __init__(self, schema: Mapping[str, Any], column: str) -> None:
        self._size, self._column = schema["size"], column
        self._prepare = _logical_writer(schema)

    def __call__(self, value: Any) -> bytes:
        if self._prepare is not None:
            value = self._prepare(value)
        if not isinstance(value, bytes | bytearray) or len(value) != self._size:
            raise SchemaMismatchError(f"{value!r} does not have {self._size} bytes", column=self._column)
        return bytes(value)


def _logical_key(schema: Any) -> str | None:
    if isinstance(schema, dict) and "logicalType" in schema and isinstance(schema["type"], str):
        return f"{schema['type']}-{schema['logicalType']}"
    return None


def _logical_writer(schema: Any) -> Any:
    prepare = fastavro.write.LOGICAL_WRITERS.get(_logical_key(schema) or "")
    return None if prepare is None else lambda value: prepare(value, schema)


def _logical_reader(schema: Any, **where: str | None) -> Any:
    read = fastavro.read.LOGICAL_READERS.get(_logical_key(schema) or "")
    if read is None:
        return None

    def typed(value: Any) -> Any:
        try:
            return read(value, schema, schema)
        except (ValueError, OverflowError, TypeError, LookupError, ArithmeticError) as e:
            kind = schema["logicalType"]
            raise CorruptFileError(
                f"a value cannot be read as a {kind}: {value!r:.100} ({e!r})",
                help=f"read it as it is stored, by a schema without the logical type {kind}",
                **where,
            ) from e

    return typed


def _promotion(stored: ValueType, wanted: ValueType) -> Any:
    if wanted in (ValueType.FLOAT, ValueType.DOUBLE) and stored in (ValueType.INT, ValueType.LONG):
        return float
    if stored is ValueType.STRING and wanted is ValueType.BYTES:
        return lambda value: value.encode()
    return (lambda value: value.decode()) if stored is ValueType.BYTES and wanted is ValueType.STRING else None


class _BranchTest:
    """Whether a value is one of a schema, by its Python type and the names of its fields."""

    def __init__(self, schema: AvroSchema, branch: Any) -> None:
        self._schema, self._branch = schema, branch

    def __call__(self, value: Any) -> bool:
        return self._check(self._branch, value, 0)

    def _check(self, schema: Any, value: Any, depth: int) -> bool:
        schema = self._schema.resolve(schema)
        kind = self._schema.kind(schema)
        match kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "union":
                return isinstance(value, tuple) or any(self._check(branch, value, depth) for branch in schema)
            case "array":
                return isinstance(value, list | tuple) and all(self._check(schema["items"], v, depth) for v in value)
            case "map":
                return isinstance(value, Mapping) and all(
                    isinstance(key, str) and self._check(schema["values"], item, depth) for key, item in value.items()
                )
            case "record" | "error":
                return self._check_record(schema, value, depth)
        prepare = _logical_writer(schema)
        if prepare is not None:
            try:
                value = prepare(value)
            except (ValueError, TypeError, AttributeError, ArithmeticError):
                return False
        match kind:
            case "int" | "long":
                low, high = _RANGES[kind]
                return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
            case "float" | "double":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "string":
                return isinstance(value, str)
            case "enum":
                return isinstance(value, str) and value in schema["symbols"]
            case "fixed":
                return isinstance(value, bytes | bytearray) and len(value) == schema["size"]
            case _:
                return isinstance(value, bytes | bytearray)

    def _check_record(self, schema: Any, value: Any, depth: int) -> bool:
        if not isinstance(value, Mapping):
            return False
        if "-type" in value:
            return value["-type"] in (schema["name"], schema["name"].rpartition(".")[2])
        names = {field["name"] for field in schema["fields"]}
        return names.issuperset(value) and all(
            self._check(field["type"], value.get(field["name"], field.get("default")), depth + 1)
            for field in schema["fields"]
        )


# --- files -----------------------------------------------------------------------------------------------------------


def columns(schema: SchemaLike) -> list[ColumnDescriptor]:
    """The columns that records of a schema become.

    >>> [c.name for c in columns({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", "int"]}]})]
    ['u/int']
    """
    return _ShapeBuilder(AvroSchema(schema)).sheet.descriptors()


def write_avro(
    records: Iterable[Any],
    schema: SchemaLike,
    path: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
    *,
    codec: str | None = None,
    checksum: str | None = None,
    metadata: Mapping[str, bytes | str] | None = None,
    block_size: int = BLOCK_SIZE,
    named: bool = False,
) -> int:
    """Write Avro records to a Trevni file and return how many.

    Parameters
    ----------
    records: values of the schema, as fastavro takes them.
    schema: any Avro schema that is not recursive, parsed or as JSON text.
    named: values of unions with several branches are ``(name, {"v": value})`` where the branch is a simple type, with
        the names of :func:`trilake.trevni.mappings.avro_schema.with_named_branches`.

    The other parameters are those of :class:`trilake.trevni.TrevniWriter`.

    Raises ``InvalidArgumentError`` for a schema that cannot be stored and ``SchemaMismatchError`` for records that do
    not have it.

    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> write_avro([["a", "b"], []], {"type": "array", "items": "string"}, file)
    2
    >>> list(read_avro(file.getvalue()))
    [['a', 'b'], []]
    """
    parsed = AvroSchema(schema)
    builder = _ShapeBuilder(parsed, named=named)
    whole = {**(metadata or {}), SCHEMA_KEY: parsed.text()}
    options: dict[str, Any] = {"codec": codec, "checksum": checksum, "metadata": whole, "block_size": block_size}
    return write_file(records, builder.shape, builder.sheet, path, **options)


def read_schema(file: TrevniFile) -> AvroSchema:
    """The schema of a file's records.  Raises ``SchemaMismatchError`` where there is none."""
    if SCHEMA_KEY not in file.metadata:
        raise SchemaMismatchError(
            f"the file has no {SCHEMA_KEY} in its metadata", help="pass the schema of its records", file=file.uri
        )
    try:
        return AvroSchema(file.metadata[SCHEMA_KEY].decode())
    except (UnicodeDecodeError, InvalidArgumentError) as e:
        raise CorruptFileError(f"the Avro schema in the file cannot be read: {e}", file=file.uri) from e


def read_avro(file: TrevniFile | Any, schema: SchemaLike | None = None, *, tagged: bool = False) -> Iterator[Any]:
    """The Avro records of a file, one after another.

    Parameters
    ----------
    file: an open file, or what :class:`trilake.trevni.TrevniFile` opens.
    schema: a projection: only its columns are read, by name; fields that the file does not have take their defaults.
    tagged: read each value of a union as a pair of its branch's name and itself.

    Raises ``SchemaMismatchError`` where file and schema do not fit, and ``CorruptFileError``.

    >>> from io import BytesIO
    >>> fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    >>> file = BytesIO()
    >>> _ = write_avro([{"a": 1, "b": "x"}], {"type": "record", "name": "r", "fields": fields}, file)
    >>> list(read_avro(file.getvalue(), {"type": "record", "name": "r", "fields": fields[:1]}))
    [{'a': 1}]
    """
    opened = file if isinstance(file, TrevniFile) else TrevniFile(file)
    builder = _ShapeBuilder(AvroSchema(schema) if schema is not None else read_schema(opened), opened, tagged=tagged)
    return read_records(opened, builder.shape, builder.bound)
