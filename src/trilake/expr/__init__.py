"""Filters and expressions: Spark SQL evaluated over Arrow data; filters are also used to skip files."""

from trilake.expr.expression import Expression, evaluate_all, parse_expression
from trilake.expr.filter import Filter, parse_filter
from trilake.expr.skip import SkipResult, can_match
from trilake.expr.stats import ColumnStats, FileStats
from trilake.expr.terms.predicate import Conjunct

__all__ = [
    "ColumnStats",
    "Conjunct",
    "Expression",
    "FileStats",
    "Filter",
    "SkipResult",
    "can_match",
    "evaluate_all",
    "parse_expression",
    "parse_filter",
]
