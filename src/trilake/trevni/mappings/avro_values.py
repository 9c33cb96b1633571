"""Values of Avro's simple types as columns hold them, and back; defaults, which schemas give as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trilake.errors import CorruptFileError, SchemaMismatchError
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.mappings.avro_library import fastavro
from trilake.trevni.mappings.avro_schema import AvroSchema

#: The Trevni type of each simple type of Avro.
SIMPLE = {
    "null": ValueType.NULL,
    "boolean": ValueType.BOOLEAN,
    "int": ValueType.INT,
    "long": ValueType.LONG,
    "float": ValueType.FLOAT,
    "double": ValueType.DOUBLE,
    "string": ValueType.STRING,
    "bytes": ValueType.BYTES,
    "enum": ValueType.INT,
    "fixed": ValueType.BYTES,
}


# --- written ---------------------------------------------------------------------------------------------------------


def text(value: Any) -> Any:
    """A string that may come as its bytes."""
    return value.decode() if isinstance(value, bytes) else value


class Codes:
    """Symbols of an enum to their numbers."""

    def __init__(self, symbols: Sequence[str], column: str) -> None:
        self._codes, self._column = {symbol: code for code, symbol in enumerate(symbols)}, column

    def __call__(self, value: Any) -> int:
        if value not in self._codes:
            raise SchemaMismatchError(f"{value!r} is none of {', '.join(self._codes)}", column=self._column)
        return self._codes[value]


class Fixed:
    """Values of the size that a fixed type has."""

    def __init__(self, schema: Mapping[str, Any], column: str) -> None:
        self._size, self._column = schema["size"], column
        self._prepare = logical_writer(schema)

    def __call__(self, value: Any) -> bytes:
        if self._prepare is not None:
            value = self._prepare(value)
        if not isinstance(value, bytes | bytearray) or len(value) != self._size:
            raise SchemaMismatchError(f"{value!r} does not have {self._size} bytes", column=self._column)
        return bytes(value)


def _logical_key(schema: Any) -> str | None:
    if isinstance(schema, dict) and "logicalType" in schema and isinstance(schema["type"], str):
        return f"{schema['type']}-{schema['logicalType']}"
    return None


def logical_writer(schema: Any) -> Callable[[Any], Any] | None:
    """What makes a value of a logical type one of its simple type; ``None`` for other types."""
    prepare = fastavro.write.LOGICAL_WRITERS.get(_logical_key(schema) or "")
    return None if prepare is None else lambda value: prepare(value, schema)


# --- read ------------------------------------------------------------------------------------------------------------


class Symbols:
    """Numbers of an enum to the symbols of another one: symbols that it does not have are its default.

    Parameters
    ----------
    stored: the symbols that the numbers count.
    wanted: the enum asked for.
    """

    def __init__(self, stored: Sequence[str], wanted: Mapping[str, Any], column: str) -> None:
        self._stored, self._column, self._name = stored, column, wanted["name"]
        known, default = set(wanted["symbols"]), wanted.get("default")
        self._symbols = [symbol if symbol in known else default for symbol in stored]

    def __call__(self, code: int) -> str:
        if not 0 <= code < len(self._symbols):
            raise CorruptFileError(f"{code} is not a symbol of an enum of {len(self._symbols)}", column=self._column)
        symbol = self._symbols[code]
        if symbol is None:
            raise SchemaMismatchError(
                f"{self._stored[code]!r} is not a symbol of the requested enum {self._name}, which has no default",
                column=self._column,
            )
        return symbol


def logical_reader(schema: Any, **where: str | None) -> Callable[[Any], Any] | None:
    """What makes a stored value one of its logical type; ``None`` for other types.

    It raises ``CorruptFileError``, with the context ``where``, for values that the type does not have.
    """
    read = fastavro.read.LOGICAL_READERS.get(_logical_key(schema) or "")
    if read is None:
        return None

    def typed(value: Any) -> Any:
        try:
            return read(value, schema, schema)
        except (ValueError, OverflowError, TypeError, LookupError, ArithmeticError) as e:
            kind = schema["logicalType"]
            raise CorruptFileError(
                f"a value cannot be read as a {kind}: {value!r:.100} ({e!r})",
                help=f"read it as it is stored, by a schema without the logical type {kind}",
                **where,
            ) from e

    return typed


def promotion(stored: ValueType, wanted: ValueType, column: str) -> Callable[[Any], Any] | None:
    """What makes values of a type those of a wider one; ``None`` where they are that already.

    It raises ``SchemaMismatchError`` for bytes that are not strings.
    """
    if wanted in (ValueType.FLOAT, ValueType.DOUBLE) and stored in (ValueType.INT, ValueType.LONG):
        return float
    if stored is ValueType.STRING and wanted is ValueType.BYTES:
        return lambda value: value.encode()

    def decode(value: Any) -> Any:
        try:
            return value.decode()
        except UnicodeDecodeError as e:
            raise SchemaMismatchError(f"bytes are not strings: {e}", help="read them as bytes", column=column) from e

    return decode if stored is ValueType.BYTES and wanted is ValueType.STRING else None


def default_value(parsed: AvroSchema, schema: Any, value: Any) -> Any:
    """A default, which JSON gives, as a value of its type: bytes are text of code points below 256."""
    schema = parsed.resolve(schema)
    kind = parsed.kind(schema)
    if kind == "union":
        return default_value(parsed, schema[0], value)
    if kind in ("bytes", "fixed") and isinstance(value, str):
        value = value.encode("latin-1", "replace")
    elif kind in ("float", "double") and isinstance(value, int | float):
        value = float(value)
    elif kind in ("record", "error"):
        record = dict(value)
        return {
            f["name"]: default_value(parsed, f["type"], record[f["name"]] if f["name"] in record else f.get("default"))
            for f in schema["fields"]
        }
    elif kind == "array":
        return [default_value(parsed, schema["items"], item) for item in value]
    elif kind == "map":
        return {key: default_value(parsed, schema["values"], item) for key, item in value.items()}
    read = logical_reader(schema)
    return value if read is None else read(value)
