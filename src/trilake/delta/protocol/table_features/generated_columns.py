"""Table feature ``generatedColumns``: columns that are computed from others."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, columns_in_use, has_column_key

KEY = "delta.generationExpression"

FEATURE = Feature(
    "generatedColumns",
    None,
    4,
    active=has_column_key(KEY),
    removal=FeatureRemoval(
        in_use=columns_in_use(lambda m: KEY in m, "columns are generated", "drop these columns first")
    ),
)
