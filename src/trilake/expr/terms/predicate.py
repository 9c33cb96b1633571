"""The predicate tree: the meaning of a filter, independent of its source.

Predicates are three-valued: true, false or null for each row.  Leaves compare one column with literals of its type, for
evaluation, pushdown and data skipping.  Only DuckDB can evaluate :class:`Opaque` leaves; :class:`Undecoded` leaves are
unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from trilake.expr.terms.datatypes import Path

#: Comparison operators and their negations.
NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
#: Comparison operators for swapped operands.
MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
#: Comparison operators as Python's functions.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
#: Up to this many comparisons of a column in a disjunction are not merged.
_FEW = 16


@dataclass(frozen=True)
class Predicate:
    """A node of the tree.  Nodes are immutable and compared by content."""

    def children(self) -> tuple[Predicate, ...]:
        return ()

    def own_paths(self) -> tuple[Path, ...]:
        """The columns that this node reads, without its children."""
        return ()

    def walk(self) -> Iterator[Predicate]:
        stack: list[Predicate] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children())

    def paths(self) -> frozenset[Path]:
        """The paths of the columns and nested fields that the tree reads."""
        return frozenset(path for node in self.walk() for path in node.own_paths())


@dataclass(frozen=True)
class Constant(Predicate):
    """The same value for every row."""

    value: bool | None


@dataclass(frozen=True)
class _Leaf(Predicate):
    path: Path

    def own_paths(self) -> tuple[Path, ...]:
        return (self.path,)


@dataclass(frozen=True)
class Known(_Leaf):
    """``value`` unless the column is null, then null: a comparison with a literal beyond the column's range."""

    value: bool


@dataclass(frozen=True)
class Compare(_Leaf):
    """Column ``op`` literal.

    ``literal`` is of the column's normal type, or of a type that the column is cast to first (``double`` for integers
    and decimals that are compared with floating point numbers).  NaN equals NaN and is the greatest value, unless
    ``ieee``: then comparisons with NaN except ``!=`` are false, as in pyarrow expressions.  ``widened`` means that the
    column is cast and cannot have NaN.
    """

    op: str
    literal: pa.Scalar
    ieee: bool = False
    widened: bool = False


@dataclass(frozen=True)
class In(_Leaf):
    """Column equals one of ``values`` (which holds no null); null instead of false if ``has_null``.

    ``widened`` is as in :class:`Compare`.
    """

    values: pa.Array
    has_null: bool = False
    widened: bool = False


@dataclass(frozen=True)
class IsNull(_Leaf):
    """Column is null; never null itself."""


@dataclass(frozen=True)
class StartsWith(_Leaf):
    """A string column starts with ``prefix``, a scalar of its type."""

    prefix: pa.Scalar


@dataclass(frozen=True)
class _Parts(Predicate):
    parts: tuple[Predicate, ...]

    def children(self) -> tuple[Predicate, ...]:
        return self.parts


@dataclass(frozen=True)
class And(_Parts):
    """All of ``parts``."""


@dataclass(frozen=True)
class Or(_Parts):
    """Any of ``parts``."""


@dataclass(frozen=True)
class Not(Predicate):
    """True where ``part`` is false, and false where it is true."""

    part: Predicate

    def children(self) -> tuple[Predicate, ...]:
        return (self.part,)


@dataclass(frozen=True)
class _Sql(Predicate):
    sql: str
    columns: tuple[Path, ...]

    def own_paths(self) -> tuple[Path, ...]:
        return self.columns


@dataclass(frozen=True)
class Opaque(_Sql):
    """A boolean DuckDB expression over ``columns``, which it names by :func:`duckdb_name`."""


@dataclass(frozen=True)
class Undecoded(_Sql):
    """An unsupported part of a pyarrow expression."""


@dataclass(frozen=True)
class Conjunct:
    """One of the AND-joined conditions of a filter, with its SQL.

    ``instants`` indicates whether it uses instants, so that the session time zone may matter.
    """

    sql: str
    predicate: Predicate
    instants: bool = False


def all_of(parts: list[Predicate] | tuple[Predicate, ...]) -> Predicate:
    """The flattened conjunction of ``parts``; true without parts."""
    flat = [q for p in parts for q in (p.parts if isinstance(p, And) else (p,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat)) if flat else Constant(True)


def any_of(parts: list[Predicate] | tuple[Predicate, ...]) -> Predicate:
    """The flattened disjunction of ``parts``; false without parts."""
    flat = [q for p in parts for q in (p.parts if isinstance(p, Or) else (p,))]
    return flat[0] if len(flat) == 1 else Or(tuple(flat)) if flat else Constant(False)


def renamed(predicate: Predicate, names: Mapping[str, str]) -> Predicate:
    """Rename columns: ``names`` maps old names to new ones, others stay.

    Parts that cannot be renamed become unknown.
    """
    if isinstance(predicate, And | Or):
        return replace(predicate, parts=tuple(renamed(p, names) for p in predicate.parts))
    if isinstance(predicate, Not):
        return Not(renamed(predicate.part, names))
    paths = predicate.own_paths()
    if all(names.get(p[0], p[0]) == p[0] for p in paths):
        return predicate
    if isinstance(predicate, _Leaf) and len(predicate.path) == 1:
        return replace(predicate, path=(names[predicate.path[0]],))
    return Undecoded(str(predicate), tuple((names.get(p[0], p[0]), *p[1:]) for p in paths))


def joined_equalities(parts: list[Predicate]) -> list[Predicate]:
    """Merge many ``column = literal`` parts of a disjunction into one ``In``, for a single pass over the rows.

    >>> parts = joined_equalities([Compare(("n",), "=", pa.scalar(i)) for i in range(100)])
    >>> [len(part.values) for part in parts]
    [100]
    """
    groups: dict[tuple[Path, pa.DataType, bool], list[Compare]] = {}
    for part in parts:
        # Floating point numbers have two zeros, and NaN.
        if isinstance(part, Compare) and part.op == "=" and not pa.types.is_floating(part.literal.type):
            groups.setdefault((part.path, part.literal.type, part.widened), []).append(part)
    merged: dict[int, Predicate] = {}
    replaced: set[int] = set()
    for (path, type_, widened), leaves in groups.items():
        if len(leaves) > _FEW:
            merged[id(leaves[0])] = In(path, pa.array([leaf.literal for leaf in leaves], type_), widened=widened)
            replaced.update(id(leaf) for leaf in leaves[1:])
    return [merged.get(id(part), part) for part in parts if id(part) not in replaced]


def duckdb_name(path: Path) -> str:
    """A DuckDB identifier for a column: safe in SQL, and unique per path although DuckDB ignores case.

    >>> duckdb_name(("a", "B"))
    'c_61_42'
    """
    return "c" + "".join(f"_{part.encode().hex()}" for part in path)
