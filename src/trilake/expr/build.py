"""Build filters from parts, for adapters of other systems' filter objects.

>>> import pyarrow as pa
>>> f = to_filter(and_(compare("n", ">", 1), not_(is_null("s"))), pa.schema({"n": pa.int64(), "s": pa.string()}))
>>> f.sql
'n > 1 AND NOT (s IS NULL)'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from trilake.errors import FilterError
from trilake.expr.filter import Filter
from trilake.expr.terms import bind
from trilake.expr.terms.datatypes import Path
from trilake.expr.terms.literals import Literal
from trilake.expr.terms.predicate import Conjunct, Constant, IsNull, Not, Predicate, all_of, any_of

ColumnName = str | Sequence[str]
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True)
class Term:
    """A condition without a schema; create it with the functions of this module."""

    kind: str
    path: Path = ()
    op: str = ""
    literals: tuple[Literal, ...] = ()
    terms: tuple[Term, ...] = ()


def compare(column: ColumnName, op: str, value: object) -> Term:
    """``column op value`` for ``= != < <= > >= <=>``.

    ``column`` is the name of a top-level column, which may contain dots, or the path of a nested field.
    """
    if op not in OPERATORS:
        raise FilterError(f"unknown operator {op!r}", help=f"use one of {' '.join(OPERATORS)}")
    return Term("compare", _path(column), op, (Literal.of(value),))


def in_(column: ColumnName, values: Iterable[object]) -> Term:
    """``column IN (values)``; false without values."""
    literals = tuple(Literal.of(v) for v in values)
    return Term("in", _path(column), literals=literals) if literals else constant(False)


def is_null(column: ColumnName) -> Term:
    """``column IS NULL``."""
    return Term("is_null", _path(column))


def starts_with(column: ColumnName, prefix: str | bytes) -> Term:
    """``startswith(column, prefix)``."""
    return Term("starts_with", _path(column), literals=(Literal.of(prefix),))


def and_(*terms: Term) -> Term:
    """The conjunction of ``terms``; true without terms."""
    return Term("and", terms=terms)


def or_(*terms: Term) -> Term:
    """The disjunction of ``terms``; false without terms."""
    return Term("or", terms=terms)


def not_(term: Term) -> Term:
    """The negation of ``term``."""
    return Term("not", terms=(term,))


def constant(value: bool | None) -> Term:
    """``TRUE``, ``FALSE`` or ``NULL`` for every row."""
    return Term("constant", literals=(Literal.of(value),))


def to_filter(term: Term, schema: pa.Schema, *, case_sensitive: bool = False) -> Filter:
    """Bind a condition to the columns of ``schema``.

    Raises :class:`FilterError` for unknown columns and types that cannot be compared.
    """
    parts = _flatten(term)
    conjuncts = tuple(Conjunct(_text(t), _bind(t, schema, case_sensitive)) for t in parts)
    return Filter(" AND ".join(_text(t, nested=len(parts) > 1) for t in parts) or "TRUE", schema, conjuncts)


def _path(column: ColumnName) -> Path:
    return (column,) if isinstance(column, str) else tuple(column)


def _flatten(term: Term) -> list[Term]:
    return [leaf for t in term.terms for leaf in _flatten(t)] if term.kind == "and" else [term]


def _bind(term: Term, schema: pa.Schema, case_sensitive: bool) -> Predicate:
    match term.kind:
        case "and":
            return all_of([_bind(t, schema, case_sensitive) for t in term.terms])
        case "or":
            return any_of([_bind(t, schema, case_sensitive) for t in term.terms])
        case "not":
            return Not(_bind(term.terms[0], schema, case_sensitive))
        case "constant":
            value = term.literals[0].value
            assert value is None or isinstance(value, bool)
            return Constant(value)
    column, rest = bind.resolve(term.path, schema, case_sensitive=case_sensitive)
    if rest:
        raise FilterError(f"column {column.sql} has no field {rest[0]!r}", column=".".join(term.path))
    match term.kind:
        case "compare" if term.op == "<=>":
            return bind.null_safe_equal(column, term.literals[0])
        case "compare":
            return bind.compare(column, term.op, term.literals[0])
        case "in":
            return bind.is_in(column, list(term.literals))
        case "starts_with":
            return bind.starts_with(column, term.literals[0])
    return IsNull(column.path)


def _text(term: Term, *, nested: bool = False) -> str:
    name = bind.format_path(term.path)
    match term.kind:
        case "compare":
            return f"{name} {term.op} {term.literals[0].sql}"
        case "in":
            return f"{name} IN ({', '.join(v.sql for v in term.literals)})"
        case "is_null":
            return f"{name} IS NULL"
        case "starts_with":
            return f"startswith({name}, {term.literals[0].sql})"
        case "not":
            return f"NOT ({_text(term.terms[0])})"
        case "constant":
            return term.literals[0].sql
    word, empty = (" AND ", "TRUE") if term.kind == "and" else (" OR ", "FALSE")
    sql = word.join(_text(t, nested=True) for t in term.terms) or empty
    return f"({sql})" if nested and len(term.terms) > 1 else sql
