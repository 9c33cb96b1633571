"""Filters: Spark SQL conditions and pyarrow expressions, evaluated over Arrow data and used to skip files."""

from trilake.expr.filter import Filter, parse_filter
from trilake.expr.predicate import Conjunct
from trilake.expr.skip import SkipResult, can_match
from trilake.expr.stats import ColumnStats, FileStats

__all__ = ["ColumnStats", "Conjunct", "FileStats", "Filter", "SkipResult", "can_match", "parse_filter"]
