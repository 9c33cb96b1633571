"""Remove the void parts of rows, which files do not hold."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.all_fields import strip
from trilake.delta.protocol.column_mapping import relabelled
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, StructField, StructType, all_nullable
from trilake.delta.protocol.voids import is_void, no_type, stored_type
from trilake.delta.scan.conform import Resolver, conform_array


def without_void_columns(rows: pa.Table, fields: Sequence[StructField], stored: StructType) -> pa.Table:
    """Remove what is void from rows.

    Parameters
    ----------
    fields: the columns of the table that hold a void.
    stored: the columns as files hold them.

    Raises ``SchemaMismatchError`` for a value of which nothing would be left, such as an array of void.
    """
    # Rows have the display names at every depth.
    types = {f.name: f.type for f in strip(stored).fields}
    for f in fields:
        place = rows.schema.get_field_index(f.name)
        if place < 0:
            continue
        column = rows.column(place)
        for chunk in column.chunks:
            _check(chunk, f.type, f.name)
        target = types.get(f.name)
        if target is None:
            rows = rows.remove_column(place)
            continue
        field = rows.schema.field(place)
        loose = all_nullable(target).arrow
        kept = pa.chunked_array([conform_array(c, field, target, Resolver(), f.name) for c in column.chunks], loose)
        rows = rows.set_column(place, field.with_type(loose), kept)
    kinds = {f.name: types[f.name].arrow for f in fields if f.name in types}
    return relabelled(rows, pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in rows.schema]))


def _check(array: pa.Array, type_: DataType, path: str) -> None:
    """Refuse a value that cannot be stored: not null, with a type of which nothing is left."""
    if is_void(type_) or pa.types.is_null(array.type):
        return
    if stored_type(type_) is None:
        if array.null_count < len(array):
            raise no_type(path, type_)
    elif isinstance(type_, StructType):
        for f in type_.fields:
            inside = array.field(f.name)
            _check(inside.filter(array.is_valid()) if array.null_count else inside, f.type, f"{path}.{f.name}")
    elif isinstance(type_, ArrayType):
        _check(pc.list_flatten(array), type_.element, f"{path}.element")
    elif isinstance(type_, MapType):
        _check(pc.list_flatten(array.cast(_as_list(array.type))).field(1), type_.value, f"{path}.value")


def _as_list(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([type_.key_field, type_.item_field]))
