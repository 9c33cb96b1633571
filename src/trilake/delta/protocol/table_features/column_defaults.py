"""Table feature ``allowColumnDefaults``: values for columns that rows omit."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import feature_of_keys

FEATURE = feature_of_keys(
    "allowColumnDefaults", 7, "CURRENT_DEFAULT", "columns have defaults", "drop the defaults first"
)
