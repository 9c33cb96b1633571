"""The FROM clause: tables, queries, values, joins, and the rows that functions make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from trilake.common.text import double_quoted, quote_name, single_quoted
from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.sql.dialect import spark_text
from trilake.expr.terms import engine
from trilake.expr.terms.char_padding import char_length
from trilake.expr.terms.datatypes import normal_type
from trilake.expr.terms.duckdb_sql import Sql, common_type, type_name
from trilake.expr.terms.nested_order import fields_of, parts_of
from trilake.sql.duckdb.queries.around import Around
from trilake.sql.duckdb.queries.dialect import stated
from trilake.sql.duckdb.queries.expressions import GENERATORS, QueryTranslator
from trilake.sql.duckdb.queries.instants import has_times, instant_column, kinds_of_times
from trilake.sql.duckdb.queries.pivots import pivoted
from trilake.sql.duckdb.queries.scope import Output, Relation, Scope, unresolved

#: The name and the schema of each table that a query names, by the name that it has in DuckDB.
Tables = Mapping[str, tuple[tuple[str, ...], pa.Schema]]
_KINDS = {
    ("", ""): "JOIN",
    ("", "INNER"): "JOIN",
    ("", "CROSS"): "JOIN",
    ("LEFT", ""): "LEFT JOIN",
    ("LEFT", "OUTER"): "LEFT JOIN",
    ("RIGHT", ""): "RIGHT JOIN",
    ("RIGHT", "OUTER"): "RIGHT JOIN",
    ("FULL", ""): "FULL JOIN",
    ("FULL", "OUTER"): "FULL JOIN",
    ("LEFT", "SEMI"): "SEMI JOIN",
    ("LEFT", "ANTI"): "ANTI JOIN",
    ("", "SEMI"): "SEMI JOIN",
    ("", "ANTI"): "ANTI JOIN",
}


@dataclass(frozen=True)
class From:
    """A part of a FROM clause in DuckDB's SQL, and what it brings into scope."""

    text: str
    scope: Scope


class Relations:
    """Makes the FROM clauses of one statement."""

    def __init__(self, around: Around, tables: Tables) -> None:
        self.around = around
        self.tables = tables

    def clause(self, select: exp.Select, outer: Scope) -> From:
        """The whole FROM clause, joins and ``LATERAL VIEW`` with it."""
        first = select.args.get("from_")
        found = From("", outer) if first is None else self._joined(self.relation(first.this, outer), select, outer)
        for view in select.args.get("laterals") or []:
            found = self._view(found, view)
        return found

    def _joined(self, found: From, node: exp.Expression, outer: Scope) -> From:
        for join in node.args.get("joins") or []:
            found = self._join(found, join, outer)
        return found

    # --- relations ---------------------------------------------------------------------------------------------------

    def relation(self, node: exp.Expression, scope: Scope) -> From:
        """One relation, with what is joined to it inside of its parentheses."""
        if node.args.get("pivots"):
            return self._pivoted(node, scope)
        known = {"this", "alias", "joins", "columns", "expressions", "db", "catalog", "ordinality", "view", "outer"}
        if stated(node) - known or node.args.get("ordinality"):
            raise FilterError(f"{spark_text(node)} has parts that are not known here", help="write it as a query")
        match node:
            case exp.Table() if isinstance(node.this, exp.Func):
                found = self._function(node.this, scope)
            case exp.Table():
                found = self._table(node, scope)
            case exp.Subquery() if isinstance(node.this, exp.Table):
                found = self.relation(node.this, scope)
            case exp.Subquery():
                found = self._query(node.this, scope)
            case exp.Values():
                found = self._values(node, scope)
            case exp.Lateral():
                return self._lateral(node, scope)
            case _:
                raise FilterError(f"{spark_text(node)} is no relation that is known here")
        return self._joined(_named(found, node), node, scope)

    def _pivoted(self, node: exp.Expression, scope: Scope) -> From:
        """A relation with PIVOT or UNPIVOT behind it, one after the other."""
        relation = node.copy()
        pivots = relation.args["pivots"]
        relation.set("pivots", None)
        for pivot in pivots:
            name = pivot.args.get("alias")
            pivot.set("alias", None)
            query = pivoted(relation, self.relation(relation, scope).scope.star(), pivot)
            relation = exp.Subquery(this=query, alias=name)
        return self.relation(relation, scope)

    def _table(self, node: exp.Table, scope: Scope) -> From:
        name = node.name if node.name in self.tables else node.name.lower()
        if name in self.tables and name not in scope.ctes:
            return self._source(name, *self.tables[name], scope)
        cte = scope.ctes.get(name.lower())
        if cte is None:
            raise unresolved((name,), scope)
        ident, columns = cte
        return self._aliased(ident, columns, (name,), scope)

    def _source(self, name: str, shown: tuple[str, ...], schema: pa.Schema, scope: Scope) -> From:
        return self._only(double_quoted(name), Relation(shown, tuple(self._column(field) for field in schema)), scope)

    def _only(self, text: str, relation: Relation, scope: Scope) -> From:
        """A FROM clause of one relation, of which ``text`` gives the columns in their order."""
        listed = ", ".join(c.ident for c in relation.columns)
        name = f"{self.around.idents.relation()}({listed})" if listed else self.around.idents.relation()
        return From(f"{text} AS {name}", replace(scope, relations=(relation,), merged={}, hidden=frozenset()))

    def _column(self, field: pa.Field) -> Output:
        ident = self.around.idents.column(field.name)
        if pa.types.is_null(field.type):
            return Output(field.name, Sql("NULL", '"NULL"'), ident)
        try:
            kind = type_name(field.type)
        except FilterError:
            return Output(field.name, Sql(ident, _foreign_type(field)), ident)
        instant = True in kinds_of_times(field.type)
        if pa.types.is_timestamp(field.type) and instant:
            return Output(field.name, instant_column(ident), ident, True, "TIMESTAMP WITH TIME ZONE")
        if _is_plain(field.type):
            return Output(field.name, Sql(ident, kind, char=char_length(field)), ident, instant)
        kept = _with_microseconds(field.type) if instant and pa.types.is_nested(field.type) else None
        return Output(field.name, Sql(f"CAST({ident} AS {kind})", kind), ident, instant, kind, kept)

    def _query(self, node: exp.Expression, scope: Scope) -> From:
        query = self.around.query(node, replace(scope.inner(), outer=scope.outer))
        return self._aliased(f"({query.text})", query.columns, (), scope)

    def _aliased(self, text: str, columns: Sequence[Output], name: tuple[str, ...], scope: Scope) -> From:
        """A query or a CTE under new names."""
        fresh = tuple(renamed(c, self.around.idents.column(c.name)) for c in columns)
        return self._only(text, Relation(name, fresh), scope)

    def _values(self, node: exp.Values, scope: Scope) -> From:
        translator = QueryTranslator(scope.inner(), self.around)
        nodes = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        rows = [[translator.render(cell) for cell in row] for row in nodes]
        if len({len(row) for row in rows}) != 1:
            raise InvalidArgumentError(
                "the rows of VALUES have unlike numbers of columns",
                condition="INVALID_INLINE_TABLE.NUM_COLUMNS_MISMATCH",
            )
        kinds = [common_type(cells, "the values of a column") for cells in zip(*rows, strict=True)]
        instants = [any(map(translator.is_instant, cells)) for cells in zip(*nodes, strict=True)]
        texts = [
            f"({', '.join(translator.coerced(cell, kind).text for cell, kind in zip(row, kinds, strict=True))})"
            for row in rows
        ]
        columns = tuple(
            made(f"col{i}", self.around.idents.column(f"col{i}"), kind, instant)
            for i, (kind, instant) in enumerate(zip(kinds, instants, strict=True), 1)
        )
        return self._only(f"(VALUES {', '.join(texts)})", Relation((), columns), scope)

    def _function(self, node: exp.Func, scope: Scope) -> From:
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in GENERATORS:
            return self._generated(name, list(node.expressions), scope)
        if name != "range" or not 1 <= len(node.expressions) <= 3:
            raise InvalidArgumentError(
                f"{name} is no function that makes a relation here", condition="UNRESOLVABLE_TABLE_VALUED_FUNCTION"
            )
        translator = QueryTranslator(scope.inner(), self.around)
        numbers = [translator.constant(e) for e in node.expressions]
        if not all(n is not None and isinstance(n.value, int) for n in numbers):
            raise FilterError("range takes whole numbers")
        listed = ", ".join(f"{n.value!r}::BIGINT" for n in numbers if n is not None)
        column = made("id", self.around.idents.column("id"), "BIGINT", False)
        return self._only(f"range({listed})", Relation(("range",), (column,)), scope)

    # --- joins -------------------------------------------------------------------------------------------------------

    def _join(self, left: From, node: exp.Join, outer: Scope) -> From:
        known = {"this", "side", "kind", "method", "on", "using"}
        kind = _KINDS.get((node.side.upper(), node.kind.upper()))
        if stated(node) - known or kind is None or node.method.upper() not in ("", "NATURAL"):
            raise FilterError(f"{spark_text(node)} is no join that is known here")
        lateral = isinstance(node.this, exp.Lateral)
        right = self.relation(node.this, left.scope if lateral else replace(outer, relations=(), merged={}))
        if lateral:
            right = From(f"LATERAL {right.text}" if right.text.startswith("(") else right.text, right.scope)
        both = left.scope.joined(right.scope)
        names = [i.name for i in node.args.get("using") or []]
        if node.method.upper() == "NATURAL":
            mine = {c.name.lower() for c in right.scope.star()}
            names = [c.name for c in left.scope.star() if c.name.lower() in mine]
        half = kind in ("SEMI JOIN", "ANTI JOIN")
        if names:
            matching, both = self._using(names, left.scope, right.scope, both, kind)
        elif node.args.get("on") is not None:
            matching = joined_conditions(QueryTranslator(both, self.around), node.args["on"])
        else:
            matching = "TRUE"
        text = f"{left.text} {kind} {right.text} ON {matching}"
        if matching == "TRUE" and kind == "JOIN":
            text = f"{left.text} CROSS JOIN {right.text}"
        return From(text, left.scope if half else both)

    def _using(self, names: Sequence[str], left: Scope, right: Scope, both: Scope, kind: str) -> tuple[str, Scope]:
        """The condition of USING, and the scope in which one column stands for two."""
        conditions, merged = [], dict(left.merged)
        hidden = set(both.hidden)
        for name in names:
            sides = []
            for side in (left, right):
                found = side.find((name,))
                if found is None:
                    raise InvalidArgumentError(
                        f"USING column {quote_name(name)} cannot be resolved on one side of the join",
                        condition="UNRESOLVED_USING_COLUMN_FOR_JOIN",
                    )
                sides.append(found[0])
            a, b = sides
            translator = QueryTranslator(both, self.around)
            conditions.append(translator.comparison("=", a.sql, b.sql).text)
            hidden |= {c.ident for side in (a, b) for c in side.columns()}
            if kind == "RIGHT JOIN":
                merged[name.lower()] = b
            elif kind == "FULL JOIN":
                target = common_type([a.sql, b.sql], "the two sides of USING")
                value = f"coalesce({translator.coerced(a.sql, target).text}, {translator.coerced(b.sql, target).text})"
                merged[name.lower()] = Output(a.name, Sql(value, target), "", a.instant or b.instant, sides=(a, b))
            else:
                merged[name.lower()] = a
        return " AND ".join(conditions), replace(both, merged=merged, hidden=frozenset(hidden))

    # --- rows that functions make ------------------------------------------------------------------------------------

    def _lateral(self, node: exp.Lateral, scope: Scope) -> From:
        inner = node.this
        if isinstance(inner, exp.Subquery):
            query = self.around.query(inner.this, replace(scope.inner(), outer=scope))
            return _named(self._aliased(f"({query.text})", query.columns, (), scope), node)
        if not isinstance(inner, exp.Anonymous) or inner.name.lower() not in GENERATORS:
            raise FilterError(f"{spark_text(inner)} makes no rows that are known here")
        return _named(self._generated(inner.name.lower(), list(inner.expressions), scope), node)

    def _view(self, found: From, node: exp.Lateral) -> From:
        """``LATERAL VIEW [OUTER] explode(...) name AS columns``."""
        call = node.this
        if not isinstance(call, exp.Anonymous) or call.name.lower() not in GENERATORS:
            raise FilterError(f"{spark_text(call)} makes no rows that are known here")
        outer_row = bool(node.args.get("outer"))
        made_rows = _named(self._generated(call.name.lower(), list(call.expressions), found.scope), node)
        return self.beside(found, made_rows, outer_row=outer_row or call.name.lower().endswith("_outer"))

    def beside(self, found: From, rows: From, *, outer_row: bool) -> From:
        """Rows of a function for each row of ``found``; ``outer_row`` keeps a row for which it makes none."""
        before = found.text or f"(SELECT 1) AS {self.around.idents.relation()}"
        joined = f"LEFT JOIN LATERAL {rows.text} ON TRUE" if outer_row else f"CROSS JOIN LATERAL {rows.text}"
        return From(f"{before} {joined}", found.scope.joined(rows.scope))

    def _generated(self, name: str, nodes: list[exp.Expression], scope: Scope) -> From:
        columns, text = self.rows_of(name, nodes, QueryTranslator(scope, self.around))
        return self._only(f"({text})", Relation((), columns), scope)

    def rows_of(
        self, name: str, nodes: list[exp.Expression], translator: QueryTranslator
    ) -> tuple[tuple[Output, ...], str]:
        """The columns that a function of rows makes, and a query of them.  Raises ``FilterError`` for other values."""
        name = name.removesuffix("_outer")
        ident = self.around.idents.column
        if name == "stack":
            return self._stacked(nodes, translator)
        if len(nodes) != 1:
            raise FilterError(f"{name} takes one argument, not {len(nodes)}")
        value = translator.render(nodes[0])
        instant = translator.is_instant(nodes[0])
        places = [made("pos", ident("pos"), "INTEGER", False)] if name == "posexplode" else []
        if value.family == "map" and name != "inline":
            key, item = parts_of(value.type)
            rows = f"map_entries({value.text})"
            columns = [made("key", ident("key"), key, instant), made("value", ident("value"), item, instant)]
            fields = ["struct_extract(\"e#0\", 'key')", "struct_extract(\"e#0\", 'value')"]
        elif value.family == "array":
            kind = parts_of(value.type)[0]
            rows = value.text
            if name == "inline":
                if Sql("", kind).family != "struct":
                    raise FilterError(f"inline of an array of {Sql('', kind).spark_type}, not of structs")
                columns = [made(n, ident(n), k, instant) for n, k in fields_of(kind)]
                fields = [f'struct_extract("e#0", {single_quoted(n)})' for n, _ in fields_of(kind)]
            else:
                columns, fields = [made("col", ident("col"), kind, instant)], ['"e#0"']
        else:
            raise FilterError(f"{name} of a value of type {value.spark_type}, not of an array or map")
        unnested = f'unnest({rows}) AS "e#0"'
        if places:
            unnested += f', unnest(range(len({rows}))) AS "p#0"'
            fields = ['CAST("p#0" AS INTEGER)', *fields]
        return (*places, *columns), f"SELECT {', '.join(fields)} FROM (SELECT {unnested})"

    def _stacked(self, nodes: list[exp.Expression], translator: QueryTranslator) -> tuple[tuple[Output, ...], str]:
        count = translator.constant(nodes[0]) if nodes else None
        if count is None or not isinstance(count.value, int) or count.value < 1 or len(nodes) < 2:
            raise FilterError("stack takes a number of rows, and then values")
        width = -(-(len(nodes) - 1) // count.value)
        values = [translator.render(n) for n in nodes[1:]]
        values += [Sql("NULL", '"NULL"')] * (width * count.value - len(values))
        rows = [values[i : i + width] for i in range(0, len(values), width)]
        kinds = [common_type(cells, "the values of a column") for cells in zip(*rows, strict=True)]
        instant = any(map(translator.is_instant, nodes[1:]))
        columns = tuple(
            made(f"col{i}", self.around.idents.column(f"col{i}"), kind, instant) for i, kind in enumerate(kinds)
        )
        texts = [
            f"SELECT {', '.join(translator.coerced(v, k).text for v, k in zip(row, kinds, strict=True))}"
            for row in rows
        ]
        return columns, " UNION ALL ".join(texts)


def joined_conditions(translator: QueryTranslator, node: exp.Expression) -> str:
    """A condition of WHERE, ON or HAVING: DuckDB may ask its parts in any order, as Spark may."""
    parts = [node]
    done: list[str] = []
    while parts:
        part = parts.pop(0)
        while isinstance(part, exp.Paren):
            part = part.this
        if isinstance(part, exp.And):
            parts[:0] = [part.this, part.expression]
        else:
            done.append(translator.boolean(part).text)
    return " AND ".join(done)


def made(name: str, ident: str, kind: str, instant: bool) -> Output:
    """A column that a query makes."""
    if Sql("", kind).family == "void":
        return Output(name, Sql("NULL", '"NULL"'), ident)
    return Output(name, Sql(ident, kind), ident, instant and has_times(kind))


def renamed(column: Output, ident: str, name: str | None = None) -> Output:
    """A column under another name of DuckDB's, and perhaps of the user's."""
    sql = replace(column.sql, text=column.sql.text.replace(column.ident, ident))
    return replace(column, name=column.name if name is None else name, sql=sql, ident=ident)


def _named(found: From, node: exp.Expression) -> From:
    """A relation under the name, and the names of columns, that its alias gives."""
    alias = node.args.get("alias")
    if alias is None or not found.scope.relations:
        return found
    [relation] = found.scope.relations[:1]
    name = (alias.name,) if alias.this is not None else relation.name
    given = [c.name for c in alias.columns]
    if given and len(given) != len(relation.columns):
        raise InvalidArgumentError(
            f"{alias.name or 'a relation'} has {len(relation.columns)} columns, and {len(given)} names are given",
            condition="ASSIGNMENT_ARITY_MISMATCH",
        )
    columns = tuple(
        replace(c, name=new)
        for c, new in zip(relation.columns, given or [c.name for c in relation.columns], strict=True)
    )
    return From(found.text, replace(found.scope, relations=(Relation(name, columns),)))


def _foreign_type(field: pa.Field) -> str:
    """DuckDB's type of a column that has none in Spark.  Raises ``InvalidArgumentError`` where it has none either."""
    try:
        return engine.result_types("SELECT * FROM t", t=pa.schema([("c", field.type)]).empty_table())[0]
    except (engine.QueryError, pa.ArrowNotImplementedError) as error:
        raise InvalidArgumentError(
            f"column {quote_name(field.name)} is of type {field.type}, which queries cannot read", help="cast it before"
        ) from error


def _with_microseconds(t: pa.DataType) -> pa.DataType:
    """A type as DuckDB gives it back, of which each time is an instant or not as it was."""
    if pa.types.is_struct(t):
        return pa.struct([(f.name, _with_microseconds(f.type)) for f in t])
    if pa.types.is_map(t):
        return pa.map_(_with_microseconds(t.key_type), _with_microseconds(t.item_type))
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return pa.list_(_with_microseconds(t.value_type))
    return normal_type(t)


def _is_plain(t: pa.DataType) -> bool:
    """Whether DuckDB has a column of the type that expressions compute with."""
    if pa.types.is_nested(t):
        return all(_is_plain(t.field(i).type) for i in range(t.num_fields)) and not pa.types.is_fixed_size_list(t)
    if isinstance(t, pa.BaseExtensionType):
        return False
    if pa.types.is_timestamp(t):
        return t.tz is None and t.unit == "us"
    texts = pa.types.is_string(t) or pa.types.is_string_view(t) or pa.types.is_binary(t) or pa.types.is_binary_view(t)
    return bool(texts or normal_type(t) == t)
