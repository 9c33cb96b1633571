"""Names of indices: one names an index of one column, which a new index of the same column may replace."""

from __future__ import annotations

from trilake.common.arguments import flag
from trilake.lance.file.errors import IndexExistsError, UnknownColumnError
from trilake.lance.scan.snapshot import Snapshot


def check_name(snapshot: Snapshot, name: str, column: str, *, replace: bool) -> None:
    """Raise ``IndexExistsError`` where an index of the name is there and must not make room for one of ``column``, and
    ``UnknownColumnError`` where the column itself is not there any more.

    A commit removes the indices of the names that it adds, so one of another column would be lost without a word.
    """
    flag("replace", replace)
    field = snapshot.view.schema.find(column)
    own = () if field is None else (field.id,)
    for index in snapshot.manifest.indices:
        if index.name != name:
            continue
        if field is None:  # it was dropped or renamed since the caller looked
            names = ", ".join(snapshot.schema.names)
            raise UnknownColumnError(f"{column} not found in schema", help=f"there are {names}")
        if tuple(index.fields) != own:
            raise IndexExistsError(f"the index {name!r} already exists, of another column", help="choose another name")
        if not replace:
            raise IndexExistsError(f"the index {name!r} already exists", help="pass replace=True")
