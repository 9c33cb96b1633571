"""Open and create data files of any version: from manifest entries, or by themselves.

Only this module depends on both formats, legacy and 2.x.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from trilake.errors import CorruptFileError, UnsupportedProtocolError
from trilake.lance.file.framing import MAGIC, MAJOR, NEWEST_MINOR
from trilake.lance.file.interfaces import DataFileReader, DataFileWriter
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import READABLE, WRITABLE, StorageVersion
from trilake.lance.v1.data_file import V1File
from trilake.lance.v1.data_file_writer import V1Writer
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store, WriteGroup

#: The end of every file: the format's version and its magic bytes.
_END = struct.Struct("<HH4s")


def open_data_file(
    store: Store,
    key: str,
    schema: LanceSchema,
    version: StorageVersion,
    field_ids: Sequence[int],
    column_indices: Sequence[int] = (),
) -> DataFileReader:
    """Open a data file.

    Parameters
    ----------
    store, key: location of the file.
    schema: schema of the dataset, with dictionary values.
    version: file version in the manifest entry.
    field_ids, column_indices: fields in the manifest entry; -2 marks a field that moved to another file, or has no
        column.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for an unknown version.
    """
    if version.is_legacy:
        return V1File.open(store, key, schema, field_ids)
    if version not in READABLE:
        raise UnsupportedProtocolError(
            f"file version {version} is not supported, expected one of {', '.join(map(str, WRITABLE))}",
            file=f"{store.uri}/{key}",
        )
    return V2File.open(store, key, schema, field_ids, column_indices)


def open_by_footer(store: Store, key: str) -> V1File | V2File:
    """Open a data file of the version that its footer states.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for unsupported versions.
    """
    return open_if_2x(store, key) or V1File.open(store, key)


def open_if_2x(store: Store, key: str) -> V2File | None:
    """Open a file of version 2.x; return ``None`` for the legacy format."""
    try:
        return V2File.open(store, key)
    except (CorruptFileError, UnsupportedProtocolError):  # files of the legacy format may be shorter than a footer
        *_, major, minor, magic = _END.unpack(store.read_sized(key, _END.size, end=True)[1].to_pybytes().rjust(8))
        if (major, magic) != (MAJOR, MAGIC) or minor > NEWEST_MINOR:
            raise
        return None


def new_data_file(
    store: Store | WriteGroup,
    key: str,
    schema: LanceSchema,
    version: StorageVersion,
    *,
    extend_dictionaries: bool = True,
    pages: Mapping[str, int] | None = None,
) -> DataFileWriter:
    """Create a data file.

    ``extend_dictionaries`` allows dictionaries to grow in the legacy format, in which all files share them.  ``pages``
    are page sizes for ``V2Writer``.  Raises ``UnsupportedProtocolError`` for an unsupported type or version.
    """
    if version not in WRITABLE:
        raise UnsupportedProtocolError(
            f"file version {version} is not supported for writing",
            help=f"write one of {', '.join(map(str, WRITABLE))}",
            file=key,
        )
    if version.is_legacy:
        return V1Writer(store, key, schema, extend_dictionaries=extend_dictionaries)
    version.check_types(schema)
    from trilake.lance.v2.writer import V2Writer

    return V2Writer(store, key, schema, version=(version.major, version.minor), **(pages or {}))
