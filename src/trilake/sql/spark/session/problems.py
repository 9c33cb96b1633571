"""Errors with their position in the SQL: Spark's, and those of trilake's parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame

from trilake.errors import InvalidArgumentError, TrilakeError, WriteFailedError
from trilake.spark.session.analysis_errors import SparkErrorMethods, analysis_error, job_error, raise_for_spark
from trilake.sql.parser.cursor import SyntaxProblem
from trilake.sql.parser.literals import Args
from trilake.sql.parser.places import place_of
from trilake.sql.parser.problems import SqlTextError
from trilake.sql.spark.session.local import Local
from trilake.sql.spark.session.session import SqlSession

#: Spark's internal error for a DELETE from the view of a frame.
_NO_TABLE = "Unexpected table relation"
_PLACE = re.compile(r"\bline (\d+)(,?) pos(ition)? (\d+)")


class SqlSyntaxError(SqlTextError, SparkErrorMethods, ParseException):
    """``SqlTextError`` that is Spark's ``ParseException``, too."""

    _state = "42601"

    def __init__(self, message: str, *, help: str | None = None, **context: object) -> None:
        TrilakeError.__init__(self, message, help=help, **context)
        self._message, self._errorClass = str(self), self.code

    def __str__(self) -> str:
        return SqlTextError.__str__(self)


@contextmanager
def errors_of_spark() -> Iterator[None]:
    """Make the block's errors Spark's errors, too, so that callers of Spark catch them."""
    try:
        yield
    except TrilakeError as e:
        raise_for_spark(e, job_error(e) if isinstance(e, WriteFailedError) else analysis_error(e))


def syntax_error(sql: str, problem: SyntaxProblem) -> SqlTextError:
    """The error for a syntax error."""
    return SqlSyntaxError.at(sql, problem)


def deleted_by_spark(session: SqlSession, sql: str, args: Args) -> DataFrame:
    """Run a DELETE from another table in Spark.

    Raises ``InvalidArgumentError`` for the view of a DataFrame, where Spark has an internal error.
    """
    try:
        return session.run(sql, args)
    except Py4JJavaError as e:
        if _NO_TABLE not in str(e.java_exception):
            raise
        refused = InvalidArgumentError(
            "DELETE through the view of a DataFrame is only supported for a projection of one trilake table",
            help="delete the rows from the table",
            condition="DELTA_TABLE_ONLY_OPERATION",
        )
        raise_for_spark(refused, analysis_error(refused))


def _message_attribute(error: PySparkException) -> str | None:
    """The attribute with the message of Spark's error, which differs by release and kind of session."""
    names = ("_desc", "_message", "desc", "message")
    return next((name for name in names if isinstance(getattr(error, name, None), str)), None)


def in_place(error: PySparkException, local: Local, *, shift: int = 0) -> PySparkException:
    """Translate positions and names in Spark's error to those of the original SQL."""
    attribute = _message_attribute(error)
    if not local.changed or attribute is None:
        return error
    message = str(getattr(error, attribute))
    edited = local.edited

    def moved(match: re.Match[str]) -> str:
        line, position = int(match[1]), int(match[4])
        place = edited.source_place(line, max(0, position - shift) if line == 1 else position)
        return f"line {place.line}{match[2]} pos{match[3] or ''} {place.position}"

    message = _PLACE.sub(moved, message)
    for private, display_name in local.names.items():
        message = message.replace(f"`{private}`", display_name).replace(private, display_name)
    setattr(error, attribute, message)
    return error


def without_prefix(error: PySparkException, prefix: str) -> PySparkException:
    """Remove the prefix of the SQL from Spark's error."""
    attribute = _message_attribute(error)
    if attribute is None:
        return error
    message = str(getattr(error, attribute)).replace(f"== SQL ==\n{prefix}", "== SQL ==\n")

    def moved(match: re.Match[str]) -> str:
        return f"line 1{match[2]} pos{match[3] or ''} {max(0, int(match[4]) - len(prefix))}"

    place = _PLACE.search(message)
    if place is not None and place[1] == "1":
        message = _PLACE.sub(moved, message).replace("\n" + "-" * len(prefix), "\n", 1)
    setattr(error, attribute, message)
    return error


def at(sql: str, index: int) -> str:
    """Format a position for messages."""
    place = place_of(sql, index)
    return f"line {place.line}, pos {place.position}"
