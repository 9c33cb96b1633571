"""Table feature ``appendOnly``: rows are never changed or removed."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, property_is_on
from trilake.delta.protocol.property_values import Property, boolean

KEY = "delta.appendOnly"

FEATURE = Feature("appendOnly", None, 2, active=property_is_on(KEY), properties=(Property(KEY, "false", boolean),))
