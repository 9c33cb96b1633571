"""Convert Spark's analysis errors to short trilake errors, with the name and the available columns, not the plan."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trilake.common.text import columns_help, split_parts
from trilake.errors import ExpressionError, TrilakeError
from trilake.spark.session.analysis_errors import analysed_error
from trilake.spark.session.compat import analysed_frame, error_condition, without_echo
from trilake.spark.session.internals import METADATA

_log = logging.getLogger("trilake.spark")

#: Where the message proper of an error ends.
_BEHIND = re.compile(r"\.?\s*SQLSTATE: |; line \d+ pos \d+|;\n")


@dataclass(frozen=True)
class UnresolvedName:
    """A name, in parts, that matches no column, or (``ambiguous``) several columns."""

    parts: tuple[str, ...]
    ambiguous: bool


def unresolved_name(error: AnalysisException) -> UnresolvedName | None:
    """The unresolved name in an error; ``None`` for other errors."""
    kind = error_condition(error) or ""
    ambiguous = kind.startswith("AMBIGUOUS_REFERENCE")
    if not ambiguous and not kind.startswith("UNRESOLVED_COLUMN"):
        return None
    name = (error.getMessageParameters() or {}).get("name" if ambiguous else "objectName", "")
    parts = split_parts(name)
    return UnresolvedName(tuple(parts), ambiguous) if parts else None


def analysis_message(error: AnalysisException) -> str:
    r"""The message of an error in one line, without the plan.

    >>> analysis_message(AnalysisException("[A.B] No field `x`. SQLSTATE: 42704; line 1 pos 0;\n'Filter ('x = 1)"))
    'No field `x`'
    """
    message = _BEHIND.split(str(error).strip(), maxsplit=1)[0]
    return " ".join(re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message).split())


@contextmanager
def resolving(
    explain: Callable[[UnresolvedName], TrilakeError],
    kind: type[TrilakeError] = ExpressionError,
    *,
    of_table: bool = False,
) -> Iterator[None]:
    """Turn Spark's analysis errors in the block, except syntax errors, into trilake errors, which can also be caught as
    Spark's: ``explain`` makes the error for an unresolved name, ``kind`` is the class of all others.  With
    ``of_table``, ignore errors about the hidden columns of file scans, which the DataFrame lacks."""
    try:
        with without_echo():
            yield
    except ParseException:
        raise
    except AnalysisException as e:
        if isinstance(e, TrilakeError):
            raise
        _log.debug("Spark's analysis rejected an expression", exc_info=e)
        name = unresolved_name(e)
        if of_table and name is not None and METADATA in name.parts[:2]:
            return
        error = kind(analysis_message(e), help="fix the expression") if name is None else explain(name)
        raise analysed_error(error, e) from None


def column_errors(
    columns: Sequence[str], alias: str | None, kind: type[TrilakeError]
) -> Callable[[UnresolvedName], TrilakeError]:
    """The errors for unresolved names in expressions over one table, optionally qualified with ``alias``."""

    def explain(unresolved: UnresolvedName) -> TrilakeError:
        parts = unresolved.parts
        if len(parts) > 1 and parts[0].lower() == (alias or "").lower():
            parts = parts[1:]
        name = ".".join(parts)
        what = (
            f"several columns are named {name!r}" if unresolved.ambiguous else f"column {name!r} not found in the table"
        )
        return kind(what, help=columns_help("" if unresolved.ambiguous else name, columns), column=name)

    return explain


#: Spark's errors for such functions in a WHERE condition, which does not allow them either.
_OBSTACLES = ("INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED_IN_CLAUSE", "UNSUPPORTED_GENERATOR")


def check_row_values(frame: DataFrame, values: Sequence[Column]) -> None:
    """Raise ``ExpressionError`` if a value depends on more than its own row: Spark itself would return fewer or more
    rows."""
    if not values:
        return
    try:
        analysed_frame(frame.where(F.struct(*values).isNotNull()))
    except AnalysisException as e:
        if not (error_condition(e) or "").startswith(_OBSTACLES):
            raise
        error = ExpressionError(
            "a new value must be computed from a single row, without aggregate, window or generator functions. Invalid"
            f" expressions: {analysis_message(e)}",
            help="compute the value in a separate query, and merge its rows into the table",
            condition="UNSUPPORTED_EXPR_FOR_OPERATOR",
        )
        raise analysed_error(error, e) from None
