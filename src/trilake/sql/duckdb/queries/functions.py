"""Functions of one row that queries have beside those of filters, as DuckDB's of the same meaning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from trilake.common.text import single_quoted
from trilake.errors import FilterError, InvalidArgumentError
from trilake.expr.sql.calls import Call
from trilake.expr.sql.datetimes import parse_by_pattern
from trilake.expr.sql.regex import to_re2
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql, at_least, common_type, counted, fail
from trilake.expr.terms.nested_order import fields_of, parts_of
from trilake.sql.duckdb.queries.arrays import ARRAY_FUNCTIONS, joined

Handler = Callable[[Call], Sql]

#: Functions whose times are instants, whatever their arguments are.
INSTANTS = frozenset(
    (
        *("date_trunc", "to_timestamp", "timestamp", "timestamp_micros", "timestamp_millis", "timestamp_seconds"),
        *("now", "current_timestamp", "make_timestamp"),
    )
)
#: Functions whose times are local ones, whatever their arguments are.
LOCAL_TIMES = frozenset(("to_timestamp_ntz", "localtimestamp"))
#: Units of ``timestampdiff`` in microseconds; months and what they make up are counted apart.
_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: The number of a day by its name, and by its first two and three letters.
_DAY_NUMBERS = {name: number for number, day in enumerate(_DAYS) for name in (day, day[:2], day[:3])}


# --- numbers ----------------------------------------------------------------------------------------------------------


def _real(template: str, count: int = 1) -> tuple[int, int, Handler]:
    return count, count, lambda c: Sql(template.format(*(c.number(i) for i in range(count))), "DOUBLE")


def _log(call: Call) -> Sql:
    if len(call.args) == 1:
        return Sql(f"(CASE WHEN {call.number(0)} > 0 THEN ln({call.number(0)}) END)", "DOUBLE")
    base, x = call.number(0), call.number(1)
    return Sql(f"(CASE WHEN {base} > 0 AND {x} > 0 THEN ln({x}) / ln({base}) END)", "DOUBLE")


def _nanvl(call: Call) -> Sql:
    x, y = call.number(0), call.number(1)
    return Sql(f"(CASE WHEN isnan({x}) THEN {y} ELSE {x} END)", "DOUBLE")


def _negative(call: Call) -> Sql:
    return replace(call.args[0], text=f"(-{call.family(0, 'integer', 'decimal', 'float', 'double')})")


def _hex(call: Call) -> Sql:
    value = call.args[0]
    if value.family == "integer":
        return Sql(f"hex({cast(value, 'BIGINT').text})", "VARCHAR")
    return Sql(f"hex({call.family(0, 'string', 'binary')})", "VARCHAR")


def _shift(operator: str) -> Handler:
    """``shiftleft`` and ``shiftright``, by as many bits as the low bits of the second argument say."""

    def handle(call: Call) -> Sql:
        kind = "BIGINT" if call.args[0].type == "BIGINT" else "INTEGER"
        bits = 64 if kind == "BIGINT" else 32
        x, n = call.integer(0), call.integer(1)
        wide = f"CAST({x} AS HUGEINT)"
        count = f"({n} & {bits - 1})"
        if operator == ">>":
            return Sql(f"CAST(({x} >> {count}) AS {kind})", kind)
        size = f"{1 << bits}::HUGEINT"
        low = f"((({wide} * (1::HUGEINT << {count})) % {size} + {size}) % {size})"
        return Sql(
            f"CAST((CASE WHEN {low} >= {1 << (bits - 1)}::HUGEINT THEN {low} - {size} ELSE {low} END) AS {kind})", kind
        )

    return handle


# --- texts ------------------------------------------------------------------------------------------------------------


def _initcap(call: Call) -> Sql:
    x = call.string(0)
    words = f"string_split({x}, ' ')"
    capital = 'lambda "e#0": upper(left("e#0", 1)) || lower(substring("e#0", 2))'
    plain = f"array_to_string(list_transform({words}, {capital}), ' ')"
    refuse = fail("initcap is known here for ASCII texts only:", x)
    return Sql(
        f"(CASE WHEN {x} IS NULL THEN NULL WHEN strlen({x}) > length({x}) THEN {refuse} ELSE {plain} END)", "VARCHAR"
    )


def _regexp_replace(call: Call) -> Sql:
    pattern, target = str(call.constant(1)), str(call.constant(2))
    if "\\" in target or re.search(r"\$(?!\d)", target):
        raise FilterError("regexp_replace knows $1 to $9 in its replacement, and no backslash")
    replacement = re.sub(r"\$(\d)", r"\\\1", target)
    return Sql(
        f"regexp_replace({call.string(0)}, {single_quoted(to_re2(pattern))}, {single_quoted(replacement)}, 'g')",
        "VARCHAR",
    )


def _regexp_all(call: Call) -> Sql:
    group = call.constant(2) if len(call.args) > 2 else 1
    pattern = to_re2(str(call.constant(1)))
    if not isinstance(group, int) or not 0 <= group <= 9:
        raise FilterError("regexp_extract_all needs the number of a group from 0 to 9")
    return Sql(f"regexp_extract_all({call.string(0)}, {single_quoted(pattern)}, {group})", "VARCHAR[]")


def _regexp_count(call: Call) -> Sql:
    return counted(f"len(regexp_extract_all({call.string(0)}, {single_quoted(to_re2(str(call.constant(1))))}))")


def _substring_index(call: Call) -> Sql:
    count = call.constant(2)
    x, separator = call.string(0), call.string(1)
    if not isinstance(count, int):
        raise FilterError("argument 3 of substring_index must be a constant")
    parts = f"string_split({x}, {separator})"
    taken = f"{parts}[1:{count}]" if count > 0 else f"{parts}[greatest(len({parts}) - {-count} + 1, 1):]"
    text = "''" if count == 0 else joined(taken, separator)
    return Sql(
        f"(CASE WHEN {x} IS NULL OR {separator} IS NULL THEN NULL WHEN {separator} = '' THEN '' ELSE {text} END)",
        "VARCHAR",
    )


def _find_in_set(call: Call) -> Sql:
    x, among = call.string(0), call.string(1)
    found = f"coalesce(list_position(string_split({among}, ','), {x}), 0)"
    return Sql(
        f"(CASE WHEN {x} IS NULL OR {among} IS NULL THEN NULL WHEN contains({x}, ',') THEN 0 "
        f"ELSE CAST({found} AS INTEGER) END)",
        "INTEGER",
    )


def _locate(call: Call) -> Sql:
    """``locate(sought, text, from)``."""
    sought, x, start = call.string(0), call.string(1), call.integer(2)
    found = f"instr(substring({x}, {start}), {sought})"
    return counted(
        f"(CASE WHEN {start} IS NULL THEN 0 WHEN {x} IS NULL OR {sought} IS NULL THEN NULL WHEN {start} < 1 THEN 0 "
        f"WHEN {sought} = '' THEN 1 WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1 END)"
    )


def _elt(call: Call) -> Sql:
    n = call.integer(0)
    whens = " ".join(f"WHEN {i} THEN {call.string(i)}" for i in range(1, len(call.args)))
    missing = f"(CASE WHEN {n} IS NOT NULL THEN {fail('elt has no such argument')} END)"
    return Sql(f"(CASE {n} {whens} ELSE {missing} END)", "VARCHAR")


def _decode(call: Call) -> Sql:
    """``decode(x, a, 1, b, 2, other)``."""
    value, *rest = call.args
    pairs = list(zip(rest[::2], rest[1::2], strict=False))
    default = rest[-1] if len(rest) % 2 else None
    results = [r for _, r in pairs] + ([default] if default is not None else [])
    target = common_type(results, "the results of decode")
    same = call.translator.comparison
    whens = " ".join(
        f"WHEN {value.text} IS NULL AND {k.text} IS NULL OR coalesce({same('=', value, k).text}, FALSE) "
        f"THEN {cast(r, target).text}"
        for k, r in pairs
    )
    last = "" if default is None else f" ELSE {cast(default, target).text}"
    return Sql(f"(CASE {whens}{last} END)", target)


def _space(call: Call) -> Sql:
    n = call.integer(0)
    return Sql(
        f"repeat(' ', (CASE WHEN {n} > 10000 THEN {fail('space is limited to 10000')} ELSE {at_least(n, 0)} END))",
        "VARCHAR",
    )


def _character(call: Call) -> Sql:
    n = call.integer(0)
    return Sql(f"(CASE WHEN {n} < 0 THEN '' ELSE chr(CAST({n} % 256 AS INTEGER)) END)", "VARCHAR")


def _json_object(call: Call) -> Sql:
    path = str(call.constant(1))
    if not re.fullmatch(r"\$(\.\w+|\[\d+\])*", path, re.ASCII):
        raise FilterError(f"the path {path!r} of {call.name} is not known here", help="write it as $.a.b[0]")
    x = call.string(0)
    return Sql(f"(CASE WHEN json_valid({x}) THEN json_extract_string({x}, {single_quoted(path)}) END)", "VARCHAR")


def _base64(call: Call) -> Sql:
    x = call.family(0, "string", "binary")
    return Sql(f"to_base64({x if call.args[0].family == 'binary' else f'encode({x})'})", "VARCHAR")


# --- dates and times --------------------------------------------------------------------------------------------------


def _unit(call: Call) -> str:
    node = call.nodes[0]
    return str(getattr(node, "name", "")).lower().removesuffix("s")


def _in_month(time: str) -> str:
    """How far a time is in its month, in microseconds."""
    return f"(epoch_us({time}) - epoch_us(date_trunc('month', {time})))"


def _difference(call: Call) -> Sql:
    """``timestampdiff(unit, a, b)``: whole units between two times."""
    unit = _unit(call)
    start, end = call.timestamp(1), call.timestamp(2)
    if unit in _MICROS:
        return Sql(f"((epoch_us({end}) - epoch_us({start})) // {_MICROS[unit]})", "BIGINT")
    if unit in _MONTHS:
        months = f"((year({end}) - year({start})) * 12 + month({end}) - month({start}))"
        later, earlier = (f"{_in_month(end)} {sign} {_in_month(start)}" for sign in "<>")
        over = f"WHEN {months} > 0 AND {later} THEN 1 WHEN {months} < 0 AND {earlier} THEN -1"
        whole = f"({months} - (CASE {over} ELSE 0 END))"
        return Sql(f"CAST({whole} // {_MONTHS[unit]} AS BIGINT)", "BIGINT")
    raise FilterError(f"{call.name} knows no unit {unit!r}", help=f"there are {', '.join((*_MICROS, *_MONTHS))}")


def _moved(call: Call) -> Sql:
    """``timestampadd(unit, n, time)``."""
    unit = _unit(call)
    count, time = call.integer(1), call.timestamp(2)
    if unit in _MONTHS:
        return Sql(f"({time} + to_months(CAST({count} * {_MONTHS[unit]} AS INTEGER)))", "TIMESTAMP")
    if unit in _MICROS:
        return Sql(f"({time} + to_microseconds(CAST({count} AS BIGINT) * {_MICROS[unit]}))", "TIMESTAMP")
    raise FilterError(f"{call.name} knows no unit {unit!r}", help=f"there are {', '.join((*_MICROS, *_MONTHS))}")


def _next_day(call: Call) -> Sql:
    name = str(call.constant(1)).lower()
    if name not in _DAY_NUMBERS:
        raise InvalidArgumentError(f"{name!r} is no day of the week")
    day = call.date(0)
    ahead = f"((({_DAY_NUMBERS[name]} - (isodow({day}) - 1) - 1) % 7 + 7) % 7 + 1)"
    return Sql(f"({day} + CAST({ahead} AS INTEGER))", "DATE")


def _make_timestamp(call: Call) -> Sql:
    year, month, day, hour, minute = (call.integer(i) for i in range(5))
    seconds = call.number(5)
    wrong = f"{hour} NOT BETWEEN 0 AND 23 OR {minute} NOT BETWEEN 0 AND 59 OR {seconds} < 0 OR {seconds} >= 60"
    made = (
        f"(CAST(make_date({year}, {month}, {day}) AS TIMESTAMP) + "
        f"to_microseconds(({hour} * 60 + {minute}) * 60000000::BIGINT + CAST(round({seconds} * 1000000) AS BIGINT)))"
    )
    return Sql(
        f"(CASE WHEN {wrong} THEN {fail('a part of a timestamp is outside of its range')} ELSE {made} END)", "TIMESTAMP"
    )


def _months_between(call: Call) -> Sql:
    a, b = call.timestamp(0), call.timestamp(1)
    months = f"((year({a}) - year({b})) * 12 + month({a}) - month({b}))"
    last = " AND ".join(f"day({t}) = day(last_day({t}))" for t in (a, b))

    def rest(t: str) -> str:
        return f"({_in_month(t)} // 1000000)"

    part = f"CAST(({rest(a)} - {rest(b)}) AS DOUBLE) / 2678400.0::DOUBLE"
    rounded = f"CAST(CAST(CAST({months} + {part} AS VARCHAR) AS DECIMAL(38,8)) AS DOUBLE)"
    return Sql(
        f"(CASE WHEN day({a}) = day({b}) OR ({last}) THEN CAST({months} AS DOUBLE) ELSE {rounded} END)", "DOUBLE"
    )


def _unix_timestamp(call: Call) -> Sql:
    time = (
        parse_by_pattern(call, "TIMESTAMP").text
        if len(call.args) > 1 and call.args[0].family == "string"
        else call.timestamp(0)
    )
    return Sql(f"(epoch_us({time}) // 1000000)", "BIGINT")


def spark_type(kind: str, *, instants: bool = True) -> str:
    """A DuckDB type as Spark names it; ``instants`` says whether the times in it are.

    >>> spark_type("STRUCT(a INTEGER, b VARCHAR[])"), spark_type("TIMESTAMP[]", instants=False)
    ('struct<a:int,b:array<string>>', 'array<timestamp_ntz>')
    """
    value = Sql("", kind)

    def shown(inner: str) -> str:
        return spark_type(inner, instants=instants)

    if value.family == "array":
        return f"array<{shown(parts_of(kind)[0])}>"
    if value.family == "map":
        return f"map<{','.join(map(shown, parts_of(kind)))}>"
    if value.family == "struct":
        return f"struct<{','.join(f'{n}:{shown(t)}' for n, t in fields_of(kind))}>"
    return "timestamp_ntz" if value.family == "timestamp" and not instants else value.spark_type


def _text(template: str, result: str = "VARCHAR", count: int = 1) -> tuple[int, int, Handler]:
    def handle(call: Call) -> Sql:
        text = template.format(*(call.string(i) for i in range(count)))
        return counted(text) if result == "INTEGER" else Sql(text, result)

    return count, count, handle


#: Functions whose first of three arguments is the word of a unit.
OF_UNITS: Mapping[str, Handler] = {
    **dict.fromkeys(("timestampdiff", "timestamp_diff", "datediff", "date_diff"), _difference),
    **dict.fromkeys(("timestampadd", "timestamp_add", "dateadd", "date_add"), _moved),
}
#: By lower-case name: the least and the greatest number of arguments, and the translation.
MORE_FUNCTIONS: Mapping[str, tuple[int, int, Handler]] = {
    **ARRAY_FUNCTIONS,
    # numbers
    "log": (1, 2, _log),
    "cbrt": _real("cbrt({})"),
    **{name: _real(name + "({})") for name in ("sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians")},
    "atan2": _real("atan2({}, {})", 2),
    "hypot": _real("sqrt({0} * {0} + {1} * {1})", 2),
    "pi": (0, 0, lambda _: Sql("pi()", "DOUBLE")),
    "e": (0, 0, lambda _: Sql("exp(1::DOUBLE)", "DOUBLE")),
    "rint": _real("round_even({}, 0)"),
    "bin": (1, 1, lambda c: Sql(f"bin(CAST({c.integer(0)} AS BIGINT))", "VARCHAR")),
    "equal_null": (2, 2, lambda c: c.translator.comparison("IS NOT DISTINCT FROM", *c.args)),
    "negative": (1, 1, _negative),
    "positive": (1, 1, lambda c: c.args[0]),
    "nanvl": (2, 2, _nanvl),
    "hex": (1, 1, _hex),
    "unhex": (1, 1, lambda c: Sql(f"unhex({c.string(0)})", "BLOB")),
    "bit_count": (1, 1, lambda c: counted(f"bit_count(CAST({c.integer(0)} AS BIGINT))")),  # of 64 bits, always
    "shiftleft": (2, 2, _shift("<<")),
    "shiftright": (2, 2, _shift(">>")),
    # texts
    "initcap": (1, 1, _initcap),
    "ascii": _text("coalesce(ascii({0}), 0 * length({0}))", "INTEGER"),
    "octet_length": _text("strlen({})", "INTEGER"),
    "bit_length": _text("(strlen({}) * 8)", "INTEGER"),
    "levenshtein": _text("levenshtein({}, {})", "INTEGER", 2),
    "regexp_replace": (3, 3, _regexp_replace),
    "regexp_extract_all": (2, 3, _regexp_all),
    "regexp_count": (2, 2, _regexp_count),
    "substring_index": (3, 3, _substring_index),
    "find_in_set": (2, 2, _find_in_set),
    "locate": (3, 3, _locate),
    "elt": (2, 255, _elt),
    "decode": (3, 255, _decode),
    "space": (1, 1, _space),
    **dict.fromkeys(("chr", "char"), (1, 1, _character)),
    "get_json_object": (2, 2, _json_object),
    "base64": (1, 1, _base64),
    "unbase64": (1, 1, lambda c: Sql(f"from_base64({c.string(0)})", "BLOB")),
    # dates and times
    "next_day": (2, 2, _next_day),
    "make_timestamp": (6, 6, _make_timestamp),
    "months_between": (2, 2, _months_between),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), (1, 2, _unix_timestamp)),
    # others
    **dict.fromkeys(("rand", "random"), (0, 0, lambda _: Sql("random()", "DOUBLE"))),
    "uuid": (0, 0, lambda _: Sql("CAST(uuid() AS VARCHAR)", "VARCHAR")),
}
