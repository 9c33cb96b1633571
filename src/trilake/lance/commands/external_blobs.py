"""External blobs: reject URIs outside of the registered bases, or copy the blobs into the dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.lance.file.blobs import DESCRIPTION_V2, EXTERNAL
from trilake.lance.file.errors import OutsideBasesError
from trilake.lance.file.schema import Field, LanceSchema
from trilake.lance.file.types import LISTS
from trilake.lance.file.view import with_items
from trilake.lance.scan import blob_bytes
from trilake.lance.versions.bases import Bases, location
from trilake.lance.versions.manifest import BasePath
from trilake.storage.base import Store

#: Which URIs to store: those below a base, all, or none because the bytes are copied.
ExternalBlobs = Literal["bases", "all", "ingest"]


def resolve(
    store: Store, batch: pa.RecordBatch, schema: LanceSchema, mode: ExternalBlobs, bases: Sequence[BasePath]
) -> pa.RecordBatch:
    """Check the URIs of a batch, or replace them by their bytes.

    Raises ``OutsideBasesError`` for a URI outside of the bases, and ``MissingFileError`` for one that cannot be copied.
    """
    if mode == "all" or not any(f.is_blob_v2 for column in schema.fields for f in column.walk()):
        return batch
    folders = tuple(location(base.path).rstrip("/") + "/" for base in bases)
    arrays = [_resolved(store, array, field, mode, folders) for array, field in zip(batch.columns, schema.fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _resolved(store: Store, array: pa.Array, field: Field, mode: ExternalBlobs, folders: tuple[str, ...]) -> pa.Array:
    if field.is_blob_v2:
        return _ingested(store, array) if mode == "ingest" else _checked(array, field, folders)
    if not any(f.is_blob_v2 for f in field.walk()):
        return array
    if field.logical_type in LISTS:
        return with_items(array, lambda items: _resolved(store, items, field.children[0], mode, folders), array.type)
    children = [_resolved(store, array.field(i), child, mode, folders) for i, child in enumerate(field.children)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _checked(array: pa.Array, field: Field, folders: tuple[str, ...]) -> pa.Array:
    for uri in _uris(array).unique().to_pylist():
        if uri is not None and not location(uri).startswith(folders):
            raise OutsideBasesError(
                f"the blob {uri!r} is outside registered external bases",
                help='register its folder with initial_bases, pass external_blob_mode="ingest" to copy it, or '
                "allow_external_blob_outside_bases=True",
                column=field.name,
            )
    return array


def _ingested(store: Store, array: pa.Array) -> pa.Array:
    uris = _uris(array)
    rows = np.flatnonzero(uris.is_valid().to_numpy(zero_copy_only=False))
    if not len(rows):
        return array
    parts = {f.name: part for f, part in zip(array.type, array.flatten(), strict=True)}
    numbers = {"kind": EXTERNAL, "position": parts.get("position"), "size": parts.get("size"), "blob_id": 0}
    chosen = pa.array(rows)
    columns = [
        pc.fill_null(part.take(chosen), 0) if isinstance(part, pa.Array) else pa.repeat(part or 0, len(rows))
        for part in numbers.values()
    ]
    columns = [c.cast(f.type) for c, f in zip([*columns, uris.take(chosen)], DESCRIPTION_V2, strict=True)]
    data = blob_bytes.read((store, "", Bases(store)), pa.StructArray.from_arrays(columns, fields=list(DESCRIPTION_V2)))
    parts["data"] = pc.replace_with_mask(parts["data"], uris.is_valid(), data.cast(parts["data"].type))
    for name in ("uri", "position", "size"):
        if name in parts:
            parts[name] = pc.if_else(uris.is_valid(), pa.scalar(None, parts[name].type), parts[name])
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(list(parts.values()), fields=list(array.type), mask=mask)


def _uris(array: pa.Array) -> pa.Array:
    at = array.type.get_field_index("uri")
    return pa.nulls(len(array), pa.string()) if at < 0 else array.flatten()[at]
