"""Forms of expressions: what a condition on a column implies for an expression of that column.

For example, a filter on ``t`` can prune partitions by ``CAST(t AS DATE)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from trilake.expr.expression import Expression
from trilake.expr.terms.datatypes import Path


class Form(Enum):
    """How an expression depends on its column.  Except for ``OTHER``, it is null exactly if the column is."""

    #: The column itself.
    SAME = "same"
    #: A non-decreasing function.
    STEPS = "steps"
    #: The year; with ``PART`` of the same column it sorts like the column.
    YEAR = "year"
    #: The month, day of the month or hour.
    PART = "part"
    #: The first characters of a string.
    PREFIX = "prefix"
    #: Equal values give equal values.
    OTHER = "other"


@dataclass(frozen=True)
class Derived:
    """An expression of one column: the column's ``path`` and ``type``, and the form.

    ``level`` orders year, month, day and hour (0 to 3); ``length`` is that of a prefix in characters.
    """

    expression: Expression
    form: Form
    path: Path
    type: pa.DataType
    level: int = 0
    length: int = 0
