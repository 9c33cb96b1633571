"""Names of schemas that users of the format know under this module.

>>> import pyarrow as pa
>>> made = LanceSchema.from_pyarrow(pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int32())]))]))
>>> [(f.name(), f.id(), [c.name() for c in f.children()]) for f in made.fields()]
[('id', 0, []), ('at', 1, ['x'])]
>>> made.to_pyarrow().names
['id', 'at']
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from trilake.lance.file import schema as stored
from trilake.lance.file.schema_json import json_to_schema, schema_to_json

__all__ = ["LanceField", "LanceSchema", "json_to_schema", "schema_to_json"]


@dataclass(frozen=True)
class LanceField:
    """A column with its id, or a field in one."""

    _field: stored.Field

    def name(self) -> str:
        """Its own name, without those of the fields above it."""
        return self._field.name

    def id(self) -> int:
        """The id, by which data files know it."""
        return self._field.id

    def children(self) -> list[LanceField]:
        """A struct's fields, or a list's item."""
        return [LanceField(child) for child in self._field.children]

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the field."""
        pairs = self._field.metadata.items()
        return {key.decode("utf-8", "replace"): text.decode("utf-8", "replace") for key, text in pairs}

    def to_arrow(self) -> pa.Field:
        """The Arrow field."""
        return self._field.storage_field


@dataclass(frozen=True)
class LanceSchema:
    """Columns with their ids, by which data files know them whatever they are called."""

    _schema: stored.LanceSchema

    @staticmethod
    def from_pyarrow(schema: pa.Schema) -> LanceSchema:
        """The columns of an Arrow schema, with ids from 0 on, fields of structs counted.

        Raises ``UnsupportedProtocolError`` for types that the format does not have.
        """
        return LanceSchema(stored.LanceSchema.from_arrow(schema))

    def to_pyarrow(self) -> pa.Schema:
        """The Arrow schema."""
        return self._schema.to_arrow()

    def fields(self) -> list[LanceField]:
        """The columns."""
        return [LanceField(field) for field in self._schema.fields]

    def field(self, name: str) -> LanceField | None:
        """The field of a name, such as ``"column"`` or ``"column.part"``, if there is one."""
        found = self._schema.find(name)
        return None if found is None else LanceField(found)

    def field_case_insensitive(self, name: str) -> LanceField | None:
        """The field of a name whatever its case, if there is one; that of just this case where several are."""
        exact = self.field(name)
        alike = [f for f in self._schema.walk() if self._schema.name_of(f).lower() == name.lower()]
        return exact if exact is not None or not alike else LanceField(alike[0])

    def with_columns(self, more: stored.LanceSchema) -> LanceSchema:
        """The columns, and more behind them."""
        own = self._schema
        return LanceSchema(stored.LanceSchema((*own.fields, *more.fields), own.metadata))

    @property
    def stored(self) -> stored.LanceSchema:
        """The columns as manifests have them."""
        return self._schema
