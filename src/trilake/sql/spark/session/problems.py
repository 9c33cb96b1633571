"""SQL with private names for relations, errors with their position in the original SQL, and a check by Spark."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame

from trilake.errors import InvalidArgumentError, TrilakeError, WriteFailedError
from trilake.spark.session.analysis_errors import (
    SparkErrorMethods,
    analysis_error,
    as_spark_errors,
    job_error,
    raise_for_spark,
)
from trilake.sql.parser.cursor import SqlTextError
from trilake.sql.parser.edits import Edit, Edited, marked
from trilake.sql.parser.literals import Args
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.session import SqlSession

_log = logging.getLogger("trilake.sql")


@dataclass(frozen=True)
class WithMetadata:
    """A relation whose DataFrame includes ``_metadata``: index of its token, its alias, and its other columns."""

    at: int
    alias: str
    columns: tuple[str, ...]


@dataclass
class Local:
    """SQL with private names for relations, and their DataFrames."""

    edited: Edited
    frames: dict[str, DataFrame] = field(default_factory=dict)
    #: What each private name replaces, for messages.
    names: dict[str, str] = field(default_factory=dict)
    with_metadata: list[WithMetadata] = field(default_factory=list)

    @property
    def sql(self) -> str:
        return self.edited.sql

    def after(self, head: str) -> Local:
        """The same after ``head``, such as EXPLAIN."""
        return replace(self, edited=Edited.of(self.edited.original, (Edit(0, 0, head), *self.edited.edits)))


#: Spark's internal error for a DELETE from the view of a frame.
_NO_TABLE = "Unexpected table relation"
_PLACE = re.compile(r"\bline (\d+)(,?) pos(ition)? (\d+)")
#: The line of Spark's parse errors before the statement.
_STATEMENT = "== SQL ==\n"
#: The attributes for the message of Spark's errors, which differ by release and kind of session.
_MESSAGES = ("_desc", "_message", "desc", "message")


class SqlSyntaxError(SqlTextError, SparkErrorMethods, ParseException):
    """``SqlTextError`` that is Spark's ``ParseException``, too."""

    _state = "42601"

    def __init__(self, message: str, *, help: str | None = None, **context: object) -> None:
        TrilakeError.__init__(self, message, help=help, **context)
        self._message, self._errorClass = str(self), self.code

    def __str__(self) -> str:
        return SqlTextError.__str__(self)


#: A block or decorator that makes errors Spark's errors, too, so that callers of Spark catch them.
errors_of_spark = partial(
    as_spark_errors, lambda e: job_error(e) if isinstance(e, WriteFailedError) else analysis_error(e)
)


def deleted_by_spark(session: SqlSession, sql: str, args: Args) -> DataFrame:
    """Run a DELETE from another table in Spark.  Raises ``InvalidArgumentError`` for the view of a DataFrame, for which
    Spark has an internal error."""
    try:
        return session.run(sql, args)
    except Py4JJavaError as e:
        if _NO_TABLE not in str(e.java_exception):
            raise
        rejected = InvalidArgumentError(
            "DELETE through the view of a DataFrame is only supported for a projection of one trilake table",
            help="delete the rows from the table",
            condition="DELTA_TABLE_ONLY_OPERATION",
        )
        raise_for_spark(rejected, analysis_error(rejected))


def in_place(error: PySparkException, local: Local) -> PySparkException:
    """Translate positions and names in Spark's error to those of the original SQL."""
    edited = local.edited
    attribute = next((name for name in _MESSAGES if isinstance(getattr(error, name, None), str)), None)
    if not edited.edits or attribute is None:
        return error
    message, positions = str(getattr(error, attribute)), list[tuple[int, int]]()

    def moved(match: re.Match[str]) -> str:
        positions.append(edited.source_line_and_position(int(match[1]), int(match[4])))
        line, position = positions[-1]
        return f"line {line}{match[2]} pos{match[3] or ''} {position}"

    message, shown, _ = _PLACE.sub(moved, message).partition(_STATEMENT)
    if shown:
        message += shown + (marked(edited.original, *positions[0]) if positions else edited.original)
    for private, display_name in local.names.items():
        message = message.replace(f"`{private}`", display_name).replace(private, display_name)
    setattr(error, attribute, message)
    return error


def check_statement(session: SqlSession, sql: str) -> None:
    """Check a statement with Spark's parser.  Raises ``ParseException``."""
    if session.classic:
        jvm.parse_plan(session.parser, sql)
        return
    explained = Local(Edited.of(sql, ())).after("EXPLAIN ")  # the server parses it without running it
    try:
        session.run(explained.sql)
    except ParseException as e:
        raise in_place(e, explained) from None
    except PySparkException as e:  # it does not know trilake tables and parameters
        _log.debug("the server cannot explain a statement over trilake tables: %s", e)
