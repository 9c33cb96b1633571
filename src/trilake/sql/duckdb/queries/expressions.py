"""The expressions of one SELECT: those of filters, and what only queries have: aggregates, windows, queries."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast as typing_cast

import pyarrow as pa
from sqlglot import exp

from trilake.common.text import single_quoted
from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.sql.arithmetic import arithmetic
from trilake.expr.sql.calls import Call
from trilake.expr.sql.dialect import spark_text
from trilake.expr.sql.functions import FUNCTIONS, NON_DETERMINISTIC
from trilake.expr.sql.texts import concat
from trilake.expr.sql.translate import MAX_SQL, SQL_OF_A_PART, Translator, is_name, plain, too_long
from trilake.expr.terms import casts, engine
from trilake.expr.terms import duckdb_sql as duck
from trilake.expr.terms.char_padding import stored_between
from trilake.expr.terms.duckdb_sql import Sql, common_type, decimal_parameters
from trilake.expr.terms.literals import Literal
from trilake.expr.terms.nested_order import order_key, sides
from trilake.sql.duckdb.queries.aggregates import AGGREGATES, Aggregate
from trilake.sql.duckdb.queries.around import Around, Query
from trilake.sql.duckdb.queries.computed import type_of, value_of
from trilake.sql.duckdb.queries.decimals import decimal_arithmetic, decimal_of, scaled, spark_decimal
from trilake.sql.duckdb.queries.functions import INSTANTS, LOCAL_TIMES, MORE_FUNCTIONS, OF_UNITS, spark_type
from trilake.sql.duckdb.queries.instants import compared, has_times, kinds_of_times
from trilake.sql.duckdb.queries.lambdas import LAMBDAS
from trilake.sql.duckdb.queries.scope import Output, Scope, field_of, unresolved
from trilake.sql.duckdb.queries.windows import RANKINGS, checked, frame, ranking, without_errors

#: Functions that make rows of a value; they stand in FROM, or alone in a SELECT.
GENERATORS = frozenset(
    ("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack")
)
#: Functions whose calls are no constants, though they name no column.
_NEVER_CONSTANT = frozenset((*AGGREGATES, *RANKINGS, *NON_DETERMINISTIC))


class QueryTranslator(Translator):
    """Translates the expressions of one SELECT."""

    def __init__(self, scope: Scope, around: Around) -> None:
        super().__init__(pa.schema([]), case_sensitive=False, now=around.now)
        self.scope = scope
        self.around = around
        #: Expressions of the SELECT list by their lower-case names, which later ones may use.
        self.aliases: dict[str, tuple[Sql, bool]] = {}
        #: Whether they hide columns of the same name, as they do behind the SELECT list.
        self.aliases_first = False
        #: Windows by their lower-case names.
        self.windows: dict[str, exp.Window] = {}
        self._lambdas: list[dict[str, Sql]] = []
        #: The columns of queries in expressions, by the node's number.
        self._columns: dict[int, tuple[Output, ...]] = {}

    # --- names -------------------------------------------------------------------------------------------------------

    def output(self, node: exp.Expression) -> Output | None:
        """The column that ``node`` is, if it is one of the relations here and nothing more."""
        node = plain(node)
        if not is_name(node):
            return None
        found = self.scope.find(_parts(node))
        return None if found is None or found[1] else found[0]

    def column(self, node: exp.Expression) -> None:
        """No column can be pruned by: a query is no filter of one table."""

    def asked_time(self) -> dt.datetime:
        """The time of the statement, on which the whole of it depends then."""
        self.around.timed = True
        return super().asked_time()

    def _name(self, node: exp.Expression) -> Sql:
        return self.named(_parts(node))

    def named(self, parts: tuple[str, ...]) -> Sql:
        """What a name stands for: a lambda's parameter, a column here, an alias, a column of a query around."""
        for known in reversed(self._lambdas):
            if parts[0].lower() in known:
                return _fields(known[parts[0].lower()], parts[1:])
        alias = self._alias(parts)
        if alias is not None:
            return _fields(alias[0], parts[1:])
        found = self.scope.lookup(parts)
        if found is None:
            raise unresolved(parts, self.scope)
        column, rest = found
        for read in column.columns():
            if read.sql.family != "void":
                self._read[(read.ident,)] = Sql(read.ident, read.declared or read.sql.type)
        return _fields(column.sql, rest)

    def _alias(self, parts: tuple[str, ...]) -> tuple[Sql, bool] | None:
        """The expression of the SELECT list that a name stands for, and whether its times are instants."""
        hidden = not self.aliases_first and self.scope.find(parts) is not None
        return None if hidden else self.aliases.get(parts[0].lower())

    @contextmanager
    def parameters(self, names: Sequence[str], types: Sequence[str]) -> Iterator[list[str]]:
        """Lambda parameters of these types, for the time of the block; their names in DuckDB."""
        idents = [self.around.idents.column(name) for name in names]
        values = [Sql(ident, kind) for ident, kind in zip(idents, types, strict=True)]
        self._lambdas.append({name.lower(): value for name, value in zip(names, values, strict=True)})
        for value in values:
            self._read[(value.text,)] = value
        try:
            yield idents
        finally:
            self._lambdas.pop()

    def bound_type(self, text: str) -> str:
        """DuckDB's type of an expression over the columns that were rendered.  Raises ``FilterError``."""
        for inner, kind in self.around.subqueries.items():
            text = text.replace(inner, f"CAST(NULL AS {kind})")
        columns = (f"CAST(NULL AS {c.type}) AS {c.text}" for c in self._read.values() if c.text in text)
        return type_of(text, ", ".join(sorted(columns)))

    def is_instant(self, node: exp.Expression) -> bool:
        """Whether the times that an expression gives are instants."""
        found = self._kinds_of_times(node)
        return True in found or not found

    def _kinds_of_times(self, node: exp.Expression) -> set[bool]:
        """Of the times that an expression is made of, whether they are instants."""
        node = plain(node)
        if isinstance(node, exp.Cast):
            return {node.to.this.value != "TIMESTAMPNTZ"} if node.to.this.value.startswith("TIMESTAMP") else set()
        if isinstance(node, exp.Case | exp.If):
            parts = [node] if isinstance(node, exp.If) else node.args["ifs"]
            parts = [b.args["true"] for b in parts] + [node.args.get("default") or node.args.get("false")]
        elif isinstance(node, exp.Subquery | exp.Query):
            columns = self._columns.get(id(node)) or self._query(node).columns
            return {c.instant for c in columns if has_times(c.sql.type)}
        elif isinstance(node, exp.Identifier) or is_name(node):
            return self._kinds_of_name((node.name,) if isinstance(node, exp.Identifier) else _parts(node))
        elif isinstance(node, exp.Anonymous) and node.name.lower() in INSTANTS | LOCAL_TIMES:
            return {node.name.lower() in INSTANTS}
        else:
            parts = list(node.iter_expressions())
        return {kind for part in parts if isinstance(part, exp.Expression) for kind in self._kinds_of_times(part)}

    def _kinds_of_name(self, parts: tuple[str, ...]) -> set[bool]:
        alias = self._alias(parts)
        if alias is not None:
            return {alias[1]} if has_times(alias[0].type) else set()
        column, rest = self.scope.lookup(parts) or (None, ())
        if column is None or not has_times(column.sql.type):
            return set()
        return kinds_of_times(column.kept, rest) if rest and column.kept is not None else {column.instant}

    # --- expressions -------------------------------------------------------------------------------------------------

    def render(self, node: exp.Expression) -> Sql:
        """The translation of any expression.  Raises ``FilterError`` for what is not known."""
        node = plain(node)
        sql = self._render(node)
        if len(sql.text) > MAX_SQL:  # of queries in it the columns of wide tables are the greatest part
            own = len(sql.text) - sum(len(text) * sql.text.count(text) for text in self.around.texts)
            if own > MAX_SQL + SQL_OF_A_PART * sum(1 for _ in node.walk()):
                raise too_long(node, sql)
        return sql

    def _render(self, node: exp.Expression) -> Sql:
        match node:
            case exp.Identifier():
                return self.named((node.name,))
            case exp.Subquery() | exp.Query():
                return self._scalar_query(node)
            case exp.Exists():
                return Sql(f"EXISTS ({self._query(node.this).text})", "BOOLEAN")
            case exp.In() if node.args.get("query") is not None:
                return self._in_query(node)
            case exp.Tuple():
                return self._call("struct", node.expressions)
            case exp.Window():
                return self._window(node)
            case exp.Filter() | exp.IgnoreNulls() | exp.RespectNulls() | exp.WithinGroup():
                return self._aggregate(node, over="")
            case exp.Transform():
                return self._call("transform", [node.this, node.expression])
            case exp.Neg():
                inner = self._number(node.this)
                if inner.family == "decimal":
                    return replace(inner, text=f"(-{inner.text})")
            case exp.Extract() if node.this.name.lower() in ("second", "s", "sec", "seconds", "secs"):
                return _seconds(self._make_call("extract", [node.expression]).timestamp(0))
            case exp.Like() | exp.ILike() if isinstance(node.expression, exp.Any | exp.All):
                return self._like_several(node)
            case exp.BitwiseLeftShift() | exp.BitwiseRightShift():
                name = "shiftleft" if isinstance(node, exp.BitwiseLeftShift) else "shiftright"
                return self._call(name, [node.this, node.expression])
            case exp.Dot() if isinstance(node.expression, exp.Identifier) and not is_name(node):
                return field_of(self.render(node.this), node.expression.name)
            case exp.Bracket() if len(node.expressions) == 1:
                key = node.expressions[0]
                if self.render(node.this).family == "struct" and isinstance(key, exp.Literal) and key.is_string:
                    return field_of(self.render(node.this), key.name)
            case exp.Star():
                raise InvalidArgumentError(
                    "a star stands alone in a SELECT, or in count", condition="INVALID_USAGE_OF_STAR_OR_REGEX"
                )
        return super()._render(node)

    def constant(self, node: exp.Expression) -> Literal | None:
        """The value of an expression that reads no column; ``None`` for any other."""
        inside = typing_cast(Iterator[exp.Expression], node.walk())
        if any(isinstance(n, exp.Anonymous) and n.name.lower() in _NEVER_CONSTANT for n in inside):
            return None
        return super().constant(node)

    def coerced(self, value: Sql, target: str) -> Sql:
        """``value`` cast to a type; a constant text is cast at once, so that the condition can be looked up."""
        if value.type == target or value.family == "void":
            return value
        done = casts.cast(value, target)
        if value.family != "string" or '"' in done.text or "error(" not in done.text:
            return done
        try:
            return duck.literal(Literal.of(_as_literal(value_of(done.text), target)))
        except engine.QueryError as error:
            raise FilterError(f"{value.text} cannot be cast: {error.message}", help="correct the constant") from error

    def comparison(self, operator: str, left: Sql, right: Sql) -> Sql:
        """``left operator right`` after Spark's coercion of the two."""
        padded = operator == "=" and left.char is not None
        stored = stored_between(left, right, self.text_of(right)) if padded else ""
        left, right = self.comparable([left, right], "the two sides of a comparison")
        x, y = compared(*sides(operator, left, right))
        return Sql(f"({x} {'<>' if operator == '!=' else operator} {y}{stored})", "BOOLEAN")

    def text_of(self, value: Sql) -> str | None:
        """The text that a constant is; ``None`` for anything else."""
        known = super().text_of(value)
        if known is not None or value.family != "string" or '"' in value.text or "SELECT" in value.text.upper():
            return known
        computed = value_of(value.text).as_py()
        return None if computed is None else str(computed)

    def _like_several(self, node: exp.Expression) -> Sql:
        """``LIKE ANY (...)`` and ``LIKE ALL (...)``."""
        inner = plain(node.expression.this)
        patterns = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
        parts = [self.boolean(type(node)(this=node.this.copy(), expression=p.copy())).text for p in patterns]
        word = " OR " if isinstance(node.expression, exp.Any) else " AND "
        return Sql(f"({word.join(parts)})", "BOOLEAN")

    def _arithmetic(self, node: exp.Expression) -> Sql:
        left, right = plain(node.this), plain(node.expression)
        if isinstance(left, exp.Interval) or isinstance(right, exp.Interval):
            return super()._arithmetic(node)
        return self.operation(type(node), self.render(left), self.render(right))

    def operation(self, operator: type[exp.Expression], left: Sql, right: Sql, *, safe: bool = False) -> Sql:
        """``left operator right`` of numbers, or of a date and a number of days."""
        left, right = _number_of_text(left, right), _number_of_text(right, left)
        families = {left.family, right.family}
        if "decimal" in families and families <= {"decimal", "integer", "void"}:
            if "void" in families:
                return Sql("NULL", '"NULL"')
            return decimal_arithmetic(operator, left, right, wide=self.around.wide, safe=safe)
        return arithmetic(self.typed, operator, left, right, safe=safe)

    def _make_call(self, name: str, nodes: Sequence[exp.Expression], *, skip: int = 0) -> Call:
        made = super()._make_call(name, nodes, skip=skip)
        return replace(made, args=tuple(a if i < skip else spark_decimal(a) for i, a in enumerate(made.args)))

    def decimal_of(self, branches: Sequence[Sql]) -> tuple[int, int] | None:
        """Spark's precision and scale of decimals and integers together; ``None`` for values of other types."""
        return decimal_of(branches)

    # --- functions ---------------------------------------------------------------------------------------------------

    def _call(self, name: str, nodes: Sequence[exp.Expression]) -> Sql:
        key = name.lower()
        if key in GENERATORS:
            raise InvalidArgumentError(
                f"{name} makes rows: it stands alone in a SELECT list, or in LATERAL VIEW",
                condition="UNSUPPORTED_GENERATOR.NESTED_IN_EXPRESSIONS",
            )
        if key in AGGREGATES:
            return self._aggregate(exp.Anonymous(this=name, expressions=list(nodes)), over="")
        if key in RANKINGS:
            raise InvalidArgumentError(f"{name} needs a window: {name}(...) OVER (...)")
        if key in LAMBDAS:
            return LAMBDAS[key](self, list(nodes))
        if key in OF_UNITS and len(nodes) == 3:
            return OF_UNITS[key](self._make_call(name, nodes, skip=1))
        if key in MORE_FUNCTIONS:
            least, most, handler = MORE_FUNCTIONS[key]
            if least <= len(nodes) <= most:
                return handler(replace(self._make_call(name, [_unnamed(n) for n in nodes]), nodes=tuple(nodes)))
            if key not in FUNCTIONS:
                raise FilterError(f"{name} takes {_counts(least, most)} arguments, not {len(nodes)}")
        if key == "typeof" and len(nodes) == 1:
            return self._typeof(nodes[0])
        if key in _SAFE and len(nodes) == 2:
            return self.operation(_SAFE[key], *(self.render(n) for n in nodes), safe=True)
        if key in ("mod", "div") and len(nodes) == 2:
            return self.operation(exp.Mod if key == "mod" else exp.IntDiv, *(self.render(n) for n in nodes))
        if key == "concat" and nodes:
            parts = [self.render(n) for n in nodes]
            if all(p.family in ("array", "void") for p in parts):
                kind = common_type(parts, "the arguments of concat")
                return Sql(f"({' || '.join(p.text for p in parts)})", kind)
            return concat(parts)
        if key not in FUNCTIONS:
            known = (*FUNCTIONS, *MORE_FUNCTIONS, *LAMBDAS, *AGGREGATES, *RANKINGS, *GENERATORS, "typeof")
            close = difflib.get_close_matches(key, known, n=3)
            raise FilterError(
                f"the function {name} is not known without Spark",
                help=f"did you mean {' or '.join(close)}" if close else None,
                condition="UNRESOLVED_ROUTINE",
            )
        found = super()._call(name, nodes)
        if key in _ROUNDED and found.family == "decimal":
            precision, scale = self.render(nodes[0]).as_decimal
            kept = min(decimal_parameters(found.type)[1], scale) if key == "round" else 0
            carried = 1 if key == "round" or scale else 0
            return replace(found, decimal=(min(precision - scale + kept + carried, 38), kept))
        return found

    def _typeof(self, node: exp.Expression) -> Sql:
        """The name of an expression's type.  Raises ``FilterError`` for one with times of both kinds in it."""
        kinds = self._kinds_of_times(node)
        if len(kinds) > 1:
            raise FilterError("typeof of a value with TIMESTAMP and TIMESTAMP_NTZ in it", help="ask its fields")
        kind = spark_decimal(self.render(node)).type
        return Sql(single_quoted(spark_type(kind, instants=False not in kinds)), "VARCHAR")

    def _aggregate(self, node: exp.Expression, over: str) -> Sql:
        where, order, ignore = None, None, False
        while not isinstance(node, exp.Anonymous):
            match node:
                case exp.Filter():
                    where = self.boolean(node.expression.this).text
                case exp.IgnoreNulls():
                    ignore = True
                case exp.WithinGroup():
                    order = node.expression
                case exp.RespectNulls():
                    pass
                case _:
                    raise FilterError(f"{spark_text(node)} is no function over several rows")
            node = node.this
        name, nodes = node.name.lower(), list(node.expressions)
        if over and name in RANKINGS:
            return ranking(name, self._make_call(name, nodes), over, ignore)
        if name not in AGGREGATES:
            raise FilterError(f"{node.name} is no function over several rows that is known here")
        distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
        if distinct:
            nodes = nodes[0].expressions
        star = len(nodes) == 1 and isinstance(nodes[0], exp.Star)
        args = tuple(self.render(n) for n in ([] if star else nodes))
        ordered = [(self.render(o.this), bool(o.args.get("desc"))) for o in order.expressions] if order else []
        return AGGREGATES[name](
            Aggregate(
                name, args, tuple(nodes), self, distinct, ignore, where, tuple(ordered), over, star, self.around.wide
            )
        )

    def _window(self, node: exp.Window) -> Sql:
        named = node.args.get("alias")
        base = self.windows.get(named.name.lower()) if named is not None else None
        if named is not None and base is None:
            raise InvalidArgumentError(f"there is no window {named.name!r}", condition="MISSING_WINDOW_SPECIFICATION")
        if base is not None and any(node.args.get(k) for k in ("partition_by", "order", "spec")):
            raise FilterError("a window that adds to another one cannot be used here", help="write it out")
        window = base or node
        parts = [self.render(p).text for p in window.args.get("partition_by") or []]
        order = window.args["order"].expressions if window.args.get("order") else []
        keys = [order_key(self.render(o.this)) for o in order]
        ordered = [ordered_key(without_errors(k), o) for k, o in zip(keys, order, strict=True)]
        texts = [
            f"PARTITION BY {', '.join(map(without_errors, parts))}" if parts else "",
            f"ORDER BY {', '.join(ordered)}" if ordered else "",
            frame(window.args.get("spec")),
        ]
        found = self._aggregate(node.this, f" OVER ({' '.join(filter(None, texts))})")
        return checked(found, [k for k in (*parts, *keys) if without_errors(k) != k])

    # --- queries -----------------------------------------------------------------------------------------------------

    def _query(self, node: exp.Expression) -> Query:
        query = self.around.query(node, self.scope.inner())
        self.around.texts.append(query.text)
        return query

    def _scalar_query(self, node: exp.Expression) -> Sql:
        query = self._query(node)
        if len(query.columns) != 1:
            raise InvalidArgumentError(
                f"a query in an expression has {len(query.columns)} columns, not one",
                condition="INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY_RETURN_MORE_THAN_ONE_OUTPUT_COLUMN",
            )
        [column] = self._columns[id(node)] = query.columns
        text = query.text
        if column.sql.text != column.ident:
            text = f"SELECT {column.sql.text} FROM ({text})"
        self.around.subqueries[f"({text})"] = column.sql.type
        return Sql(f"({text})", column.sql.type, decimal=column.sql.decimal)

    def _in_query(self, node: exp.In) -> Sql:
        query = self._query(node.args["query"])
        tested = plain(node.this)
        nodes = tested.expressions if isinstance(tested, exp.Tuple) else [tested]
        if len(nodes) != len(query.columns):
            raise InvalidArgumentError(
                f"IN compares {len(nodes)} values with {len(query.columns)} columns of a query",
                condition="DATATYPE_MISMATCH.IN_SUBQUERY_LENGTH_MISMATCH",
            )
        values = [self.render(n) for n in nodes]
        targets = [common_type([v, c.sql], "the two sides of IN") for v, c in zip(values, query.columns, strict=True)]
        left = [self.coerced(v, t).text for v, t in zip(values, targets, strict=True)]
        right = [self.coerced(c.sql, t).text for c, t in zip(query.columns, targets, strict=True)]
        if len(nodes) == 1:
            inner = query.text
            if right[0] != query.columns[0].ident:
                inner = f"SELECT {right[0]} FROM ({query.text})"
            return Sql(f"({left[0]} IN ({inner}))", "BOOLEAN")
        above = node.parent
        while isinstance(above, exp.And | exp.Or | exp.Paren):
            above = above.parent
        if not isinstance(above, exp.Where | exp.Join | exp.Having):
            raise FilterError("IN of several columns is known only as a condition of WHERE", help="use EXISTS")
        equal = " AND ".join(f"{x} = {y}" for x, y in zip(left, right, strict=True))
        return Sql(f"EXISTS (SELECT 1 FROM ({query.text}) WHERE {equal})", "BOOLEAN")


#: Functions that keep some digits of a decimal behind the point, and may carry into one more in front of it.
_ROUNDED = frozenset(("round", "ceil", "ceiling", "floor"))
#: Functions that compute as an operator does, and give null where it fails.
_SAFE: Mapping[str, type[exp.Expression]] = {
    "try_add": exp.Add,
    "try_subtract": exp.Sub,
    "try_multiply": exp.Mul,
    "try_divide": exp.Div,
    "try_mod": exp.Mod,
}


def _number_of_text(value: Sql, other: Sql) -> Sql:
    """A text in arithmetic: a whole number beside one, and a double beside any other value."""
    if value.family != "string" or not (other.is_number or other.family == "string"):
        return value
    return casts.cast(value, "BIGINT" if other.family == "integer" else "DOUBLE")


def _seconds(time: str) -> Sql:
    micros = f"(((epoch_us({time}) % 60000000) + 60000000) % 60000000)"
    return Sql(scaled(micros, (8, 6)), "DECIMAL(8,6)")


def ordered_key(text: str, ordered: exp.Expression) -> str:
    """A key of ``ORDER BY`` with its direction."""
    direction = "DESC" if ordered.args.get("desc") else "ASC"
    return f"{text} {direction} NULLS {'FIRST' if ordered.args.get('nulls_first') else 'LAST'}"


def _counts(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _parts(node: exp.Expression) -> tuple[str, ...]:
    return tuple(p.name for p in node.parts)  # type: ignore[attr-defined]


def _fields(value: Sql, names: Sequence[str]) -> Sql:
    for name in names:
        value = field_of(value, name)
    return value


def _unnamed(node: exp.Expression) -> exp.Expression:
    return typing_cast(exp.Expression, node.this) if isinstance(node, exp.Alias) else node


def _as_literal(value: pa.Scalar, target: str) -> object:
    if target == "TIMESTAMP" and value.is_valid:
        return value.as_py().replace(tzinfo=dt.UTC)
    return value.as_py()
