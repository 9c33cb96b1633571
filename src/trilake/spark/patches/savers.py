"""How each format writes a DataFrame that Spark will not hand to a Python data source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trilake.delta.commands.write.create import TableDescription
from trilake.delta.commands.write.request import WriteRequest
from trilake.errors import InvalidArgumentError
from trilake.spark.delta.settings import default_properties
from trilake.spark.delta.source import WRITE_OPTIONS
from trilake.spark.delta.write import write_dataframe
from trilake.spark.delta.writer import write_request
from trilake.spark.lance.vectors import Vectors
from trilake.spark.patches.dataframe_writer import NAMED, SAVERS, Saver, SaveRequest, take_over
from trilake.spark.patches.merge_writer import take_over_merges
from trilake.spark.patches.table_writer import take_over_tables
from trilake.spark.session.options import Options
from trilake.spark.trevni import source as trevni_source
from trilake.spark.trevni import write as trevni_write
from trilake.table.format import parse_mode
from trilake.trevni.tables.table_write import write_options as trevni_options

#: The property by which Spark's ``tableProperty`` says what a new table is for; no property of the table.
_COMMENT = "comment"


def _refuse_buckets(request: SaveRequest, path: str) -> None:
    """Refuse what Spark's own formats alone do.  Raises ``InvalidArgumentError``."""
    if request.buckets is not None:
        raise InvalidArgumentError(
            f"{request.buckets} is not done for {request.format} tables",
            help=f"leave {request.buckets} out; partitionBy and clusterBy group the rows of a Delta table",
            file=path,
        )
    if request.cluster_by and not request.format.endswith("delta"):
        raise InvalidArgumentError(
            f"a {request.format} table has no clustering columns", help="leave clusterBy out", file=path
        )


def _check_partitions(request: SaveRequest, options: Options, path: str) -> None:
    """Refuse two lists of partition columns.  Raises ``InvalidArgumentError``."""
    if request.partition_by and options.get("partitionBy") is not None:
        raise InvalidArgumentError(
            "partitionBy() and the option partitionBy both say how the table is partitioned",
            help="leave one of them out",
            file=path,
        )


def save_delta(request: SaveRequest, path: str) -> None:
    """Write a Delta table in any mode, partitioned or clustered or neither.

    Raises ``InvalidArgumentError`` where it is to be bucketed.
    """
    _refuse_buckets(request, path)
    options = Options(request.options, WRITE_OPTIONS, properties=True)
    _check_partitions(request, options, path)
    write = write_request(options, request.df.schema, request.mode == "overwrite")
    properties = dict(request.properties)
    comment = properties.pop(_COMMENT, None)
    write = replace(
        write,
        mode=parse_mode(request.mode),
        partition_by=request.partition_by or write.partition_by,
        properties={**(write.properties or {}), **properties} or None,
        cluster_by=request.cluster_by,
        operation=request.operation or write.operation,
        managed=None if request.operation is None else request.managed,
        save_as_table=request.operation == "CREATE OR REPLACE TABLE AS SELECT" and not request.replaces,
        must_exist=request.must_exist,
    )
    if request.replaces or comment is not None:
        if request.operation is None:
            raise InvalidArgumentError(
                "a comment is said of a table that is made or replaced",
                help="write COMMENT ON TABLE t IS '...' to change that of a table that is there",
                file=path,
            )
        write = _in_place(request, write, comment)
    write_dataframe(request.df, path, options.store, write, decided=options.values)


def _in_place(request: SaveRequest, write: WriteRequest, comment: str | None) -> WriteRequest:
    """The write that makes a table, or an existing one, what the frame and the chain of calls say, as REPLACE TABLE AS
    SELECT."""
    table = TableDescription(
        write.schema,
        write.partition_by or (),
        {**default_properties(request.df.sparkSession), **(write.properties or {})},
        comment,
        cluster_by=write.cluster_by or (),
        data_format=write.data_format,
    )
    return replace(
        write,
        schema_mode="overwrite" if request.replaces else write.schema_mode,
        properties=None,
        data_format=None,
        description=table,
    )


def save_lance(request: SaveRequest, path: str) -> None:
    """Write a Lance dataset in any mode.  Raises ``InvalidArgumentError`` where it is to be partitioned."""
    from trilake.lance.table import write_options as lance_options  # late: the libraries that they need are an extra
    from trilake.spark.lance import frames as lance_frames
    from trilake.spark.lance import source as lance_source

    _refuse_buckets(request, path)
    if request.partition_by:
        raise InvalidArgumentError("a Lance dataset has no partitions", help="leave partitionBy out", file=path)
    options = Options(request.options, lance_source.WRITE_OPTIONS)
    values = dict(options.values)
    vectors = Vectors.of(values.pop("vectors", None), values.pop("vectorType", None))
    lance_frames.write_dataframe(
        request.df, path, options.store, mode=request.mode, options=lance_options(values), vectors=vectors
    )


def save_trevni(request: SaveRequest, path: str) -> None:
    """Write a folder of Trevni files in any mode, partitioned or not."""
    _refuse_buckets(request, path)
    options = Options(request.options, trevni_source.WRITE_OPTIONS)
    _check_partitions(request, options, path)
    values = dict(options.values)
    named = values.pop("partitionBy", None)
    columns = request.partition_by or (
        None if named is None else tuple(c.strip() for c in named.split(",") if c.strip())
    )
    trevni_write.write_dataframe(
        request.df, path, options.store, mode=request.mode, partition_by=columns, options=trevni_options(values)
    )


_SAVERS: dict[str, Saver] = {"delta": save_delta, "lance": save_lance, "trevni": save_trevni}


def install(registered: Iterable[str]) -> None:
    """Take over the writes of the formats that are registered under these names."""
    for name in registered:
        format = name.removeprefix("trilake-")
        SAVERS[name] = _SAVERS[format]
        if format == "delta":
            NAMED.add(name)
    take_over()
    take_over_tables()
    take_over_merges()
