"""Read one data file, in any format that ``metaData.format.provider`` may name.

A provider is one function: from a store and a key to batches of file columns, each with the index of its first row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trilake.delta.scan.conform import needed_file_columns
from trilake.delta.scan.other_files import READERS
from trilake.delta.scan.scan import BATCH_ROWS, ReadPlan
from trilake.errors import CorruptFileError, TrilakeError, UnsupportedProtocolError
from trilake.expr.terms.datatypes import Path
from trilake.expr.views import numbered_without_views
from trilake.parquet.files import DAMAGE, UNREADABLE_HELP, checked_footer, fetched_together, open_parquet, unreadable
from trilake.parquet.old_calendar.rebase import Rebasing, rebasing_of
from trilake.storage.base import Store
from trilake.table.data_files import FileBatches, no_columns

#: Target bytes of a batch, by the sizes in the footer, and its least number of rows.
_BATCH_BYTES, _LEAST_ROWS = 16 << 20, 256


def read_data_file(store: Store, key: str, plan: ReadPlan, *, threads: bool) -> FileBatches:
    """Read the batches of one data file; row indexes count every row of the file, including skipped row groups.

    Where the last row groups of a Parquet file are skipped, an empty batch marks the end of the file.

    Raises ``ObjectNotFoundError`` for a missing file, ``CorruptFileError`` for a damaged one,
    ``UnsupportedFileError`` where its reader lacks something, ``UnsupportedProtocolError`` for an unknown provider.
    """
    batches = _batches(store, key, plan, threads)
    if batches is None:
        raise UnsupportedProtocolError(
            f"the table's files are {plan.provider!r}",
            help=f"readable are {', '.join(sorted({*OTHER_FORMATS, *plan.engine.written}))}",
            file=plan.uri,
            version=plan.version,
        )
    try:
        yield from numbered_without_views(batches)
    except DAMAGE as e:
        if isinstance(e, TrilakeError):
            raise
        where = {"file": f"{store.uri}/{key}", "version": plan.version}
        raise unreadable(e, plan.provider, help=UNREADABLE_HELP, **where) from e
    except OSError as e:
        if type(e) is not OSError:  # the store's own error is more specific
            raise
        raise unreadable(e, plan.provider, file=f"{store.uri}/{key}", version=plan.version) from e


#: Other formats that can be read here, but not written.
OTHER_FORMATS = ("orc", "csv", "json", "text")


def _batches(store: Store, key: str, plan: ReadPlan, threads: bool) -> FileBatches | None:
    format = plan.engine.format(plan.provider)
    if format is not None:
        if plan.mode == "id" and not format.has_field_ids:
            raise UnsupportedProtocolError(
                f"columns are mapped by id, and {format.name} files have no ids of columns",
                file=plan.uri,
                version=plan.version,
            )
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
    """Read the batches of a Parquet file, as :func:`read_data_file` does; ``checked`` is a verified footer.

    Raises ``CorruptFileError``, one of ``DAMAGE`` or an ``OSError`` for a damaged file.
    """
    file = open_parquet(source)
    schema = file.schema_arrow
    fields = [f for f in plan.fields if f.name not in plan.partition_columns]
    indexes = needed_file_columns(fields, schema, plan.resolver)
    names = schema.names
    columns = [names[i] for i in indexes]
    refuse_two_of_one_name(columns, schema)
    if len(indexes) < len(fields) and not checked:
        checked_footer(source, file)  # the name of a missing column may be damaged
    rebasing = rebasing_of(file)
    everything = list(range(file.num_row_groups))
    groups = _row_groups(file, source, plan, rebasing, everything)
    cut = groups[-1:] != everything[-1:]  # without columns, nothing shows where the file ends
    counts = [file.metadata.row_group(g).num_rows for g in everything]
    starts = np.concatenate([[0], np.cumsum(counts)])
    if starts[-1] != file.metadata.num_rows:
        raise pa.ArrowInvalid(f"its row groups have {starts[-1]} rows, the file has {file.metadata.num_rows}")
    if not indexes:
        for g in groups:
            yield int(starts[g]), no_columns(counts[g])
        if cut:
            yield int(starts[-1]), no_columns(0)
        return
    # Adjacent row groups together, so that row indexes stay known.
    for run in fetched_together(source, file, groups, columns):
        position = int(starts[run[0]])
        rows = min(batch_rows, fitting_rows(file.metadata, run, columns))
        for batch in file.iter_batches(rows, row_groups=run, columns=columns, use_threads=threads):
            if rebasing is not None:
                batch = rebasing.rows(batch)
            yield position, batch if plan.mode != "id" else _with_field_metadata(batch, schema)
            position += batch.num_rows
    if cut:
        yield int(starts[-1]), pa.RecordBatch.from_pylist([], pa.schema([schema.field(i) for i in indexes]))


def fitting_rows(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> int:
    """How many rows of these row groups make a batch of limited size; at least some hundred."""
    rows: int = max(1, sum(metadata.row_group(g).num_rows for g in groups))
    size: int = sum(metadata.row_group(g).total_byte_size for g in groups)
    if size * BATCH_ROWS > _BATCH_BYTES * rows and len(columns) < metadata.num_columns:
        requested = set(columns)
        paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        leaves = [i for i, path in enumerate(paths) if path in requested or path.partition(".")[0] in requested]
        size = sum(metadata.row_group(g).column(i).total_uncompressed_size for g in groups for i in leaves)
    return max(_LEAST_ROWS, _BATCH_BYTES * rows // max(1, size))


def refuse_two_of_one_name(requested: Sequence[str], schema: pa.Schema) -> None:
    """Raise ``CorruptFileError`` where a file has a requested column twice."""
    if len(set(schema.names)) == len(schema.names):
        return
    twice = sorted({n for n, count in Counter(schema.names).items() if count > 1}.intersection(requested))
    if twice:
        raise CorruptFileError(
            f"the data file has more than one column of the name {twice[0]!r}",
            help="write the file again with one column of each name",
            column=twice[0],
        )


def _with_field_metadata(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under the file's own fields, which carry the Parquet field ids."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema([schema.field(n) for n in batch.schema.names]))


def _row_groups(
    file: pq.ParquetFile, source: pa.NativeFile, plan: ReadPlan, rebasing: Rebasing | None, everything: list[int]
) -> list[int]:
    if plan.filter is None or len(everything) < 2 or plan.mode == "id":
        return everything
    physical = {f.name: f.physical_name for f in plan.fields if f.name not in plan.partition_columns}
    names = set(file.schema_arrow.names)
    rename: dict[str | Path, str | Path | None] = {n: p for n, p in physical.items() if p in names}
    if rebasing is not None:
        checked_footer(source, file)
        doubtful = {file.metadata.schema.column(i).path for i in rebasing.doubtful(file.metadata)}
        rename = {n: None if p in doubtful else p for n, p in rename.items()}
    expression = plan.filter.arrow_superset(rename)
    if expression is None:
        return everything
    checked_footer(source, file)
    import pyarrow.dataset as pads  # loads pandas, where that is installed (pyarrow 26)

    fragment = pads.ParquetFileFormat().make_fragment(source)
    try:
        subset = fragment.subset(filter=expression, schema=file.schema_arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return everything  # the file's types differ from the table's; pruning is optional
    return sorted(group.id for group in subset.row_groups)
