"""What the names of a query stand for: relations, their columns, and the queries around them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from trilake.common.text import double_quoted, quote_name, quote_parts, single_quoted
from trilake.errors import InvalidArgumentError
from trilake.expr.terms.duckdb_sql import Sql
from trilake.expr.terms.nested_order import fields_of, parts_of


@dataclass(frozen=True)
class Output:
    """A column of a relation.

    Parameters
    ----------
    name: as the user knows it.
    sql: what stands for it in expressions.  Its text holds nothing but ``ident``.
    ident: DuckDB's name of it, which no other column of the query has; empty for what is no column there.
    instant: whether the times in it are instants (``TIMESTAMP``); others are ``TIMESTAMP_NTZ``.
    declared: the type that DuckDB gives the column, where ``sql`` makes another one of it.
    kept: the Arrow type of a column with instants and other times in it.
    sides: the columns that it stands for, where USING makes one of two.
    """

    name: str
    sql: Sql
    ident: str
    instant: bool = False
    declared: str = ""
    kept: pa.DataType | None = None
    sides: tuple[Output, ...] = ()

    def columns(self) -> Iterator[Output]:
        """DuckDB's columns that it is made of."""
        if not self.sides:
            yield self
        for side in self.sides:
            yield from side.columns()


@dataclass(frozen=True)
class Relation:
    """A relation of a FROM clause: the parts of its name, and its columns."""

    name: tuple[str, ...]
    columns: tuple[Output, ...]

    def answers(self, parts: Sequence[str]) -> bool:
        """Whether it is what ``parts`` name: its whole name, or the end of it."""
        own = [p.lower() for p in self.name]
        return bool(parts) and own[-len(parts) :] == [p.lower() for p in parts]


@dataclass(frozen=True)
class Scope:
    """What the expressions of one SELECT see.

    Parameters
    ----------
    relations: those of its FROM clause.
    merged: columns that stand for one of each side, as USING makes them, by lower-case name.
    hidden: columns that a star leaves out, since a merged column stands for them: their ``ident``.
    outer: what the query around it sees.
    ctes: queries by name that may be relations, with the name that each has in DuckDB.
    """

    relations: tuple[Relation, ...] = ()
    merged: Mapping[str, Output] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    outer: Scope | None = None
    ctes: Mapping[str, tuple[str, tuple[Output, ...]]] = field(default_factory=dict)

    def joined(self, other: Scope) -> Scope:
        """Both sides of a join."""
        return replace(
            self,
            relations=(*self.relations, *other.relations),
            merged={**other.merged, **self.merged},
            hidden=self.hidden | other.hidden,
        )

    def inner(self) -> Scope:
        """What a query inside of this one begins with."""
        return Scope(outer=self, ctes=self.ctes)

    def star(self) -> tuple[Output, ...]:
        """The columns that ``*`` stands for."""
        shown = (c for r in self.relations for c in r.columns if c.ident not in self.hidden)
        return (*self.merged.values(), *shown)

    def of_relation(self, parts: Sequence[str]) -> Relation | None:
        """The relation that ``parts`` name, here or around.  Raises ``InvalidArgumentError`` for two."""
        found = [r for r in self.relations if r.answers(parts)]
        if len(found) > 1:
            raise ambiguous(parts)
        if not found and self.outer is not None:
            return self.outer.of_relation(parts)
        return found[0] if found else None

    def find(self, parts: Sequence[str]) -> tuple[Output, tuple[str, ...]] | None:
        """The column that ``parts`` name here (not around), and the fields below it.

        Raises ``InvalidArgumentError`` for a name that several columns have.
        """
        for split in range(len(parts) - 1, 0, -1):
            owners = [r for r in self.relations if r.answers(parts[:split])]
            found = [c for r in owners for c in r.columns if c.name.lower() == parts[split].lower()]
            if len(found) > 1:
                raise ambiguous(parts)
            if found:
                return found[0], tuple(parts[split + 1 :])
        name = parts[0].lower()
        if name in self.merged:
            return self.merged[name], tuple(parts[1:])
        found = [c for r in self.relations for c in r.columns if c.name.lower() == name and c.ident not in self.hidden]
        if len(found) > 1:
            raise ambiguous(parts)
        return (found[0], tuple(parts[1:])) if found else None

    def lookup(self, parts: Sequence[str]) -> tuple[Output, tuple[str, ...]] | None:
        """What :meth:`find` finds here, or in the nearest query around that has such a column."""
        found = self.find(parts)
        return self.outer.lookup(parts) if found is None and self.outer is not None else found


def ambiguous(parts: Sequence[str]) -> InvalidArgumentError:
    """The error for a name that several columns have."""
    return InvalidArgumentError(
        f"{quote_parts(tuple(parts))} is a column of several relations",
        help="name the relation in front of it",
        condition="AMBIGUOUS_REFERENCE",
    )


def unresolved(parts: Sequence[str], scope: Scope) -> InvalidArgumentError:
    """The error for a name that no column has."""
    known = [c.name for c in scope.star()]
    close = difflib.get_close_matches(parts[-1], known, n=3) or known[:5]
    hint = f"did you mean {', '.join(map(quote_name, close))}" if close else "the query has no relation"
    return InvalidArgumentError(
        f"a column with the name {quote_parts(tuple(parts))} cannot be resolved",
        help=hint,
        condition=f"UNRESOLVED_COLUMN.{'WITH' if known else 'WITHOUT'}_SUGGESTION",
    )


def field_of(value: Sql, name: str) -> Sql:
    """A field of a struct, or the value of a map's key.  Raises ``InvalidArgumentError`` where there is none."""
    if value.family == "struct":
        fields = [(n, kind) for n, kind in fields_of(value.type) if n.lower() == name.lower()]
        if len(fields) == 1:
            return Sql(f"struct_extract({value.text}, {single_quoted(fields[0][0])})", fields[0][1])
    if value.family == "map" and parts_of(value.type)[0] == "VARCHAR":
        return Sql(f"{value.text}[{single_quoted(name)}]", parts_of(value.type)[1])
    if value.family == "array" and Sql("", parts_of(value.type)[0]).family == "struct":
        inner = field_of(Sql('"f#0"', parts_of(value.type)[0]), name)
        return Sql(f'list_transform({value.text}, lambda "f#0": {inner.text})', f"{inner.type}[]")
    raise InvalidArgumentError(f"a value of type {value.spark_type} has no field {name!r}", condition="FIELD_NOT_FOUND")


class Idents:
    """DuckDB's names of columns and relations, each of them once in a query."""

    def __init__(self) -> None:
        self.last = 0

    def column(self, name: str) -> str:
        """The name of another column."""
        self.last += 1
        return double_quoted(f"{name}#{self.last}")

    def relation(self) -> str:
        """The name of another relation."""
        self.last += 1
        return f'"q#{self.last}"'
