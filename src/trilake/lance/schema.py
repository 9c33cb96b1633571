"""``LanceSchema`` and ``LanceField``: schemas with field ids; and schemas as JSON, with Lance's type names.

>>> import pyarrow as pa
>>> ds = LanceSchema.from_pyarrow(pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int32())]))]))
>>> [(f.name(), f.id(), [c.name() for c in f.children()]) for f in ds.fields()]
[('id', 0, []), ('at', 1, ['x'])]
>>> ds.to_pyarrow().names
['id', 'at']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from trilake.errors import InvalidArgumentError, TrilakeError
from trilake.lance.file import schema as file_schema
from trilake.lance.file import types
from trilake.lance.file.schema import MAX_DEPTH

__all__ = ["LanceField", "LanceSchema", "json_to_schema", "schema_to_json"]


@dataclass(frozen=True)
class LanceField:
    """A column or nested field with its id."""

    _field: file_schema.Field

    def name(self) -> str:
        """Return the name without those of the parents."""
        return self._field.name

    def id(self) -> int:
        """Return the field id."""
        return self._field.id

    def children(self) -> list[LanceField]:
        """Return the fields of a struct, or the item of a list."""
        return [LanceField(child) for child in self._field.children]

    @property
    def metadata(self) -> dict[str, str]:
        pairs = self._field.metadata.items()
        return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in pairs}

    def to_arrow(self) -> pa.Field:
        """Convert to an Arrow field."""
        return self._field.storage_field


@dataclass(frozen=True)
class LanceSchema:
    """Columns with field ids, which stay the same when a column is renamed."""

    stored: file_schema.LanceSchema

    @staticmethod
    def from_pyarrow(schema: pa.Schema) -> LanceSchema:
        """Assign ids from 0 to the fields of an Arrow schema, including nested ones.

        Raises ``UnsupportedProtocolError`` for unsupported types.
        """
        return LanceSchema(file_schema.LanceSchema.from_arrow(schema))

    def to_pyarrow(self) -> pa.Schema:
        """Convert to an Arrow schema."""
        return self.stored.to_arrow()

    def fields(self) -> list[LanceField]:
        """Return the columns."""
        return [LanceField(field) for field in self.stored.fields]

    def field(self, name: str) -> LanceField | None:
        """Return the field at a path such as ``"column"`` or ``"column.part"``, or ``None``."""
        match = self.stored.find(name)
        return None if match is None else LanceField(match)

    def field_case_insensitive(self, name: str) -> LanceField | None:
        """Return the field at a path regardless of case, preferring an exact match."""
        exact = self.field(name)
        alike = [f for f in self.stored.walk() if self.stored.name_of(f).lower() == name.lower()]
        return exact if exact is not None or not alike else LanceField(alike[0])

    def with_columns(self, more: file_schema.LanceSchema) -> LanceSchema:
        """Append columns, or fields of structs."""
        return LanceSchema(self.stored.merged(more)[0])


# --- JSON ------------------------------------------------------------------------------------------------------------

_NESTED = {"list", "large_list", "fixed_size_list", "struct"}


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """Convert a schema to JSON: ``fields``, each with ``name``, ``type`` and ``nullable``, and ``metadata``.

    Raises ``InvalidArgumentError`` for a type that Lance does not have.

    >>> schema_to_json(pa.schema({"a": pa.int64()}))
    {'fields': [{'name': 'a', 'type': {'type': 'int64'}, 'nullable': True}]}
    """
    json: dict[str, Any] = {"fields": [_field(f) for f in schema]}
    if schema.metadata:
        json["metadata"] = {k.decode(): v.decode() for k, v in schema.metadata.items()}
    return json


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(types.storage_type(field.type)), "nullable": field.nullable}


def _type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(kind.field(i)) for i in range(kind.num_fields)]}
    if pa.types.is_fixed_size_list(kind):
        return {"type": "fixed_size_list", "fields": [_field(kind.value_field)], "length": kind.list_size}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        name = "list" if pa.types.is_list(kind) else "large_list"
        return {"type": name, "fields": [_field(kind.value_field)]}
    try:
        return {"type": types.logical_type(kind)}
    except TrilakeError as e:
        raise InvalidArgumentError(f"Failed to convert schema to json: {e.message}") from e


def json_to_schema(schema_json: Mapping[str, Any]) -> pa.Schema:
    """Convert the JSON of :func:`schema_to_json` to a schema.  Raises ``InvalidArgumentError``.

    >>> json_to_schema({"fields": [{"name": "a", "type": {"type": "int64"}, "nullable": True}]})
    a: int64
    """
    try:
        fields = [_parsed(f, 0) for f in schema_json["fields"]]
        metadata = schema_json.get("metadata")
        return pa.schema(fields, None if metadata is None else dict(metadata))
    except (KeyError, TypeError, AttributeError, ValueError, TrilakeError) as e:
        raise InvalidArgumentError(f"Failed to convert json to schema: {e!r}") from e


def _parsed(field: Mapping[str, Any], depth: int) -> pa.Field:
    if depth > MAX_DEPTH:
        raise InvalidArgumentError(f"fields are nested more than {MAX_DEPTH} levels deep")
    kind_json = field["type"]
    name = kind_json["type"]
    below = [_parsed(f, depth + 1) for f in kind_json["fields"]] if name in _NESTED else []
    kind: pa.DataType
    if name == "struct":
        kind = pa.struct(below)
    elif name == "fixed_size_list":
        kind = pa.list_(below[0], int(kind_json["length"]))
    elif name in _NESTED:
        kind = pa.list_(below[0]) if name == "list" else pa.large_list(below[0])
    else:
        kind = types.arrow_type(str(name))
    return pa.field(str(field["name"]), kind, bool(field["nullable"]))
