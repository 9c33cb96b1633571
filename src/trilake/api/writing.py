"""``write``: rows of any kind into a table of any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from trilake.api.definitions import column_names
from trilake.common.arguments import checked
from trilake.delta.protocol.property_values import parse_level
from trilake.storage import open_store
from trilake.storage.options import allowing_foreign
from trilake.storage.uri import location_text
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
    data: a Spark DataFrame; an Arrow table, record batch, reader, dataset or scanner, or an iterable of record batches;
        a pandas frame, a polars frame or lazy frame, a duckdb relation, or anything with the Arrow stream or array
        interface; a dict of columns, or a list of dicts.
    uri: where the table is or is to be: a path, ``file:`` URI, ``s3://`` and friends, or ``memory://name``.
    mode: ``"error"`` refuses where a table is there already, ``"ignore"`` then does nothing, ``"append"`` adds the
        rows, ``"overwrite"`` replaces what was there.
    partition_by: partition columns of a new table; for an existing one they must be its own.
    properties: table properties of a new table, such as ``{"delta.enableChangeDataFeed": "true"}``; for Trevni, how the
        files of this write are written, such as ``{"codec": "deflate", "rowGroupSize": "64m"}``, see
        :func:`trilake.trevni.tables.table_write.write_options`.
    format: ``"delta"``, ``"lance"``, whose ``properties`` are those of :func:`trilake.lance.table.write_options`, or
        ``"trevni"`` for a folder of Trevni files, which has no versions and no log.
    storage_options: credentials, region and endpoint of an object store.
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
    user_metadata: a string kept in the table's history.
    data_format: format of a new Delta table's data files, ``"parquet"`` by default, ``"lance"`` or ``"trevni"``: only
        this library reads such a table.
    optimize_write: whether rows of a partition are brought together before they are written, for fewer and larger
        files; as the table's ``delta.autoOptimize.optimizeWrite`` says by default.
    allow_foreign_files: make a new Delta table or Lance dataset although files lie in the folder that are of no table.
        Its readers do not see them.  A folder of Trevni files can never hold others.
    max_records_per_file: most rows of a data file of this write; no limit but the files' size by default.
    compression: of this write's Parquet files: ``"snappy"`` by default, ``"zstd"``, ``"gzip"``, ``"lz4"``,
        ``"brotli"`` or ``"none"``.
    round_times: times in nanoseconds, as pandas has them, are cut to the microsecond before, the finest that a Delta
        table has, as PySpark cuts them; ``False`` refuses a time that would lose something.  Lance and Trevni keep
        nanoseconds.

    Returns the version committed (``None`` for Trevni), and what was added and removed.  Nothing of a write that fails
    is ever visible.

    Raises ``TableExistsError`` (``ForeignFilesError`` where files of others are in the way of a new table),
    ``SchemaMismatchError``, ``ConflictError``, ``WriteFailedError`` or ``UnsupportedProtocolError``.

    >>> import pyarrow as pa, trilake
    >>> trilake.write(pa.table({"n": [1]}), "memory://doc-write", mode="overwrite").rows_added
    1
    >>> trilake.write([{"n": 2, "note": "new"}], "memory://doc-write", mode="append", schema_mode="merge").version
    1
    >>> trilake.open("memory://doc-write").to_arrow(filter="n = 2").to_pylist()
    [{'n': 2, 'note': 'new'}]

    Only a part of a table is replaced with ``replace_where``:

    >>> done = trilake.write({"n": [1, 1]}, "memory://doc-write", mode="overwrite", replace_where="n = 1")
    >>> sorted(trilake.open("memory://doc-write").to_arrow(["n"])["n"].to_pylist())
    [1, 1, 2]
    """
    from trilake.table.frames import arrow_batches, is_dataframe  # late: tables are opened without it

    if isinstance(data, str | PathLike):
        arrow_batches(data)  # which says that the rows come first
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

        return spark_format_named(format).write(data, location_text(uri), options, request)
    return local.write(open_store(uri, options), data, request)
