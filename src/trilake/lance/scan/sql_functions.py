"""Translate pylance's functions on lists, structs and strings to Spark's SQL.

SQL is split at calls and brackets; calls to these functions are rewritten, and everything else stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
    |(?P<call>(?<![\w.`])[A-Za-z_]\w*\s*\()
    |(?P<open>[(\[])|(?P<close>[)\]])|(?P<comma>,)|(?P<word>\w+)|.""",
    re.VERBOSE | re.DOTALL,
)
#: Maximum depth of brackets to rewrite: each level joins its content again.
_DEEPEST = 500
#: A plain field name, which needs no quoting.
_PLAIN_FIELD = re.compile(r"\s*'([^'\\`]+)'\s*")


class _List(str):
    """A list literal, such as ``[1, 2]``, and its elements."""

    __slots__ = ("elements",)
    elements: tuple[str, ...]


def _list(sql: str, elements: Sequence[str]) -> _List:
    list_term = _List(sql)
    list_term.elements = tuple(e.strip() for e in elements if e.strip())
    return list_term


@dataclass(frozen=True)
class _Frame:
    """Open brackets: the SQL before them, and the arguments so far, each as a list of parts."""

    opener: str = ""
    arguments: list[list[str]] = field(default_factory=lambda: [[]])

    def add(self, part: str) -> None:
        self.arguments[-1].append(part)

    def follows_value(self) -> bool:
        """Whether a bracket here follows a value: then it is an index, not a list."""
        before = [part for part in self.arguments[-1] if part.strip()]
        return bool(before) and (before[-1][-1] in ")]`" or before[-1][-1].isalnum() or before[-1][-1] == "_")


def _argument(parts: Sequence[str]) -> str:
    solid = [part for part in parts if part.strip()]
    return solid[0] if len(solid) == 1 and isinstance(solid[0], _List) else "".join(parts)


#: Returns the SQL of a call from its arguments; ``None`` leaves the call unchanged.
Rewrite = Callable[[list[str]], str | None]


def _named(name: str) -> Rewrite:
    return lambda arguments: f"{name}({','.join(arguments)})"


def _size(arguments: list[str]) -> str | None:
    return f"array_size({arguments[0]})" if len(arguments) == 1 else None


def _empty(arguments: list[str]) -> str | None:
    return f"(array_size({arguments[0]}) = 0)" if len(arguments) == 1 else None


def _field(arguments: list[str]) -> str | None:
    name = _PLAIN_FIELD.fullmatch(arguments[1]) if len(arguments) == 2 else None
    return None if name is None else f"{arguments[0].strip()}.`{name[1]}`"


#: Spark's types by the names in ``arrow_cast``.
_TYPES = {
    **dict.fromkeys(["Utf8", "LargeUtf8", "Utf8View"], "STRING"),
    **dict.fromkeys(["Binary", "LargeBinary", "BinaryView", "FixedSizeBinary"], "BINARY"),
    "Boolean": "BOOLEAN",
    "Date32": "DATE",
    "Float32": "FLOAT",
    "Float64": "DOUBLE",
    "Int8": "TINYINT",
    "Int16": "SMALLINT",
    "Int32": "INT",
    "Int64": "BIGINT",
}
_HEX = re.compile(r"0x((?:[0-9a-fA-F]{2})+)")
_DECIMAL = re.compile(r"Decimal(?:128|256)\(((\d+),\s*\d+)\)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def _arrow_cast(arguments: list[str]) -> str | None:
    name = _PLAIN_FIELD.fullmatch(arguments[1]) if len(arguments) == 2 else None
    if name is None:
        return None
    value, decimal = arguments[0].strip(), _DECIMAL.fullmatch(name[1])
    if decimal is not None and int(decimal[2]) > 38:
        # Spark has no such type, and compares a number with all of its digits.
        return value if _NUMBER.fullmatch(value) else None
    kind = f"DECIMAL({decimal[1]})" if decimal is not None else _TYPES.get(re.sub(r"\(\d+\)$", "", name[1]))
    if kind == "BINARY" and (digits := _HEX.fullmatch(value)) is not None:
        return f"X'{digits[1]}'"
    return None if kind is None else f"CAST({value} AS {kind})"


def _made_list(arguments: list[str]) -> str | None:
    inner = ",".join(arguments)
    return _list(f"array({inner})", arguments)


def _contains(operator: str, none: str) -> Rewrite:
    """Rewrite ``array_has_any`` and ``array_has_all`` of a list literal, which Spark does not have."""

    def rewritten(arguments: list[str]) -> str | None:
        if len(arguments) != 2:
            return None
        column, values = arguments
        if operator == "OR" and isinstance(column, _List):
            column, values = values, column
        if not isinstance(values, _List):
            return None
        terms = [
            f"array_has_null({column})" if value.upper() == "NULL" else f"array_has({column}, {value})"
            for value in values.elements
        ]
        return f"({f' {operator} '.join(terms) or f'CASE WHEN {column} IS NOT NULL THEN {none} END'})"

    return rewritten


def _contains_null(arguments: list[str]) -> str | None:
    """Rewrite ``array_contains`` of null, which Spark rejects."""
    of_null = len(arguments) == 2 and arguments[1].strip().upper() == "NULL"
    return f"array_has({','.join(arguments)})" if of_null else None


_ANY, _ALL = _contains("OR", "FALSE"), _contains("AND", "TRUE")
_SPARK: dict[str, Rewrite] = {
    "starts_with": _named("startswith"),
    "ends_with": _named("endswith"),
    "strpos": _named("instr"),
    "regexp_match": _named("regexp_like"),
    **dict.fromkeys(["list_has", "list_contains"], _named("array_has")),
    "array_contains": _contains_null,
    **dict.fromkeys(["array_has_any", "list_has_any", "arrays_overlap"], _ANY),
    **dict.fromkeys(["array_has_all", "list_has_all"], _ALL),
    **dict.fromkeys(["array_length", "list_length"], _size),
    **dict.fromkeys(["array_element", "array_extract", "list_element", "list_extract"], _named("try_element_at")),
    "arrow_cast": _arrow_cast,
    "empty": _empty,
    "get_field": _field,
    "make_array": _made_list,
    "make_list": _made_list,
}


@dataclass(frozen=True)
class Rewrites:
    """Rewrites of calls, by lower-case name; with ``brackets``, also of lists and fields in ``[]``."""

    calls: Mapping[str, Rewrite]
    brackets: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        brackets = r"|\[" if self.brackets else ""
        return re.compile(rf"(?<![\w.`])(?:{'|'.join(self.calls)})\s*\({brackets}", re.IGNORECASE)

    def apply(self, sql: str) -> str:
        """Rewrite the calls in SQL; brackets that do not match are left to the SQL parser."""
        if self._pattern.search(sql) is None:
            return sql
        frames = [_Frame()]
        for token in _TOKEN.finditer(sql):
            here = frames[-1]
            if token["call"] is not None or token["open"] is not None:
                frames.append(_Frame(token[0]))
                if len(frames) > _DEEPEST:
                    return sql
            elif token["comma"] is not None and len(frames) > 1:
                here.arguments.append([])
            elif token["close"] is not None:
                frames.pop()
                if not frames or not here.opener or (here.opener[-1] == "(") != (token[0] == ")"):
                    return sql
                frames[-1].add(self._closed(here, frames[-1], token[0]))
            else:
                here.add(token[0])
        return "".join(frames[0].arguments[0]) if len(frames) == 1 else sql

    def _closed(self, frame: _Frame, around: _Frame, close: str) -> str:
        """Join a call, or brackets, with its arguments; rewrite it if needed."""
        arguments = [_argument(parts) for parts in frame.arguments]
        whole = f"{frame.opener}{','.join(arguments)}{close}"
        if close == ")":
            name = frame.opener[:-1].strip().lower()
            if name == "array" and self.brackets:
                return _list(whole, arguments)
            new = self.calls[name](arguments) if name in self.calls else None
            return whole if new is None else new
        if not self.brackets:
            return whole
        before = around.arguments[-1]
        if before and before[-1].lower() == "array":  # ARRAY[1, 2]
            before.pop()
            return _list(f"array({','.join(arguments)})", arguments)
        if not around.follows_value():
            return _list(f"array({','.join(arguments)})", arguments)
        named = _PLAIN_FIELD.fullmatch(arguments[0]) if len(arguments) == 1 else None
        return whole if named is None else f".`{named[1]}`"


_REWRITES = Rewrites(_SPARK, brackets=True)


def whole_call(sql: str, name: str) -> list[str] | None:
    """Return the arguments of SQL that is one call of a function; ``None`` for other SQL.

    >>> whole_call("f(g(a, 1), 'x')", "f"), whole_call("f(1) + f(2)", "f")
    (['g(a, 1)', "'x'"], None)
    """
    calls: list[list[str]] = []
    Rewrites({name: calls.append}).apply(sql)  # leaves the calls unchanged; the outermost one closes last
    if not calls or not re.fullmatch(rf"{name}\s*\({re.escape(','.join(calls[-1]))}\)", sql.strip(), re.IGNORECASE):
        return None
    return [argument.strip() for argument in calls[-1]]


def in_sparks_words(sql: str) -> str:
    """Translate SQL to Spark's functions, and to its syntax of struct fields.

    >>> in_sparks_words("starts_with(note['email'], 'x') AND array_has_any(tags, ['a', 'b'])")
    "startswith(note.`email`, 'x') AND (array_has(tags, 'a') OR array_has(tags, 'b'))"
    """
    return _REWRITES.apply(sql)
