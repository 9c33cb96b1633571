"""MERGE INTO our tables, with every clause."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from trilake.delta.commands.merge.clauses import Action, Clause, Kind
from trilake.delta.protocol.schema_edit import path_text
from trilake.delta.rules.defaults import default_text
from trilake.delta.scan.scan import read_schema
from trilake.errors import AmbiguousMergeError, InvalidArgumentError
from trilake.spark.delta.merge.frames import Expr
from trilake.spark.delta.merge.run import SparkMerge, merge_dataframe
from trilake.spark.session.analysis_errors import unsupported_error
from trilake.sql import catalogue
from trilake.sql.cursor import Cursor
from trilake.sql.dml import Named, assignments, table_alias
from trilake.sql.expressions import items, requalified, split_names
from trilake.sql.frames import open_delta
from trilake.sql.lance_changes import merge_lance
from trilake.sql.relations import Local, local_views, localized
from trilake.sql.results import counts
from trilake.sql.select import query
from trilake.sql.session import SqlSession
from trilake.sql.table_of import known_table
from trilake.sql.targets import full_parts, path_target
from trilake.sql.tokens import quote_name, tokenize

#: What one clause says, as texts: names of columns in parts.
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
            f"INSERT of a MERGE names {len(names)} columns and gives {len(values)} values", help="give one for each"
        )
    return When(kind, "insert", condition, tuple(zip(names, values, strict=True)))


def _excluded(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.accept("EXCEPT"):
        return ()
    return tuple(path_text(n) for n in split_names(items(cursor.text[slice(*cursor.brackets())])))


# --- running it ------------------------------------------------------------------------------------------------------


def run_merge(session: SqlSession, merge: Merge) -> DataFrame:
    """Merge; one row that says how many rows were changed."""
    target = known_table(session, merge.parts)
    if target is None:
        raise InvalidArgumentError(f"{'.'.join(merge.parts)} is no table of ours, so nothing can be merged into it")
    source_alias = merge.source_alias or (merge.source_parts[-1] if merge.source_parts else None)
    named_source = merge.source if source_alias is None else f"{merge.source} AS {quote_name(source_alias)}"
    source = query(session, f"SELECT * FROM {named_source}")
    if source_alias is not None:
        source = source.alias(source_alias)
    if target.format != "delta":
        return merge_lance(session, target, merge, source)
    table = open_delta(session, target)
    named = Named(session, target, read_schema(table.snapshot.schema), merge.alias or merge.parts[-1])
    names = _names(session, merge, named.alias or "", source_alias)
    locals_: list[Local] = []

    def text(expression: str) -> str:
        local = localized(session, requalified(expression, names), expression=True)
        locals_.append(local)
        return local.text

    condition = text(merge.condition)
    clauses = tuple(_clause(named, names, c, text) for c in merge.clauses)
    request = SparkMerge(source, condition, clauses, named.alias, merge.evolve)
    with local_views(session, *locals_):
        try:
            done = merge_dataframe(session.spark, table, request)
        except AmbiguousMergeError as e:
            raise unsupported_error(e) from e
    if merge.evolve:
        catalogue.refresh(session, target)
    return counts(
        session,
        num_affected_rows=done.num_affected_rows,
        num_updated_rows=done.num_updated_rows,
        num_deleted_rows=done.num_deleted_rows,
        num_inserted_rows=done.num_inserted_rows,
    )


def _names(session: SqlSession, merge: Merge, alias: str, source_alias: str | None) -> dict[tuple[str, ...], str]:
    """Names of more than one part in front of columns, and the one part that stands for each."""
    out = {}
    named = ((merge.parts, merge.alias, alias), (merge.source_parts, merge.source_alias, source_alias))
    for parts, given, short in named:
        if parts is None or given is not None or short is None:
            continue
        whole = {tuple(p.lower() for p in parts)}
        if path_target(session, parts) is None:
            database, table = (p.lower() for p in full_parts(session, parts))
            whole |= {(database, table), ("spark_catalog", database, table)}
        out.update({w: quote_name(short) for w in whole if len(w) > 1})
    return out


def _clause(named: Named, names: dict[tuple[str, ...], str], when: When, text) -> Clause[Expr]:  # type: ignore[no-untyped-def]  # a closure
    condition = None if when.condition is None else text(when.condition)
    if when.values is None:
        return Clause(when.kind, when.action, condition, None, when.excluded)
    values: dict[str, Expr] = {}
    for parts, value in when.values:
        column = _column(named, parts, names)
        if len(tokenize(value)) == 1 and tokenize(value)[0].upper == "DEFAULT":
            found = named.schema.find(column[0])
            default = None if found is None else default_text(found)
            if default is None and when.action == "insert":
                continue  # what is not said is made as for any new row: generated, counted, or null
            value = "NULL" if default is None else f"({default})"
        key = path_text(column)
        if key in values:
            raise InvalidArgumentError(f"column {key} is assigned twice in one clause", column=key)
        values[key] = text(value)
    if when.action == "insert" and not values:
        first = named.schema.fields[0].name
        values[path_text((first,))] = "NULL"
    return Clause(when.kind, when.action, condition, values)


def _column(named: Named, parts: tuple[str, ...], names: dict[tuple[str, ...], str]) -> tuple[str, ...]:
    """A column that is assigned, without the target's name in front."""
    lower = tuple(p.lower() for p in parts)
    for front in sorted((*names, ((named.alias or "").lower(),)), key=len, reverse=True):
        if len(parts) > len(front) and lower[: len(front)] == front:
            return parts[len(front) :]
    return parts
