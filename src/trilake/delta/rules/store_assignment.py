"""Schema enforcement: convert incoming rows to rows of the table.

Columns match by name, ignoring case, in any order.  Conversions never lose values: narrower numbers become wider ones,
and out-of-range values are rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import is_list, nulls
from trilake.delta.protocol.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructType,
    UserDefinedType,
    all_nullable,
    convert_parts,
    is_spatial,
    needs_mark,
    paired,
    where_marked,
)
from trilake.delta.protocol.schema_edit import is_void
from trilake.delta.rules.constraints import verify_not_null
from trilake.delta.scan.conform import decode_dictionary
from trilake.errors import SchemaMismatchError
from trilake.expr.nested import field_problem
from trilake.expr.terms.datatypes import normalise
from trilake.expr.views import list_of_view, plain_array

#: The ends of the messages about columns that schema evolution can add, or give a type.
_NEW, _VOID = " is not in the table", ", but the table has void"
_MERGE_SCHEMA = 'with option("mergeSchema", "true") (schema_mode="merge" in trilake.write)'
_EVOLUTION = {
    _NEW: f"drop the new columns, or add them to the table {_MERGE_SCHEMA}",
    _VOID: f"give the void columns a type {_MERGE_SCHEMA}",
}
#: The end of the message about a missing required column.
_MISSING = " must not be null and is missing"
#: delta-spark's names for these conditions, which programs check.
_WORDS = {
    "DELTA_METADATA_MISMATCH": "A schema mismatch detected when writing to the Delta table",
    "DELTA_MISSING_NOT_NULL_COLUMN_VALUE": "A schema mismatch detected when writing to the Delta table",
    "DELTA_FAILED_TO_MERGE_FIELDS": "Failed to merge fields of the rows with those of the Delta table",
}


def check_assignable(source: StructType, target: StructType, *, uri: str, filled: Collection[str] = ()) -> None:
    """Reject rows of schema ``source`` for a table of schema ``target``, naming every column that does not fit.

    ``filled`` are columns of the table that are generated if the rows lack them.  Raises ``SchemaMismatchError``, which
    shows both schemas.
    """
    problems = _problems(source, target, "", filled)
    if problems:
        details = "; ".join(problems[:10]) + (f"; and {len(problems) - 10} more" if len(problems) > 10 else "")
        steps = [step for end, step in _EVOLUTION.items() if any(p.endswith(end) for p in problems)]
        if all(p.endswith((_NEW, _VOID)) for p in problems):
            condition = "DELTA_METADATA_MISMATCH"
        else:
            steps.append("cast or fill the other columns" if steps else "cast or fill these columns")
            missing = any(p.endswith(_MISSING) for p in problems)
            condition = "DELTA_MISSING_NOT_NULL_COLUMN_VALUE" if missing else "DELTA_FAILED_TO_MERGE_FIELDS"
        raise SchemaMismatchError(
            f"{_WORDS[condition]}: {details}. Table: {target}. Rows: {source}",
            help="; ".join(steps),
            file=uri,
            condition=condition,
        )


def with_marked(rows: StructType, table: StructType) -> StructType:
    """The schema of Arrow rows, with the table's types for columns whose types Arrow lacks."""
    marked = where_marked(rows, table)
    assert isinstance(marked, StructType)
    return marked


def needs_no_cast(
    rows: StructType, names: Sequence[str], table: StructType, *, evolve: bool = False, ordered: bool = False
) -> bool:
    """Whether rows matched by position have the same names and types as the columns ``names`` of a table.

    Struct fields may be in another order, with ``ordered`` only in arrays and maps; if the schema evolves, there may be
    more of them.  delta-spark writes such rows unchanged, matching structs by name, and casts all others by position.
    """
    fields = rows.fields[: len(names)]
    return [f.name for f in fields] == list(names) and all(
        _is_of(f.type, table.field(f.name).type, evolve, ordered) for f in fields
    )


def _is_of(source: DataType, target: DataType, more: bool, ordered: bool) -> bool:
    if isinstance(source, StructType) and isinstance(target, StructType):
        fields = {f.name: f.type for f in source.fields}
        if not more and len(fields) != len(target.fields):
            return False
        if ordered and source.names[: len(target.names)] != target.names:
            return False
        return all(f.name in fields and _is_of(fields[f.name], f.type, more, ordered) for f in target.fields)
    inside = paired(source, target)
    return source == target if inside is None else all(_is_of(a, b, more, False) for _, a, b in inside)


def check_structs_whole(rows: StructType, table: StructType) -> None:
    """Raise ``SchemaMismatchError`` for a struct with fewer fields than its column.

    delta-spark does so for INSERT BY NAME.  Structs in arrays and maps are not checked.
    """
    for f in rows.fields:
        column = table.find(f.name)
        if column is not None:
            _check_whole(f.type, column.type, column.name)


def _check_whole(source: DataType, target: DataType, path: str) -> None:
    if not isinstance(source, StructType) or not isinstance(target, StructType):
        return
    if len(source.fields) < len(target.fields):
        lacking = [f.name for f in target.fields if source.find(f.name) is None]
        raise SchemaMismatchError(
            f"the struct for column {path} has {len(source.fields)} fields ({', '.join(source.names)}), but the"
            f" column has {len(target.fields)} ({', '.join(target.names)})",
            help=f"provide {', '.join(lacking)} (NULL if there is no value), or use schema evolution",
            column=path,
            condition="DELTA_INSERT_COLUMN_ARITY_MISMATCH",
        )
    for f in source.fields:
        field = target.find(f.name)
        if field is not None:
            _check_whole(f.type, field.type, f"{path}.{field.name}")


def _problems(source: StructType, target: StructType, prefix: str, filled: Collection[str] = ()) -> list[str]:
    out = [f"column {prefix}{f.name!s}{_NEW}" for f in source.fields if target.find(f.name) is None]
    for f in target.fields:
        path = prefix + f.name
        column = source.find(f.name)
        if column is None:
            if not f.nullable and f.name not in filled:
                out.append(f"column {path}{_MISSING}")
        else:
            out += _type_problems(column.type, f.type, path)
    return out


def _type_problems(source: DataType, target: DataType, path: str) -> list[str]:
    if is_void(source):
        return []
    if source != target:  # a user-defined type has the values of its SQL type
        source, target = (t.sql_type if isinstance(t, UserDefinedType) else t for t in (source, target))
    if isinstance(source, StructType) and isinstance(target, StructType):
        return _problems(source, target, f"{path}.")
    inside = paired(source, target)
    if inside is not None:
        return [problem for name, a, b in inside for problem in _type_problems(a, b, f"{path}.{name}")]
    if source == target or (isinstance(source, PrimitiveType) and _storable(source, target)):
        return []
    return [f"column {path} is {source}, but the table has {target}"]


def _storable(source: PrimitiveType, target: DataType) -> bool:
    return isinstance(target, PrimitiveType) and target.traits.name in source.traits.stored_in


def assign_batch(batch: pa.RecordBatch, target: StructType) -> pa.RecordBatch:
    """Convert rows to the table's columns and types.

    Raises ``SchemaMismatchError`` for a value that does not fit, its subclass ``ConstraintViolatedError`` for a
    forbidden null.
    """
    schema = target.to_arrow_schema()
    if not batch.schema.equals(schema) or needs_mark(target):
        columns = assign_columns(batch, target)
        batch = as_batch([columns.get(f.name) for f in target.fields], batch.num_rows, target)
    verify_not_null(batch, target)
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def assign_columns(batch: pa.RecordBatch, target: StructType) -> dict[str, pa.Array]:
    """The table's columns that a batch has, under the table's names and types.

    Raises ``SchemaMismatchError`` for a value that does not fit.
    """
    folded = {n.lower(): i for i, n in enumerate(batch.schema.names)}
    places = ((f, folded.get(f.name.lower())) for f in target.fields)
    return {f.name: assign_array(batch.column(i), f.type, f.name) for f, i in places if i is not None}


def as_batch(columns: Sequence[pa.Array | None], num_rows: int, target: StructType) -> pa.RecordBatch:
    """Columns of the table as a batch; missing ones are null.  Nullability is not enforced yet."""
    arrays = [
        nulls(num_rows, f.type.arrow) if array is None else array
        for f, array in zip(target.fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([pa.field(f.name, f.type.arrow) for f in target.fields]))


def assign_array(array: pa.Array, target: DataType, path: str) -> pa.Array:
    """Convert values to the type of a column.  Raises ``SchemaMismatchError`` if a conversion would lose something."""
    if isinstance(target, UserDefinedType):
        return assign_array(array, all_nullable(target.sql_type), path)
    type_ = target.arrow
    if is_spatial(str(target)):
        return _wkb(array, target, path)
    if str(target) == "variant" and pa.types.is_struct(array.type) and array.null_count:
        # A file does not allow null binaries, so null variants get empty ones.
        array, absent = plain_array(array), array.is_null()
        parts = [pc.if_else(absent, pa.scalar(b"", f.type), array.field(i)) for i, f in enumerate(array.type)]
        array = pa.StructArray.from_arrays(parts, fields=list(array.type), mask=absent)
    if array.type == type_ and (isinstance(target, PrimitiveType) or not needs_mark(target)):
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = decode_dictionary(array)
    if array.null_count == len(array):
        return nulls(len(array), type_)  # of any type, since Spark's void may arrive as another type
    array = plain_array(array)
    if isinstance(target, StructType) and pa.types.is_struct(array.type):
        return _assign_struct(array, target, path)
    if isinstance(target, ArrayType) and is_list(array.type):
        # Arrow's cast fills fields without an exact match with null.
        if pa.types.is_large_list(array.type):
            array = array.cast(pa.list_(array.type.value_field))
        elif not pa.types.is_list(array.type):
            array = list_of_view(array)
        return convert_parts(array, target, assign_array, path)
    if isinstance(target, MapType) and pa.types.is_map(array.type):
        return convert_parts(array, target, assign_array, path)
    try:
        if pa.types.is_timestamp(type_) and pa.types.is_timestamp(array.type):
            return normalise(array).cast(type_)
        if pa.types.is_decimal(type_) and pa.types.is_integer(array.type):
            return array.cast(pa.decimal128(38, type_.scale)).cast(type_)
        return array.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatchError(
            f"a value of column {path} does not fit the table's {target}: {e}",
            help="cast the column before writing",
            column=path,
        ) from e


def _wkb(array: pa.Array, target: DataType, path: str) -> pa.Array:
    """Geometries as WKB; Spark's are structs of the SRID and ``wkb``.

    Raises ``SchemaMismatchError`` for values whose first byte is not a byte order of WKB.
    """
    if pa.types.is_struct(array.type) and array.type.get_field_index("wkb") >= 0:
        array = array.flatten()[array.type.get_field_index("wkb")]
    array = plain_array(array)
    binary = pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
    first = pc.binary_slice(array, 0, 1) if binary else array
    if array.null_count < len(array) and not (binary and set(pc.unique(first).to_pylist()) <= {b"\0", b"\1", None}):
        raise SchemaMismatchError(
            f"column {path} is {target}, but its values ({array.type}) are not WKB",
            help="write each value as well-known binary (WKB), e.g. with shapely.to_wkb or DuckDB's ST_AsWKB",
            column=path,
        )
    return array.cast(target.arrow)


def check_fields(source: pa.DataType, target: DataType, path: str, *, fill: bool = False) -> None:
    """Reject values whose structs, at any depth, do not have the column's fields.

    With ``fill``, missing ones become null.  Raises ``SchemaMismatchError``.
    """
    problem = field_problem(source, target.arrow, path, ignore_case=True, fill=fill)
    if problem is not None:
        raise SchemaMismatchError(
            problem,
            help="provide every field of the column by name (NULL if there is no value), or use schema evolution",
            column=path,
        )


def _assign_struct(array: pa.Array, target: StructType, path: str) -> pa.Array:
    check_fields(pa.struct([f.with_type(pa.null()) for f in array.type]), target, path, fill=True)
    lowered = {f.name.lower(): i for i, f in enumerate(array.type)}
    children = [
        nulls(len(array), f.type.arrow)
        if (i := lowered.get(f.name.lower())) is None
        else assign_array(array.field(i), f.type, f"{path}.{f.name}")
        for f in target.fields
    ]
    return pa.StructArray.from_arrays(
        children, fields=list(target.arrow), mask=array.is_null() if array.null_count else None
    )
