"""``verify``: check a table against the rules of its format."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from trilake.common.arguments import as_version, checked, count
from trilake.errors import InvalidArgumentError
from trilake.storage import open_store
from trilake.table.findings import MAX_LISTED, Findings, as_depth
from trilake.table.registry import find_format, format_named
from trilake.table.table import Table


@checked
def verify(
    uri_or_table: str | PathLike[str] | Table,
    *,
    version: int | None = None,
    depth: str = "rows",
    sample: int | None = None,
    limit: int = MAX_LISTED,
    format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Findings:
    """Check a table against every rule of its format; each finding says what is wrong, where, and what to do.

    Changes nothing and does not stop at the first finding; an unreadable file is a finding.

    Parameters
    ----------
    uri_or_table: a location, or an open table, whose version is verified.
    version: the version of a location; the newest by default.
    depth: ``"log"`` reads only the metadata; ``"files"`` also checks every file (size, footer, deletion vectors),
        without its rows; ``"rows"`` also reads rows and compares them with statistics and rules.
    sample: at depth ``"rows"``, read the rows of this many files, spread over the table; all by default.
    limit: how many findings of a check are listed; all are counted.
    format: detected by default.
    storage_options: credentials, region and endpoint of an object store.

    Raises ``TableNotFoundError`` if there is no table, ``VersionNotFoundError`` for a version that it does not have,
    and ``InvalidArgumentError`` for an invalid argument.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1, 2]}), "memory://doc-verify", mode="overwrite")
    >>> trilake.verify("memory://doc-verify").ok
    True
    """
    deep = as_depth(depth)
    sample, limit = None if sample is None else count("sample", sample, least=1), count("limit", limit)
    if sample is not None and deep != "rows":
        raise InvalidArgumentError(
            f"sample needs depth='rows', got depth={depth!r}", help="pass depth='rows', or leave sample out"
        )
    if isinstance(uri_or_table, Table):
        if version is not None or format is not None or storage_options is not None:
            raise InvalidArgumentError(
                "version, format and storage_options apply to a location, but the table is open", help="leave them out"
            )
        table = uri_or_table
        adapter = format_named(table.format)
        return adapter.verify(adapter.store_of(table), table.version, deep, sample, limit)
    store = open_store(uri_or_table, dict(storage_options or {}))
    return find_format(store, format).verify(store, as_version(version), deep, sample, limit)
