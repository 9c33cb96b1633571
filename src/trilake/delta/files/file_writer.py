"""Write one data file, in Parquet or another format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.common.arrow_types import elements_of, leaf_paths, type_at, values_at
from trilake.delta.files.file_plan import FilePlan, encode_path
from trilake.delta.files.file_statistics import (
    RowStatistics,
    StatedColumn,
    file_statistics,
    stated_columns,
)
from trilake.delta.protocol.property_values import is_on
from trilake.delta.protocol.table_features.variant_shredding import ENABLED as VARIANT_SHREDDING
from trilake.errors import SchemaMismatchError
from trilake.parquet.files import PAGE_CHECKSUMS
from trilake.parquet.shredding import Shape, shredded
from trilake.storage.base import AtomicWriter, Store

#: Bytes of a column's dictionary at which the Parquet writer falls back to plain values.
_DICTIONARY_LIMIT = 1 << 20
#: Rows, and their approximate bytes, in the sample that predicts this.
_SAMPLE, _SAMPLE_BYTES = 4096, 4 << 20
#: Bytes per row above which pages become so large that copying them into Python takes a third of the time.
_LARGE_ROW = 1 << 16


def file_action(
    plan: FilePlan, key: str, partition: Mapping[str, str | None], size: int, now_ms: int, statistics: Callable[[], str]
) -> dict[str, Any]:
    """The action of a new file: the fields of ``add`` or ``cdc``."""
    common = {"path": encode_path(key), "partitionValues": dict(partition), "size": size}
    if plan.action == "cdc":
        return {**common, "dataChange": False}
    tags = {"tags": dict(plan.tags)} if plan.tags else {}
    return {**common, "modificationTime": now_ms, "dataChange": True, "stats": statistics(), **tags}


class ParquetLayout:
    """What all Parquet files of a write share."""

    def __init__(self, plan: FilePlan) -> None:
        self.plan, self.schema = plan, plan.file_schema
        self.floats, self.nested = float_paths(self.schema), nested_columns(self.schema)
        self.stated = stated_columns(plan.stated_schema, plan.statistics)
        pairs = zip(plan.stated_schema.names, plan.stored.fields, strict=False)
        shreds = plan.action == "add" and is_on(plan.configuration, VARIANT_SHREDDING)
        self.variants = [name for name, f in pairs if shreds and str(f.type) == "variant"]
        self._known: tuple[pa.Schema, dict[str, pa.DataType], pa.Schema] | None = None

    def of(self, rows: pa.Table) -> tuple[dict[str, pa.DataType], pa.Schema]:
        """The columns that come as dictionaries, and the file schema with dictionary types."""
        schema = rows.schema
        if self._known is None or not schema.equals(self._known[0]):
            dictionaries = {f.name: f.type for f in schema if pa.types.is_dictionary(f.type)}
            with_them = pa.schema([f.with_type(dictionaries.get(f.name, f.type)) for f in self.schema])
            self._known = schema, dictionaries, with_them
        return self._known[1:]

    def shapes_of(self, rows: pa.Table) -> dict[str, Shape]:
        """The shredded shapes of the variant columns, for a file that begins with these rows."""
        samples = ((n, rows[n].slice(0, _SAMPLE).combine_chunks()) for n in self.variants)
        shapes = ((n, Shape.of(sample, n)) for n, sample in samples)
        return {n: shape for n, shape in shapes if shape is not None}

    def stated_in(self, schema: pa.Schema) -> list[StatedColumn]:
        """The columns with statistics, with their positions in a file of this schema."""
        indices = {path: i for i, path in enumerate(leaf_paths(schema))}
        return [(indices[path], path, *rest) for _, path, *rest in self.stated]


class ParquetFile:
    """One Parquet file; ``first`` are its first rows, which determine the encoding of its columns.

    If they are the ``whole`` file, it is built in memory and written to ``sink`` at once.  String columns that come as
    dictionaries are written as such.
    """

    def __init__(
        self,
        sink: IO[bytes],
        key: str,
        partition: Mapping[str, str | None],
        layout: ParquetLayout,
        first: pa.Table,
        *,
        whole: bool = False,
    ) -> None:
        self.sink, self.key, self.partition, self.layout = sink, key, partition, layout
        self.plan = plan = layout.plan
        self.footer: list[pq.FileMetaData] = []
        # Parquet's bounds ignore NaN, and Spark skips row groups by them although NaN is the greatest value.  So
        # columns with a NaN get no bounds, neither in the file nor in the log.
        self.with_nan = frozenset(p for p in layout.floats if p in plan.unbounded or has_nan(first, p))
        self.atomic = sink if isinstance(sink, AtomicWriter) and not whole else None
        self.dictionaries, file_schema = layout.of(first)
        self.shapes = layout.shapes_of(first)
        if self.shapes:
            types = {name: shape.type for name, shape in self.shapes.items()}
            file_schema = pa.schema([f.with_type(types.get(f.name, f.type)) for f in file_schema])
        self.stated = layout.stated_in(file_schema) if self.shapes else layout.stated
        self.native: pa.NativeFile | None = None
        self.writer: pq.ParquetWriter | None = None
        with self._discarding():
            if self.atomic is not None and first.nbytes > _LARGE_ROW * first.num_rows:
                self.native = self.atomic.native()
            self.counter = pa.BufferOutputStream() if whole else self.native or pa.PythonFile(sink, mode="w")
            dictionaries = whole or bool(self.shapes) or dictionary_columns(first)
            if layout.nested:
                dictionaries = without_empty(dictionaries, first.select(layout.nested), file_schema)
            self.writer = parquet_writer(self.counter, file_schema, plan, dictionaries, self.with_nan, self.footer)

    @property
    def size(self) -> int:
        return int(self.counter.tell())

    def accepts(self, table: pa.Table) -> bool:
        """Whether the rows can go into this file: they must not hold the first NaN of a column with bounds."""
        return self.layout.of(table)[0] == self.dictionaries and not any(
            has_nan(table, p) for p in self.layout.floats if p not in self.with_nan
        )

    def write(self, table: pa.Table) -> None:
        assert self.writer is not None
        for name, shape in self.shapes.items():
            index = table.schema.get_field_index(name)
            parts = [shredded(chunk, shape, name) for chunk in table.column(index).chunks]
            column = pa.chunked_array(parts, shape.type)
            table = table.set_column(index, table.schema.field(index).with_type(shape.type), column)
        try:
            with self._discarding():
                self.writer.write_table(table.unify_dictionaries() if self.dictionaries else table)
        except pa.ArrowInvalid as e:
            # The check of top-level columns does not find nulls inside nested values.
            raise SchemaMismatchError(
                f"rows do not fit the table: {e}", help="fill or drop the nulls that the table's schema forbids"
            ) from e

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Discard the file after an error; an operating system error of a native file becomes the store's error."""
        try:
            yield
        except BaseException as e:
            self.discard()
            if isinstance(e, OSError) and self.native is not None and self.atomic is not None:
                raise self.atomic.failed_natively(e) from e
            raise

    def close(self, now_ms: int) -> dict[str, Any]:
        assert self.writer is not None
        with self._discarding():
            self.writer.close()
        size = int(self.counter.tell())
        if isinstance(self.counter, pa.BufferOutputStream):
            self.sink.write(self.counter.getvalue())
        self.sink.close()
        return file_action(
            self.plan,
            self.key,
            self.partition,
            size,
            now_ms,
            lambda: file_statistics(self.footer[0], self.stated, self.with_nan),
        )

    def discard(self) -> None:
        """Discard the file; the store's writer drops it when its ``with`` block ends with an error."""
        if self.writer is not None:
            self.writer.is_open = False  # otherwise its destructor tries to write the footer
        self.sink.__exit__(RuntimeError, RuntimeError("write aborted"), None)


def parquet_writer(
    sink: pa.NativeFile,
    schema: pa.Schema,
    plan: FilePlan,
    dictionaries: bool | list[str],
    with_nan: Collection[tuple[str, ...]],
    footer: list[pq.FileMetaData],
    *,
    decimals_as_integers: bool = True,
) -> pq.ParquetWriter:
    """The Parquet writer of all data files and their parts.

    ``dictionaries`` is the result of :func:`dictionary_columns`; ``with_nan`` are columns without bounds; ``footer``
    receives the footer once the file is closed.  Decimals are stored as integers, as Spark does: fixed-length bytes
    take twice the space and are slower to read.
    """
    bounded = [".".join(p) for p in leaf_paths(schema) if p is not None and p not in with_nan] if with_nan else True
    return pq.ParquetWriter(
        sink,
        schema,
        compression=plan.compression,
        use_dictionary=dictionaries,
        write_statistics=bounded,
        store_decimal_as_integer=decimals_as_integers,
        coerce_timestamps="us",
        store_schema=False,
        metadata_collector=footer,
        **PAGE_CHECKSUMS,
    )


class OtherFile:
    """One file of another format."""

    def __init__(
        self, store: Store, key: str, partition: Mapping[str, str | None], schema: pa.Schema, plan: FilePlan
    ) -> None:
        self.store, self.key, self.partition, self.plan = store, key, partition, plan
        self.file = plan.format.write(store, key, schema, plan.compression)
        self.statistics = RowStatistics(schema, plan.statistics)

    @property
    def size(self) -> int:
        return self.file.size

    def accepts(self, table: pa.Table) -> bool:
        return True

    def write(self, table: pa.Table) -> None:
        self.file.write(table)
        self.statistics.add(table)

    def close(self, now_ms: int) -> dict[str, Any]:
        self.file.close()
        size = self.store.head(self.key).size
        return file_action(self.plan, self.key, self.partition, size, now_ms, self.statistics.json)

    def discard(self) -> None:
        self.file.discard()


def dictionary_columns(rows: pa.Table) -> bool | list[str]:
    """The Parquet columns to write with a dictionary, or ``True`` for all.

    Leaves out columns whose dictionary would outgrow its page: to build it only to find that out takes longer than
    everything else together.
    """
    large = {i for i, column in enumerate(rows.columns) if column.nbytes > _DICTIONARY_LIMIT}
    if not large:
        return True
    out: list[str] = []
    for i, f in enumerate(rows.schema):
        encoded = pa.types.is_nested(f.type) or pa.types.is_dictionary(f.type) or i not in large
        if encoded or not _outgrows(_sample(rows.column(i)), rows.num_rows):
            out += _column_paths(f.type, f.name)
    return out


def nested_columns(schema: pa.Schema) -> list[str]:
    """The names of columns that are structs, lists or maps."""
    return [f.name for f in schema if pa.types.is_nested(f.type)]


def without_empty(dictionaries: bool | list[str], rows: pa.Table, schema: pa.Schema) -> bool | list[str]:
    """Leave out leaves inside lists and maps that have only nulls in ``rows``, the nested columns of ``schema``.

    PyArrow 26 would write an empty dictionary for them.  Spark 4.3's code for ``transform``, ``exists`` and ``filter``
    looks up each element before it tests for null, and fails.
    """
    absent, slots = Counter[str](), Counter[str]()
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for chunk in column.chunks:
            for path, leaf, repeated in _leaves(chunk, name):
                absent[path] += leaf.null_count
                slots[path] += len(leaf) if repeated else 0
    empty = {path for path, count in slots.items() if absent[path] == count > 0}
    if not empty or dictionaries is False:
        return dictionaries
    paths = [p for f in schema for p in _column_paths(f.type, f.name)] if dictionaries is True else dictionaries
    return [p for p in paths if p not in empty]


def _leaves(array: pa.Array, path: str, *, repeated: bool = False) -> Iterator[tuple[str, pa.Array, bool]]:
    """Parquet's leaf columns of an array: path, values, and whether they are inside a list or map."""
    t = array.type
    if pa.types.is_struct(t):
        for f, part in zip(t, array.flatten(), strict=True):
            yield from _leaves(part, f"{path}.{f.name}", repeated=repeated)
    elif pa.types.is_map(t):
        entries, _ = elements_of(array)
        for name, part in zip(("key", "value"), entries.flatten(), strict=True):
            yield from _leaves(part, f"{path}.key_value.{name}", repeated=True)
    elif pa.types.is_list(t):
        yield from _leaves(array.flatten(), f"{path}.list.element", repeated=True)
    else:
        yield path, array, repeated


def _sample(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Some of the first values, fewer if they are large; with gaps, so that runs do not dominate."""
    head = column.slice(0, 8 * _SAMPLE)
    most = max(1, min(_SAMPLE, _SAMPLE_BYTES * len(head) // max(head.nbytes, 1)))
    return head.take(pa.array(np.arange(0, len(head), max(1, len(head) // most))))


def _outgrows(sample: pa.ChunkedArray, rows: int) -> bool:
    if pa.types.is_boolean(sample.type) or pa.types.is_null(sample.type):
        return False
    sampled = pc.count_distinct(sample, mode="all").as_py()
    return bool(_distinct(len(sample), sampled, rows) * sample.nbytes / len(sample) > _DICTIONARY_LIMIT)


def _distinct(count: int, sampled: int, rows: int) -> float:
    """Estimate the number of distinct values in ``rows`` rows, if a sample of ``count`` rows has ``sampled``.

    >>> _distinct(4096, 3, 100_000), round(_distinct(4096, 4000, 100_000), -3)
    (3.0, 86000.0)
    """
    if count >= rows:
        return float(sampled)
    # A sample of ``count`` rows from d equally frequent values has d * (1 - exp(-count / d)) distinct ones, which is at
    # least count - count**2 / (2 * d): this gives the upper limit of d.
    low, high = float(sampled), count * count / 2 / max(count - sampled, 1)
    for _ in range(30):
        middle = (low + high) / 2
        expected = -middle * math.expm1(-count / middle)
        low, high = (middle, high) if expected < sampled else (low, middle)
    return min(rows, round(high, 3))


def _column_paths(t: pa.DataType, path: str) -> Iterator[str]:
    return (leaf for leaf, _, _ in _leaves(pa.nulls(0, t), path))


def float_paths(schema: pa.Schema) -> list[tuple[str, ...]]:
    """The columns that may hold a NaN."""
    return [p for p in leaf_paths(schema) if p is not None and pa.types.is_floating(type_at(schema, p))]


def has_nan(table: pa.Table, path: tuple[str, ...]) -> bool:
    """Whether a column holds a NaN."""
    return bool(pc.any(pc.is_nan(values_at(table, path))).as_py())
