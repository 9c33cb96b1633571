"""Schema enforcement: rows that come in, as rows of the table.

Columns are matched by name without regard to case, in any order.  A value is converted only where none can be lost:
narrower numbers become wider ones and out-of-range values are refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.conform import decode_dictionary
from trilake.delta.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from trilake.errors import SchemaMismatchError

_NUMBERS = {"byte", "short", "integer", "long", "float", "double"}


def check_assignable(source: StructType, target: StructType, *, uri: str) -> None:
    """Refuse rows of schema ``source`` for a table of schema ``target``, naming every column that does not fit.

    Raises ``SchemaMismatchError`` whose text shows both schemas.
    """
    problems = _problems(source, target, "")
    if problems:
        shown = "; ".join(problems[:10]) + (f"; and {len(problems) - 10} more" if len(problems) > 10 else "")
        raise SchemaMismatchError(
            f"the rows do not fit the table: {shown}. Table: {target}. Rows: {source}",
            help="cast or drop the columns named, or write to a new table",
            file=uri,
        )


def _problems(source: StructType, target: StructType, prefix: str) -> list[str]:
    out = [f"column {prefix}{f.name!s} is not in the table" for f in source.fields if target.find(f.name) is None]
    for f in target.fields:
        path = prefix + f.name
        given = source.find(f.name)
        if given is None:
            if not f.nullable:
                out.append(f"column {path} must not be null and is missing")
        else:
            out += _type_problems(given.type, f.type, path)
    return out


def _type_problems(source: DataType, target: DataType, path: str) -> list[str]:
    if isinstance(source, PrimitiveType) and source.name == "void":
        return []
    if isinstance(source, StructType) and isinstance(target, StructType):
        return _problems(source, target, f"{path}.")
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return _type_problems(source.element, target.element, f"{path}.element")
    if isinstance(source, MapType) and isinstance(target, MapType):
        return _type_problems(source.key, target.key, f"{path}.key") + _type_problems(
            source.value, target.value, f"{path}.value"
        )
    if isinstance(source, PrimitiveType) and isinstance(target, PrimitiveType) and _storable(source.name, target.name):
        return []
    return [f"column {path} is {source}, the table has {target}"]


def _storable(source: str, target: str) -> bool:
    if source == target or (_stringy(source) and _stringy(target)):
        return True
    if (source in _NUMBERS or source.startswith("decimal")) and (target in _NUMBERS or target.startswith("decimal")):
        return True
    return source == "date" and target in ("timestamp", "timestamp_ntz")


def _stringy(name: str) -> bool:
    return name.startswith(("string", "char(", "varchar("))


def assign_batch(batch: pa.RecordBatch, target: StructType) -> pa.RecordBatch:
    """The rows in the table's columns and types.  Raises ``SchemaMismatchError`` for a value that does not fit."""
    wanted = target.to_arrow_schema()
    if batch.schema.equals(wanted):
        _check_not_null(batch, target)
        return batch
    lowered = {n.lower(): i for i, n in enumerate(batch.schema.names)}
    arrays = []
    for f in target.fields:
        i = lowered.get(f.name.lower())
        arrays.append(pa.nulls(batch.num_rows, f.type.arrow) if i is None else _assign(batch.column(i), f.type, f.name))
    out = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([pa.field(f.name, f.type.arrow) for f in target.fields]))
    _check_not_null(out, target)
    return pa.RecordBatch.from_arrays(out.columns, schema=wanted)


def _check_not_null(batch: pa.RecordBatch, target: StructType) -> None:
    for f, column in zip(target.fields, batch.columns, strict=True):
        if not f.nullable and column.null_count:
            raise SchemaMismatchError(
                f"column {f.name!r} must not be null and {column.null_count} rows hold a null there",
                help="fill or drop those rows",
                column=f.name,
            )


def _assign(array: pa.Array, target: DataType, path: str) -> pa.Array:
    wanted = target.arrow
    if array.type == wanted:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = decode_dictionary(array)
    if isinstance(target, StructType) and pa.types.is_struct(array.type):
        return _assign_struct(array, target, path)
    try:
        if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(array.type):
            return array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(wanted)
        if pa.types.is_decimal(wanted) and pa.types.is_integer(array.type):
            return array.cast(pa.decimal128(38, wanted.scale)).cast(wanted)
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatchError(
            f"a value of column {path} does not fit the table's {target}: {e}",
            help="cast the column before writing",
            column=path,
        ) from e


def _assign_struct(array: pa.Array, target: StructType, path: str) -> pa.Array:
    lowered = {array.type.field(i).name.lower(): i for i in range(array.type.num_fields)}
    children = []
    for f in target.fields:
        i = lowered.get(f.name.lower())
        if i is None:
            children.append(pa.nulls(len(array), f.type.arrow))
        else:
            children.append(_assign(array.field(i), f.type, f"{path}.{f.name}"))
    mask = array.is_null() if array.null_count else None
    for f, child in zip(target.fields, children, strict=True):
        missing = child.is_null() if mask is None else pc.and_(child.is_null(), pc.invert(mask))
        if not f.nullable and pc.any(missing).as_py():
            raise SchemaMismatchError(f"column {path}.{f.name} must not be null", column=f"{path}.{f.name}")
    return pa.StructArray.from_arrays(children, fields=list(target.arrow), mask=mask)
