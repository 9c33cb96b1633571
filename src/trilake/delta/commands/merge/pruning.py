"""The source of a MERGE, and the target files that its join keys select before the join.

A target row can match only if its key occurs in the source, so files are skipped by partition values and statistics.
Concurrent commits are checked against the same selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commit.conflicts import PartitionPredicate, ReadSet
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.scan.scan import read_schema, skip_files
from trilake.errors import FilterError
from trilake.expr import Conjunct, Filter
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.bind import format_path, resolve
from trilake.expr.terms.predicate import Compare, Constant, In, IsNull, Predicate, all_of, any_of
from trilake.expr.views import in_microseconds, microseconds_schema, stream_without_views
from trilake.storage.staging import spilling, temporary_folder
from trilake.table.frames import arrow_batches

#: Up to this many distinct keys are compared with statistics one by one; of more keys, only the bounds are.
MOST_KEYS = 1 << 17


@dataclass(frozen=True)
class KeyValues:
    """The source's values for a target column.

    ``column`` is the name of the column, in parts.  ``values`` hold every value except null, or with ``bounds`` only
    the least and the greatest.  ``null``: whether null matches null.
    """

    column: tuple[str, ...]
    values: pa.Array
    bounds: bool = False
    null: bool = False


def key_values(column: tuple[str, ...], keys: pa.Array | pa.ChunkedArray, null_safe: bool) -> KeyValues:
    """The values in ``keys`` of all source rows, for the target column that must equal them."""
    null = null_safe and keys.null_count > 0
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    kind = types.normal_type(keys.type)
    if not types.is_ordered(kind):
        return KeyValues(column, pa.nulls(0), null=null)
    keys = types.normalise(pa.chunked_array([keys])).combine_chunks()
    if len(keys) > MOST_KEYS and not types.is_float(kind):
        ends = pc.min_max(keys)
        return KeyValues(column, pa.array([ends["min"].as_py(), ends["max"].as_py()], kind), bounds=True, null=null)
    return KeyValues(column, pc.drop_null(pc.unique(keys)), null=null)


def key_filter(keys: Sequence[KeyValues], others: Sequence[Filter], schema: pa.Schema) -> Filter | None:
    """A condition that every matching target row satisfies; ``None`` if there is none.

    ``others`` are the join's conditions that read only the target.
    """
    conjuncts = [c for f in others for c in f.conjuncts]
    for key in keys:
        predicate = _predicate(key, schema)
        if predicate is not None:
            conjuncts.append(Conjunct(f"{format_path(key.column)} among the source's keys", predicate))
    if not conjuncts:
        return None
    return Filter(" AND ".join(c.sql for c in conjuncts), schema, tuple(conjuncts))


def _predicate(key: KeyValues, schema: pa.Schema) -> Predicate | None:
    try:
        column, rest = resolve(key.column, schema)
    except FilterError:
        return None
    if rest or not types.is_ordered(column.type):
        return None
    values = _as_type(key.values, column.type, key.bounds)
    if values is None:
        return None
    if not len(values):
        equal: Predicate = Constant(False)
    elif key.bounds:
        equal = all_of([Compare(column.path, ">=", values[0]), Compare(column.path, "<=", values[-1])])
    else:
        equal = In(column.path, values)
    return any_of([equal, IsNull(column.path)]) if key.null else equal


def _as_type(values: pa.Array, target: pa.DataType, bounds: bool) -> pa.Array | None:
    """Cast keys to the target column's type; ``None`` if the join compares both as a third type."""
    if pa.types.is_null(values.type):
        return None
    if values.type == target:
        return values
    if not (pa.types.is_integer(values.type) and pa.types.is_integer(target)):
        return None
    if values.type.bit_width > target.bit_width:
        limit = 1 << (target.bit_width - 1)
        low, high = pa.scalar(-limit, values.type), pa.scalar(limit - 1, values.type)
        # A value that does not fit cannot match; a bound that does not fit becomes the type's limit.
        if bounds:
            values = pc.max_element_wise(pc.min_element_wise(values, high), low)
        else:
            values = values.filter(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)))
    return values.cast(target)


@dataclass(frozen=True)
class Pruned:
    """The files to read, as positions in ``snapshot.adds``, and the reads of the transaction."""

    numbers: np.ndarray[Any, np.dtype[np.int64]]
    read: ReadSet


def prune(snapshot: Snapshot, match: Filter | None, unmatched: Sequence[Filter | None]) -> Pruned:
    """Select the files that can hold a matching row, or one that a clause for unmatched rows may change.

    ``match`` is the result of :func:`key_filter`; ``unmatched`` are the conditions of the clauses for unmatched target
    rows, ``None`` for a clause without a condition.
    """
    conditions = [f for f in (match, *unmatched) if f is not None]
    if len(conditions) <= len(unmatched):
        numbers = np.arange(snapshot.adds.num_rows, dtype=np.int64)
        return Pruned(numbers, ReadSet(whole_table=True, files=frozenset(snapshot.adds["path"].to_pylist())))
    keep = np.zeros(snapshot.adds.num_rows, bool)
    for f in conditions:
        keep |= skip_files(snapshot, f).keep
    numbers = np.flatnonzero(keep).astype(np.int64)
    predicates = tuple(PartitionPredicate.of(snapshot, f) for f in conditions)
    paths = frozenset(snapshot.adds["path"].take(pa.array(numbers)).to_pylist())
    return Pruned(numbers, ReadSet(predicates=predicates, files=paths))


def target_schema(snapshot: Snapshot) -> pa.Schema:
    """The target's columns in the form that expressions see."""
    return filter_schema(read_schema(snapshot.schema))


#: A stream up to this many bytes stays in memory; a larger one goes into a memory-mapped temporary file.
_IN_MEMORY = 256 << 20


@contextmanager
def materialized(data: Any, limit: int = _IN_MEMORY, *, round_times: bool = True) -> Iterator[pa.Table]:
    """The rows of a source as a table without views and with times in microseconds, for the duration of the block.

    ``data`` is an input of :func:`~trilake.table.frames.arrow_batches`; raises ``InvalidArgumentError`` for anything
    else.  Raises ``SchemaMismatchError`` for times finer than a microsecond unless ``round_times`` is set, and
    ``StorageError`` if a stream exceeds ``limit`` and the temporary folder is full.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    schema, batches = stream_without_views(*arrow_batches(data, "the source of a merge cannot be"))
    schema, batches = microseconds_schema(schema), map(partial(in_microseconds, round_down=round_times), batches)
    if isinstance(data, pa.Table):
        yield pa.Table.from_batches(batches, schema)
        return
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size > limit:
            break
    else:
        yield pa.Table.from_batches(waiting, schema)
        return
    with temporary_folder("trilake-merge-") as folder:
        path = str(folder / "source.arrow")
        with spilling():
            sink = pa.OSFile(path, "wb")
        with sink:
            drained = (waiting.pop(0) for _ in range(len(waiting)))
            _write(sink, schema, chain(drained, batches))
        with spilling():
            mapped = pa.memory_map(path)
        with mapped:
            yield pa.ipc.open_file(mapped).read_all()


class SourceRows:
    """The rows of a source, taken by index.

    >>> rows = SourceRows(pa.concat_tables([pa.table({"a": [1, 2], "b": [0, 0]}), pa.table({"a": [3], "b": [0]})]))
    >>> rows.take(np.array([2, 0, 2]), ["a"]).to_pydict()
    {'a': [3, 1, 3]}
    """

    def __init__(self, rows: pa.Table) -> None:
        self._empty = rows.schema.empty_table()
        self._batches = rows.to_batches()
        self._starts = np.cumsum([0, *(b.num_rows for b in self._batches)])

    def take(self, which: npt.NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows in the order of their indexes, with these columns; all by default.

        Works batch by batch, because Arrow's ``take`` searches all chunks, which is ten times slower for adjacent rows
        (pyarrow 26).
        """
        names = self._empty.schema.names if columns is None else list(columns)
        ordered = bool(np.all(which[1:] >= which[:-1]))
        order = None if ordered else np.argsort(which, kind="stable")
        numbers = which if order is None else which[order]
        ends = np.searchsorted(numbers, self._starts)
        parts = [
            batch.select(names).take(pa.array(numbers[lo:hi] - start))
            for batch, start, lo, hi in zip(self._batches, self._starts, ends, ends[1:], strict=False)
            if hi > lo
        ]
        rows = pa.Table.from_batches(parts) if parts else self._empty.select(names)
        if order is None:
            return rows
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return rows.combine_chunks().take(pa.array(back))


def _write(sink: pa.NativeFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a stream to a temporary file; errors of the stream itself are raised unchanged."""
    with spilling():
        writer = pa.ipc.new_file(sink, schema)
    for batch in batches:
        with spilling():
            writer.write_batch(batch)
    with spilling():
        writer.close()
