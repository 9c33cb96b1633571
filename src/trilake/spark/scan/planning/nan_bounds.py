"""Floating point columns of Parquet files whose bounds may ignore NaN.

Spark orders NaN after all other values.  Writers based on Parquet's C++ or Rust library ignore NaN in the bounds of row
groups and pages, so Spark skips those whose maximum is too small: ``v > 5`` misses a NaN in any scan of such files.
Spark's own writer, like trilake's, writes no bounds for a column chunk with a NaN.

Spark does not push down a condition on :func:`unpushed` columns, but still pushes down those on other columns.  Inside
structs this would read whole structs, and it is slow for very many columns; in these cases, the reader ignores all
bounds (:func:`~trilake.spark.scan.manifest.scan_options`).
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import types as T

from trilake.spark.session.type_tree import types_in

_NAME = r"(?:[A-Za-z_][A-Za-z_0-9]*|`(?:[^`]|``)*`)"
#: Spark does not compile larger projections; 333 of 1,000 columns took a third of a read.
_MOST_UNPUSHED = 100
_UNPUSHED = re.compile(rf"(?i)\bnanvl\(({_NAME}), \1\)")


def is_float(type_: T.DataType) -> bool:
    """Whether values of the type can be NaN."""
    return isinstance(type_, T.FloatType | T.DoubleType)


def has_floats(part: Any) -> bool:
    """Whether a field or type contains floating point numbers."""
    type_ = part.dataType if isinstance(part, T.StructField) else part
    return any(is_float(inner) for _, inner in types_in(type_))


def trusts_no_bounds(schema: T.StructType) -> bool:
    """Whether a reader of such files must ignore all bounds: with too many :func:`unpushed` columns, or some in
    structs.

    >>> plain = T.StructType().add("d", "double")
    >>> trusts_no_bounds(plain), trusts_no_bounds(T.StructType().add("s", plain))
    (False, True)
    """
    if sum(is_float(f.dataType) for f in schema.fields) > _MOST_UNPUSHED:
        return True
    return any(isinstance(f.dataType, T.StructType) and _has_bounded_floats(f.dataType) for f in schema.fields)


def _has_bounded_floats(type_: T.DataType) -> bool:
    """Whether Parquet has bounds for floating point numbers in the type: not in lists and maps."""
    if isinstance(type_, T.StructType):
        return any(_has_bounded_floats(f.dataType) for f in type_.fields)
    return is_float(type_)


def unpushed(term: str) -> str:
    """The same value, in a form that Spark does not push down.

    >>> unpushed("`d`")
    'nanvl(`d`, `d`)'
    """
    return f"nanvl({term}, {term})"


def pushed(condition: str) -> str:
    """A condition as Spark prints it, with :func:`unpushed` undone.

    >>> pushed("((nanvl(`my d`, `my d`) > 5.0D) OR (nanvl(d, e) = d))")
    '((`my d` > 5.0D) OR (nanvl(d, e) = d))'
    """
    return _UNPUSHED.sub(r"\1", condition)
