"""Functions and operators of DataFusion, which SQL for pylance's names follows, as DuckDB SQL.

``tests/lance/scan/test_datafusion.py`` compares each with pylance.
"""

from __future__ import annotations

from sqlglot import exp

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.sql.arithmetic import arithmetic
from trilake.expr.sql.calls import Call
from trilake.expr.sql.functions import FUNCTIONS, Function, Handler, alike, array_has, simple
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql, at_least, counted
from trilake.lance.scan.functions import LANCE_FUNCTIONS


def _divide(call: Call) -> Sql:
    """Integers are divided as integers, and a division by zero of floating-point numbers is infinite."""
    left, right = call.args
    families = {left.family, right.family}
    if families <= {"integer", "void"}:
        return arithmetic(call.translator.typed, exp.IntDiv, left, right)
    if families & {"float", "double"}:
        return Sql(f"({call.number(0)} / {call.number(1)})", "DOUBLE")
    return FUNCTIONS["/"][2](call)


def _log(call: Call) -> Sql:
    """``log(x)`` has base 10, ``log(base, x)`` any."""
    if len(call.args) == 1:
        return _logarithm("log10")(call)
    base, x = call.number(0), call.number(1)
    return Sql(f"({_guarded_log('ln', x)} / {_guarded_log('ln', base)})", "DOUBLE")


def _guarded_log(name: str, x: str) -> str:
    return f"(CASE WHEN {x} < 0 THEN 'nan'::DOUBLE WHEN {x} = 0 THEN '-inf'::DOUBLE ELSE {name}({x}) END)"


def _logarithm(name: str) -> Handler:
    return lambda c: Sql(_guarded_log(name, c.number(0)), "DOUBLE")


def _trunc(call: Call) -> Sql:
    digits = call.constant(1) if len(call.args) > 1 else 0
    if not isinstance(digits, int) or not 0 <= digits <= 18:
        raise FilterError(f"the number of digits of {call.name} must be from 0 to 18, got {digits!r:.80}")
    scale = f"1e{digits}"
    return Sql(f"(trunc({call.number(0)} * {scale}) / {scale})", "DOUBLE")


def _of_integers(name: str) -> Function:
    """A function of two integers."""
    return 2, 2, simple(f"{name}(CAST({{}} AS BIGINT), CAST({{}} AS BIGINT))", "BIGINT", "integer", "integer")


def _of_double(name: str) -> Function:
    return 1, 1, simple(f"{name}({{}})", "DOUBLE", "number")


def _binary(call: Call) -> str:
    value = call.family(0, "string", "binary")
    return value if call.args[0].family == "binary" else f"encode({value})"


def _encode(call: Call) -> Sql:
    match call.constant(1):
        case "hex":
            return Sql(f"lower(hex({_binary(call)}))", "VARCHAR")
        case "base64":
            return Sql(f"rtrim(to_base64({_binary(call)}), '=')", "VARCHAR")
    raise FilterError(f"{call.name} supports only 'hex' and 'base64'")


def _substring(call: Call) -> Sql:
    """Characters before the first one count, so that a start of -1 with a length of 3 returns the first character."""
    start = call.integer(1)
    first = at_least(start, 1)
    rest = [at_least(f"({call.integer(2)} + {start} - {first})", 0)] if len(call.args) > 2 else []
    return Sql(f"substring({', '.join([call.string(0), first, *rest])})", "VARCHAR")


def _initcap(call: Call) -> Sql:
    words = f"regexp_extract_all({call.string(0)}, '[\\p{{L}}\\p{{N}}]+|[^\\p{{L}}\\p{{N}}]+')"
    return Sql(f"array_to_string([upper(w[1]) || lower(w[2:]) for w in {words}], '')", "VARCHAR")


def _regexp_replace(call: Call) -> Sql:
    """Replace the first match, or all with the flag ``g``."""
    parts = [call.string(0), *(single_quoted(str(call.constant(i))) for i in range(1, len(call.args)))]
    return Sql(f"regexp_replace({', '.join(parts)})", "VARCHAR")


def _regexp_count(call: Call) -> Sql:
    pattern = single_quoted(str(call.constant(1)))
    return Sql(f"coalesce(len(regexp_extract_all({call.string(0)}, {pattern})), 0)", "BIGINT")


def _date_part(call: Call) -> Sql:
    """Numbers days of the week from 0, a Sunday, and returns whole seconds."""
    unit = str(call.constant(0)).lower()
    time = call.timestamp(1) if call.args[1].family == "timestamp" else call.date(1)
    if unit == "epoch":
        return Sql(f"epoch({time})", "DOUBLE")
    if unit not in ("year", "quarter", "month", "week", "day", "doy", "dow", "hour", "minute", "second"):
        raise FilterError(f"{call.name} cannot extract {unit!r:.80}")
    return counted(f"date_part({single_quoted(unit)}, {time})")


# --- lists ------------------------------------------------------------------------------------------------------------


def _of_list(template: str, result: str | None = None) -> Handler:
    """A function of one list, and then of whole numbers; by default the result has the type of the list."""

    def handle(call: Call) -> Sql:
        numbers = (call.integer(i) for i in range(1, len(call.args)))
        return Sql(template.format(call.family(0, "array"), *numbers), result or call.args[0].type)

    return handle


def _with_value(template: str, result: str | None = None) -> Handler:
    """A function of a list and a value of the type of its items."""

    def handle(call: Call) -> Sql:
        sql = template.format(*alike(call))
        return Sql(sql, result) if result else call.translator.typed(sql)

    return handle


def _of_lists(template: str) -> Handler:
    """A function of lists, whose result has the type that DuckDB finds."""

    def handle(call: Call) -> Sql:
        lists = (call.family(i, "array") for i in range(len(call.args)))
        return call.translator.typed(template.format(*lists))

    return handle


def _distinct(items: str) -> str:
    """The distinct items, each at the place of the first."""
    return f"[x for x, i in {items} if list_position({items}, x) = i]"


def _replace(template: str) -> Handler:
    def handle(call: Call) -> Sql:
        items, old = alike(call)
        new = cast(call.args[2], call.translator.typed(f"{items}[1]").type).code
        return call.translator.typed(template.format(items, old, new))

    return handle


def _sort(call: Call) -> Sql:
    words = [str(call.constant(i)).upper() for i in range(1, len(call.args))]
    order, nulls = [*words, *("ASC", "NULLS FIRST")[len(words) :]]
    if order not in ("ASC", "DESC") or nulls not in ("NULLS FIRST", "NULLS LAST"):
        raise FilterError(f"{call.name} sorts 'ASC' or 'DESC', with 'NULLS FIRST' or 'NULLS LAST'")
    return Sql(f"list_sort({call.family(0, 'array')}, '{order}', '{nulls}')", call.args[0].type)


def _joined(call: Call) -> Sql:
    items, separator = call.family(0, "array"), call.string(1)
    if len(call.args) > 2:
        items = f"[coalesce(CAST(x AS VARCHAR), {call.string(2)}) for x in {items}]"
    # DuckDB returns null if all items are null.
    return Sql(
        f"(CASE WHEN {items} IS NOT NULL THEN coalesce(array_to_string({items}, {separator}), '') END)", "VARCHAR"
    )


def _length(call: Call) -> Sql:
    if call.constant(1) != 1:
        raise FilterError(f"{call.name} supports only the first dimension")
    return Sql(f"len({call.family(0, 'array')})", "BIGINT")


_PRESENT = "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN "
#: Without the first item that is equal; the whole list if there is none.
_REMOVED = "coalesce({0}[1:list_position({0}, {1}) - 1] || {0}[list_position({0}, {1}) + 1:], {0})"
_REPLACED = "coalesce({0}[1:list_position({0}, {1}) - 1] || [{2}] || {0}[list_position({0}, {1}) + 1:], {0})"

#: Functions of lists, by name after ``array_`` and ``list_``.
_LISTS: dict[str, Function] = {
    "length": (2, 2, _length),
    "empty": (1, 1, _of_list("(len({0}) = 0)", "BOOLEAN")),
    "position": (2, 2, _with_value("CAST(list_position({0}, {1}) AS BIGINT)", "BIGINT")),
    "positions": (2, 2, _with_value("[i for x, i in {0} if x = {1}]", "BIGINT[]")),
    "append": (2, 2, _with_value("list_concat({0}, [{1}])")),
    "concat": (2, 2, _of_lists("(CASE WHEN {0} IS NOT NULL OR {1} IS NOT NULL THEN list_concat({0}, {1}) END)")),
    "union": (2, 2, _of_lists(f"({_PRESENT}{_distinct('list_concat({0}, {1})')} END)")),
    "intersect": (
        2,
        2,
        _of_lists(f"({_PRESENT}[x for x in {_distinct('{0}')} if list_position({{1}}, x) IS NOT NULL] END)"),
    ),
    "except": (2, 2, _of_lists(f"({_PRESENT}[x for x in {_distinct('{0}')} if list_position({{1}}, x) IS NULL] END)")),
    "distinct": (1, 1, _of_list(_distinct("{0}"))),
    "remove": (2, 2, _with_value(_REMOVED)),
    "remove_all": (2, 2, _with_value("[x for x in {0} if x IS DISTINCT FROM {1}]")),
    "replace": (3, 3, _replace(_REPLACED)),
    "replace_all": (3, 3, _replace("[CASE WHEN x = {1} THEN {2} ELSE x END for x in {0}]")),
    "reverse": (1, 1, _of_list("list_reverse({0})")),
    "slice": (3, 3, _of_list("({0})[{1}:{2}]")),
    "pop_back": (1, 1, _of_list("({0})[1:len({0}) - 1]")),
    "pop_front": (1, 1, _of_list("({0})[2:]")),
    "sort": (1, 3, _sort),
    "max": (1, 1, _of_lists("list_max({0})")),
    "min": (1, 1, _of_lists("list_min({0})")),
    "any_value": (1, 1, _of_lists("list_any_value({0})")),
    "to_string": (2, 3, _joined),
}


def _prepend(call: Call) -> Sql:
    swapped = Call(call.name, call.nodes[::-1], call.args[::-1], call.translator)
    return _with_value("list_concat([{1}], {0})")(swapped)


#: Functions of pylance's SQL, by lower-case name; operators by their sign.
DATAFUSION_FUNCTIONS: dict[str, Function] = {
    **LANCE_FUNCTIONS,
    "/": (2, 2, _divide),
    "[]": FUNCTIONS["try_element_at"],
    # numbers
    **{
        name: _of_double(name)
        for name in (
            *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cot"),
            *("degrees", "radians"),
        )
    },
    "atan2": (2, 2, simple("atan2({}, {})", "DOUBLE", "number", "number")),
    **{name: (1, 1, _logarithm(name)) for name in ("ln", "log10", "log2")},
    "log": (1, 2, _log),
    "trunc": (1, 2, _trunc),
    "isnan": (1, 1, simple("isnan({})", "BOOLEAN", "number")),
    "iszero": (1, 1, simple("({} = 0)", "BOOLEAN", "number")),
    "nanvl": (2, 2, simple("(CASE WHEN isnan({0}) THEN {1} ELSE {0} END)", "DOUBLE", "number", "number")),
    "factorial": (1, 1, lambda c: Sql(f"CAST(factorial(CAST({c.integer(0)} AS INTEGER)) AS BIGINT)", "BIGINT")),
    **{name: _of_integers(name) for name in ("gcd", "lcm")},
    # strings
    "concat": (1, 255, lambda c: Sql(f"concat({', '.join(map(c.string, range(len(c.args))))})", "VARCHAR")),
    **{name: (2, 2, simple(f"{name}({{}}, {{}})", "VARCHAR", "string", "integer")) for name in ("left", "right")},
    **dict.fromkeys(["substring", "substr"], (2, 3, _substring)),
    "octet_length": (1, 1, simple("strlen({})", "INTEGER", "string")),
    "bit_length": (1, 1, simple("(8 * strlen({}))", "INTEGER", "string")),
    "ascii": (1, 1, simple("(CASE WHEN {0} = '' THEN 0 ELSE unicode({0}) END)", "INTEGER", "string")),
    "initcap": (1, 1, _initcap),
    "to_hex": (1, 1, lambda c: Sql(f"lower(hex(CAST({c.integer(0)} AS BIGINT)))", "VARCHAR")),
    "encode": (2, 2, _encode),
    "regexp_replace": (3, 4, _regexp_replace),
    "regexp_count": (2, 2, _regexp_count),
    "string_to_array": (
        2,
        2,
        simple("(CASE WHEN {0} = '' THEN [] ELSE string_split({0}, {1}) END)", "VARCHAR[]", "string", "string"),
    ),
    # dates and times
    **dict.fromkeys(["date_part", "datepart"], (2, 2, _date_part)),
    "to_char": (2, 2, lambda c: Sql(f"strftime({c.timestamp(0)}, {single_quoted(str(c.constant(1)))})", "VARCHAR")),
    "to_unixtime": (1, 1, lambda c: Sql(f"CAST(epoch({c.timestamp(0)}) AS BIGINT)", "BIGINT")),
    # lists
    **{f"{prefix}_{name}": function for name, function in _LISTS.items() for prefix in ("array", "list")},
    **dict.fromkeys(["array_prepend", "list_prepend"], (2, 2, _prepend)),
    "array_contains": (2, 2, array_has),
    "flatten": (1, 1, _of_lists("flatten({0})")),
}
