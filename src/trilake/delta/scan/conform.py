"""Convert the columns of a data file to the columns of the table.

Protocol: *Column Mapping*, *Reader Requirements*, type widening.  A file may lack columns, have extra ones, order them
differently, use physical names or field ids, and have narrower types than the table now has.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from trilake.common.arrow_types import nulls
from trilake.delta.protocol.schema import (
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    all_nullable,
    convert_parts,
)
from trilake.errors import CorruptFileError
from trilake.expr.terms.datatypes import is_bytes, is_string, normal_type, normalise
from trilake.expr.views import list_of_view, plain_array
from trilake.parquet.variants import is_shredded, unshredded

_FIELD_ID = b"PARQUET:field_id"
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Resolver:
    """Finds a table's field in a file: by physical name, without mapping in any case, or by field id in ``id`` mode."""

    mode: str = "none"

    def places(self, fields: Sequence[StructField], candidates: Sequence[pa.Field] | pa.Schema) -> list[int | None]:
        """The index of the matching candidate for each of ``fields``; ``None`` if the file has none."""
        names = candidates.names if isinstance(candidates, pa.Schema) else [c.name for c in candidates]
        by_name = _numbered(names)
        if self.mode == "id":
            by_id = _numbered([(c.metadata or {}).get(_FIELD_ID) for c in candidates])
        out: list[int | None] = []
        folded: dict[str, int] | None = None
        for field in fields:
            if self.mode == "id" and field.column_id is not None:
                out.append(by_id.get(str(field.column_id).encode()))
                continue
            name = field.physical_name
            place = by_name.get(name)
            if place is None and self.mode == "none":
                if folded is None:
                    folded = _numbered([n.lower() for n in names])
                place = folded.get(name.lower())
            out.append(place)
        return out


def _numbered(keys: Sequence[_Key]) -> dict[_Key, int]:
    """The first index of each key."""
    return dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))


def conform_array(array: pa.Array, target: DataType, resolver: Resolver, path: str) -> pa.Array:
    """Convert ``array`` from a file to the table's type.  Raises ``CorruptFileError`` for an unsuitable type."""
    if isinstance(array, pa.ExtensionArray):  # a file's Arrow schema may name an extension type, such as arrow.json
        array = array.storage
    if isinstance(target, UserDefinedType):  # its parts are not columns, so column mapping does not apply
        return conform_array(array, all_nullable(target.sql_type), Resolver(), path)
    if isinstance(target, PrimitiveType):
        return _leaf(array, target, path)
    if pa.types.is_null(array.type):
        return nulls(len(array), target.arrow)
    if isinstance(target, StructType):
        return _struct(array, target, resolver, path)
    array = plain_array(list_of_view(array) if pa.types.is_fixed_size_list(array.type) else array)
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if not (pa.types.is_map if isinstance(target, MapType) else pa.types.is_list)(array.type):
        raise _mismatch(array, target, path)
    if array.type == target.arrow:
        return array
    return convert_parts(array, target, lambda part, type_, at: conform_array(part, type_, resolver, at), path)


def _mismatch(array: pa.Array, target: DataType, path: str, why: object = "") -> CorruptFileError:
    detail = f" ({why})" if why else ""
    message = f"the column is {array.type} in the data file, but {target} in the table{detail}"
    help = "the file does not match the table's schema: restore the file from a backup, or read an older version"
    return CorruptFileError(message, help=help, column=path)


def _struct(array: pa.Array, target: StructType, resolver: Resolver, path: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _mismatch(array, target, path)
    candidates = [array.type.field(i) for i in range(array.type.num_fields)]
    children = []
    for f, i in zip(target.fields, resolver.places(target.fields, candidates), strict=True):
        if i is None:
            children.append(nulls(len(array), f.type.arrow))
        else:
            children.append(conform_array(array.field(i), f.type, resolver, f"{path}.{f.name}"))
    # A null struct is not a struct of nulls: carry the parent's validity over.
    mask = array.is_null() if array.null_count else None
    fields = [pa.field(f.name, f.type.arrow, True) for f in target.fields]
    if not fields:
        return nulls(len(array), target.arrow)
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _leaf(array: pa.Array, target: PrimitiveType, path: str) -> pa.Array:
    type_, have = target.arrow, array.type
    if have == type_:
        return array
    if pa.types.is_dictionary(have):
        array = decode_dictionary(array)
        have = array.type
    if not _readable(have, type_):
        raise _mismatch(array, target, path)
    try:
        if pa.types.is_null(type_):
            return pa.nulls(len(array), type_)
        if pa.types.is_timestamp(type_) and pa.types.is_timestamp(have):
            return normalise(array).cast(type_)
        if pa.types.is_struct(type_):  # variant
            if is_shredded(have):
                return unshredded(array, path)
            return pa.StructArray.from_arrays(
                [array.field("value"), array.field("metadata")],
                fields=list(type_),
                mask=array.is_null() if array.null_count else None,
            )
        if pa.types.is_decimal(type_) and pa.types.is_integer(have):
            return array.cast(pa.decimal128(38, type_.scale)).cast(type_)
        return array.cast(type_)
    except (pa.ArrowException, KeyError) as e:
        raise _mismatch(array, target, path, e) from e


def decode_dictionary(array: pa.DictionaryArray) -> pa.Array:
    """Decode a dictionary; convert string views to strings first, since Arrow's ``take`` does not support them."""
    return plain_array(array.dictionary).take(array.indices)


def _readable(have: pa.DataType, target: pa.DataType) -> bool:
    """Whether one type may be read as another; a cast that may fail for some values does not count."""
    is_ = pa.types
    if is_.is_null(have) or is_.is_null(target):
        return True
    if is_.is_struct(target) or is_.is_struct(have):
        return bool(is_.is_struct(target) and is_.is_struct(have))
    families = [
        (is_.is_integer, (is_.is_integer,)),
        (is_.is_floating, (is_.is_floating, is_.is_integer)),
        (is_.is_decimal, (is_.is_decimal, is_.is_integer)),
        (is_.is_boolean, (is_.is_boolean,)),
        (is_.is_date, (is_.is_date,)),
        (is_.is_timestamp, (is_.is_timestamp, is_.is_date)),
        (_is_bytes, (_is_bytes,)),
    ]
    return any(is_to(target) and any(is_from(have) for is_from in sources) for is_to, sources in families)


def _is_bytes(t: pa.DataType) -> bool:
    t = normal_type(t)
    return is_string(t) or is_bytes(t)


def conform_batch(
    batch: pa.RecordBatch, fields: list[StructField], resolver: Resolver, constants: Mapping[str, pa.Scalar | pa.Array]
) -> pa.RecordBatch:
    """Convert the rows of a file to columns of the table; ``constants`` are values of all rows, or of each."""
    candidates = list(batch.schema)
    arrays, names = [], []
    for f, i in zip(fields, resolver.places(fields, candidates), strict=True):
        names.append(pa.field(f.name, f.type.arrow, True))
        if f.name in constants:
            arrays.append(_repeat(constants[f.name], batch.num_rows))
            continue
        if i is None:
            arrays.append(nulls(batch.num_rows, f.type.arrow))
        else:
            array = conform_array(batch.column(i), f.type, resolver, f.name)
            arrays.append(as_nullable(array, f.type.arrow))
    if not arrays:
        return batch.select([])
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(names))


def as_nullable(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array with the exact type of the table; nested nullability does not change the layout."""
    return array if array.type == type_ else array.cast(type_)


def _repeat(value: pa.Scalar | pa.Array, length: int) -> pa.Array:
    if isinstance(value, pa.Array):
        return value
    return pa.repeat(value, length) if value.is_valid else nulls(length, value.type)


def needed_file_columns(fields: list[StructField], file_schema: pa.Schema, resolver: Resolver) -> list[int]:
    """Indexes of the file's top-level columns from which ``fields`` are read."""
    return sorted({i for i in resolver.places(fields, file_schema) if i is not None})
