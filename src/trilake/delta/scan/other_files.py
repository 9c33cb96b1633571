"""Readers of other data files: ORC, CSV, JSON and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.orc as paorc

from trilake.delta.protocol.partitions import parse_timestamps
from trilake.delta.scan.conform import needed_file_columns
from trilake.delta.scan.scan import BATCH_ROWS, ReadPlan
from trilake.expr.terms.engine import Query
from trilake.parquet.old_calendar.rebase import rebasing_of_orc
from trilake.storage.base import Store
from trilake.table.data_files import FileBatches


def _orc(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    with store.open_input(key) as source:
        file = paorc.ORCFile(source)
        fields = [f for f in plan.fields if f.name not in plan.partition_columns]
        schema = file.schema
        columns = [schema.field(i).name for i in needed_file_columns(fields, schema, plan.resolver)]
        position, rebasing = 0, rebasing_of_orc(schema)
        for stripe in range(file.nstripes):
            batch = file.read_stripe(stripe, columns=columns) if columns else file.read_stripe(stripe)
            yield position, batch if rebasing is None else rebasing.rows(batch)
            position += batch.num_rows


def _csv(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    options = {k.lower(): v for k, v in plan.format_options.items()}
    header = options.get("header", "false").lower() == "true"
    names = [f.physical_name for f in plan.file_fields]
    read = pacsv.ReadOptions(use_threads=threads, column_names=names, skip_rows=1 if header else 0)
    null = options.get("nullvalue", "")
    parse = pacsv.ParseOptions(
        delimiter=options.get("sep", options.get("delimiter", ",")),
        quote_char=options.get("quote", '"') or False,
        # Arrow also unescapes outside quotes, which would strip the backslash from a null like \\N.
        escape_char=options.get("escape", "" if "\\" in null else "\\") or False,
        newlines_in_values=options.get("multiline", "false").lower() == "true",
    )
    convert = pacsv.ConvertOptions(
        column_types={n: _text_type(f.type.arrow) for n, f in zip(names, plan.file_fields, strict=True)},
        null_values=[null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
    )
    with store.open_input(key) as source:
        if store.head(key).size == 0:
            return
        position = 0
        for batch in pacsv.open_csv(_decompressed(source, key), read, parse, convert):
            yield position, _typed(batch, plan)
            position += batch.num_rows


def _json(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    with store.open_input(key) as source:
        data = _decompressed(source, key).read_buffer()
    if not bytes(data).strip():
        return
    schema = pa.schema([(f.physical_name, _text_type(f.type.arrow)) for f in plan.file_fields])
    table = pajson.read_json(
        pa.BufferReader(data),
        read_options=pajson.ReadOptions(use_threads=threads, block_size=min(max(len(data), 1 << 16), 1 << 28)),
        parse_options=pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    position = 0
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield position, _typed(batch, plan)
        position += batch.num_rows


def _text_type(type_: pa.DataType) -> pa.DataType:
    """The type to parse text as: times and binaries stay strings, as Arrow does not know all their forms."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _text_type(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(_text_type(type_.value_type))
    if pa.types.is_temporal(type_) or pa.types.is_binary(type_):
        return pa.string()
    return type_


def _typed(batch: pa.RecordBatch, plan: ReadPlan) -> pa.RecordBatch:
    """Convert the strings of times and binaries."""
    types = {f.physical_name: f.type.arrow for f in plan.file_fields}
    arrays = [
        _from_text(a, types[n], plan.engine.query) for a, n in zip(batch.columns, batch.schema.names, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _from_text(array: pa.Array, type_: pa.DataType, query: Query) -> pa.Array:
    if array.type == type_:
        return array
    if pa.types.is_struct(type_):
        children = [_from_text(array.field(i), f.type, query) for i, f in enumerate(type_)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
    if pa.types.is_list(type_):
        array = array.take(pa.array(range(len(array)), pa.int64())) if array.offset else array
        values = _from_text(array.values, type_.value_type, query)
        return pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=array.is_null())
    if pa.types.is_timestamp(type_):
        return parse_timestamps(array, type_.tz)
    if pa.types.is_binary(type_):  # base64, as Spark writes it
        return query("SELECT from_base64(s) AS b FROM t", t=pa.table({"s": array}))["b"].combine_chunks()
    return array.cast(type_)


def _text(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    with store.open_input(key) as source:
        data = bytes(_decompressed(source, key).read_buffer())
    if not data:
        return
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    values = pc.utf8_rtrim(pa.array(lines, pa.string()), "\r")
    yield 0, pa.RecordBatch.from_arrays([values], [plan.file_fields[0].physical_name])


def _decompressed(source: pa.NativeFile, key: str) -> pa.NativeFile:
    codec = {"gz": "gzip", "gzip": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}.get(key.rpartition(".")[2])
    return pa.CompressedInputStream(source, codec) if codec else source


#: By the name of the format.
READERS: Mapping[str, Callable[[Store, str, ReadPlan, bool], FileBatches]] = {
    "orc": _orc,
    "csv": _csv,
    "json": _json,
    "text": _text,
}
