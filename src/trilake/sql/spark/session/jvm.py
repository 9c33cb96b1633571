"""The JVM of a classic session: its parser's plans, and temporary views.

Only this module of the package handles plans of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from trilake.spark.catalog.entries import catalogs
from trilake.sql.parser.cursor import Cursor
from trilake.sql.parser.tokens import AFTER_RELATION


@dataclass(frozen=True)
class Relation:
    """A relation or table function in a statement; ``end`` is the position after the name, ``travel_end`` after a
    version."""

    parts: tuple[str, ...]
    start: int
    end: int
    travel_end: int | None = None
    aliased: bool = False
    function: bool = False


def pass_sample(cursor: Cursor) -> None:
    """Skip a relation's ``TABLESAMPLE``."""
    if cursor.accept("TABLESAMPLE"):
        cursor.accept("SYSTEM") or cursor.accept("BERNOULLI")
        cursor.brackets()
        if cursor.accept("REPEATABLE"):
            cursor.brackets()


def alias_follows(cursor: Cursor) -> bool:
    """Whether an alias without ``AS`` is next."""
    token = cursor.token
    return token is not None and token.is_name and (token.kind == "quoted" or token.upper not in AFTER_RELATION)


def parse_plan(parser: Any, sql: str) -> Any:
    """Parse a statement with Spark's parser.  Raises ``ParseException``."""
    return parser.parsePlan(sql)


def parses(parser: Any, sql: str) -> bool:
    """Whether Spark's parser accepts a statement."""
    try:
        parse_plan(parser, sql)
    except (ParseException, Py4JError):
        return False
    return True


def relations(node: Any, hidden: frozenset[str] = frozenset(), *, aliased: bool = False) -> Iterator[Relation]:
    """The tables, views and table functions that a plan names, without common table expressions, which are ``hidden``;
    ``aliased`` says whether a node above has an alias."""
    name = str(node.nodeName())
    if name == "UnresolvedRelation":
        parts = _strings(node.multipartIdentifier())
        if not (len(parts) == 1 and parts[0].lower() in hidden):
            start, end = _span(node)
            yield Relation(parts, start, end, aliased=aliased)
        return
    if name == "RelationTimeTravel":
        inner = node.relation()
        if str(inner.nodeName()) == "UnresolvedRelation":
            start, end = _span(inner)
            yield Relation(_strings(inner.multipartIdentifier()), start, end, _span(node)[1], aliased)
        return
    if name == "UnresolvedTableValuedFunction":
        start, end = _span(node)
        yield Relation(_strings(node.name()), start, end, aliased=aliased, function=True)
    if name == "UnresolvedWith":
        inside = hidden
        ctes = node.cteRelations()
        for i in range(ctes.size()):
            pair = ctes.apply(i)
            yield from relations(pair._2(), inside, aliased=True)
            inside = inside | {str(pair._1()).lower()}
        yield from relations(node.child(), inside)
        return
    for below in (node.children(), node.innerChildren()):
        for i in range(below.size()):
            child = below.apply(i)
            yield from relations(child, hidden, aliased=_passes_alias(name, aliased))


def _passes_alias(name: str, aliased: bool) -> bool:
    """Whether a node of this kind gives its children an alias, or passes on its own."""
    if name in ("SubqueryAlias", "UnresolvedSubqueryColumnAliases"):
        return True
    return aliased and name in ("GlobalLimit", "LocalLimit", "Sample", "NamedStreamingRelation")


def _strings(seq: Any) -> tuple[str, ...]:
    return tuple(str(seq.apply(i)) for i in range(seq.size()))


def _span(node: Any) -> tuple[int, int]:
    origin = node.origin()
    return int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1


def temp_view(spark: SparkSession, parts: tuple[str, ...]) -> Any:
    """Spark's object for a temporary view, a global one if its name has two parts; ``None`` if there is none."""
    catalog = catalogs(spark).session
    view = (catalog.getRawTempView if len(parts) == 1 else catalog.getRawGlobalTempView)(parts[-1])
    return view.get() if view.isDefined() else None


def register_view(frame: DataFrame, name: str) -> None:
    """Create a temporary view of a DataFrame."""
    frame._jdf.createOrReplaceTempView(name)


def drop_view(spark: SparkSession, name: str) -> None:
    """Drop a temporary view, if it exists."""
    with suppress(Py4JJavaError, AnalysisException):
        catalogs(spark).session.dropTempView(name)
