"""Table features that a column requires, by a key of its metadata or by its type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.feature_definition import (
    Feature,
    FeatureRemoval,
    Inspection,
    Trace,
    metadata_in_past,
    never,
)
from trilake.delta.protocol.schema import DataType, PrimitiveType, is_spatial, types_in
from trilake.delta.protocol.schema_edit import nested_fields

GENERATION_EXPRESSION = "delta.generationExpression"


def _by_key(name: str, writer: int, prefix: str, what: str, help: str, *, nullable: bool | None = None) -> Feature:
    """A feature of the columns with such keys; those that are ``nullable``, or not, use it, too."""

    def in_use(table: Inspection) -> Trace | None:
        fields = nested_fields(table.metadata.schema)
        names = [f.name for f in fields if any(k.startswith(prefix) for k in f.metadata) or f.nullable is nullable]
        return Trace(f"{what}: {', '.join(names)}", help) if names else None

    return Feature(
        name,
        None,
        writer,
        active=lambda m: any(k.startswith(prefix) for f in nested_fields(m.schema) for k in f.metadata),
        removal=FeatureRemoval(in_use=in_use),
    )


def _by_type(
    name: str, what: str, test: Callable[[str], bool], *, condition: str = Trace.condition, **more: Any
) -> Feature:
    """A feature of the columns that are, or contain, a type whose name passes a test."""

    def uses(t: DataType) -> bool:
        return any(isinstance(inner, PrimitiveType) and test(inner.name) for _, inner in types_in(t))

    def active(metadata: Metadata) -> bool:
        return uses(metadata.schema)

    def in_use(table: Inspection) -> Trace | None:
        names = [f.name for f in table.metadata.schema.fields if uses(f.type)]
        return Trace(f"{what}: {', '.join(names)}", "drop those columns first", condition=condition) if names else None

    removal = FeatureRemoval(in_use=in_use, in_past=metadata_in_past(active))
    return Feature(name, 3, 7, active=active, removal=removal, **more)


#: NOT NULL columns and column invariants.
INVARIANTS = _by_key(
    "invariants",
    2,
    "delta.invariants",
    "columns have rules",
    "make NOT NULL columns nullable first (ALTER COLUMN ... DROP NOT NULL), and drop columns with invariants",
    nullable=False,
)
#: Columns that are computed from others.
GENERATED_COLUMNS = _by_key(
    "generatedColumns", 4, GENERATION_EXPRESSION, "columns are generated", "drop these columns first"
)
#: Columns with generated unique numbers.
IDENTITY_COLUMNS = _by_key(
    "identityColumns", 6, "delta.identity.", "columns are identity columns", "drop these columns first"
)
#: Values for columns that rows omit.
COLUMN_DEFAULTS = _by_key(
    "allowColumnDefaults", 7, "CURRENT_DEFAULT", "columns have defaults", "drop the defaults first"
)
#: Timestamps without a time zone.
TIMESTAMP_NTZ = _by_type("timestampNtz", "columns are of type timestamp_ntz", "timestamp_ntz".__eq__, late=True)
#: Columns of semi-structured values.
VARIANT_TYPE = _by_type("variantType", "columns are of type variant", "variant".__eq__, also="variantType-preview")
VARIANT_TYPE_PREVIEW = replace(VARIANT_TYPE, name="variantType-preview", also=None)
#: Columns of geometries and geographies.
GEOSPATIAL = _by_type(
    "geospatial",
    "columns contain geometries or geographies",
    is_spatial,
    condition="DELTA_CANNOT_DROP_GEOSPATIAL_FEATURE",
    also="geospatial-dev",
)
GEOSPATIAL_PREVIEW = replace(GEOSPATIAL, name="geospatial-dev", also=None, active=never)
