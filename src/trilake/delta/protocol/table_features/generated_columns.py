"""Table feature ``generatedColumns``: columns that are computed from others."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import feature_of_keys

KEY = "delta.generationExpression"

FEATURE = feature_of_keys("generatedColumns", 4, KEY, "columns are generated", "drop these columns first")
