"""The type ``void``: columns without a type yet, which files do not store.

If a file lacks a column, its values are null, whatever type the column gets later.
"""

from __future__ import annotations

from trilake.delta.protocol.schema import DataType, PrimitiveType, StructType, contains_type, parts, with_parts
from trilake.errors import SchemaMismatchError


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
