"""Logical types: Lance's names for Arrow types.

A manifest names the type of a field by a string: ``"int32"``, ``"timestamp:us:UTC"``, ``"fixed_size_list:float:128"``.
The names of structs, lists and maps do not include their children, which are separate fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pt

from trilake.common.utf8 import strings_are_utf8
from trilake.errors import UnsupportedProtocolError
from trilake.lance.file.errors import RowsDoNotFitError, UnsupportedTypeError

EXTENSION_NAME = b"ARROW:extension:name"
EXTENSION_METADATA = b"ARROW:extension:metadata"


class Encoding(IntEnum):
    """The encoding of a field's pages, with the format's numbers."""

    NONE = 0
    PLAIN = 1
    VAR_BINARY = 2
    DICTIONARY = 3
    RLE = 4


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
    "json": pa.large_binary(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    **{f"time32:{unit}": pa.time32(unit) for unit in ("s", "ms")},
    **{f"time64:{unit}": pa.time64(unit) for unit in ("us", "ns")},
    **{f"duration:{unit}": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
}
_NAMES: dict[pa.DataType, str] = {arrow: name for name, arrow in _SIMPLE.items() if name != "json"}

#: Logical types of lists; each has one child field.
LISTS = frozenset({"list", "list.struct", "large_list", "large_list.struct"})
#: Lance's extension type of binary JSON, and Arrow's of JSON strings.
LANCE_JSON, ARROW_JSON = b"lance.json", "arrow.json"
_BFLOAT16 = "lance.bfloat16"

_DECIMAL = re.compile(r"decimal:(128|256):(\d{1,2}):(-?\d{1,3})\Z")
_SIZED = re.compile(r"fixed_size_binary:(\d{1,10})\Z")
_ITEMS = re.compile(r"fixed_size_list:(.+):(\d{1,10})\Z", re.DOTALL)
_TIMESTAMP = re.compile(r"timestamp:(s|ms|us|ns)(?::(.+))?\Z", re.DOTALL)
_DICTIONARY = re.compile(r"dict:(.+):(u?int(?:8|16|32|64)):(?:false|true)\Z", re.DOTALL)
_MAX_SIZE = 2**31 - 1


def is_nested(logical_type: str) -> bool:
    """Whether the type has children that are separate fields: structs, lists and maps."""
    return logical_type in LISTS or logical_type in ("struct", "map") or is_struct_vector(logical_type)


def nested_type(logical_type: str, children: Sequence[pa.Field]) -> pa.DataType:
    """Build the Arrow type of a struct, list, map or fixed-size list of structs from its child fields."""
    if logical_type == "struct":
        return pa.struct(children)
    if logical_type == "map":
        return pa.map_(children[0].type.field(0), children[0].type.field(1))
    if is_struct_vector(logical_type):
        return pa.list_(children[0], list_size(logical_type))
    return (pa.large_list if logical_type.startswith("large") else pa.list_)(children[0])


def is_struct_vector(logical_type: str) -> bool:
    """Whether the type is a fixed-size list of structs."""
    return logical_type.startswith("fixed_size_list:struct:")


def list_size(logical_type: str) -> int:
    """The list size of a fixed-size list of structs.  Raises ``UnsupportedProtocolError``."""
    match = _ITEMS.match(logical_type)
    if match is None or not 0 < int(match[2]) <= _MAX_SIZE:
        raise _unknown(logical_type)
    return int(match[2])


def storage_type(arrow_type: pa.DataType) -> pa.DataType:
    """The storage type of an extension type; other types stay as they are."""
    while isinstance(arrow_type, pa.BaseExtensionType):
        arrow_type = arrow_type.storage_type
    return arrow_type


@lru_cache(maxsize=4096)
def arrow_type(logical_type: str) -> pa.DataType:
    """The Arrow type of a field without children.

    Raises ``UnsupportedProtocolError`` for an unknown name.

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
        if (match := _ITEMS.match(logical_type)) and 0 < int(match[2]) <= _MAX_SIZE:
            if match[1] == _BFLOAT16:
                metadata = {EXTENSION_NAME: _BFLOAT16.encode(), EXTENSION_METADATA: b""}
                return pa.list_(pa.field("item", pa.binary(2), metadata=metadata), int(match[2]))
            item = arrow_type(match[1])
            if not (pt.is_null(item) or pt.is_dictionary(item)):
                return pa.list_(item, int(match[2]))
        if match := _DICTIONARY.match(logical_type):
            value = arrow_type(match[1])
            if not (pt.is_null(value) or pt.is_nested(value) or pt.is_dictionary(value)):
                return pa.dictionary(_SIMPLE[match[2]], value)
    except (ValueError, RecursionError):  # from pyarrow, for an invalid precision or size
        pass
    raise _unknown(logical_type)


def _unknown(logical_type: str) -> UnsupportedProtocolError:
    return UnsupportedProtocolError(
        f"unknown logical type {logical_type!r}",
        help="the dataset was written by a newer version of Lance, or its manifest is damaged",
        logical_type=logical_type,
    )


def encoding(logical_type: str) -> Encoding:
    """The encoding in a manifest for a field of this type."""
    if logical_type in ("struct", "null"):
        return Encoding.NONE
    if logical_type in ("string", "binary", "large_string", "large_binary", "json"):
        return Encoding.VAR_BINARY
    return Encoding.DICTIONARY if logical_type.startswith("dict:") else Encoding.PLAIN


#: Ids of Arrow types with fixed-width values in one buffer.
_FLAT = frozenset(
    arrow.id
    for arrow in (*_SIMPLE.values(), pa.timestamp("us"), pa.decimal128(1), pa.decimal256(1), pa.binary(1))
    if not pt.is_null(arrow) and arrow not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
)


def is_flat(arrow: pa.DataType) -> bool:
    """Whether values have a fixed width, and are in one buffer."""
    return arrow.id in _FLAT


def is_variable(arrow: pa.DataType) -> bool:
    """Whether values are strings or binaries of variable length."""
    return arrow in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def is_large(arrow: pa.DataType) -> bool:
    """Whether Arrow uses 64-bit offsets for this type."""
    return arrow in (pa.large_string(), pa.large_binary()) or bool(pt.is_large_list(arrow))


def logical_type(arrow: pa.DataType) -> str:
    """The name of an Arrow type, or of its :func:`storage_type`.

    Raises ``UnsupportedProtocolError`` for types that no version of Lance has.

    >>> logical_type(pa.timestamp("us")), logical_type(pa.list_(pa.struct([("x", pa.int8())])))
    ('timestamp:us:-', 'list.struct')
    """
    if isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name == ARROW_JSON:
        return "json"
    arrow = storage_type(arrow)
    if arrow in _NAMES:
        return _NAMES[arrow]
    if pt.is_timestamp(arrow):
        return f"timestamp:{arrow.unit}:{arrow.tz or '-'}"
    if pt.is_decimal128(arrow) or pt.is_decimal256(arrow):
        return f"decimal:{arrow.bit_width}:{arrow.precision}:{arrow.scale}"
    if pt.is_fixed_size_binary(arrow):
        return f"fixed_size_binary:{arrow.byte_width}"
    if pt.is_fixed_size_list(arrow) and arrow.list_size:
        item = storage_type(arrow.value_type)
        if _extension(arrow.value_field) == _BFLOAT16:
            return f"fixed_size_list:{_BFLOAT16}:{arrow.list_size}"
        if pt.is_struct(item) or pt.is_fixed_size_list(item) or is_flat(item):
            return f"fixed_size_list:{logical_type(item)}:{arrow.list_size}"
    if pt.is_struct(arrow):
        return "struct"
    if pt.is_map(arrow) and not arrow.keys_sorted:
        return "map"
    if pt.is_list(arrow) or pt.is_large_list(arrow):
        name = "list" if pt.is_list(arrow) else "large_list"
        return f"{name}.struct" if pt.is_struct(storage_type(arrow.value_type)) else name
    if pt.is_dictionary(arrow) and arrow.value_type in _NAMES and not pt.is_null(arrow.value_type):
        return f"dict:{logical_type(arrow.value_type)}:{logical_type(arrow.index_type)}:false"
    if pt.is_fixed_size_list(arrow) and not arrow.list_size:
        raise UnsupportedTypeError("fixed-size list dimension must be a positive integer, got 0")
    raise UnsupportedTypeError(
        f"Lance has no type for Arrow's {arrow}",
        help="cast the column to a supported type; Lance has no unions, intervals, views, run-end encoded arrays, "
        "maps with keys_sorted=True, decimals of 32 or 64 bits, nor fixed-size lists of strings or lists",
    )


def _extension(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return str((field.metadata or {}).get(EXTENSION_NAME, b""), "utf-8", "replace")


def is_text(arrow: pa.DataType) -> bool:
    """Whether values are strings, not binaries."""
    return arrow in (pa.string(), pa.large_string())


def check_strings(array: pa.Array, column: str) -> None:
    """Raise ``RowsDoNotFitError`` for a string that is not UTF-8, also in dictionaries and structs."""
    if not strings_are_utf8(array):
        raise RowsDoNotFitError("a string is not UTF-8", help="write such values as binary", column=column)


#: Location of a blob in its data file.
DESCRIPTION = pa.struct([pa.field("position", pa.uint64()), pa.field("size", pa.uint64())])
#: Location of a blob that may be in another file.
DESCRIPTION_V2 = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.string(), nullable=False),
    ]
)
#: Kinds: in the data file, in a shared side file, in a separate side file, or at a URI.
INLINE, PACKED, DEDICATED, EXTERNAL = range(4)


def side_file(data_file: str, blob_id: int) -> str:
    """The path of a blob's side file, in a folder named after its data file; the name is the id in bits, lowest first.

    >>> side_file("x.lance", 1)
    'x/10000000000000000000000000000000.blob'
    """
    name = "".join("1" if blob_id >> bit & 1 else "0" for bit in range(32))
    return f"{data_file.removesuffix('.lance')}/{name}.blob"


def fixed_width(kind: pa.DataType) -> int:
    """Bytes of a value; a part of variable length counts as 8."""
    if pt.is_fixed_size_list(kind):
        return int(kind.list_size) * fixed_width(kind.value_type)
    if pt.is_struct(kind):
        return sum(fixed_width(child.type) for child in kind)
    return int(kind.bit_width) // 8 if pt.is_primitive(kind) or pt.is_fixed_size_binary(kind) else 8
