"""``char(n)`` and ``varchar(n)``: length limits in the metadata of string columns.

Spark stores the type's name under ``__CHAR_VARCHAR_TYPE_STRING`` of the top-level field, for nested values too
(``array<char(3)>``).  On write, a shorter ``char`` is padded with spaces; a longer string loses trailing spaces, and is
rejected if it is still too long.  Lengths are in characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from trilake.common.arrow_types import rebuilt
from trilake.delta.protocol.schema import ArrayType, DataType, MapType, PrimitiveType, StructField, StructType, parts
from trilake.errors import ConstraintViolatedError, CorruptLogError
from trilake.expr.terms.bind import char_field

TYPE_STRING = "__CHAR_VARCHAR_TYPE_STRING"
_LIMITED = re.compile(r"(char|varchar)\((\d+)\)", re.IGNORECASE)
_PRIMITIVE = re.compile(r"[a-z_]+(?:\([0-9, ]*\))?(?: collate \S+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Length:
    """The limits within one column: a ``char`` or ``varchar``, or nested values with limits.

    ``parts`` are the limits of fields, element, or key and value; ``None`` for a part without a limit.
    """

    kind: str = ""
    limit: int = 0
    parts: tuple[Length | None, ...] = ()


def length_rule(field: StructField) -> Length | None:
    """The limits of a column; ``None`` if it has none.

    >>> field = StructField("c", PrimitiveType("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"})
    >>> length_rule(field)
    Length(kind='varchar', limit=5, parts=())

    Raises ``CorruptLogError`` for a string that is not a type, or that does not fit the column.
    """
    type_string = field.metadata.get(TYPE_STRING)
    if type_string is None:
        return _own(field.type)
    try:
        rule, end = _parse(str(type_string), 0, field.type)
    except ValueError as e:
        raise CorruptLogError(
            f"the length limits of column {field.name!r} are invalid: {str(type_string)[:200]!r} does not match type"
            f" {field.type}",
            help=f"fix or remove {TYPE_STRING} in the column's metadata",
            column=field.name,
        ) from e
    return rule if end == len(str(type_string)) else _own(field.type)


def _own(type_: DataType) -> Length | None:
    match type_:
        case PrimitiveType(name):
            match = _LIMITED.fullmatch(name)
            return None if match is None else Length(match[1].lower(), int(match[2]))
        case StructType(fields):
            return _of_parts([length_rule(f) for f in fields])
    return _of_parts([_own(inner) for _, inner in parts(type_)])


def _of_parts(parts: list[Length | None]) -> Length | None:
    return Length(parts=tuple(parts)) if any(p is not None for p in parts) else None


def _parse(type_string: str, at: int, type_: DataType) -> tuple[Length | None, int]:
    """Parse the limits in a type name, starting at ``at``; return them and their end.  Raises ``ValueError``."""
    if isinstance(type_, PrimitiveType):
        limited = _LIMITED.match(type_string, at)
        if limited is not None:
            return Length(limited[1].lower(), int(limited[2])), limited.end()
        plain = _PRIMITIVE.match(type_string, at)
        if plain is None:
            raise ValueError(type_string)
        return None, plain.end()
    word = "array<" if isinstance(type_, ArrayType) else "map<" if isinstance(type_, MapType) else "struct<"
    at = _skip(type_string, at, word)
    rules = []
    for i, (name, inner) in enumerate(parts(type_)):
        at = _skip(type_string, at, "," if i else "")
        rule, at = _parse(type_string, _skip(type_string, at, f"{name}:" if word == "struct<" else ""), inner)
        rules.append(rule)
    return _of_parts(rules), _skip(type_string, at, ">")


def _skip(type_string: str, at: int, word: str) -> int:
    if not type_string.lower().startswith(word.lower(), at):
        raise ValueError(type_string)
    return at + len(word)


def filter_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema for filters; ``char(n)`` columns are marked, because Spark pads when it compares."""
    cache = vars(schema)  # cached with other results
    cached: pa.Schema | None = cache.get("filter_schema")
    if cached is None:
        cached = cache["filter_schema"] = pa.schema(
            [
                char_field(f.arrow, rule.limit)
                if TYPE_STRING in f.metadata and (rule := length_rule(f)) is not None and rule.kind == "char"
                else f.arrow
                for f in schema.fields
            ]
        )
    return cached


def apply_length(array: pa.Array, rule: Length, path: str) -> pa.Array:
    """Pad and trim a column to its limits.  Raises ``ConstraintViolatedError`` for a string that is too long."""
    if rule.kind:
        return _limited(array, rule, path)
    if pa.types.is_null(array.type):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type):
        children, fields = array.flatten(), list(array.type)
        limited = [
            child if part is None else apply_length(child, part, f"{path}.{f.name}")
            for child, part, f in zip(children, rule.parts, fields, strict=True)
        ]
        return pa.StructArray.from_arrays(limited, fields=fields, mask=mask)
    inside = iter(rule.parts)

    def part(values: pa.Array, field: pa.Field) -> pa.Array:
        limits = next(inside)
        return values if limits is None else apply_length(values, limits, f"{path}.{field.name}")

    # A slice has the values of all rows; a copy has only its own.
    return rebuilt(pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array, array.type, part)


def _limited(strings: pa.Array, rule: Length, path: str) -> pa.Array:
    lengths = pc.utf8_length(strings)
    least, longest = (pc.min_max(lengths)[k].as_py() for k in ("min", "max"))
    if longest is None:
        return strings
    if longest > rule.limit:
        prefix = pc.utf8_slice_codeunits(strings, 0, rule.limit)
        rest = pc.utf8_slice_codeunits(strings, rule.limit)
        bad = pc.not_equal(pc.utf8_ltrim(rest, " "), "")
        if pc.any(bad).as_py():
            value = str(strings.filter(bad)[0].as_py())
            excerpt = value if len(value) <= 100 else value[:97] + "..."
            raise ConstraintViolatedError(
                f"a string of {len(value)} characters does not fit into {rule.kind}({rule.limit}) of column {path}:"
                f" {excerpt!r}",
                help="shorten it, or make the column wider",
                constraint=f"{rule.kind}({rule.limit})",
                column=path,
                condition="DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
            )
        strings = prefix
    if rule.kind == "char" and least < rule.limit:
        strings = pc.utf8_rpad(strings, rule.limit, " ")
    return strings
