"""Convert between stored columns and the columns that users see.

A companion column (see :mod:`trilake.lance.file.null_masks`) is hidden: it is read with its column, and restores the
nulls of that column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from trilake.errors import UnsupportedProtocolError
from trilake.lance.file import jsonb, null_masks
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.extensions import restore_batch, storage_array
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.types import LISTS, is_text


@dataclass(frozen=True)
class View:
    """The columns of a dataset, as users see them; ``whole`` is the schema in the manifest.

    Unless ``folded``, companions are ordinary columns.  With ``blob_bytes``, blobs are bytes, not descriptions.
    """

    whole: LanceSchema
    folded: bool = True
    blob_bytes: bool = False

    @cached_property
    def schema(self) -> LanceSchema:
        """The columns that users see."""
        hidden = {f.id for f in self._masks.values()}
        fields = (f for f in self.whole.fields if f.id not in hidden)
        if self.blob_bytes:
            blobs = {f.id: replace(f, as_bytes=True) for f in self.whole.walk() if f.is_blob}
            fields = (f if f.is_plain else f.swapped(blobs) for f in fields)
        return LanceSchema(tuple(fields), self.whole.metadata)

    @cached_property
    def _masks(self) -> dict[str, Field]:
        return null_masks.companions(self.whole) if self.folded else {}

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema that users see."""
        return self.schema.to_arrow()

    def columns(self, names: Sequence[str] | None) -> LanceSchema:
        """Select columns by name, or all; ``"struct.field"`` is a part of one.  Raises ``InvalidArgumentError``."""
        if isinstance(names, str):
            raise WrongTypeError(f"columns must be a list of names, got {names!r}", help=f"pass [{names!r}]")
        return self.schema if names is None else self.schema.project(names)

    def has_mask(self, name: str) -> bool:
        return name in self._masks

    def mask_of(self, name: str) -> Field | None:
        """The companion of a column; ``None`` if it has none."""
        return self._masks.get(name)

    @cached_property
    def mask_ids(self) -> Mapping[int, int]:
        """The field ids of companions, by those of their columns."""
        by_name = {f.name: f.id for f in self.whole.fields}
        return {by_name[name]: mask.id for name, mask in self._masks.items()}

    def stored(self, columns: LanceSchema) -> LanceSchema:
        """The columns to read for ``columns``: these and their companions."""
        extra = tuple(self._masks[f.name] for f in columns.fields if f.name in self._masks)
        return LanceSchema((*columns.fields, *extra), columns.metadata) if extra else columns

    def show(self, batch: pa.RecordBatch, columns: LanceSchema) -> pa.RecordBatch:
        """Convert a stored batch to the columns that users see."""
        if self._masks:
            masks = {f.name: self._masks[f.name].name for f in columns.fields if f.name in self._masks}
            batch = null_masks.fold(batch, masks) if masks else batch
        if columns.is_plain or not columns.fields:
            return batch
        arrays = [_strings(field, array) for field, array in zip(columns.fields, batch.columns, strict=True)]
        storage = pa.schema([f.shown_field for f in columns.fields], columns.shown_schema.metadata)
        result = pa.RecordBatch.from_arrays(arrays, schema=storage)
        return restore_batch(result) if columns.has_extensions else result


def _strings(field: Field, array: pa.Array) -> pa.Array:
    array = storage_array(array)
    if field.is_json:
        return jsonb.decode(array)
    if field.is_plain or field.is_blob:
        return array
    kind, mask = field.shown_field.type, array.is_null() if array.null_count else None
    if field.logical_type == "struct":
        children = [_strings(child, array.field(i)) for i, child in enumerate(field.children)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if field.logical_type in LISTS:
        return with_items(array, lambda items: _strings(field.children[0], items), kind)
    raise UnsupportedProtocolError(f"JSON in {field.logical_type!r} is not supported", column=field.name)


def stored_array(field: Field, array: pa.Array) -> pa.Array:
    """Convert values to their stored form: JSON to JSONB.  Raises ``RowsDoNotFitError``."""
    if field.is_plain or (field.is_blob and not field.is_blob_v2):
        return array
    array = storage_array(array)
    if field.is_blob:
        return _blob(field, array)
    if field.is_json:
        return jsonb.encode(array) if is_text(array.type) else array
    mask = array.is_null() if array.null_count else None
    if field.logical_type == "struct" and array.type.num_fields == len(field.children):
        by_name = {array.type.field(i).name: array.field(i) for i in range(array.type.num_fields)}
        children = [stored_array(child, by_name[child.name]) for child in field.children if child.name in by_name]
        return pa.StructArray.from_arrays(children, names=[c.name for c in field.children], mask=mask)
    if field.logical_type in LISTS and (pt.is_list(array.type) or pt.is_large_list(array.type)):
        return with_items(array, lambda items: stored_array(field.children[0], items))
    return array


def with_items(array: pa.Array, convert: Callable[[pa.Array], pa.Array], kind: pa.DataType | None = None) -> pa.Array:
    """Convert the items of a list array; the result is of type ``kind``, by default that of the new items.

    >>> with_items(pa.array([[1], None, [2, 3]]).slice(1), lambda items: pc.add(items, 1)).to_pylist()
    [None, [3, 4]]
    """
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(array.offsets.type.to_pandas_dtype())
    mask = array.is_null() if array.null_count else None
    items = convert(array.flatten())
    return type(array).from_arrays(pa.array(offsets), items, *([] if kind is None else [kind]), mask=mask)


def _blob(field: Field, array: pa.Array) -> pa.Array:
    """Convert blobs that users pass, binaries or structs with ``data`` or ``uri``, to structs with all fields."""
    kind = field.storage_field.type
    mask = array.is_null() if array.null_count else None
    parts = {"data": array}
    if pt.is_struct(array.type):
        parts = {array.type.field(i).name: array.field(i) for i in range(array.type.num_fields)}
    arrays = [parts[f.name].cast(f.type) if f.name in parts else pa.nulls(len(array), f.type) for f in kind]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)
