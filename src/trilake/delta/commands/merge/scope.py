"""Names in the expressions of a MERGE: columns of the target, of the source, or of both.

Both tables are struct columns of one row, named by their aliases.  Before parsing, an unqualified name gets the alias
of the table that has the column; a name that both tables have is ambiguous.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import pyarrow as pa
from sqlglot import exp

from trilake.common.text import quote_name
from trilake.delta.commands.merge.clauses import Side, VisibleColumns
from trilake.delta.protocol.schema_edit import Path
from trilake.errors import ExpressionError, FilterError, InvalidArgumentError
from trilake.expr import Expression, Filter, parse_expression, parse_filter
from trilake.expr.sql.dialect import IN_BACKQUOTES, mistaken_string, string_for_column
from trilake.expr.sql.parse import conjuncts, parse_tree
from trilake.expr.sql.translate import Translator, plain


@dataclass(frozen=True)
class Scope:
    """The tables whose columns an expression may use.

    ``schemas`` holds the visible sides; ``aliases`` the name of each.  ``now`` is the value of ``current_timestamp()``,
    and ``names`` are used in messages.
    """

    schemas: Mapping[Side, pa.Schema]
    aliases: Mapping[Side, str]
    now: dt.datetime
    names: VisibleColumns

    @classmethod
    def of(cls, target: pa.Schema, source: pa.Schema, aliases: Mapping[Side, str], now: dt.datetime) -> Scope:
        """The scope of both tables.  Raises ``InvalidArgumentError`` if they have the same alias."""
        if aliases["target"].lower() == aliases["source"].lower():
            raise InvalidArgumentError(
                f"target and source have the same alias {aliases['target']!r}",
                help="give the two tables different aliases",
            )
        names = VisibleColumns({"target": target.names, "source": source.names}, aliases)
        return cls({"target": target, "source": source}, aliases, now, names)

    def only(self, side: Side) -> Scope:
        return replace(self, schemas={side: self.schemas[side]}, names=replace(self.names, visible=(side,)))

    @cached_property
    def schema(self) -> pa.Schema:
        """The row that expressions see."""
        return pa.schema([pa.field(self.aliases[s], pa.struct(list(schema))) for s, schema in self.schemas.items()])

    def side(self, path: Path) -> Side:
        return next(s for s in self.schemas if self.aliases[s] == path[0])

    def parse(self, sql: str, what: str = "an expression", *, written: str | None = None) -> Expression:
        """Parse and bind an expression of a clause; ``written`` is the user's part of it.

        Raises ``ExpressionError`` for unknown and ambiguous names, and ``UnsupportedExpressionError`` for an expression
        that only Spark can compute.
        """
        _check_text(sql, what)
        return parse_expression(self.qualified(sql), self.schema, now=self.now, written=written)

    def condition(self, sql: str, what: str = "a condition") -> Expression:
        """Parse a boolean expression.

        Raises the errors of :meth:`parse`, and ``ExpressionError`` if the expression is not boolean, or compares a
        string in double quotes that should be a column.
        """
        _check_text(sql, what)
        names = frozenset(n.lower() for schema in self.schemas.values() for n in schema.names)
        if (constant := string_for_column(_parsed(sql), sql, names)) is not None:
            raise ExpressionError(mistaken_string(constant), help=IN_BACKQUOTES)
        expression = self.parse(sql, what)
        if not (pa.types.is_boolean(expression.type) or pa.types.is_null(expression.type)):
            raise ExpressionError(f"{what} must be boolean, got {sql} of type {expression.type}")
        return expression

    def qualified(self, sql: str) -> str:
        """Qualify every unqualified name.

        Raises ``ExpressionError`` for a name that no visible table has, or that both have.
        """
        insert: dict[int, str] = {}
        for node in _names(_parsed(sql)):
            parts = tuple(p.name for p in node.parts)
            if self._by_alias(parts) is None:
                owners = self.names.owners(parts[0])
                if not owners:
                    raise self.names.unknown(parts, expression=sql[:200])
                if len(owners) > 1:
                    raise self.names.ambiguous(parts[0], expression=sql[:200])
                start = node.parts[0].meta.get("start")
                assert start is not None
                insert[int(start)] = quote_name(self.aliases[owners[0]]) + "."
        for start in sorted(insert, reverse=True):
            sql = sql[:start] + insert[start] + sql[start:]
        return sql

    def _by_alias(self, parts: tuple[str, ...]) -> Side | None:
        if len(parts) < 2:
            return None
        for side, schema in self.schemas.items():
            alias, name = self.aliases[side].lower(), parts[1].lower()
            if parts[0].lower() == alias and any(n.lower() == name for n in schema.names):
                return side
        return None

    def join(self, condition: str) -> Join:
        """Parse the join condition.

        Raises the errors of :meth:`parse`, and ``ExpressionError`` if the condition is not boolean.
        """
        self.condition(condition, "the merge condition")
        nodes = conjuncts(_parsed(self.qualified(condition)))
        keys = [n for n in nodes if self._equals(n) is not None]
        rest = [n for n in nodes if self._equals(n) is None]
        translator = Translator(self.schema, case_sensitive=False, now=self.now)
        # Separate equalities become DuckDB's join keys; the rest stays one part, since one condition may guard another.
        guarded = [reduce(lambda a, b: exp.And(this=a, expression=b), (n.copy() for n in rest))] if rest else []
        parts = [translator.condition(n) for n in (*keys, *guarded)]
        paths = tuple(dict.fromkeys(p for _, columns in parts for p in columns))
        return Join(condition, " AND ".join(f"({sql})" for sql, _ in parts), paths)

    def hints(self, sql: str) -> tuple[list[Key], list[str]]:
        """Conditions of the join on target columns: columns that equal source expressions, and SQL over the target.

        Raises ``ExpressionError`` for unknown and ambiguous names.
        """
        nodes = conjuncts(_parsed(self.qualified(sql)))
        keys = [k for n in nodes if (k := self._key(n)) is not None]
        return keys, [t for n in nodes if (t := self._target_sql(n)) is not None]

    def _sides(self, node: exp.Expression) -> set[Side]:
        return {side for n in _names(node) if (side := self._by_alias(tuple(p.name for p in n.parts))) is not None}

    def _equals(self, node: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
        """The operands of an equality between both tables: the target's, then the source's."""
        if not isinstance(node, exp.EQ | exp.NullSafeEQ):
            return None
        a, b = plain(node.this), plain(node.expression)
        sides = (self._sides(a), self._sides(b))
        if sides == ({"target"}, {"source"}):
            return a, b
        return (b, a) if sides == ({"source"}, {"target"}) else None

    def _key(self, node: exp.Expression) -> Key | None:
        """The target column of an equality whose target operand is just a column."""
        pair = self._equals(node)
        if pair is None or not isinstance(pair[0], exp.Column | exp.Dot) or next(_names(pair[0]), None) is not pair[0]:
            return None
        sql = _faithful(pair[1])
        parts = tuple(p.name for p in pair[0].parts)[1:]
        return None if sql is None else Key(parts, sql, isinstance(node, exp.NullSafeEQ))

    def _target_sql(self, node: exp.Expression) -> str | None:
        """A condition that reads only the target, with unqualified names; ``None`` for others."""
        if self._sides(node) - {"target"}:
            return None
        return _faithful(node.copy().transform(_without_table))

    def target_filter(self, sql: str) -> Filter | None:
        """A condition on only the target, as a filter for skipping files; ``None`` if there is no such filter."""
        target_sql = self._target_sql(_parsed(self.qualified(sql)))
        try:
            return None if target_sql is None else parse_filter(target_sql, self.schemas["target"], now=self.now)
        except FilterError:
            return None  # the join evaluates it


@dataclass(frozen=True)
class Key:
    """A target column, as the parts of its name, that must equal an expression of the source."""

    column: tuple[str, ...]
    source: str
    null_safe: bool


@dataclass(frozen=True)
class Join:
    """The join condition: ``source`` is the SQL of the user, ``sql`` its form for DuckDB.

    ``paths`` are the columns in ``sql``, which :func:`~trilake.expr.terms.predicate.duckdb_name` names.
    """

    source: str
    sql: str
    paths: tuple[Path, ...]


def _faithful(node: exp.Expression) -> str | None:
    """The SQL of a part of an expression; ``None`` if parsing it again gives another expression."""
    sql = node.sql(dialect="databricks", comments=False, normalize_functions=False)
    try:
        return sql if parse_tree(sql) == node else None
    except FilterError:
        return None


def _without_table(node: exp.Expression) -> exp.Expression:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or len(node.parts) < 2:
        return node
    rest = [p.copy() for p in node.parts[1:]]
    names = ("this", "table", "db", "catalog")
    return exp.Column(**dict(zip(names, reversed(rest), strict=False)))


def _check_text(sql: str, what: str) -> None:
    if not isinstance(sql, str):
        raise InvalidArgumentError(f"{what} must be a SQL string, got {type(sql).__name__}")


def _parsed(sql: str) -> exp.Expression:
    try:
        return parse_tree(sql)
    except FilterError as e:
        raise ExpressionError(e.message.replace("the filter", "the expression"), help=e.help, **e.context) from e


def _names(root: exp.Expression) -> Iterator[exp.Column | exp.Dot]:
    nodes: Iterator[exp.Column | exp.Dot] = root.find_all(exp.Column, exp.Dot)
    for node in nodes:
        inside = isinstance(node.parent, exp.Dot) and node.parent.this is node
        if not inside and all(isinstance(p, exp.Identifier) for p in node.parts):
            yield node
