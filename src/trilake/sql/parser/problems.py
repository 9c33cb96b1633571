"""The error for invalid SQL, with position, line and caret."""

from __future__ import annotations

from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.sql.parser.cursor import SyntaxProblem


class SqlTextError(InvalidArgumentError):
    """A statement that is valid in neither Spark's grammar nor Delta's."""

    code = "PARSE_SYNTAX_ERROR"

    @classmethod
    def at(cls, sql: str, problem: SyntaxProblem) -> SqlTextError:
        """The error for a syntax error of trilake's parsers."""
        place = problem.place
        message = f"Syntax error at or near {problem.near}"
        return cls(message, help=problem.hint or None, text=sql, line=place.line, position=place.position)

    @classmethod
    def of(cls, sql: str, error: Any) -> SqlTextError:
        """The error for an error of sqlglot."""
        details = (getattr(error, "errors", None) or [{}])[0]
        line, column = int(details.get("line") or 1), int(details.get("col") or 1)
        highlight = details.get("highlight")
        near = f"Syntax error at or near '{highlight}'" if highlight else "Syntax error"
        position = max(0, column - len(highlight or "x"))
        return cls(near, text=sql, line=line, position=position)

    def __str__(self) -> str:
        sql, place = str(self.context.get("text", "")), self.context
        message = f"[{self.code}] {self.message} (line {place.get('line')}, pos {place.get('position')})"
        if self.help:
            message += f". Help: {self.help}"
        lines = sql.split("\n")
        line, position = int(str(place.get("line", 1))), int(str(place.get("position", 0)))
        lines.insert(line, "-" * position + "^^^")
        return message + "\n\n== SQL ==\n" + "\n".join(lines)
