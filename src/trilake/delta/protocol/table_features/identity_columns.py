"""Table feature ``identityColumns``: columns with generated unique numbers."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, columns_in_use, has_column_key

PREFIX = "delta.identity."

FEATURE = Feature(
    "identityColumns",
    None,
    6,
    active=has_column_key(PREFIX),
    removal=FeatureRemoval(
        in_use=columns_in_use(
            lambda m: f"{PREFIX}start" in m or f"{PREFIX}step" in m,
            "columns are identity columns",
            "drop these columns first",
        )
    ),
)
