"""``drop``: delete a table of any format, and no other files."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from trilake.common.arguments import checked
from trilake.errors import ConflictError, TableNotFoundError
from trilake.storage import open_store
from trilake.table.dropping import DropResult, drop_files
from trilake.table.location import below_table, explained
from trilake.table.registry import find_format


@checked
def drop(
    uri: str | PathLike[str],
    *,
    dry_run: bool = False,
    format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DropResult:
    """Delete a table with all its versions.  This cannot be undone.

    Only files of the table are deleted: those that it refers to and those that its writers left.  Files of other
    programs, of another table inside the folder, or behind a symbolic link stay, and so do the folders with such files.
    Dropping a shallow clone keeps the files of its source; dropping the source breaks its clones.  Stop writers first.

    Parameters
    ----------
    uri: a path, a URI such as ``file:``, ``s3://``, ``abfss://`` or ``gs://``, or ``memory://name``.
    dry_run: only list the files, and change nothing.
    format: detected by default.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``TableNotFoundError``; ``CorruptLogError`` or ``UnsupportedProtocolError``, deleting nothing, if the
    table's files cannot be determined; ``ConflictError`` if another process wrote to the table.

    >>> import trilake
    >>> _ = trilake.write({"n": [1]}, "memory://doc-drop")
    >>> trilake.drop("memory://doc-drop").files.num_rows
    2
    """
    store = open_store(uri, dict(storage_options or {}))
    try:
        adapter = find_format(store, format)
        if not adapter.tells_by_opening and below_table(store) is not None:
            raise TableNotFoundError("this folder is part of a table in a parent folder", file=store.uri)
        files = adapter.table_files(store)
    except TableNotFoundError as e:
        raise explained(e, store) from None
    if not dry_run:
        drop_files(files)
        if adapter.tells_by_opening and adapter.detect(store):
            raise ConflictError(
                "another process wrote to the table during the drop: its new files remain, all others are deleted",
                help="stop the writer, then remove the folder by hand",
                file=store.uri,
            )
    return DropResult(files.files, dry_run, files.foreign)
