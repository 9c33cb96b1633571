"""The predicate tree: the meaning of a filter, independent of its source.

Predicates are three-valued: true, false or null for each row.  Leaves compare one column with literals of the column's
type, so that evaluation, pushdown and data skipping share them; anything else is an :class:`Opaque` leaf, which only
DuckDB can evaluate, or an :class:`Undecoded` one, of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from trilake.expr.terms.datatypes import Path

#: Comparison operators, each with its negation.
NEGATED = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
#: Comparison operators with the operands swapped.
MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


#: Number of comparisons of one column in a disjunction that are not merged.
_FEW = 16


@dataclass(frozen=True)
class Predicate:
    """A node of the tree.  Nodes are immutable and compared by content."""

    def children(self) -> tuple[Predicate, ...]:
        """The nodes below this one."""
        return ()

    def own_paths(self) -> tuple[Path, ...]:
        """The columns that this node itself reads."""
        return ()

    def walk(self) -> Iterator[Predicate]:
        """This node and all below it."""
        stack: list[Predicate] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children())

    def paths(self) -> frozenset[Path]:
        """The columns that the tree reads, with the paths of nested fields."""
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
    """``value`` where the column is not null, otherwise null: a comparison with a literal beyond the column's range."""

    value: bool


@dataclass(frozen=True)
class Compare(_Leaf):
    """Column ``op`` literal.

    ``literal`` is of the column's normal type, or of a type that the column is cast to first (``double`` for
    integers and decimals that are compared with floating point numbers).  NaN equals NaN and is greater than
    everything else, unless ``ieee``: then every comparison with NaN except ``!=`` is false (the rule of pyarrow
    expressions).  ``widened`` says that the column is cast, and has a type without NaN.
    """

    op: str
    literal: pa.Scalar
    ieee: bool = False
    widened: bool = False


@dataclass(frozen=True)
class In(_Leaf):
    """Column equals one of ``values`` (which holds no null); null instead of false if ``has_null``.

    ``widened`` is that of :class:`Compare`.
    """

    values: pa.Array
    has_null: bool = False
    widened: bool = False


@dataclass(frozen=True)
class IsNull(_Leaf):
    """Column is null; never null itself."""


@dataclass(frozen=True)
class StartsWith(_Leaf):
    """Column, a string or binary one, starts with ``prefix``: a scalar of the column's type."""

    prefix: pa.Scalar


@dataclass(frozen=True)
class And(Predicate):
    """All of ``parts``."""

    parts: tuple[Predicate, ...]

    def children(self) -> tuple[Predicate, ...]:
        return self.parts


@dataclass(frozen=True)
class Or(Predicate):
    """Any of ``parts``."""

    parts: tuple[Predicate, ...]

    def children(self) -> tuple[Predicate, ...]:
        return self.parts


@dataclass(frozen=True)
class Not(Predicate):
    """True where ``part`` is false, and false where it is true."""

    part: Predicate

    def children(self) -> tuple[Predicate, ...]:
        return (self.part,)


@dataclass(frozen=True)
class Opaque(Predicate):
    """A boolean DuckDB expression over ``columns``, which it names by :func:`duckdb_name`."""

    sql: str
    columns: tuple[Path, ...]

    def own_paths(self) -> tuple[Path, ...]:
        return self.columns


@dataclass(frozen=True)
class Undecoded(Predicate):
    """A part of a pyarrow expression without a counterpart here."""

    text: str
    columns: tuple[Path, ...]

    def own_paths(self) -> tuple[Path, ...]:
        return self.columns


@dataclass(frozen=True)
class Conjunct:
    """One of the conditions that a filter joins by AND, with its SQL.

    ``instants`` says whether it creates or reads instants: then the session time zone may matter.
    """

    text: str
    predicate: Predicate
    instants: bool = False


def all_of(parts: list[Predicate] | tuple[Predicate, ...]) -> Predicate:
    """The conjunction of ``parts``, flattened; true where there are none."""
    flat = [q for p in parts for q in (p.parts if isinstance(p, And) else (p,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat)) if flat else Constant(True)


def any_of(parts: list[Predicate] | tuple[Predicate, ...]) -> Predicate:
    """The disjunction of ``parts``, flattened; false where there are none."""
    flat = [q for p in parts for q in (p.parts if isinstance(p, Or) else (p,))]
    return flat[0] if len(flat) == 1 else Or(tuple(flat)) if flat else Constant(False)


def renamed(predicate: Predicate, names: Mapping[str, str]) -> Predicate:
    """The tree over renamed columns: ``names`` maps old names to new ones, others stay.

    What cannot be renamed becomes unknown.
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
    """Parts of a disjunction with one ``In`` for many ``column = literal``: one pass over the rows for all of them.

    >>> parts = joined_equalities([Compare(("n",), "=", pa.scalar(i)) for i in range(100)])
    >>> [len(part.values) for part in parts]
    [100]
    """
    groups: dict[tuple[Path, pa.DataType, bool], list[Compare]] = {}
    for part in parts:
        # Floating point numbers have distinct equal values, and values that do not equal themselves.
        if isinstance(part, Compare) and part.op == "=" and not pa.types.is_floating(part.literal.type):
            groups.setdefault((part.path, part.literal.type, part.widened), []).append(part)
    joined: dict[int, Predicate] = {}
    replaced: set[int] = set()
    for (path, type_, widened), leaves in groups.items():
        if len(leaves) > _FEW:
            joined[id(leaves[0])] = In(path, pa.array([leaf.literal for leaf in leaves], type_), widened=widened)
            replaced.update(id(leaf) for leaf in leaves[1:])
    return [joined.get(id(part), part) for part in parts if id(part) not in replaced]


def duckdb_name(path: Path) -> str:
    """A DuckDB identifier for a column: unique per path although DuckDB ignores case, and safe in SQL.

    >>> duckdb_name(("a", "B"))
    'c_61_42'
    """
    return "c" + "".join(f"_{part.encode().hex()}" for part in path)
