"""Data files of any version: opened by what the entry of a manifest says, written by the version of the dataset.

The only room that knows both formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trilake.errors import UnsupportedProtocolError
from trilake.lance.file.reader import DataFileReader
from trilake.lance.file.schema import LanceSchema
from trilake.lance.file.storage_version import READABLE, WRITABLE, StorageVersion
from trilake.lance.file.writer import DataFileWriter
from trilake.lance.v1.data_file import V1File
from trilake.lance.v1.data_file_writer import V1Writer
from trilake.lance.v2.file import V2File
from trilake.storage.base import Store, WriteGroup


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
    store, key: where it is.
    schema: of the dataset, with the values of dictionaries that its manifest has.
    version: of the file, as its entry says.
    field_ids, column_indices: what the entry says of its fields; -2 stands for a field that another file has now, and
        for a field without a column.

    Raises ``MissingFileError``, ``CorruptFileError``, and ``UnsupportedProtocolError`` for a version that is not known.
    """
    if version.is_first:
        return V1File.open(store, key, schema, field_ids)
    if version not in READABLE:
        raise UnsupportedProtocolError(
            f"the file is of version {version} of Lance's file format; expected one of {', '.join(map(str, READABLE))}",
            file=f"{store.uri}/{key}",
        )
    return V2File.open(store, key, schema, field_ids, column_indices)


def new_data_file(
    store: Store | WriteGroup,
    key: str,
    schema: LanceSchema,
    version: StorageVersion,
    *,
    extend_dictionaries: bool = True,
    pages: Mapping[str, int] | None = None,
) -> DataFileWriter:
    """Begin a data file of a version.

    ``extend_dictionaries`` says whether dictionaries of the schema may get more values, in the first format, which has
    one for all files; ``pages`` are sizes that ``V2Writer`` knows.  Raises ``UnsupportedProtocolError`` for a type that
    the version does not have, and for a version that is not written.
    """
    if version not in WRITABLE:
        raise UnsupportedProtocolError(
            f"files of Lance {version} cannot be written",
            help=f"write one of {', '.join(map(str, WRITABLE))}",
            file=key,
        )
    if version.is_first:
        return V1Writer(store, key, schema, extend_dictionaries=extend_dictionaries)
    version.check_types(schema)
    from trilake.lance.v2.writer import V2Writer

    return V2Writer(store, key, schema, version=(version.major, version.minor), **(pages or {}))
