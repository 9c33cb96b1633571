"""``write``: write rows of any kind to a table of any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from trilake.common.arguments import checked, column_names
from trilake.delta.protocol.property_values import parse_level
from trilake.storage import open_store
from trilake.storage.options import allowing_foreign
from trilake.storage.uri import location_string
from trilake.table.format import TableWrite, parse_mode
from trilake.table.registry import DEFAULT, format_named
from trilake.table.results import WriteResult


@checked
def write(
    data: Any,
    uri: str | PathLike[str],
    *,
    mode: str = "error",
    partition_by: str | Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    format: str = DEFAULT,
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
    round_times: bool | None = None,
) -> WriteResult:
    """Write rows into a table as one commit.

    Parameters
    ----------
    data: a Spark DataFrame; an Arrow table, record batch, reader, dataset or scanner, or an iterable of record
        batches; a pandas DataFrame, a polars DataFrame or LazyFrame, a DuckDB relation, a dataset of Hugging Face, or
        any object with the Arrow stream or array interface; a dict of columns, or a list of dicts.
    uri: a path, a URI such as ``file:``, ``s3://``, ``abfss://`` or ``gs://``, or ``memory://name``.
    mode: for an existing table, ``"error"`` (the default) raises, ``"ignore"`` does nothing, ``"append"`` adds the
        rows, and ``"overwrite"`` replaces its rows.
    partition_by: partition columns of a new table; for an existing table they must be the same.
    properties: table properties of a new table, such as ``{"delta.enableChangeDataFeed": "true"}``; for Trevni,
        options of the files, such as ``{"codec": "deflate", "rowGroupSize": "64m"}``, see
        :func:`trilake.trevni.tables.table_write.write_options`.
    format: ``"delta"``; ``"lance"``, with the ``properties`` of :func:`trilake.lance.table.write_options`; or
        ``"trevni"``, a folder of files without versions and log.
    storage_options: credentials, region and endpoint of an object store.
    replace_where: with ``mode="overwrite"``, a condition: only rows for which it is true are replaced, and all new
        rows must match it.
    partition_overwrite: with ``mode="overwrite"``, ``"dynamic"`` replaces only the partitions that get rows,
        ``"static"`` all rows.  The default is static, or ``spark.sql.sources.partitionOverwriteMode`` for a Spark
        DataFrame. ``"dynamic"`` cannot be combined with ``replace_where`` or ``schema_mode="overwrite"``.
    schema_mode: ``"merge"`` adds columns that the table lacks, and widens types if the table has type widening;
        ``"overwrite"``, with ``mode="overwrite"``, replaces the table's schema, and its partition columns if
        ``partition_by`` is given.
    txn: an application id and a version.  If the table has this version or a newer one of the application, nothing is
        written: a repeated write happens once.
    isolation: ``"WriteSerializable"`` or ``"Serializable"``; the table's ``delta.isolationLevel`` by default.
    user_metadata: a string for the table's history.
    data_format: format of a new Delta table's data files: ``"parquet"`` (the default), ``"lance"`` or ``"trevni"``.
        Only trilake reads tables with the last two.
    optimize_write: shuffle rows by partition before they are written, for fewer and larger files; the table's
        ``delta.autoOptimize.optimizeWrite`` by default.
    allow_foreign_files: create a Delta table or Lance dataset in a folder with other files, which its readers do not
        see. Not for Trevni.
    max_records_per_file: maximum rows per data file.
    compression: codec of Parquet files: ``"snappy"`` (the default), ``"zstd"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or
        ``"none"``.
    round_times: round nanoseconds down to microseconds, the precision of Delta tables; ``False`` rejects times that
        would be rounded.  Lance and Trevni keep nanoseconds.

    Returns the committed version (``None`` for Trevni), and the numbers of added and removed rows and files.  A write
    that fails is never visible.

    Raises ``TableExistsError`` (``ForeignFilesError`` if the folder of a new table has other files),
    ``SchemaMismatchError``, ``ConflictError``, ``WriteFailedError`` or ``UnsupportedProtocolError``.

    >>> import pyarrow as pa, trilake
    >>> trilake.write(pa.table({"n": [1]}), "memory://doc-write", mode="overwrite").rows_added
    1
    >>> trilake.write([{"n": 2, "note": "new"}], "memory://doc-write", mode="append", schema_mode="merge").version
    1
    >>> trilake.open("memory://doc-write").to_arrow(filter="n = 2").to_pylist()
    [{'n': 2, 'note': 'new'}]

    With ``replace_where``, only a part of the table is replaced:

    >>> done = trilake.write({"n": [1, 1]}, "memory://doc-write", mode="overwrite", replace_where="n = 1")
    >>> sorted(trilake.open("memory://doc-write").to_arrow(["n"])["n"].to_pylist())
    [1, 1, 2]
    """
    from trilake.table.frames import arrow_batches, is_dataframe  # late: tables are opened without it

    if isinstance(data, str | PathLike):
        arrow_batches(data)  # raises an error: the rows come first
    log_only = {
        "replace_where": replace_where,
        "partition_overwrite": partition_overwrite,
        "schema_mode": schema_mode,
        "txn": txn,
        "isolation": None if isolation is None else parse_level(isolation),
        "user_metadata": user_metadata,
        "data_format": data_format,
        "optimize_write": optimize_write,
        "max_records_per_file": max_records_per_file,
        "compression": compression,
        "round_times": round_times,
    }
    request = TableWrite(
        parse_mode(mode),
        column_names(partition_by),
        properties or {},
        {name: value for name, value in log_only.items() if value is not None},
    )
    options = allowing_foreign(storage_options, allow_foreign_files)
    local = format_named(format)
    if is_dataframe(data):
        from trilake.spark.session.format import spark_format_named

        return spark_format_named(format).write(data, location_string(uri), options, request)
    return local.write(open_store(uri, options), data, request)
