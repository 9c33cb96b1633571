"""Which files can hold a row for which a filter is true: data skipping by statistics and partition values.

For each node of the predicate tree and each file the analysis keeps three bits: can the node be true, can it be false,
can it be null for some row of the file.  What is unknown can be anything, so a file is skipped only if its statistics
prove that no row matches.

What statistics may be (each rule below follows from these):

* ``min`` and ``max`` enclose all values that are neither null nor NaN.  They need not be values of the file: texts are
  cut off and rounded up, timestamps are widened, deleted rows still count.
* NaN is greater than all else in Spark and absent from ``max``, so ``x > 5`` on a floating point column says nothing.
* A ``null_count`` of 0 means that no row is null, one equal to ``num_records`` that all are.  Nothing else is concluded
  from it, so that the same rules serve statistics that are no longer tight.
* A partition value is exact for every row of its file; a null one is null in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr import datatypes as types
from trilake.expr.datatypes import Path, normalise
from trilake.expr.evaluate import Rows, cast_for, evaluate
from trilake.expr.filter import Filter
from trilake.expr.predicate import (
    NEGATED,
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Known,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from trilake.expr.pushdown import successor

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of one column in each file: arrays of one entry a file, in which null means unknown.

    Either ``value`` (a partition column: the one value of all rows, null if they are null) or the others.  ``min``,
    ``max`` and ``value`` are of the column's type.  ``exact`` promises that bounds are values of the file, which lets
    ``min = max`` prove that all rows are equal also for strings, binaries and timestamps.
    """

    min: pa.Array | pa.ChunkedArray | None = None
    max: pa.Array | pa.ChunkedArray | None = None
    null_count: pa.Array | pa.ChunkedArray | None = None
    value: pa.Array | pa.ChunkedArray | None = None
    exact: bool = False


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class FileStats:
    """What is known about the content of ``num_files`` files, fetched only for the columns that a filter reads.

    ``column`` returns the statistics of a column by its path (names as in the table's schema), or ``None`` where there
    are none.  ``num_records`` returns the number of rows a file holds, deleted ones included; null means unknown.
    Each callable is asked at most once a path and filter.
    """

    num_files: int
    column: Callable[[Path], ColumnStats | None]
    num_records: Callable[[], pa.Array | pa.ChunkedArray | None] = field(default=_nothing)

    @classmethod
    def of(
        cls,
        num_files: int,
        columns: Mapping[Path, ColumnStats],
        num_records: pa.Array | None = None,
    ) -> FileStats:
        """Statistics that are in memory already."""
        return cls(num_files, columns.get, partial(_same, num_records))


def _same(array: pa.Array | None) -> pa.Array | None:
    return array


@dataclass(frozen=True)
class SkipResult:
    """What :func:`can_match` found, one entry a file.

    ``keep`` is false where no row can match; ``every_row`` is true where the filter is proven true for all rows.
    ``reason`` is the index in ``reasons`` of what skipped the file, -1 for files that are kept.
    """

    keep: Bits
    every_row: Bits
    reason: npt.NDArray[np.int16]
    reasons: tuple[str, ...]

    def reason_texts(self) -> pa.Array:
        """The reason of each file as text; null for files that are kept."""
        indices = pa.array(self.reason, mask=self.reason < 0)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.reasons, pa.string())).cast(pa.string())


def can_match(filter: Filter | None, stats: FileStats) -> SkipResult:
    """Which files can hold a row for which ``filter`` is true.

    A file is never skipped on doubt: missing, inconsistent or unsuitable statistics keep it.
    """
    n = stats.num_files
    keep, every, reason = np.ones(n, bool), np.ones(n, bool), np.full(n, -1, np.int16)
    reasons: list[str] = []
    analysis = _Analysis(stats)

    def skip(bits: Bits, text: str) -> None:
        new = bits & keep
        if new.any() and len(reasons) < np.iinfo(np.int16).max:
            keep[new] = False
            reason[new] = len(reasons)
            reasons.append(text)

    if filter is not None and n:
        skip(analysis.empty_files, "the file has no records")
        for conjunct in filter.conjuncts:
            found = analysis.node(conjunct.predicate)
            every &= ~found.false & ~found.null
            for bits, why in analysis.causes(conjunct.predicate, found):
                skip(bits, f"{conjunct.text}: {why}")
    return SkipResult(keep, every & keep, reason, tuple(reasons))


@dataclass(frozen=True)
class _Can:
    """For each file, whether a node can be true, false and null."""

    true: Bits
    false: Bits
    null: Bits


class _Column:
    """The statistics of a column, checked, and as conclusions."""

    def __init__(self, stats: ColumnStats, num_files: int, records: pa.Array | None) -> None:
        self.min, self.max = _flat(stats.min, num_files), _flat(stats.max, num_files)
        for bound in (self.min, self.max):
            if bound is not None and not types.is_ordered(bound.type):
                self.min = self.max = None
        if self.min is not None and types.is_float(self.min.type):
            self.min = _without_nan(self.min)
        if self.max is not None and types.is_float(self.max.type):
            self.max = _without_nan(self.max)
        if self.min is not None and self.max is not None:
            if self.min.type != self.max.type:
                self.min = self.max = None
            else:
                # Bounds that cross were written in another order, or by mistake.
                crossed = pc.fill_null(pc.greater(self.min, self.max), False)
                if pc.any(crossed).as_py():
                    self.min, self.max = _blank(self.min, crossed), _blank(self.max, crossed)
        self.exact = stats.exact
        nulls = _flat(stats.null_count, num_files)
        self.can_be_null = np.ones(num_files, bool)
        self.can_be_value = np.ones(num_files, bool)
        if nulls is not None:
            self.can_be_null = ~_bits(pc.equal(nulls, 0), False)
            if records is not None:
                self.can_be_value = ~_bits(pc.equal(nulls, records), False)
                # More nulls than records: neither number can be trusted.
                wrong = _bits(pc.greater(nulls, records), False) | _bits(pc.less(nulls, 0), False)
                self.can_be_null |= wrong
                self.can_be_value |= wrong
                empty = _bits(pc.equal(records, 0), False)
                self.can_be_null |= empty
                self.can_be_value |= empty


class _Analysis:
    """Statistics of the files, asked for one column at a time."""

    def __init__(self, stats: FileStats) -> None:
        self.stats = stats
        self.n = stats.num_files
        self._raw: dict[Path, ColumnStats | None] = {}
        self._columns: dict[Path, _Column | None] = {}

    @cached_property
    def records(self) -> pa.Array | None:
        """Records of each file, or ``None``."""
        return _flat(self.stats.num_records(), self.n)

    @cached_property
    def empty_files(self) -> Bits:
        """Files without any record."""
        return np.zeros(self.n, bool) if self.records is None else _bits(pc.equal(self.records, 0), False)

    def raw(self, path: Path) -> ColumnStats | None:
        """What the provider says of a column."""
        if path not in self._raw:
            self._raw[path] = self.stats.column(path)
        return self._raw[path]

    def column(self, path: Path) -> _Column | None:
        """The checked statistics of a data column."""
        if path not in self._columns:
            raw = self.raw(path)
            self._columns[path] = None if raw is None else _Column(raw, self.n, self.records)
        return self._columns[path]

    def is_partition(self, path: Path) -> bool:
        """Whether the column has one known value in each file."""
        raw = self.raw(path)
        return raw is not None and raw.value is not None

    # --- the three bits ----------------------------------------------------------------------------------------------

    def node(self, predicate: Predicate) -> _Can:
        """The three bits of a node, for each file."""
        if isinstance(predicate, Constant):
            return _Can(*(np.full(self.n, predicate.value is v) for v in (True, False, None)))
        paths = predicate.paths()
        if paths and all(self.is_partition(p) for p in paths):
            exact = self.exact(predicate, sorted(paths))
            if exact is not None:
                return exact
        match predicate:
            case Not(part):
                inner = self.node(part)
                return _Can(inner.false, inner.true, inner.null)
            case And(parts):
                found = [self.node(p) for p in parts]
                true, not_false = _all(c.true for c in found), _all(c.true | c.null for c in found)
                return _Can(true, _any(c.false for c in found), _any(c.null for c in found) & not_false)
            case Or(parts):
                found = [self.node(p) for p in parts]
                false, not_true = _all(c.false for c in found), _all(c.false | c.null for c in found)
                return _Can(_any(c.true for c in found), false, _any(c.null for c in found) & not_true)
            case Compare() | Known() | In() | IsNull() | StartsWith():
                return self.leaf(predicate)
        return self.unknown

    @cached_property
    def unknown(self) -> _Can:
        """Everything can be."""
        return _Can(*(np.ones(self.n, bool) for _ in range(3)))

    def exact(self, predicate: Predicate, paths: list[Path]) -> _Can | None:
        """The value of a predicate over partition columns, computed once for each distinct combination of values."""
        columns = []
        for path in paths:
            raw = self.raw(path)
            assert raw is not None
            value = _flat(raw.value, self.n)
            assert value is not None
            columns.append(value)
        codes, distinct = _distinct(columns)
        try:
            values = evaluate(predicate, _PartitionRows(paths, distinct)).combine_chunks()
        except FilterError:
            # A row would fail in the same way; the scan says so better than the planning.
            return None
        true, null = _bits(values, False)[codes], _bits(pc.is_null(values), True)[codes]
        return _Can(true, ~true & ~null, null)

    def leaf(self, leaf: Compare | Known | In | IsNull | StartsWith) -> _Can:
        """The three bits of a condition on a data column."""
        column = self.column(leaf.path)
        if column is None:
            if isinstance(leaf, IsNull):
                return _Can(self.unknown.true, self.unknown.true, np.zeros(self.n, bool))
            return self.unknown
        if isinstance(leaf, IsNull):
            return _Can(column.can_be_null, column.can_be_value, np.zeros(self.n, bool))
        true, false, null = np.ones(self.n, bool), np.ones(self.n, bool), column.can_be_null
        match leaf:
            case Known(_, value):
                true[:], false[:] = value, not value
            case Compare():
                true, false = self.compare(column, leaf)
            case In():
                true, false, some_null = self.is_in(column, leaf)
                null = null | some_null
            case StartsWith():
                true, false = self.starts_with(column, leaf)
        return _Can(true & column.can_be_value, false & column.can_be_value, null)

    def compare(self, column: _Column, leaf: Compare) -> tuple[Bits, Bits]:
        """Whether a comparison can be true and false for values that are not null."""
        op, literal, t = leaf.op, leaf.literal, leaf.literal.type
        if op in ("!=", ">", ">="):
            positive = Compare(leaf.path, NEGATED[op], literal)
            true, false = self.compare(column, positive)
            # NaN makes an ieee comparison false whatever the operator; else it follows the negation.
            if types.is_float(t) and leaf.ieee and op != "!=":
                return self._range(column, op, literal)[0], np.ones(self.n, bool)
            return false, true
        true, false = self._range(column, op, literal)
        if types.is_float(t):
            false = np.ones(self.n, bool)  # NaN
            if literal.as_py() != literal.as_py():
                true = np.ones(self.n, bool)
        return true, false

    def _range(self, column: _Column, op: str, literal: pa.Scalar) -> tuple[Bits, Bits]:
        low, high = self._bounds(column, literal.type)
        match op:
            case "<":
                return _test(pc.less, low, literal, self.n), _test(pc.greater_equal, high, literal, self.n)
            case "<=":
                return _test(pc.less_equal, low, literal, self.n), _test(pc.greater, high, literal, self.n)
            case ">":
                return _test(pc.greater, high, literal, self.n), _test(pc.less_equal, low, literal, self.n)
            case ">=":
                return _test(pc.greater_equal, high, literal, self.n), _test(pc.less, low, literal, self.n)
        inside = _test(pc.less_equal, low, literal, self.n) & _test(pc.greater_equal, high, literal, self.n)
        other = np.ones(self.n, bool)
        if low is not None and high is not None and (column.exact or not _is_widened(literal.type)):
            other = ~(_bits(pc.equal(low, literal), False) & _bits(pc.equal(high, literal), False))
        return inside, other

    def _bounds(self, column: _Column, t: pa.DataType) -> tuple[pa.Array | None, pa.Array | None]:
        return _bound(column.min, t, -1), _bound(column.max, t, 1)

    def is_in(self, column: _Column, leaf: In) -> tuple[Bits, Bits, Bits]:
        """The three bits of IN for values that are not null."""
        values = leaf.values
        none = np.zeros(self.n, bool)
        false = np.ones(self.n, bool)
        true = none.copy()
        if types.is_float(values.type) and pc.any(pc.is_nan(values)).as_py():
            true = np.ones(self.n, bool)
        else:
            # Sorted, a file can match if a choice lies between its bounds.
            choices = values.take(pc.array_sort_indices(values))
            low, high = self._bounds(column, values.type)
            true = _between(choices, low, high, self.n)
            if len(values) == 1 and not types.is_float(values.type):
                false = self._range(column, "=", values[0])[1]
        if leaf.has_null:
            return true, none, false
        return true, false, none

    def starts_with(self, column: _Column, leaf: StartsWith) -> tuple[Bits, Bits]:
        """Whether a prefix can and can fail to be there, for values that are not null."""
        prefix = leaf.prefix.as_py()
        low, high = self._bounds(column, leaf.prefix.type)
        after = successor(prefix) if isinstance(prefix, str) else _bytes_successor(prefix)
        true, false = _test(pc.greater_equal, high, leaf.prefix, self.n), _test(pc.less, low, leaf.prefix, self.n)
        if after is None:
            return true, false
        limit = pa.scalar(after, leaf.prefix.type)
        return (
            true & _test(pc.less, low, limit, self.n),
            false | _test(pc.greater_equal, high, limit, self.n),
        )

    # --- explanations ------------------------------------------------------------------------------------------------

    def causes(self, predicate: Predicate, found: _Can) -> list[tuple[Bits, str]]:
        """Why files are skipped by a conjunct: file sets that together are all those it cannot be true for."""
        impossible = ~found.true
        paths = predicate.paths()
        if not impossible.any():
            return []
        if paths and all(self.is_partition(p) for p in paths):
            return [(impossible, "partition value")]
        leaf = predicate.part if isinstance(predicate, Not) else predicate
        if isinstance(leaf, IsNull):
            return [(impossible, "no value is null" if leaf is predicate else "all values are null")]
        column = self.column(leaf.path) if isinstance(leaf, Compare | In | StartsWith | Known) else None
        if column is None:
            return [(impossible, "column statistics" if paths else "never true")]
        causes = [(impossible & ~column.can_be_value, "all values are null")]
        if isinstance(predicate, Compare) and predicate.op != "!=":
            low, high = self._bounds(column, predicate.literal.type)
            if predicate.op in ("<", "<=", "="):
                kernel = pc.less if predicate.op == "<" else pc.less_equal
                causes.append((impossible & ~_test(kernel, low, predicate.literal, self.n), "min is above"))
            if predicate.op in (">", ">=", "="):
                kernel = pc.greater if predicate.op == ">" else pc.greater_equal
                causes.append((impossible & ~_test(kernel, high, predicate.literal, self.n), "max is below"))
        return [*causes, (impossible, "column statistics")]


class _PartitionRows(Rows):
    """Rows of partition values, one for each distinct combination."""

    def __init__(self, paths: list[Path], columns: list[pa.Array]) -> None:
        super().__init__(pa.table(columns, names=[str(i) for i in range(len(columns))]))
        self._columns = {p: normalise(pa.chunked_array([c])) for p, c in zip(paths, columns, strict=True)}

    def take(self, mask: pa.ChunkedArray) -> Rows:
        columns = [self._columns[p].filter(mask).combine_chunks() for p in self._columns]
        return _PartitionRows(list(self._columns), columns)


def _flat(array: pa.Array | pa.ChunkedArray | None, num_files: int) -> pa.Array | None:
    if array is None:
        return None
    if len(array) != num_files:
        raise InvalidArgumentError(f"statistics of {num_files} files have {len(array)} entries")
    array = normalise(array)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _bits(array: pa.Array, null: bool) -> Bits:
    bits: Bits = pc.fill_null(array, null).to_numpy(zero_copy_only=False)
    return bits


def _test(kernel: Any, bound: pa.Array | None, literal: pa.Scalar, n: int) -> Bits:
    """A comparison of bounds with a literal; true where the bound is unknown."""
    return np.ones(n, bool) if bound is None else _bits(kernel(bound, literal), True)


def _without_nan(array: pa.Array) -> pa.Array:
    return _blank(array, pc.fill_null(pc.is_nan(array), False))


def _blank(array: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(None, array.type), array)


def _is_widened(t: pa.DataType) -> bool:
    return types.is_text(t) or types.is_bytes(t) or pa.types.is_timestamp(t)


def _bound(bound: pa.Array | None, t: pa.DataType, direction: int) -> pa.Array | None:
    """A bound in the type that it is compared in; ``None`` where a cast might move it past a value."""
    if bound is None or bound.type == t:
        return bound
    try:
        if types.is_float(t) and not types.is_float(bound.type):
            cast = cast_for(bound, t).to_numpy(zero_copy_only=False)
            # The cast rounds, each implementation in its own way by the last digit.
            wide = cast + direction * np.abs(cast) * 1e-14
            return pa.array(wide, t, mask=_bits(pc.is_null(bound), True))
        return bound.cast(t)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _between(choices: pa.Array, low: pa.Array | None, high: pa.Array | None, n: int) -> Bits:
    """Whether any of the sorted ``choices`` lies between ``low`` and ``high``, for each file."""
    if low is None or high is None or n == 0:
        result = np.ones(n, bool)
        if low is not None:
            result &= _test(pc.less_equal, low, choices[-1], n)
        if high is not None:
            result &= _test(pc.greater_equal, high, choices[0], n)
        return result
    # The rank of the first choice that is not below ``low``; it must not be above ``high``.
    first = pc.search_sorted(choices, low, side="left")
    past = pc.less(first, len(choices))
    candidate = choices.take(pc.if_else(past, first, pa.scalar(0, first.type)))
    fits = pc.and_(past, pc.less_equal(candidate, high))
    known_low = _test(pc.less_equal, low, choices[-1], n)
    known_high = _test(pc.greater_equal, high, choices[0], n)
    return _bits(fits, True) & known_low & known_high


def _distinct(columns: list[pa.Array]) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    """The distinct rows of ``columns``, and for each row the index of its distinct one."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Renumbered after each column, so that the product of two ranges cannot overflow.
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    return codes, [column.take(pa.array(first)) for column in columns]


def _bytes_successor(prefix: bytes) -> bytes | None:
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def _all(bits: Any) -> Bits:
    result: Bits = np.logical_and.reduce(list(bits))
    return result


def _any(bits: Any) -> Bits:
    result: Bits = np.logical_or.reduce(list(bits))
    return result
