"""The primitive types of Delta as data: one row per type, and what the other modules derive from it.

Protocol: *Primitive Types*.  Two things are not here: what follows from the Arrow type of a column, such as how a data
file's column is converted, and the types of optional libraries (Spark, pyiceberg), which have tables beside the imports
of those libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from trilake.delta.protocol import partition_values as strings
from trilake.delta.protocol.partition_values import Values

ParseValues: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
FormatValues: TypeAlias = Callable[[Values, pa.DataType], list[str | None]]


@dataclass(frozen=True)
class TypeTraits:
    """What is known about a type; ``name`` is the protocol's, without parameters."""

    name: str
    #: The Arrow type of its columns; ``None`` for decimals, whose Arrow type depends on their parameters.
    arrow: pa.DataType | None
    #: Other Arrow types that a column of this type stores.
    also_arrow: tuple[pa.DataType, ...] = ()
    #: Whether Arrow has no such type, so that fields need a mark; see :func:`~trilake.delta.protocol.schema.marked`.
    marked: bool = False
    #: Spark's name in SQL, if it differs, and further names that SQL may use.
    sql: str | None = None
    aliases: tuple[str, ...] = ()
    #: DuckDB's type for bounds in statistics; ``None`` for a type without bounds.
    bounds: str | None = None
    #: Whether a column can partition a table, and how the log writes its values.
    partitions: bool = True
    parse: ParseValues = strings.parse_strings
    format: FormatValues = strings.format_strings
    #: Types of columns that store its values, if each value fits.
    stored_in: tuple[str, ...] = ()
    #: Wider types that a column can get without rewriting files: of the same family, and of another kind of number.
    #: Decimals widen by their parameters; an integer needs ``digits`` before the point of a decimal.
    widens: tuple[str, ...] = ()
    widens_to_number: tuple[str, ...] = ()
    digits: int | None = None
    #: The versions of Iceberg compatibility that allow it.
    iceberg: tuple[int, ...] = (1, 2, 3)


_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
_VARIANT = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])


def _integer(
    name: str, arrow: pa.DataType, sql: str, bounds: str, *, unsigned: pa.DataType | None, digits: int
) -> TypeTraits:
    """The row of an integer type; ``unsigned`` is the Arrow type whose values need this one."""
    wider = _NUMBERS[_NUMBERS.index(name) + 1 : _NUMBERS.index("float")]
    return TypeTraits(
        name,
        arrow,
        also_arrow=() if unsigned is None else (unsigned,),
        sql=sql,
        bounds=bounds,
        parse=strings.parse_integers,
        stored_in=_NUMBERS,
        widens=wider,
        widens_to_number=("double",) if name != "long" else (),  # a double does not hold every long
        digits=digits,
    )


def _float(name: str, arrow: pa.DataType, bounds: str) -> TypeTraits:
    return TypeTraits(
        name, arrow, bounds=bounds, parse=strings.parse_floats, format=strings.format_floats, stored_in=_NUMBERS
    )


def _timestamp(name: str, arrow: pa.DataType, bounds: str) -> TypeTraits:
    return TypeTraits(name, arrow, bounds=bounds, parse=strings.parse_times, format=strings.format_times)


def _spatial(name: str) -> TypeTraits:
    return TypeTraits(name, pa.binary(), marked=True, partitions=False, iceberg=(1,))


_STRING = TypeTraits(
    "string", pa.string(), also_arrow=(pa.large_string(),), aliases=("text",), bounds="VARCHAR", stored_in=("string",)
)

#: The rows of types without parameters, by name.
PRIMITIVES: Mapping[str, TypeTraits] = {
    row.name: row
    for row in (
        _STRING,
        _integer("long", pa.int64(), "bigint", "BIGINT", unsigned=pa.uint32(), digits=20),
        _integer("integer", pa.int32(), "int", "INTEGER", unsigned=pa.uint16(), digits=10),
        _integer("short", pa.int16(), "smallint", "SMALLINT", unsigned=pa.uint8(), digits=10),
        _integer("byte", pa.int8(), "tinyint", "TINYINT", unsigned=None, digits=10),
        replace(
            _float("float", pa.float32(), "FLOAT"), also_arrow=(pa.float16(),), aliases=("real",), widens=("double",)
        ),
        _float("double", pa.float64(), "DOUBLE"),
        TypeTraits(
            "boolean", pa.bool_(), aliases=("bool",), parse=strings.parse_booleans, format=strings.format_booleans
        ),
        TypeTraits(
            "binary",
            pa.binary(),
            also_arrow=(pa.large_binary(),),
            parse=strings.parse_binaries,
            format=strings.format_binaries,
        ),
        TypeTraits(
            "date",
            pa.date32(),
            also_arrow=(pa.date64(),),
            bounds="DATE",
            parse=strings.parse_dates,
            format=strings.format_dates,
            stored_in=("timestamp", "timestamp_ntz"),
            widens=("timestamp_ntz",),
        ),
        replace(_timestamp("timestamp", pa.timestamp("us", tz="UTC"), "TIMESTAMPTZ"), aliases=("timestamp_ltz",)),
        _timestamp("timestamp_ntz", pa.timestamp("us"), "TIMESTAMP"),
        TypeTraits("void", pa.null(), partitions=False, iceberg=()),
        TypeTraits("variant", _VARIANT, marked=True, partitions=False, iceberg=(1, 3)),
    )
}
#: The rows of types with parameters, such as ``decimal(10,2)``.
_WITH_PARAMETERS: Mapping[str, TypeTraits] = {
    row.name: row
    for row in (
        TypeTraits("decimal", None, bounds="DOUBLE", parse=strings.parse_decimals, stored_in=_NUMBERS),
        _spatial("geometry"),
        _spatial("geography"),
    )
}
#: The row of strings with a length limit or a collation, which are stored as plain ones.
_LIMITED = replace(_STRING, iceberg=(1,))
#: The row of user-defined types, whose Arrow type is that of their SQL type.
USER_DEFINED = TypeTraits("udt", None, marked=True, partitions=False, iceberg=(1,))


def traits_of(name: str) -> TypeTraits:
    """The row of a type by its full name.

    >>> traits_of("decimal(10,2)").name, traits_of("varchar(5)").name, traits_of("long").sql
    ('decimal', 'string', 'bigint')
    """
    return PRIMITIVES.get(name) or _WITH_PARAMETERS.get(name.partition("(")[0], _LIMITED)
