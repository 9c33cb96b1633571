"""``open``: a table of any format, without Spark; ``read`` and ``explain``: with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from trilake.common.arguments import as_version, checked
from trilake.common.timestamps import TimestampLike
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import TableNotFoundError
from trilake.storage import open_store
from trilake.table.explanation import Explanation
from trilake.table.location import explained
from trilake.table.registry import open_table
from trilake.table.table import FilterLike, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

    An older version never changes:

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
    """Open a table; the arguments have been checked."""
    version = as_version(version)
    store = open_store(uri, dict(storage_options or {}))
    try:
        return open_table(store, format, version, timestamp)
    except TableNotFoundError as e:
        raise explained(e, store) from None


@checked
def read(
    spark: SparkSession,
    uri: str | PathLike[str],
    *,
    format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    columns: Sequence[str] | None = None,
    filter: FilterLike | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a table as a Spark DataFrame, with Spark's native scan if possible, otherwise through Arrow.

    :func:`explain` shows which.

    Parameters
    ----------
    spark: the session.
    uri: a path, or a URI such as ``file:`` or ``s3://``.
    format: ``"delta"``, ``"lance"`` or ``"trevni"``; detected by default.
    version: the version to read; the newest by default.
    timestamp: read the version that was newest at that time, see :func:`open`.
    columns: the columns to read; all by default.
    filter: Spark SQL or a pyarrow expression: only matching rows are read, and files are skipped on the driver.
    storage_options: credentials, region and endpoint of an object store; those of the session by default.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``UnsupportedProtocolError``, ``CorruptLogError``,
    ``FilterError`` for a filter that does not fit the table, and ``InvalidArgumentError`` for an unknown column.

    >>> import trilake
    >>> _ = trilake.write(spark.range(5), "lake/read", mode="overwrite")
    >>> _ = trilake.write(spark.range(5, 7), "lake/read", mode="append")
    >>> sorted(row.id for row in trilake.read(spark, "lake/read", filter="id >= 4").collect())
    [4, 5, 6]
    >>> trilake.read(spark, "lake/read", version=0).count()
    5
    """
    from trilake.spark.session.format import spark_format_named
    from trilake.spark.session.settings import session_options

    storage_options = session_options(spark, uri, storage_options)
    table = open_at(uri, format, version, timestamp, storage_options)
    read, newest = spark_format_named(table.format).read, version is None and timestamp is None
    return read(spark, table, columns=columns, filter=filter, options=storage_options, newest=newest)


@checked
def explain(
    spark: SparkSession,
    uri: str | PathLike[str],
    filter: FilterLike | None = None,
    *,
    format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Explanation:
    """Explain what :func:`read` would do: which files it reads and skips, and why, and whether Spark scans them itself.

    Without Spark, use :meth:`trilake.table.table.Table.explain`.

    Parameters
    ----------
    spark: the session.
    uri: a path, or a URI such as ``file:`` or ``s3://``.
    filter: Spark SQL or a pyarrow expression; without one, all files are read.
    format, version, timestamp, storage_options: see :func:`read`.

    Raises the errors of :func:`read`.

    >>> import trilake
    >>> _ = trilake.write([{"n": 1}], "lake/explain", mode="overwrite")
    >>> _ = trilake.write([{"n": 9}], "lake/explain", mode="append")
    >>> plan = trilake.explain(spark, "lake/explain", "n > 5")
    >>> len(plan.kept), len(plan.skipped)
    (1, 1)
    >>> print(plan.notes[0])
    read by Spark's native scan
    """
    from trilake.spark.delta.reading.read import explain_read
    from trilake.spark.session.settings import session_options

    storage_options = session_options(spark, uri, storage_options)
    table = open_at(uri, format, version, timestamp, storage_options)
    if not isinstance(table, ArrowDeltaTable):  # the other formats are read one way only
        return table.explain(filter)
    return explain_read(spark, table, filter)
