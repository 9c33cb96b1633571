"""Texts of queries, parsed and translated: those that a process has run last are not translated again.

Nothing of a table is kept here but the types of its columns, for which a translation holds: every run opens the tables
that the text names.  A translation that depends on what time it is serves one run.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from trilake.common.text import quote_parts
from trilake.delta.standard import standard_engine
from trilake.errors import FilterError, InvalidArgumentError, UnsupportedExpressionError
from trilake.expr.sql.parse import with_room
from trilake.expr.sql.scalar import of_any_expression
from trilake.sql.duckdb.queries.around import Query
from trilake.sql.duckdb.queries.dialect import parse_query
from trilake.sql.duckdb.queries.relations import Tables
from trilake.sql.duckdb.queries.select import Translation

#: The function whose rows are the changes of a table.
CHANGES = "table_changes_by_path"
#: How the names begin that tables get in DuckDB.
_PRIVATE = "__trilake_"
#: Statements that are kept, the translations of one, and the characters of each.
_MOST, _MOST_TRANSLATIONS, _LONGEST = 128, 4, 40_000
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Read:
    """A table that a statement reads.

    Parameters
    ----------
    name: its name in DuckDB.
    parts: the name that the statement has for it.
    travel: ``VERSION`` or ``TIMESTAMP``, and the expression of which.
    changes: the arguments of ``table_changes_by_path``, where it is that function.
    """

    name: str
    parts: tuple[str, ...]
    travel: tuple[str, str] | None = None
    changes: tuple[str, ...] | None = None


class Statement:
    """The text of one query: what it reads, and DuckDB's query for it.

    ``frames`` are names of rows that the text may use, in lower case.  Raises as :func:`parse_query` does.
    """

    def __init__(self, text: str, frames: frozenset[str]) -> None:
        self.text, self.frames = text, frames
        self._trees: list[exp.Query] = []
        self._queries: dict[tuple[object, ...], Query] = {}
        tree, self.reads = self._parsed()
        self._trees.append(tree)

    def _parsed(self) -> tuple[exp.Query, tuple[Read, ...]]:
        tree = roomy(lambda: parse_query(self.text))
        return tree, tuple(_reads(tree, self.frames))

    def query(self, tables: Tables, *, wide: bool) -> Query:
        """DuckDB's query over ``tables``, with decimals of 128 bits from the start if ``wide``.

        Raises ``UnsupportedExpressionError`` for what only Spark can compute, and what is wrong with the text.
        """
        types = ((name, parts, schema.serialize().to_pybytes()) for name, (parts, schema) in tables.items())
        key = (wide, *types)
        known = self._queries.get(key)
        if known is not None:
            return known
        try:
            tree = self._trees.pop()  # it serves once: trees are large, and no two threads should work on one
        except IndexError:
            tree, _ = self._parsed()
        query, timed = _translated(tree, tables, wide=wide)
        if not timed and len(query.text) <= _LONGEST:
            if len(self._queries) >= _MOST_TRANSLATIONS:
                self._queries = {}
            self._queries[key] = query
        return query


class KnownStatements:
    """The statements that ran last, by their texts and the names of the rows that they were given."""

    def __init__(self) -> None:
        self.statements: OrderedDict[tuple[str, frozenset[str]], Statement] = OrderedDict()
        self.lock = threading.Lock()

    def of(self, text: str, frames: frozenset[str]) -> Statement:
        """The statement of a text.  Raises as :class:`Statement` does."""
        key = (text, frames)
        with self.lock:
            known = self.statements.get(key)
            if known is not None:
                self.statements.move_to_end(key)
                return known
        made = Statement(text, frames)
        if len(text) <= _LONGEST:
            with self.lock:
                self.statements[key] = made
                if len(self.statements) > _MOST:
                    self.statements.popitem(last=False)
        return made


def roomy(work: Callable[[], _Result]) -> _Result:
    """What ``work`` gives.  Raises ``InvalidArgumentError`` for a query that is nested too deeply."""
    try:
        return with_room(work)
    except RecursionError:
        raise InvalidArgumentError("the query is nested too deeply", help="name parts of it in WITH") from None


def _translated(tree: exp.Query, tables: Tables, *, wide: bool) -> tuple[Query, bool]:
    """The query in DuckDB's SQL, and whether it depends on what time it is."""

    def build() -> tuple[Query, bool]:
        now = dt.datetime.fromtimestamp(standard_engine().runtime.clock_ms() / 1000, dt.UTC)
        translation = Translation(tables, now=now, wide=wide)
        return translation.statement(tree), translation.around.timed

    try:
        return roomy(build)
    except FilterError as e:
        reason = of_any_expression(e.message).replace("a filter", "a query")
        for name in filter(lambda n: n.startswith(_PRIVATE), tables):
            reason = reason.replace(name, quote_parts(tables[name][0]))
        help = None if "filter" in (e.help or "") else e.help
        raise UnsupportedExpressionError(
            f"without Spark this query cannot run: {reason}", help=help, **e.context
        ) from e


def _reads(tree: exp.Query, frames: frozenset[str]) -> Iterator[Read]:
    """What each relation that stands for a table reads; in the tree it gets the name of that.

    A table is read once for all that name it, so that they see one version.
    """
    known = {c.alias.lower() for c in tree.find_all(exp.CTE)} | frames
    given: dict[tuple[tuple[str, ...], tuple[str, str] | None], str] = {}
    for number, table in enumerate(list(tree.find_all(exp.Table))):
        private = f"{_PRIVATE}{number}"
        if isinstance(table.this, exp.Func):
            if _function(table.this) == CHANGES:
                yield Read(private, (CHANGES,), changes=tuple(map(_spark_text, table.this.expressions)))
                _replace(table, private)
            continue
        parts = tuple(p.name for p in table.parts)
        if len(parts) == 1 and parts[0].lower() in known:
            continue
        travel = _travel(table)
        name = given.setdefault((parts, travel), private)
        if name == private:
            yield Read(private, parts, travel)
        _replace(table, name)


def _function(node: exp.Func) -> str:
    name: str = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    return name.lower()


def _travel(table: exp.Table) -> tuple[str, str] | None:
    version = table.args.get("version")
    return None if version is None else (version.name.upper(), _spark_text(version.expression))


def _spark_text(node: exp.Expression) -> str:
    return str(node.sql(dialect="databricks"))


def _replace(table: exp.Table, private: str) -> None:
    table.set("this", exp.to_identifier(private))
    for part in ("db", "catalog", "version"):
        table.set(part, None)
