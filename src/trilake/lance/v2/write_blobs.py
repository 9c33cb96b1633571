"""Write blobs: their bytes go outside the pages, the column holds descriptions, which locate them."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.file.extensions import storage_array
from trilake.lance.file.schema import Field
from trilake.lance.file.types import DEDICATED, DESCRIPTION_V2, EXTERNAL, INLINE, PACKED, side_file
from trilake.lance.file.view import with_items
from trilake.lance.v2.encode_options import whole_number
from trilake.lance.v2.encode_values import Strings, copy_strings
from trilake.storage.base import Store, WriteGroup
from trilake.storage.ownership import discard

#: Description of a blob up to 2.1: a byte range of the file.
RANGE = pa.struct([pa.field(name, pa.uint64(), False) for name in ("position", "size")])
ALIGN = 64
#: Blobs of at least this many bytes on average are written one by one.
_LARGE = 1 << 20


class BlobWriter:
    """Write blobs of a file of version 2.``minor``; ``append`` writes aligned bytes to it, and returns their place."""

    def __init__(self, store: Store | WriteGroup, key: str, append: Callable[[Any], int], minor: int) -> None:
        self._store, self._append, self._minor = store, append, minor
        self._key = key
        self._next_id = 1
        self._pack: IO[bytes] | None = None
        self._pack_id = self._pack_size = 0

    def replace(self, array: pa.Array, field: Field) -> pa.Array:
        """Write the blobs of an array; return it with descriptions in their place."""
        if not any(f.is_blob for f in field.walk()):
            return array
        array = storage_array(array)
        if field.is_blob:
            return self._describe(array, field)
        if pt.is_struct(array.type):
            children = [self.replace(array.field(i), child) for i, child in enumerate(field.children)]
            fields = [pa.field(f.name, child.type, f.nullable) for f, child in zip(array.type, children, strict=True)]
            missing = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(children, fields=fields, mask=missing)
        if self._minor < 2 or not (pt.is_list(array.type) or pt.is_large_list(array.type)):
            raise UnsupportedProtocolError(
                f"version 2.{self._minor} does not support blobs in {array.type}",
                help='use lists or structs, and data_storage_version="2.2"',
                column=field.name,
            )
        return with_items(array, lambda items: self.replace(items, field.children[0]))

    def close(self) -> None:
        """Finish the side files."""
        if self._pack is not None:
            self._pack.close()
            self._pack = None

    def discard(self) -> None:
        """Discard an incomplete side file, and remove the finished ones."""
        if self._pack is not None:
            self._pack.__exit__(InvalidArgumentError, InvalidArgumentError("discarded"), None)
            self._pack = None
        store = self._store.store if isinstance(self._store, WriteGroup) else self._store
        discard(store, [side_file(self._key, id) for id in range(1, self._next_id)])

    def _describe(self, array: pa.Array, field: Field) -> pa.Array:
        parts: dict[str, pa.Array] = {}
        if pt.is_struct(array.type):
            parts = dict(zip((f.name for f in array.type), array.flatten(), strict=True))
            if "data" not in parts:
                raise InvalidArgumentError(
                    f"expected a blob struct with the field 'data', got {array.type}",
                    help="pass bytes, or an array of lance.blob_array",
                    column=field.name,
                )
            data = storage_array(parts["data"]).cast(pa.large_binary())
        else:
            data = array.cast(pa.large_binary())
        missing = array.is_null().to_numpy(zero_copy_only=False)
        strings = Strings.of(data)
        sizes = np.where(data.is_null().to_numpy(zero_copy_only=False), 0, np.diff(strings.offsets))
        if "kind" in parts:
            return _prepared(parts, missing)
        if self._minor < 2:
            return _struct(RANGE, missing, self._inline(strings, sizes, np.flatnonzero(sizes)), sizes)
        return self._placed_by_size(field, parts, strings, sizes, missing)

    def _placed_by_size(
        self, field: Field, parts: dict[str, Any], strings: Strings, sizes: Any, missing: Any
    ) -> pa.Array:
        """Write small blobs to the data file, others to shared or separate side files; blobs at a URI stay there."""
        inline = whole_number(field.metadata, "blob-inline-size-threshold", 64 << 10)
        dedicated = whole_number(field.metadata, "blob-dedicated-size-threshold", 4 << 20)
        pack_file = whole_number(field.metadata, "blob-pack-file-size-threshold", 1 << 30)
        kinds = np.zeros(len(sizes), np.uint8)
        kinds[sizes > inline] = PACKED
        kinds[sizes >= dedicated] = DEDICATED
        ids = np.zeros(len(sizes), np.uint32)
        names = pa.repeat("", len(sizes))
        positions = self._inline(strings, sizes, np.flatnonzero((kinds == INLINE) & (sizes > 0)))
        for i in np.flatnonzero((kinds == PACKED) | (kinds == DEDICATED)).tolist():
            blob = strings.data[strings.offsets[i] : strings.offsets[i + 1]]
            if kinds[i] == DEDICATED:
                ids[i] = self._new_id()
                with self._store.open_output(side_file(self._key, int(ids[i]))) as file:
                    file.write(memoryview(blob))
            else:
                ids[i], positions[i] = self._packed(memoryview(blob), pack_file)
        uris = parts.get("uri")
        if uris is not None and uris.null_count < len(uris):
            external = uris.is_valid().to_numpy(zero_copy_only=False) & ~missing
            kinds[external] = EXTERNAL
            names = uris.cast(pa.string()).fill_null("")
            for name, target in (("position", positions), ("size", sizes)):
                if name in parts:
                    values = parts[name].cast(pa.int64()).fill_null(0).to_numpy()
                    target[external] = values[external]
        return _struct(DESCRIPTION_V2, missing, kinds, positions, sizes, ids, names)

    def _inline(self, strings: Strings, sizes: Any, which: Any) -> Any:
        """Write the blobs with indices ``which`` to the data file; return the positions of all blobs."""
        positions = np.zeros(len(sizes), np.int64)
        if len(which) and sizes[which].mean() < _LARGE:
            starts = np.zeros(len(which) + 1, np.int64)
            np.cumsum(-(-sizes[which] // ALIGN) * ALIGN, out=starts[1:])
            data = np.zeros(starts[-1], np.uint8)
            copy_strings(strings.offsets, strings.data, which, starts, data)
            positions[which] = self._append(data) + starts[:-1]
            return positions
        for i in which.tolist():
            positions[i] = self._append(strings.data[strings.offsets[i] : strings.offsets[i + 1]])
        return positions

    def _packed(self, blob: memoryview, limit: int) -> tuple[int, int]:
        """Write a blob to a shared side file; return the file's id and the blob's position."""
        if self._pack is not None and self._pack_size + len(blob) > limit:
            self.close()
        if self._pack is None:
            self._pack_id, self._pack_size = self._new_id(), 0
            self._pack = self._store.open_output(side_file(self._key, self._pack_id))
        position = self._pack_size
        self._pack.write(blob)
        self._pack_size += len(blob)
        return self._pack_id, position

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1


def _prepared(parts: dict[str, pa.Array], missing: Any) -> pa.Array:
    """Build the descriptions of blobs that are already in side files."""
    kinds, positions, sizes, ids = (
        parts[name].cast(pa.int64()).fill_null(0).to_numpy() for name in ("kind", "position", "blob_size", "blob_id")
    )
    wrong = ~missing & ~np.isin(kinds, (PACKED, DEDICATED))
    if wrong.any():
        raise InvalidArgumentError(
            f"a prepared blob must be packed or dedicated, got kind {kinds[wrong][0]}",
            help="write bytes and URIs with lance.blob_array",
        )
    return _struct(DESCRIPTION_V2, missing, kinds, positions, sizes, ids, pa.repeat("", len(kinds)))


def _struct(kind: pa.StructType, missing: Any, *columns: Any) -> pa.Array:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column.astype(field.type.to_pandas_dtype()))
        for field, column in zip(kind, columns, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(missing) if missing.any() else None)
