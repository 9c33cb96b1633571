"""Table feature ``geospatial`` and its preview ``geospatial-dev``: columns of geometries and geographies."""

from __future__ import annotations

from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, Inspection, Trace, metadata_in_past
from trilake.delta.protocol.schema import DataType, is_spatial, types_in


def _has_spatial(t: DataType) -> bool:
    return any(is_spatial(str(inner)) for _, inner in types_in(t))


def _active(metadata: Metadata) -> bool:
    return _has_spatial(metadata.schema)


def _in_use(table: Inspection) -> Trace | None:
    names = [f.name for f in table.metadata.schema.fields if _has_spatial(f.type)]
    what = f"columns contain geometries or geographies: {', '.join(names)}"
    condition = "DELTA_CANNOT_DROP_GEOSPATIAL_FEATURE"
    return Trace(what, "drop those columns first", condition=condition) if names else None


_REMOVAL = FeatureRemoval(in_use=_in_use, in_past=metadata_in_past(_active))

FEATURE = Feature("geospatial", 3, 7, active=_active, also="geospatial-dev", removal=_REMOVAL)
PREVIEW = Feature("geospatial-dev", 3, 7, removal=_REMOVAL)
