"""Translate Spark SQL expressions to equivalent DuckDB expressions.

Unknown functions and operators are errors.  DuckDB determines types that do not follow from the operator, so that
Spark's coercions become casts.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby
from typing import TypeGuard
from typing import cast as typing_cast

import pyarrow as pa
from sqlglot import exp

from trilake.common.text import plural, single_quoted
from trilake.errors import FilterError
from trilake.expr.sql.arithmetic import OPERATORS, arithmetic, example, shift
from trilake.expr.sql.calls import Call
from trilake.expr.sql.constants import literal_of, simple_constant
from trilake.expr.sql.datetimes import extract
from trilake.expr.sql.dialect import rejection, to_spark_sql
from trilake.expr.sql.functions import AGGREGATES, FUNCTIONS, NON_DETERMINISTIC, Function
from trilake.expr.sql.strings import concat, like, lower
from trilake.expr.terms import bind, casts, engine
from trilake.expr.terms import datatypes as types
from trilake.expr.terms import duckdb_sql as duck
from trilake.expr.terms.bind import Column, filled_up, padded_sides
from trilake.expr.terms.datatypes import Path
from trilake.expr.terms.duckdb_sql import Sql, common_type, sides, type_name
from trilake.expr.terms.literals import Kind, Literal
from trilake.expr.terms.predicate import duckdb_name

COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_BITS: dict[type[exp.Expression], str] = {
    exp.BitwiseAnd: "({} & {})",
    exp.BitwiseOr: "({} | {})",
    exp.BitwiseXor: "xor({}, {})",
}
_INTEGER_LIMITS = {"TINYINT": 1 << 7, "SMALLINT": 1 << 15, "INT": 1 << 31, "BIGINT": 1 << 63}
#: Most characters of an expression, and how many more per part: some operators repeat their operands, so a few levels
#: could become gigabytes.
_FREE_CHARACTERS, _CHARACTERS_PER_PART = 40_000, 500
_STRING = re.compile(r"'(?:[^']|'')*'")
#: The end of the help for a function that only Spark has.
MORE_IN_SPARK = "; Spark DataFrame filters support more"


def plain(node: exp.Expression) -> exp.Expression:
    """``node`` without enclosing parentheses."""
    return typing_cast(exp.Expression, node.unnest())


def operands(node: exp.Expression) -> list[exp.Expression]:
    """The operands of a chain of one associative operator."""
    return [typing_cast(exp.Expression, part) for part in node.flatten()]


class Translator:
    """Translates the expressions of one filter over one schema.

    ``now`` is the value of ``current_timestamp()``, and ``timed`` is set if it was used.  ``instants`` is set if an
    instant was created or read, and can be reset.  ``functions`` may be called.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        case_sensitive: bool,
        now: dt.datetime,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        self.functions = FUNCTIONS if functions is None else functions
        self.schema = schema
        self.case_sensitive = case_sensitive
        self.now, self.timed = now, False
        self.instants = False
        self._read: dict[Path, Sql] = {}
        self._types: dict[str, str] = {}

    def column(self, node: exp.Expression) -> Column | None:
        """The column of a name node; ``None`` for others.  Raises :class:`FilterError` for unknown names."""
        node = plain(node)
        if not is_name(node):
            return None
        column, rest = self._resolve(node)
        return None if rest else column

    def _resolve(self, node: exp.Column | exp.Dot) -> tuple[Column, tuple[str, ...]]:
        parts = node.parts
        meta = parts[0].meta
        return bind.resolve(
            tuple(p.name for p in parts),
            self.schema,
            case_sensitive=self.case_sensitive,
            line=meta.get("line"),
            position=meta.get("col"),
        )

    def _statement_time(self) -> dt.datetime:
        """The statement's time; marks the filter as time-dependent."""
        self.timed = True
        return self.now

    def constant(self, node: exp.Expression) -> Literal | None:
        """The value of an expression that reads no column; ``None`` for others."""
        node = plain(node)
        simple = simple_constant(node, self._statement_time)
        if simple is not None or is_name(node):
            self.instants |= simple is not None and simple.kind is Kind.TIMESTAMP
            return simple
        reads = next(node.find_all(exp.Column, exp.Subquery, exp.Select, exp.Lambda, exp.Star), None)
        if reads is not None or isinstance(node, exp.Interval):
            return None
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.name.isdigit():
            limit = _INTEGER_LIMITS.get(node.to.this.value, 0)
            if int(node.this.name[:20]) < limit:
                return Literal(int(node.this.name), Kind.INTEGER)  # 5L, 5S, 5Y
        sql = self.render(node)
        if sql.family in ("interval", "array", "map", "struct", "other"):
            return None
        try:
            return literal_of(engine.query(f"SELECT {sql.code} AS v")["v"][0])
        except engine.QueryError as error:
            raise FilterError(
                f"{to_spark_sql(node)} cannot be computed: {error.message}", help="fix the constant"
            ) from error

    def condition(self, node: exp.Expression) -> tuple[str, tuple[Path, ...]]:
        """Translate a boolean expression and check its types; return the SQL and the columns that it reads."""
        self._read = {}
        sql = self.boolean(node)
        self.bound_type(sql.code)
        return sql.code, tuple(self._read)

    def scalar(self, node: exp.Expression) -> tuple[Sql, tuple[Path, ...]]:
        """Translate an expression of any type; return the SQL and the columns that it reads."""
        self._read = {}
        return self.render(node), tuple(self._read)

    def typed(self, sql: str) -> Sql:
        return Sql(sql, self.bound_type(sql))

    def bound_type(self, sql: str) -> str:
        """DuckDB's type of an expression over the columns read so far.

        Raises :class:`FilterError` if DuckDB rejects it.
        """
        if sql not in self._types:
            columns = ", ".join(f"CAST(NULL AS {c.type}) AS {c.code}" for c in self._read.values())
            source = f" FROM (SELECT {columns})" if columns else ""
            try:
                result_types = engine.result_types(f"SELECT {sql}{source}")
            except engine.QueryError as error:
                raise FilterError(f"the filter is not valid: {error.message}") from error
            self._types[sql] = result_types[0]
        return self._types[sql]

    def boolean(self, node: exp.Expression) -> Sql:
        """Translate a condition.  Raises :class:`FilterError` for any type except boolean."""
        sql = self.render(node)
        if sql.family not in ("boolean", "void"):
            raise FilterError(
                f"a filter must be boolean, got {to_spark_sql(node)} of type {sql.spark_type}", help="add a comparison"
            )
        return sql

    def render(self, node: exp.Expression) -> Sql:
        """Translate any expression.  Raises :class:`FilterError` for unsupported ones."""
        node = plain(node)
        sql = self._render(node)
        self.instants |= sql.family == "timestamp"
        excess = len(sql.code) - _FREE_CHARACTERS
        if excess > 0 and excess > _CHARACTERS_PER_PART * sum(1 for _ in node.walk()):
            raise FilterError(
                f"{to_spark_sql(node)} is too long after translation: {len(sql.code):,} characters",
                help="nested calls and conditions may double the length per level: compute parts as columns first",
            )
        return sql

    def _render(self, node: exp.Expression) -> Sql:
        simple = simple_constant(node, self._statement_time)
        if simple is not None:
            return duck.literal(simple)
        if is_name(node):
            return self._name(node)
        kind = type(node)
        if kind in COMPARISONS:
            return self.comparison(COMPARISONS[kind], self.render(node.this), self.render(node.expression))
        if kind in OPERATORS:
            return self._arithmetic(node)
        if kind in _BITS:
            left, right = self.render(node.this), self.render(node.expression)
            if {left.family, right.family} - {"integer", "void"}:
                raise FilterError(f"{to_spark_sql(node)} needs integers")
            bound = self.typed(_BITS[kind].format(example(left).code, example(right).code))
            return Sql(_BITS[kind].format(left.code, right.code), bound.type)
        match node:
            case exp.And() | exp.Or():
                # The right side is only evaluated if the left does not decide, as in Spark.
                conditions = [(part, self.boolean(part).code) for part in operands(node)]
                return Sql(connected("AND" if isinstance(node, exp.And) else "OR", conditions), "BOOLEAN")
            case exp.Not():
                return Sql(f"(NOT {self.boolean(node.this).code})", "BOOLEAN")
            case exp.Neg():
                inner = self.render(node.this)
                if not inner.is_number and inner.family != "void":
                    raise FilterError(
                        f"{to_spark_sql(node.this)} must be a number, got {inner.spark_type}", help="cast it"
                    )
                return Sql(f"(-{inner.code})", self.typed(f"(-{example(inner).code})").type)
            case exp.BitwiseNot():
                inner = self.render(node.this)
                return Sql(f"(~{inner.code})", self.typed(f"(~{example(inner).code})").type)
            case exp.Is():
                return self._is(node)
            case exp.In() if node.expressions:
                return self._in(node)
            case exp.Between() if not node.args.get("symmetric"):
                value = self.render(node.this).as_string
                low = self.comparison(">=", value, self.render(node.args["low"]))
                high = self.comparison("<=", value, self.render(node.args["high"]))
                return Sql(f"({low.code} AND {high.code})", "BOOLEAN")
            case exp.Like() | exp.ILike() | exp.Escape():
                return self._like(node)
            case exp.RegexpLike() if not node.args.get("flag"):
                return self._call("rlike", [node.this, node.expression])
            case exp.Case() | exp.If():
                return self._case(node)
            case exp.Cast():
                safe = isinstance(node, exp.TryCast)
                return casts.cast(self.render(node.this).as_string, casts.target_type(node.to), safe=safe)
            case exp.DPipe() | exp.Concat():
                parts = node.expressions if isinstance(node, exp.Concat) else operands(node)
                return concat([self.render(part) for part in parts])
            case exp.Extract():
                return extract(node.this.name, self._make_call("extract", [node.this, node.expression], skip=1), 1)
            case exp.Substring():
                parts = [node.this, node.args.get("start"), node.args.get("length")]
                return self._call("substring", [p for p in parts if p is not None])
            case exp.StrPosition():
                return self._call("locate", [node.args["substr"], node.this])
            case exp.Trim():
                return self._trim(node)
            case exp.Bracket() if len(node.expressions) == 1:
                key = node.expressions[0]
                if isinstance(key, exp.Literal) and key.is_string and self.render(node.this).family == "struct":
                    return self._field(node.this, key.name)
                return self.functions["[]"][2](self._make_call("the index", [node.this, key]))
            case exp.Dot() if isinstance(node.expression, exp.Identifier):
                if self.render(node.this).family == "struct":
                    return self._field(node.this, node.expression.name)
            case exp.Anonymous():
                return self._call(node.name, node.expressions)
        raise rejection(node)

    def _field(self, struct: exp.Expression, name: str) -> Sql:
        return self.typed(f"struct_extract({self.render(struct).code}, {single_quoted(name)})")

    def _name(self, node: exp.Column | exp.Dot) -> Sql:
        column, rest = self._resolve(node)
        if column.path not in self._read:
            self._read[column.path] = Sql(duckdb_name(column.path), type_name(column.type))
        sql = self._read[column.path]
        for key in rest:
            if sql.family != "map":
                raise FilterError(
                    f"column {column.sql!r} has no field {key!r}: it is of type {types.spark_name(column.type)}",
                    column=column.sql,
                )
            sql = self.typed(f"{sql.code}[{single_quoted(key)}]")
        return sql if column.char is None else replace(filled_up(sql, column.char), char=column.char)

    def comparison(self, operator: str, left: Sql, right: Sql) -> Sql:
        left, right = self.comparable([left, right], "the two sides of a comparison")
        x, y = sides(operator, left, right)
        return Sql(f"({x} {'<>' if operator == '!=' else operator} {y})", "BOOLEAN")

    def comparable(self, parts: list[Sql], what: str) -> list[Sql]:
        """Cast values to the type in which Spark compares them.  Raises :class:`FilterError` if there is none."""
        parts = self.padded(parts)
        target = Sql("", common_type(parts, what))
        if not target.has_order:
            raise FilterError(f"values of type {target.spark_type} cannot be compared in a filter")
        return [self.coerced(p, target.type) for p in parts]

    def coerced(self, value: Sql, target: str) -> Sql:
        """Coerce ``value`` to a type; an untyped null stays untyped."""
        return value if value.family == "void" else casts.cast(value, target)

    def padded(self, parts: list[Sql]) -> list[Sql]:
        """Pad ``char(n)`` operands of a comparison, or of IN, as Spark does."""
        if all(p.char is None for p in parts):
            return parts
        strings = [p.code[1:-1].replace("''", "'") if _STRING.fullmatch(p.code) else None for p in parts]
        return padded_sides(parts, strings) or parts

    def _is(self, node: exp.Is) -> Sql:
        if isinstance(node.expression, exp.Null):
            return Sql(f"({self.render(node.this).code} IS NULL)", "BOOLEAN")
        if isinstance(node.expression, exp.Boolean):
            value = self.boolean(node.this).code
            return Sql(f"coalesce({value if node.expression.this else f'(NOT {value})'}, FALSE)", "BOOLEAN")
        raise rejection(node)

    def _in(self, node: exp.In) -> Sql:
        parts = [self.render(part) for part in [node.this, *node.expressions]]
        value, *items = [p.code for p in self.comparable(parts, "the operands of IN")]
        return Sql(f"({value} IN ({', '.join(items)}))", "BOOLEAN")

    def _like(self, node: exp.Expression) -> Sql:
        escape = "\\"
        if isinstance(node, exp.Escape):
            character = self.constant(node.expression)
            if character is None or not isinstance(character.value, str) or len(character.value) != 1:
                raise FilterError(f"{to_spark_sql(node)} needs an escape of one character")
            escape, node = character.value, node.this
        pattern = self.constant(node.expression)
        if not isinstance(node, exp.Like | exp.ILike) or pattern is None:
            raise FilterError(f"{to_spark_sql(node)} needs a constant pattern")
        call = self._make_call("LIKE", [node.this, node.expression])
        if pattern.kind is Kind.NULL:
            return Sql("NULL", '"NULL"')
        sql = call.string(0)
        call.family(1, "string", "integer")
        if isinstance(node, exp.ILike):
            # Spark lowers both sides, in different ways.
            return Sql(like(lower(sql), str(pattern.value).lower(), escape), "BOOLEAN")
        return Sql(like(sql, str(pattern.value), escape), "BOOLEAN")

    def _case(self, node: exp.Expression) -> Sql:
        ifs = [node] if isinstance(node, exp.If) else node.args["ifs"]
        default = node.args.get("false") if isinstance(node, exp.If) else node.args.get("default")
        subject = self.render(node.this) if isinstance(node, exp.Case) and node.this is not None else None
        conditions, branches = [], []
        for branch in ifs:
            when = branch.this
            equal = None if subject is None else self.comparison("=", subject, self.render(when))
            conditions.append((equal or self.boolean(when)).code)
            branches.append(self.render(branch.args["true"]))
        if default is not None:
            branches.append(self.render(default))
        target = common_type(branches, "the branches of CASE")
        sources = [self.coerced(b, target).code for b in branches]
        whens = " ".join(f"WHEN {c} THEN {t}" for c, t in zip(conditions, sources, strict=False))
        last = f" ELSE {sources[-1]}" if default is not None else ""
        return Sql(f"(CASE {whens}{last} END)", target)

    def _trim(self, node: exp.Trim) -> Sql:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.text("position").upper(), "trim")
        parts = [node.this, *([node.expression] if node.args.get("expression") else [])]
        call = self._make_call("trim", parts)
        return Sql(f"{name}({', '.join(call.string(i) for i in range(len(parts)))})", "VARCHAR")

    def _arithmetic(self, node: exp.Expression) -> Sql:
        if isinstance(node, exp.Add | exp.Sub):
            left, right = plain(node.this), plain(node.expression)
            if isinstance(left, exp.Interval) and isinstance(node, exp.Add):
                left, right = right, left
            if isinstance(right, exp.Interval):
                return shift(self.render(left), right, negative=isinstance(node, exp.Sub))
        if isinstance(node, exp.Div):
            return self._call("/", [node.this, node.expression])
        return arithmetic(self.typed, type(node), self.render(node.this), self.render(node.expression))

    def _make_call(self, name: str, nodes: Sequence[exp.Expression], *, skip: int = 0) -> Call:
        args = tuple(Sql("", "") if i < skip else self.render(node) for i, node in enumerate(nodes))
        return Call(name, tuple(nodes), args, self)

    def _call(self, name: str, nodes: Sequence[exp.Expression]) -> Sql:
        key = name.lower()
        if key in AGGREGATES:
            raise FilterError(
                f"the aggregate function {name} cannot be used in a filter", help="a filter sees one row at a time"
            )
        if key in NON_DETERMINISTIC:
            raise FilterError(
                f"the function {name} is not deterministic", help="a filter must select the same rows each time"
            )
        if key not in self.functions:
            close = difflib.get_close_matches(key, self.functions, n=1)
            hint = f"did you mean {close[0]}? See" if close else "see"
            raise FilterError(
                f"the function {name} cannot be used in a filter",
                help=f"{hint} the documentation for supported functions{MORE_IN_SPARK}",
            )
        least, most, handler = self.functions[key]
        if not least <= len(nodes) <= most:
            expected = plural(most, "argument") if least == most else f"{least} to {most} arguments"
            raise FilterError(f"{name} takes {expected}, got {len(nodes)}")
        return handler(self._make_call(name, nodes))


def is_name(node: exp.Expression) -> TypeGuard[exp.Column | exp.Dot]:
    """Whether a node is a dotted name."""
    if isinstance(node, exp.Dot):
        return is_name(node.this) and isinstance(node.expression, exp.Identifier)
    return isinstance(node, exp.Column) and all(isinstance(p, exp.Identifier) for p in node.parts)


# --- AND and OR of many conditions in DuckDB's SQL, each evaluated only where earlier ones do not decide --------------

#: Combine a condition with the next one, evaluated only if it does not decide.
_FORMS = {
    "AND": "(CASE WHEN NOT {0} THEN FALSE ELSE ({0} AND {1}) END)",
    "OR": "(CASE WHEN {0} THEN TRUE ELSE ({0} OR {1}) END)",
}
#: How many conditions are combined per level: each is repeated once per level, and DuckDB limits the depth and plans in
#: quadratic time by depth.
_CHAIN = 32
#: Expressions that cannot fail, apart from casts.
_CANNOT_FAIL = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Is, exp.In, exp.Between, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Null, exp.Column, exp.Identifier, exp.Literal, exp.Boolean,
)  # fmt: skip

_DECIMAL = r"DECIMAL\(\d+,\d+\)"
#: A numeric literal, and one as a wider type.
_NUMBER = rf"(?:\(-?\d+\)::\w+|CAST\('-?[\d.]+' AS {_DECIMAL}\))"
_WIDENED = re.compile(rf"CAST\({_NUMBER} AS (?:BIGINT|DOUBLE|{_DECIMAL})\)|{_NUMBER}")


def connected(word: str, conditions: Sequence[tuple[exp.Expression, str]]) -> str:
    """Combine conditions into one.

    Parameters
    ----------
    word: ``AND`` or ``OR``.
    conditions: the node and DuckDB's SQL of each.

    >>> import sqlglot
    >>> parts = [(sqlglot.parse_one(t, dialect="spark"), f"({t})") for t in ("a > 1", "a < 9", "1 / a > 2", "b = 1")]
    >>> connected("AND", parts[:2])
    '((a > 1) AND (a < 9))'
    >>> connected("OR", parts[2:])
    '(CASE WHEN (1 / a > 2) THEN TRUE ELSE ((1 / a > 2) OR (b = 1)) END)'
    """

    def cannot_fail(condition: tuple[exp.Expression, str]) -> bool:
        node, sql = condition
        return "CAST" not in _WIDENED.sub("", sql) and all(isinstance(part, _CANNOT_FAIL) for part in node.walk())

    sources: list[str] = []
    for certain, run in groupby(conditions, key=cannot_fail):
        together = [sql for _, sql in run]
        sources += [f"({f' {word} '.join(together)})"] if certain and len(together) > 1 else together
    while len(sources) > 1:
        chains = [sources[i : i + _CHAIN] for i in range(0, len(sources), _CHAIN)]
        sources = [reduce(lambda rest, part: _FORMS[word].format(part, rest), reversed(chain)) for chain in chains]
    return sources[0]
