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
    """Delete a table with all its versions.  It cannot be taken back.

    Only files go that are the table's own: those that it names or its writers leave, behind no link and in no other
    table inside of its folder.  Others stay, and so does a folder that holds them.  The files of shallow clones, which
    lie in the table that was cloned, stay when the clone goes; they are lost to its clones when the table goes.  Stop
    writers first.

    Parameters
    ----------
    uri: a path, ``file:`` URI, ``s3://`` and friends, or ``memory://name``.
    dry_run: say what would be deleted, and change nothing.
    format: found out by looking where it is not given.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``TableNotFoundError``; ``CorruptLogError`` and ``UnsupportedProtocolError`` where it cannot be known which
    files are the table's, and then nothing is deleted; ``ConflictError`` where another process wrote in the meantime.

    >>> import trilake
    >>> _ = trilake.write({"n": [1]}, "memory://doc-drop")
    >>> trilake.drop("memory://doc-drop").files.num_rows
    2
    """
    store = open_store(uri, dict(storage_options or {}))
    try:
        adapter = find_format(store, format)
        if not adapter.tells_by_opening and below_table(store) is not None:
            raise TableNotFoundError("this is not a table of its own", file=store.uri)
        files = adapter.table_files(store)
    except TableNotFoundError as e:
        raise explained(e, store) from None
    if not dry_run:
        drop_files(files)
        if adapter.tells_by_opening and adapter.detect(store):
            raise ConflictError(
                "another process wrote into the table while it was dropped: its files are left, those before are gone",
                help="stop the writer, then remove the folder by hand",
                file=store.uri,
            )
    return DropResult(files.own, dry_run, files.foreign)
