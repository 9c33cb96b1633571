"""``Call``: a function call to translate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from trilake.errors import FilterError
from trilake.expr.terms.casts import cast
from trilake.expr.terms.duckdb_sql import Sql, common_type
from trilake.expr.terms.literals import Kind, Literal

#: Type families whose values Spark casts to strings where a function takes strings.
_CAST_TO_STRING = frozenset(("boolean", "integer", "decimal", "float", "double", "date", "timestamp"))


class Translating(Protocol):
    """The part of the translator that functions use."""

    instants: bool

    def constant(self, node: exp.Expression) -> Literal | None:
        """The value of a constant node."""

    def typed(self, sql: str) -> Sql:
        """Find the type of DuckDB SQL."""

    def comparison(self, operator: str, left: Sql, right: Sql) -> Sql:
        """A comparison with Spark's semantics."""


@dataclass(frozen=True)
class Call:
    """A function call: name, arguments, and the translator.

    Methods named by a type return the SQL of an argument, which must be of that type or one that Spark casts to it.
    """

    name: str
    nodes: tuple[exp.Expression, ...]
    args: tuple[Sql, ...]
    translator: Translating

    def family(self, index: int, *families: str) -> str:
        """The SQL of an argument of one of the type ``families``.  Raises :class:`FilterError` for others."""
        arg = self.args[index]
        if arg.family not in (*families, "void"):
            raise FilterError(
                f"argument {index + 1} of {self.name} must be {' or '.join(families)}, got {arg.spark_type}",
                help="cast it",
            )
        return arg.code

    def string(self, index: int) -> str:
        if self.args[index].family in _CAST_TO_STRING:
            return cast(self.args[index], "VARCHAR").code
        return self.family(index, "string")

    def integer(self, index: int) -> str:
        return self.family(index, "integer")

    def number(self, index: int) -> str:
        """The SQL of a numeric argument, as a double."""
        self.family(index, "integer", "decimal", "float", "double")
        return cast(self.args[index], "DOUBLE").code

    def date(self, index: int) -> str:
        self.family(index, "date", "timestamp", "string")
        return cast(self.args[index], "DATE").code

    def timestamp(self, index: int) -> str:
        self.family(index, "date", "timestamp", "string")
        return self.instant(cast(self.args[index], "TIMESTAMP").code)

    def instant(self, sql: str) -> str:
        """The SQL of an instant; records that the expression has instants."""
        self.translator.instants = True
        return sql

    def constant(self, index: int) -> object:
        """The value of an argument that must be constant."""
        literal = self.translator.constant(self.nodes[index])
        if literal is None or literal.kind not in (Kind.STRING, Kind.INTEGER):
            raise FilterError(f"argument {index + 1} of {self.name} must be a constant")
        return literal.value

    def unified(self) -> list[Sql]:
        target = common_type(self.args, f"the arguments of {self.name}")
        return [a if a.type == target or a.family == "void" else cast(a, target) for a in self.args]
