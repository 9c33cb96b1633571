"""pylance's functions on lists and JSON columns, and its ``sha256``, for filters and expressions; Spark lacks them.

Here a JSON document is a string, and DuckDB's JSON functions read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.sql.calls import Call
from trilake.expr.sql.functions import FUNCTIONS, Function, array_has
from trilake.expr.terms.duckdb_sql import Sql, fail
from trilake.lance.scan.sql_functions import Rewrite, Rewrites

_STEP = re.compile(
    r"""\s*(?:\.\s*(?P<name>\w+|\*)|\.\s*"(?P<quoted>[^"\\]*)"|\[\s*"(?P<key>[^"\\]*)"\s*\]|\[\s*(?P<at>-?\d+|\*)\s*\])"""
)
_NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_SPECIAL = r"[+-]?(inf|infinity|nan)"


def _path(json_path: str) -> list[str]:
    """Translate a JSON path to DuckDB's syntax, split where it may match several values: at ``.*`` and ``[*]``."""
    json_path = json_path.strip()
    rest = json_path.removeprefix("$") if json_path.startswith("$") or not json_path else f".{json_path}"
    parts, at = ["$"], 0
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None:
            raise FilterError(
                f"{json_path!r} is not a JSON path that filters support",
                help="""valid paths are '$.a', '$.a.b', '$."a b"', '$.a[0]' and '$.a[*]'""",
            )
        at = step.end()
        if "*" in (step["name"], step["at"]):
            parts += [".*" if step["name"] else "[*]", "$"]
            continue
        name = next((n for n in (step["name"], step["quoted"], step["key"]) if n is not None), None)
        parts[-1] += f"[{step['at']}]" if name is None else f'."{name}"'
    return parts


def _matches(document: str, path: str) -> str:
    """Build the SQL of the list of values that a path matches."""
    values = f"[{document}]"
    for part in _path(path):
        if part == "[*]":  # a value that is not an array counts as an array of itself
            items = "CASE WHEN json_type(v) = 'ARRAY' THEN json_extract(v, '$[*]') ELSE [v] END"
            values = f"flatten([{items} for v in {values}])"
        elif part == ".*":
            values = f"flatten([json_extract(v, '$.*') for v in {values}])"
        elif "[-" in part:
            values = f"({values})[:0]"
        elif part != "$":
            quoted = single_quoted(part)
            values = f"[json_extract(v, {quoted}) for v in {values} if json_exists(v, {quoted})]"
    return values


#: Builds DuckDB's SQL of a call, from the SQL of the document, a path or key, and the SQL of a third argument.
Template = Callable[[str, str, str], str]


def _of_matches(to_sql: Callable[[str, str], str]) -> Template:
    """Build a function of the list of values that a path matches; null for a null document."""

    def template(document: str, path: str, value: str) -> str:
        document = f"CAST({document} AS JSON)"
        return f"(CASE WHEN {document} IS NOT NULL THEN {to_sql(_matches(document, path), value)} END)"

    return template


def _extract(hits: str, _: str) -> str:
    return f"CAST(CASE len({hits}) WHEN 0 THEN NULL WHEN 1 THEN ({hits})[1] ELSE to_json({hits}) END AS VARCHAR)"


def _contains(hits: str, value: str) -> str:
    """Whether an item equals the value, as JSON or as the content of a string."""
    items = f"flatten([json_extract(v, '$[*]') for v in {hits} if json_type(v) = 'ARRAY'])"
    as_json = f"list_contains([CAST(v AS VARCHAR) for v in {items}], CAST({value} AS VARCHAR))"
    as_string = f"list_contains([v ->> '$' for v in {items} if json_type(v) = 'VARCHAR'], CAST({value} AS VARCHAR))"
    return f"CASE WHEN {value} IS NOT NULL THEN {as_json} OR {as_string} END"


def _get(document: str, key: str) -> str:
    """Build the SQL of the value of a key, or at a position; a JSON pointer means both."""
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    return f"json_extract(CAST({document} AS JSON), {single_quoted(pointer)})"


def _get_as(target: str, cases: str) -> Template:
    """Build ``json_get_*``; ``cases`` are the branches for a value of JSON type ``{t}`` and content ``{s}``."""

    def template(document: str, key: str, _: str) -> str:
        value = _get(document, key)
        kind, content = f"json_type({value})", f"({value} ->> '$')"
        failed = fail(f"a JSON value cannot be converted to {target}:", f"CAST({value} AS VARCHAR)")
        none = f"WHEN {kind} IS NULL OR {kind} = 'NULL' THEN NULL"
        return f"(CASE {none} {cases.replace('{t}', kind).replace('{s}', content)} ELSE {failed} END)"

    return template


_SCALAR = "{t} NOT IN ('OBJECT', 'ARRAY')"
_IS_NUMBER = f"{_SCALAR} AND regexp_full_match({{s}}, '{_NUMBER}')"
_IS_FLOAT = f"{_IS_NUMBER} OR regexp_full_match({{s}}, '{_SPECIAL}', 'i')"
_TRUTH = "WHEN {t} = 'BOOLEAN' THEN CAST({s} = 'true' AS %s)"
_WORDS = "WHEN lower({s}) IN ('true', 'yes') THEN TRUE WHEN lower({s}) IN ('false', 'no') THEN FALSE"

#: By lower-case name: the number of arguments, the template, and DuckDB's type of the result.
_TEMPLATES: dict[str, tuple[int, Template, str]] = {
    "json_extract": (2, _of_matches(_extract), "VARCHAR"),
    "json_exists": (2, _of_matches(lambda hits, _: f"len({hits}) > 0"), "BOOLEAN"),
    "json_array_length": (2, _of_matches(lambda hits, _: f"CAST(json_array_length(({hits})[1]) AS BIGINT)"), "BIGINT"),
    "json_array_contains": (3, _of_matches(_contains), "BOOLEAN"),
    "json_get": (2, lambda document, key, _: f"CAST({_get(document, key)} AS VARCHAR)", "VARCHAR"),
    "json_get_string": (2, _get_as("a string", f"WHEN {_SCALAR} THEN {{s}}"), "VARCHAR"),
    # A fraction is rounded half away from zero, as DuckDB casts strings.
    "json_get_int": (
        2,
        _get_as("an integer", f"{_TRUTH % 'BIGINT'} WHEN {_IS_NUMBER} THEN CAST({{s}} AS BIGINT)"),
        "BIGINT",
    ),
    "json_get_float": (
        2,
        _get_as("a float", f"{_TRUTH % 'DOUBLE'} WHEN {_IS_FLOAT} THEN CAST({{s}} AS DOUBLE)"),
        "DOUBLE",
    ),
    "json_get_bool": (2, _get_as("a boolean", _WORDS), "BOOLEAN"),
}


def _function(count: int, template: Template, kind: str) -> Function:
    def handle(call: Call) -> Sql:
        value = call.args[2].code if count > 2 else ""
        return Sql(template(call.string(0), str(call.constant(1)), value), kind)

    return count, count, handle


def _array_has_null(call: Call) -> Sql:
    items = call.family(0, "array")
    return Sql(f"(list_count({items}) < len({items}))", "BOOLEAN")


#: Functions of Spark's filters and of pylance, by lower-case name.
LANCE_FUNCTIONS: dict[str, Function] = {
    **FUNCTIONS,
    "[]": FUNCTIONS["get"],  # null outside the list
    "array_has": (2, 2, array_has),
    "array_has_null": (1, 1, _array_has_null),
    "sha256": (1, 1, lambda c: Sql(f"from_hex(sha256({c.family(0, 'string', 'binary')}))", "BLOB")),
    **{name: _function(*template) for name, template in _TEMPLATES.items()},
}


def _in_sql(count: int, template: Template) -> Rewrite:
    def rewrite(arguments: list[str]) -> str | None:
        literal = _LITERAL.fullmatch(arguments[1]) if len(arguments) == count else None
        if literal is None:
            return None
        return template(arguments[0], literal[1].replace("''", "'"), arguments[2] if count > 2 else "")

    return rewrite


_LITERAL = re.compile(r"\s*'((?:[^']|'')*)'\s*")
_REWRITES = Rewrites({name: _in_sql(count, template) for name, (count, template, _) in _TEMPLATES.items()})


def in_duckdbs_words(sql: str) -> str:
    """Rewrite the calls of these functions in DuckDB's SQL.

    >>> in_duckdbs_words("SELECT json_get(a, 'b') FROM t")
    "SELECT CAST(json_extract(CAST(a AS JSON), '/b') AS VARCHAR) FROM t"
    """
    return _REWRITES.apply(sql)
