"""Reading one data file, in any of the formats that ``metaData.format.provider`` may name.

A provider is one function: from a store and a key to batches of file columns, each with the index of its first row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.json as pajson
import pyarrow.orc as paorc
import pyarrow.parquet as pq

from trilake.delta.engine import FileBatches
from trilake.delta.protocol.partitions import parse_timestamps
from trilake.delta.scan.conform import needed_file_columns
from trilake.delta.scan.scan import ReadPlan
from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.expr import engine
from trilake.parquet_files import DAMAGE, checked_footer, open_parquet
from trilake.storage.base import Store

#: Rows a batch: large enough for vectorised work, small enough to bound memory with wide rows.
BATCH_ROWS = 64 * 1024

Provider = Callable[[Store, str, ReadPlan, bool], FileBatches]


def read_data_file(store: Store, key: str, plan: ReadPlan, *, threads: bool) -> FileBatches:
    """The batches of one data file; row indexes count every row of the file, skipped row groups included.

    Raises ``ObjectNotFoundError`` where it is missing, ``CorruptFileError`` where it is damaged,
    ``UnsupportedProtocolError`` for a provider that is not known.
    """
    known = plan.engine.format(plan.provider)
    provider = known.read if known is not None else READERS.get(plan.provider)
    if provider is None:
        raise UnsupportedProtocolError(
            f"the table's files are {plan.provider!r}",
            help=f"readable are {', '.join(sorted({*READERS, *plan.engine.written}))}",
            file=plan.uri,
            version=plan.version,
        )
    try:
        yield from provider(store, key, plan, threads)
    except DAMAGE as e:
        if isinstance(e, TrilakeError):
            raise
        raise CorruptFileError(
            f"the {plan.provider} file cannot be read: {e}",
            help="restore the file, or read a version of the table without it",
            file=f"{store.uri}/{key}",
            version=plan.version,
        ) from e
    except OSError as e:
        if type(e) is not OSError:  # a store's own error says more than this could
            raise
        raise CorruptFileError(
            f"the {plan.provider} file cannot be read: {e}", file=f"{store.uri}/{key}", version=plan.version
        ) from e


def _parquet(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    with store.open_input(key) as source:
        file = open_parquet(source)
        schema = file.schema_arrow
        fields = [f for f in plan.fields if f.name not in plan.partition_columns]
        indexes = needed_file_columns(fields, schema, plan.resolver)
        refuse_two_of_one_name([schema.names[i] for i in indexes], schema)
        if len(indexes) < len(fields):
            checked_footer(source, file)  # a column that is not there may be one whose name was damaged
        groups = _row_groups(file, source, plan)
        counts = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(counts)])
        if starts[-1] != file.metadata.num_rows:
            raise pa.ArrowInvalid(f"its row groups have {starts[-1]} rows, the file has {file.metadata.num_rows}")
        if not indexes:
            for g in groups:
                yield int(starts[g]), no_columns(counts[g])
            return
        columns = [schema.names[i] for i in indexes]
        for run in _runs(groups):
            position = int(starts[run[0]])
            for batch in file.iter_batches(BATCH_ROWS, row_groups=run, columns=columns, use_threads=threads):
                yield position, _with_field_metadata(batch, schema)
                position += batch.num_rows


def refuse_two_of_one_name(wanted: Sequence[str], schema: pa.Schema) -> None:
    """Raises ``CorruptFileError`` where a file has a wanted column twice: either could be meant."""
    if len(set(schema.names)) == len(schema.names):
        return
    twice = sorted(n for n in set(wanted) if schema.names.count(n) > 1)
    if twice:
        raise CorruptFileError(
            f"the data file has more than one column of the name {twice[0]!r}",
            help="write the file again with one column of each name",
            column=twice[0],
        )


def no_columns(rows: int) -> pa.RecordBatch:
    """``rows`` rows of no column at all: what a count needs."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def _with_field_metadata(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under the file's own fields, which carry the Parquet field ids."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema([schema.field(n) for n in batch.schema.names]))


def _runs(groups: list[int]) -> list[list[int]]:
    """Row groups in runs of neighbours, so that row indexes stay known."""
    runs: list[list[int]] = []
    for g in groups:
        if runs and runs[-1][-1] == g - 1:
            runs[-1].append(g)
        else:
            runs.append([g])
    return runs


def _row_groups(file: pq.ParquetFile, source: pa.NativeFile, plan: ReadPlan) -> list[int]:
    """Row groups that may hold a matching row, by their own statistics."""
    everything = list(range(file.num_row_groups))
    if plan.filter is None or len(everything) < 2 or plan.mode == "id":
        return everything
    physical = {f.name: f.physical_name for f in plan.fields if f.name not in plan.partition_columns}
    names = set(file.schema_arrow.names)
    expression = plan.filter.arrow_superset({n: p for n, p in physical.items() if p in names})
    if expression is None:
        return everything
    checked_footer(source, file)
    fragment = pads.ParquetFileFormat().make_fragment(source)
    try:
        subset = fragment.subset(filter=expression, schema=file.schema_arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return everything  # the file's types differ from the table's: pruning is an option, never a duty
    return sorted(group.id for group in subset.row_groups)


def _orc(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    with store.open_input(key) as source:
        file = paorc.ORCFile(source)
        fields = [f for f in plan.fields if f.name not in plan.partition_columns]
        schema = file.schema
        columns = [schema.names[i] for i in needed_file_columns(fields, schema, plan.resolver)]
        position = 0
        for stripe in range(file.nstripes):
            batch = file.read_stripe(stripe, columns=columns) if columns else file.read_stripe(stripe)
            yield position, batch
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
        # Arrow escapes outside of quotes too, which would take the backslash out of a null like \\N.
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
    """The type a text reader is asked for: times and binaries as texts, which come in more forms than it knows."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _text_type(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(_text_type(type_.value_type))
    if pa.types.is_temporal(type_) or pa.types.is_binary(type_):
        return pa.string()
    return type_


def _typed(batch: pa.RecordBatch, plan: ReadPlan) -> pa.RecordBatch:
    """The batch with the texts of times and binaries as values."""
    types = {f.physical_name: f.type.arrow for f in plan.file_fields}
    arrays = [_from_text(a, types[n]) for a, n in zip(batch.columns, batch.schema.names, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _from_text(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    if pa.types.is_struct(type_):
        children = [_from_text(array.field(i), f.type) for i, f in enumerate(type_)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
    if pa.types.is_list(type_):
        array = array.take(pa.array(range(len(array)), pa.int64())) if array.offset else array
        values = _from_text(array.values, type_.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=type_, mask=array.is_null())
    if pa.types.is_timestamp(type_):
        return parse_timestamps(array, type_.tz)
    if pa.types.is_binary(type_):  # base64, as Spark writes it
        return engine.query("SELECT from_base64(s) AS b FROM t", t=pa.table({"s": array}))["b"].combine_chunks()
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


#: The formats that this room reads itself; the plan's engine has the others.
READERS: Mapping[str, Provider] = {"parquet": _parquet, "orc": _orc, "csv": _csv, "json": _json, "text": _text}
