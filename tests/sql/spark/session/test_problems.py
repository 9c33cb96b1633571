"""Positions in Spark's errors refer to the user's SQL, even if Spark parsed a rewritten string."""

from __future__ import annotations

from pyspark.errors import ParseException

from trilake.sql.parser.edits import Edited
from trilake.sql.spark.session.problems import Local, in_place

_SQL = "DELETE t\n  WHERE a = 'x"


def _error(line: int, position: int) -> ParseException:
    lines = f"EXPLAIN {_SQL}".split("\n")
    lines.insert(line, "-" * position + "^^^")
    return ParseException(
        message=f"Syntax error at or near 'x'. (line {line}, pos {position})\n\n== SQL ==\n" + "\n".join(lines)
    )


def test_error_position_excludes_the_added_prefix() -> None:
    explained = Local(Edited.of(_SQL, ())).after("EXPLAIN ")
    first = str(in_place(_error(1, 15), explained))
    assert "(line 1, pos 7)" in first
    assert first.endswith("== SQL ==\nDELETE t\n-------^^^\n  WHERE a = 'x")
    second = str(in_place(_error(2, 12), explained))
    assert "(line 2, pos 12)" in second
    assert second.endswith("== SQL ==\nDELETE t\n  WHERE a = 'x\n------------^^^")
