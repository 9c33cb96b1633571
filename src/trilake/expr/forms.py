"""What conditions on a column say about an expression of that column.

A table may be partitioned by ``CAST(t AS DATE)`` and asked for a range of ``t``.  Here an expression is recognised as
one of the forms whose values follow the values of its column: only of those something can be concluded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from trilake.expr.expression import Expression
from trilake.expr.terms.datatypes import Path


class Form(Enum):
    """How an expression follows its column.  In all but ``OTHER`` it is null exactly where the column is."""

    #: It is the column.
    SAME = "same"
    #: It never decreases when the column grows.
    STEPS = "steps"
    #: It is the year; together with ``PART`` of the same column it orders as the column does.
    YEAR = "year"
    #: It is the month, the day of the month or the hour.
    PART = "part"
    #: It is the first characters of a text.
    PREFIX = "prefix"
    #: Only equal values are known to give equal values.
    OTHER = "other"


@dataclass(frozen=True)
class Derived:
    """An expression of one column: ``path`` and ``type`` of the column, and how the expression follows it.

    ``level`` orders year, month, day and hour (0 to 3); ``length`` is that of a prefix in characters.
    """

    expression: Expression
    form: Form
    path: Path
    type: pa.DataType
    level: int = 0
    length: int = 0
