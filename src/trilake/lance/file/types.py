"""Logical types: Lance's names of Arrow types, and how the values of each lie in a page.

A field of a manifest names its type by text, ``"int32"``, ``"timestamp:us:UTC"`` or ``"fixed_size_list:float:128"``.
Structs and lists say no more than that: what is in them is a field of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pt

from trilake.errors import UnsupportedProtocolError

EXTENSION_NAME = b"ARROW:extension:name"
EXTENSION_METADATA = b"ARROW:extension:metadata"


class Encoding(IntEnum):
    """The encoding of a field's pages; the numbers are the format's."""

    NONE = 0
    PLAIN = 1
    VAR_BINARY = 2
    DICTIONARY = 3
    RLE = 4


class PageKind(Enum):
    """What the page of a field holds; the fields below it have pages of their own."""

    #: packed values of a whole number of bytes
    FIXED = "fixed"
    #: packed bits, least significant first
    BITS = "bits"
    #: bytes of all values, then one int64 file position more than there are values
    VARIABLE = "variable"
    #: one offset more than there are lists
    OFFSETS = "offsets"
    #: packed keys; the values are elsewhere
    KEYS = "keys"
    #: nothing: a struct's values are those of its children
    STRUCT = "struct"
    #: nothing: there are only nulls
    NULL = "null"


@dataclass(frozen=True)
class Layout:
    """The page of a field: its kind, and the bits that one row, offset or key takes (0 where it varies)."""

    kind: PageKind
    bits: int

    def page_bytes(self, rows: int) -> int:
        """Bytes of a page that says something about so many rows; for variable pages, of its offsets.

        >>> Layout(PageKind.BITS, 1).page_bytes(9), Layout(PageKind.VARIABLE, 64).page_bytes(2)
        (2, 24)
        """
        more = self.kind in (PageKind.VARIABLE, PageKind.OFFSETS)
        return -(-(rows + more) * self.bits // 8)


_SIMPLE: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    **{f"time32:{unit}": pa.time32(unit) for unit in ("s", "ms")},
    **{f"time64:{unit}": pa.time64(unit) for unit in ("us", "ns")},
    **{f"duration:{unit}": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
}
_NAMES: dict[pa.DataType, str] = {arrow: name for name, arrow in _SIMPLE.items()}

#: Logical types of fields with fields below them.
LISTS = frozenset({"list", "list.struct", "large_list", "large_list.struct"})
NESTED = LISTS | {"struct"}

_DECIMAL = re.compile(r"decimal:(128|256):(\d{1,2}):(-?\d{1,3})\Z")
_SIZED = re.compile(r"fixed_size_binary:(\d{1,10})\Z")
_ITEMS = re.compile(r"fixed_size_list:(.+):(\d{1,10})\Z", re.DOTALL)
_TIMESTAMP = re.compile(r"timestamp:(s|ms|us|ns)(?::(.+))?\Z", re.DOTALL)
_DICTIONARY = re.compile(r"dict:(.+):(u?int(?:8|16|32|64)):(?:false|true)\Z", re.DOTALL)
_MAX_SIZE = 2**31 - 1


def is_nested(logical_type: str) -> bool:
    """Whether the type is that of a struct or list, whose items are fields of their own."""
    return logical_type in NESTED


def storage_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type that the values of an extension type are stored as; any other type itself."""
    while isinstance(arrow_type, pa.BaseExtensionType):
        arrow_type = arrow_type.storage_type
    return arrow_type


@lru_cache(maxsize=4096)
def arrow_type(logical_type: str) -> pa.DataType:
    """The Arrow type of a field without fields below it.

    Raises ``UnsupportedProtocolError`` for a name that is none.

    >>> arrow_type("fixed_size_list:float:2"), arrow_type("timestamp:us:-")
    (FixedSizeListType(fixed_size_list<item: float>[2]), TimestampType(timestamp[us]))
    """
    simple = _SIMPLE.get(logical_type)
    if simple is not None:
        return simple
    if match := _TIMESTAMP.match(logical_type):
        unit, zone = match.groups()
        return pa.timestamp(unit, None if zone in (None, "-") else zone)
    try:
        if match := _DECIMAL.match(logical_type):
            width, precision, scale = map(int, match.groups())
            return pa.decimal128(precision, scale) if width == 128 else pa.decimal256(precision, scale)
        if (match := _SIZED.match(logical_type)) and int(match[1]) <= _MAX_SIZE:
            return pa.binary(int(match[1]))
        if (match := _ITEMS.match(logical_type)) and int(match[2]) <= _MAX_SIZE:
            item = arrow_type(match[1])
            if _is_flat(item):
                return pa.list_(item, int(match[2]))
        if match := _DICTIONARY.match(logical_type):
            value = arrow_type(match[1])
            if layout(match[1]).kind in (PageKind.FIXED, PageKind.VARIABLE) and not pt.is_fixed_size_list(value):
                return pa.dictionary(_SIMPLE[match[2]], value)
    except (ValueError, RecursionError):  # pyarrow's refusal of a precision, and of a size beyond what it can count
        pass
    raise UnsupportedProtocolError(
        f"{logical_type!r} is not a logical type that is known",
        help="the dataset was written by a newer version of Lance, or its manifest is damaged",
        logical_type=logical_type,
    )


@lru_cache(maxsize=4096)
def layout(logical_type: str) -> Layout:
    """The layout of the pages of this type.  Raises ``UnsupportedProtocolError`` as :func:`arrow_type` does."""
    if logical_type == "struct":
        return Layout(PageKind.STRUCT, 0)
    if logical_type in LISTS:
        return Layout(PageKind.OFFSETS, 64 if logical_type.startswith("large") else 32)
    arrow = arrow_type(logical_type)
    if pt.is_null(arrow):
        return Layout(PageKind.NULL, 0)
    if is_variable(arrow):
        return Layout(PageKind.VARIABLE, 64)
    if pt.is_dictionary(arrow):
        return Layout(PageKind.KEYS, arrow.index_type.bit_width)
    if pt.is_fixed_size_list(arrow):
        bits = arrow.list_size * arrow.value_type.bit_width
        return Layout(PageKind.BITS if pt.is_boolean(arrow.value_type) else PageKind.FIXED, bits)
    return Layout(PageKind.BITS if pt.is_boolean(arrow) else PageKind.FIXED, arrow.bit_width)


def encoding(logical_type: str) -> Encoding:
    """The encoding that a manifest names for a field of this type.

    >>> encoding("struct").name, encoding("list").name, encoding("string").name
    ('NONE', 'PLAIN', 'VAR_BINARY')
    """
    return _ENCODINGS[layout(logical_type).kind]


_ENCODINGS = {
    PageKind.FIXED: Encoding.PLAIN,
    PageKind.BITS: Encoding.PLAIN,
    PageKind.VARIABLE: Encoding.VAR_BINARY,
    PageKind.OFFSETS: Encoding.PLAIN,
    PageKind.KEYS: Encoding.DICTIONARY,
    PageKind.STRUCT: Encoding.NONE,
    PageKind.NULL: Encoding.NONE,
}


def is_variable(arrow: pa.DataType) -> bool:
    """Whether values are strings or bytes of any length."""
    return arrow in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def is_large(arrow: pa.DataType) -> bool:
    """Whether Arrow keeps offsets of 64 bits for values of this type."""
    return arrow in (pa.large_string(), pa.large_binary()) or bool(pt.is_large_list(arrow))


def logical_type(arrow: pa.DataType) -> str:
    """The name of an Arrow type, after :func:`storage_type`.

    Raises ``UnsupportedProtocolError`` for types that the format has no page for.

    >>> logical_type(pa.timestamp("us")), logical_type(pa.list_(pa.struct([("x", pa.int8())])))
    ('timestamp:us:-', 'list.struct')
    """
    arrow = storage_type(arrow)
    if arrow in _NAMES:
        return _NAMES[arrow]
    if pt.is_timestamp(arrow):
        return f"timestamp:{arrow.unit}:{arrow.tz or '-'}"
    if pt.is_decimal128(arrow) or pt.is_decimal256(arrow):
        return f"decimal:{arrow.bit_width}:{arrow.precision}:{arrow.scale}"
    if pt.is_fixed_size_binary(arrow):
        return f"fixed_size_binary:{arrow.byte_width}"
    if pt.is_fixed_size_list(arrow) and _is_flat(storage_type(arrow.value_type)):
        return f"fixed_size_list:{logical_type(arrow.value_type)}:{arrow.list_size}"
    if pt.is_struct(arrow):
        return "struct"
    if pt.is_list(arrow) or pt.is_large_list(arrow):
        name = "list" if pt.is_list(arrow) else "large_list"
        return f"{name}.struct" if pt.is_struct(storage_type(arrow.value_type)) else name
    if pt.is_dictionary(arrow) and (is_variable(arrow.value_type) or pt.is_integer(arrow.value_type)):
        return f"dict:{logical_type(arrow.value_type)}:{logical_type(arrow.index_type)}:false"
    raise UnsupportedProtocolError(
        f"Lance has no type for Arrow's {arrow}",
        help="cast the column to a type that it has; "
        "maps, unions, intervals, views and fixed-size lists of anything but numbers are none",
    )


def _is_flat(arrow: pa.DataType) -> bool:
    """Whether a fixed-size list may have items of this type: those with as many bits for every value."""
    if pt.is_null(arrow) or pt.is_nested(arrow) or pt.is_dictionary(arrow) or is_variable(arrow):
        return False
    return arrow in _NAMES or bool(
        pt.is_timestamp(arrow) or pt.is_decimal128(arrow) or pt.is_decimal256(arrow) or pt.is_fixed_size_binary(arrow)
    )


def is_text(arrow: pa.DataType) -> bool:
    """Whether values are strings."""
    return arrow in (pa.string(), pa.large_string())
