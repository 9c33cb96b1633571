"""``open``: a table of any format, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from trilake.common.arguments import checked
from trilake.common.timestamps import TimestampLike
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import TableNotFoundError
from trilake.storage import open_store
from trilake.table.location import explained
from trilake.table.registry import open_table
from trilake.table.table import Table, as_version

if TYPE_CHECKING:
    from trilake.lance.table import LanceTable
    from trilake.trevni.tables.table import TrevniTable


_Uri: TypeAlias = str | PathLike[str]
_At: TypeAlias = TimestampLike | None
_V: TypeAlias = int | None
_O: TypeAlias = Mapping[str, str] | None


@overload
def open(
    uri: _Uri,
    *,
    format: Literal["delta"] | None = ...,
    version: _V = ...,
    timestamp: _At = ...,
    storage_options: _O = ...,
) -> ArrowDeltaTable: ...
@overload
def open(
    uri: _Uri, *, format: Literal["lance"], version: _V = ..., timestamp: _At = ..., storage_options: _O = ...
) -> LanceTable: ...
@overload
def open(
    uri: _Uri, *, format: Literal["trevni"], version: _V = ..., timestamp: _At = ..., storage_options: _O = ...
) -> TrevniTable: ...
@overload
def open(uri: _Uri, *, format: str, version: _V = ..., timestamp: _At = ..., storage_options: _O = ...) -> Table: ...
@checked
def open(
    uri: str | PathLike[str],
    *,
    format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Open a table without Spark.  To a type checker, the result is a Delta table unless you pass the format.

    Parameters
    ----------
    uri: a path, a URI such as ``file:``, ``s3://``, ``abfss://`` or ``gs://``, or ``memory://name``.
    format: ``"delta"`` or another of :func:`~trilake.table.registry.names`; detected by default.
    version: the version to open; the newest by default.
    timestamp: open the version that was newest at that time (an ISO string, a datetime, or seconds since the epoch;
        UTC without a zone).
    storage_options: credentials, region and endpoint of an object store.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``UnsupportedProtocolError`` or ``CorruptLogError``.

    >>> import pyarrow as pa, trilake
    >>> trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-open", mode="overwrite").version
    0
    >>> trilake.open("memory://doc-open").to_arrow(filter="n > 1").column("n").to_pylist()
    [2, 3]

    An older version stays as it was:

    >>> _ = trilake.write(pa.table({"n": [4]}), "memory://doc-open", mode="append")
    >>> trilake.open("memory://doc-open").count(), trilake.open("memory://doc-open", version=0).count()
    (4, 3)
    """
    return open_at(uri, format, version, timestamp, storage_options)


def open_at(
    uri: str | PathLike[str],
    format: str | None,
    version: int | None,
    timestamp: TimestampLike | None,
    storage_options: Mapping[str, str] | None,
) -> Table:
    """Open a table, with arguments that were checked."""
    version = as_version(version)
    store = open_store(uri, dict(storage_options or {}))
    try:
        return open_table(store, format, version, timestamp)
    except TableNotFoundError as e:
        raise explained(e, store) from None
