"""Parse MERGE."""

from __future__ import annotations

from dataclasses import dataclass

from trilake.common.text import plural
from trilake.delta.commands.merge.clauses import Action, Kind
from trilake.delta.protocol.schema_edit import format_path
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.ctes import without_ctes
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.delete_update import assignments, table_alias
from trilake.sql.parser.expressions import split_names

#: Assignments of a clause: the parts of a column's name, and an expression.
Values = tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True)
class When:
    """A WHEN clause; ``values`` are ``None`` for ``*`` and for DELETE."""

    kind: Kind
    action: Action
    condition: str | None
    values: Values | None
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    """A MERGE; ``source`` is a query in brackets, or a name with its version."""

    parts: tuple[str, ...]
    alias: str | None
    source: str
    source_parts: tuple[str, ...] | None
    source_alias: str | None
    condition: str
    clauses: tuple[When, ...]
    evolve: bool


def parse_merge(cursor: Cursor) -> Merge:
    """Parse a MERGE.  Raises ``SyntaxProblem``."""
    sql, ctes = without_ctes(cursor.sql)
    if ctes.clause:
        cursor = Cursor(sql)
    cursor.expect("MERGE")
    evolve = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    parts, alias = cursor.name(), table_alias(cursor, "USING")
    cursor.expect("USING")
    source_parts = None
    if cursor.is_symbol("("):
        source = f"({cursor.bracketed()})"
    else:
        first = cursor.at
        source_parts = cursor.name()
        travels = ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME")
        if cursor.is_any("FOR") or any(cursor.is_word(w, "AS", "OF") for w in travels):
            cursor.until("AS", "ON")
        source = cursor.sql_since(first)
    source_alias = table_alias(cursor, "ON")
    if source_parts is not None and len(source_parts) == 1 and source_parts[0].lower() in ctes.names:
        source, source_alias = f"({ctes.before(f'SELECT * FROM {source}')})", source_alias or source_parts[0]
        source_parts = None
    cursor.expect("ON")
    condition = cursor.sql_until("WHEN")
    clauses = []
    while cursor.is_any("WHEN"):
        clauses.append(_when(cursor))
    cursor.end()
    return Merge(parts, alias, source, source_parts, source_alias, condition, tuple(clauses), evolve)


def _when(cursor: Cursor) -> When:
    cursor.expect("WHEN")
    kind: Kind = "not_matched" if cursor.accept("NOT") else "matched"
    cursor.expect("MATCHED")
    if kind == "not_matched" and cursor.accept("BY"):
        if cursor.accept("SOURCE"):
            kind = "not_matched_by_source"
        else:
            cursor.expect("TARGET")
    condition = cursor.sql_until("THEN") if cursor.accept("AND") else None
    cursor.expect("THEN")
    if cursor.accept("DELETE"):
        return When(kind, "delete", condition, None)
    if cursor.accept("UPDATE"):
        cursor.expect("SET")
        if cursor.accept_symbol("*"):
            return When(kind, "update", condition, None, _excluded(cursor))
        return When(kind, "update", condition, assignments(cursor.sql_until("WHEN")))
    cursor.expect("INSERT")
    if cursor.accept_symbol("*"):
        return When(kind, "insert", condition, None, _excluded(cursor))
    names = split_names(items(cursor.bracketed()))
    cursor.expect("VALUES")
    values = items(cursor.bracketed())
    if len(names) != len(values):
        raise InvalidArgumentError(
            f"INSERT has {plural(len(names), 'column')} but {plural(len(values), 'value')}",
            help="write a value for each column",
            condition="MERGE_INSERT_VALUE_COUNT_MISMATCH",
        )
    return When(kind, "insert", condition, tuple(zip(names, values, strict=True)))


def _excluded(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.accept("EXCEPT"):
        return ()
    return tuple(format_path(n) for n in split_names(items(cursor.bracketed())))
