"""Table feature ``invariants``: NOT NULL columns and column invariants."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature, FeatureRemoval, columns_in_use, has_column_key

KEY = "delta.invariants"

FEATURE = Feature(
    "invariants",
    None,
    2,
    active=has_column_key(KEY),
    removal=FeatureRemoval(
        in_use=columns_in_use(
            lambda m: KEY in m,
            "columns have rules",
            "make NOT NULL columns nullable first (ALTER COLUMN ... DROP NOT NULL), and drop columns with invariants",
            nullable=False,
        )
    ),
)
