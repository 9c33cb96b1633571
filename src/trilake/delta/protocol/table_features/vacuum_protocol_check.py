"""Table feature ``vacuumProtocolCheck``: VACUUM must support the whole protocol."""

from __future__ import annotations

from trilake.delta.protocol.feature_definition import Feature

FEATURE = Feature("vacuumProtocolCheck", 3, 7, late=True)
