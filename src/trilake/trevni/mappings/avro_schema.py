"""Avro schemas, their JSON as the reference writes it, and the values of their simple types as column values."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from trilake.common.extras import missing
from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.trevni.blocks.layout import ValueType

try:
    import fastavro
    import fastavro.read
    import fastavro.schema
    import fastavro.write
except ImportError:
    raise missing("fastavro", "Avro schemas and files") from None

__all__ = ["fastavro"]


#: A schema as JSON, in the form of fastavro, or parsed.
SchemaLike: TypeAlias = "str | dict[str, Any] | list[Any] | AvroSchema"


class AvroSchema:
    """A parsed schema with its named types.  Raises ``InvalidArgumentError`` for an invalid schema."""

    def __init__(self, schema: SchemaLike) -> None:
        self.named: dict[str, Any] = {}
        self.root: Any
        if isinstance(schema, AvroSchema):
            self.named, self.root = schema.named, schema.root
            return
        try:
            self.root = fastavro.parse_schema(_loaded(schema), self.named)
        except (
            fastavro.schema.SchemaParseException,
            fastavro.schema.UnknownType,
            ValueError,
            TypeError,
            KeyError,
        ) as e:
            raise InvalidArgumentError(f"invalid Avro schema: {e}") from e
        except RecursionError as e:
            raise InvalidArgumentError("the Avro schema is nested too deeply") from e

    def as_json(self) -> str:
        """Return the schema as compact JSON in the form of the reference; each type is defined at its first use."""
        return json.dumps(_java_form(self.root, self.named, "", set()), separators=(",", ":"), ensure_ascii=False)

    def resolve(self, schema: Any) -> Any:
        """Return the definition of a type that may be given by name."""
        return self.named[schema] if isinstance(schema, str) and schema in self.named else schema

    def kind(self, schema: Any) -> str:
        """Return ``record``, ``int`` and so on; ``union`` for a list."""
        schema = self.resolve(schema)
        if isinstance(schema, list):
            return "union"
        if isinstance(schema, str):
            return schema
        # Types may be wrapped: {"type": {"type": "string"}}.
        return self.kind(schema["type"]) if isinstance(schema["type"], dict | list) else str(schema["type"])

    def full_name(self, schema: Any) -> str:
        """Return the name of a type in the reference: the full name of a named type, else its kind."""
        schema = self.resolve(schema)
        kind = self.kind(schema)
        return str(schema["name"]) if kind in ("record", "error", "enum", "fixed") else kind


def branch_name(branch: Any) -> str:
    """Return the name of the record for a simple branch of a union, see :func:`with_named_branches`."""
    return f"trilake.branch_{zlib.crc32(json.dumps(branch, sort_keys=True).encode()):08x}"


def is_named_branch(schema: AvroSchema, union: Sequence[Any], branch: Any) -> bool:
    """Whether a branch of a union becomes a record, because its values may match another branch."""
    several = sum(schema.kind(other) != "null" for other in union) > 1
    return several and schema.kind(branch) in _UNNAMED


def with_named_branches(schema: AvroSchema) -> Any:
    """Replace simple branches of unions with records of one field ``v``: decoders then return a value's branch."""
    return _named(schema, schema.root, set())


_UNNAMED = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
#: Properties of types in the Avro specification.
_PROPERTIES = frozenset(
    ["type", "name", "namespace", "doc", "fields", "symbols", "size", "items", "values", "aliases", "default"]
)


def _named(schema: AvroSchema, part: Any, seen: set[str]) -> Any:
    if isinstance(part, list):
        return [_named_branch(schema, part, branch, seen) for branch in part]
    if isinstance(part, str):
        return part
    named = {key: value for key, value in part.items() if not key.startswith("__")}
    for key in ("items", "values", "type"):
        if isinstance(named.get(key), dict | list):
            named[key] = _named(schema, named[key], seen)
    if "fields" in named:
        # Defaults may not match the new records, and decoding does not need them.
        named["fields"] = [{"name": f["name"], "type": _named(schema, f["type"], seen)} for f in named["fields"]]
    return named


def _named_branch(schema: AvroSchema, union: Sequence[Any], branch: Any, seen: set[str]) -> Any:
    if not is_named_branch(schema, union, branch):
        return _named(schema, branch, seen)
    name = branch_name(branch)
    if name in seen:
        return name
    seen.add(name)
    return {"type": "record", "name": name, "fields": [{"name": "v", "type": _named(schema, branch, seen)}]}


def _loaded(schema: SchemaLike) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        loaded = json.loads(schema)
    except ValueError:
        return schema  # a type name
    return "null" if loaded is None else loaded  # null is also a type name


def _java_form(schema: Any, named: Mapping[str, Any], space: str, seen: set[str]) -> Any:
    """Return the schema in the form of the reference: properties in a fixed order, and the shortest names."""
    if isinstance(schema, list):
        return [_java_form(branch, named, space, seen) for branch in schema]
    if isinstance(schema, str):
        if schema not in named:
            return schema
        if schema in seen:
            namespace, _, short = schema.rpartition(".")
            return short if namespace == space else schema
        schema = named[schema]
    extra = {key: value for key, value in schema.items() if key not in _PROPERTIES and not key.startswith("__")}
    kind = schema["type"]
    if kind == "array":
        return {"type": "array", "items": _java_form(schema["items"], named, space, seen), **extra}
    if kind == "map":
        return {"type": "map", "values": _java_form(schema["values"], named, space, seen), **extra}
    if kind not in ("record", "error", "enum", "fixed"):
        inner = _java_form(kind, named, space, seen)
        return {"type": inner, **extra} if extra else inner
    namespace, _, short = schema["name"].rpartition(".")
    seen.add(schema["name"])
    form: dict[str, Any] = {"type": kind, "name": short}
    if namespace != space:
        form["namespace"] = namespace
    if "doc" in schema:
        form["doc"] = schema["doc"]
    if kind in ("record", "error"):
        form["fields"] = [_java_field(field, named, namespace, seen) for field in schema["fields"]]
    elif kind == "enum":
        form["symbols"] = schema["symbols"]
        if "default" in schema:
            form["default"] = schema["default"]
    else:
        form["size"] = schema["size"]
    form.update(extra)
    if schema.get("aliases"):
        form["aliases"] = schema["aliases"]
    return form


def _java_field(field: Mapping[str, Any], named: Mapping[str, Any], space: str, seen: set[str]) -> dict[str, Any]:
    form = {"name": field["name"], "type": _java_form(field["type"], named, space, seen)}
    form.update({key: field[key] for key in ("doc", "default", "order") if key in field})
    standard = ("name", "type", "doc", "default", "order", "aliases")
    form.update({key: value for key, value in field.items() if key not in standard and not key.startswith("__")})
    if field.get("aliases"):
        form["aliases"] = field["aliases"]
    return form


_RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}

#: Trevni types of the simple Avro types.
SIMPLE = {t.value: t for t in ValueType if t not in (ValueType.FIXED32, ValueType.FIXED64)}
SIMPLE |= {"enum": ValueType.INT, "fixed": ValueType.BYTES}


def as_string(value: Any) -> Any:
    """Decode a string given as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def encoder(schema: Any, kind: str, column: str) -> Callable[[Any], Any] | None:
    """Return the function that converts values of a simple type to column values; ``None`` if they are the same."""
    if kind == "enum":
        return _codes(schema["symbols"], column)
    if kind == "fixed":
        return _fixed(schema, column)
    return logical_writer(schema) or (as_string if kind == "string" else None)


def _codes(symbols: Sequence[str], column: str) -> Callable[[Any], int]:
    codes = {symbol: code for code, symbol in enumerate(symbols)}

    def code(value: Any) -> int:
        if value not in codes:
            raise SchemaMismatchError(f"expected one of {', '.join(codes)}, got {value!r}", column=column)
        return codes[value]

    return code


def _fixed(schema: Mapping[str, Any], column: str) -> Callable[[Any], bytes]:
    size, prepare = schema["size"], logical_writer(schema)

    def check(value: Any) -> bytes:
        value = value if prepare is None else prepare(value)
        if not isinstance(value, bytes | bytearray) or len(value) != size:
            raise SchemaMismatchError(f"expected {size} bytes, got {value!r}", column=column)
        return bytes(value)

    return check


def _logical_key(schema: Any) -> str | None:
    if isinstance(schema, dict) and "logicalType" in schema and isinstance(schema["type"], str):
        return f"{schema['type']}-{schema['logicalType']}"
    return None


def logical_writer(schema: Any) -> Callable[[Any], Any] | None:
    """Return the function that converts values of a logical type to its simple type; ``None`` for other types."""
    prepare = fastavro.write.LOGICAL_WRITERS.get(_logical_key(schema) or "")
    return None if prepare is None else lambda value: prepare(value, schema)


def field_getter(name: str, defaults: Mapping[str, Any]) -> Callable[[Any, str], Any]:
    """Return the function that returns a field of a record ``name``, or its default."""

    def get(record: Any, field: str) -> Any:
        if not isinstance(record, Mapping):
            raise SchemaMismatchError(f"expected a record {name}, got {type(record).__name__}")
        # Like fastavro, use null without a default; the type must allow it.
        return record[field] if field in record else defaults.get(field)

    return get


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


def symbol_reader(stored: Sequence[str], target: Mapping[str, Any], column: str) -> Callable[[int], str]:
    """Return the function from numbers of ``stored`` symbols to symbols of the enum ``target``, or its default."""
    symbols = [symbol if symbol in target["symbols"] else target.get("default") for symbol in stored]

    def read(code: int) -> str:
        if not 0 <= code < len(symbols):
            message = f"symbol number {code} is out of range for an enum of {len(symbols)} symbols"
            raise CorruptFileError(message, column=column)
        symbol = symbols[code]
        if symbol is None:
            message = f"{stored[code]!r} is not a symbol of the requested enum {target['name']}, which has no default"
            raise SchemaMismatchError(message, column=column)
        return symbol

    return read


def logical_reader(schema: Any, **where: str | None) -> Callable[[Any], Any] | None:
    """Return the function that reads a logical type, with errors at ``where``; ``None`` for other types."""
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
    """Return the function that converts values to a compatible type; ``None`` if they stay the same."""
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
