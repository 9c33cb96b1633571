"""Select the target files of a MERGE by the source's join keys, before joining.

A target row can only match if its key occurs in the source: files are skipped by partition values and statistics.  The
selection is also what concurrent commits are checked against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.commit.conflicts import ReadSet
from trilake.delta.commit.partition_predicate import PartitionPredicate
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.protocol.char_varchar import filter_schema
from trilake.delta.scan.scan import read_schema
from trilake.delta.scan.skipping import skip_files
from trilake.errors import FilterError
from trilake.expr import Conjunct, Filter
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.bind import path_text, resolve
from trilake.expr.terms.predicate import Compare, Constant, In, IsNull, Predicate, all_of, any_of

#: Up to this many distinct keys are compared with statistics one by one; beyond that only their bounds.
MOST_KEYS = 1 << 17


@dataclass(frozen=True)
class KeyValues:
    """The values that the source has for a column of the target.

    ``column`` are the parts of its name.  ``values`` hold every value except null, or with ``bounds`` only the
    least and the greatest.  ``null`` says that null matches null.
    """

    column: tuple[str, ...]
    values: pa.Array
    bounds: bool = False
    null: bool = False


def key_values(column: tuple[str, ...], keys: pa.Array | pa.ChunkedArray, null_safe: bool) -> KeyValues:
    """What ``keys``, the keys of all source rows, say about the target column that must equal them."""
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
    """A condition that every matching target row satisfies; ``None`` without one.

    ``others`` are the join's conditions on the target alone.
    """
    conjuncts = [c for f in others for c in f.conjuncts]
    for key in keys:
        predicate = _predicate(key, schema)
        if predicate is not None:
            conjuncts.append(Conjunct(f"{path_text(key.column)} among the source's keys", predicate))
    if not conjuncts:
        return None
    return Filter(" AND ".join(c.text for c in conjuncts), schema, tuple(conjuncts))


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
    """Keys as values of the target's column; ``None`` where the two are compared as a third type."""
    if pa.types.is_null(values.type):
        return None
    if values.type == target:
        return values
    if not (pa.types.is_integer(values.type) and pa.types.is_integer(target)):
        return None
    if values.type.bit_width > target.bit_width:
        limit = 1 << (target.bit_width - 1)
        low, high = pa.scalar(-limit, values.type), pa.scalar(limit - 1, values.type)
        # A value that does not fit is not a key of the target; as a bound it is as good as the type's limit.
        if bounds:
            values = pc.max_element_wise(pc.min_element_wise(values, high), low)
        else:
            values = values.filter(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)))
    return values.cast(target)


# --- files -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pruned:
    """The files to read, as positions in ``snapshot.adds``, and what the transaction has thereby read."""

    numbers: np.ndarray[Any, np.dtype[np.int64]]
    read: ReadSet


def prune(snapshot: Snapshot, match: Filter | None, unmatched: Sequence[Filter | None]) -> Pruned:
    """Select the files that can hold a matching row, or one that a clause for unmatched rows may change.

    ``match`` is the result of :func:`key_filter`; ``unmatched`` are the conditions of the clauses for unmatched
    target rows, ``None`` for one without.
    """
    conditions = [match, *unmatched]
    if any(f is None for f in conditions):
        numbers = np.arange(snapshot.adds.num_rows, dtype=np.int64)
        return Pruned(numbers, ReadSet(whole_table=True, files=_paths(snapshot, numbers)))
    keep = np.zeros(snapshot.adds.num_rows, bool)
    for f in conditions:
        possible = skip_files(snapshot, f).keep
        assert possible is not None
        keep |= possible
    numbers = np.flatnonzero(keep).astype(np.int64)
    predicates = tuple(PartitionPredicate.of(snapshot, f) for f in conditions if f is not None)
    return Pruned(numbers, ReadSet(predicates=predicates, files=_paths(snapshot, numbers)))


def _paths(snapshot: Snapshot, numbers: np.ndarray[Any, Any]) -> frozenset[str]:
    return frozenset(snapshot.adds["path"].take(pa.array(numbers)).to_pylist())


def target_schema(snapshot: Snapshot) -> pa.Schema:
    """The target's columns as expressions see them."""
    return filter_schema(read_schema(snapshot.schema))
