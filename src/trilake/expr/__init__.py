"""Filters and expressions: evaluate Spark SQL over Arrow data, and skip files by statistics.

Names are imported lazily: opening a table only needs literals.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trilake.expr.expression import Expression, evaluate_all, parse_expression
    from trilake.expr.filter import Filter, parse_filter
    from trilake.expr.skip import ColumnStats, FileStats, SkipResult, can_match
    from trilake.expr.terms.predicate import Conjunct

__all__ = [
    "ColumnStats", "Conjunct", "Expression", "FileStats", "Filter", "SkipResult", "can_match", "evaluate_all",
    "parse_expression", "parse_filter",
]  # fmt: skip

_HOME = {
    **dict.fromkeys(("Expression", "evaluate_all", "parse_expression"), "expression"),
    **dict.fromkeys(("Filter", "parse_filter"), "filter"),
    **dict.fromkeys(("ColumnStats", "FileStats", "SkipResult", "can_match"), "skip"),
    "Conjunct": "terms.predicate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
