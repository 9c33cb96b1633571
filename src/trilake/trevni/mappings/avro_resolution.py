"""Reading records of one schema from the columns of another (Avro's specification: "Schema Resolution").

A file's columns are named after the schema that it was written with.  A field asked for is looked up in that schema, by
its name and aliases, and read from the columns that the schema gives it, as what the schema asked for makes of it: a
type may have become wider, a branch of a union or a union around it, an enum may have other symbols, and records
other fields.  Only fields that the schema of the file does not have take their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings.avro_schema import AvroSchema
from trilake.trevni.mappings.avro_values import SIMPLE, Symbols, default_value, logical_reader, promotion
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
)

#: The types that values of a type can be read as, beside itself.
_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
#: The types that values of a type are stored as: Avro does not read them so, and there is nothing to lose.
_STORED = {"enum": "int", "fixed": "bytes"}
_RECORDS = ("record", "error")
_NAMED = (*_RECORDS, "enum", "fixed")


class ResolvedRecords(BoundSheet):
    """The shape of the records of the schema ``wanted``, over the columns of a file that has records of ``stored``.

    With ``tagged`` values of unions come as pairs of their branch's name and themselves.

    Raises ``SchemaMismatchError`` where one cannot be read as the other, or the file does not have the columns of
    ``stored``, and ``InvalidArgumentError`` for recursive schemas.
    """

    def __init__(self, wanted: AvroSchema, stored: AvroSchema, file: TrevniFile, *, tagged: bool) -> None:
        super().__init__(file)
        self._wanted, self._stored, self._tagged, self._uri = wanted, stored, tagged, file.uri
        self._seen: list[str] = []
        self.shape = self._walk(wanted.root, stored.root, None, None)

    def _walk(self, wanted: Any, stored: Any, path: str | None, parent: Stream | None) -> Shape:
        stored = self._stored.resolve(stored)
        kind = self._stored.kind(stored)
        if kind == "union":
            return self._union(wanted, stored, path, parent)
        if kind in SIMPLE:
            name = path if path is not None else self._stored.full_name(stored)
            return self._simple(wanted, stored, self.add(name, SIMPLE[kind], parent))
        wanted, tag = self._same(wanted, stored, path)
        return self._with_tag(self._nested(wanted, stored, path, parent), tag)

    def _nested(self, wanted: Any, stored: Any, path: str | None, parent: Stream | None) -> Shape:
        if self._stored.kind(stored) in _RECORDS:
            return self._record(wanted, stored, path, parent)
        if self._stored.kind(stored) == "array":
            return Repeated(*self._array(f"{path or ''}[]", wanted["items"], stored["items"], parent))
        name = f"{path or ''}>"
        stream = self.add(name, ValueType.NULL, parent, array=True)
        key = Simple(self.add(f"{name}key", ValueType.STRING, stream))
        return Pairs(stream, key, self._walk(wanted["values"], stored["values"], f"{name}value", stream))

    def _array(self, name: str, wanted: Any, stored: Any, parent: Stream | None) -> tuple[Stream, Shape]:
        """An array column, and what its elements are."""
        stored = self._stored.resolve(stored)
        kind = self._stored.kind(stored)
        stream = self.add(name, SIMPLE.get(kind, ValueType.NULL), parent, array=True)
        if kind in SIMPLE:
            return stream, self._simple(wanted, stored, stream)
        return stream, self._walk(wanted, stored, name, stream)

    def _simple(self, wanted: Any, stored: Any, stream: Stream) -> Shape:
        wanted, tag = self._same(wanted, stored, stream.name)
        return self._with_tag(Simple(stream, None, self._decoder(wanted, stored, stream)), tag)

    def _decoder(self, wanted: Any, stored: Any, stream: Stream) -> Any:
        kind = self._wanted.kind(wanted)
        if kind == "enum":
            return Symbols(stored["symbols"], wanted, stream.name)
        if kind == "fixed" and wanted["size"] != stored["size"]:
            raise SchemaMismatchError(
                f"the values have {stored['size']} bytes, the schema asks for {wanted['size']}",
                file=self._uri,
                column=stream.name,
            )
        widen = promotion(stream.type, SIMPLE[kind], stream.name)
        read = logical_reader(wanted, column=stream.name, file=self._uri)
        if widen is None or read is None:
            return widen or read
        return lambda value: read(widen(value))

    def _record(self, wanted: Any, stored: Any, path: str | None, parent: Stream | None) -> Shape:
        name = stored["name"]
        if name in self._seen:
            raise recursive(name)
        self._seen.append(name)
        stored_fields = {field["name"]: field for field in stored["fields"]}
        fields: list[tuple[str, Shape]] = []
        for field in wanted["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            source = next((stored_fields[one] for one in names if one in stored_fields), None)
            if source is not None:
                below = field_path(path, source["name"])
                fields.append((field["name"], self._walk(field["type"], source["type"], below, parent)))
            elif "default" in field:
                value = default_value(self._wanted, field["type"], field["default"])
                fields.append((field["name"], Default(value)))
            else:
                raise SchemaMismatchError(
                    f"the file has no field {field_path(path, field['name'])!r}, and the schema gives no default "
                    "for it",
                    file=self._uri,
                )
        self._seen.pop()
        return Record(fields, _get_nothing, dict)

    def _union(self, wanted: Any, stored: list[Any], path: str | None, parent: Stream | None) -> Shape:
        branches: list[Branch] = []
        foreign: list[Stream] = []
        nothing = False
        for branch in stored:
            branch = self._stored.resolve(branch)
            kind, tag = self._stored.kind(branch), self._stored.full_name(branch)
            if kind == "null":
                nothing = True
                continue
            name = tag if path is None else f"{path}/{tag}"
            if self._choose(wanted, branch, by_name=True) is None:
                foreign.append(self.add(name, SIMPLE.get(kind, ValueType.NULL), parent, array=True))
                continue
            stream, inner = self._array(name, wanted, branch, parent)
            branches.append(Branch(stream, inner, tag, _never))
        where = path or "union"
        choice = Choice(branches, where, nothing=nothing, foreign=foreign)
        if nothing and self._choose(wanted, "null", by_name=True) is None:
            return _NotNull(choice, where)
        return choice

    def _same(self, wanted: Any, stored: Any, path: str | None) -> tuple[Any, str | None]:
        """What values of a type that is not a union are read as: a type, and its name where it is a union's branch.

        Raises ``SchemaMismatchError`` where there is no such type.
        """
        union = self._wanted.kind(wanted) == "union"
        chosen = self._choose(wanted, stored, by_name=union)
        if chosen is None:
            asked = self._wanted.resolve(wanted)
            names = [self._wanted.full_name(one) for one in (asked if union else [asked])]
            raise SchemaMismatchError(
                f"the file has values of type {self._stored.full_name(stored)}, the schema asks for "
                + (" or ".join(names) or "none"),
                file=self._uri,
                column=path,
            )
        return chosen, self._wanted.full_name(chosen) if union else None

    def _choose(self, wanted: Any, stored: Any, *, by_name: bool) -> Any:
        """The type, or branch of a union, that values of a type that is not a union are read as; ``None`` without one.

        ``by_name``: named types must have one name, or that of an alias.
        """
        stored = self._stored.resolve(stored)
        kind = self._stored.kind(stored)
        wanted = self._wanted.resolve(wanted)
        branches = [self._wanted.resolve(one) for one in (wanted if isinstance(wanted, list) else [wanted])]
        alike = [one for one in branches if _alike(self._wanted.kind(one), kind)]
        if alike and by_name and kind in _NAMED:
            alike = _of_name(alike, stored["name"])
        if alike:
            return alike[0]
        wider = _WIDER.get(kind, ()) if by_name else (*_WIDER.get(kind, ()), _STORED.get(kind))
        return next((one for one in branches if self._wanted.kind(one) in wider), None)

    def _with_tag(self, shape: Shape, tag: str | None) -> Shape:
        return shape if tag is None or not self._tagged or tag == "null" else _Tagged(shape, tag)


def recursive(name: str) -> InvalidArgumentError:
    """The error for a record that contains itself."""
    return InvalidArgumentError(f"the schema is recursive: {name} contains itself; it cannot become columns")


def field_path(path: str | None, name: str) -> str:
    """The path of a field below that of its record."""
    return name if path is None else f"{path}#{name}"


def _alike(one: str, other: str) -> bool:
    return one == other or (one in _RECORDS and other in _RECORDS)


def _of_name(types: list[Any], name: str) -> list[Any]:
    """Those of the types that have a name, those with its namespace first, or have it as an alias."""
    short = name.rpartition(".")[2]
    full = [one for one in types if one["name"] == name]
    same = [one for one in types if one["name"].rpartition(".")[2] == short]
    aliases = [one for one in types if {name, short} & set(one.get("aliases", ()))]
    return full or same or aliases


def _never(value: Any) -> bool:
    return False


def _get_nothing(record: Any, field: str) -> Any:
    raise InvalidArgumentError("a reader with another schema cannot be used for writing")


class _Tagged(Shape):
    """A union's branch, read as a pair of its name and the value."""

    def __init__(self, inner: Shape, tag: str) -> None:
        self._inner, self._tag = inner, tag

    def write(self, value: Any) -> None:
        self._inner.write(value[1])

    def read(self) -> Any:
        return self._tag, self._inner.read()


class _NotNull(Shape):
    """A union with null, read as something that must be there."""

    def __init__(self, inner: Shape, where: str) -> None:
        self._inner, self._where = inner, where

    def write(self, value: Any) -> None:
        self._inner.write(value)

    def read(self) -> Any:
        value = self._inner.read()
        if value is None:
            raise SchemaMismatchError(
                "a value is null, which the requested schema does not allow",
                help="ask for a union with null",
                column=self._where,
            )
        return value


# --- files that do not say their schema ------------------------------------------------------------------------------


def schema_of_columns(wanted: AvroSchema, file: TrevniFile) -> AvroSchema:
    """The part of a schema that a file has the columns of, for files that do not state the schema of their records.

    Raises ``SchemaMismatchError`` where a field is there and of another type.
    """
    return wanted.with_root(_Present(wanted, file).part(wanted.root, None, ()))


class _Present:
    def __init__(self, schema: AvroSchema, file: TrevniFile) -> None:
        self._schema, self._file = schema, file
        self._columns = [column.name for column in file.header.columns if column.name is not None]
        self._by_name = set(self._columns)

    def part(self, schema: Any, path: str | None, seen: tuple[str, ...]) -> Any:
        schema = self._schema.resolve(schema)
        kind = self._schema.kind(schema)
        if kind in _RECORDS:
            if schema["name"] in seen:
                raise recursive(schema["name"])
            within = (*seen, schema["name"])
            fields = [
                {**field, "type": self.part(field["type"], field_path(path, field["name"]), within)}
                for field in schema["fields"]
                if not self._is_missing(field["type"], field_path(path, field["name"]))
            ]
            return {**schema, "fields": fields}
        if kind == "array":
            return {**schema, "items": self.part(schema["items"], f"{path or ''}[]", seen)}
        if kind == "map":
            return {**schema, "values": self.part(schema["values"], f"{path or ''}>value", seen)}
        if kind == "union":
            names = [self._branch(branch, path) for branch in schema]
            return [
                branch if name is None else self.part(branch, name, seen)
                for branch, name in zip(schema, names, strict=True)
                if name is None or name in self._by_name
            ]
        return schema

    def _branch(self, branch: Any, path: str | None) -> str | None:
        """The name of a branch's column; null has none."""
        if self._schema.kind(branch) == "null":
            return None
        name = self._schema.full_name(branch)
        return name if path is None else f"{path}/{name}"

    def _is_missing(self, schema: Any, path: str) -> bool:
        """Whether the file has nothing of a field."""
        names = list(self._names(schema, path, ()))
        if not names or any(name in self._by_name for name in names):
            return False
        marks = tuple(f"{path}{mark}" for mark in "#[>/")
        other = next((column for column in self._columns if column == path or column.startswith(marks)), None)
        if other is not None:
            raise SchemaMismatchError(
                f"the file has {other!r} where the schema asks for {names[0]!r}", file=self._file.uri, column=other
            )
        return True

    def _names(self, schema: Any, path: str, seen: tuple[str, ...]) -> Iterator[str]:
        """The names of the outermost columns of a type."""
        schema = self._schema.resolve(schema)
        kind = self._schema.kind(schema)
        if kind in SIMPLE:
            yield path
        elif kind == "array":
            yield f"{path}[]"
        elif kind == "map":
            yield f"{path}>"
        elif kind == "union":
            yield from (name for name in (self._branch(branch, path) for branch in schema) if name is not None)
        elif schema["name"] not in seen:
            for field in schema["fields"]:
                yield from self._names(field["type"], field_path(path, field["name"]), (*seen, schema["name"]))
