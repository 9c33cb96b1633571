"""Parse MERGE."""

from __future__ import annotations

from dataclasses import dataclass

from trilake.delta.commands.merge.clauses import Action, Kind
from trilake.delta.protocol.schema_edit import path_text
from trilake.errors import InvalidArgumentError
from trilake.sql.parser.ctes import without_ctes
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.delete_update import assignments, table_alias
from trilake.sql.parser.expressions import items, split_names

#: What one clause says, as strings: names of columns in parts.
Values = tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True)
class When:
    """A WHEN clause as it was written; ``values`` are ``None`` for a star and for a delete."""

    kind: Kind
    action: Action
    condition: str | None
    values: Values | None
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    """A MERGE as it was written.  ``source`` is a query in brackets, or a name with its version."""

    parts: tuple[str, ...]
    alias: str | None
    source: str
    source_parts: tuple[str, ...] | None
    source_alias: str | None
    condition: str
    clauses: tuple[When, ...]
    evolve: bool


def parse_merge(cursor: Cursor) -> Merge:
    """Raises ``SyntaxProblem``."""
    text, ctes = without_ctes(cursor.text)
    if ctes.clause:
        cursor = Cursor(text)
    cursor.expect("MERGE")
    evolve = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    parts, alias = cursor.name(), table_alias(cursor, "USING")
    cursor.expect("USING")
    source_parts = None
    if cursor.is_symbol("("):
        start, end = cursor.brackets()
        source = f"({cursor.text[start:end]})"
    else:
        first = cursor.at
        source_parts = cursor.name()
        if not cursor.is_any("AS"):
            cursor.until("AS", "ON") if _travels(cursor) else None
        source = cursor.text[cursor.tokens[first].start : cursor.tokens[cursor.at - 1].end]
    source_alias = table_alias(cursor, "ON")
    if source_parts is not None and len(source_parts) == 1 and source_parts[0].lower() in ctes.names:
        source, source_alias = f"({ctes.before(f'SELECT * FROM {source}')})", source_alias or source_parts[0]
        source_parts = None
    cursor.expect("ON")
    start, end = cursor.until("WHEN")
    condition = cursor.text[start:end]
    clauses = []
    while cursor.is_any("WHEN"):
        clauses.append(_when(cursor))
    cursor.end()
    return Merge(parts, alias, source, source_parts, source_alias, condition, tuple(clauses), evolve)


def _travels(cursor: Cursor) -> bool:
    return cursor.is_any("FOR") or any(
        cursor.is_word(w, "AS", "OF") for w in ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME")
    )


def _when(cursor: Cursor) -> When:
    cursor.expect("WHEN")
    kind: Kind = "matched"
    if cursor.accept("NOT"):
        cursor.expect("MATCHED")
        kind = "not_matched"
        if cursor.accept("BY"):
            if cursor.accept("SOURCE"):
                kind = "not_matched_by_source"
            else:
                cursor.expect("TARGET")
    else:
        cursor.expect("MATCHED")
    condition = None
    if cursor.accept("AND"):
        start, end = cursor.until("THEN")
        condition = cursor.text[start:end]
    cursor.expect("THEN")
    if cursor.accept("DELETE"):
        return When(kind, "delete", condition, None)
    if cursor.accept("UPDATE"):
        cursor.expect("SET")
        if cursor.accept_symbol("*"):
            return When(kind, "update", condition, None, _excluded(cursor))
        start, end = cursor.until("WHEN")
        return When(kind, "update", condition, assignments(cursor.text[start:end].rstrip("; \n\t")))
    cursor.expect("INSERT")
    if cursor.accept_symbol("*"):
        return When(kind, "insert", condition, None, _excluded(cursor))
    names = split_names(items(cursor.text[slice(*cursor.brackets())]))
    cursor.expect("VALUES")
    values = items(cursor.text[slice(*cursor.brackets())])
    if len(names) != len(values):
        raise InvalidArgumentError(
            f"INSERT of a MERGE names {len(names)} columns and gives {len(values)} values",
            help="give one for each",
            condition="MERGE_INSERT_VALUE_COUNT_MISMATCH",
        )
    return When(kind, "insert", condition, tuple(zip(names, values, strict=True)))


def _excluded(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.accept("EXCEPT"):
        return ()
    return tuple(path_text(n) for n in split_names(items(cursor.text[slice(*cursor.brackets())])))
