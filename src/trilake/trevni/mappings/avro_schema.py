"""``AvroSchema``: a parsed Avro schema, and its JSON as the reference writes it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

from trilake.common.extras import missing
from trilake.errors import InvalidArgumentError

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
    """A parsed schema with its named types.

    Raises ``InvalidArgumentError`` for an invalid schema.
    """

    def __init__(self, schema: SchemaLike) -> None:
        self.named: dict[str, Any] = {}
        self.root: Any
        if isinstance(schema, AvroSchema):
            self.named, self.root = schema.named, schema.root
            return
        try:
            loaded = _loaded(schema)
            self.root = fastavro.parse_schema(loaded, self.named)
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

    def with_root(self, root: Any) -> AvroSchema:
        """Return a schema with another root and the same named types."""
        other = copy(self)
        other.root = root
        return other

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
    """Return the schema with simple branches replaced by records with one field ``v``, if a union has several branches.

    The encoded bytes are the same, and decoders return the branch of each value.
    """
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
