"""Avro records in Trevni files, in the layout of the reference (spec: "Type Mappings", "Avro").

Columns follow from a depth-first walk of the schema.  Their names are paths: ``#`` before a field of a record, ``[]``
after an array, ``>`` after a map with its children ``key`` and ``value``, ``/`` before a branch of a union.  An array
of a simple type is one array column; other arrays are null array columns with children.  Each branch of a union except
null is an array column with lengths 0 and 1.  Enums are ints, fixed values are bytes.  Recursive schemas raise
``InvalidArgumentError``.  The file metadata has the schema under :data:`SCHEMA_KEY`.

Records have the form of fastavro: dictionaries, with ``(branch name, value)`` for an ambiguous value of a union, and
Python classes for logical types.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import IO, Any

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.blocks.layout import ColumnDescriptor, ValueType
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings import avro_schema as a
from trilake.trevni.mappings import shapes
from trilake.trevni.mappings.avro_schema import SIMPLE, AvroSchema, SchemaLike
from trilake.trevni.mappings.shapes import Shape, Sheet, Stream

#: Key of file metadata: the schema of the records as JSON.
SCHEMA_KEY = "avro.schema"


def columns(schema: SchemaLike) -> list[ColumnDescriptor]:
    """Return the columns of records with a schema.

    >>> [c.name for c in columns({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", "int"]}]})]
    ['u/int']
    """
    return AvroRecords(AvroSchema(schema)).descriptors()


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
    """Write Avro records to a Trevni file, and return their number.

    Parameters
    ----------
    records: values of the schema, in the form of fastavro.
    schema: a non-recursive Avro schema, parsed or as JSON.
    named: whether values of simple branches are ``(name, {"v": value})`` if a union has several branches; the names are
        those of :func:`trilake.trevni.mappings.avro_schema.with_named_branches`.

    The other parameters are those of :class:`trilake.trevni.TrevniWriter`.

    Raises ``InvalidArgumentError`` for a schema that cannot be stored, and ``SchemaMismatchError`` for records that do
    not match the schema.

    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> write_avro([["a", "b"], []], {"type": "array", "items": "string"}, file)
    2
    >>> list(read_avro(file.getvalue()))
    [['a', 'b'], []]
    """
    parsed = AvroSchema(schema)
    return AvroRecords(parsed, named=named).write(
        records,
        path,
        codec=codec,
        checksum=checksum,
        metadata={**(metadata or {}), SCHEMA_KEY: parsed.as_json()},
        block_size=block_size,
    )


def read_schema(file: TrevniFile) -> AvroSchema:
    """Return the schema of the records in a file.  Raises ``SchemaMismatchError`` for a file without one."""
    if SCHEMA_KEY not in file.metadata:
        message = f"the file has no {SCHEMA_KEY} in its metadata"
        raise SchemaMismatchError(message, help="pass the schema of its records", file=file.uri)
    try:
        return AvroSchema(file.metadata[SCHEMA_KEY].decode())
    except (UnicodeDecodeError, InvalidArgumentError) as e:
        raise CorruptFileError(f"the Avro schema in the file cannot be read: {e}", file=file.uri) from e


def read_avro(file: TrevniFile | Any, schema: SchemaLike | None = None, *, tagged: bool = False) -> Iterator[Any]:
    """Iterate over the Avro records of a file.

    Parameters
    ----------
    file: an open file, or anything that :class:`trilake.trevni.TrevniFile` opens.
    schema: the reader's schema, by default that of the file.  Avro's schema resolution applies: only the columns of its
        fields are read, missing fields get their defaults, types may be wider or in a union, enums may have other
        symbols, and fields may be renamed by aliases.
    tagged: whether to read values of unions as pairs of branch name and value.

    Raises ``SchemaMismatchError`` if the file or a value does not match the schema, and ``CorruptFileError``.

    >>> from io import BytesIO
    >>> fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    >>> file = BytesIO()
    >>> _ = write_avro([{"a": 1, "b": "x"}], {"type": "record", "name": "r", "fields": fields}, file)
    >>> list(read_avro(file.getvalue(), {"type": "record", "name": "r", "fields": fields[:1]}))
    [{'a': 1}]
    """
    opened = file if isinstance(file, TrevniFile) else TrevniFile(file)
    requested = read_schema(opened) if schema is None else AvroSchema(schema)
    stored = read_schema(opened) if SCHEMA_KEY in opened.metadata else None
    return AvroRecords(requested, stored, opened, tagged=tagged).read()


# --- columns of records, and schema resolution (Avro: "Schema Resolution") --------------------------------------------
# The column names of a file follow from the writer's schema.  To read with another schema, look up each of its fields
# in the writer's schema by name and aliases.  Types may be wider, a branch of a union or a union with the stored type,
# enums may have other symbols, and records other fields.  A field gets its default only if the writer's schema lacks
# it.

#: Other types that values of a type can be read as.
_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
#: Enums and fixed types can also be read as the types of their columns: Avro does not allow it, but it is lossless.
_STORED = {"enum": "int", "fixed": "bytes"}
_RECORDS = ("record", "error")
_NAMED = (*_RECORDS, "enum", "fixed")


class AvroRecords(Sheet):
    """The columns of Avro records, and the shape that writes and reads them.

    ``stored`` is the schema of the columns, by default that of the records; then fields and branches without columns in
    ``file`` are missing.  With ``tagged``, values of unions are read as pairs of branch name and value; with ``named``,
    values of simple branches to write are records, see :func:`~.avro_schema.with_named_branches`.

    Raises ``SchemaMismatchError`` if ``stored`` cannot be read as ``schema``, or ``file`` lacks columns, and
    ``InvalidArgumentError`` for recursive schemas.
    """

    def __init__(
        self,
        schema: AvroSchema,
        stored: AvroSchema | None = None,
        file: TrevniFile | None = None,
        *,
        tagged: bool = False,
        named: bool = False,
    ) -> None:
        super().__init__(file)
        self._schema, self._stored = schema, schema if stored is None else stored
        self._partial = stored is None and file is not None
        self._tagged, self._named = tagged, named
        self._uri = None if file is None else file.uri
        self._seen: list[str] = []
        self.shape = self._walk(schema.root, self._stored.root, None, None)

    def _walk(self, schema: Any, stored: Any, path: str | None, parent: Stream | None) -> Shape:
        stored = self._stored.resolve(stored)
        kind = self._stored.kind(stored)
        if kind == "union":
            return self._union(schema, stored, path, parent)
        if kind in SIMPLE:
            name = path if path is not None else self._stored.full_name(stored)
            return self._simple(schema, stored, self.add(name, SIMPLE[kind], parent))
        target, tag = self._target(schema, stored, path)
        return self._with_tag(self._nested(target, stored, path, parent), tag)

    def _nested(self, target: Any, stored: Any, path: str | None, parent: Stream | None) -> Shape:
        if self._stored.kind(stored) in _RECORDS:
            return self._record(target, stored, path, parent)
        if self._stored.kind(stored) == "array":
            return shapes.Repeated(*self._array(f"{path or ''}[]", target["items"], stored["items"], parent))
        name = f"{path or ''}>"
        stream = self.add(name, ValueType.NULL, parent, array=True)
        key = shapes.Simple(self.add(f"{name}key", ValueType.STRING, stream), a.as_string)
        return shapes.Pairs(stream, key, self._walk(target["values"], stored["values"], f"{name}value", stream))

    def _array(self, name: str, schema: Any, stored: Any, parent: Stream | None) -> tuple[Stream, Shape]:
        """Add an array column, and return it with the shape of its elements."""
        stored = self._stored.resolve(stored)
        kind = self._stored.kind(stored)
        stream = self.add(name, SIMPLE.get(kind, ValueType.NULL), parent, array=True)
        if kind in SIMPLE:
            return stream, self._simple(schema, stored, stream)
        return stream, self._walk(schema, stored, name, stream)

    def _simple(self, schema: Any, stored: Any, stream: Stream) -> Shape:
        target, tag = self._target(schema, stored, stream.name)
        encode = a.encoder(stored, self._stored.kind(stored), stream.name)
        return self._with_tag(shapes.Simple(stream, encode, self._decoder(target, stored, stream)), tag)

    def _decoder(self, target: Any, stored: Any, stream: Stream) -> Any:
        kind = self._schema.kind(target)
        if kind == "enum":
            return a.symbol_reader(stored["symbols"], target, stream.name)
        if kind == "fixed" and target["size"] != stored["size"]:
            message = f"the values have {stored['size']} bytes, but the schema expects {target['size']}"
            raise SchemaMismatchError(message, file=self._uri, column=stream.name)
        widen = a.promotion(stream.type, SIMPLE[kind], stream.name)
        read = a.logical_reader(target, column=stream.name, file=self._uri)
        if widen is None or read is None:
            return widen or read
        return lambda value: read(widen(value))

    def _record(self, target: Any, stored: Any, path: str | None, parent: Stream | None) -> Shape:
        name = stored["name"]
        if name in self._seen:
            message = f"recursive schemas cannot be stored as columns: {name} contains itself"
            raise InvalidArgumentError(message)
        self._seen.append(name)
        stored_fields = {
            field["name"]: field
            for field in stored["fields"]
            if not self._partial or self._has_columns(field["type"], _field_path(path, field["name"]))
        }
        fields: list[tuple[str, Shape]] = []
        defaults: dict[str, Any] = {}
        for field in target["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            source = next((stored_fields[one] for one in names if one in stored_fields), None)
            if "default" in field and (source is None or self.file is None):
                defaults[field["name"]] = a.default_value(self._schema, field["type"], field["default"])
            if source is not None:
                below = _field_path(path, source["name"])
                fields.append((field["name"], self._walk(field["type"], source["type"], below, parent)))
            elif "default" in field:
                fields.append((field["name"], shapes.Default(defaults[field["name"]])))
            else:
                message = f"the file has no field {_field_path(path, field['name'])!r}"
                raise SchemaMismatchError(f"{message}, and the schema has no default for it", file=self._uri)
        self._seen.pop()
        return shapes.Record(fields, a.field_getter(name, defaults), dict)

    def _union(self, schema: Any, stored: list[Any], path: str | None, parent: Stream | None) -> Shape:
        branches: list[shapes.Branch] = []
        foreign: list[Stream] = []
        nothing = False
        for branch in stored:
            branch = self._stored.resolve(branch)
            kind, tag = self._stored.kind(branch), self._stored.full_name(branch)
            if kind == "null":
                nothing = True
                continue
            name = _branch_path(path, tag)
            if self._partial and name not in self._by_name:
                continue
            if self._match(schema, branch, by_name=True) is None:
                foreign.append(self.add(name, SIMPLE.get(kind, ValueType.NULL), parent, array=True))
                continue
            stream, inner = self._array(name, schema, branch, parent)
            # A Python float is a double, so a union with both types stores it as a double.
            double = kind == "float" and any(self._stored.kind(other) == "double" for other in stored)
            matches = _never if double else a.BranchTest(self._stored, branch)
            if self._named and a.is_named_branch(self._stored, stored, branch):
                inner, tag, matches = shapes.Mapped(inner, itemgetter("v")), a.branch_name(branch), _never
            branches.append(shapes.Branch(stream, inner, tag, matches))
        where = path or "union"
        choice = shapes.Choice(branches, where, nothing=nothing, foreign=foreign)
        if not nothing or self._match(schema, "null", by_name=True) is not None:
            return choice

        def present(value: Any) -> Any:
            if value is None:
                raise SchemaMismatchError(
                    "a value is null, but the requested schema does not allow null",
                    help="read the column with a union that includes null",
                    column=where,
                )
            return value

        return shapes.Mapped(choice, decode=present)

    def _has_columns(self, stored: Any, path: str) -> bool:
        """Whether the file has columns of a type.  Raises ``SchemaMismatchError`` if they are of another type."""
        names = list(self._names(stored, path, ()))
        if not names or any(name in self._by_name for name in names):
            return True
        marks = tuple(f"{path}{mark}" for mark in "#[>/")
        other = next((column for column in self._by_name if column == path or column.startswith(marks)), None)
        if other is not None:
            message = f"the file has {other!r} where the schema has {names[0]!r}"
            raise SchemaMismatchError(message, file=self._uri, column=other)
        return False

    def _names(self, stored: Any, path: str, seen: tuple[str, ...]) -> Iterator[str]:
        """Yield the names of the outermost columns of a type."""
        stored = self._stored.resolve(stored)
        kind = self._stored.kind(stored)
        if kind in SIMPLE:
            yield path
        elif kind == "array":
            yield f"{path}[]"
        elif kind == "map":
            yield f"{path}>"
        elif kind == "union":
            yield from (_branch_path(path, self._stored.full_name(b)) for b in stored if self._stored.kind(b) != "null")
        elif stored["name"] not in seen:
            for field in stored["fields"]:
                yield from self._names(field["type"], _field_path(path, field["name"]), (*seen, stored["name"]))

    def _target(self, schema: Any, stored: Any, path: str | None) -> tuple[Any, str | None]:
        """Return the type that a stored type is read as, and its name in a union.  Raises ``SchemaMismatchError``."""
        union = self._schema.kind(schema) == "union"
        target = self._match(schema, stored, by_name=union)
        if target is None:
            requested = self._schema.resolve(schema)
            names = [self._schema.full_name(one) for one in (requested if union else [requested])]
            message = f"the file has values of type {self._stored.full_name(stored)}, but the schema expects "
            raise SchemaMismatchError(message + (" or ".join(names) or "none"), file=self._uri, column=path)
        return target, self._schema.full_name(target) if union else None

    def _match(self, schema: Any, stored: Any, *, by_name: bool) -> Any:
        """Return the type or branch that a stored type is read as, or ``None``; ``by_name`` compares names too."""
        stored = self._stored.resolve(stored)
        kind = self._stored.kind(stored)
        schema = self._schema.resolve(schema)
        branches = [self._schema.resolve(one) for one in (schema if isinstance(schema, list) else [schema])]
        same = _RECORDS if kind in _RECORDS else (kind,)
        alike = [one for one in branches if self._schema.kind(one) in same]
        if alike and by_name and kind in _NAMED:
            alike = _of_name(alike, stored["name"])
        if alike:
            return alike[0]
        wider = _WIDER.get(kind, ()) if by_name else (*_WIDER.get(kind, ()), _STORED.get(kind))
        return next((one for one in branches if self._schema.kind(one) in wider), None)

    def _with_tag(self, shape: Shape, tag: str | None) -> Shape:
        """Read a value of a union as a pair of the branch's name and the value, if requested."""
        if tag is None or not self._tagged or tag == "null":
            return shape
        return shapes.Mapped(shape, itemgetter(1), lambda value: (tag, value))


def _field_path(path: str | None, name: str) -> str:
    return name if path is None else f"{path}#{name}"


def _branch_path(path: str | None, tag: str) -> str:
    return tag if path is None else f"{path}/{tag}"


def _of_name(types: list[Any], name: str) -> list[Any]:
    """Return the types with this full name; else those with its last part; else those with it as an alias."""
    short = name.rpartition(".")[2]
    full = [one for one in types if one["name"] == name]
    same = [one for one in types if one["name"].rpartition(".")[2] == short]
    aliases = [one for one in types if {name, short} & set(one.get("aliases", ()))]
    return full or same or aliases


def _never(value: Any) -> bool:
    return False
