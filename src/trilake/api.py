"""What users call: one set of names for every format.

A format is a row of :data:`~trilake.formats.FORMATS`.  Spark is imported only by the calls that need it, so that a
table opens without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import pyarrow as pa

from trilake.arguments import checked
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.isolation import parse_level
from trilake.delta.protocol.schema import from_arrow
from trilake.delta.table import ArrowDeltaTable
from trilake.engine import standard_engine
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.expr.nanoseconds import rounded_down
from trilake.formats import format_named, open_table
from trilake.storage import open_store
from trilake.storage.options import allowing_foreign
from trilake.storage.uri import location_text
from trilake.table import Explanation, FilterLike, Table, as_version
from trilake.timestamps import TimestampLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trilake.delta.commands.alter.alter_table import Alter
    from trilake.delta.commands.maintenance.convert import ConvertResult
    from trilake.delta.commands.write.create import CreateMode
    from trilake.delta.commands.write.write import WriteResult
    from trilake.delta.metadata.column_definitions import ColumnsLike, TypeLike
    from trilake.lance.table import LanceTable
    from trilake.trevni.tables.table import TrevniTable


_Uri: TypeAlias = str | PathLike[str]
_At: TypeAlias = TimestampLike | None
_Options: TypeAlias = Mapping[str, str] | None


@overload
def open(
    uri: _Uri,
    *,
    format: Literal["delta"] | None = ...,
    version: int | None = ...,
    timestamp: _At = ...,
    storage_options: _Options = ...,
) -> ArrowDeltaTable: ...


@overload
def open(
    uri: _Uri,
    *,
    format: Literal["lance"],
    version: int | None = ...,
    timestamp: _At = ...,
    storage_options: _Options = ...,
) -> LanceTable: ...


@overload
def open(
    uri: _Uri,
    *,
    format: Literal["trevni"],
    version: int | None = ...,
    timestamp: _At = ...,
    storage_options: _Options = ...,
) -> TrevniTable: ...


@overload
def open(
    uri: _Uri, *, format: str, version: int | None = ..., timestamp: _At = ..., storage_options: _Options = ...
) -> Table: ...


@checked
def open(
    uri: str | PathLike[str],
    *,
    format: str | None = None,
    version: int | None = None,
    timestamp: TimestampLike | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Open a table without Spark.

    To a type checker, a table whose format is not named is a Delta table; name the format of others.

    Parameters
    ----------
    uri: a path, ``file:`` URI, ``s3://`` and friends, or ``memory://name``.
    format: ``"delta"`` or another of :data:`~trilake.formats.FORMATS`; found out by looking where it is not given.
    version: the version to show; the newest by default.
    timestamp: show the version that was newest at that time instead (ISO text, datetime, or seconds since the epoch;
    UTC
        where no zone is given).
    storage_options: credentials, region and endpoint of an object store.

    Raises ``TableNotFoundError``, ``VersionNotFoundError``, ``UnsupportedProtocolError`` or ``CorruptLogError``.

    >>> import pyarrow as pa, trilake
    >>> trilake.write(pa.table({"n": [1, 2, 3]}), "memory://doc-open", mode="overwrite").version
    0
    >>> trilake.open("memory://doc-open").to_arrow(filter="n > 1").column("n").to_pylist()
    [2, 3]
    """
    return _open(uri, format, version, timestamp, storage_options)


def _open(
    uri: str | PathLike[str],
    format: str | None,
    version: int | None,
    timestamp: TimestampLike | None,
    storage_options: Mapping[str, str] | None,
) -> Table:
    version = as_version(version)
    store = open_store(uri, dict(storage_options or {}))
    return open_table(store, format, version, timestamp)


@checked
def write(
    data: Any,
    uri: str | PathLike[str],
    *,
    mode: str = "error",
    partition_by: str | Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    format: str = "delta",
    storage_options: Mapping[str, str] | None = None,
    replace_where: str | None = None,
    partition_overwrite: Literal["static", "dynamic"] | None = None,
    schema_mode: Literal["merge", "overwrite"] | None = None,
    txn: tuple[str, int] | None = None,
    isolation: str | None = None,
    user_metadata: str | None = None,
    data_format: str | None = None,
    optimize_write: bool | None = None,
    allow_foreign_files: bool = False,
    max_records_per_file: int | None = None,
    compression: str | None = None,
    round_times: bool = False,
) -> WriteResult:
    """Write rows into a table as one commit.

    Parameters
    ----------
    data: a Spark DataFrame; an Arrow table, record batch, reader, dataset or scanner, or an iterable of record batches;
        a pandas frame, a polars frame or lazy frame, a duckdb relation, or anything with the Arrow stream interface; a
        dict of columns, or a list of dicts.
    mode: ``"error"`` refuses where a table is there already, ``"ignore"`` then does nothing, ``"append"`` adds the
    rows,
        ``"overwrite"`` replaces what was there.
    partition_by: partition columns of a new table; for an existing one they must be its own.
    properties: table properties of a new table, such as ``{"delta.enableChangeDataFeed": "true"}``; for Trevni, how the
        files of this write are written, such as ``{"codec": "deflate", "rowGroupSize": "64m"}``, see
        :func:`trilake.trevni.tables.table_write.write_options`.
    format: ``"delta"``, ``"lance"``, whose ``properties`` are those of :func:`trilake.lance.table.write_options`, or
        ``"trevni"`` for a folder of Trevni files, which has no versions and no log.
    replace_where: with ``mode="overwrite"``, a predicate: only rows for which it is true are replaced, and all rows
        written must satisfy it.
    partition_overwrite: ``"dynamic"`` with ``mode="overwrite"`` replaces only the partitions that ``data`` has rows of,
        ``"static"`` all rows; where neither is said, a Spark DataFrame goes by its session's
        ``spark.sql.sources.partitionOverwriteMode``, and everything else is static.  ``"dynamic"`` goes neither with
        ``replace_where`` nor with ``schema_mode="overwrite"``, which say what is replaced, too.
    schema_mode: ``"merge"`` adds the columns that ``data`` has and the table lacks (and widens types where the table
        allows type widening); ``"overwrite"``, with ``mode="overwrite"``, gives the table the schema of ``data``, and
        ``partition_by`` where that is given.
    txn: an application id and the version of it that this write stands for.  A table that has that version, or a newer
        one, is left as it is: a write that is repeated happens once.
    isolation: ``"WriteSerializable"`` (the default, or the table's ``delta.isolationLevel``) or ``"Serializable"``.
    user_metadata: a text kept in the table's history.
    data_format: format of a new Delta table's data files, ``"parquet"`` by default, ``"lance"`` or ``"trevni"``: only
        this library reads such a table.
    optimize_write: whether rows of a partition are brought together before they are written, for fewer and larger
        files; as the table's ``delta.autoOptimize.optimizeWrite`` says by default.
    allow_foreign_files: make a new Delta table or Lance dataset although files lie in the folder that are of no table.
        Its readers do not see them.  A folder of Trevni files can never hold others.
    max_records_per_file: most rows of a data file of this write; no limit but the files' size by default.
    compression: of this write's Parquet files: ``"snappy"`` by default, ``"zstd"``, ``"gzip"``, ``"lz4"``,
        ``"brotli"`` or ``"none"``.
    round_times: whether times in nanoseconds, as pandas has them, are rounded down to the microseconds that a Delta
        table has.  Without it a time that would lose something is an error.  Lance and Trevni keep nanoseconds.

    Returns the version committed (``None`` for Trevni), and what was added and removed.  Nothing of a write that fails
    is ever visible.

    Raises ``TableExistsError`` (``ForeignFilesError`` where files of others are in the way of a new table),
    ``SchemaMismatchError``, ``ConflictError``, ``WriteFailedError`` or ``UnsupportedProtocolError``.

    >>> import pyarrow as pa, trilake
    >>> trilake.write(pa.table({"n": [1]}), "memory://doc-write", mode="overwrite").rows_added
    1
    """
    # Loaded here: a process that only opens tables needs none of it (tests/house/test_laziness.py).
    from trilake.delta.commands.write.replaced import check_dynamic_alone
    from trilake.delta.commands.write.request import WriteRequest, parse_mode
    from trilake.delta.commands.write.write import write_arrow
    from trilake.format_writes import write_lance, write_trevni
    from trilake.frames import arrow_batches, is_dataframe

    parsed = parse_mode(mode)
    options = allowing_foreign(storage_options, allow_foreign_files)
    if format_named(format).name != "delta":
        log_only: dict[str, object] = {
            "replace_where": replace_where,
            "partition_overwrite": None if partition_overwrite == "static" else partition_overwrite,
            "schema_mode": schema_mode,
            "txn": txn,
            "isolation": isolation,
            "user_metadata": user_metadata,
            "data_format": data_format,
            "optimize_write": optimize_write,
            "max_records_per_file": max_records_per_file,
            "compression": compression,
            "round_times": round_times or None,
        }
        if stated := [name for name, value in log_only.items() if value is not None]:
            raise InvalidArgumentError(
                f"only a table with a log knows {', '.join(stated)}",
                format=format,
                help='leave them out, or write format="delta"',
            )
        if format_named(format).name == "lance":
            return write_lance(data, uri, parsed, _names(partition_by), properties or {}, options)
        return write_trevni(data, uri, parsed, _names(partition_by), properties or {}, options)
    common: dict[str, Any] = {
        "mode": parsed,
        "partition_by": _names(partition_by),
        "properties": properties,
        "replace_where": replace_where,
        "partition_overwrite": partition_overwrite or "static",
        "schema_mode": schema_mode,
        "txn": txn,
        "isolation": None if isolation is None else parse_level(isolation),
        "user_metadata": user_metadata,
        "data_format": data_format,
        "optimize_write": optimize_write,
        "max_records_per_file": max_records_per_file,
        "compression": compression,
    }
    place = location_text(uri)
    if is_dataframe(data):
        from trilake.spark.delta.write import write_dataframe
        from trilake.spark.session.schemas import from_spark

        decided = () if partition_overwrite is None else ("partitionOverwriteMode",)
        request = WriteRequest(schema=from_spark(data.schema, limits=True), **common)
        check_dynamic_alone(request, place)
        return write_dataframe(data, place, options, request, decided=decided)
    schema, batches = arrow_batches(data)
    if round_times:
        schema, batches = rounded_down(schema, batches)
    request = WriteRequest(schema=from_arrow(schema), **common)
    check_dynamic_alone(request, place)
    log = DeltaLog(open_store(uri, options), standard_engine())
    return write_arrow(log, schema, batches, request)


def _names(columns: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    return (columns,) if isinstance(columns, str) else tuple(columns)


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
    """A table as a Spark DataFrame: Spark's native scan over exactly the snapshot's files wherever that is possible.

    Parameters are those of :func:`open`; ``columns`` projects, ``filter`` (Spark SQL text or a pyarrow expression)
    chooses rows and skips files on the driver.  Where Spark cannot read the store natively, the rows come through
    Arrow; :func:`explain` says which way is taken.
    """
    from trilake.spark.delta.read import read_dataframe
    from trilake.spark.session.storage import session_options

    storage_options = session_options(spark, uri, storage_options)
    table = _open(uri, format, version, timestamp, storage_options)
    if table.format == "lance":
        from trilake.lance.table import LanceTable
        from trilake.spark.lance import frames as lance_frames

        assert isinstance(table, LanceTable)
        return lance_frames.read_dataframe(spark, table, columns=columns, filter=filter, options=storage_options)
    if table.format == "trevni":
        from trilake.spark.trevni import read as trevni_read
        from trilake.trevni.tables.table import TrevniTable

        assert isinstance(table, TrevniTable)
        return trevni_read.read_dataframe(spark, table, columns=columns, filter=filter, options=storage_options)
    assert isinstance(table, ArrowDeltaTable)
    newest = version is None and timestamp is None
    options = dict(storage_options or {})
    return read_dataframe(spark, table, columns=columns, filter=filter, options=options, newest=newest)


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
    """What :func:`read` would do: the files it keeps and skips and why, and whether Spark scans them itself.

    Parameters are those of :func:`read`.  :meth:`trilake.table.Table.explain` says the same of files without Spark.
    """
    from trilake.spark.delta.read import explain_read
    from trilake.spark.session.storage import session_options

    storage_options = session_options(spark, uri, storage_options)
    table = _open(uri, format, version, timestamp, storage_options)
    if not isinstance(table, ArrowDeltaTable):  # the other formats are read one way only
        return table.explain(filter)
    return explain_read(spark, table, filter)


@checked
def create(
    uri: str | PathLike[str],
    columns: ColumnsLike,
    *,
    mode: CreateMode = "create",
    partition_by: str | Sequence[str] | None = None,
    cluster_by: str | Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    comment: str | None = None,
    generated: Mapping[str, str] | None = None,
    identity: Mapping[str, tuple[int, int]] | Sequence[str] | None = None,
    identity_takes_values: bool = False,
    defaults: Mapping[str, str] | None = None,
    data_format: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    allow_foreign_files: bool = False,
) -> int:
    """Make a Delta table without rows, as one commit; the version that there is afterwards.

    Parameters
    ----------
    uri: where the table is to be.
    columns: a schema, fields, or types by name: ``{"id": "bigint", "address": "struct<zip: string>"}``.
    mode: ``"create"`` refuses where a table is there, ``"create_if_not_exists"`` leaves it as it is, ``"replace"``
        needs one and takes its rows away, ``"create_or_replace"`` does either.
    partition_by, cluster_by: columns that files are grouped by, or rows are kept near each other by.
    properties: table properties.
    comment: what the table is, for people.
    generated: SQL expressions over other columns, by the name of the column that they compute.
    identity: columns of type ``bigint`` whose values the table makes up: a name, names, or start and step by name.
    identity_takes_values: whether rows may come with values of identity columns.
    defaults: SQL expressions of values for rows that leave a column out.
    data_format: format of the data files, ``"parquet"`` by default, ``"lance"`` or ``"trevni"``.
    allow_foreign_files: make it although files lie in the folder that are of no table; its readers do not see them.

    Raises ``TableExistsError``, ``TableNotFoundError``, ``InvalidArgumentError`` or ``ExpressionError``.

    >>> import pyarrow as pa, trilake
    >>> trilake.create(
    ...     "memory://doc-create-table",
    ...     {"id": "bigint", "at": "timestamp", "day": "date"},
    ...     identity=["id"],
    ...     generated={"day": "CAST(at AS DATE)"},
    ...     partition_by="day",
    ... )
    0
    >>> rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    >>> _ = trilake.write(rows, "memory://doc-create-table", mode="append")
    >>> trilake.open("memory://doc-create-table").to_arrow(["id", "day"]).to_pylist()
    [{'id': 1, 'day': datetime.date(1970, 1, 1)}]
    """
    from trilake.delta.commands.write.create import TableDescription, create_table, with_rules

    schema = with_rules(columns, generated or {}, identity or (), defaults or {}, explicit=identity_takes_values)
    description = TableDescription(
        schema,
        _names(partition_by) or (),
        dict(properties or {}),
        comment,
        _names(cluster_by) or (),
        data_format=data_format,
    )
    return create_table(
        DeltaLog(open_store(uri, allowing_foreign(storage_options, allow_foreign_files)), standard_engine()),
        description,
        mode=mode,
    ).version


@checked
def alter(uri: str | PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Alter:
    """Change the columns, constraints, properties and features of a Delta table: each method is one commit.

    Raises ``TableNotFoundError`` where there is no Delta table.

    >>> import pyarrow as pa, trilake
    >>> _ = trilake.write(pa.table({"n": [1]}), "memory://doc-api-alter", mode="overwrite")
    >>> trilake.alter("memory://doc-api-alter").add_constraint("positive", "n > 0")
    1
    >>> trilake.write(pa.table({"n": [-1]}), "memory://doc-api-alter", mode="append")
    Traceback (most recent call last):
    trilake.errors.ConstraintViolatedError: ... CHECK constraint positive (n > 0) violated by row with values: n = -1...
    """
    from trilake.delta.commands.alter.alter_table import Alter

    log = DeltaLog(open_store(uri, dict(storage_options or {})), standard_engine())
    if not log.exists():
        raise TableNotFoundError("no Delta table to alter", file=log.store.uri)
    return Alter(log)


@checked
def convert_to_delta(
    uri: str | PathLike[str],
    partition_by: str | Sequence[str] | Mapping[str, TypeLike] | pa.Schema | None = None,
    *,
    target: str | PathLike[str] | None = None,
    collect_stats: bool = True,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ConvertResult:
    """Make a Delta table of a folder of Parquet files, where it is; no file is rewritten and no row is read.

    Parameters
    ----------
    uri: the folder.
    partition_by: the partition columns in the order of the folders: names, whose types are inferred, types by name, a
        schema, or SQL such as ``"day date, n int"``.  All is inferred where it is left out.
    target: another place for the log: the table there names the files where they are, as a shallow clone does.
    collect_stats: whether the files' own statistics go into the log.
    properties: table properties.

    Where a Delta table is there already, nothing happens.  Raises ``TableNotFoundError`` where there is no file,
    ``CorruptFileError`` for one that is not Parquet, ``SchemaMismatchError`` for files that cannot be one table,
    ``InvalidArgumentError`` for folders that contradict each other.
    """
    from trilake.delta.commands.maintenance import convert
    from trilake.delta.commands.maintenance.convert_partitions import given_columns

    options = dict(storage_options or {})
    return convert.convert_to_delta(
        open_store(uri, options),
        standard_engine(),
        partition_by=given_columns(partition_by),
        into=None if target is None else open_store(target, options),
        collect_stats=collect_stats,
        properties=properties,
    )


def register(spark: SparkSession) -> list[str]:
    """Make ``spark.read.format("delta")`` and its likes work in a session; see :mod:`trilake.spark.front.register`.

    The session is looked at once.  A local one whose tasks nobody has told an interpreter gets that of this process.

    Returns the format names that were registered.  Raises ``MissingDependencyError`` without PySpark, and
    ``UnsupportedSparkError`` for a PySpark that is too old and for a local session whose tasks run an interpreter that
    cannot do the work.
    """
    from trilake.spark.session.checks import check_pyspark

    check_pyspark()
    from trilake.spark.front import register as module

    return module.register(spark)


def unregister(spark: SparkSession) -> None:
    """Take back what :func:`register` did to Spark's reader and writer classes.

    They are Spark's own again once every session that registered has done this.
    """
    from trilake.spark.front import register as module

    module.unregister(spark)
