"""Parse INSERT, DELETE, UPDATE, TRUNCATE and MERGE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trilake.common.text import columns_help, plural, quote_name
from trilake.delta.commands.merge.clauses import Action, Clause, Kind
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.schema_edit import format_path, with_alias
from trilake.delta.protocol.sql_types import type_sql
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.sql.parser.cursor import Cursor, items
from trilake.sql.parser.expressions import default_or, split_names
from trilake.sql.parser.statements import without_ctes
from trilake.sql.parser.tokens import Token, depths

# --- INSERT -----------------------------------------------------------------------------------------------------------

#: Words that begin a query.
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")


@dataclass(frozen=True)
class Insert:
    """One INSERT; ``static`` are partition columns with a value, ``dynamic`` those without."""

    parts: tuple[str, ...]
    overwrite: bool
    static: Mapping[str, str]
    dynamic: tuple[str, ...]
    if_not_exists: bool
    by_name: bool
    columns: tuple[str, ...] | None
    replace_where: str | None
    evolve: bool
    query: str
    #: How many ``?`` come before the query.
    markers_before: int = 0


def parse_inserts(sql: str, tokens: Sequence[Token] | None = None) -> list[Insert]:
    """The INSERTs of a statement: one, or several that read one FROM.  Raises ``SyntaxProblem``."""
    cursor = Cursor(sql, tokens)
    inside = depths(cursor.tokens)
    starts = [
        i
        for i, t in enumerate(cursor.tokens)
        if t.upper == "INSERT"
        and inside[i] == 0
        and Cursor(sql, cursor.tokens, i + 1).is_any("INTO", "OVERWRITE", "WITH")
    ]
    before = sql[: cursor.tokens[starts[0]].start]
    ends = [*starts[1:], len(cursor.tokens)]
    inserts = [_parse_insert(Cursor(sql, cursor.tokens[:end], start)) for start, end in zip(starts, ends, strict=True)]
    return [replace(insert, query=f"{before}{insert.query}") for insert in inserts]


def _parse_insert(cursor: Cursor) -> Insert:
    cursor.expect("INSERT")
    evolve = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = cursor.accept("OVERWRITE")
    if not cursor.accept("INTO") and not overwrite:
        cursor.fail()
    if not _is_named_table(cursor):
        cursor.accept("TABLE")
    parts = cursor.name()
    static, dynamic = partition_clause(cursor)
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    by_name = cursor.accept("BY", "NAME")
    where = cursor.sql_until(*QUERY_WORDS) if cursor.accept("REPLACE", "WHERE") else None
    columns = None
    if not by_name and cursor.is_symbol("(") and not is_query(cursor):
        columns = tuple(piece.part() for piece in cursor.pieces())
    if cursor.accept("REPLACE", "WHERE"):
        where = cursor.sql_until(*QUERY_WORDS)
    overwrite = overwrite or where is not None
    if cursor.token is None:
        cursor.fail()
    markers = sum(t.text == "?" and t.kind == "marker" for t in cursor.tokens[: cursor.at])
    rest = cursor.rest()
    return Insert(
        parts, overwrite, static, tuple(dynamic), if_not_exists, by_name, columns, where, evolve, rest, markers
    )


def _is_named_table(cursor: Cursor) -> bool:
    """Whether the word TABLE that follows is the name of the table, as in ``INSERT INTO table VALUES (1)``."""
    after, behind = (Cursor(cursor.sql, cursor.tokens, cursor.at + n) for n in (1, 2))
    named = after.token is not None and after.token.is_name
    return not named or (after.is_any("BY", "PARTITION", "REPLACE", *QUERY_WORDS) and not behind.is_any(*QUERY_WORDS))


def partition_clause(cursor: Cursor) -> tuple[dict[str, str], list[str]]:
    """Parse ``PARTITION (a = 1, b)``, if it follows: columns with a value, and columns without one.

    Raises ``SyntaxProblem`` for empty brackets.
    """
    static: dict[str, str] = {}
    dynamic: list[str] = []
    if cursor.accept("PARTITION"):
        for piece in cursor.pieces():
            column = piece.part()
            if piece.accept_symbol("=") or piece.accept_symbol("=="):
                static[column] = piece.rest()
            else:
                dynamic.append(column)
        if not (static or dynamic):
            cursor.fail()
    return static, dynamic


def is_query(cursor: Cursor) -> bool:
    """Whether a query in brackets follows, not a list of columns, which may be named like the first word of a query."""
    look = Cursor(cursor.sql, cursor.tokens, cursor.at)
    while look.accept_symbol("("):
        pass
    if not look.is_any(*QUERY_WORDS):
        return False
    is_column = any(look.is_word(kind, ahead=1) for kind in ("INT", "STRING", "BIGINT", "DATE"))
    return not (is_column or look.is_symbol(",", ahead=1) or look.is_symbol(")", ahead=1))


def own_partitions(
    static: Mapping[str, str],
    dynamic: Iterable[str],
    partition_columns: Sequence[str],
    path: str,
    *,
    exact: bool = False,
) -> dict[str, str]:
    """The values of a PARTITION clause by the table's column names; ``exact`` makes names case-sensitive.

    Raises ``InvalidArgumentError`` for a column that the table is not partitioned by.
    """
    inside = {c if exact else c.lower(): c for c in partition_columns}
    partitions = {name: inside.get(name if exact else name.lower()) for name in (*static, *dynamic)}
    for name, column in partitions.items():
        if column is None:
            raise InvalidArgumentError(
                f"PARTITION clause cannot contain the non-partition column {name}",
                help=f"the partition columns are {', '.join(partition_columns) or 'none'}",
                file=path,
                column=name,
                condition="NON_PARTITION_COLUMN",
            )
    return {column: sql for name, sql in static.items() if (column := partitions[name]) is not None}


def partition_condition(static: Mapping[str, str], fields: Sequence[StructField], path: str) -> str | None:
    """The condition of a PARTITION clause; ``None`` for one without values.  ``fields`` are the partition columns.

    Raises ``InvalidArgumentError`` for a column that the table is not partitioned by.
    """
    values = own_partitions(static, (), [f.name for f in fields], path)
    types = {f.name: type_sql(f.type) for f in fields}
    tests = [f"{quote_name(n)} <=> CAST({v} AS {types[n]})" for n, v in values.items()]
    return " AND ".join(tests) or None


def expected_columns(
    insert: Insert, schema: StructType, static: Mapping[str, str], *, display_name: str, path: str
) -> list[str]:
    """The columns that the query's columns go into.

    Raises ``SchemaMismatchError`` for a column that the table lacks, ``InvalidArgumentError`` for one that is named
    twice.
    """
    if insert.columns is None:
        return [n for n in schema.names if n not in static]
    out: list[str] = []
    for name in insert.columns:
        field = schema.find(name)
        if field is None:
            raise SchemaMismatchError(
                f"column {name} not found in {display_name}",
                help=columns_help(name, schema.names),
                file=path,
                column=name,
                condition="UNRESOLVED_COLUMN.WITH_SUGGESTION",
            )
        if field.name in static:
            raise InvalidArgumentError(
                f"partition column {name} has a value in PARTITION and is also in the column list",
                help="leave it out of the column list",
                column=name,
                file=path,
                condition="STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST",
            )
        if field.name in out:
            raise InvalidArgumentError(
                f"column {name} is named twice", column=name, file=path, condition="COLUMN_ALREADY_EXISTS"
            )
        out.append(field.name)
    return out


def wrong_number_of_columns(
    insert: Insert, actual: int, expected: Sequence[str], *, display_name: str, path: str
) -> SchemaMismatchError:
    """The error for a query with more or fewer columns than ``expected``."""
    more = actual > len(expected)
    # Spark's condition if the statement lists columns, otherwise delta-spark's.
    if insert.columns:
        condition = f"INSERT_COLUMN_ARITY_MISMATCH.{'TOO_MANY' if more else 'NOT_ENOUGH'}_DATA_COLUMNS"
    else:
        condition = "DELTA_METADATA_MISMATCH" if more else "DELTA_INSERT_COLUMN_ARITY_MISMATCH"
    return SchemaMismatchError(
        f"INSERT into {display_name} expects {plural(len(expected), 'column')} ({', '.join(expected)}), but the query"
        f" has {actual}",
        help="select a value for each column, or list the columns after the table's name, or write BY NAME",
        file=path,
        condition=condition,
    )


def check_plain_insert(insert: Insert, display_name: str, path: str) -> None:
    """Raise ``InvalidArgumentError`` for clauses that only Delta tables support."""
    some = insert.static or insert.dynamic or insert.replace_where is not None or insert.if_not_exists
    for what, clauses, used in (
        ("PARTITION, REPLACE WHERE or IF NOT EXISTS", "them", some),
        ("schema evolution", "WITH SCHEMA EVOLUTION", insert.evolve),
    ):
        if used:
            raise InvalidArgumentError(
                f"INSERT into {display_name} does not support {what}", help=f"leave {clauses} out", file=path
            )


# --- DELETE, UPDATE and TRUNCATE --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeleteOrUpdate:
    """A DELETE or UPDATE; ``values`` are pairs of a column's name, in parts, and an expression."""

    parts: tuple[str, ...]
    alias: str | None
    values: tuple[tuple[tuple[str, ...], str], ...]
    condition: str | None


def parse_delete(cursor: Cursor) -> DeleteOrUpdate:
    """``[WITH ...] DELETE FROM name [alias] [WHERE condition]``.  Raises ``SyntaxProblem``."""
    cursor = _without_ctes(cursor)
    cursor.expect("DELETE", "FROM")
    parts, alias = cursor.name(), table_alias(cursor, "WHERE")
    return DeleteOrUpdate(parts, alias, (), _where(cursor))


def parse_update(cursor: Cursor) -> DeleteOrUpdate:
    """``[WITH ...] UPDATE name [alias] SET column = value, ... [WHERE condition]``.  Raises ``SyntaxProblem``."""
    cursor = _without_ctes(cursor)
    cursor.expect("UPDATE")
    parts, alias = cursor.name(), table_alias(cursor, "SET")
    cursor.expect("SET")
    return DeleteOrUpdate(parts, alias, assignments(cursor.sql_until("WHERE")), _where(cursor))


def _without_ctes(cursor: Cursor) -> Cursor:
    return Cursor(without_ctes(cursor.sql)[0]) if cursor.is_any("WITH") else cursor


def assignments(sql: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Parse ``a = 1, b.c = d`` into names and values.  Raises ``SyntaxProblem``."""
    out = []
    for cursor in map(Cursor, items(sql)):
        name = cursor.name()
        if not cursor.accept_symbol("=") and not cursor.accept_symbol("=="):
            cursor.fail()
        out.append((name, cursor.rest()))
    return tuple(out)


def table_alias(cursor: Cursor, *words: str) -> str | None:
    """Parse a table's alias; ``None`` if one of ``words`` follows."""
    if cursor.accept("AS"):
        return cursor.part()
    token = cursor.token
    if token is None or not token.is_name or (token.kind == "word" and token.upper in words):
        return None
    return cursor.part()


def _where(cursor: Cursor) -> str | None:
    if cursor.accept("WHERE"):
        return cursor.rest()
    cursor.end()
    return None


@dataclass(frozen=True)
class Truncate:
    """A TRUNCATE; ``partition`` are values of partition columns."""

    parts: tuple[str, ...]
    partition: Mapping[str, str]


def parse_truncate(cursor: Cursor) -> Truncate:
    """``TRUNCATE TABLE name [PARTITION (column = value, ...)]``.  Raises ``SyntaxProblem``."""
    cursor.expect("TRUNCATE", "TABLE")
    parts = cursor.name()
    static, dynamic = partition_clause(cursor)
    if dynamic:
        cursor.fail()
    cursor.end()
    return Truncate(parts, static)


# --- MERGE ------------------------------------------------------------------------------------------------------------

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


def clause_of(
    when: When,
    schema: StructType,
    sql: Callable[[str], str],
    column_of: Callable[[tuple[str, ...]], tuple[str, ...]],
    alias: str | None = None,
) -> Clause[Any]:
    """The clause of a merge into a table with this schema.  ``sql`` rewrites an expression, ``column_of`` removes the
    qualifiers of an assigned column, and ``alias`` is the new one.

    Raises ``InvalidArgumentError`` for a column that is assigned twice.
    """
    condition = None if when.condition is None else sql(when.condition)
    if when.values is None:
        return Clause(when.kind, when.action, condition, None, when.excluded)
    values: dict[str, str] = {}
    for parts, value in when.values:
        column = column_of(parts)
        key, new = format_path(with_alias(column, alias)), default_or(schema, column, value)
        if new == "NULL" != value and when.action == "insert" and schema.find(column[0]) is not None:
            continue  # DEFAULT, as for any new row: generated, identity or null
        if key in values:
            path, update = format_path(column), when.action == "update"
            raise InvalidArgumentError(
                f"column {path} is assigned twice in one clause",
                column=path,
                condition="DELTA_CONFLICT_SET_COLUMN" if update else "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
            )
        values[key] = sql(new)
    return Clause(when.kind, when.action, condition, values)


def _excluded(cursor: Cursor) -> tuple[str, ...]:
    if not cursor.accept("EXCEPT"):
        return ()
    return tuple(format_path(n) for n in split_names(items(cursor.bracketed())))
