"""Whole queries: SELECT with all of its clauses, and what joins several of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import cast as typing_cast

import pyarrow as pa
from sqlglot import exp

from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.sql.dialect import spark_text
from trilake.expr.sql.translate import plain
from trilake.expr.terms.duckdb_sql import Sql, common_type
from trilake.expr.terms.nested_order import fields_of, order_key
from trilake.sql.duckdb.queries.aggregates import AGGREGATES
from trilake.sql.duckdb.queries.around import Around, Query
from trilake.sql.duckdb.queries.decimals import spark_decimal
from trilake.sql.duckdb.queries.dialect import stated
from trilake.sql.duckdb.queries.expressions import GENERATORS, QueryTranslator, ordered_key
from trilake.sql.duckdb.queries.instants import has_times, times_of_both
from trilake.sql.duckdb.queries.keys import (
    has_sets,
    in_parentheses,
    lose_signs_of_zero,
    normal_zero,
    order_of,
    position,
)
from trilake.sql.duckdb.queries.names import column_name
from trilake.sql.duckdb.queries.relations import (
    From,
    Relations,
    Tables,
    joined_conditions,
    made,
    renamed,
)
from trilake.sql.duckdb.queries.scope import Idents, Output, Relation, Scope, field_of, unresolved

_SET_OPERATIONS: dict[type[exp.Expression], str] = {
    exp.Union: "UNION",
    exp.Except: "EXCEPT",
    exp.Intersect: "INTERSECT",
}
#: The parts of a SELECT that are known.  Hints say how, and DISTRIBUTE BY where, never which rows.
_PARTS = frozenset(
    (
        *("kind", "hint", "distinct", "expressions", "limit", "offset", "from_", "joins", "laterals", "where", "group"),
        *("having", "qualify", "windows", "order", "with_", "sort", "cluster", "distribute", "operation_modifiers"),
    )
)
_SET_PARTS = frozenset(("this", "expression", "distinct", "limit", "offset", "order", "with_"))


class Translation:
    """Makes one statement's queries DuckDB's.

    Parameters
    ----------
    tables: the name and the schema of each table, by the name that it has in DuckDB.
    now: what ``current_timestamp()`` means.
    wide: whether decimals are computed in 128 bits from the start.
    """

    def __init__(self, tables: Tables, *, now: dt.datetime, wide: bool = False) -> None:
        self.around = Around(Idents(), self.query, now, wide)
        self.relations = Relations(self.around, tables)

    def statement(self, tree: exp.Query) -> Query:
        """The whole statement."""
        return self.query(typing_cast(exp.Expression, tree), Scope())

    def query(self, node: exp.Expression, scope: Scope) -> Query:
        """A query that begins with ``scope``, in which no relation of its own is yet."""
        ctes, scope = self._with(node, scope)
        match node:
            case exp.Subquery():
                found = self._parenthesized(node, scope)
            case exp.Select():
                found = self._select(node, scope)
            case exp.SetOperation():
                found = self._set_operation(node, scope)
            case exp.Values():
                found = self.query(exp.select("*").from_(node), scope)
            case _:
                raise FilterError(f"{spark_text(node)} is no query that is known here")
        return replace(found, text=f"{ctes}{found.text}")

    # --- WITH --------------------------------------------------------------------------------------------------------

    def _with(self, node: exp.Expression, scope: Scope) -> tuple[str, Scope]:
        clause = node.args.get("with_")
        if clause is None:
            return "", scope
        texts = []
        recursive = False
        for cte in clause.expressions:
            names = [c.name for c in cte.args["alias"].columns]
            ident = self.around.idents.relation()
            ctes = {k: v for k, v in scope.ctes.items() if k != cte.alias.lower()}
            inner = replace(scope, ctes=ctes)
            if clause.recursive and _names(cte.this, cte.alias):
                recursive = True
                text, columns = self._recursive(cte, ident, names, inner)
            else:
                found = self.query(cte.this, replace(inner, relations=()))
                columns = _renamed_all(found.columns, names, cte.alias)
                text = found.text
            listed = ", ".join(c.ident for c in columns)
            texts.append(f"{ident}({listed}) AS ({text})")
            scope = replace(scope, ctes={**scope.ctes, cte.alias.lower(): (ident, columns)})
        return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(texts)} ", scope

    def _recursive(
        self, cte: exp.CTE, ident: str, names: Sequence[str], scope: Scope
    ) -> tuple[str, tuple[Output, ...]]:
        union = cte.this
        if not isinstance(union, exp.Union) or _names(union.this, cte.alias):
            raise FilterError(f"the recursive query {cte.alias} is no UNION of a first part and one that names it")
        first = self.query(union.this, scope)
        columns = _renamed_all(first.columns, names, cte.alias)
        again = self.query(union.expression, replace(scope, ctes={**scope.ctes, cte.alias.lower(): (ident, columns)}))
        if len(again.columns) != len(columns):
            raise _unlike(len(columns), len(again.columns))
        translator = QueryTranslator(Scope(), self.around)
        cast = [translator.coerced(c.sql, f.sql.type).text for c, f in zip(again.columns, columns, strict=True)]
        operation = "UNION" if union.args.get("distinct") else "UNION ALL"
        return f"{first.text} {operation} (SELECT {', '.join(cast)} FROM ({again.text}))", columns

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Select, scope: Scope) -> Query:
        if stated(node) - _PARTS or node.args.get("kind") or node.args.get("operation_modifiers"):
            raise FilterError(f"{spark_text(node)} has clauses that are not known here")
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise FilterError("DISTINCT ON is no SQL of Spark")
        found, items = self._generators(self.relations.clause(node, scope), node.expressions)
        translator = QueryTranslator(found.scope, self.around)
        translator.windows = {w.name.lower(): w for w in node.args.get("windows") or []}
        where = node.args.get("where")
        conditions = "" if where is None else f" WHERE {joined_conditions(translator, where.this)}"
        columns, texts = self._items(items, translator)
        group = self._group(node.args.get("group"), items, columns, texts, translator)
        if distinct is not None:
            texts = [normal_zero(t, c.sql) for t, c in zip(texts, columns, strict=True)]
        listed = ", ".join(f"{t} AS {c.ident}" for t, c in zip(texts, columns, strict=True))
        translator.aliases_first = True
        having = node.args.get("having")
        asked = [] if having is None else [joined_conditions(translator, having.this)]
        if has_sets(node.args.get("group")):  # of no rows Spark makes no total
            asked.append("count(*) > 0")
        after = f" HAVING {' AND '.join(asked)}" if asked else ""
        qualify = node.args.get("qualify")
        after += "" if qualify is None else f" QUALIFY {joined_conditions(translator, qualify.this)}"
        text = f"SELECT {'DISTINCT ' if distinct is not None else ''}{listed}"
        text += f"{f' FROM {found.text}' if found.text else ''}{conditions}{group}{after}"
        order = node.args.get("order") or node.args.get("sort") or node.args.get("cluster")
        if order is not None:
            text += self._order(order, columns, translator, distinct=distinct is not None)
        return Query(f"{text}{self._limit(node)}", columns)

    def _generators(
        self, found: From, items: Sequence[exp.Expression]
    ) -> tuple[From, list[exp.Expression | tuple[Output, ...]]]:
        """Rows that functions of the SELECT list make, beside those of FROM."""
        out: list[exp.Expression | tuple[Output, ...]] = []
        for item in items:
            call = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
            if not isinstance(call, exp.Anonymous) or call.name.lower() not in GENERATORS:
                out.append(item)
                continue
            if any(isinstance(o, tuple) for o in out):
                raise InvalidArgumentError(
                    "a SELECT list makes rows twice", condition="UNSUPPORTED_GENERATOR.MULTI_GENERATOR"
                )
            name = call.name.lower()
            translator = QueryTranslator(found.scope, self.around)
            columns, text = self.relations.rows_of(name, list(call.expressions), translator)
            given = [item.alias] if isinstance(item, exp.Alias) else []
            given = [e.name for e in item.expressions] if isinstance(item, exp.Aliases) else given
            columns = _renamed_all(columns, given, name) if given else columns
            listed = ", ".join(c.ident for c in columns)
            rows = From(f"({text}) AS {self.around.idents.relation()}({listed})", Scope())
            found = replace(self.relations.beside(found, rows, outer_row=name.endswith("_outer")), scope=found.scope)
            out.append(columns)
        return found, out

    def _items(
        self, items: Sequence[exp.Expression | tuple[Output, ...]], translator: QueryTranslator
    ) -> tuple[tuple[Output, ...], list[str]]:
        """The columns of a SELECT list, and the text of each."""
        columns: list[Output] = []
        texts: list[str] = []

        def kept(column: Output, name: str | None = None) -> None:
            fresh = renamed(column, self.around.idents.column(name or column.name), name)
            columns.append(fresh)
            texts.append(column.ident if column.sql.text != "NULL" else "NULL")

        for item in items:
            if isinstance(item, tuple):
                for column in item:
                    kept(column)
                continue
            if _is_star(item):
                for column in _starred(item, translator):
                    if column.ident:
                        kept(column)
                    else:  # a field of a struct
                        ident = self.around.idents.column(column.name)
                        columns.append(made(column.name, ident, column.sql.type, column.instant))
                        texts.append(column.sql.text)
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            same = translator.output(inner)
            if (same is not None and same.sql.text in (same.ident, "NULL")) or _is_instant(same):
                assert same is not None
                translator.render(inner)
                kept(same, column_name(item))
            else:
                value = spark_decimal(translator.render(inner))
                instant = has_times(value.type) and translator.is_instant(inner)
                ident = self.around.idents.column(column_name(item))
                kept_type = None if same is None else same.kept
                columns.append(replace(made(column_name(item), ident, value.type, instant), kept=kept_type))
                texts.append(value.text)
            if isinstance(item, exp.Alias):
                shown = same.sql if same is not None else Sql(texts[-1], columns[-1].sql.type)
                translator.aliases.setdefault(item.alias.lower(), (shown, columns[-1].instant))
        return tuple(columns), texts

    def _group(
        self,
        node: exp.Expression | None,
        items: Sequence[exp.Expression | tuple[Output, ...]],
        columns: Sequence[Output],
        texts: list[str],
        translator: QueryTranslator,
    ) -> str:
        if node is None:
            return ""
        if stated(node) - {"expressions", "rollup", "cube", "grouping_sets", "all"}:
            raise FilterError(f"{spark_text(node)} has parts that are not known here")
        if any(isinstance(i, tuple) for i in items):
            raise FilterError("functions that make rows cannot be used beside GROUP BY", help="write a query in FROM")
        if node.args.get("all"):
            keys = [
                text
                for item, text in zip(_each(items, translator), texts, strict=True)
                if item is None or not _aggregates(item)
            ]
            lose_signs_of_zero(texts, keys, columns)
            return f" GROUP BY {', '.join(keys)}" if keys else ""

        def key(part: exp.Expression) -> str:
            part = plain(part)
            if isinstance(part, exp.Tuple):
                return f"({', '.join(key(p) for p in part.expressions)})"
            if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets):
                word = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE"}.get(type(part), "GROUPING SETS")
                return f"{word} ({', '.join(in_parentheses(p, key) for p in part.expressions)})"
            place = position(part)
            if place is not None:
                if not 1 <= place <= len(texts):
                    raise InvalidArgumentError(
                        f"GROUP BY {place} names no column of the SELECT list", condition="GROUP_BY_POS_OUT_OF_RANGE"
                    )
                return texts[place - 1]
            value = translator.render(part)
            if value.family in ("map", "other"):
                raise FilterError(f"rows cannot be grouped by values of type {value.spark_type}")
            same = translator.output(part)
            return same.ident if same is not None and _is_instant(same) else value.text

        plain_keys = [key(e) for e in node.expressions]
        for name, word in (("rollup", "ROLLUP"), ("cube", "CUBE")):
            for extra in node.args.get(name) or []:
                if not extra.expressions:  # WITH ROLLUP
                    return f" GROUP BY {word} ({', '.join(plain_keys)})"
                plain_keys.append(key(extra))
        sets = node.args.get("grouping_sets") or []
        if sets:  # the columns in front of them are those that the sets choose from
            plain_keys = [key(s) for s in sets]
        lose_signs_of_zero(texts, plain_keys, columns)
        return f" GROUP BY {', '.join(plain_keys)}"

    # --- ORDER BY and LIMIT ------------------------------------------------------------------------------------------

    def _order(
        self, order: exp.Expression, columns: Sequence[Output], translator: QueryTranslator, *, distinct: bool
    ) -> str:
        keys = []
        for ordered in order.expressions:
            part = plain(ordered.this)
            if isinstance(part, exp.Var) and part.name.upper() == "ALL":
                keys += [ordered_key(order_of(c), ordered) for c in columns]
                continue
            named = isinstance(part, exp.Identifier) or position(part) is not None
            if not named and translator.constant(part) is not None:
                continue  # which has no effect, and DuckDB refuses it
            keys.append(ordered_key(self._order_key(part, columns, translator, distinct=distinct), ordered))
        return f" ORDER BY {', '.join(keys)}" if keys else ""

    def _order_key(
        self, part: exp.Expression, columns: Sequence[Output], translator: QueryTranslator, *, distinct: bool
    ) -> str:
        place = position(part)
        if place is not None:
            if not 1 <= place <= len(columns):
                raise InvalidArgumentError(
                    f"ORDER BY {place} names no column of the SELECT list", condition="ORDER_BY_POS_OUT_OF_RANGE"
                )
            return order_of(columns[place - 1])
        if isinstance(part, exp.Column) and not part.table:
            same = [c for c in columns if c.name.lower() == part.name.lower()]
            if len(same) == 1:
                return order_of(same[0])
        if distinct:
            same = [c for c in columns if c.name == column_name(part)]
            if same:
                return order_of(same[0])
        return order_key(translator.render(part))

    def _limit(self, node: exp.Expression) -> str:
        text = ""
        for name, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
            clause = node.args.get(name)
            if clause is None or (isinstance(clause.expression, exp.Var) and clause.expression.name.upper() == "ALL"):
                continue
            number = QueryTranslator(Scope(), self.around).constant(clause.expression)
            if (
                number is None
                or not isinstance(number.value, int)
                or isinstance(number.value, bool)
                or number.value < 0
            ):
                raise InvalidArgumentError(
                    f"{word} takes a number that is not negative", condition="INVALID_LIMIT_LIKE_EXPRESSION"
                )
            text += f" {word} {number.value}"
        return text

    # --- several queries ---------------------------------------------------------------------------------------------

    def _parenthesized(self, node: exp.Subquery, scope: Scope) -> Query:
        if node.args.get("alias") or node.args.get("joins") or node.args.get("pivots"):
            raise FilterError(f"{spark_text(node)} is no query that is known here")
        found = self.query(node.this, scope)
        return self._wrapped(found, node)

    def _wrapped(self, found: Query, node: exp.Expression) -> Query:
        """A query with the ORDER BY and LIMIT that stand behind it, if any do."""
        if all(node.args.get(part) is None for part in ("order", "limit", "offset")):
            return found
        columns = tuple(renamed(c, self.around.idents.column(c.name)) for c in found.columns)
        listed = ", ".join(c.ident for c in columns)
        text = f"SELECT {listed} FROM ({found.text}) AS {self.around.idents.relation()}({listed})"
        if node.args.get("order") is not None:
            translator = QueryTranslator(Scope((Relation((), columns),)), self.around)
            text += self._order(node.args["order"], columns, translator, distinct=False)
        return Query(f"{text}{self._limit(node)}", columns)

    def _set_operation(self, node: exp.SetOperation, scope: Scope) -> Query:
        if stated(node) - _SET_PARTS or type(node) not in _SET_OPERATIONS:
            raise FilterError(f"{spark_text(node)} has clauses that are not known here")
        left, right = self.query(node.this, scope), self.query(node.expression, scope)
        if len(left.columns) != len(right.columns):
            raise _unlike(len(left.columns), len(right.columns))
        translator = QueryTranslator(Scope(), self.around)
        columns: list[Output] = []
        texts: tuple[list[str], list[str]] = ([], [])
        for a, b in zip(left.columns, right.columns, strict=True):
            ident = self.around.idents.column(a.name)
            if a.declared == b.declared and a.sql.type == b.sql.type and a.sql.decimal == b.sql.decimal:
                columns.append(replace(renamed(a, ident), instant=a.instant or b.instant, kept=_kept_of_both(a, b)))
                for side, c in zip(texts, (a, b), strict=True):
                    side.append("NULL" if c.sql.family == "void" else c.ident)
                continue
            target = common_type([spark_decimal(a.sql), spark_decimal(b.sql)], "the columns of two queries")
            both = made(a.name, ident, target, a.instant or b.instant)
            columns.append(replace(both, kept=_kept_of_both(a, b)))
            for side, c in zip(texts, (a, b), strict=True):
                side.append(translator.coerced(spark_decimal(c.sql), target).text)
        unique = bool(node.args.get("distinct"))
        for side in texts if unique else ():
            side[:] = [normal_zero(t, c.sql) for t, c in zip(side, columns, strict=True)]
        word = f"{_SET_OPERATIONS[type(node)]}{'' if unique else ' ALL'}"
        listed = ", ".join(f"{t} AS {c.ident}" for t, c in zip(texts[0], columns, strict=True))
        text = f"(SELECT {listed} FROM ({left.text})) {word} (SELECT {', '.join(texts[1])} FROM ({right.text}))"
        found = Query(text, tuple(columns))
        return self._wrapped(found, node)


def _kept_of_both(a: Output, b: Output) -> pa.DataType | None:
    """What is ``kept`` of two columns that become one."""
    if a.kept is not None and b.kept is not None:
        return times_of_both(a.kept, b.kept)
    one, other = (a, b) if a.kept is not None else (b, a)
    return None if other.instant else one.kept


def _is_star(item: exp.Expression) -> bool:
    return (
        isinstance(item, exp.Star)
        or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
        or (isinstance(item, exp.Dot) and isinstance(item.expression, exp.Star))
    )


def _starred(item: exp.Expression, translator: QueryTranslator) -> tuple[Output, ...]:
    """The columns that a star stands for; fields of a struct have no name in DuckDB."""
    star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else item.expression
    known = {key for key, value in star.args.items() if value}
    if known - {"except_"}:
        raise FilterError(f"{spark_text(item)} is no star that is known here")
    if isinstance(item, exp.Star):
        columns = translator.scope.star()
        if not columns:
            raise InvalidArgumentError(
                "there is nothing that * stands for: the query has no FROM, or its tables no columns"
            )
    else:
        columns = _star_of(item, translator)
    dropped = {e.name.lower() for e in star.args.get("except_") or []}
    missing = dropped - {c.name.lower() for c in columns}
    if missing:
        raise unresolved((min(missing),), translator.scope)
    return tuple(c for c in columns if c.name.lower() not in dropped)


def _star_of(item: exp.Expression, translator: QueryTranslator) -> tuple[Output, ...]:
    """``relation.*``, or the fields of a struct."""
    parts = tuple(p.name for p in item.parts[:-1])  # type: ignore[attr-defined]
    relation = translator.scope.of_relation(parts)
    if relation is not None:
        return relation.columns
    value = translator.named(parts)
    if value.family != "struct":
        raise unresolved(parts, translator.scope)
    instant = translator.is_instant(exp.column(parts[-1], *parts[-2::-1]))
    return tuple(Output(n, field_of(value, n), "", instant) for n, _ in fields_of(value.type))


def _is_instant(column: Output | None) -> bool:
    return column is not None and column.declared == "TIMESTAMP WITH TIME ZONE"


def _each(
    items: Sequence[exp.Expression | tuple[Output, ...]], translator: QueryTranslator
) -> list[exp.Expression | None]:
    """The item of each column; ``None`` for columns of a star."""
    out: list[exp.Expression | None] = []
    for item in items:
        assert not isinstance(item, tuple)
        out += [None] * len(_starred(item, translator)) if _is_star(item) else [item]
    return out


def _aggregates(item: exp.Expression) -> bool:
    inside = typing_cast("list[exp.Expression]", list(item.find_all(exp.Anonymous)))
    return any(n.name.lower() in AGGREGATES and not isinstance(_above(n), exp.Window) for n in inside)


def _above(node: exp.Expression) -> object:
    above: object = node.parent
    while isinstance(above, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        above = above.parent
    return above


def _names(node: exp.Expression, name: str) -> bool:
    return any(t.name.lower() == name.lower() and not t.db for t in node.find_all(exp.Table))


def _renamed_all(columns: Sequence[Output], names: Sequence[str], owner: str) -> tuple[Output, ...]:
    if names and len(names) != len(columns):
        raise InvalidArgumentError(
            f"{owner} has {len(columns)} columns, and {len(names)} names are given",
            condition="ASSIGNMENT_ARITY_MISMATCH",
        )
    return tuple(replace(c, name=n) for c, n in zip(columns, names or [c.name for c in columns], strict=True))


def _unlike(left: int, right: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the first query has {left} columns, and the second one {right}", condition="NUM_COLUMNS_MISMATCH"
    )
