"""High-water marks of identity columns in a table's metadata: they move with every write that generates values.

Protocol: *Identity Columns*.  A change of metadata that moves nothing else is no change of the schema.
"""

from __future__ import annotations

from dataclasses import replace

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import StructField, StructType
from trilake.delta.rules.identity import HIGH_WATER_MARK


def _without_mark(field: StructField) -> StructField:
    return replace(field, metadata={k: v for k, v in field.metadata.items() if k != HIGH_WATER_MARK})


def only_marks_moved(old: Metadata, new: Metadata) -> bool:
    """Whether two versions of a table's metadata differ in nothing but the high-water marks of identity columns."""

    def bare(metadata: Metadata) -> Metadata:
        schema = StructType(tuple(_without_mark(f) for f in metadata.schema.fields))
        return replace(metadata, schema_string=schema.json(), created_time=None)

    return bare(old) == bare(new)
