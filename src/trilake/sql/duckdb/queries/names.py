"""The names that Spark gives columns which have none."""

from __future__ import annotations

from sqlglot import exp

from trilake.expr.sql.dialect import spark_text

_OPERATORS: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.NullSafeEQ: "<=>",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
#: Calls that Spark names in another way than they are written.
_SHOWN = {
    **{
        name: name.upper() for name in ("sqrt", "exp", "log10", "log2", "cbrt", "rank", "percent_rank", "ceil", "floor")
    },
    **{name: name.upper() for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "degrees", "radians")},
    **{name: name.upper() for name in ("power", "hypot", "e", "pi", "dense_rank", "log")},
    "ucase": "upper",
    "lcase": "lower",
    "array_agg": "collect_list",
}
#: Arguments that Spark shows where they are left out, by the number of those that are there.
_DEFAULTS = {
    ("sort_array", 1): "true",
    ("round", 1): "0",
    ("lpad", 2): " ",
    ("rpad", 2): " ",
    ("split", 2): "-1",
    ("percentile", 2): "1",
    ("percentile_approx", 2): "10000",
    ("approx_percentile", 2): "10000",
    ("regexp_extract", 2): "1",
    ("regexp_extract_all", 2): "1",
    ("regexp_replace", 3): "1",
    ("months_between", 2): "true",
    ("from_unixtime", 1): "yyyy-MM-dd HH:mm:ss",
    ("unix_timestamp", 1): "yyyy-MM-dd HH:mm:ss",
    ("to_unix_timestamp", 1): "yyyy-MM-dd HH:mm:ss",
    ("substring", 2): "2147483647",
    ("substr", 2): "2147483647",
}
_TYPED = {"DATE": "DATE", "TIMESTAMPTZ": "TIMESTAMP", "TIMESTAMPNTZ": "TIMESTAMP_NTZ"}


def column_name(node: exp.Expression) -> str:
    """The name of a column in a SELECT list.

    >>> from trilake.sql.duckdb.queries.dialect import parse_query
    >>> query = parse_query("SELECT a, t.b c, count(*), max(a + 1), x.y.z, 'q', 1 = 2, CAST(a AS INT) FROM t")
    >>> [column_name(e) for e in query.expressions]
    ['a', 'c', 'count(1)', 'max((a + 1))', 'z', 'q', '(1 = 2)', 'a']
    >>> [column_name(e) for e in parse_query("SELECT Sum(a), SQRT(a), TRY_CAST(a AS INT)").expressions]
    ['sum(a)', 'SQRT(a)', 'a']
    """
    if isinstance(node, exp.Alias):
        return node.alias
    if isinstance(node, exp.Paren):
        return column_name(node.this)
    if isinstance(node, exp.Column) or (isinstance(node, exp.Dot) and isinstance(node.this, exp.Column | exp.Dot)):
        return node.name if isinstance(node, exp.Column) else node.expression.name
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column | exp.Dot):
        return column_name(node.this)
    return _shown(node)


def _shown(node: exp.Expression) -> str:
    if type(node) in _OPERATORS:
        return f"({_shown(node.this)} {_OPERATORS[type(node)]} {_shown(node.expression)})"
    match node:
        case exp.Paren():
            return _shown(node.this)
        case exp.Column():
            return ".".join(p.name for p in node.parts)
        case exp.Dot():
            return f"{_shown(node.this)}.{node.expression.name}"
        case exp.Identifier() | exp.Literal() | exp.RawString():
            return _number(node.name) if isinstance(node, exp.Literal) and not node.is_string else node.name
        case exp.Star():
            return "1"
        case exp.Null():
            return "NULL"
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Not() if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            return f"({_shown(node.this.this)} IS NOT NULL)"
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"({_shown(node.this)} IS NULL)"
        case exp.Not():
            return f"(NOT {_shown(node.this)})"
        case exp.Neg():
            inner = _shown(node.this)
            return f"-{inner}" if _is_number(node.this) else f"(- {inner})"
        case exp.Like():
            return f"{_shown(node.this)} LIKE {_shown(node.expression)}"
        case exp.ILike():
            return f"ilike({_shown(node.this)}, {_shown(node.expression)})"
        case exp.Extract():
            return f"extract({node.this.name.lower()} FROM {_shown(node.expression)})"
        case exp.Substring():
            parts = [node.this, node.args.get("start"), node.args.get("length")]
            shown = [_shown(p) for p in parts if p is not None]
            return f"substring({', '.join([*shown, '2147483647'][:3])})"
        case exp.Trim() if not node.args.get("expression"):
            return f"trim({_shown(node.this)})"
        case exp.Case():
            return _case(node)
        case exp.If():
            parts = [node.args.get(k) for k in ("this", "true", "false")]
            return f"(IF({', '.join(_shown(p) for p in parts if p is not None)}))"
        case exp.Bracket():
            return f"{_shown(node.this)}[{_shown(node.expressions[0])}]"
        case exp.Filter():
            return f"{_shown(node.this)} FILTER (WHERE {_shown(node.expression.this)})"
        case exp.IgnoreNulls() | exp.RespectNulls():
            return _shown(node.this)
        case exp.DPipe() | exp.Concat():
            parts = node.expressions if isinstance(node, exp.Concat) else list(node.flatten())
            if all(isinstance(p, exp.Literal) for p in parts) and isinstance(node, exp.Concat):
                return "".join(p.name for p in parts)
            return f"concat({', '.join(map(_shown, parts))})"
        case exp.Subquery() | exp.Query():
            return "scalarsubquery()"
        case exp.Exists():
            return "exists()"
        case exp.In() if node.args.get("query") is not None:
            return f"({_shown(node.this)} IN (listquery()))"
        case exp.In():
            return f"({_shown(node.this)} IN ({', '.join(map(_shown, node.expressions))}))"
        case exp.Anonymous():
            return _call(node)
        case exp.Cast():
            return _cast(node)
    return spark_text(node)


def _call(node: exp.Anonymous) -> str:
    name, nodes = node.name, list(node.expressions)
    if name.lower() in ("isnull", "isnotnull") and len(nodes) == 1:
        return f"({_shown(nodes[0])} IS {'NOT ' if 'not' in name.lower() else ''}NULL)"
    if name.lower() in ("first", "last") and len(nodes) == 2:
        nodes = nodes[:1]
    unique = len(nodes) == 1 and isinstance(nodes[0], exp.Distinct)
    shown = [_shown(n) for n in (nodes[0].expressions if unique else nodes)]
    default = _DEFAULTS.get((name.lower(), len(nodes)))
    if name.lower() == "log" and len(nodes) == 1:
        shown.insert(0, "E()")
    arguments = ", ".join([*shown, *([default] if default is not None else [])])
    return f"{_SHOWN.get(name.lower(), name.lower())}({'DISTINCT ' if unique else ''}{arguments})"


def _case(node: exp.Case) -> str:
    whens = []
    for branch in node.args["ifs"]:
        asked = _shown(branch.this) if node.this is None else f"({_shown(node.this)} = {_shown(branch.this)})"
        whens.append(f"WHEN {asked} THEN {_shown(branch.args['true'])}")
    last = f" ELSE {_shown(node.args['default'])}" if node.args.get("default") else ""
    return f"CASE {' '.join(whens)}{last} END"


def _cast(node: exp.Cast) -> str:
    kind = node.to.this.value
    literal = node.this if isinstance(node.this, exp.Literal) else None
    if literal is not None and not isinstance(node, exp.TryCast):
        if literal.is_string and kind in _TYPED:
            return f"{_TYPED[kind]} '{literal.name}'"
        if not literal.is_string and kind in ("BIGINT", "DOUBLE", "FLOAT", "SMALLINT", "TINYINT"):
            return _number(literal.name)  # 5L, 2.5D
    word = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
    return f"{word}({_shown(node.this)} AS {node.to.sql('databricks').replace(', ', ',')})"


def _number(text: str) -> str:
    return repr(float(text)) if "e" in text.lower() else text


def _is_number(node: exp.Expression) -> bool:
    inner = node.this if isinstance(node, exp.Cast) else node
    return isinstance(inner, exp.Literal) and not inner.is_string
