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
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.blocks.layout import ColumnDescriptor, ValueType
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings.avro_resolution import ResolvedRecords, field_path, recursive, schema_of_columns
from trilake.trevni.mappings.avro_schema import AvroSchema, SchemaLike, branch_name, is_named_branch
from trilake.trevni.mappings.avro_values import SIMPLE, Codes, Fixed, default_value, logical_writer, text
from trilake.trevni.mappings.shapes import (
    Branch,
    Choice,
    Pairs,
    Record,
    Repeated,
    Shape,
    Sheet,
    Simple,
    Stream,
    read_records,
    write_file,
)

#: File metadata: the schema of the records, as JSON.
SCHEMA_KEY = "avro.schema"

_RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}


# --- the walk --------------------------------------------------------------------------------------------------------


class _ShapeBuilder(Sheet):
    """Builds the shape that writes records of a schema."""

    def __init__(self, schema: AvroSchema, *, named: bool = False) -> None:
        super().__init__()
        self.schema, self._named = schema, named
        self._seen: list[str] = []
        self.shape = self._walk(schema.root, None, None)

    def _walk(self, schema: Any, path: str | None, parent: Stream | None) -> Shape:
        schema = self.schema.resolve(schema)
        kind = self.schema.kind(schema)
        if kind in SIMPLE:
            name = path if path is not None else self.schema.full_name(schema)
            return self._simple(schema, kind, self.add(name, SIMPLE[kind], parent))
        if kind in ("record", "error"):
            return self._record(schema, path, parent)
        if kind == "array":
            name = f"{path or ''}[]"
            stream, inner = self._array(name, schema["items"], parent)
            return Repeated(stream, inner)
        if kind == "map":
            name = f"{path or ''}>"
            stream = self.add(name, ValueType.NULL, parent, array=True)
            key = Simple(self.add(f"{name}key", ValueType.STRING, stream), text)
            return Pairs(stream, key, self._walk(schema["values"], f"{name}value", stream))
        if kind == "union":
            return self._union(schema, path, parent)
        raise InvalidArgumentError(f"the Avro type {kind!r} is not known")

    def _array(self, name: str, element: Any, parent: Stream | None) -> tuple[Stream, Shape]:
        element = self.schema.resolve(element)
        kind = self.schema.kind(element)
        if kind in SIMPLE:
            stream = self.add(name, SIMPLE[kind], parent, array=True)
            return stream, self._simple(element, kind, stream)
        stream = self.add(name, ValueType.NULL, parent, array=True)
        return stream, self._walk(element, name, stream)

    def _simple(self, schema: Any, kind: str, stream: Stream) -> Simple:
        if kind == "enum":
            return Simple(stream, Codes(schema["symbols"], stream.name))
        if kind == "fixed":
            return Simple(stream, Fixed(schema, stream.name))
        return Simple(stream, logical_writer(schema) or (text if kind == "string" else None))

    def _record(self, schema: Any, path: str | None, parent: Stream | None) -> Shape:
        name = schema["name"]
        if name in self._seen:
            raise recursive(name)
        self._seen.append(name)
        fields: list[tuple[str, Shape]] = []
        defaults: dict[str, Any] = {}
        for field in schema["fields"]:
            if "default" in field:
                defaults[field["name"]] = default_value(self.schema, field["type"], field["default"])
            fields.append((field["name"], self._walk(field["type"], field_path(path, field["name"]), parent)))
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
            stream, inner = self._array(name, branch, parent)
            if self._named and is_named_branch(self.schema, schema, branch):
                branches.append(Branch(stream, _Named(inner), branch_name(branch), _never))
                continue
            accepts = _BranchTest(self.schema, branch)
            # A Python float is a double; only what can be nothing else becomes a float.
            last = kind == "float" and any(self.schema.kind(other) == "double" for other in schema)
            branches.append(Branch(stream, inner, tag, _never if last else accepts))
        return Choice(branches, path or "union", nothing=nothing)


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


class _FieldGetter:
    """Takes a field from a dictionary; a field that is not there has its default."""

    def __init__(self, name: str, defaults: Mapping[str, Any]) -> None:
        self._name, self._defaults = name, defaults

    def __call__(self, record: Any, field: str) -> Any:
        if not isinstance(record, Mapping):
            raise SchemaMismatchError(f"a {type(record).__name__} is not a record {self._name}")
        if field in record:
            return record[field]
        # As fastavro does it: what has no default is null, which the field's type must allow.
        return self._defaults.get(field)


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
        prepare = logical_writer(schema)
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
    return _ShapeBuilder(AvroSchema(schema)).descriptors()


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
    return write_file(records, builder.shape, builder, path, **options)


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
    schema: another schema than that of the file, to which the records are resolved as Avro specifies: only the columns
        of its fields are read, fields that the file does not have take their defaults, types may be wider or in a
        union, enums may have other symbols, and fields other names by their aliases.
    tagged: read each value of a union as a pair of its branch's name and itself.

    Raises ``SchemaMismatchError`` where file and schema do not fit, or a value is none of the schema, and
    ``CorruptFileError``.

    >>> from io import BytesIO
    >>> fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    >>> file = BytesIO()
    >>> _ = write_avro([{"a": 1, "b": "x"}], {"type": "record", "name": "r", "fields": fields}, file)
    >>> list(read_avro(file.getvalue(), {"type": "record", "name": "r", "fields": fields[:1]}))
    [{'a': 1}]
    """
    opened = file if isinstance(file, TrevniFile) else TrevniFile(file)
    if schema is None:
        stored = wanted = read_schema(opened)
    else:
        wanted = AvroSchema(schema)
        stored = read_schema(opened) if SCHEMA_KEY in opened.metadata else schema_of_columns(wanted, opened)
    records = ResolvedRecords(wanted, stored, opened, tagged=tagged)
    return read_records(opened, records.shape, records.bound)
