"""``diff``: compare two tables, or two versions of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

from trilake.api.opening import open_at
from trilake.common.arguments import checked
from trilake.errors import InvalidArgumentError
from trilake.table.comparison.result import TableDiff
from trilake.table.table import FilterLike, Table


@checked
def diff(
    before: str | PathLike[str] | Table,
    after: str | PathLike[str] | Table | None = None,
    *,
    before_version: int | None = None,
    after_version: int | None = None,
    key: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    rows: bool = True,
    limit: int = 20,
    format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> TableDiff:
    """Compare two tables, or two versions of one: schema, properties, files and rows.

    Parameters
    ----------
    before, after: locations, or open tables; without ``after``, another version of ``before``.
    before_version, after_version: the versions of locations; the newest by default.
    key, columns, filter, rows, limit: see :meth:`trilake.table.table.Table.diff`.
    format: format of the locations; detected by default.
    storage_options: options of their stores.

    Raises ``InvalidArgumentError`` for versions of an open table, and the errors of :func:`trilake.open` and
    :meth:`trilake.table.table.Table.diff`.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-diff-uri", mode="overwrite")
    >>> _ = trilake.write(pa.table({"n": [3]}), "memory://doc-diff-uri", mode="append")
    >>> print(trilake.diff("memory://doc-diff-uri", before_version=0))
    delta memory://doc-diff-uri version 0 -> delta memory://doc-diff-uri version 1
    files: 1 added, 0 removed, 1 the same
    rows: 1 added, 0 removed, 2 the same
    """
    if after is None:
        if isinstance(before, Table):
            raise InvalidArgumentError("nothing to compare the open table with", help="pass a second table or version")
        after = before
    if isinstance(before, Table) and isinstance(after, Table) and (format is not None or storage_options is not None):
        raise InvalidArgumentError(
            "format and storage_options apply to locations, but both tables are open", help="leave them out"
        )
    old = _open(before, before_version, format, storage_options)
    new = _open(after, after_version, format, storage_options)
    return old.diff(new, key=key, columns=columns, filter=filter, rows=rows, limit=limit)


def _open(
    table: str | PathLike[str] | Table, version: int | None, format: str | None, options: Mapping[str, str] | None
) -> Table:
    if isinstance(table, Table):
        if version is not None:
            raise InvalidArgumentError(
                f"expected a location for version {version}, got an open table",
                help="pass the table opened at that version, or its location",
            )
        return table
    return open_at(table, format, version, None, options)
