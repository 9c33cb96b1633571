"""Writes of the formats that have no Delta log, from rows in this process or in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from trilake.delta.commands.write.write import WriteResult
from trilake.engine import standard_engine
from trilake.errors import InvalidArgumentError
from trilake.expr.views import stream_without_views
from trilake.storage import open_store
from trilake.table.frames import arrow_batches, is_dataframe
from trilake.trevni.tables import table_write as trevni


def write_trevni(
    data: Any,
    uri: str | PathLike[str],
    mode: str,
    partition_by: tuple[str, ...] | None,
    properties: Mapping[str, str],
    options: Mapping[str, str],
) -> WriteResult:
    """Write a folder of Trevni files from any rows; see :func:`trilake.write`."""
    how = trevni.write_options(properties)
    if is_dataframe(data):
        from trilake.spark.trevni.write import write_dataframe

        done = write_dataframe(data, fspath(uri), options, mode=mode, partition_by=partition_by, options=how)
    else:
        store = open_store(uri, options)
        schema, batches = arrow_batches(data)
        if not isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
            # Frames have views by their nature, which most of Arrow's kernels do not take; who asks for views has them.
            schema, batches = stream_without_views(schema, batches)
        plan = trevni.plan_table_write(store, schema, mode=mode, partition_by=partition_by, options=how)
        staged = [] if plan.nothing else trevni.write_rows(store, plan, batches)
        done = trevni.finish_table_write(store, plan, staged)
    return WriteResult(None, done.files_added, 0, done.rows_added, done.bytes_added)


def write_lance(
    data: Any,
    uri: str | PathLike[str],
    mode: str,
    partition_by: tuple[str, ...] | None,
    properties: Mapping[str, str],
    options: Mapping[str, str],
) -> WriteResult:
    """Write a version of a Lance dataset from any rows; see :func:`trilake.write`."""
    from trilake.lance import table as lance

    if partition_by:
        raise InvalidArgumentError("Lance datasets have no partitions", help="leave partition_by out")
    vectors = {name: properties[name] for name in ("vectors", "vectorType") if name in properties}
    how = lance.write_options({k: v for k, v in properties.items() if not (is_dataframe(data) and k in vectors)})
    if is_dataframe(data):
        from trilake.spark.lance.frames import write_dataframe
        from trilake.spark.lance.vectors import Vectors

        shape = Vectors.of(vectors.get("vectors"), vectors.get("vectorType"))
        snapshot, fragments = write_dataframe(data, fspath(uri), options, mode=mode, options=how, vectors=shape)
        files, rows = len(fragments), sum(f.physical_rows for f in fragments)
    else:
        schema, batches = arrow_batches(data)
        snapshot, files, rows = lance.write_table(
            open_store(uri, options), schema, batches, runtime=standard_engine().runtime, mode=mode, options=how
        )
    if snapshot is None:
        return WriteResult(None)
    store = snapshot.store
    new = snapshot.manifest.fragments[-files:] if files else ()  # an append puts its fragments last
    size = sum(entry.size_bytes or store.head(entry.key).size for f in new for entry in f.files)
    return WriteResult(snapshot.version, files, 0, rows, size)
