"""The type ``void``, of columns that have no type yet: no file holds any.

A file that lacks a column has nulls there, whatever type the column gets later.
"""

from __future__ import annotations

from dataclasses import replace

from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from trilake.errors import SchemaMismatchError


def is_void(type_: DataType) -> bool:
    """Whether a type is ``void`` itself."""
    return isinstance(type_, PrimitiveType) and type_.name == "void"


def has_void(type_: DataType) -> bool:
    """Whether ``void`` is somewhere in a type.

    >>> has_void(ArrayType(PrimitiveType("void"))), has_void(PrimitiveType("long"))
    (True, False)
    """
    if isinstance(type_, StructType):
        return any(has_void(f.type) for f in type_.fields)
    if isinstance(type_, ArrayType):
        return has_void(type_.element)
    if isinstance(type_, MapType):
        return has_void(type_.key) or has_void(type_.value)
    return type_.name == "void"


def stored_type(type_: DataType) -> DataType | None:
    """The type as files hold it, without the parts that are void; ``None`` where nothing is left of it.

    >>> from trilake.delta.protocol.schema import StructField
    >>> fields = StructField("a", PrimitiveType("long")), StructField("v", PrimitiveType("void"))
    >>> str(stored_type(StructType(fields)))
    'struct<a:long>'
    """
    if isinstance(type_, StructType):
        fields = [(f, stored_type(f.type)) for f in type_.fields]
        left = tuple(f if kind is f.type else replace(f, type=kind) for f, kind in fields if kind is not None)
        return StructType(left) if left or not fields else None
    if isinstance(type_, ArrayType):
        element = stored_type(type_.element)
        return None if element is None else replace(type_, element=element)
    if isinstance(type_, MapType):
        key, value = stored_type(type_.key), stored_type(type_.value)
        return None if key is None or value is None else replace(type_, key=key, value=value)
    return None if is_void(type_) else type_


def without_voids(schema: StructType) -> StructType:
    """The columns that files hold of a table, and of these the parts that have a type."""
    if not any(has_void(f.type) for f in schema.fields):
        return schema
    stored = stored_type(schema)
    return stored if isinstance(stored, StructType) else StructType(())


def check_storable(schema: StructType, before: StructType | None = None) -> None:
    """Raise ``SchemaMismatchError`` for a column whose values could not be stored: an array, map or struct of nothing
    but void.  Columns that the table has ``before`` pass.
    """
    for f in schema.fields:
        old = None if before is None else before.find(f.name)
        if has_void(f.type) and (old is None or old.type != f.type):
            untyped = _untyped(f.type, f.name)
            if untyped is not None:
                raise no_type(*untyped)


def _untyped(type_: DataType, path: str) -> tuple[str, DataType] | None:
    """Path and type of the first part that can have values, and no place in a file."""
    if isinstance(type_, PrimitiveType):
        return None
    if stored_type(type_) is None:
        return path, type_
    if isinstance(type_, StructType):
        parts = [(f.type, f"{path}.{f.name}") for f in type_.fields]
    elif isinstance(type_, ArrayType):
        parts = [(type_.element, f"{path}.element")]
    else:
        parts = [(type_.key, f"{path}.key"), (type_.value, f"{path}.value")]
    return next((found for kind, inner in parts if (found := _untyped(kind, inner)) is not None), None)


def no_typed_column() -> SchemaMismatchError:
    """The error for a table whose files would hold no column."""
    return SchemaMismatchError(
        "no column has a type", help="cast the columns before writing", condition="DELTA_EMPTY_DATA"
    )


def no_type(path: str, type_: DataType) -> SchemaMismatchError:
    """The error for values of an array, map or struct of nothing but void."""
    return SchemaMismatchError(
        f"column {path} is {type_}: what is in it has no type, and cannot be stored",
        help="give it one before writing, e.g. CAST(array() AS ARRAY<STRING>), or leave the column out",
        column=path,
        condition="DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE",
    )
