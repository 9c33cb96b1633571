"""Writing data files: rows in, ``add`` actions out.

Runs in any process that has the plan and a store: the caller's own, or a Spark task.  Nothing it writes is visible
before a commit names it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.delta.file_statistics import file_statistics, leaf_paths
from trilake.delta.partitions import format_values, hive_directory
from trilake.delta.runtime import Runtime
from trilake.delta.schema import PrimitiveType, StructType
from trilake.delta.store_assignment import assign_batch
from trilake.errors import SchemaMismatchError
from trilake.storage.base import Store

#: What a path may hold unescaped in the log (RFC 2396).
_PATH_SAFE = "/!$&'()*+,;=:@~"
#: Partitions of one task that are being written at the same time.
_MAX_OPEN = 64
#: Bytes of rows that are split into partitions at once: sixteen columns of a few rows each cost more than the rows.
_SPLIT_SIZE = 16 << 20
#: Bytes of a column's dictionary at which the Parquet writer gives it up and goes on with plain values.
_DICTIONARY_LIMIT = 1 << 20
#: Rows that are looked at to foresee that.
_SAMPLE = 4096


@dataclass(frozen=True)
class FilePlan:
    """How to write files of a table: what a Spark task needs besides the rows.

    ``schema`` is the table's, ``target_size`` the size in bytes at which a file is closed and ``buffer_size`` the
    bytes of rows that wait in memory for a larger row group.
    """

    schema: StructType
    partition_columns: tuple[str, ...]
    job_id: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    target_size: int = 256 << 20
    buffer_size: int = 128 << 20
    compression: str = "snappy"
    #: Format of the files, as ``metaData.format.provider`` says.
    provider: str = "parquet"

    @property
    def indexed_columns(self) -> int:
        """How many leaf columns get statistics."""
        try:
            return int(self.configuration.get("delta.dataSkippingNumIndexedCols", "32"))
        except ValueError:
            return 32


def encode_path(path: str) -> str:
    """A path as the log writes it: URI-encoded once.

    >>> encode_path("p=a b/x.parquet")
    'p=a%20b/x.parquet'
    """
    return quote(path, safe=_PATH_SAFE)


def write_files(
    store: Store,
    plan: FilePlan,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int = 0,
    runtime: Runtime | None = None,
) -> list[dict[str, Any]]:
    """Write rows into as many files as partitions and the target size ask for.

    Returns one ``add`` action a file, as JSON objects.  When it fails, the files that it had finished are deleted: no
    commit can name them.  Raises ``SchemaMismatchError`` for rows that are not of the table's schema.
    """
    writer = _TaskWriter(store, plan, task, runtime or Runtime())
    try:
        for batch in batches:
            writer.write(assign_batch(batch, plan.schema))
        return writer.close()
    except BaseException:
        writer.abort()
        raise


class _TaskWriter:
    """All files of one task: rows wait by partition and go out as row groups."""

    def __init__(self, store: Store, plan: FilePlan, task: int, runtime: Runtime) -> None:
        self.store, self.plan, self.task, self.runtime = store, plan, task, runtime
        self.partition_fields = [plan.schema.field(c) for c in plan.partition_columns]
        names = set(plan.partition_columns)
        self.file_schema = pa.schema([f.arrow for f in plan.schema.fields if f.name not in names])
        self.open: OrderedDict[tuple[str | None, ...], _FileWriter | _OtherFileWriter] = OrderedDict()
        self.waiting: dict[tuple[str | None, ...], list[pa.Table]] = {}
        self.sizes: dict[tuple[str | None, ...], int] = {}
        self.unsplit: list[pa.RecordBatch] = []
        self.unsplit_size = 0
        self.attempt = runtime.new_id()[:8]  # a task may be tried twice, and both tries may be alive
        self.adds: list[dict[str, Any]] = []
        self.keys: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if not self.partition_fields:
            self._wait((), pa.Table.from_batches([batch]))
        else:
            self.unsplit.append(batch)
            self.unsplit_size += batch.nbytes
            if self.unsplit_size >= _SPLIT_SIZE:
                self._wait_split()
        # A partition alone may use the whole buffer; with many, the largest go first.
        while sum(self.sizes.values()) > self.plan.buffer_size:
            self._flush(max(self.sizes, key=lambda v: self.sizes[v]))

    def _wait(self, values: tuple[str | None, ...], rows: pa.Table) -> None:
        self.waiting.setdefault(values, []).append(rows)
        self.sizes[values] = self.sizes.get(values, 0) + rows.nbytes

    def _wait_split(self) -> None:
        if self.unsplit:
            table = pa.Table.from_batches(self.unsplit).combine_chunks()
            self.unsplit, self.unsplit_size = [], 0
            for values, rows in self._split(table):
                self._wait(values, rows)

    def _split(self, table: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        data = table.drop_columns([f.name for f in self.partition_fields])
        codes, span = np.zeros(table.num_rows, dtype=np.int64), 1
        columns: list[tuple[Sequence[str | None], np.ndarray[Any, np.dtype[np.int32]]]] = []
        for f in self.partition_fields:
            assert isinstance(f.type, PrimitiveType)
            encoded = pc.dictionary_encode(table[f.name].combine_chunks(), null_encoding="encode")
            if isinstance(encoded, pa.ChunkedArray):
                encoded = encoded.chunk(0)
            indices = encoded.indices.to_numpy(zero_copy_only=False)
            columns.append((format_values(encoded.dictionary, f.type), indices))
            if span * len(encoded.dictionary) >= 1 << 62:
                # Many values in many columns: only the combinations that occur are numbered, or codes would overflow.
                distinct, codes = np.unique(codes, return_inverse=True)
                span = len(distinct)
            codes = codes * len(encoded.dictionary) + indices
            span *= len(encoded.dictionary)
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(sorted_codes)) + 1, [len(codes)]])
        data = data.take(pa.array(order)) if len(starts) > 2 else data
        for lo, hi in pairwise(starts):
            row = order[lo]
            yield tuple(texts[indices[row]] for texts, indices in columns), data.slice(int(lo), int(hi - lo))

    def _flush(self, values: tuple[str | None, ...]) -> None:
        table = pa.concat_tables(self.waiting.pop(values))
        del self.sizes[values]
        writer = self.open.pop(values, None)
        if writer is not None and not writer.accepts(table):
            self.adds.append(writer.close(self.runtime.clock_ms()))
            writer = None
        writer = writer or self._start(values, table)
        self.open[values] = writer
        writer.write(table)
        if writer.size >= self.plan.target_size:
            self._finish(values)
        elif len(self.open) > _MAX_OPEN:
            self._finish(next(iter(self.open)))

    def _start(self, values: tuple[str | None, ...], first: pa.Table) -> _FileWriter | _OtherFileWriter:
        names = [f.physical_name for f in self.partition_fields]
        by_name = dict(zip(names, values, strict=True))
        number = len(self.keys)
        provider = self.plan.provider
        end = f"{self.plan.compression}.parquet" if provider == "parquet" else provider
        file = f"part-{self.task:05d}-{self.plan.job_id}-{self.attempt}.c{number:03d}.{end}"
        key = f"{hive_directory(by_name)}/{file}" if by_name else file
        self.keys.append(key)
        if provider != "parquet":
            return _OtherFileWriter(self.store, key, by_name, self.file_schema, self.plan)
        return _FileWriter(self.store.open_output(key), key, by_name, self.file_schema, self.plan, first)

    def _finish(self, values: tuple[str | None, ...]) -> None:
        self.adds.append(self.open.pop(values).close(self.runtime.clock_ms()))

    def close(self) -> list[dict[str, Any]]:
        self._wait_split()
        for values in list(self.waiting):
            self._flush(values)
        for values in list(self.open):
            self._finish(values)
        return self.adds

    def abort(self) -> None:
        for writer in self.open.values():
            writer.discard()
        self.store.delete(self.keys)


class _FileWriter:
    """One Parquet file; ``first`` are the rows it begins with, which decide how its columns are encoded."""

    def __init__(
        self,
        sink: IO[bytes],
        key: str,
        partition: Mapping[str, str | None],
        schema: pa.Schema,
        plan: FilePlan,
        first: pa.Table,
    ) -> None:
        self.sink, self.key, self.partition, self.schema, self.plan = sink, key, partition, schema, plan
        self.footer: list[pq.FileMetaData] = []
        leaves = [p for p in leaf_paths(schema) if p is not None]
        self.floats = [p for p in leaves if pa.types.is_floating(_leaf_type(schema, p))]
        # Parquet's bounds leave NaN out, and Spark skips row groups by them although NaN is greater than all else: a
        # column that holds one has no bounds, in the file no more than in the log.
        self.with_nan = frozenset(p for p in self.floats if _has_nan(first, p))
        bounded = [".".join(p) for p in leaves if p not in self.with_nan]
        self.counter = pa.PythonFile(sink, mode="w")
        self.writer = pq.ParquetWriter(
            self.counter,
            schema,
            compression=plan.compression,
            use_dictionary=dictionary_columns(first),
            write_statistics=bounded if self.with_nan else True,
            # As Spark writes them; fixed bytes take twice the space and longer to read.
            store_decimal_as_integer=True,
            coerce_timestamps="us",
            store_schema=False,
            metadata_collector=self.footer,
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self.counter.tell())

    def accepts(self, table: pa.Table) -> bool:
        """Whether the rows can go into this file: not where they hold the first NaN of a column with bounds."""
        return not any(_has_nan(table, p) for p in self.floats if p not in self.with_nan)

    def write(self, table: pa.Table) -> None:
        try:
            self.writer.write_table(table)
        except pa.ArrowInvalid as e:
            # What the check of top-level columns leaves to the format itself: nulls inside nested values.
            raise SchemaMismatchError(
                f"rows do not fit the table: {e}", help="fill or drop the nulls that the table's schema forbids"
            ) from e

    def close(self, now_ms: int) -> dict[str, Any]:
        self.writer.close()
        size = int(self.counter.tell())
        self.sink.close()
        stats = file_statistics(self.footer[0], self.schema, with_nan=self.with_nan, indexed=self.plan.indexed_columns)
        return {
            "path": encode_path(self.key),
            "partitionValues": dict(self.partition),
            "size": size,
            "modificationTime": now_ms,
            "dataChange": True,
            "stats": stats,
        }

    def discard(self) -> None:
        """Give the file up: the store's writer drops it when it leaves its block with an error."""
        self.writer.is_open = False  # or its destructor would try to write the footer
        self.sink.__exit__(RuntimeError, RuntimeError("write aborted"), None)


class RowFile(Protocol):
    """One file of a format other than Parquet, while it is being written."""

    @property
    def size(self) -> int:
        """About how many bytes have been written."""

    def write(self, batch: pa.Table) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the file: it appears whole."""

    def discard(self) -> None:
        """Give it up: nothing appears."""


#: Writers of other formats by name: from a store, a key, the schema of the rows and the plan to a file that takes rows.
#: A layer that knows formats which this one must not know adds theirs.
WRITERS: dict[str, Callable[[Store, str, pa.Schema, FilePlan], RowFile]] = {}


class _OtherFileWriter:
    """One file of another format.  The log has its number of rows, and no bounds."""

    def __init__(
        self, store: Store, key: str, partition: Mapping[str, str | None], schema: pa.Schema, plan: FilePlan
    ) -> None:
        self.store, self.key, self.partition = store, key, partition
        self.file = WRITERS[plan.provider](store, key, schema, plan)
        self.rows = 0

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self.file.size

    def accepts(self, table: pa.Table) -> bool:
        """Whether the rows can go into this file."""
        return True

    def write(self, table: pa.Table) -> None:
        self.file.write(table)
        self.rows += table.num_rows

    def close(self, now_ms: int) -> dict[str, Any]:
        self.file.close()
        return {
            "path": encode_path(self.key),
            "partitionValues": dict(self.partition),
            "size": self.store.head(self.key).size,
            "modificationTime": now_ms,
            "dataChange": True,
            "stats": f'{{"numRecords":{self.rows}}}',
        }

    def discard(self) -> None:
        """Give the file up."""
        self.file.discard()


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """The Parquet columns to write with a dictionary, or ``True`` for all.

    Left out are those whose dictionary would outgrow its page.  The writer would find that out by building it, which
    for such a column takes longer than everything else together.
    """
    if rows.nbytes <= _DICTIONARY_LIMIT:
        return True
    head = rows.slice(0, 8 * _SAMPLE)  # with gaps, so that runs of one value are seen as what they are
    sample = head.take(pa.array(np.arange(0, head.num_rows, max(1, head.num_rows // _SAMPLE))))
    out: list[str] = []
    for f in rows.schema:
        if pa.types.is_nested(f.type) or not _outgrows(sample[f.name], rows.num_rows):
            out += _column_paths(f.type, f.name)
    return out


def _outgrows(sample: pa.ChunkedArray, rows: int) -> bool:
    """Whether a dictionary of as many rows, judged by a sample of them, is larger than a dictionary may be."""
    if pa.types.is_boolean(sample.type) or pa.types.is_null(sample.type):
        return False
    count, repeated = len(sample), len(sample) - pc.count_distinct(sample, mode="all").as_py()
    # Of two rows drawn from d values, one in d pairs is equal; the sample has count^2 / 2 pairs.
    distinct = min(rows, count * count / 2 / max(repeated, 1))
    return bool(distinct * sample.nbytes / count > _DICTIONARY_LIMIT)


def _column_paths(t: pa.DataType, path: str) -> Iterator[str]:
    """The paths of a field's leaf columns, as Parquet spells them."""
    if pa.types.is_struct(t):
        for f in t:
            yield from _column_paths(f.type, f"{path}.{f.name}")
    elif pa.types.is_map(t):
        yield from _column_paths(t.key_type, f"{path}.key_value.key")
        yield from _column_paths(t.item_type, f"{path}.key_value.value")
    elif pa.types.is_list(t):
        yield from _column_paths(t.value_type, f"{path}.list.element")
    else:
        yield path


def _leaf_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    t = schema.field(path[0]).type
    for name in path[1:]:
        t = t.field(name).type
    return t


def _has_nan(table: pa.Table, path: tuple[str, ...]) -> bool:
    column = table[path[0]]
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return bool(pc.any(pc.is_nan(column)).as_py())
