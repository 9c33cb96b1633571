"""The target files that the join keys of a MERGE select before the join.

A target row can match only if its key occurs in the source, so files are skipped by partition values and statistics.
Concurrent commits are checked against the same selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
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
