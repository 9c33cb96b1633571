"""``delta.connect.tables``: the classes of ``delta.tables``, which take sessions of both kinds."""

from __future__ import annotations

from delta.tables import DeltaMergeBuilder, DeltaOptimizeBuilder, DeltaTable, DeltaTableBuilder, IdentityGenerator

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]
