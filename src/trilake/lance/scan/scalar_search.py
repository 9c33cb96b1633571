"""Use scalar indices to find the rows that may match a filter.

The whole filter is applied to these rows again, so an index may return too many rows, but never too few, and may answer
only part of the filter.  Fragments that an index does not cover are scanned.

This holds for new indices too: nothing proves that the files of an index match the ``dataset_version`` and fragments in
its manifest entry, because a column may have been rewritten after the files were built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
from pyroaring import FrozenBitMap

from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.expr import Filter
from trilake.expr.pushdown import successor
from trilake.expr.sql.functions import contained_literal
from trilake.expr.terms.predicate import And, Compare, In, IsNull, Not, Opaque, Or, Predicate, StartsWith
from trilake.lance.file.null_masks import companions
from trilake.lance.file.schema import LanceSchema
from trilake.lance.index.scalar import REMAKE, Bound, RowIds, ScalarIndex
from trilake.lance.scan.fragment_reader import Rows, split
from trilake.lance.scan.id_conditions import is_of_ids, named_ids
from trilake.lance.scan.open_indices import OpenIndices, scalar_class
from trilake.lance.versions.manifest import IndexMetadata, Manifest

#: An index is not used if it must read more than ``_FEW`` pages, and more than 1/``_PART`` of all its pages.
_PART, _FEW = 4, 16
#: Fragments are scanned if an index finds more rows than this, and more than 1/``_PART`` of all rows.
_MANY = 1 << 16

#: Maximum timestamps of an IN to look up one by one in an index of nanoseconds.
_TIMES = 64


@dataclass(frozen=True)
class Contains:
    """The lists of a column contain a value."""

    path: tuple[str, ...]
    value: str | int


@dataclass(frozen=True)
class Between:
    """The values of a column lie between two bounds."""

    path: tuple[str, ...]
    low: Compare
    high: Compare


#: Parts of a filter that an index can answer.
IndexedLeaf = Compare | In | StartsWith | IsNull | Contains | Between


@dataclass(frozen=True)
class IndexQuery:
    """A part of a filter that indices can answer.

    ``description`` is for plans; ``fragments`` are those that all of its indices cover; ``exact`` indicates whether it
    is the whole filter.  ``row_ids`` returns the sorted ids of the rows that may match, or ``None`` if a scan is
    cheaper; if ``certain``, because the part is only about ids, they match without a test.
    """

    description: str
    fragments: FrozenBitMap
    exact: bool
    row_ids: Callable[[], RowIds | None]
    certain: bool = False


def index_query(
    filter: Filter | None,
    manifest: Manifest,
    schema: LanceSchema,
    indices: OpenIndices,
    stable_ids: Callable[[RowIds], RowIds],
) -> IndexQuery | None:
    """Find the part of a filter that indices can answer; ``None`` if there is none.

    ``schema`` has the columns that the filter names; ``stable_ids`` returns the sorted row ids for addresses.
    """
    if filter is None:
        return None
    builder = _QueryBuilder(manifest, schema, indices, stable_ids)
    return builder.conjunction([c.predicate for c in filter.conjuncts])


@dataclass(frozen=True)
class _QueryBuilder:
    manifest: Manifest
    schema: LanceSchema
    indices: OpenIndices
    stable_ids: Callable[[RowIds], RowIds]

    def index_query(self, predicate: Predicate) -> IndexQuery | None:
        match predicate:
            case And(parts):
                return self.conjunction(parts)
            case Or(parts):
                return _union([self.index_query(p) for p in parts])
            case Compare() | In() | StartsWith() | IsNull():
                return self.leaf(predicate)
            case Opaque(sql, (path,)) if (value := contained_literal(sql)) is not None:
                return self.leaf(Contains(path, value))
            case Not(IsNull() as leaf) if is_of_ids(leaf, self.schema):
                # pyarrow adds this to each list of values.  It is always true: every row has an id.
                return IndexQuery(f"{leaf.path[0]} IS NOT NULL", self.everywhere, True, lambda: None, certain=True)
        return None

    def conjunction(self, parts: Sequence[Predicate]) -> IndexQuery | None:
        """Build the query for rows that satisfy all conditions."""
        queries: list[IndexQuery | None] = []
        rest = list(parts)
        for low in [p for p in parts if isinstance(p, Compare) and p.op in (">", ">=") and not p.widened]:
            for high in rest:
                if isinstance(high, Compare) and high.path == low.path and high.op in ("<", "<=") and not high.widened:
                    query = self.leaf(Between(low.path, low, high))
                    if query is not None:
                        queries.append(query)
                        rest = [p for p in rest if p is not low and p is not high]
                    break
        return _intersection([*queries, *(self.index_query(p) for p in rest)])

    def leaf(self, leaf: IndexedLeaf) -> IndexQuery | None:
        if isinstance(leaf, Compare | In) and is_of_ids(leaf, self.schema):
            ids = named_ids(leaf, self.manifest)  # needs no index
            if ids is None:
                return None
            return IndexQuery(_describe(leaf), self.everywhere, True, lambda: ids, certain=True)
        if isinstance(leaf, Compare) and (leaf.op == "!=" or leaf.widened):
            return None
        if isinstance(leaf, In) and (leaf.widened or len(leaf.values) > 1 << 16):
            return None
        field = self.schema.find(leaf.path)
        by_name: dict[str, list[IndexMetadata]] = {}
        for entry in self.manifest.indices:
            covered = entry.fragment_bitmap or FrozenBitMap()
            if field is not None and entry.fields == (field.id,) and not covered.isdisjoint(self.everywhere):
                by_name.setdefault(entry.name, []).append(entry)
        for entries in sorted(by_name.values(), key=lambda entries: scalar_class(entries[0]).is_exact, reverse=True):
            answers = [self.by_ids(entry, self.answer(entry, leaf)) for entry in entries]
            if all(answer is not None for answer in answers):
                return _segments([answer for answer in answers if answer is not None])
        return None

    def answer(self, entry: IndexMetadata, leaf: IndexedLeaf) -> IndexQuery | None:
        index = self.indices.scalar(entry)
        if index is None or index.answers_items != isinstance(leaf, Contains):
            return None
        covered = entry.fragment_bitmap or FrozenBitMap()
        description = f"[{_describe(leaf)}]@{entry.name}({index.kind})"
        if isinstance(leaf, IsNull):
            return IndexQuery(description, covered, True, index.is_null) if index.has_nulls else None
        if isinstance(leaf, Contains):
            try:
                index.pages_of([leaf.value])
            except InvalidArgumentError:
                return None  # a literal that the items' type cannot hold
            return IndexQuery(description, covered, True, lambda: index.is_in([leaf.value]))
        if isinstance(leaf, In) and _is_nanoseconds(index.value_type):
            if len(leaf.values) > _TIMES:
                return None
            # A value matches all nanoseconds of its microsecond.
            return _union([self.answer(entry, Compare(leaf.path, "=", value)) for value in leaf.values])
        # An index lacks the nulls of 2.x files and of companions; otherwise it must have every live row.
        if self.manifest.storage_version.is_legacy and leaf.path[0] not in companions(self.manifest.schema):
            _check_count(index, entry, self.manifest)
        try:
            pages, row_ids = _pages_and_rows(index, leaf)
        except InvalidArgumentError:
            return None  # a literal that the index's type cannot hold: scan instead
        few = int(np.count_nonzero(pages)) <= max(_FEW, index.num_pages // _PART)
        return IndexQuery(description, covered, True, row_ids if few else lambda: None)

    def by_ids(self, entry: IndexMetadata, query: IndexQuery | None) -> IndexQuery | None:
        """Replace the addresses of an index with row ids, if the dataset has stable ones."""
        if query is None or not (self.manifest.has_stable_row_ids and entry.by_address):
            return query
        return replace(query, row_ids=lambda: None if (at := query.row_ids()) is None else self.stable_ids(at))

    @cached_property
    def everywhere(self) -> FrozenBitMap:
        return FrozenBitMap(f.id for f in self.manifest.fragments)


def _check_count(index: ScalarIndex, entry: IndexMetadata, manifest: Manifest) -> None:
    """Raise ``CorruptFileError`` if an index has fewer rows than are live in the fragments that it covers.

    It may have more: rows that were deleted later, and rows of fragments that it no longer covers.
    """
    covered = [f for f in manifest.fragments if f.id in (entry.fragment_bitmap or ())]
    deleted = [0 if f.deletion_file is None else f.deletion_file.num_deleted_rows for f in covered]
    if any(f.deletion_file is not None and not n for f, n in zip(covered, deleted)):
        return  # the number of live rows is unknown
    live = sum(f.physical_rows for f in covered) - sum(deleted)
    if index.num_rows is not None and index.num_rows < live:
        raise CorruptFileError(
            f"index {entry.name!r} has {index.num_rows} of the {live} rows of its fragments",
            help=REMAKE,
            version=manifest.version,
        )


def _pages_and_rows(
    index: ScalarIndex, leaf: Compare | In | StartsWith | Between
) -> tuple[npt.NDArray[np.bool_], Callable[[], RowIds | None]]:
    if isinstance(leaf, In):
        values = leaf.values
        if pt.is_float32(index.value_type) or pt.is_float16(index.value_type):
            kind = index.value_type.to_pandas_dtype()
            values = pa.array(np.unique(values.to_numpy(zero_copy_only=False).astype(kind)), index.value_type)
        return index.pages_of(values), (lambda: index.is_in(values))
    low, high = _bounds(index.value_type, leaf)
    return index.pages_of_range(low, high), (lambda: index.range(low, high))


def _bounds(kind: pa.DataType, leaf: Compare | StartsWith | Between) -> tuple[Bound | None, Bound | None]:
    if isinstance(leaf, Between):
        return _bounds(kind, leaf.low)[0], _bounds(kind, leaf.high)[1]
    if isinstance(leaf, StartsWith):
        return Bound(leaf.prefix), None if (after := successor(leaf.prefix.as_py())) is None else Bound(after, False)
    value: Any = leaf.literal
    if pt.is_timestamp(kind) and pt.is_timestamp(value.type):
        return _time_bounds(kind, leaf.op, value)
    below = above = value
    inclusive = leaf.op in ("=", "<=", ">=")
    if pt.is_float32(kind) or pt.is_float16(kind):
        # The literal may lie between two numbers of the column's type: both neighbors are candidates.
        dtype = kind.to_pandas_dtype()
        with np.errstate(over="ignore"):
            near = dtype(float(value.as_py()))
            below, above = (float(np.nextafter(near, dtype(side))) for side in (-np.inf, np.inf))
        inclusive = True
    low = Bound(below, inclusive) if leaf.op in ("=", ">", ">=") else None
    high = Bound(above, inclusive) if leaf.op in ("=", "<", "<=") else None
    if pt.is_floating(kind) and value.as_py() != value.as_py():
        return None, None  # NaN: every value is a candidate
    if pt.is_floating(kind) and leaf.op in ("<", "<=", "=") and high is not None and np.isinf(float(above)):
        high = None
    return low, high


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit == "ns")


def _time_bounds(kind: pa.DataType, op: str, literal: pa.Scalar) -> tuple[Bound | None, Bound | None]:
    """Convert a literal in microseconds to bounds in the unit of an index.

    A filter sees nanoseconds rounded down to microseconds, and a literal may lie between two seconds or milliseconds.
    """
    micros = literal.cast(pa.timestamp("us", literal.type.tz)).value
    low_inclusive, high_inclusive = op != ">", op != "<"
    if _is_nanoseconds(kind):
        low, high = micros * 1000, micros * 1000
        if high_inclusive:
            high, high_inclusive = high + 1000, False
    else:
        low, rest = divmod(micros, {"s": 1_000_000, "ms": 1000, "us": 1}[kind.unit])
        high = low
        if rest:  # greater values come after ``low``, lesser ones may be ``low`` itself
            low_inclusive, high_inclusive = False, True
    return (
        Bound(low, low_inclusive) if op in ("=", ">", ">=") else None,
        Bound(high, high_inclusive) if op in ("=", "<", "<=") else None,
    )


def _intersection(parts: list[IndexQuery | None]) -> IndexQuery | None:
    queries = [p for p in parts if p is not None]
    if not queries:
        return None
    if len(queries) == 1 and len(parts) == 1:
        return queries[0]
    fragments = FrozenBitMap.intersection(*(p.fragments for p in queries))

    def row_ids() -> RowIds | None:
        answers = [a for a in (p.row_ids() for p in queries) if a is not None]
        if not answers:
            return None
        result = answers[0]
        for other in answers[1:]:
            result = np.intersect1d(result, other, assume_unique=True)
        return result

    description = queries[0].description if len(queries) == 1 else f"AND({','.join(p.description for p in queries)})"
    whole = len(queries) == len(parts)
    exact, certain = (whole and all(of) for of in ((p.exact for p in queries), (p.certain for p in queries)))
    return IndexQuery(description, fragments, exact, row_ids, certain)


def _union(parts: list[IndexQuery | None]) -> IndexQuery | None:
    queries = [p for p in parts if p is not None]
    if len(queries) < len(parts) or not queries:
        return None
    fragments = FrozenBitMap.intersection(*(p.fragments for p in queries))
    description = f"OR({','.join(p.description for p in queries)})"
    exact, certain = all(p.exact for p in queries), all(p.certain for p in queries)
    return IndexQuery(description, fragments, exact, lambda: _in_any(queries), certain)


def _segments(parts: list[IndexQuery]) -> IndexQuery:
    """Combine the answers of an index's segments, which cover different fragments."""
    if len(parts) == 1:
        return parts[0]

    fragments = FrozenBitMap.union(*(p.fragments for p in parts))
    return IndexQuery(parts[0].description, fragments, True, lambda: _in_any(parts))


def _in_any(parts: Sequence[IndexQuery]) -> RowIds | None:
    answers = []
    for part in parts:
        answer = part.row_ids()
        if answer is None:
            return None
        answers.append(answer)
    return np.unique(np.concatenate(answers))


def _describe(leaf: IndexedLeaf) -> str:
    name = ".".join(leaf.path)
    match leaf:
        case IsNull():
            return f"{name} IS NULL"
        case Contains(_, value):
            return f"array_contains({name}, {value!r})"
        case Compare(_, op, literal):
            return f"{name} {op} {literal.as_py()}"
        case Between(_, low, high):
            return f"{_describe(low)} && {_describe(high)}"
        case In(_, values):
            return f"{name} IN {values.to_pylist()[:10]}"
        case StartsWith(_, prefix):
            return f"{name} LIKE {prefix.as_py()}%"


def candidates(query: IndexQuery | None, locate: Callable[[RowIds], RowIds], num_rows: int) -> dict[int, Rows] | None:
    """Find the sorted offsets of the rows that may match, in each fragment that indices cover; ``None`` to scan all.

    ``locate`` returns the sorted addresses of row ids, and raises for ids that no row can have; ``num_rows`` is the
    number of rows of the dataset.
    """
    if query is None:
        return None
    ids = query.row_ids()
    if ids is None:
        return None
    if not query.certain and len(ids) > max(_MANY, num_rows // _PART):
        return None
    if len(ids) and (ids[1:] == ids[:-1]).any():
        raise CorruptFileError(f"an index returns a row twice for {query.description}", help=REMAKE)
    of, offsets = split(locate(ids))
    edges = np.flatnonzero(np.diff(of)) + 1
    parts = zip(of[np.concatenate(([0], edges))].tolist(), np.split(offsets, edges)) if len(of) else ()
    covered = {id: rows for id, rows in parts if id in query.fragments}
    return {id: covered.get(id, np.empty(0, np.int64)) for id in query.fragments}
