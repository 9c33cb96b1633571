"""Convert extension types to field metadata, and back.

Lance stores the storage type and the metadata.  When data passes Arrow's C data interface, Arrow turns these into the
extension types that it has registered; nothing is copied.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa

from trilake.lance.file.types import EXTENSION_METADATA, EXTENSION_NAME


class _Schema(ctypes.Structure):
    """The head of the C data interface's ``ArrowSchema``."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def metadata_of(arrow: pa.BaseExtensionType) -> dict[bytes, bytes]:
    """The field metadata of an extension type.

    >>> metadata_of(pa.fixed_shape_tensor(pa.float32(), [2]))[EXTENSION_METADATA]
    b'{"shape":[2]}'
    """
    serialize = getattr(arrow, "__arrow_ext_serialize__", None)
    if serialize is not None:
        return {EXTENSION_NAME: arrow.extension_name.encode(), EXTENSION_METADATA: bytes(serialize())}
    # Arrow's built-in types expose it only through the C data interface.
    capsule = pa.field("", arrow).__arrow_c_schema__()
    at = _Schema.from_address(_pointer(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal at
        at += 4
        return ctypes.c_int32.from_address(at - 4).value

    def string() -> bytes:
        nonlocal at
        size = number()
        at += size
        return ctypes.string_at(at - size, size)

    # A count, then keys and values, each after its length.
    return {string(): string() for _ in range(number())}


class _Exported:
    """Exports data through the C data interface, so that Arrow imports it again."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_schema__(self) -> object:
        return self._data.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self._data.__arrow_c_array__(requested_schema)


def restore_schema(schema: pa.Schema) -> pa.Schema:
    """Restore the extension types that Arrow has registered."""
    return pa.schema(_Exported(schema))


def restore_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Restore the extension types that Arrow has registered."""
    return pa.record_batch(_Exported(batch))


def restore_table(table: pa.Table) -> pa.Table:
    """Restore the extension types that Arrow has registered."""
    return pa.Table.from_batches(map(restore_batch, table.to_batches()), restore_schema(table.schema))


def storage_array(array: pa.Array) -> pa.Array:
    """Return the storage of an extension array, and other arrays unchanged."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array
