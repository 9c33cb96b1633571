"""The sqlglot dialect for filters: Spark SQL that keeps function calls as they are.

sqlglot converts functions to special nodes, differently in each release.  Here calls keep their names and arguments,
and only :mod:`trilake.expr.sql.functions` interprets them.

Columns may be named like SQL keywords without backticks, as in Spark: ``comment = 'x' AND values > 1``.  Spark reserves
hardly any word, and decides by position; sqlglot reserves many.  So words that name a column, in the position of an
operand, are marked as names before parsing.

Also here: limits on nesting, and how messages show a part of a filter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, reduce
from itertools import islice, zip_longest
from typing import Any, ClassVar, cast

import pyarrow as pa
from sqlglot import TokenType, exp
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import SqlglotError

from trilake.errors import FilterError

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Keywords that are always values.
_VALUES = frozenset(("null", "true", "false"))
#: Keywords before an operand, unless they are names.
_OPEN = frozenset(
    (
        *("and", "or", "not", "in", "like", "ilike", "rlike", "regexp", "between", "is", "when", "then"),
        *("else", "case", "div", "escape", "from", "for", "xor", "distinct", "all", "any", "some", "both"),
        *("leading", "trailing", "where"),
    )
)
#: Keywords that may follow an operand.
_AFTER = frozenset(
    (
        *("and", "or", "not", "in", "like", "ilike", "rlike", "regexp", "between", "is", "when", "then"),
        *("else", "end", "div", "escape", "from", "for", "as", "xor"),
    )
)
#: Tokens that may follow an operand, except for the parenthesis of a call.
_MARKS = frozenset(
    (
        *(")", "]", "[", ",", ".", "=", "==", "<=>", "<>", "!=", "<", "<="),
        *(">", ">=", "!<", "!>", "+", "-", "*", "/", "%", "||", "|", "&"),
        *("^", "::", ":"),
    )
)


def column_names(schema: pa.Schema) -> frozenset[str]:
    """The names of the top-level columns, in lower case."""
    return frozenset(name.lower() for name in schema.names)


def mark_names(tokens: Sequence[Any], sql: str, names: Collection[str]) -> None:
    """Mark keywords that name columns as names; ``names`` are the column names in lower case.

    >>> from trilake.expr.sql.dialect import SparkFilter
    >>> sql = "values IN (case, CASE WHEN end THEN 1 END)"
    >>> tokens = SparkFilter().tokenize(sql)
    >>> mark_names(tokens, sql, {"values", "case", "end"})
    >>> [token.text for token in tokens if token.token_type is TokenType.IDENTIFIER]
    ['values', 'case', 'end']
    """
    operand = True  # whether an operand is expected
    last = ""  # the previous keyword or symbol
    for i, token in enumerate(tokens):
        word = _word(token, sql)
        after = tokens[i + 1] if i + 1 < len(tokens) else None
        if word is None:
            operand = token.text not in (")", "]") and token.token_type.name not in _VALUE_TOKENS
            last = token.text
        elif (last == "." and i > 1) or (operand and word in names and _is_name(word, last, after, sql)):
            token.token_type = TokenType.IDENTIFIER
            operand, last = False, ""
        else:
            operand, last = word in _OPEN, word


#: Token types of values and quoted names.
_VALUE_TOKENS = frozenset(("STRING", "NUMBER", "IDENTIFIER", "HEX_STRING", "RAW_STRING"))


def _word(token: Any, sql: str) -> str | None:
    """The keyword of a token, in lower case; ``None`` for symbols, values and quoted names."""
    if token.token_type.name in _VALUE_TOKENS:
        return None
    word = sql[token.start : token.end + 1]
    return word.lower() if _WORD.fullmatch(word) else None


def _is_name(word: str, last: str, after: Any, sql: str) -> bool:
    """Whether a word in operand position that names a column is the column."""
    if word in _VALUES or (word == "when" and last == "case"):
        return False
    if after is None:
        return True
    following = _word(after, sql)
    if word == "not" and (after.text in ("+", "-", "~", "[") or following == "not"):
        return False
    if word == "case" and following == "when" and last != "case":
        return False
    return after.text in _MARKS if following is None else following in _AFTER


#: Maximum depth of an expression: DuckDB's limit is 1,000, and Python's stack overflows at some 5,000 calls.
MAX_DEPTH = 300
#: How often nested operators may compute a part.
MAX_COPIES = 1_000
#: Maximum nesting of ``struct`` calls: the parser tries each as a type first, which doubles its time per level.
MAX_STRUCTS = 12
_CHAINS = (exp.And, exp.Or, exp.DPipe)

#: Functions whose arguments have a special syntax.
_KEPT = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
#: Prefix of all other functions during parsing, so that sqlglot does not recognise them.
_MARK = "\ue000"
_NO_PAREN = frozenset(Databricks.Parser.NO_PAREN_FUNCTION_PARSERS)
_MARKED = frozenset((*Databricks.Parser.FUNCTIONS, *Databricks.Parser.FUNCTION_PARSERS)) - _NO_PAREN - {*_KEPT}


class SparkFilter(Databricks):
    """Spark SQL."""

    class Tokenizer(Databricks.Tokenizer):
        """Since Spark 4 a doubled quote is a quote: ``'it''s'``."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        #: Words such as SHOW, after which sqlglot does not parse the statement.
        COMMANDS: ClassVar[set[Any]] = set()


#: The node arguments that the translation reads, except operands.  Nodes with other arguments are rejected.
_OPERANDS = frozenset(("this", "expression", "expressions"))
_ARGUMENTS: dict[type[exp.Expression], frozenset[str]] = {
    exp.Column: frozenset(("this", "table", "db", "catalog")),
    exp.Identifier: frozenset(("this", "quoted")),
    exp.Literal: frozenset(("this", "is_string")),
    exp.Cast: frozenset(("this", "to")),
    exp.TryCast: frozenset(("this", "to", "safe")),
    exp.DataType: frozenset(("this", "expressions", "nested", "values")),
    exp.Between: frozenset(("this", "low", "high")),
    exp.Case: frozenset(("this", "ifs", "default")),
    exp.If: frozenset(("this", "true", "false")),
    exp.Trim: frozenset(("this", "expression", "position")),
    exp.Substring: frozenset(("this", "start", "length")),
    exp.StrPosition: frozenset(("this", "substr")),
    exp.Interval: frozenset(("this", "unit")),
    exp.Concat: frozenset(("expressions", "safe", "coalesce")),
    exp.DPipe: frozenset(("this", "expression", "safe")),
    exp.Div: frozenset(("this", "expression", "typed", "safe")),
}


@cache
def _is_keyword(name: str) -> bool:
    try:
        tokens = SparkFilter().tokenize(name)
    except SqlglotError:
        return False
    return len(tokens) == 1 and (tokens[0].token_type.name not in ("VAR", "IDENTIFIER") or name in ("if", "while"))


def statements(sql: str, names: Collection[str] = ()) -> list[exp.Expr | None]:
    """Parse the statements of a string, with the names and arguments of calls as written.

    ``names`` are the column names in lower case.  A compiled sqlglot (``sqlglot[c]``) does not allow a parser with
    fewer functions, so names of functions get a prefix during parsing.  Raises sqlglot's ``SqlglotError``.
    """
    dialect = SparkFilter()
    tokens = [t for t in dialect.tokenize(sql) if t.token_type is not TokenType.HINT]  # hints for Spark's planner
    if keywords := frozenset(filter(_is_keyword, names)):
        mark_names(tokens, sql, keywords)
    mark = _MARK
    while mark in sql:
        mark += _MARK
    for token, following in zip_longest(tokens, tokens[1:]):
        name = token.text.upper()
        called = following is not None and following.token_type is TokenType.L_PAREN
        if token.token_type is not TokenType.STRING and called and name in _MARKED:
            token.text = mark + token.text
    trees = dialect.parser().parse(tokens, sql)
    for tree in trees:
        for node in () if tree is None else tree.walk():
            this = node.args.get("this")
            if isinstance(this, str) and this.startswith(mark):
                node.args["this"] = this.removeprefix(mark)
    return trees


def parse(sql: str, names: frozenset[str] = frozenset()) -> exp.Expression:
    """Parse one expression; ``names`` are the column names in lower case.

    Raises sqlglot's ``SqlglotError`` for a syntax error, and :class:`FilterError` for several statements or unsupported
    syntax.
    """
    if sql.lower().count("struct") > MAX_STRUCTS:
        _check_structs(sql)
    trees = statements(sql, names)
    if len(trees) != 1 or not isinstance(trees[0], exp.Expression):
        help = "remove the semicolon and everything after it"
        raise FilterError("the filter must be a single condition", help=help, filter=sql[:200])
    _check_depth(trees[0], sql)
    root: exp.Expression = positive(trees[0])
    for node in cast(Iterator[exp.Expression], root.walk()):
        present = {key for key, value in node.args.items() if value not in (None, False, [], "")}
        if present - _ARGUMENTS.get(type(node), _OPERANDS):
            raise rejection(root)
    return root


def _check_structs(sql: str) -> None:
    stack: list[bool] = []
    before = None
    for token in SparkFilter().tokenize(sql):
        kind = token.token_type.name
        if kind == "L_PAREN":
            stack.append(before == "STRUCT")
            if sum(stack) > MAX_STRUCTS:
                raise FilterError(
                    f"the filter has more than {MAX_STRUCTS} nested calls of struct",
                    help="compute parts as columns first",
                    filter=sql[:200],
                )
        elif kind == "R_PAREN" and stack:
            stack.pop()
        before = kind


def _check_depth(root: exp.Expression, sql: str) -> None:
    """Reject expressions that are nested too deeply for the engine.  A chain of AND, OR or || counts as one level."""
    deepest = most = 0
    stack = [(root, 0, 1)]
    while stack:
        node, depth, copies = stack.pop()
        deepest, most = max(deepest, depth), max(most, copies)
        # DuckDB 2.0 copies ``x`` into a comparison per value of ``x IN (a, b)``: a dozen nested ones took minutes and
        # gigabytes.
        twice = isinstance(node, exp.Between | exp.Nullif)
        values = min(max(len(node.expressions), 1), 8) if isinstance(node, exp.In) else 2 if twice else 1
        for child in node.iter_expressions():
            flat = isinstance(child, exp.Paren) or (isinstance(node, _CHAINS) and type(child) is type(node))
            stack.append((child, depth if flat else depth + 1, copies * values))
    if deepest > MAX_DEPTH:
        raise FilterError(
            f"the filter is nested too deeply: {deepest:,} levels, where the limit is {MAX_DEPTH}",
            help="write long chains of OR as IN, and compute long sums as columns first",
            filter=sql[:200],
        )
    if most > MAX_COPIES:
        raise FilterError(
            f"the filter nests IN, BETWEEN or NULLIF so deeply that the innermost part is computed {most:,} times",
            help="compute parts as columns first",
            filter=sql[:200],
        )


def rejection(node: exp.Expression) -> FilterError:
    """The error for an expression that cannot be used in a filter."""
    sql = to_spark_sql(node)
    if isinstance(node, exp.Query) or next(node.find_all(exp.Subquery, exp.Select, exp.Exists), None) is not None:
        return FilterError(
            f"{sql} contains a subquery",
            help="a filter sees one row at a time: list the values, or use a join in Spark",
            condition="DELTA_UNSUPPORTED_SUBQUERY",
        )
    if next(node.find_all(exp.Window), None) is not None:
        return FilterError(f"{sql} has a window function", help="a filter sees one row at a time: compute it in Spark")
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return FilterError(f"parameter {sql} has no value", help="put the value into the SQL")
    if string := string_as_name(node):
        return FilterError(f"{string} is a string, not a name", help=IN_BACKQUOTES)
    return FilterError(f"{sql} cannot be used in a filter", help="compute it in Spark, and filter there")


#: Help for names in double quotes.
IN_BACKQUOTES = "quote names with backticks, as in `a b`; double quotes delimit strings"


def string_as_name(root: exp.Expression) -> str | None:
    """The first string in the position of a name, such as ``t."a"``, which is a name in other dialects."""
    for node in cast(Iterator[exp.Column | exp.Dot], root.find_all(exp.Column, exp.Dot)):
        for part in (node.this, node.args.get("expression")):
            if isinstance(part, exp.Literal) and part.is_string:
                return to_spark_sql(part)
    return None


#: Comparison operators.
_COMPARING = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Is),
)


def string_for_column(root: exp.Expression, sql: str, names: frozenset[str]) -> exp.Expression | None:
    """The first comparison of constants in which one is in double quotes and names a column.

    In other dialects ``"Color" <> 'red'`` compares the column; in Spark it is constant.  ``names`` are in lower case.
    """
    if '"' not in sql:
        return None
    for node in cast(Iterator[exp.Expression], root.find_all(*_COMPARING)):
        strings = [t.name for t in cast(Iterator[exp.Literal], node.find_all(exp.Literal)) if t.is_string]
        if any(t.lower() in names and f'"{t}"' in sql for t in strings) and node.find(exp.Column, exp.Query) is None:
            return node
    return None


def mistaken_string(node: exp.Expression) -> str:
    """The message for a result of :func:`string_for_column`."""
    return f"{to_spark_sql(node)} compares a string, not the column of that name"


#: Limits of list items and characters of SQL in messages.
_SHOWN_ITEMS, _SHOWN = 20, 200
_LATE_NOT = re.compile(r"\bNOT ([\w.`]+) (LIKE|ILIKE|IN|BETWEEN)\b")
_LATE_NULL = re.compile(r"\bNOT ([\w.`]+) IS NULL\b")


def to_spark_sql(node: exp.Expression) -> str:
    """Format a part of a filter as short Spark SQL for messages, with NOT in its usual place."""
    sql = _head(node).sql(dialect="databricks", comments=False, normalize_functions=False)
    sql = _LATE_NULL.sub(r"\1 IS NOT NULL", _LATE_NOT.sub(r"\1 NOT \2", sql))
    return sql if len(sql) <= _SHOWN else sql[: _SHOWN - 3] + "..."


def _head(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.In) and len(node.expressions) > _SHOWN_ITEMS:
        return exp.In(this=node.this.copy(), expressions=[e.copy() for e in node.expressions[: _SHOWN * 2]])
    if isinstance(node, _CHAINS):
        parts = cast(list[exp.Expression], list(islice(node.flatten(), _SHOWN + 1)))
        if len(parts) > _SHOWN:
            kind, (first, *rest) = type(node), (_head(p) for p in parts)
            return reduce(lambda a, b: kind(this=a, expression=b), (p.copy() for p in rest), first.copy())
    return node


def positive(root: Any) -> Any:
    """Rewrite ``NOT LIKE`` as ``NOT`` of ``LIKE``, since sqlglot releases differ."""

    def rewrite(node: exp.Expression) -> exp.Expression:
        inner = node.this if isinstance(node, exp.Escape) else node
        if not isinstance(inner, exp.Expression) or not inner.args.get("negate"):
            return node
        inner.set("negate", None)
        return exp.Not(this=node)

    # Visits a rewritten node again, below its NOT.
    return root.transform(rewrite, copy=False)
