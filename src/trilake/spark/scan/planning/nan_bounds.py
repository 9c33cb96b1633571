"""Floating point columns of Parquet files whose own bounds may leave NaN out.

To Spark NaN is greater than all else.  Writers built on Parquet's C++ or Rust library leave it out of the bounds of row
groups and pages, and Spark passes over those whose greatest value is too small: ``v > 5`` misses a NaN, in any scan of
such files.  Spark's own writer gives a column with a NaN no bounds, and so does ours.

A condition on :func:`unpushed` columns stays above the scan, so it skips nothing in a file, and the conditions on other
columns still do.  Inside structs this would read whole structs, and of very many columns it takes longer than all else:
there the reader is told to look at no bounds (:func:`~trilake.spark.scan.manifest.scan_options`).
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import types as T

from trilake.spark.session.type_tree import types_in

_NAME = r"(?:[A-Za-z_][A-Za-z_0-9]*|`(?:[^`]|``)*`)"
#: Spark compiles no projection of more columns; of 333 among 1,000 it took a third of a read.
_MOST_UNPUSHED = 100
_UNPUSHED = re.compile(rf"(?i)\bnanvl\(({_NAME}), \1\)")


def is_float(type_: T.DataType) -> bool:
    """Whether values of the type can be NaN."""
    return isinstance(type_, T.FloatType | T.DoubleType)


def has_floats(part: Any) -> bool:
    """Whether there are floating point numbers in a field or type."""
    type_ = part.dataType if isinstance(part, T.StructField) else part
    return any(is_float(inner) for _, inner in types_in(type_))


def trusts_no_bounds(schema: T.StructType) -> bool:
    """Whether a reader of such files must look at no bounds at all, as there are too many of its columns to keep
    :func:`unpushed`, or some in structs.

    >>> plain = T.StructType().add("d", "double")
    >>> trusts_no_bounds(plain), trusts_no_bounds(T.StructType().add("s", plain))
    (False, True)
    """
    if sum(is_float(f.dataType) for f in schema.fields) > _MOST_UNPUSHED:
        return True
    return any(isinstance(f.dataType, T.StructType) and _has_bounded_floats(f.dataType) for f in schema.fields)


def _has_bounded_floats(type_: T.DataType) -> bool:
    """Whether there are floating point numbers that Parquet bounds: not in lists and maps."""
    if isinstance(type_, T.StructType):
        return any(_has_bounded_floats(f.dataType) for f in type_.fields)
    return is_float(type_)


def unpushed(term: str) -> str:
    """The same value, in a form that Spark hands to no reader of files.

    >>> unpushed("`d`")
    'nanvl(`d`, `d`)'
    """
    return f"nanvl({term}, {term})"


def pushed(condition: str) -> str:
    """A condition, as Spark prints it and without its strings, over the columns themselves.

    >>> pushed("((nanvl(`my d`, `my d`) > 5.0D) OR (nanvl(d, e) = d))")
    '((`my d` > 5.0D) OR (nanvl(d, e) = d))'
    """
    return _UNPUSHED.sub(r"\1", condition)
