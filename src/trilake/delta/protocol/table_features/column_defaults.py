"""Table feature ``allowColumnDefaults``: values for columns that rows omit."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, columns_in_use, has_column_key

KEY = "CURRENT_DEFAULT"

FEATURE = Feature(
    "allowColumnDefaults",
    None,
    7,
    active=has_column_key(KEY),
    removal=FeatureRemoval(
        in_use=columns_in_use(lambda m: KEY in m, "columns have defaults", "drop the defaults first")
    ),
)
