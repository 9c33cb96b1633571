"""Dispatch CREATE and REPLACE of tables and views; leave those of other formats to Spark."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from trilake.errors import InvalidArgumentError
from trilake.sql.parser.create import Create, parse_create
from trilake.sql.parser.cursor import Cursor, SyntaxProblem
from trilake.sql.parser.descriptions import with_options
from trilake.sql.parser.literals import Args
from trilake.sql.parser.tokens import Token, depths, tokenize
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.placeholders import with_parameters
from trilake.sql.spark.session.relations import names_trilake_table, query
from trilake.sql.spark.session.session import SqlSession
from trilake.sql.spark.session.targets import Target, path_target, resolve
from trilake.sql.spark.tables.create_table import create_as_select, create_clone, create_like, create_plain
from trilake.sql.spark.tables.view_statements import create_view, is_view
from trilake.table.registry import format_of_provider


def run_create(session: SqlSession, sql: str, args: Args) -> DataFrame | None:
    """Run a CREATE or REPLACE; ``None`` to leave it to Spark."""
    tokens = tokenize(sql)
    if is_view(tokens):
        return create_view(session, with_parameters(session, sql, args))
    if not _is_table(tokens):
        return query(session, sql, args) if names_trilake_table(session, sql, tokens) else None
    cloned = _is_clone(tokens)
    # Spark before 4.0 knows neither identity columns nor CLUSTER BY.
    older = session.spark.version.startswith("3.") and _names_format(tokens)
    if not cloned and not older and session.classic and not jvm.parses(session.parser, sql):
        return None  # Spark raises
    try:
        call = parse_create(Cursor(with_parameters(session, sql, args)))
    except SyntaxProblem:
        if cloned or _names_format(tokens):
            raise
        call = None
    if call is None:
        return query(session, sql, args) if names_trilake_table(session, sql, tokens) else None
    if call.clone_of is not None:
        return create_clone(session, with_options(call, "delta"))
    format = _format(session, call)
    if format is None:
        _check_replaceable(session, call)
        return query(session, sql, args) if names_trilake_table(session, sql, tokens) else None
    call = with_options(call, format)
    if call.like is not None:
        return create_like(session, call, format)
    if call.query is not None:
        return create_as_select(session, call, format)
    return create_plain(session, call, format)


def _check_replaceable(session: SqlSession, call: Create) -> None:
    """Raise ``InvalidArgumentError`` where a table of another format would replace a trilake table."""
    target = resolve(session, call.parts) if call.replace else None
    if isinstance(target, Target):
        requested = "a table without USING" if call.provider is None else f"a {call.provider} table"
        raise InvalidArgumentError(
            f"{'.'.join(call.parts)} is a {target.format} table, which {requested} cannot replace",
            help=f"write USING {target.format} after the name, or set spark.sql.sources.default to {target.format};"
            " drop the table first to use another format",
            condition="UNSUPPORTED_FEATURE.TABLE_OPERATION",
        )


def _is_table(tokens: Sequence[Token]) -> bool:
    words = [t.upper for t in tokens[:4]]
    return "TABLE" in words and words[words.index("TABLE") - 1] in ("CREATE", "REPLACE", "EXTERNAL")


def _is_clone(tokens: Sequence[Token]) -> bool:
    inside = depths(tokens)
    for i, t in enumerate(tokens[:12]):
        if inside[i] == 0 and t.upper in ("AS", "USING", "SELECT"):
            return False
        if (
            t.upper == "CLONE"
            and inside[i] == 0
            and (tokens[i - 1].upper in ("SHALLOW", "DEEP") or tokens[i - 1].is_name)
        ):
            return tokens[i - 1].upper not in ("TABLE", "EXISTS") and tokens[i - 1].text != "."
    return False


def _names_format(tokens: Sequence[Token]) -> bool:
    """Whether the statement names a trilake format: ``USING delta`` or ``delta.`/path```."""
    inside = depths(tokens)
    for i, t in enumerate(tokens[:-1]):
        if inside[i] == 0 and t.upper == "USING" and format_of_provider(tokens[i + 1].name):
            return True
        if inside[i] == 0 and t.is_name and format_of_provider(t.name) and tokens[i + 1].text == ".":
            return True
        if inside[i] == 0 and t.upper in ("AS", "SELECT"):
            return False
    return False


def _format(session: SqlSession, call: Create) -> str | None:
    """The new table's format, ``None`` for one that is not trilake's."""
    if call.provider is not None:
        return format_of_provider(call.provider)
    by_path = path_target(session, call.parts)
    if by_path is not None:
        return by_path.format
    if call.like is not None:
        source = resolve(session, call.like)
        return source.format if isinstance(source, Target) else None
    return format_of_provider(session.setting("spark.sql.sources.default", "parquet"))
