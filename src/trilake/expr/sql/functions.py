"""Spark functions for filters, as equivalent DuckDB SQL.

Listed functions return the same results as Spark for every value, including nulls, NaN and unusual arguments; other
functions are not supported.  ``tests/expr/test_spark_semantics.py`` compares each with results of Spark 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from sqlglot import exp

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.sql.arithmetic import arithmetic, example, positive_modulo
from trilake.expr.sql.calls import Call
from trilake.expr.sql.datetimes import extract, format_pattern, parse_by_pattern, truncate
from trilake.expr.sql.strings import concat, lower, rlike, substring, to_re2, upper
from trilake.expr.sql.variants import variant_get
from trilake.expr.terms.casts import TYPES, cast, digits_of
from trilake.expr.terms.duckdb_sql import INTEGERS, Sql, at_least, common_type, counted, decimal_parameters, fail

#: Longest string that repeat, lpad and rpad may create.
_MAX_LENGTH = 10_000

Handler = Callable[[Call], Sql]
#: The minimum and maximum number of arguments, and the translation.
Function = tuple[int, int, Handler]


def _abs(call: Call) -> Sql:
    call.number(0)
    return Sql(f"abs({call.args[0].code})", call.translator.typed(f"abs({example(call.args[0]).code})").type)


def _length(call: Call) -> Sql:
    if call.args[0].family == "binary":
        return counted(f"octet_length({call.args[0].code})")
    return counted(f"length({call.string(0)})")


def _round(call: Call) -> Sql:
    number, digits = call.args[0], call.constant(1) if len(call.args) > 1 else 0
    call.number(0)
    if not isinstance(digits, int) or not 0 <= digits <= 18:
        raise FilterError(f"the number of digits of round must be from 0 to 18, got {digits!r:.80}")
    if number.family == "integer":
        return number
    if number.family == "decimal":
        return call.translator.typed(
            f"round({number.code}, {digits})" if digits < decimal_parameters(number.type)[1] else number.code
        )
    if digits == 0:
        return Sql(f"(round({number.code}) + 0)", number.type)  # Spark's round returns no -0.0
    # Round the shortest decimal form, as Spark does; beyond 1e15 there are no such digits.
    exact = f"CAST(CAST({digits_of(number)} AS DECIMAL(38,{digits})) AS {number.type})"
    return Sql(f"(CASE WHEN abs({number.code}) < 1e15 THEN {exact} ELSE {number.code} END)", number.type)


def _floor(name: str) -> Handler:
    def handle(call: Call) -> Sql:
        x = call.args[0]
        call.number(0)
        if x.family == "integer":
            return cast(x, "BIGINT")
        if x.family == "decimal":
            return call.translator.typed(f"{name}({x.code})")
        # Spark returns a bigint, in which NaN is 0.
        whole = f"CAST({name}({cast(x, 'DOUBLE').code}) AS BIGINT)"
        return Sql(f"(CASE WHEN isnan({x.code}) THEN 0 ELSE {whole} END)", "BIGINT")

    return handle


def _greatest(name: str) -> Handler:
    def handle(call: Call) -> Sql:
        parts = call.unified()
        if any(p.family in ("map", "array", "struct") for p in parts):
            raise FilterError(f"{call.name} of {parts[0].spark_type} cannot be used in filters")
        kind = next((p.type for p in parts if p.family != "void"), '"NULL"')
        return Sql(f"{name}({', '.join(p.code for p in parts)})", kind)

    return handle


def _coalesce(call: Call) -> Sql:
    parts = call.unified()
    kind = next((p.type for p in parts if p.family != "void"), '"NULL"')
    return Sql(f"coalesce({', '.join(p.code for p in parts)})", kind)


def _nullif(call: Call) -> Sql:
    equal = call.translator.comparison("=", *(a.as_string for a in call.args)).code  # char(n) as strings
    return Sql(f"(CASE WHEN {equal} THEN NULL ELSE {call.args[0].code} END)", call.args[0].type)


def _nvl2(call: Call) -> Sql:
    target = common_type(call.args[1:], "the arguments of nvl2")
    yes, no = (a.code if a.family == "void" else cast(a, target).code for a in call.args[1:])
    return Sql(f"(CASE WHEN {call.args[0].code} IS NOT NULL THEN {yes} ELSE {no} END)", target)


def _limited(call: Call) -> str:
    """The second argument, a length, with an error if it is too large."""
    n = call.integer(1)
    reject = fail(f"{call.name} is limited to {_MAX_LENGTH}")
    return f"(CASE WHEN {n} > {_MAX_LENGTH} THEN {reject} ELSE {at_least(n, 0)} END)"


def _pad(name: str) -> Handler:
    def handle(call: Call) -> Sql:
        pad = call.constant(2) if len(call.args) > 2 else " "
        if not isinstance(pad, str) or not pad:
            raise FilterError(f"argument 3 of {call.name} must be a non-empty string")
        return Sql(f"{name}({call.string(0)}, CAST({_limited(call)} AS INTEGER), {single_quoted(pad)})", "VARCHAR")

    return handle


def _size(call: Call) -> Sql:
    x = call.family(0, "array", "map")
    return counted(f"cardinality({x})" if call.args[0].family == "map" else f"len({x})")


def _array(call: Call) -> Sql:
    target = common_type(call.args, f"the arguments of {call.name}")
    items = (a.code if a.family == "void" else cast(a, target).code for a in call.args)
    return call.translator.typed(f"[{', '.join(items)}]")


def _contains(a: str, v: str, missing: str = "WHEN list_count({a}) < len({a}) THEN NULL ") -> str:
    return (
        f"(CASE WHEN {a} IS NULL OR {v} IS NULL THEN NULL WHEN list_contains({a}, {v}) THEN TRUE "
        f"{missing.format(a=a)}ELSE FALSE END)"
    )


def array_has(call: Call) -> Sql:
    """``array_contains`` of other engines: false if the value is missing, null for a null value."""
    if call.args[1].family == "void":
        return Sql("CAST(NULL AS BOOLEAN)", "BOOLEAN")
    return Sql(_contains(*alike(call), ""), "BOOLEAN")


#: Prefix of the result of :func:`_contains` for a column and a string or an integer.
_CONTAINS_LITERAL = re.compile(
    r"\(CASE WHEN (c_\w+) IS NULL OR ('((?:[^']|'')*)'|(?:CAST\()?\((-?\d+)\)::\w+(?: AS \w+\))?) IS NULL THEN"
)


def contained_literal(sql: str) -> str | int | None:
    """The string or integer that a predicate searches for in a list column; ``None`` for other predicates.

    >>> contained_literal(_contains("c_6c", "'it''s'")), contained_literal(_contains("c_6c", "(5)::INTEGER"))
    ("it's", 5)
    """
    match = _CONTAINS_LITERAL.match(sql)
    if match is None or sql not in (_contains(match[1], match[2]), _contains(match[1], match[2], "")):
        return None
    return int(match[4]) if match[4] is not None else match[3].replace("''", "'")


#: Numeric types in Spark's widening order.
_WIDENING = (*INTEGERS, "FLOAT", "DOUBLE")


def alike(call: Call) -> tuple[str, str]:
    """An array and a value, cast to their common type."""
    array, value = call.family(0, "array"), call.args[1]
    element = Sql("", call.args[0].type.rsplit("[", 1)[0])
    if value.family == "void":
        raise FilterError(f"argument 2 of {call.name} must not be null")
    wider = common_type([element, value], f"the arguments of {call.name}")
    if {element.type, value.type} <= set(_WIDENING):
        wider = max(element.type, value.type, key=_WIDENING.index)
    if wider != element.type and element.type in _WIDENING and value.family != "string":
        return f"CAST({array} AS {wider}[])", cast(value, wider).code
    if wider != element.type:
        raise FilterError(
            f"argument 2 of {call.name} must be {element.spark_type} like the elements, got {value.spark_type}",
            help="cast it",
        )
    return array, cast(value, element.type).code


def element(call: Call, *, base: int, strict: bool) -> Sql:
    """An array element by index from ``base`` (with 1, negative ones count from the end), or a map's value by key."""
    container, key = call.args
    x = container.code
    if container.family == "map":
        return call.translator.typed(f"{x}[{key.code}]")
    call.family(0, "array")
    i = call.integer(1)
    outside = f"{i} = 0 OR abs({i}) > len({x})" if base else f"{i} < 0 OR {i} >= len({x})"
    miss = fail("an index is outside its array:", f"CAST({i} AS VARCHAR)") if strict else "NULL"
    at = i if base else f"CAST({i} AS BIGINT) + 1"
    return call.translator.typed(f"(CASE WHEN {outside} THEN {miss} ELSE {x}[{at}] END)")


def _floor_division(x: str, unit: int) -> str:
    return f"(({x} - ((({x} % {unit}) + {unit}) % {unit})) // {unit})"


def simple(template: str, result: str, *kinds: str) -> Handler:
    """A function with fixed kinds of arguments, named as the methods of :class:`Call`."""

    def handle(call: Call) -> Sql:
        sql = template.format(*(getattr(call, kind)(i) for i, kind in enumerate(kinds)))
        return counted(sql) if result == "INTEGER" else Sql(sql, result)

    return handle


def _cast_function(target: str) -> Handler:
    return lambda c: cast(c.args[0], target)


def _concat_ws(call: Call) -> Sql:
    """Skips null parts."""
    call.string(0)
    if any(a.family in ("array", "map", "struct", "binary") for a in call.args):
        raise FilterError(f"{call.name} supports only strings in a filter")
    return Sql(f"concat_ws({', '.join(cast(a, 'VARCHAR').code for a in call.args)})", "VARCHAR")


def _split(call: Call) -> Sql:
    separator = call.constant(1)
    if not isinstance(separator, str) or not separator or set(separator) & set("\\^$.|?*+()[]{}"):
        raise FilterError(f"{call.name} needs a constant string as separator")
    return Sql(f"string_split({call.string(0)}, {single_quoted(separator)})", "VARCHAR[]")


def _split_part(call: Call) -> Sql:
    part = call.constant(2)
    if not part or not isinstance(part, int) or not call.constant(1):
        raise FilterError(f"{call.name} needs a non-empty separator and a number other than 0")
    return Sql(f"split_part({call.string(0)}, {call.string(1)}, {part})", "VARCHAR")


def _regexp_extract(call: Call) -> Sql:
    group = call.constant(2) if len(call.args) > 2 else 1
    if not isinstance(group, int) or not 0 <= group <= 9:
        raise FilterError(f"{call.name} needs a group number from 0 to 9")
    return Sql(f"regexp_extract({call.string(0)}, {single_quoted(to_re2(str(call.constant(1))))}, {group})", "VARCHAR")


def _translate(call: Call) -> Sql:
    source, target = str(call.constant(1)), str(call.constant(2))
    if len(set(source)) < len(source):
        raise FilterError(f"argument 2 of {call.name} must not contain a character twice")
    return Sql(f"translate({call.string(0)}, {single_quoted(source)}, {single_quoted(target)})", "VARCHAR")


def _from_unixtime(call: Call) -> Sql:
    time = call.instant(f"make_timestamp(CAST({call.integer(0)} AS BIGINT) * 1000000)")
    return format_pattern(time, str(call.constant(1)) if len(call.args) > 1 else "yyyy-MM-dd HH:mm:ss")


def _to_date(target: str) -> Handler:
    """``to_date`` and ``to_timestamp``, with and without a pattern."""

    def handle(call: Call) -> Sql:
        if len(call.args) > 1 and call.args[0].family not in ("date", "timestamp"):
            return parse_by_pattern(call, target)
        return Sql(call.date(0) if target == "DATE" else call.timestamp(0), target)

    return handle


def _hex(call: Call) -> Sql:
    """The bytes of a string or binary, or the 64 bits of an integer without leading zeros."""
    sql = call.family(0, "string", "binary", "integer")
    return Sql(f"hex(CAST({sql} AS BIGINT))" if call.args[0].family == "integer" else f"hex({sql})", "VARCHAR")


def _sha2(call: Call) -> Sql:
    if call.constant(1) not in (0, 256):
        raise FilterError("sha2 in a filter supports only 256 bits")
    return Sql(f"sha256({call.family(0, 'string', 'binary')})", "VARCHAR")


#: By lower-case name.
FUNCTIONS: dict[str, Function] = {
    # conditions
    "isnull": (1, 1, lambda c: Sql(f"({c.args[0].code} IS NULL)", "BOOLEAN")),
    "isnotnull": (1, 1, lambda c: Sql(f"({c.args[0].code} IS NOT NULL)", "BOOLEAN")),
    "isnan": (1, 1, lambda c: Sql(f"coalesce(isnan({c.number(0)}), FALSE)", "BOOLEAN")),
    "coalesce": (1, 255, _coalesce),
    **dict.fromkeys(["nvl", "ifnull"], (2, 2, _coalesce)),
    "nullif": (2, 2, _nullif),
    "nvl2": (3, 3, _nvl2),
    **{name: (2, 255, _greatest(name)) for name in ("greatest", "least")},
    # variants
    "variant_get": (3, 3, variant_get(safe=False)),
    "try_variant_get": (3, 3, variant_get(safe=True)),
    # numbers
    "abs": (1, 1, _abs),
    **dict.fromkeys(
        ["sign", "signum"],
        (1, 1, simple("(CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END)", "DOUBLE", "number")),
    ),
    "floor": (1, 1, _floor("floor")),
    **dict.fromkeys(["ceil", "ceiling"], (1, 1, _floor("ceil"))),
    "round": (1, 2, _round),
    "sqrt": (1, 1, simple("(CASE WHEN {0} < 0 THEN 'nan'::DOUBLE ELSE sqrt({0}) END)", "DOUBLE", "number")),
    "exp": (1, 1, simple("exp({})", "DOUBLE", "number")),
    **{
        name: (1, 1, simple(f"(CASE WHEN {{0}} > 0 THEN {name}({{0}}) END)", "DOUBLE", "number"))
        for name in ("ln", "log10", "log2")
    },
    **dict.fromkeys(["pow", "power"], (2, 2, simple("pow({}, {})", "DOUBLE", "number", "number"))),
    "/": (2, 2, lambda c: arithmetic(c.translator.typed, exp.Div, *c.args)),
    "mod": (2, 2, lambda c: arithmetic(c.translator.typed, exp.Mod, *c.args)),
    "pmod": (2, 2, lambda c: positive_modulo(c.translator.typed, *c.args)),
    "try_add": (2, 2, lambda c: arithmetic(c.translator.typed, exp.Add, *c.args, safe=True)),
    "try_subtract": (2, 2, lambda c: arithmetic(c.translator.typed, exp.Sub, *c.args, safe=True)),
    "try_multiply": (2, 2, lambda c: arithmetic(c.translator.typed, exp.Mul, *c.args, safe=True)),
    "try_divide": (2, 2, lambda c: arithmetic(c.translator.typed, exp.Div, *c.args, safe=True)),
    "try_mod": (2, 2, lambda c: arithmetic(c.translator.typed, exp.Mod, *c.args, safe=True)),
    # strings
    **dict.fromkeys(["upper", "ucase"], (1, 1, lambda c: Sql(upper(c.string(0)), "VARCHAR"))),
    **dict.fromkeys(["lower", "lcase"], (1, 1, lambda c: Sql(lower(c.string(0)), "VARCHAR"))),
    **dict.fromkeys(["length", "len", "char_length", "character_length"], (1, 1, _length)),
    **dict.fromkeys(["trim", "btrim"], (1, 1, simple("trim({})", "VARCHAR", "string"))),
    **{name: (1, 1, simple(f"{name}({{}})", "VARCHAR", "string")) for name in ("ltrim", "rtrim")},
    "concat_ws": (1, 255, _concat_ws),
    "split": (2, 2, _split),
    "split_part": (3, 3, _split_part),
    "regexp_extract": (2, 3, _regexp_extract),
    "translate": (3, 3, _translate),
    "concat": (0, 255, lambda c: concat(list(c.args))),
    **dict.fromkeys(
        ["substring", "substr"],
        (2, 3, lambda c: Sql(substring(c.string(0), *map(c.integer, range(1, len(c.args)))), "VARCHAR")),
    ),
    # An empty string for a negative length.
    "left": (2, 2, lambda c: Sql(f"left({c.string(0)}, {at_least(c.integer(1), 0)})", "VARCHAR")),
    "right": (2, 2, lambda c: Sql(f"right({c.string(0)}, {at_least(c.integer(1), 0)})", "VARCHAR")),
    "replace": (3, 3, simple("replace({}, {}, {})", "VARCHAR", "string", "string", "string")),
    "reverse": (1, 1, simple("reverse({})", "VARCHAR", "string")),
    "repeat": (2, 2, lambda c: Sql(f"repeat({c.string(0)}, {_limited(c)})", "VARCHAR")),
    "lpad": (2, 3, _pad("lpad")),
    "rpad": (2, 3, _pad("rpad")),
    "instr": (2, 2, simple("instr({}, {})", "INTEGER", "string", "string")),
    **dict.fromkeys(["locate", "position"], (2, 2, simple("instr({1}, {0})", "INTEGER", "string", "string"))),
    "startswith": (2, 2, simple("starts_with({}, {})", "BOOLEAN", "string", "string")),
    "endswith": (2, 2, simple("ends_with({}, {})", "BOOLEAN", "string", "string")),
    "contains": (2, 2, simple("contains({}, {})", "BOOLEAN", "string", "string")),
    **dict.fromkeys(
        ["rlike", "regexp", "regexp_like"], (2, 2, lambda c: Sql(rlike(c.string(0), str(c.constant(1))), "BOOLEAN"))
    ),
    "hex": (1, 1, _hex),
    "md5": (1, 1, lambda c: Sql(f"md5({c.family(0, 'string', 'binary')})", "VARCHAR")),
    **dict.fromkeys(["sha", "sha1"], (1, 1, lambda c: Sql(f"sha1({c.family(0, 'string', 'binary')})", "VARCHAR"))),
    "sha2": (2, 2, _sha2),
    # dates and times
    **{
        name: (1, 1, partial(extract, name, index=0))
        for name in (
            *("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear"),
            *("hour", "minute"),
        )
    },
    "second": (1, 1, simple("second({})", "INTEGER", "timestamp")),
    **dict.fromkeys(["date_add", "dateadd"], (2, 2, simple("({} + CAST({} AS INTEGER))", "DATE", "date", "integer"))),
    "date_sub": (2, 2, simple("({} - CAST({} AS INTEGER))", "DATE", "date", "integer")),
    **dict.fromkeys(["datediff", "date_diff"], (2, 2, simple("({} - {})", "INTEGER", "date", "date"))),
    "add_months": (2, 2, simple("CAST({} + to_months(CAST({} AS INTEGER)) AS DATE)", "DATE", "date", "integer")),
    "last_day": (1, 1, simple("last_day({})", "DATE", "date")),
    "make_date": (3, 3, simple("make_date({}, {}, {})", "DATE", "integer", "integer", "integer")),
    "to_date": (1, 2, _to_date("DATE")),
    "to_timestamp": (1, 2, _to_date("TIMESTAMP")),
    "from_unixtime": (1, 2, _from_unixtime),
    "dayname": (1, 1, simple("left(dayname({}), 3)", "VARCHAR", "date")),
    "monthname": (1, 1, simple("left(monthname({}), 3)", "VARCHAR", "date")),
    "to_timestamp_ntz": (1, 1, simple("{}", "TIMESTAMP", "timestamp")),
    "date_trunc": (2, 2, lambda c: truncate(c, 0, 1, "TIMESTAMP")),
    "trunc": (2, 2, lambda c: truncate(c, 1, 0, "DATE")),
    **dict.fromkeys(["date_part", "datepart"], (2, 2, lambda c: extract(str(c.constant(0)), c, 1))),
    "date_format": (2, 2, lambda c: format_pattern(c.timestamp(0), str(c.constant(1)))),
    "unix_date": (1, 1, lambda c: counted(f"({c.family(0, 'date')} - DATE '1970-01-01')")),
    "unix_micros": (1, 1, lambda c: Sql(f"epoch_us({c.family(0, 'timestamp')})", "BIGINT")),
    "unix_millis": (1, 1, lambda c: Sql(_floor_division(f"epoch_us({c.family(0, 'timestamp')})", 1000), "BIGINT")),
    "unix_seconds": (1, 1, lambda c: Sql(_floor_division(f"epoch_us({c.family(0, 'timestamp')})", 1000000), "BIGINT")),
    # Rounds toward zero, unlike unix_seconds.
    "unix_timestamp": (1, 1, lambda c: Sql(f"(epoch_us({c.family(0, 'timestamp')}) // 1000000)", "BIGINT")),
    "timestamp_micros": (1, 1, simple("make_timestamp(CAST({} AS BIGINT))", "TIMESTAMP", "integer")),
    "timestamp_millis": (1, 1, simple("make_timestamp(CAST({} AS BIGINT) * 1000)", "TIMESTAMP", "integer")),
    "timestamp_seconds": (1, 1, simple("make_timestamp(CAST({} AS BIGINT) * 1000000)", "TIMESTAMP", "integer")),
    "date_from_unix_date": (1, 1, simple("(DATE '1970-01-01' + CAST({} AS INTEGER))", "DATE", "integer")),
    # arrays and maps
    "array": (1, 255, _array),
    **dict.fromkeys(["size", "cardinality", "array_size"], (1, 1, _size)),
    "array_contains": (2, 2, lambda c: Sql(_contains(*alike(c)), "BOOLEAN")),
    "[]": (2, 2, lambda c: element(c, base=0, strict=True)),
    "element_at": (2, 2, lambda c: element(c, base=1, strict=True)),
    "try_element_at": (2, 2, lambda c: element(c, base=1, strict=False)),
    "get": (2, 2, lambda c: element(c, base=0, strict=False)),
    "map_contains_key": (2, 2, lambda c: Sql(f"map_contains({c.family(0, 'map')}, {c.args[1].code})", "BOOLEAN")),
    # casts
    **{
        name: (1, 1, _cast_function(TYPES[name.upper()]))
        for name in (
            *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "binary"),
            *("date", "timestamp"),
        )
    },
}

#: Functions over several rows, for messages.
AGGREGATES = frozenset(
    (
        *("any", "any_value", "approx_count_distinct", "array_agg", "avg", "bool_and", "bool_or", "collect_list"),
        *("collect_set", "corr", "count", "count_if", "covar_pop", "covar_samp", "dense_rank", "every", "first"),
        *("first_value", "kurtosis", "lag", "last", "last_value", "lead", "listagg", "max", "max_by", "mean", "median"),
        *("min", "min_by", "mode", "ntile", "percentile", "rank", "row_number", "skewness", "some", "std", "stddev"),
        *("stddev_pop", "stddev_samp", "string_agg", "sum", "var_pop", "var_samp", "variance"),
    )
)
#: Non-deterministic functions.
NON_DETERMINISTIC = frozenset(
    (
        *("input_file_name", "monotonically_increasing_id", "rand", "randn", "random", "randstr", "shuffle"),
        *("spark_partition_id", "uniform", "uuid"),
    )
)
