"""Types in Spark's SQL: ``array<struct<a: int, b: varchar(5)>>``.

Length limits of ``char(n)`` and ``varchar(n)`` go into the metadata of the top-level column; see
:mod:`trilake.delta.protocol.char_varchar`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trilake.common.text import string_value
from trilake.delta.protocol.arrow_types import name_of_srid
from trilake.delta.protocol.char_varchar import TYPE_STRING, Length, length_rule
from trilake.delta.protocol.primitives import PRIMITIVES
from trilake.delta.protocol.schema import (
    MAX_DEPTH,
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    each_type,
    parse_primitive,
    parts,
    with_parts,
)
from trilake.errors import InvalidArgumentError, TrilakeError

_STRING = r"""[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|\"\")*\""""
_TOKEN = re.compile(rf"\s*(?:(`(?:[^`]|``)*`)|({_STRING})|([A-Za-z_0-9]+)|([<>(),:]))", re.DOTALL)
_ALIASES = {alias: name for name, row in PRIMITIVES.items() for alias in (row.sql, *row.aliases)}
#: The binary collation, which all strings in a table have.
BY_BYTES = "UTF8_BINARY"


def check_collation(name: str, column: str | None = None) -> None:
    """Raise ``InvalidArgumentError`` for any collation except the binary one.

    >>> check_collation("utf8_binary")
    """
    if name.upper() != BY_BYTES:
        message = f"collation {name} is not supported for columns: strings are compared by their bytes ({BY_BYTES})"
        help = "cast the column with COLLATE UTF8_BINARY, or leave out the collation; comparisons can still use it"
        raise InvalidArgumentError(message, help=help, column=column, condition="DELTA_UNSUPPORTED_DATA_TYPES")


def parse_sql_type(sql: str) -> tuple[DataType, dict[str, Any]]:
    """Parse a type by its name in SQL or in the protocol; return it with the field metadata that it needs.

    Raises ``InvalidArgumentError``.

    >>> kind, metadata = parse_sql_type("map<string, array<varchar(3)>>")
    >>> str(kind), metadata
    ('map<string,array<string>>', {'__CHAR_VARCHAR_TYPE_STRING': 'map<string,array<varchar(3)>>'})
    """
    parser = _Parser(sql)
    try:
        kind = parser.type(0)
        parser.end()
    except TrilakeError as e:
        if isinstance(e, InvalidArgumentError):
            raise
        message = e.message if repr(sql) in e.message else f"cannot parse the data type {sql!r}: {e.message}"
        raise InvalidArgumentError(message, help=_EXAMPLES, **e.context) from e
    column = _extracted(StructField("", kind))
    return column.type, dict(column.metadata)


_EXAMPLES = "write a type such as bigint, string, decimal(10,2), array<int> or struct<a: int>"


class _Parser:
    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens: list[str] = []
        at = 0
        while sql[at:].strip():
            m = _TOKEN.match(sql, at)
            if m is None:
                raise InvalidArgumentError(f"cannot parse the data type {sql!r}: unexpected {sql[at:].strip()[:20]!r}")
            self.tokens.append(m[0].strip())
            at = m.end()
        self.at = 0

    def _wrong(self, expected: str) -> InvalidArgumentError:
        token = repr(self.tokens[self.at]) if self.at < len(self.tokens) else "the end"
        return InvalidArgumentError(
            f"cannot parse the data type {self.sql!r}: expected {expected}, got {token}", help=_EXAMPLES
        )

    def _peek(self) -> str:
        return self.tokens[self.at].lower() if self.at < len(self.tokens) else ""

    def _take(self, expected: str) -> None:
        if self._peek() != expected:
            raise self._wrong(repr(expected))
        self.at += 1

    def _word(self, expected: str) -> str:
        token = self._peek()
        if not re.fullmatch(r"\w+", token):
            raise self._wrong(expected)
        self.at += 1
        return token

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self._wrong("the end")

    def type(self, depth: int) -> DataType:
        if depth > MAX_DEPTH:
            raise InvalidArgumentError(f"the data type is nested deeper than {MAX_DEPTH} levels")
        name = self._word("a type")
        if name not in ("array", "map"):
            return self._struct(depth) if name == "struct" else self._primitive(name)
        self._take("<")
        types = [self.type(depth + 1)]
        if name == "map":
            self._take(",")
            types.append(self.type(depth + 1))
        self._take(">")
        return MapType(types[0], types[1]) if name == "map" else ArrayType(types[0])

    def _struct(self, depth: int) -> StructType:
        self._take("<")
        fields: list[StructField] = []
        while self._peek() != ">":
            if fields:
                self._take(",")
            fields.append(self._field(depth))
            if StructType(tuple(fields[:-1])).find(fields[-1].name) is not None:
                raise InvalidArgumentError(f"{self.sql!r} has two fields {fields[-1].name!r}")
        self._take(">")
        return StructType(tuple(fields))

    def _field(self, depth: int) -> StructField:
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if token.startswith("`"):
            name = token[1:-1].replace("``", "`")
        elif re.fullmatch(r"\w+", token):
            name = token
        else:
            raise self._wrong("the name of a field")
        self.at += 1
        if self._peek() == ":":
            self.at += 1
        kind = self.type(depth + 1)
        nullable, metadata = True, {}
        if self._peek() == "not":
            self.at += 1
            self._take("null")
            nullable = False
        if self._peek() == "comment":
            self.at += 1
            first = self.at
            while re.fullmatch(_STRING, self.tokens[self.at] if self.at < len(self.tokens) else "", re.DOTALL):
                self.at += 1
            if first == self.at:
                raise self._wrong("a comment in quotes")
            metadata["comment"] = "".join(map(string_value, self.tokens[first : self.at]))
        return StructField(name, kind, nullable, metadata)

    def _raw_parameters(self) -> str:
        """The source in parentheses, unparsed."""
        if self._peek() != "(":
            return ""
        start = self.at + 1
        while self._peek() not in (")", ""):
            self.at += 1
        self._take(")")
        return "".join(self.tokens[start : self.at - 1])

    def _numbers(self) -> list[int]:
        if self._peek() != "(":
            return []
        self.at += 1
        out: list[int] = []
        while self._peek() != ")":
            if out:
                self._take(",")
            token = self._word("a number")
            if not token.isdecimal():
                self.at -= 1
                raise self._wrong("a number")
            out.append(int(token))
        self.at += 1
        return out

    def _primitive(self, name: str) -> DataType:
        if name == "interval":
            return parse_primitive(" ".join(self.tokens[self.at - 1 :]))
        if name in ("geometry", "geography"):
            return parse_primitive(name_of_srid(name, self._raw_parameters()))
        numbers = self._numbers()
        if name in ("decimal", "dec", "numeric") and len(numbers) <= 2:
            precision, scale = ([*numbers, 0] if len(numbers) == 1 else numbers) or [10, 0]
            return parse_primitive(f"decimal({precision},{scale})")
        if name in ("char", "character", "varchar") and len(numbers) == 1 and numbers[0] > 0:
            return PrimitiveType(f"{'varchar' if name == 'varchar' else 'char'}({numbers[0]})")
        if numbers:
            raise InvalidArgumentError(f"cannot parse the data type {self.sql!r}: {name} does not take such parameters")
        if name == "string" and self._peek() == "collate":
            self.at += 1
            check_collation(self._word("a collation"))
        return parse_primitive(_ALIASES.get(name, name))


# --- length limits of strings ----------------------------------------------------------------------------------------


def with_limits(schema: StructType) -> StructType:
    """The schema with length limits as types, such as ``varchar(5)``, so that they move with their fields."""
    if not any(TYPE_STRING in f.metadata for f in schema.fields):
        return schema
    return StructType(tuple(_embedded(f) for f in schema.fields))


def without_limits(schema: StructType) -> StructType:
    """The schema with length limits in the metadata of its columns, where they are stored."""
    return StructType(tuple(_extracted(f) for f in schema.fields))


def _embedded(field: StructField) -> StructField:
    if TYPE_STRING not in field.metadata:
        return field
    metadata = {k: v for k, v in field.metadata.items() if k != TYPE_STRING}
    return replace(field, type=_limited(field.type, length_rule(field)), metadata=metadata)


def _limited(t: DataType, rule: Length | None) -> DataType:
    if rule is None:
        return t
    if rule.kind:
        return PrimitiveType(f"{rule.kind}({rule.limit})")
    return with_parts(t, [_limited(inner, part) for (_, inner), part in zip(parts(t), rule.parts, strict=True)])


def _extracted(field: StructField) -> StructField:
    plain = each_type(field.type, _plain)
    if plain == field.type:
        return field
    return replace(field, type=plain, metadata={TYPE_STRING: type_sql(field.type), **field.metadata})


def _plain(t: DataType) -> DataType:
    limited = isinstance(t, PrimitiveType) and t.name.startswith(("char(", "varchar("))
    return PrimitiveType("string") if limited else t


def spelled(t: DataType, field: Callable[[StructField, str], str], *, upper: bool = False) -> str:
    """Format a type in Spark's SQL; ``field`` formats a field of a struct, given its type.

    >>> spelled(ArrayType(PrimitiveType("long")), lambda f, inner: inner, upper=True)
    'ARRAY<BIGINT>'
    """
    if isinstance(t, UserDefinedType):
        return spelled(t.sql_type, field, upper=upper)
    if isinstance(t, PrimitiveType):
        name = t.traits.sql or t.name
        return name.upper() if upper else name
    inside = [spelled(inner, field, upper=upper) for _, inner in parts(t)]
    if isinstance(t, StructType):
        inside = list(map(field, t.fields, inside))
    word = "array" if isinstance(t, ArrayType) else "map" if isinstance(t, MapType) else "struct"
    return f"{word.upper()}<{', '.join(inside)}>" if upper else f"{word}<{','.join(inside)}>"


def type_sql(t: DataType) -> str:
    """A type in Spark's SQL, such as ``bigint``."""
    return spelled(t, lambda f, inner: f"{f.name}:{inner}")
