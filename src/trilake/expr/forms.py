"""What conditions on a column imply for an expression of that column.

A table may be partitioned by ``CAST(t AS DATE)`` and filtered by a range of ``t``.  Only some forms of expressions
allow conclusions; they are defined here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from trilake.expr.expression import Expression
from trilake.expr.terms.datatypes import Path


class Form(Enum):
    """How an expression depends on its column.  Except for ``OTHER``, it is null exactly where the column is."""

    #: The column itself.
    SAME = "same"
    #: A non-decreasing function.
    STEPS = "steps"
    #: The year; together with ``PART`` of the same column it sorts like the column.
    YEAR = "year"
    #: The month, day of the month or hour.
    PART = "part"
    #: The first characters of a string.
    PREFIX = "prefix"
    #: Only equal values are known to give equal values.
    OTHER = "other"


@dataclass(frozen=True)
class Derived:
    """An expression of one column: ``path`` and ``type`` of the column, and the form.

    ``level`` orders year, month, day and hour (0 to 3); ``length`` is that of a prefix in characters.
    """

    expression: Expression
    form: Form
    path: Path
    type: pa.DataType
    level: int = 0
    length: int = 0
