"""``delta.tables``: the classes that delta-spark's users know, as trilake makes them."""

from __future__ import annotations

from trilake.spark.delta.merge.builder import DeltaMergeBuilder
from trilake.spark.delta.optimize import DeltaOptimizeBuilder
from trilake.spark.delta.table import DeltaTable
from trilake.spark.delta.table_builder import DeltaTableBuilder, IdentityGenerator

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]
