"""Table feature ``vacuumProtocolCheck``: who vacuums must know the whole protocol."""

from __future__ import annotations

from trilake.delta.protocol.feature import Feature

FEATURE = Feature("vacuumProtocolCheck", 3, 7)
