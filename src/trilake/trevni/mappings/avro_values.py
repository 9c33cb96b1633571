"""Convert values of simple Avro types to column values and back; match branches of unions; read defaults from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trilake.errors import CorruptFileError, SchemaMismatchError
from trilake.trevni.blocks.layout import ValueType
from trilake.trevni.mappings.avro_schema import AvroSchema, fastavro

_RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}

#: Trevni types of the simple Avro types.
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


# --- write -----------------------------------------------------------------------------------------------------------


def as_string(value: Any) -> Any:
    """Decode a string given as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def encoder(schema: Any, kind: str, column: str) -> Callable[[Any], Any] | None:
    """Return the function that converts values of a simple type to column values; ``None`` if they are the same."""
    if kind == "enum":
        return _Codes(schema["symbols"], column)
    if kind == "fixed":
        return _Fixed(schema, column)
    return logical_writer(schema) or (as_string if kind == "string" else None)


class _Codes:
    """Convert symbols of an enum to numbers."""

    def __init__(self, symbols: Sequence[str], column: str) -> None:
        self._codes, self._column = {symbol: code for code, symbol in enumerate(symbols)}, column

    def __call__(self, value: Any) -> int:
        if value not in self._codes:
            raise SchemaMismatchError(f"expected one of {', '.join(self._codes)}, got {value!r}", column=self._column)
        return self._codes[value]


class _Fixed:
    """Check the size of fixed values."""

    def __init__(self, schema: Mapping[str, Any], column: str) -> None:
        self._size, self._column = schema["size"], column
        self._prepare = logical_writer(schema)

    def __call__(self, value: Any) -> bytes:
        if self._prepare is not None:
            value = self._prepare(value)
        if not isinstance(value, bytes | bytearray) or len(value) != self._size:
            raise SchemaMismatchError(f"expected {self._size} bytes, got {value!r}", column=self._column)
        return bytes(value)


def _logical_key(schema: Any) -> str | None:
    if isinstance(schema, dict) and "logicalType" in schema and isinstance(schema["type"], str):
        return f"{schema['type']}-{schema['logicalType']}"
    return None


def logical_writer(schema: Any) -> Callable[[Any], Any] | None:
    """Return the function that converts values of a logical type to its simple type; ``None`` for other types."""
    prepare = fastavro.write.LOGICAL_WRITERS.get(_logical_key(schema) or "")
    return None if prepare is None else lambda value: prepare(value, schema)


class FieldGetter:
    """Returns a field of a record, or its default."""

    def __init__(self, name: str, defaults: Mapping[str, Any]) -> None:
        self._name, self._defaults = name, defaults

    def __call__(self, record: Any, field: str) -> Any:
        if not isinstance(record, Mapping):
            raise SchemaMismatchError(f"expected a record {self._name}, got {type(record).__name__}")
        if field in record:
            return record[field]
        # Like fastavro, use null without a default; the type must allow it.
        return self._defaults.get(field)


class BranchTest:
    """Tests whether a value matches a branch, by its Python type and the names of its fields."""

    def __init__(self, schema: AvroSchema, branch: Any) -> None:
        self._schema, self._branch = schema, branch

    def __call__(self, value: Any) -> bool:
        return self._check(self._branch, value, 0)

    def _check(self, schema: Any, value: Any, depth: int) -> bool:
        schema = self._schema.resolve(schema)
        kind = self._schema.kind(schema)
        match kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "union":
                return isinstance(value, tuple) or any(self._check(branch, value, depth) for branch in schema)
            case "array":
                return isinstance(value, list | tuple) and all(self._check(schema["items"], v, depth) for v in value)
            case "map":
                return isinstance(value, Mapping) and all(
                    isinstance(key, str) and self._check(schema["values"], item, depth) for key, item in value.items()
                )
            case "record" | "error":
                return self._check_record(schema, value, depth)
        prepare = logical_writer(schema)
        if prepare is not None:
            try:
                value = prepare(value)
            except (ValueError, TypeError, AttributeError, ArithmeticError):
                return False
        match kind:
            case "int" | "long":
                low, high = _RANGES[kind]
                return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
            case "float" | "double":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "string":
                return isinstance(value, str)
            case "enum":
                return isinstance(value, str) and value in schema["symbols"]
            case "fixed":
                return isinstance(value, bytes | bytearray) and len(value) == schema["size"]
            case _:
                return isinstance(value, bytes | bytearray)

    def _check_record(self, schema: Any, value: Any, depth: int) -> bool:
        if not isinstance(value, Mapping):
            return False
        if "-type" in value:
            return value["-type"] in (schema["name"], schema["name"].rpartition(".")[2])
        names = {field["name"] for field in schema["fields"]}
        return names.issuperset(value) and all(
            self._check(field["type"], value.get(field["name"], field.get("default")), depth + 1)
            for field in schema["fields"]
        )


# --- read ------------------------------------------------------------------------------------------------------------


class Symbols:
    """Convert numbers of a stored enum to symbols of a target enum; symbols that the target lacks become its default.

    Parameters
    ----------
    stored: symbols by number.
    target: schema of the target enum.
    """

    def __init__(self, stored: Sequence[str], target: Mapping[str, Any], column: str) -> None:
        self._stored, self._column, self._name = stored, column, target["name"]
        self._symbols = [symbol if symbol in target["symbols"] else target.get("default") for symbol in stored]

    def __call__(self, code: int) -> str:
        if not 0 <= code < len(self._symbols):
            raise CorruptFileError(
                f"symbol number {code} is out of range for an enum of {len(self._symbols)} symbols", column=self._column
            )
        symbol = self._symbols[code]
        if symbol is None:
            raise SchemaMismatchError(
                f"{self._stored[code]!r} is not a symbol of the requested enum {self._name}, which has no default",
                column=self._column,
            )
        return symbol


def logical_reader(schema: Any, **where: str | None) -> Callable[[Any], Any] | None:
    """Return the function that converts stored values to their logical type; ``None`` for other types.

    It raises ``CorruptFileError`` with the context ``where`` for values that are invalid for the type.
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
                help=f"read the stored value: use a schema without the logical type {kind}",
                **where,
            ) from e

    return typed


def promotion(stored: ValueType, target: ValueType, column: str) -> Callable[[Any], Any] | None:
    """Return the function that converts values to a wider type; ``None`` if they are the same.

    It raises ``SchemaMismatchError`` for bytes that are not UTF-8.
    """
    if target in (ValueType.FLOAT, ValueType.DOUBLE) and stored in (ValueType.INT, ValueType.LONG):
        return float
    if stored is ValueType.STRING and target is ValueType.BYTES:
        return lambda value: value.encode()

    def decode(value: Any) -> Any:
        try:
            return value.decode()
        except UnicodeDecodeError as e:
            raise SchemaMismatchError(
                f"the bytes are not a UTF-8 string: {e}", help="read the column as bytes", column=column
            ) from e

    return decode if stored is ValueType.BYTES and target is ValueType.STRING else None


def default_value(parsed: AvroSchema, schema: Any, value: Any) -> Any:
    """Convert a default from JSON to a value of its type; bytes are strings of code points below 256."""
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
