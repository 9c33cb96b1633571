"""The JVM of a classic session: its parser's plans, and its catalog's entries.

Only this module of the package handles plans and catalog objects of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from trilake.spark.delta.names.entries import decoded
from trilake.spark.session.internals import changed, some
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


def parser_of(spark: SparkSession) -> Any:
    """A classic session's parser, which never changes."""
    return spark._jsparkSession.sessionState().sqlParser()


def parse_plan(parser: Any, sql: str) -> Any:
    """Parse a statement with Spark's parser.  Raises ``ParseException``."""
    return parser.parsePlan(sql)


def parses(parser: Any, sql: str) -> bool:
    """Whether Spark's parser takes a statement."""
    try:
        parse_plan(parser, sql)
    except (ParseException, Py4JError):
        return False
    return True


def relations(plan: Any) -> Iterator[Relation]:
    """The tables, views and table functions that a query names, without common table expressions."""
    yield from _relations(plan, frozenset(), aliased=False)


def _relations(node: Any, hidden: frozenset[str], *, aliased: bool) -> Iterator[Relation]:
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
            yield from _relations(pair._2(), inside, aliased=True)
            inside = inside | {str(pair._1()).lower()}
        yield from _relations(node.child(), inside, aliased=False)
        return
    for below in (node.children(), node.innerChildren()):
        for i in range(below.size()):
            child = below.apply(i)
            yield from _relations(child, hidden, aliased=_passes_alias(name, aliased))


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


@dataclass(frozen=True)
class ViewForm:
    """A permanent view's columns (name and type), the catalog and database in which it was created, and the names of
    its query's columns, empty for views of old releases."""

    namespace: tuple[str, ...]
    query_columns: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Entry:
    """The catalog's entry for a table or permanent view.  ``form`` is set for a view in a Connect session, ``java`` in
    a classic one."""

    database: str
    table: str
    kind: str
    provider: str
    location: str | None
    view_text: str | None = None
    form: ViewForm | None = None
    java: Any = field(default=None, compare=False, repr=False)

    @property
    def managed(self) -> bool:
        """Whether DROP TABLE deletes the files."""
        return self.kind == "MANAGED"

    @property
    def is_view(self) -> bool:
        return self.kind == "VIEW"


@dataclass(frozen=True)
class Catalogues:
    """The session's catalog in the JVM; both objects never change."""

    session: Any
    external: Any

    @classmethod
    def of(cls, spark: SparkSession) -> Catalogues:
        catalog = spark._jsparkSession.sessionState().catalog()
        return cls(catalog, catalog.externalCatalog())


def find_entry(catalogues: Catalogues, database: str, table: str) -> Entry | None:
    """The catalog's entry for a table or permanent view; ``None`` if there is none."""
    db, external = database.lower(), catalogues.external
    if not external.tableExists(db, table.lower()):
        return None
    try:
        metadata = external.getTable(db, table.lower())
    except AnalysisException as e:
        if "[TABLE_OR_VIEW_NOT_FOUND]" not in str(e):
            raise
        return None  # dropped since
    kind = str(metadata.tableType().name())
    provider = metadata.provider()
    place = metadata.storage().locationUri()
    sql = metadata.viewText() if kind == "VIEW" else None
    return Entry(
        db,
        str(metadata.identifier().table()),
        kind,
        str(provider.get()).lower() if provider.isDefined() else "",
        decoded(str(place.get().toString())) if place.isDefined() else None,
        str(sql.get()) if sql is not None and sql.isDefined() else None,
        java=metadata,
    )


def temp_view(catalogues: Catalogues, parts: tuple[str, ...]) -> Any:
    """Spark's object for a temporary view, a global one if its name has two parts; ``None`` if there is none."""
    catalog = catalogues.session
    view = (catalog.getRawTempView if len(parts) == 1 else catalog.getRawGlobalTempView)(parts[-1])
    return view.get() if view.isDefined() else None


def register_view(spark: SparkSession, frame: DataFrame, name: str) -> None:
    """Create a temporary view of a DataFrame."""
    frame._jdf.createOrReplaceTempView(name)


def drop_view(catalogues: Catalogues, name: str) -> None:
    """Drop a temporary view, if it exists."""
    with suppress(Py4JJavaError, AnalysisException):
        catalogues.session.dropTempView(name)


def view_form(entry: Entry) -> ViewForm:
    """The columns of a permanent view, and the namespace of its query."""
    if entry.form is not None:
        return entry.form
    schema = entry.java.schema()
    columns = [(str(schema.apply(i).name()), str(schema.apply(i).dataType().sql())) for i in range(schema.size())]
    namespace, queried = entry.java.viewCatalogAndNamespace(), entry.java.viewQueryColumnNames()
    return ViewForm(_strings(namespace), _strings(queried), tuple(columns))


def set_view_sql(spark: SparkSession, entry: Entry, sql: str) -> None:
    """Replace a permanent view's SQL; its columns stay."""
    catalog = spark._jsparkSession.sessionState().catalog()
    now = catalog.externalCatalog().getTable(entry.database, entry.table)
    view_sql = some(spark, sql)
    catalog.alterTable(changed(now, viewText=view_sql, viewOriginalText=view_sql))
