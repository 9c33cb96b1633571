"""Read one data file, in any format that ``metaData.format.provider`` can name.

A provider is a function from a store and a key to batches of file columns, each with the index of its first row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.orc as paorc
import pyarrow.parquet as pq

from trilake.delta.protocol.partition_values import parse_timestamps
from trilake.delta.scan.conform import needed_file_columns
from trilake.delta.scan.scan import BATCH_ROWS, ReadPlan
from trilake.errors import (
    CorruptFileError,
    MissingFileError,
    ObjectNotFoundError,
    TrilakeError,
    UnsupportedProtocolError,
)
from trilake.expr.pushdown import superset
from trilake.expr.terms.engine import Query
from trilake.expr.views import numbered_without_views
from trilake.parquet.files import DAMAGE, UNREADABLE_HELP, checked_footer, fetched_together, open_parquet, unreadable
from trilake.parquet.old_calendar import Rebasing, rebasing_of, rebasing_of_orc
from trilake.storage.base import Store
from trilake.table.data_files import FileBatches, no_columns

#: Target bytes of a batch, estimated from the footer, and the least number of rows.
_BATCH_BYTES, _LEAST_ROWS = 16 << 20, 256


def read_data_file(store: Store, key: str, plan: ReadPlan, *, threads: bool) -> FileBatches:
    """Read the batches of one data file; row indexes count every row of the file, including skipped row groups.

    If the last row groups are skipped, an empty batch marks the end of the file.  Raises ``MissingFileError``,
    ``CorruptFileError``, ``UnsupportedFileError`` or, for an unknown provider, ``UnsupportedProtocolError``.
    """
    batches = _batches(store, key, plan, threads)
    if batches is None:
        message = f"data files of format {plan.provider!r} are not supported"
        help = f"supported formats are {', '.join(sorted({*OTHER_FORMATS, *plan.engine.written}))}"
        raise UnsupportedProtocolError(message, help=help, file=plan.uri, version=plan.version)
    with file_errors(store, key, plan.provider, plan.version):
        yield from numbered_without_views(batches)


@contextmanager
def file_errors(store: Store, key: str, provider: str = "parquet", version: int | None = None) -> Iterator[None]:
    """A block that reads a data file; raises ``MissingFileError``, ``CorruptFileError`` or ``UnsupportedFileError``."""
    where: dict[str, Any] = {"file": f"{store.uri}/{key}", "version": version}
    try:
        yield
    except ObjectNotFoundError as e:
        raise MissingFileError("a data file of the table is missing", **where) from e
    except DAMAGE as e:
        if isinstance(e, TrilakeError):
            raise
        raise unreadable(e, provider, help=UNREADABLE_HELP, **where) from e
    except OSError as e:
        if type(e) is not OSError:  # the store's own error is more specific
            raise
        raise unreadable(e, provider, **where) from e


#: Formats other than Parquet that trilake reads but does not write.
OTHER_FORMATS = ("orc", "csv", "json", "text")


def _batches(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches | None:
    format = plan.engine.format(plan.provider)
    if format is not None:
        if plan.mode == "id" and not format.has_field_ids:
            message = f"column mapping mode id is not supported for {format.name} files, which have no field ids"
            raise UnsupportedProtocolError(message, file=plan.uri, version=plan.version)
        fields = [f for f in plan.fields if f.name not in plan.partition_columns]
        return format.read(store, key, lambda schema: needed_file_columns(fields, schema, plan.resolver), threads)
    if plan.provider in OTHER_FORMATS:
        return READERS[plan.provider](store, key, plan, threads)
    return _parquet(store, key, plan, threads) if plan.provider == "parquet" else None


def _parquet(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches:
    with store.open_input(key) as source:
        yield from parquet_batches(source, plan, threads=threads)


def parquet_batches(
    source: pa.NativeFile, plan: ReadPlan, *, threads: bool, checked: bool = False, batch_rows: int = BATCH_ROWS
) -> FileBatches:
    """Read the batches of a Parquet file like :func:`read_data_file`; set ``checked`` if its footer has been verified.

    Raises ``CorruptFileError``, one of ``DAMAGE`` or an ``OSError`` for a damaged file.
    """
    file = open_parquet(source)
    schema = file.schema_arrow
    columns, starts = columns_and_starts(file, plan)
    if len(columns) < sum(f.name not in plan.partition_columns for f in plan.fields) and not checked:
        checked_footer(source, file)  # the name of a missing column may be damaged
    rebasing = rebasing_of(file)
    everything = list(range(file.num_row_groups))
    groups = _row_groups(file, source, plan, rebasing, everything)
    is_truncated = groups[-1:] != everything[-1:]  # without columns, nothing shows where the file ends
    if not columns:
        for g in groups:
            yield int(starts[g]), no_columns(int(starts[g + 1] - starts[g]))
        if is_truncated:
            yield int(starts[-1]), no_columns(0)
        return
    # Read adjacent row groups together, but not across gaps, which would lose the row indexes.
    for run in fetched_together(source, file, groups, columns):
        position = int(starts[run[0]])
        rows = min(batch_rows, fitting_rows(file.metadata, run, columns))
        for batch in file.iter_batches(rows, row_groups=run, columns=columns, use_threads=threads):
            if rebasing is not None:
                batch = rebasing.rows(batch)
            if plan.mode == "id":  # only the file's own fields carry the Parquet field ids
                own = pa.schema([schema.field(n) for n in batch.schema.names])
                batch = pa.RecordBatch.from_arrays(batch.columns, schema=own)
            yield position, batch
            position += batch.num_rows
    if is_truncated:
        yield int(starts[-1]), pa.RecordBatch.from_pylist([], pa.schema([schema.field(n) for n in columns]))


def columns_and_starts(file: pq.ParquetFile, plan: ReadPlan) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The columns to read; and the first row of each row group, and of the end.  Raises ``CorruptFileError``."""
    schema, metadata = file.schema_arrow, file.metadata
    names = schema.names
    fields = [f for f in plan.fields if f.name not in plan.partition_columns]
    columns = [names[i] for i in needed_file_columns(fields, schema, plan.resolver)]
    reject_two_of_one_name(columns, schema)
    counts = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    starts = np.cumsum([0, *counts], dtype=np.int64)
    if starts[-1] != metadata.num_rows:
        raise pa.ArrowInvalid(f"its row groups have {starts[-1]} rows, but the file has {metadata.num_rows}")
    return columns, starts


def fitting_rows(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> int:
    """How many rows of these row groups make a batch of limited size; at least ``_LEAST_ROWS``."""
    rows: int = max(1, sum(metadata.row_group(g).num_rows for g in groups))
    size: int = sum(metadata.row_group(g).total_byte_size for g in groups)
    if size * BATCH_ROWS > _BATCH_BYTES * rows and len(columns) < metadata.num_columns:
        requested = set(columns)
        paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        leaves = [i for i, path in enumerate(paths) if path in requested or path.partition(".")[0] in requested]
        size = sum(metadata.row_group(g).column(i).total_uncompressed_size for g in groups for i in leaves)
    return max(_LEAST_ROWS, _BATCH_BYTES * rows // max(1, size))


def reject_two_of_one_name(requested: Sequence[str], schema: pa.Schema) -> None:
    """Raise ``CorruptFileError`` if a file has a requested column twice."""
    if len(set(schema.names)) == len(schema.names):
        return
    twice = sorted({n for n, count in Counter(schema.names).items() if count > 1}.intersection(requested))
    if twice:
        message = f"the data file has several columns named {twice[0]!r}"
        raise CorruptFileError(message, help="rewrite the file with unique column names", column=twice[0])


def _row_groups(
    file: pq.ParquetFile, source: pa.NativeFile, plan: ReadPlan, rebasing: Rebasing | None, everything: list[int]
) -> list[int]:
    if plan.filter is None or len(everything) < 2 or plan.mode == "id":
        return everything
    physical = {f.name: f.physical_name for f in plan.fields if f.name not in plan.partition_columns}
    names = set(file.schema_arrow.names)
    rename: dict[str, str | None] = {n: p for n, p in physical.items() if p in names}
    if rebasing is not None:
        checked_footer(source, file)
        doubtful = {file.metadata.schema.column(i).path for i in rebasing.doubtful(file.metadata)}
        rename = {n: None if p in doubtful else p for n, p in rename.items()}
    expression = superset(plan.filter.predicate, rename)
    if expression is None:
        return everything
    checked_footer(source, file)
    import pyarrow.dataset as pads  # loads pandas if that is installed (pyarrow 26)

    fragment = pads.ParquetFileFormat().make_fragment(source)
    try:
        subset = fragment.subset(filter=expression, schema=file.schema_arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return everything  # the file's types differ from the table's; pruning is optional
    return sorted(group.id for group in subset.row_groups)


# --- ORC, CSV, JSON and text ------------------------------------------------------------------------------------------


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
        column_types={n: _parse_type(f.type.arrow) for n, f in zip(names, plan.file_fields, strict=True)},
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
    schema = pa.schema([(f.physical_name, _parse_type(f.type.arrow)) for f in plan.file_fields])
    table = pajson.read_json(
        pa.BufferReader(data),
        read_options=pajson.ReadOptions(use_threads=threads, block_size=min(max(len(data), 1 << 16), 1 << 28)),
        parse_options=pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    position = 0
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        yield position, _typed(batch, plan)
        position += batch.num_rows


def _parse_type(type_: pa.DataType) -> pa.DataType:
    """The type as which to parse strings; Arrow does not support all forms of times and binaries."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _parse_type(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(_parse_type(type_.value_type))
    if pa.types.is_temporal(type_) or pa.types.is_binary(type_):
        return pa.string()
    return type_


def _typed(batch: pa.RecordBatch, plan: ReadPlan) -> pa.RecordBatch:
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


#: The reader of each format, by name.
READERS: Mapping[str, Callable[[Store, str, ReadPlan, bool], FileBatches]] = {
    "orc": _orc,
    "csv": _csv,
    "json": _json,
    "text": _text,
}
