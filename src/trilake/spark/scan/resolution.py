"""Errors of Spark's analysis as trilake errors, in a few lines: the name, the columns there are, and no plan."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException

from trilake.errors import ExpressionError, TrilakeError
from trilake.spark.session.analysis_errors import analysed_error
from trilake.spark.session.compat import error_condition, without_echo

_log = logging.getLogger("trilake.spark")

#: Where what went wrong ends in an error's text, and where in a query it was begins.
_BEHIND = re.compile(r"\.?\s*SQLSTATE: |; line \d+ pos \d+|;\n")
_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")
#: A column that frames of files have apart from those of the table.
_HIDDEN = "_metadata"
#: Columns that a message names.
_MOST_NAMES = 50


@dataclass(frozen=True)
class UnresolvedName:
    """A name, by its parts, that is not a column of the tables in view, or (``ambiguous``) a column of several."""

    parts: tuple[str, ...]
    ambiguous: bool


def unresolved_name(error: AnalysisException) -> UnresolvedName | None:
    """The name that an error is about; ``None`` for an error about something else."""
    kind = error_condition(error) or ""
    ambiguous = kind.startswith("AMBIGUOUS_REFERENCE")
    if not ambiguous and not kind.startswith("UNRESOLVED_COLUMN"):
        return None
    text = (error.getMessageParameters() or {}).get("name" if ambiguous else "objectName", "")
    parts = tuple(m[2] or m[1].replace("``", "`") for m in _PART.finditer(text))
    return UnresolvedName(parts, ambiguous) if parts else None


def analysis_text(error: AnalysisException) -> str:
    r"""What an error says is wrong, in one line, without the plan behind it.

    >>> analysis_text(AnalysisException("[A.B] No field `x`. SQLSTATE: 42704; line 1 pos 0;\n'Filter ('x = 1)"))
    'No field `x`'
    """
    text = _BEHIND.split(str(error).strip(), maxsplit=1)[0]
    return " ".join(re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text).split())


@contextmanager
def resolving(
    explain: Callable[[UnresolvedName], TrilakeError],
    kind: type[TrilakeError] = ExpressionError,
    *,
    of_table: bool = False,
) -> Iterator[None]:
    """Let errors of Spark's analysis leave the block as trilake errors, which can be caught as Spark's too.

    Parameters
    ----------
    explain: the error for a name.
    kind: the class of errors about anything else, such as types.
    of_table: whether the frame in the block has the table's own columns alone; names that a frame of its files may have
        apart from are then passed over.

    Strings that are not SQL stay what Spark says of them, which is short and shows the place.
    """
    try:
        with without_echo():
            yield
    except ParseException:
        raise
    except AnalysisException as e:
        if isinstance(e, TrilakeError):
            raise
        _log.debug("Spark's analysis refused an expression", exc_info=e)
        name = unresolved_name(e)
        if of_table and name is not None and _HIDDEN in name.parts[:2]:
            return
        error = kind(analysis_text(e), help="correct the expression") if name is None else explain(name)
        raise analysed_error(error, e) from None


def column_errors(
    columns: Sequence[str], alias: str | None, kind: type[TrilakeError]
) -> Callable[[UnresolvedName], TrilakeError]:
    """The errors for names in expressions over one table, which they may call by ``alias``."""

    def explain(name: UnresolvedName) -> TrilakeError:
        parts = name.parts
        if len(parts) > 1 and parts[0].lower() == (alias or "").lower():
            parts = parts[1:]
        shown = ".".join(parts)
        what = f"several columns are named {shown!r}" if name.ambiguous else f"the table has no column {shown!r}"
        return kind(what, help=f"The columns are {', '.join(columns[:_MOST_NAMES])}", column=shown)

    return explain
