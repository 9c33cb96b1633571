"""Parse INSERT: by position, by name, with a column list, into partitions, and replacing rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from trilake.common.text import quote_name
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.protocol.sql_types import type_text
from trilake.errors import InvalidArgumentError, SchemaMismatchError
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.expressions import spans
from trilake.sql.parser.tokens import Token, depths

#: Words that begin a query.
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")


@dataclass(frozen=True)
class Insert:
    """One INSERT as it was written; ``static`` are the partitions' values as SQL, ``dynamic`` those without a value."""

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
    #: How many ``?`` stand in front of the query.
    markers_before: int = 0


def parse_inserts(text: str, tokens: Sequence[Token] | None = None) -> list[Insert]:
    """The INSERTs of a statement: one, or several that read one FROM.  Raises ``SyntaxProblem``."""
    cursor = Cursor(text, tokens)
    inside = depths(cursor.tokens)
    starts = [i for i, t in enumerate(cursor.tokens) if t.upper == "INSERT" and inside[i] == 0 and _begins(cursor, i)]
    before = text[: cursor.tokens[starts[0]].start]
    ends = [*starts[1:], len(cursor.tokens)]
    out = []
    for start, end in zip(starts, ends, strict=True):
        piece = Cursor(text, cursor.tokens[:end], start)
        insert = parse_insert(piece)
        out.append(replace(insert, query=f"{before}{insert.query}"))
    return out


def _begins(cursor: Cursor, at: int) -> bool:
    behind = Cursor(cursor.text, cursor.tokens, at + 1)
    return behind.is_any("INTO", "OVERWRITE", "WITH")


def parse_insert(cursor: Cursor) -> Insert:
    """One INSERT.  Raises ``SyntaxProblem``."""
    cursor.expect("INSERT")
    evolve = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = cursor.accept("OVERWRITE")
    if overwrite:
        cursor.accept("INTO")
    else:
        cursor.expect("INTO")
    cursor.accept("TABLE")
    parts = cursor.name()
    static, dynamic = partition_clause(cursor)
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    by_name = cursor.accept("BY", "NAME")
    where = None
    if cursor.accept("REPLACE", "WHERE"):
        a, b = cursor.until(*QUERY_WORDS)
        where, overwrite = cursor.text[a:b], True
    columns = None
    if not by_name and cursor.is_symbol("(") and not _is_query(cursor):
        a, b = cursor.brackets()
        columns = tuple(Cursor(cursor.text[a:b][x:y]).part() for x, y in spans(Cursor(cursor.text[a:b])))
    if cursor.accept("REPLACE", "WHERE"):
        a, b = cursor.until(*QUERY_WORDS)
        where, overwrite = cursor.text[a:b], True
    if cursor.token is None:
        cursor.fail()
    markers = sum(t.text == "?" and t.kind == "marker" for t in cursor.tokens[: cursor.at])
    rest = cursor.rest()
    return Insert(
        parts, overwrite, static, tuple(dynamic), if_not_exists, by_name, columns, where, evolve, rest, markers
    )


def partition_clause(cursor: Cursor) -> tuple[dict[str, str], list[str]]:
    """``PARTITION (a = 1, b)``, if it follows: the values of columns as SQL, and the columns without one.

    Raises ``SyntaxProblem`` for brackets without a column.
    """
    static: dict[str, str] = {}
    dynamic: list[str] = []
    if cursor.accept("PARTITION"):
        start, end = cursor.brackets()
        for a, b in spans(Cursor(cursor.text[start:end])):
            piece = Cursor(cursor.text[start + a : start + b])
            column = piece.part()
            if piece.accept_symbol("=") or piece.accept_symbol("=="):
                static[column] = piece.rest()
            else:
                dynamic.append(column)
        if not (static or dynamic):
            cursor.fail()
    return static, dynamic


def _is_query(cursor: Cursor) -> bool:
    """Whether the bracket that follows holds a query and no list of columns."""
    look = Cursor(cursor.text, cursor.tokens, cursor.at)
    while look.accept_symbol("("):
        pass
    if not look.is_any(*QUERY_WORDS):
        return False
    return not (look.is_symbol(",", ahead=1) or look.is_symbol(")", ahead=1))


# --- what it says of a table -----------------------------------------------------------------------------------------


def own_partitions(
    static: Mapping[str, str],
    dynamic: Iterable[str],
    partition_columns: Sequence[str],
    path: str,
    *,
    exact: bool = False,
) -> dict[str, str]:
    """The values of a PARTITION clause by the columns' own names, which must be spelled so where that is ``exact``.

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
    return {column: text for name, text in static.items() if (column := partitions[name]) is not None}


def partition_condition(static: Mapping[str, str], fields: Sequence[StructField], path: str) -> str | None:
    """Which rows a PARTITION clause names, where ``fields`` are the partition columns; ``None`` for one without values.

    Raises ``InvalidArgumentError`` for a column that the table is not partitioned by.
    """
    values = own_partitions(static, (), [f.name for f in fields], path)
    types = {f.name: type_text(f.type) for f in fields}
    tests = [f"{quote_name(n)} <=> CAST({v} AS {types[n]})" for n, v in values.items()]
    return " AND ".join(tests) or None


def expected_columns(
    insert: Insert, schema: StructType, static: Mapping[str, str], *, display_name: str, path: str
) -> list[str]:
    """The columns that the query's are for, in the table's spelling.

    Raises ``SchemaMismatchError`` for a column that the table has not, ``InvalidArgumentError`` for one that is given
    twice.
    """
    if insert.columns is None:
        return [n for n in schema.names if n not in static]
    out: list[str] = []
    for name in insert.columns:
        field = schema.find(name)
        if field is None:
            raise SchemaMismatchError(
                f"{display_name} has no column {name}",
                help=f"its columns are {', '.join(schema.names)}",
                file=path,
                column=name,
                condition="UNRESOLVED_COLUMN.WITH_SUGGESTION",
            )
        if field.name in out or field.name in static:
            raise InvalidArgumentError(
                f"column {name} is given twice", column=name, file=path, condition="COLUMN_ALREADY_EXISTS"
            )
        out.append(field.name)
    return out
