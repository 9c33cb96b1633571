"""Columns by path, and single steps on a schema: add, drop, rename, move, replace.  All functions are pure.

A path is a string such as ``a.b``, with backticks around names that contain dots, or a sequence of names.  ``element``
leads into an array, ``key`` and ``value`` into a map.  Names match ignoring case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from trilake.common.text import columns_help, quote_name
from trilake.delta.protocol.arrow_types import arrow_notes
from trilake.delta.protocol.property_values import column_list
from trilake.delta.protocol.schema import (
    COLUMN_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    arrow_field,
    arrow_list,
    arrow_map,
    contains_type,
    fields_in,
    marked,
    parts,
    with_parts,
)
from trilake.errors import InvalidArgumentError, SchemaMismatchError

Path = tuple[str, ...]
PathLike = str | Sequence[str]

_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_PLAIN = re.compile(r"[A-Za-z_]\w*")


def parse_path(path: PathLike) -> Path:
    """Parse a path.  Raises ``InvalidArgumentError`` for an invalid string.

    >>> parse_path("a.`b.c`.element"), parse_path(["x.y"])
    (('a', 'b.c', 'element'), ('x.y',))
    """
    if not isinstance(path, str):
        value: object = path
        names: tuple[object, ...] = tuple(value) if isinstance(value, Iterable) else ()
        parts = tuple(p for p in names if isinstance(p, str) and p)
        if parts and len(parts) == len(names):
            return parts
        raise InvalidArgumentError(f"{path!r} is not a column path")
    out, at = [], 0
    while True:
        m = _PART.match(path, at)
        if m is None:
            raise InvalidArgumentError(
                f"{path!r} is not a column path",
                help="separate names by dots, and quote names that contain dots with backticks",
            )
        out.append(m[1].replace("``", "`") if m[1] is not None else m[2].strip())
        at = m.end()
        if at == len(path):
            return tuple(out)
        if path[at] != ".":
            raise InvalidArgumentError(f"{path!r} is not a column path: a dot is missing at character {at}")
        at += 1


def split_names(names: str) -> list[Path]:
    """Parse a list of column names, each as a path; backticks protect dots and commas, two of them stand for one.

    >>> split_names("a, b.c, `x,y`.z"), split_names("`a``b`")
    ([('a',), ('b', 'c'), ('x,y', 'z')], [('a`b',)])
    """
    paths = map(_PART.findall, column_list(names))
    return [tuple(quoted.replace("``", "`") or plain.strip() for quoted, plain in path) for path in paths if path]


def without_alias(path: Path, alias: str | None, *schemas: StructType) -> Path:
    """The path of a column of ``schemas``, the table's first, without the table's alias.

    A qualified column takes precedence over a field of a column that has the alias's name.

    >>> from trilake.delta.protocol.schema import PrimitiveType as P
    >>> inner = StructType((StructField("v", P("long")), StructField("w", P("long"))))
    >>> table = StructType((StructField("t", inner), StructField("v", P("long"))))
    >>> [without_alias(parse_path(p), "t", table) for p in ("t.v", "t.t.v", "t.w", "v")]
    [('v',), ('t', 'v'), ('t', 'w'), ('v',)]
    """
    if alias is None or len(path) < 2 or path[0].lower() != alias.lower():
        return path
    is_column = any(s.find(path[1]) is not None for s in schemas)
    return path[1:] if is_column or schemas[0].find(path[0]) is None else path


def with_alias(path: Path, alias: str | None) -> Path:
    """The inverse of :func:`without_alias`; changes only paths that start with the alias's name."""
    return path if alias is None or path[0].lower() != alias.lower() else (alias, *path)


def format_path(path: Path) -> str:
    """A path as one string, with backticks if needed.

    >>> format_path(("a", "b c"))
    'a.`b c`'
    """
    return ".".join(p if _PLAIN.fullmatch(p) else quote_name(p) for p in path)


@dataclass(frozen=True)
class Position:
    """The position of a column among its siblings: ``after`` one of them, or first."""

    after: str | None = None

    def __str__(self) -> str:
        return "FIRST" if self.after is None else f"AFTER {format_path((self.after,))}"


FIRST = Position()


def _nothing_there(schema_path: Sequence[str], name: str, t: DataType) -> SchemaMismatchError:
    whole = format_path((*schema_path, name))
    if isinstance(t, StructType):
        hint = columns_help(name, t.names)
        if schema_path:
            hint = f"the columns in {format_path(tuple(schema_path))} are {', '.join(t.names)}"
    elif inside := parts(t):
        names = " or ".join(name for name, _ in inside)
        hint = f"{format_path(tuple(schema_path))} is of type {t}: continue the path with {names}"
    else:
        hint = f"{format_path(tuple(schema_path))} is of type {t}, which has no fields"
    return SchemaMismatchError(f"the table has no column {whole}", help=hint, column=whole, condition="FIELD_NOT_FOUND")


def spelled(schema: StructType, path: PathLike) -> Path:
    """A path in the schema's spelling.  Raises ``SchemaMismatchError``, which lists the existing columns."""
    out: list[str] = []
    t: DataType = schema
    for name in parse_path(path):
        if isinstance(t, StructType):
            f = t.find(name)
            if f is None:
                raise _nothing_there(out, name, t)
            out.append(f.name)
            t = f.type
        elif (inner := dict(parts(t)).get(name.lower())) is not None:
            out.append(name.lower())
            t = inner
        else:
            raise _nothing_there(out, name, t)
    return tuple(out)


def type_at(schema: StructType, path: PathLike) -> DataType:
    """The type at a path, which may lead to a column, an element, a key or a value.  Raises ``SchemaMismatchError``."""
    t: DataType = schema
    for name in spelled(schema, path):
        t = t.field(name).type if isinstance(t, StructType) else dict(parts(t))[name]
    return t


def field_at(schema: StructType, path: PathLike) -> StructField:
    """The column at a path.  Raises ``SchemaMismatchError``, or ``InvalidArgumentError`` for an element or key."""
    names = spelled(schema, path)
    return _parent(schema, names).field(names[-1])


def _parent(schema: StructType, names: Path) -> StructType:
    parent = type_at(schema, names[:-1]) if len(names) > 1 else schema
    if not isinstance(parent, StructType):
        message = f"{format_path(names)} is a part of {parent}, not a column"
        help = "only columns and fields of structs have names, comments and nullability"
        raise InvalidArgumentError(message, help=help, column=format_path(names))
    return parent


def edit_type(schema: StructType, path: PathLike, change: Callable[[DataType], DataType]) -> StructType:
    """The schema with the type at a path changed.  Raises ``SchemaMismatchError``."""
    edited = _edit(schema, spelled(schema, path) if path else (), change)
    assert isinstance(edited, StructType)
    return edited


def _edit(t: DataType, path: Path, change: Callable[[DataType], DataType]) -> DataType:
    if not path:
        return change(t)
    return with_parts(t, [_edit(inner, path[1:], change) if name == path[0] else inner for name, inner in parts(t)])


def _edit_siblings(
    schema: StructType, parent: Path, change: Callable[[list[StructField]], Sequence[StructField]]
) -> StructType:
    """The schema with the fields of one struct changed; the empty path is the table itself."""

    def on_struct(t: DataType) -> DataType:
        if not isinstance(t, StructType):
            raise InvalidArgumentError(
                f"{format_path(parent)} is of type {t}, which has no fields",
                help=f"continue the path with {' or '.join(n for n, _ in inside)}" if (inside := parts(t)) else None,
                column=format_path(parent),
                condition="INVALID_FIELD_NAME",
            )
        return StructType(tuple(change(list(t.fields))))

    return edit_type(schema, parent, on_struct)


def _insert(fields: list[StructField], field: StructField, position: Position | None, parent: Path) -> None:
    if position is None:
        fields.append(field)
    elif position.after is None:
        fields.insert(0, field)
    else:
        other = StructType(tuple(fields)).find(position.after)
        if other is None:
            raise SchemaMismatchError(
                f"the table has no column {format_path((*parent, position.after))}, after which to place the column",
                help=columns_help(position.after, [f.name for f in fields]),
                column=position.after,
                condition="FIELD_NOT_FOUND",
            )
        fields.insert(fields.index(other) + 1, field)


def add_field(schema: StructType, parent: Path, field: StructField, position: Position | None = None) -> StructType:
    """The schema with a column more in the struct at ``parent``.  Raises ``InvalidArgumentError`` for a taken name."""
    parent = spelled(schema, parent) if parent else ()

    def add(fields: list[StructField]) -> list[StructField]:
        _check_free(fields, field.name, parent)
        _insert(fields, field, position, parent)
        return fields

    return _edit_siblings(schema, parent, add)


def _check_free(fields: Sequence[StructField], name: str, parent: Path) -> None:
    other = StructType(tuple(fields)).find(name)
    if other is not None:
        raise name_taken((*parent, other.name))


def name_taken(path: Path) -> InvalidArgumentError:
    """The error for a new name that another column has."""
    there = format_path(path)
    message = f"column {there} already exists"
    help = "choose another name: column names are case-insensitive"
    return InvalidArgumentError(message, help=help, column=there, condition="FIELD_ALREADY_EXISTS")


def drop_field(schema: StructType, path: PathLike) -> StructType:
    """The schema without a column.  Raises ``InvalidArgumentError`` if the struct would become empty."""
    names = spelled(schema, path)
    _parent(schema, names)

    def drop(fields: list[StructField]) -> list[StructField]:
        remaining = [f for f in fields if f.name != names[-1]]
        if not remaining:
            raise InvalidArgumentError(
                f"{format_path(names)} cannot be dropped: it is the only column of the table or struct",
                help="add another column first",
                column=format_path(names),
                condition="DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA",
            )
        return remaining

    return _edit_siblings(schema, names[:-1], drop)


def replace_field(schema: StructType, path: PathLike, change: Callable[[StructField], StructField]) -> StructType:
    """The schema with one column changed.  Raises ``InvalidArgumentError`` if the new name exists."""
    names = spelled(schema, path)
    _parent(schema, names)

    def swap(fields: list[StructField]) -> list[StructField]:
        old = next(f for f in fields if f.name == names[-1])
        new = change(old)
        _check_free([f for f in fields if f is not old], new.name, names[:-1])
        return [new if f is old else f for f in fields]

    return _edit_siblings(schema, names[:-1], swap)


def move_field(schema: StructType, path: PathLike, position: Position) -> StructType:
    """The schema with a column moved among its siblings; moving it after itself changes nothing."""
    names = spelled(schema, path)
    field = field_at(schema, names)

    def move(fields: list[StructField]) -> list[StructField]:
        if position.after is not None and position.after.lower() == field.name.lower():
            return fields
        others = [f for f in fields if f is not field]
        _insert(others, field, position, names[:-1])
        return others

    return _edit_siblings(schema, names[:-1], move)


# --- Every field of a schema ------------------------------------------------------------------------------------------


def nested_fields(t: DataType) -> list[StructField]:
    """Every field in ``t``, at any depth, parents before children."""
    return [f for _, f in fields_in(t)]


def each_field(schema: StructType, change: Callable[[StructField], StructField]) -> StructType:
    """Transform every field: a parent before its children, and these before the parent's next sibling."""

    def inside(t: DataType) -> DataType:
        return each_field(t, change) if isinstance(t, StructType) else with_parts(t, [inside(p) for _, p in parts(t)])

    fields = (change(f) for f in schema.fields)
    return StructType(tuple(replace(f, type=inside(f.type)) for f in fields))


def without_keys(schema: StructType, keys: Collection[str]) -> StructType:
    """The schema without some keys of the metadata of its fields, at any depth."""

    def bare(field: StructField) -> StructField:
        return replace(field, metadata={k: v for k, v in field.metadata.items() if k not in keys})

    return each_field(schema, bare)


def strip(schema: StructType) -> StructType:
    """The schema without ids and physical names."""
    return without_keys(schema, (COLUMN_ID, PHYSICAL_NAME, NESTED_IDS))


def described_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of the rows; fields have their user metadata, and a mark if Arrow lacks the type.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> noted = StructField("a", PrimitiveType("long"), metadata={"comment": "x"})
    >>> described_schema(StructType((noted,))).field("a").metadata
    {b'comment': b'x'}
    """
    return pa.schema([marked(_field(f), f.type) for f in schema.fields])


def _field(f: StructField) -> pa.Field:
    return arrow_field(f.name, arrow_type(f.type, _field), f.nullable, arrow_notes(f.metadata) if f.metadata else None)


def arrow_type(t: DataType, field: Callable[[StructField], pa.Field]) -> pa.DataType:
    """The Arrow type, with the fields of structs converted by ``field``."""
    if isinstance(t, PrimitiveType):  # the usual case in a wide table
        return t.arrow
    if isinstance(t, StructType):
        return pa.struct(list(map(field, t.fields)))
    if isinstance(t, ArrayType):
        return arrow_list(arrow_type(t.element, field), t.contains_null)
    return arrow_map(arrow_type(t.key, field), arrow_type(t.value, field), t.value_contains_null)


# --- The type ``void``: columns without a type yet, which files do not store ------------------------------------------
# If a file lacks a column, its values are null, whatever type the column gets later.


def is_void(type_: DataType) -> bool:
    """Whether a type is ``void`` itself."""
    return isinstance(type_, PrimitiveType) and type_.name == "void"


def has_void(type_: DataType) -> bool:
    """Whether a type contains ``void``."""
    return contains_type(type_, "void")


def stored_type(type_: DataType) -> DataType | None:
    """The type as files store it, without void parts; ``None`` if nothing remains.

    >>> from trilake.delta.protocol.schema import StructField
    >>> fields = StructField("a", PrimitiveType("long")), StructField("v", PrimitiveType("void"))
    >>> str(stored_type(StructType(fields)))
    'struct<a:long>'
    """
    inner_types = [stored_type(inner) for _, inner in parts(type_)]
    storable = [inner for inner in inner_types if inner is not None]
    if isinstance(type_, StructType):
        fields = tuple(f for f, inner in zip(type_.fields, inner_types, strict=True) if inner is not None)
        return with_parts(StructType(fields), storable) if fields or not type_.fields else None
    return None if is_void(type_) or len(storable) < len(inner_types) else with_parts(type_, storable)


def without_voids(schema: StructType) -> StructType:
    """The schema of files: columns and their parts without void."""
    if not any(has_void(f.type) for f in schema.fields):
        return schema
    type_in_files = stored_type(schema)
    return type_in_files if isinstance(type_in_files, StructType) else StructType(())


def check_storable(schema: StructType, before: StructType | None = None) -> None:
    """Raise ``SchemaMismatchError`` for a new column that cannot be stored: an array, map or struct of only void."""
    for f in schema.fields:
        old = None if before is None else before.find(f.name)
        if has_void(f.type) and (old is None or old.type != f.type):
            untyped = _untyped(f.type, f.name)
            if untyped is not None:
                raise no_type(*untyped)


def _untyped(type_: DataType, path: str) -> tuple[str, DataType] | None:
    """Path and type of the first part that can have values that cannot be stored."""
    if not isinstance(type_, PrimitiveType) and stored_type(type_) is None:
        return path, type_
    inside = (_untyped(inner, f"{path}.{name}") for name, inner in parts(type_))
    return next((untyped for untyped in inside if untyped is not None), None)


def no_typed_column(schema: StructType) -> SchemaMismatchError:
    """The error for a schema whose columns are all void."""
    return SchemaMismatchError(
        "all columns of the table would have type void, which files cannot store: "
        + ", ".join(f"{f.name} {f.type}" for f in schema.fields),
        help="cast a column of nulls to another type, such as string, before writing",
        condition="DELTA_EMPTY_DATA",
    )


def no_type(path: str, type_: DataType) -> SchemaMismatchError:
    """The error for values of an array, map or struct of only void."""
    return SchemaMismatchError(
        f"column {path} has type {type_}: its elements have no type and cannot be stored",
        help="cast the column before writing, e.g. CAST(array() AS ARRAY<STRING>), or leave it out",
        column=path,
        condition="DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
    )
