"""Errors with their place in the text: Spark's, and those of the grammar here."""

from __future__ import annotations

import re

from pyspark.errors import ParseException, PySparkException

from trilake.errors import TrilakeError
from trilake.sql.session.local import Local
from trilake.sql.text.cursor import SyntaxProblem
from trilake.sql.text.places import place_of
from trilake.sql.text.problems import SqlTextError

_PLACE = re.compile(r"\bline (\d+)(,?) pos(ition)? (\d+)")


class SqlSyntaxError(SqlTextError, ParseException):
    """A statement that neither Spark's grammar nor Delta's takes, as Spark's error."""

    def __init__(self, message: str, *, help: str | None = None, **context: object) -> None:
        TrilakeError.__init__(self, message, help=help, **context)
        self._message, self._errorClass = str(self), self.code
        self._messageParameters: dict[str, str] = {}

    def __str__(self) -> str:
        return SqlTextError.__str__(self)

    def getCondition(self) -> str:
        """The name of the error, as Spark's own errors say it."""
        return self.code

    def getErrorClass(self) -> str:
        """The same under the name of older releases."""
        return self.code


def syntax_error(text: str, problem: SyntaxProblem) -> SqlTextError:
    """The error for a text that the grammar does not take."""
    return SqlSyntaxError.at(text, problem)


def in_place(error: PySparkException, local: Local, *, shift: int = 0) -> PySparkException:
    """Spark's error with the places and names of the text as the user wrote it."""
    # Where Spark's errors keep the text that they show: in a classic session, and in a Connect session.
    kept = next((k for k in ("_desc", "_message") if isinstance(getattr(error, k, None), str)), None)
    if not local.changed or kept is None:
        return error
    said = str(getattr(error, kept))
    edited = local.edited

    def moved(match: re.Match[str]) -> str:
        line, position = int(match[1]), int(match[4])
        place = edited.source_place(line, max(0, position - shift) if line == 1 else position)
        return f"line {place.line}{match[2]} pos{match[3] or ''} {place.position}"

    said = _PLACE.sub(moved, said)
    for private, shown in local.names.items():
        said = said.replace(f"`{private}`", shown).replace(private, shown)
    setattr(error, kept, said)
    return error


def at(text: str, index: int) -> str:
    """A place as messages say it."""
    place = place_of(text, index)
    return f"line {place.line}, pos {place.position}"
