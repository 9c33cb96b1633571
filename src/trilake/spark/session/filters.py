"""Spark's pushed-down filters as filters of trilake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from trilake.errors import FilterError
from trilake.expr import Filter
from trilake.expr.build import Term, and_, compare, in_, is_null, not_, starts_with, to_filter

if TYPE_CHECKING:
    from pyspark.sql import datasource as ds

#: Comparisons by the name of Spark's class, which releases without push-down lack.
_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def push_filters(filters: Sequence[ds.Filter], schema: pa.Schema) -> Filter | None:
    """The conjunction of those of Spark's filters that can be said here; ``None`` where none can.

    Spark applies all of them to the rows again, so leaving one out costs time and never rows.
    """
    terms = []
    for f in filters:
        term = _term(f)
        if term is None:
            continue
        try:
            to_filter(term, schema)
        except FilterError:
            continue  # a literal of a type that does not compare with the column here
        terms.append(term)
    return to_filter(and_(*terms), schema) if terms else None


def _term(f: ds.Filter) -> Term | None:
    from pyspark.sql import datasource as ds  # only a release that pushes filters down comes here

    op = _COMPARISONS.get(type(f).__name__)
    if op is not None:
        return compare(f.attribute, op, f.value)  # type: ignore[attr-defined]  # each of them has both
    if isinstance(f, ds.In):
        return in_(f.attribute, f.value)
    if isinstance(f, ds.IsNull):
        return is_null(f.attribute)
    if isinstance(f, ds.IsNotNull):
        return not_(is_null(f.attribute))
    if isinstance(f, ds.StringStartsWith):
        return starts_with(f.attribute, f.value)
    if isinstance(f, ds.Not):
        inner = _term(f.child)
        return None if inner is None else not_(inner)
    return None
