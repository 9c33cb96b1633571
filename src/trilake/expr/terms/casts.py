"""Spark's ANSI casts as DuckDB SQL: a value that does not fit the target type is an error.

DuckDB's casts differ in what they accept and how they round, so each pair of types is listed; others are not supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.terms.datatypes import NAMES
from trilake.expr.terms.duckdb_sql import INTEGERS, Sql, decimal_parameters, fail

_SPACE = r"[\x00-\x20]*"
_INTEGER = rf"{_SPACE}[+-]?[0-9]+{_SPACE}"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_SCIENTIFIC = r"([+-]?)([0-9]*)\.?([0-9]*)[eE]([+-]?[0-9]+)"
_INFINITY = rf"(?i){_SPACE}[+-]?inf(inity)?{_SPACE}"
_DATE = rf"{_SPACE}([+-]?[0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T](?s:.*))?)?)?{_SPACE}"
_TIMESTAMP = (
    rf"{_SPACE}([+-]?[0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?"
    rf" *([A-Za-z][A-Za-z0-9_/]*)?((?:[+-][0-9]{{1,2}}(?::?[0-9]{{2}})?)?))?)?)?{_SPACE}"
)
_OFFSET = "([+-])([0-9]{1,2}):?([0-9]{2})?"

if TYPE_CHECKING:
    from sqlglot import exp

#: DuckDB's types by the names of a cast's target, or of the function that casts.
TYPES = {"DECIMAL": "DECIMAL(10,0)", **{name: names.duckdb for names in NAMES.values() for name in names.casts}}


def target_type(node: exp.DataType) -> str:
    """DuckDB's name of a cast's target type.  Raises :class:`FilterError` for unsupported types."""
    name = node.this.value
    if name == "DECIMAL":
        if not all(p.name.isascii() and p.name.isdigit() and len(p.name) < 5 for p in node.expressions):
            raise FilterError(f"{node.sql('databricks')} is not a Spark type", help="write it as DECIMAL(10, 2)")
        numbers = [int(p.name) for p in node.expressions]
        precision, scale = [*numbers, *(10, 0)[len(numbers) :]]
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise FilterError(f"decimal({precision},{scale}) is not a Spark type")
        return f"DECIMAL({precision},{scale})"
    if name not in TYPES or node.expressions:
        raise FilterError(f"a filter cannot cast to {node.sql('databricks')}")
    return TYPES[name]


def cast(value: Sql, target: str, *, safe: bool = False) -> Sql:
    """Cast ``value`` to a DuckDB type by Spark's rules.

    ``safe`` makes it a ``try_cast``, which returns null instead of an error.  Raises :class:`FilterError` for an
    unsupported pair of types.
    """
    source = value.family
    family = Sql("", target).family
    if value.type == target:
        return value
    sql = value.code
    if source == "void":
        return Sql(f"CAST({sql} AS {target})", target)
    if source == "string":
        failed = "NULL" if safe else fail(f"a string cannot be cast to {_spark(target)}:", sql)
        return Sql(_try(_from_string(sql, target, failed), safe), target)
    plain = f"CAST({sql} AS {target})"
    match source, family:
        case (("float" | "double" | "decimal"), "integer"):
            plain = f"CAST(trunc({sql}) AS {target})"
        case (("float" | "double"), "decimal") | ("decimal", ("float" | "double")):
            # Through a string: Spark rounds the shortest decimal form of a number, half up, and DuckDB's cast of
            # decimals with 19 and more digits is one off.
            plain = f"CAST({f'CAST({sql} AS VARCHAR)' if source == 'decimal' else digits_of(value)} AS {target})"
            if family == "decimal":
                plain = f"(CASE WHEN isfinite({sql}) THEN {plain} END)"  # otherwise null, also with ANSI rules
        case "timestamp", "double":
            plain = f"(epoch_us({sql}) / 1000000.0::DOUBLE)"
        case "decimal", "string" if len(set(decimal_parameters(value.type))) == 1:
            # With fraction digits only: DuckDB 2.0 writes no leading 0.
            plain = rf"regexp_replace({plain}, '^(-?)\.', '\10.')"
        case (("float" | "double"), ("float" | "double" | "boolean")):
            if target == "FLOAT":
                # Out of range DuckDB fails where Spark returns infinity.
                plain = (
                    f"(CASE WHEN abs({sql}) <= 3.4028234663852886e38::DOUBLE OR isnan({sql}) OR isinf({sql}) "
                    f"THEN {plain} WHEN {sql} > 0 THEN 'inf'::FLOAT WHEN {sql} < 0 THEN '-inf'::FLOAT END)"
                )
        case "double", "string":
            plain = number_string(sql)
        case "timestamp", "integer":
            micros = f"epoch_us({sql})"
            plain = f"CAST(({micros} - ((({micros} % 1000000) + 1000000) % 1000000)) // 1000000 AS {target})"
        case "integer", "timestamp":
            plain = f"make_timestamp(CAST({sql} AS BIGINT) * 1000000)"
        case "binary", "string":
            plain = f"decode({sql})"
        case (
            (("integer" | "decimal"), ("integer" | "decimal" | "float" | "double" | "boolean" | "string"))
            | ("boolean", ("integer" | "float" | "double" | "string" | "decimal"))
            | (("date" | "timestamp"), ("date" | "timestamp" | "string"))
        ):
            pass
        case _:
            raise FilterError(
                f"a filter cannot cast {value.spark_type} to {_spark(target)}",
                help="compare the value itself, or compute the cast in Spark",
            )
    return Sql(_try(plain, safe), target)


def number_string(x: str) -> str:
    """Format a double like Java: ``1.0E10``, ``1.5``, ``NaN``.

    Java before 19 has an extra digit for a few numbers.  Numbers next to zero, with other digits in Java, are an error.
    """
    java_form = f"CAST(abs({x}) AS VARCHAR)"  # DuckDB has the same digits, with the point or exponent elsewhere
    digits = f"rtrim(ltrim(replace(split_part({java_form}, 'e', 1), '.', ''), '0'), '0')"
    behind = f"coalesce(nullif(substring({digits}, 2), ''), '0')"
    power = (
        f"(CASE WHEN contains({java_form}, 'e') THEN CAST(split_part({java_form}, 'e', 2) AS INTEGER) "
        f"WHEN abs({x}) < 1 THEN -1 - length(regexp_extract({java_form}, '^0\\.(0*)', 1)) "
        f"ELSE length(split_part({java_form}, '.', 1)) - 1 END)"
    )
    sign = f"(CASE WHEN {x} < 0 THEN '-' ELSE '' END)"
    return (
        f"(CASE WHEN isnan({x}) THEN 'NaN' WHEN isinf({x}) THEN {sign} || 'Infinity' "
        f"WHEN {x} <> 0 AND abs({x}) < 2.3e-308 THEN {fail('a number is too close to zero to cast to a string')} "
        f"WHEN {x} = 0 OR (abs({x}) >= 1e-3 AND abs({x}) < 1e7) THEN CAST({x} AS VARCHAR) "
        f"ELSE {sign} || left({digits}, 1) || '.' || {behind} || 'E' || CAST({power} AS VARCHAR) END)"
    )


def digits_of(number: Sql) -> str:
    """The shortest decimal form of a float, which Spark computes as a double, or of a double."""
    return without_exponent(f"CAST(CAST({number.code} AS DOUBLE) AS VARCHAR)")


def without_exponent(x: str) -> str:
    """Write a number in plain digits: with an exponent, DuckDB 2.0 casts ``10e-1`` to no ``DECIMAL(1,0)``, and
    ``1e-6`` to no ``DECIMAL(6,6)``.

    40 zeros on either side are enough: no decimal has more than 38 digits.  Null if the exponent is not an ``int``.
    """

    def part(group: int) -> str:
        return f"regexp_extract({x}, '{_SCIENTIFIC}', {group})"

    digits = f"({part(2)} || {part(3)})"
    point = f"(length({part(2)}) + CAST(TRY_CAST({part(4)} AS INTEGER) AS BIGINT))"
    return (
        f"(CASE WHEN NOT regexp_matches({x}, '[eE]') THEN {x} "
        f"WHEN {point} <= 0 THEN {part(1)} || '0.' || repeat('0', least(-{point}, 40)) || {digits} "
        f"WHEN {point} < length({digits}) THEN {part(1)} || left({digits}, {point}) || '.' || "
        f"substring({digits}, {point} + 1) "
        f"WHEN {point} IS NOT NULL "
        f"THEN {part(1)} || {digits} || repeat('0', least({point} - length({digits}), 40)) END)"
    )


def _try(sql: str, safe: bool) -> str:
    return f"TRY({sql})" if safe else sql


def _spark(target: str) -> str:
    return Sql("", target).spark_type


def _from_string(sql: str, target: str, failed: str) -> str:
    matches = f"CASE WHEN {sql} IS NULL THEN NULL WHEN regexp_full_match({sql},"
    if target in INTEGERS:
        digits = f"regexp_extract({sql}, '[+-]?[0-9]+')"
        return f"({matches} {single_quoted(_INTEGER)}) THEN CAST({digits} AS {target}) ELSE {failed} END)"
    if target in ("FLOAT", "DOUBLE"):
        number = f"CAST(regexp_extract({sql}, {single_quoted(_NUMBER)}) AS {target})"
        return (
            f"({matches} {single_quoted(f'{_SPACE}{_NUMBER}[dDfF]?{_SPACE}')}) THEN {number} "
            f"WHEN regexp_full_match({sql}, {single_quoted(_INFINITY)}) "
            f"THEN (CASE WHEN contains({sql}, '-') THEN '-inf' ELSE 'inf' END)::{target} "
            f"WHEN regexp_full_match({sql}, {single_quoted(f'(?i){_SPACE}nan{_SPACE}')}) THEN 'nan'::{target} "
            f"ELSE {failed} END)"
        )
    if target.startswith("DECIMAL"):
        number = without_exponent(f"regexp_extract({sql}, {single_quoted(_NUMBER)})")
        valid = f"{matches} {single_quoted(f'{_SPACE}{_NUMBER}{_SPACE}')}) AND {number} IS NOT NULL"
        return f"({valid} THEN CAST({number} AS {target}) ELSE {failed} END)"
    if target == "BOOLEAN":
        word = f"lower(trim({sql}))"
        return (
            f"(CASE WHEN {word} IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
            f"WHEN {word} IN ('f', 'false', 'n', 'no', '0') THEN FALSE WHEN {sql} IS NOT NULL THEN {failed} END)"
        )
    if target == "DATE":
        year, month, day = (_group(sql, _DATE, i) for i in (1, 2, 3))
        return f"({matches} {single_quoted(_DATE)}) THEN make_date({year}, {month}, {day}) ELSE {failed} END)"
    if target == "BLOB":
        return f"encode({sql})"
    return f"({matches} {single_quoted(_TIMESTAMP)}) THEN {_timestamp(sql, failed)} ELSE {failed} END)"


def _group(x: str, pattern: str, group: int) -> str:
    """A group of digits as a number; a missing month or day is 1."""
    return f"coalesce(try_cast(regexp_extract({x}, {single_quoted(pattern)}, {group}) AS BIGINT), 1)"


def _timestamp(x: str, failed: str) -> str:
    def part(group: int) -> str:
        return f"regexp_extract({x}, {single_quoted(_TIMESTAMP)}, {group})"

    def number(group: int) -> str:
        return f"coalesce(try_cast({part(group)} AS BIGINT), 0)"

    days = f"make_date({_group(x, _TIMESTAMP, 1)}, {_group(x, _TIMESTAMP, 2)}, {_group(x, _TIMESTAMP, 3)})"
    hour, minute, second = number(4), number(5), number(6)
    fraction = f"CAST(rpad(left({part(7)}, 6), 6, '0') AS BIGINT)"
    sign, hours, minutes = (f"regexp_extract({part(9)}, {single_quoted(_OFFSET)}, {i})" for i in (1, 2, 3))
    offset = (
        f"(CASE WHEN {sign} = '-' THEN -1 ELSE 1 END) * "
        f"(coalesce(try_cast({hours} AS BIGINT), 0) * 60 + coalesce(try_cast({minutes} AS BIGINT), 0))"
    )
    micros = f"(({hour} * 60 + {minute}) * 60 + {second}) * 1000000 + {fraction}"
    local = f"(CAST({days} AS TIMESTAMP) + to_microseconds({micros}))"
    zone = part(8)
    return (
        f"(CASE WHEN {hour} > 23 OR {minute} > 59 OR {second} > 59 THEN {failed} "
        f"WHEN {zone} IN ('', 'Z', 'UTC', 'GMT', 'UT') THEN {local} - to_minutes({offset}) "
        f"WHEN {part(9)} = '' THEN timezone('UTC', timezone({zone}, {local})) ELSE {failed} END)"
    )
