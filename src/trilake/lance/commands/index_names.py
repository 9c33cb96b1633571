"""Rules for names of indices: a name belongs to one column, and replacing needs ``replace=True``."""

from __future__ import annotations

from trilake.common.arguments import flag
from trilake.lance.file.errors import IndexExistsError, UnknownColumnError
from trilake.lance.scan.snapshot import Snapshot


def check_name(snapshot: Snapshot, name: str, column: str, *, replace: bool) -> None:
    """Raise ``IndexExistsError`` if the name is taken, and ``UnknownColumnError`` if the column does not exist.

    A commit replaces indices of the same name, so without this check the index of another column would be lost.
    """
    flag("replace", replace)
    field = snapshot.view.schema.find(column)
    ids = () if field is None else (field.id,)
    for index in snapshot.manifest.indices:
        if index.name != name:
            continue
        if field is None:  # dropped or renamed by a concurrent commit
            names = ", ".join(snapshot.schema.names)
            raise UnknownColumnError(f"{column} not found in schema", help=f"columns are {names}")
        if tuple(index.fields) != ids:
            raise IndexExistsError(f"the index {name!r} already exists, on another column", help="choose another name")
        if not replace:
            raise IndexExistsError(f"the index {name!r} already exists", help="pass replace=True")
