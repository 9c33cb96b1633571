"""Table feature ``invariants``: NOT NULL columns and column invariants."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import feature_of_keys

FEATURE = feature_of_keys(
    "invariants",
    2,
    "delta.invariants",
    "columns have rules",
    "make NOT NULL columns nullable first (ALTER COLUMN ... DROP NOT NULL), and drop columns with invariants",
    nullable=False,
)
