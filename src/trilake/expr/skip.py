"""Data skipping: find files without matching rows, by statistics and partition values.

For each node of the predicate tree and each file the analysis keeps three bits: whether the node can be true, false or
null for some row of the file.  A file is skipped only if its statistics prove that no row matches:

* ``min`` and ``max`` enclose all values that are neither null nor NaN.  They may not be values of the file: strings
  are truncated, timestamps widened, and deleted rows count.
* NaN is the greatest value in Spark and absent from ``max``, so ``x > 5`` skips no files for a floating point column,
  unless the writer omits ``max`` for columns with NaN (``max_counts_nan``).
* A ``null_count`` of 0 means that no row is null, one equal to ``num_records`` that all are.  Other values imply
  nothing, so the same rules serve statistics that are not tight.
* A partition value is exact for every row of its file; a null one is null in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.filter import Filter
from trilake.expr.pushdown import successor
from trilake.expr.terms import datatypes as types
from trilake.expr.terms.datatypes import Path, normalise
from trilake.expr.terms.evaluate import Rows, cast_for, evaluate
from trilake.expr.terms.predicate import (
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

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of one column in each file: arrays with one entry per file, in which null means unknown.

    Either ``value`` (a partition column: the one value of all rows, null if they are null) or the others.  ``min``,
    ``max`` and ``value`` are of the column's type.  ``max_counts_nan`` is true for files in which a ``max`` means
    that the column holds no NaN.
    """

    min: pa.Array | pa.ChunkedArray | None = None
    max: pa.Array | pa.ChunkedArray | None = None
    null_count: pa.Array | pa.ChunkedArray | None = None
    value: pa.Array | pa.ChunkedArray | None = None
    max_counts_nan: pa.Array | pa.ChunkedArray | None = None


@dataclass(frozen=True)
class FileStats:
    """Statistics of ``num_files`` files, fetched only for the columns that a filter reads.

    ``column`` returns the statistics of a column by its path in the table's schema, or ``None``.
    ``num_records`` returns the number of rows of each file, including deleted ones; null means unknown.  Each
    callable is called at most once per path and filter.
    """

    num_files: int
    column: Callable[[Path], ColumnStats | None]
    num_records: Callable[[], pa.Array | pa.ChunkedArray | None] = lambda: None

    @classmethod
    def of(cls, num_files: int, columns: Mapping[Path, ColumnStats], num_records: pa.Array | None = None) -> FileStats:
        return cls(num_files, columns.get, lambda: num_records)


class CheckedColumn:
    """The checked statistics of a column."""

    def __init__(self, stats: ColumnStats, num_files: int, records: pa.Array | None) -> None:
        self.min, self.max = flat(stats.min, num_files), flat(stats.max, num_files)
        for bound in (self.min, self.max):
            if bound is not None and not types.is_ordered(bound.type):
                self.min = self.max = None
        self.min, self.max = _without_nan(self.min), _without_nan(self.max)
        if self.min is not None and self.max is not None:
            if self.min.type != self.max.type:
                self.min = self.max = None
            else:
                # Bounds that cross are wrong, or use another order.
                crossed = pc.fill_null(pc.greater(self.min, self.max), False)
                if pc.any(crossed).as_py():
                    self.min, self.max = _blank(self.min, crossed), _blank(self.max, crossed)
        self.can_be_nan = np.ones(num_files, bool)
        nan_counted = flat(stats.max_counts_nan, num_files)
        if nan_counted is not None and self.max is not None:
            self.can_be_nan = ~(to_bits(nan_counted, False) & to_bits(pc.is_valid(self.max), False))
        nulls = flat(stats.null_count, num_files)
        self.can_be_null = np.ones(num_files, bool)
        self.can_be_value = np.ones(num_files, bool)
        if nulls is not None:
            self.can_be_null = ~to_bits(pc.equal(nulls, 0), False)
            if records is not None:
                self.can_be_value = ~to_bits(pc.equal(nulls, records), False)
                # More nulls than records: trust neither number.
                wrong = to_bits(pc.greater(nulls, records), False) | to_bits(pc.less(nulls, 0), False)
                unknown = wrong | to_bits(pc.equal(records, 0), False)
                self.can_be_null |= unknown
                self.can_be_value |= unknown


def flat(array: pa.Array | pa.ChunkedArray | None, num_files: int) -> pa.Array | None:
    """Statistics as one array.  Raises :class:`InvalidArgumentError` if they are not of ``num_files`` files."""
    if array is None:
        return None
    if len(array) != num_files:
        raise InvalidArgumentError(f"statistics of {num_files} files have {len(array)} entries")
    array = normalise(array)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def to_bits(array: pa.Array, null: bool) -> Bits:
    """Convert a boolean array to numpy, with ``null`` for nulls."""
    bits: Bits = pc.fill_null(array, null).to_numpy(zero_copy_only=False)
    return bits


def holds(kernel: Any, bound: pa.Array | None, literal: pa.Scalar, n: int) -> Bits:
    """Compare bounds with a literal; true for unknown bounds."""
    return np.ones(n, bool) if bound is None else to_bits(kernel(bound, literal), True)


def _without_nan(array: pa.Array | None) -> pa.Array | None:
    has_nan = array is not None and types.is_float(array.type)
    return _blank(array, pc.fill_null(pc.is_nan(array), False)) if has_nan else array


def _blank(array: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(None, array.type), array)


#: Types whose bounds may be truncated or rounded.
_WIDENED = (types.is_string, types.is_bytes, pa.types.is_timestamp)


def bound_as(bound: pa.Array | None, t: pa.DataType, direction: int) -> pa.Array | None:
    """Cast a lower (``direction=-1``) or upper bound for comparison; ``None`` if that is unsafe."""
    if bound is None or bound.type == t:
        return bound
    source = bound.type
    numbers = pa.types.is_integer(source) or pa.types.is_decimal(source)
    try:
        if types.is_float(t) and (numbers or types.is_float(source)):
            values = cast_for(bound, t).to_numpy(zero_copy_only=False)
            # Casts may round the last digit differently, so widen by one step.
            outwards = np.nextafter(values, np.array(direction * np.inf, values.dtype))
            return pa.array(outwards, t, mask=to_bits(pc.is_null(bound), True))
        if any(kind(source) and kind(t) for kind in _WIDENED) or (
            numbers and (pa.types.is_integer(t) or pa.types.is_decimal(t))
        ):
            return bound.cast(t)
    except (pa.ArrowException, FilterError):
        pass  # does not fit: treat the bound as unknown
    return None


@dataclass(frozen=True)
class SkipResult:
    """The result of :func:`can_match`, one entry per file.

    ``keep`` is false if no row can match; ``every_row`` is true if all rows match.  ``reason`` is an index into
    ``reasons``, -1 for files that are kept.
    """

    keep: Bits
    every_row: Bits
    reason: npt.NDArray[np.int16]
    reasons: tuple[str, ...]

    def reason_strings(self) -> pa.Array:
        """The reason of each file as a string; null for files that are kept."""
        indices = pa.array(self.reason, mask=self.reason < 0)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.reasons, pa.string())).cast(pa.string())


def can_match(filter: Filter | None, stats: FileStats) -> SkipResult:
    """Which files may have a row for which ``filter`` is true.

    Files with missing, inconsistent or unsuitable statistics are kept.

    >>> from trilake.expr import parse_filter
    >>> stats = FileStats.of(2, {("n",): ColumnStats(min=pa.array([1, 10]), max=pa.array([5, 20]))})
    >>> result = can_match(parse_filter("n > 7", pa.schema({"n": pa.int64()})), stats)
    >>> result.keep.tolist(), result.reason_strings().to_pylist()
    ([False, True], ['n > 7: max is below', None])
    """
    n = stats.num_files
    keep, every, reason = np.ones(n, bool), np.ones(n, bool), np.full(n, -1, np.int16)
    reasons: list[str] = []

    def skip(bits: Bits, cause: str) -> None:
        new = bits & keep
        if new.any() and len(reasons) < np.iinfo(np.int16).max:
            keep[new] = False
            reason[new] = len(reasons)
            reasons.append(cause)

    if filter is not None and n:
        analysis = _Analysis(stats)
        if analysis.records is not None:
            skip(to_bits(pc.equal(analysis.records, 0), False), "the file has no records")
        whole = analysis.exact_expression(filter)
        if whole is not None:
            every &= whole.true
            skip(~whole.true, f"{filter.sql}: partition value")
        for conjunct in filter.conjuncts if whole is None else ():
            possible = analysis.node(conjunct.predicate)
            every &= ~possible.false & ~possible.null
            for bits, why in analysis.causes(conjunct.predicate, possible):
                skip(bits, f"{conjunct.sql}: {why}")
    return SkipResult(keep, every & keep, reason, tuple(reasons))


@dataclass(frozen=True)
class _Outcomes:
    """Whether a node can be true, false and null in each file."""

    true: Bits
    false: Bits
    null: Bits


class _Analysis:
    """Statistics of the files, fetched one column at a time."""

    def __init__(self, stats: FileStats) -> None:
        self.stats = stats
        self.n = stats.num_files
        self._raw: dict[Path, ColumnStats | None] = {}
        self._columns: dict[Path, CheckedColumn | None] = {}

    @cached_property
    def records(self) -> pa.Array | None:
        return flat(self.stats.num_records(), self.n)

    def raw(self, path: Path) -> ColumnStats | None:
        if path not in self._raw:
            self._raw[path] = self.stats.column(path)
        return self._raw[path]

    def column(self, path: Path) -> CheckedColumn | None:
        if path not in self._columns:
            raw = self.raw(path)
            self._columns[path] = None if raw is None else CheckedColumn(raw, self.n, self.records)
        return self._columns[path]

    def is_partition(self, path: Path) -> bool:
        raw = self.raw(path)
        return raw is not None and raw.value is not None

    def node(self, predicate: Predicate) -> _Outcomes:
        if isinstance(predicate, Constant):
            return _Outcomes(*(np.full(self.n, predicate.value is v) for v in (True, False, None)))
        paths = predicate.paths()
        if paths and all(self.is_partition(p) for p in paths):
            exact = self.exact(predicate, sorted(paths))
            if exact is not None:
                return exact
        match predicate:
            case Not(part):
                inner = self.node(part)
                return _Outcomes(inner.false, inner.true, inner.null)
            case And(parts):
                operands = [self.node(p) for p in parts]
                null = np.any([c.null for c in operands], 0) & np.all([c.true | c.null for c in operands], 0)
                return _Outcomes(np.all([c.true for c in operands], 0), np.any([c.false for c in operands], 0), null)
            case Or(parts):
                operands = [self.node(p) for p in parts]
                null = np.any([c.null for c in operands], 0) & np.all([c.false | c.null for c in operands], 0)
                return _Outcomes(np.any([c.true for c in operands], 0), np.all([c.false for c in operands], 0), null)
            case Compare() | Known() | In() | IsNull() | StartsWith():
                return self.leaf(predicate)
        return self.unknown

    @cached_property
    def unknown(self) -> _Outcomes:
        return _Outcomes(*(np.ones(self.n, bool) for _ in range(3)))

    def exact(self, predicate: Predicate, paths: list[Path]) -> _Outcomes | None:
        """Evaluate a predicate over partition columns, once per combination of values."""
        codes, distinct = _distinct([self._value(path) for path in paths])
        try:
            columns = dict(zip(paths, distinct))
            rows = Rows(len(distinct[0]), lambda path: pa.chunked_array([columns[path]]))
            values = evaluate(predicate, rows).combine_chunks()
        except FilterError:
            # The scan fails the same way, with a better error.
            return None
        return self._spread(values, codes)

    def exact_expression(self, filter: Filter) -> _Outcomes | None:
        names = sorted(filter.columns)
        if filter.expression is None or not names or not all(self.is_partition((name,)) for name in names):
            return None
        codes, distinct = _distinct([self._value((name,)) for name in names])
        try:
            columns = [values.cast(filter.schema.field(name).type) for name, values in zip(names, distinct)]
            values = filter.evaluate(pa.table(columns, names=names)).combine_chunks()
        except (FilterError, pa.ArrowException):
            return None
        return self._spread(values, codes)

    def _value(self, path: Path) -> pa.Array:
        raw = self.raw(path)
        assert raw is not None
        value = flat(raw.value, self.n)
        assert value is not None
        return value

    def _spread(self, values: pa.Array, codes: npt.NDArray[np.int64]) -> _Outcomes:
        true, null = to_bits(values, False)[codes], to_bits(pc.is_null(values), True)[codes]
        return _Outcomes(true, ~true & ~null, null)

    def leaf(self, leaf: Compare | Known | In | IsNull | StartsWith) -> _Outcomes:
        column = self.column(leaf.path)
        if isinstance(leaf, IsNull):
            any_ = self.unknown.true
            true, false = (any_, any_) if column is None else (column.can_be_null, column.can_be_value)
            return _Outcomes(true, false, np.zeros(self.n, bool))
        if column is None:
            return self.unknown
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
        return _Outcomes(true & column.can_be_value, false & column.can_be_value, null)

    def compare(self, column: CheckedColumn, leaf: Compare) -> tuple[Bits, Bits]:
        """Whether a comparison can be true and false, for non-null values."""
        op, literal = leaf.op, leaf.literal
        # A value may be NaN, which bounds ignore.
        nan = types.is_float(literal.type) and not leaf.widened
        if types.is_float(literal.type) and literal.as_py() != literal.as_py():
            return self.unknown.true, self.unknown.true
        if leaf.ieee and nan and op in (">", ">="):
            return self._range(column, op, literal)[0], self.unknown.true
        if op in ("!=", ">", ">="):
            false, true = self.compare(column, replace(leaf, op=NEGATED[op]))
            return true, false
        true, false = self._range(column, op, literal)
        return true, false | column.can_be_nan if nan else false

    def _range(self, column: CheckedColumn, op: str, literal: pa.Scalar) -> tuple[Bits, Bits]:
        low, high = self._bounds(column, literal.type)
        match op:
            case "<":
                return holds(pc.less, low, literal, self.n), holds(pc.greater_equal, high, literal, self.n)
            case "<=":
                return holds(pc.less_equal, low, literal, self.n), holds(pc.greater, high, literal, self.n)
            case ">":
                return holds(pc.greater, high, literal, self.n), holds(pc.less_equal, low, literal, self.n)
            case ">=":
                return holds(pc.greater_equal, high, literal, self.n), holds(pc.less, low, literal, self.n)
        inside = holds(pc.less_equal, low, literal, self.n) & holds(pc.greater_equal, high, literal, self.n)
        other = np.ones(self.n, bool)
        if low is not None and high is not None and not any(is_(literal.type) for is_ in _WIDENED):
            other = ~(to_bits(pc.equal(low, literal), False) & to_bits(pc.equal(high, literal), False))
        return inside, other

    def _bounds(self, column: CheckedColumn, t: pa.DataType) -> tuple[pa.Array | None, pa.Array | None]:
        return bound_as(column.min, t, -1), bound_as(column.max, t, 1)

    def is_in(self, column: CheckedColumn, leaf: In) -> tuple[Bits, Bits, Bits]:
        values = leaf.values
        none, true, false = np.zeros(self.n, bool), np.ones(self.n, bool), np.ones(self.n, bool)
        if not types.is_float(values.type) or not pc.any(pc.is_nan(values)).as_py():
            # A file can match if one of the sorted choices lies between its bounds.
            choices = values.take(pc.array_sort_indices(values))
            low, high = self._bounds(column, values.type)
            true = _between(choices, low, high, self.n)
            if len(values) == 1 and not types.is_float(values.type):
                false = self._range(column, "=", values[0])[1]
        return (true, none, false) if leaf.has_null else (true, false, none)

    def starts_with(self, column: CheckedColumn, leaf: StartsWith) -> tuple[Bits, Bits]:
        """Whether non-null values can have and can lack a prefix."""
        prefix = leaf.prefix.as_py()
        low, high = self._bounds(column, leaf.prefix.type)
        after = successor(prefix)
        true, false = holds(pc.greater_equal, high, leaf.prefix, self.n), holds(pc.less, low, leaf.prefix, self.n)
        if after is None:
            return true, false
        limit = pa.scalar(after, leaf.prefix.type)
        return true & holds(pc.less, low, limit, self.n), false | holds(pc.greater_equal, high, limit, self.n)

    def causes(self, predicate: Predicate, possible: _Outcomes) -> list[tuple[Bits, str]]:
        """Reasons why a conjunct skips files, with the files of each."""
        impossible = ~possible.true
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
        if isinstance(predicate, In):
            causes.append((impossible, "no listed value between min and max"))
        if isinstance(predicate, Compare) and predicate.op != "!=":
            low, high = self._bounds(column, predicate.literal.type)
            if predicate.op in ("<", "<=", "="):
                kernel = pc.less if predicate.op == "<" else pc.less_equal
                causes.append((impossible & ~holds(kernel, low, predicate.literal, self.n), "min is above"))
            if predicate.op in (">", ">=", "="):
                kernel = pc.greater if predicate.op == ">" else pc.greater_equal
                causes.append((impossible & ~holds(kernel, high, predicate.literal, self.n), "max is below"))
        return [*causes, (impossible, "column statistics")]


def _between(choices: pa.Array, low: pa.Array | None, high: pa.Array | None, n: int) -> Bits:
    inside = holds(pc.less_equal, low, choices[-1], n) & holds(pc.greater_equal, high, choices[0], n)
    if low is None or high is None or len(choices) == 1:
        return inside
    # Count the choices below each ``low`` by sorting both together.
    low = low.cast(choices.type)
    order = pc.array_sort_indices(pa.concat_arrays([low, choices])).to_numpy()
    is_choice = order >= n
    below = np.empty(n, np.int64)
    below[order[~is_choice]] = np.cumsum(is_choice)[~is_choice]
    # The first choice from ``low`` on must not be above ``high``.
    candidate = choices.take(pa.array(np.minimum(below, len(choices) - 1)))
    return inside & to_bits(pc.or_kleene(pc.is_null(low), pc.less_equal(candidate, high)), True)


def _distinct(columns: list[pa.Array]) -> tuple[npt.NDArray[np.int64], list[pa.Array]]:
    if len(columns) == 1:
        encoded = pc.dictionary_encode(columns[0], null_encoding="encode")
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), [encoded.dictionary]
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Renumber after each column, so that the product cannot overflow.
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    return codes, [column.take(pa.array(first)) for column in columns]
