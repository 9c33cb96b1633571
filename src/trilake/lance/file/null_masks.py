"""Store nulls that the legacy format cannot represent in a companion column, or reject them.

A companion is a boolean column after its column, true for nulls, and marked by metadata.  trilake hides it on reads;
other readers see one more column.  Only top-level columns have companions; a null inside a column raises an error
unless the policy is ``"zero"``, which loses nulls.

The format stores null strings and binaries as empty values, and so reads empty values as null; a companion tells the
two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.lance.file.errors import RowsDoNotFitError
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.types import is_text, is_variable

#: Metadata of a companion: the name of its column.
NULLS_OF = b"trilake:nulls_of"


def masked_schema(schema: pa.Schema) -> pa.Schema:
    """Add a companion after each column that may have nulls.

    >>> masked_schema(pa.schema({"a": pa.int64()})).names
    ['a', 'a__is_null']
    """
    names = set(schema.names)
    fields: list[pa.Field] = []
    for one in schema:
        fields.append(one)
        if one.nullable and not pt.is_null(one.type):
            name = _companion_name(one.name, names)
            names.add(name)
            fields.append(pa.field(name, pa.bool_(), nullable=False, metadata={NULLS_OF: one.name.encode()}))
    return pa.schema(fields, schema.metadata)


def companions(schema: LanceSchema) -> dict[str, Field]:
    """Find the companions of a schema, by column name."""
    names = {f.name for f in schema.fields}
    by_name: dict[str, Field] = {}
    for field in schema.fields:
        of = field.metadata.get(NULLS_OF)
        if of is not None and field.logical_type == "bool":
            name = of.decode("utf-8", "replace")
            if name in names and name != field.name:
                by_name.setdefault(name, field)
    return by_name


def renamed(companion: Field, name: str, other_names: Iterable[str]) -> Field:
    """Rename a companion whose column is renamed to ``name``; ``other_names`` are the names of the other columns."""
    metadata = {**companion.metadata, NULLS_OF: name.encode()}
    return replace(companion, name=_companion_name(name, set(other_names)), metadata=metadata)


def _companion_name(column: str, other_names: Set[str]) -> str:
    name = f"{column}__is_null"
    while name in other_names:
        name += "_"
    return name


def fold(batch: pa.RecordBatch, masks: Mapping[str, str]) -> pa.RecordBatch:
    """Replace companions with nulls in a stored batch.  ``masks`` are the companions' names by column."""
    hidden = set(masks.values())
    arrays, fields = [], []
    for one, array in zip(batch.schema, batch.columns):
        if one.name in hidden:
            continue
        if one.name in masks:
            array = _with_nulls(array, batch.column(masks[one.name]))
        arrays.append(array)
        fields.append(one)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def _with_nulls(array: pa.Array, mask: pa.Array) -> pa.Array:
    # If no file has the column, none has its companion: that is null.
    bits = np.asarray(pc.fill_null(mask, True))
    if is_variable(array.type) and array.null_count:
        array = pc.fill_null(array, "" if is_text(array.type) else b"")
    if not bits.any():
        return array
    return array.take(pa.array(np.arange(len(array)), mask=bits))


def unfold(batch: pa.RecordBatch, stored: LanceSchema, policy: Literal["error", "zero"]) -> pa.RecordBatch:
    """Convert a batch to stored columns.  Raises ``RowsDoNotFitError`` for a lost null, unless ``policy`` is
    ``"zero"``.
    """
    masks = companions(stored)
    of = {mask.id: name for name, mask in masks.items()}
    arrow = stored.storage_schema
    arrays = []
    for field in stored.fields:
        if field.id in of:
            arrays.append(pc.is_null(batch.column(of[field.id])))
            continue
        array = batch.column(field.name)
        if policy == "error":
            _check(field, array, masked=field.name in masks)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([f.with_nullable(True) for f in arrow]))


def _check(field: Field, array: pa.Array, *, masked: bool) -> None:
    if masked and array.null_count:
        array = array.drop_null()
    path = lost_null(field.storage_field, array)
    if path is not None:
        deeper = path != field.name
        raise RowsDoNotFitError(
            f"a null would be lost: Lance does not yet support nulls for type {_pylance_name(array.type)}",
            help='fill the nulls, or pass nulls="zero" to write zeros or empty values instead'
            + ("" if deeper or masked else ', or create the dataset with nulls="mask" to keep them'),
            column=path,
        )


def _pylance_name(kind: pa.DataType) -> str:
    """The name of a type in pylance's messages, such as ``Int64`` or ``Float32``."""
    names = {"halffloat": "Float16", "float": "Float32", "double": "Float64", "bool": "Boolean"}
    return names.get(str(kind), str(kind).capitalize())


def lost_null(field: pa.Field, array: pa.Array) -> str | None:
    """Return the path of a field with a null that the format cannot store; ``None`` if there is none.

    >>> lost_null(pa.field("l", pa.list_(pa.int8())), pa.array([[1, None]], pa.list_(pa.int8())))
    'l.item'
    """
    kind = field.type
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pt.is_null(kind) or (is_variable(kind) and field.nullable):
        return None
    if array.null_count or (pt.is_dictionary(kind) and array.dictionary.null_count):
        return str(field.name)
    if pt.is_struct(kind):
        below = [(kind.field(i), array.field(i)) for i in range(kind.num_fields)]
    elif pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        below = [(kind.value_field, array.flatten())]
    else:
        return None
    for child, values in below:
        path = lost_null(child, values)
        if path is not None:
            return f"{field.name}.{path}"
    return None
