"""Schemas between formats: Arrow's is the one that all of them are translated from and to.

Metadata of a column, its comment among it, is Arrow field metadata.  A Delta table has fewer types than Arrow; the one
that a column had is kept in its metadata, so that a vector is a vector again when it leaves the table.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.delta.protocol.schema import (
    DELTA_TYPE,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    from_arrow,
    holds_variants,
    marked,
)
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TrilakeError, UnsupportedProtocolError
from trilake.expr.views import plain_array
from trilake.storage.memory import MemoryStore
from trilake.trevni.file.writer import TrevniWriter

#: Key of a Delta column's metadata: the Arrow type that its values had before.
ARROW_TYPE = "trilake.arrowType"
#: Metadata that belongs to a format, and not to the column.
_OWN = ("delta.", "__", "PARQUET:", "ARROW:", "trilake:", "lance-")
_T = pa.types


# --- Delta -----------------------------------------------------------------------------------------------------------


def from_delta(schema: StructType) -> pa.Schema:
    """The columns of a Delta table, with their comments and the Arrow types that they once had.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> field = StructField("n", PrimitiveType("long"), False, {"comment": "how many"})
    >>> from_delta(StructType((field,))).field("n").metadata
    {b'comment': b'how many'}
    """
    fields = []
    for one in schema.fields:
        arrow_field = marked(_arrow_field(one), one.type)
        was = one.metadata.get(ARROW_TYPE)
        fields.append(
            arrow_field if not isinstance(was, str) else arrow_field.with_type(_decoded(was, arrow_field.type))
        )
    return pa.schema(fields)


def _arrow_field(one: StructField) -> pa.Field:
    metadata = {
        k: v if isinstance(v, str) else orjson.dumps(v).decode()
        for k, v in one.metadata.items()
        if not k.startswith(_OWN) and k != ARROW_TYPE
    }
    return pa.field(one.name, _arrow_type(one.type), one.nullable, metadata or None)


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_arrow_field(f) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.element), kind.contains_null))
    if isinstance(kind, MapType):
        value = pa.field("value", _arrow_type(kind.value), kind.value_contains_null)
        return pa.map_(pa.field("key", _arrow_type(kind.key), False), value)
    return kind.arrow


def _decoded(text: str, stored: pa.DataType) -> pa.DataType:
    """The type that a column's metadata names, unless that is damaged or the values could not have it any more."""
    try:
        named = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True))).field(0).type
        pa.array([], stored).cast(named)
    except (ValueError, OSError, pa.ArrowException):
        return stored
    return named


def to_delta(schema: pa.Schema) -> StructType:
    """The columns of a new Delta table.  Raises ``SchemaMismatchError`` for a type that Delta does not have."""
    delta_schema = from_arrow(schema)
    return StructType(
        tuple(_with_metadata(f, one, top=True) for f, one in zip(delta_schema.fields, schema, strict=True))
    )


def _with_metadata(field: StructField, one: pa.Field, *, top: bool) -> StructField:
    metadata: dict[str, Any] = _texts(one.metadata)
    kind = field.type
    if top and not _alike(one.type, kind.arrow):
        plain = one.type.storage_type if isinstance(one.type, pa.BaseExtensionType) else one.type
        if _T.is_fixed_size_list(plain) or _T.is_dictionary(plain):
            text = base64.b64encode(pa.schema([pa.field("", plain)]).serialize()).decode()
            metadata[ARROW_TYPE] = text
    has_variants = metadata.pop(DELTA_TYPE, None) is not None and holds_variants(kind)
    return replace(field, type=kind if has_variants else _nested(kind, one.type), metadata=metadata)


def _nested(kind: DataType, arrow: pa.DataType) -> DataType:
    """The type with the metadata of its parts."""
    if isinstance(kind, StructType) and _T.is_struct(arrow):
        pairs = zip(kind.fields, arrow, strict=True)
        return StructType(tuple(_with_metadata(f, a, top=False) for f, a in pairs))
    if isinstance(kind, ArrayType) and hasattr(arrow, "value_field"):
        return replace(kind, element=_nested(kind.element, arrow.value_type))
    if isinstance(kind, MapType) and _T.is_map(arrow):
        return replace(kind, key=_nested(kind.key, arrow.key_type), value=_nested(kind.value, arrow.item_type))
    return kind


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(one == other)


def _texts(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    texts = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in (metadata or {}).items()}
    return {k: v for k, v in texts.items() if not k.startswith(_OWN)}


# --- what a target makes of columns ----------------------------------------------------------------------------------


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without what belongs to the format that it was read from."""
    metadata = {k: v for k, v in (schema.metadata or {}).items() if k not in (b"pandas", b"ARROW:schema")}
    metadata = {k: v for k, v in metadata.items() if not k.startswith((b"org.apache.spark", b"trilake:"))}
    fields = []
    for one in schema:
        own = {k: v for k, v in (one.metadata or {}).items() if not k.startswith((b"PARQUET:", b"trilake:"))}
        fields.append(one.with_type(_named_maps(one.type)).with_metadata(own or None))
    return pa.schema(fields, metadata or None)


def _named_maps(kind: pa.DataType) -> pa.DataType:
    """The type with the usual names for the parts of maps: Parquet files may have any."""
    if _T.is_map(kind):
        key = pa.field("key", _named_maps(kind.key_type), False)
        item = kind.item_field
        return pa.map_(key, pa.field("value", _named_maps(kind.item_type), item.nullable), kind.keys_sorted)
    if _T.is_struct(kind):
        return pa.struct([f.with_type(_named_maps(f.type)) for f in kind])
    if _T.is_list(kind):
        return pa.list_(kind.value_field.with_type(_named_maps(kind.value_type)))
    return kind


def for_delta(schema: pa.Schema) -> pa.Schema:
    """The columns as they are given to a Delta table: views of lists and run-ends as plain ones.

    Raises ``SchemaMismatchError`` for a type that Delta does not have.
    """
    flat = pa.schema([one.with_type(_plain_type(one.type)) for one in schema], schema.metadata)
    to_delta(flat)
    return flat


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if _T.is_run_end_encoded(kind):
        return kind.value_type
    if _T.is_list_view(kind) or _T.is_large_list_view(kind):
        return pa.large_list(kind.value_field) if _T.is_large_list_view(kind) else pa.list_(kind.value_field)
    return kind


def for_lance(schema: pa.Schema, *, dictionaries: bool) -> pa.Schema:
    """The columns as a Lance dataset has them: views, run-ends and, unless ``dictionaries``, dictionaries as values.

    Raises ``SchemaMismatchError`` for a type that Lance does not have.
    """
    from trilake.lance.file.schema import LanceSchema  # late: its messages take time to load

    fields = [one.with_type(_lance_type(one.type, dictionaries)) for one in schema]
    lance_schema = pa.schema(fields, schema.metadata)
    try:
        LanceSchema.from_arrow(lance_schema)
    except UnsupportedProtocolError as e:
        raise _refused("Lance", str(e.context.get("column")), e.message) from e
    return lance_schema


def _lance_type(kind: pa.DataType, dictionaries: bool) -> pa.DataType:
    if _T.is_string_view(kind):
        return pa.string()
    if _T.is_binary_view(kind):
        return pa.binary()
    if _T.is_run_end_encoded(kind):
        return _lance_type(kind.value_type, dictionaries)
    if _T.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    if _T.is_dictionary(kind):
        values = kind.value_type
        storable = _T.is_string(values) or _T.is_binary(values) or _T.is_integer(values)
        return kind if dictionaries and storable else _lance_type(values, dictionaries)
    if _T.is_struct(kind):
        return pa.struct([f.with_type(_lance_type(f.type, dictionaries)) for f in kind])
    if _T.is_list_view(kind) or _T.is_list(kind):
        return pa.list_(kind.value_field.with_type(_lance_type(kind.value_type, dictionaries)))
    if _T.is_large_list(kind) or _T.is_large_list_view(kind):
        return pa.large_list(kind.value_field.with_type(_lance_type(kind.value_type, dictionaries)))
    return kind


def for_trevni(schema: pa.Schema) -> pa.Schema:
    """The schema itself, if a Trevni file can have it.  Raises ``SchemaMismatchError``."""

    def begin(one: pa.Schema) -> None:
        TrevniWriter((MemoryStore("memory://check"), "x.trv"), one).close()

    return _checked(schema, "Trevni", begin)


def for_parquet(schema: pa.Schema) -> pa.Schema:
    """The schema itself, if a Parquet file can have it.  Raises ``SchemaMismatchError``."""
    return _checked(schema, "Parquet", lambda one: pq.write_table(one.empty_table(), pa.BufferOutputStream()))


def _checked(schema: pa.Schema, name: str, begin: Callable[[pa.Schema], None]) -> pa.Schema:
    for one in schema:
        try:
            begin(pa.schema([one]))
        except (TrilakeError, pa.ArrowException, ValueError, TypeError, OSError) as e:
            raise _refused(name, one.name, e.message if isinstance(e, TrilakeError) else str(e)) from e
    return schema


def _refused(name: str, column: str, why: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"{name} cannot hold a column: {why}",
        help="leave it out with columns=[…], or cast it before",
        column=column,
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with columns of run-ends and views of lists as the schema has them; others are left to the writer."""
    arrays = []
    for one, array in zip(batch.schema, batch.columns, strict=True):
        kind = array.type
        changed = _T.is_run_end_encoded(kind) or _T.is_list_view(kind) or _T.is_large_list_view(kind)
        arrays.append(_cast(array, schema.field(one.name).type) if changed else array)
    if all(a is b for a, b in zip(arrays, batch.columns, strict=True)):
        return batch
    fields = [f.with_type(a.type) for f, a in zip(batch.schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under exactly this schema, columns by name.  Raises ``SchemaMismatchError`` for values that do not
    fit."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    arrays = []
    for one in schema:
        array = batch.column(batch.schema.get_field_index(one.name))
        try:
            arrays.append(_cast(array, one.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as e:
            raise SchemaMismatchError(
                f"a value of {array.type} does not fit {one.type}: {e}", help="cast the column", column=one.name
            ) from e
        if not one.nullable and arrays[-1].null_count:
            raise SchemaMismatchError("a column that must not be null has nulls", column=one.name)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        return _cast(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type))
    if _T.is_run_end_encoded(array.type):
        return _cast(pc.run_end_decode(array), kind)
    if _T.is_list_view(array.type) or _T.is_large_list_view(array.type):
        return plain_array(array).cast(kind)
    if _T.is_dictionary(kind) and not _T.is_dictionary(array.type):
        return array.cast(kind.value_type).dictionary_encode().cast(kind)
    return array.cast(kind)


def check_columns(columns: list[str] | None, schema: pa.Schema, uri: str) -> list[str]:
    """Names of columns as the schema spells them.  Raises ``InvalidArgumentError`` for one that is not there."""
    if columns is None:
        return list(schema.names)
    by_name = {name.lower(): name for name in schema.names}
    unknown = [c for c in columns if c.lower() not in by_name]
    if unknown or not columns:
        raise InvalidArgumentError(
            f"there is no column {', '.join(map(repr, unknown))}" if unknown else "no column is to be converted",
            help=f"the columns are {', '.join(schema.names)}",
            file=uri,
        )
    return [by_name[c.lower()] for c in columns]
