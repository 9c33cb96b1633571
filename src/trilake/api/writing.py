"""``write``: rows of any kind into a table of any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from trilake.api.definitions import column_names
from trilake.common.arguments import checked
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.isolation import parse_level
from trilake.delta.protocol.schema import from_arrow
from trilake.engine import standard_engine
from trilake.errors import InvalidArgumentError
from trilake.expr.nanoseconds import rounded_down
from trilake.formats import format_named
from trilake.storage import open_store
from trilake.storage.options import allowing_foreign
from trilake.storage.uri import location_text

if TYPE_CHECKING:
    from trilake.delta.commands.write.write import WriteResult


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
    >>> trilake.write([{"n": 2, "note": "new"}], "memory://doc-write", mode="append", schema_mode="merge").version
    1
    >>> trilake.open("memory://doc-write").to_arrow(filter="n = 2").to_pylist()
    [{'n': 2, 'note': 'new'}]

    Only a part of a table is replaced with ``replace_where``:

    >>> done = trilake.write({"n": [1, 1]}, "memory://doc-write", mode="overwrite", replace_where="n = 1")
    >>> sorted(trilake.open("memory://doc-write").to_arrow(["n"])["n"].to_pylist())
    [1, 1, 2]
    """
    # Loaded here: a process that only opens tables needs none of it (tests/house/test_laziness.py).
    from trilake.delta.commands.write.replaced import check_dynamic_alone
    from trilake.delta.commands.write.request import WriteRequest, parse_mode
    from trilake.delta.commands.write.write import write_arrow
    from trilake.format_writes import write_lance, write_trevni
    from trilake.table.frames import arrow_batches, is_dataframe

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
            return write_lance(data, uri, parsed, column_names(partition_by), properties or {}, options)
        return write_trevni(data, uri, parsed, column_names(partition_by), properties or {}, options)
    common: dict[str, Any] = {
        "mode": parsed,
        "partition_by": column_names(partition_by),
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
    if is_dataframe(data):
        from trilake.spark.delta.write import write_dataframe
        from trilake.spark.session.schemas import from_spark

        decided = () if partition_overwrite is None else ("partitionOverwriteMode",)
        place, request = location_text(uri), WriteRequest(schema=from_spark(data.schema, limits=True), **common)
        check_dynamic_alone(request, place)
        return write_dataframe(data, place, options, request, decided=decided)
    schema, batches = arrow_batches(data)
    if round_times:
        schema, batches = rounded_down(schema, batches)
    request = WriteRequest(schema=from_arrow(schema), **common)
    check_dynamic_alone(request, location_text(uri))
    log = DeltaLog(open_store(uri, options), standard_engine())
    return write_arrow(log, schema, batches, request)
