"""``LanceSchema`` and ``LanceField``: schemas with field ids.

>>> import pyarrow as pa
>>> ds = LanceSchema.from_pyarrow(pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int32())]))]))
>>> [(f.name(), f.id(), [c.name() for c in f.children()]) for f in ds.fields()]
[('id', 0, []), ('at', 1, ['x'])]
>>> ds.to_pyarrow().names
['id', 'at']
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from trilake.lance.file import schema as file_schema
from trilake.lance.file.schema_json import json_to_schema, schema_to_json

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
