"""Table feature ``identityColumns``: columns with generated unique numbers."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import feature_of_keys

FEATURE = feature_of_keys(
    "identityColumns", 6, "delta.identity.", "columns are identity columns", "drop these columns first"
)
