"""Resolve a name in a statement: a trilake table by path or name, a view over trilake tables, or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from trilake.common.option_values import Travel, split_travel
from trilake.common.text import quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.catalog.entries import Entry, permanent_entry
from trilake.spark.catalog.named_tables import has_table
from trilake.spark.session.bypass import bypass
from trilake.spark.session.engine import spark_engine
from trilake.sql.parser.candidates import candidates
from trilake.sql.parser.paths import bare_path, named_path
from trilake.sql.parser.projections import parse_projection
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.session import PRIVATE, Query, SqlSession, TempView
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.registry import format_of_provider, has_log

_CATALOG = "spark_catalog"
_MOST_VIEWS = 64


@dataclass(frozen=True)
class Target:
    """A trilake table: format, path, its entry in the catalog, if any, and the version or time after the path."""

    parts: tuple[str, ...]
    format: str
    path: str
    entry: Entry | None = None
    at: Travel | None = None
    #: The session's settings for the store: credentials, endpoints.
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def store(self) -> Store:
        return open_store(self.path, dict(self.options))

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(self.store, spark_engine())

    @property
    def has_log(self) -> bool:
        """Whether tables of the format have a Delta log."""
        return has_log(self.format)

    @property
    def display_name(self) -> str:
        return quote_parts(self.parts)

    @property
    def catalog_name(self) -> str | None:
        """The full name in the catalog, ``None`` for a path."""
        return None if self.entry is None else self.entry.full_name


@dataclass(frozen=True)
class View:
    """A view over trilake tables: permanent with an entry in the catalog, or temporary.  The view of a DataFrame may
    have no query."""

    parts: tuple[str, ...]
    query: Query | None
    entry: Entry | None = None
    temporary: TempView | None = None


def resolve(session: SqlSession, parts: tuple[str, ...], *, depth: int = 0) -> Target | View | None:
    """The trilake table or view of a name; ``None`` for anything else."""
    by_path = path_target(session, parts)
    if by_path is not None:
        return by_path
    if len(parts) == 1 and parts[0].startswith(PRIVATE):
        return None
    temporary = temporary_view(session, parts)
    if temporary is not None:
        return View(parts, temporary.query, temporary=temporary)
    entry = find_entry(session, parts)
    if entry is None:
        path = bare_path(parts)
        if path is None or session.spark.catalog.databaseExists(parts[0]):
            return None
        target = _at(session, parts, *path)
        return target if exists(target) else None
    if is_spark_temp_view(session, parts):
        return None  # one of Spark's temporary views hides the table
    return _of_entry(session, parts, entry, depth)


def target_of(session: SqlSession, parts: tuple[str, ...]) -> Target | None:
    """The trilake table of a name; ``None`` for a view, and for anything else."""
    target = resolve(session, parts)
    return target if isinstance(target, Target) else None


def names_view(session: SqlSession, parts: tuple[str, ...]) -> bool:
    """Whether a name is a view: over trilake tables, in the catalog, or one of Spark's temporary views."""
    if isinstance(resolve(session, parts), View) or is_spark_temp_view(session, parts):
        return True
    entry = find_entry(session, parts)
    return entry is not None and entry.is_view


def is_spark_temp_view(session: SqlSession, parts: tuple[str, ...]) -> bool:
    """Whether a name is a temporary view of Spark, local or global, over any tables; only known in classic sessions."""
    return session.classic and _views_of(session, parts) is not None and jvm.temp_view(session.spark, parts) is not None


def _of_entry(session: SqlSession, parts: tuple[str, ...], entry: Entry, depth: int) -> Target | View | None:
    if not entry.is_view:
        format = format_of_provider(entry.provider)
        if format is None or entry.location is None:
            return None
        return Target(parts, format, entry.location, entry, options=session.options(entry.location))
    if entry.view_text is None or depth > _MOST_VIEWS:
        return None
    _, database = (*entry.view_form.namespace, _CATALOG, entry.database)[:2]
    query = Query(entry.view_text, database)
    return View(parts, query, entry) if _names_ours(session, query, depth) else None


def _names_ours(session: SqlSession, query: Query, depth: int) -> bool:
    for name in candidates(query.sql):
        parts = name if len(name) > 1 else (query.database, *name)
        if name[-1].lower() in ("table_changes", "table_changes_by_path"):
            return True
        if resolve(session, parts, depth=depth + 1) is not None:
            return True
        if len(name) == 2 and path_target(session, name) is not None:
            return True
    return False


def temporary_view(session: SqlSession, parts: tuple[str, ...]) -> TempView | None:
    """The temporary view of a name, if Spark's view is still the same."""
    views = _views_of(session, parts)
    view = None if views is None else views.get(parts[-1].lower())
    if views is None or view is None:
        return None
    now = _mark(session, parts)
    if now is None or not (now.equals(view.mark) if session.classic else now == view.mark):
        del views[parts[-1].lower()]
        return None
    return view


def keep_view(
    session: SqlSession,
    parts: tuple[str, ...],
    query: Query | None,
    frame: DataFrame,
    *,
    columns: tuple[str, ...] | None = None,
    of_frame: bool = False,
) -> None:
    """Remember the query of a temporary view that Spark has just created; ``None`` for a view of a DataFrame.
    ``parts`` include the database of a global view, ``columns`` are the names in the view's column list."""
    views, mark = _views_of(session, parts), _mark(session, parts)
    if views is not None and mark is not None:
        source_frame = frame if of_frame else None
        views[parts[-1].lower()] = TempView(query, mark, tuple(frame.columns), columns, source_frame)


def _views_of(session: SqlSession, parts: tuple[str, ...]) -> dict[str, TempView] | None:
    """The session's or the global temporary views; ``None`` for any other name."""
    if len(parts) == 1:
        return session.views
    is_global = len(parts) == 2 and parts[0].lower() == session.global_database
    return session.global_views if is_global else None


def _mark(session: SqlSession, parts: tuple[str, ...]) -> Any:
    """Identifies Spark's temporary view of a name; ``None`` if there is none."""
    if session.classic:
        return jvm.temp_view(session.spark, parts)
    with suppress(AnalysisException), bypass():
        return session.spark.table(quote_parts(parts)).semanticHash()
    return None


def path_target(session: SqlSession, parts: tuple[str, ...]) -> Target | None:
    """The table of ``delta.`/path```; ``@v3`` at its end is a version unless a table has the whole path."""
    path = named_path(parts)
    return None if path is None else _at(session, parts, *path)


def _at(session: SqlSession, parts: tuple[str, ...], format: str, path: str) -> Target:
    at = split_travel(path)
    whole = Target(parts, format, path, options=session.options(path))
    if at is not None and not exists(whole):
        return Target(parts, format, at[0], at=at[1], options=whole.options)
    return whole


def exists(target: Target) -> bool:
    """Whether the table exists."""
    return has_table(target.store, target.format)


def find_entry(session: SqlSession, parts: tuple[str, ...]) -> Entry | None:
    """The entry of a name; ``None`` if there is none, and for another catalog."""
    whole = len(parts) == 3 and parts[0].lower() == _CATALOG
    if whole:
        parts = parts[1:]
    elif len(parts) > 2:
        return None
    database, table = (session.current_database, parts[0]) if len(parts) == 1 else parts
    entry = permanent_entry(session.spark, database, table)
    # Most names have no entry; only for those that have one, ask for the current catalog.
    known = entry is None or whole or not session.classic or session.current_catalog == _CATALOG
    return entry if known else None


def full_parts(session: SqlSession, parts: tuple[str, ...]) -> tuple[str, str]:
    """Database and table of a name.  Raises ``InvalidArgumentError`` for a name in another catalog."""
    if len(parts) == 3 and parts[0].lower() == _CATALOG:
        parts = parts[1:]
    if len(parts) > 2:
        raise InvalidArgumentError(
            f"{quote_parts(parts)} is not a name in the catalog {_CATALOG}",
            help="write table, or database.table",
            condition="REQUIRES_SINGLE_PART_NAMESPACE",
        )
    if len(parts) == 2:
        return parts[0], parts[1]
    return session.current_database, parts[-1]


def whole_names(session: SqlSession, parts: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The ways to write a table's name, in lower case."""
    out = {tuple(p.lower() for p in parts)}
    if named_path(parts) is None and (len(parts) < 3 or parts[0].lower() == _CATALOG):
        database, table = (p.lower() for p in full_parts(session, parts))
        out |= {(database, table), (_CATALOG, database, table)}
    return out


def whole_table_of(session: SqlSession, parts: tuple[str, ...]) -> Target | None:
    """The trilake table of a name, or of a view that shows all of it; ``None`` for anything else.  Raises
    ``InvalidArgumentError`` for any other view."""
    target, columns = changeable_table(session, parts)
    if columns is not None:
        raise _not_whole_table(parts)
    return target


def not_found(parts: Sequence[str]) -> TableNotFoundError:
    """The error for a name that is not in the catalog."""
    return TableNotFoundError(
        f"the table {'.'.join(parts)} cannot be found", help="check the name", condition="TABLE_OR_VIEW_NOT_FOUND"
    )


def changeable_table(session: SqlSession, parts: tuple[str, ...]) -> tuple[Target | None, Mapping[str, str] | None]:
    """The trilake table that a statement may change, by its name or through a view that is a projection of it, and the
    table's columns by their lower-case names in the view; ``None`` if they are the same.  Raises
    ``InvalidArgumentError`` for any other view."""
    target = resolve(session, parts)
    if isinstance(target, View):
        return _behind(session, target)
    if target is not None and target.at is not None:
        raise InvalidArgumentError(
            f"only the newest version can be changed, got {target.display_name}", help="leave the version out"
        )
    return target, None


def _behind(session: SqlSession, view: View) -> tuple[Target | None, Mapping[str, str] | None]:
    if view.query is None:
        raise InvalidArgumentError(
            f"{'.'.join(view.parts)} is a view of a DataFrame that is not a projection of a single trilake table",
            help="use the table instead of the view",
            condition="DELTA_TABLE_ONLY_OPERATION",
        )
    projection = parse_projection(view.query.sql)
    if projection is None:
        raise _not_whole_table(view.parts)
    parts = projection.table
    if len(parts) == 1 and path_target(session, parts) is None:
        parts = (view.query.database, *parts)
    target = whole_table_of(session, parts)
    names = _column_list(view)
    if target is None or (projection.columns is None and names is None):
        return target, None
    if not target.has_log:
        raise _not_whole_table(view.parts)
    schema = read_schema(target.log.head().schema)
    columns = projection.columns or tuple((n, n) for n in schema.names)
    if names is not None:
        columns = tuple((display_name, column) for display_name, (_, column) in zip(names, columns))
    if any(schema.find(column) is None for _, column in columns) or len({s.lower() for s, _ in columns}) < len(columns):
        raise _not_whole_table(view.parts)
    as_it_is = [(s.lower(), c.lower()) for s, c in columns] == [(n.lower(), n.lower()) for n in schema.names]
    return target, None if as_it_is else {s.lower(): schema.field(c).name for s, c in columns}


def _column_list(view: View) -> Sequence[str] | None:
    """The names in a view's column list; ``None`` if it has none."""
    if view.temporary is not None:
        return view.temporary.columns
    if view.entry is None:
        return None
    form = view.entry.view_form
    names = tuple(name for name, _ in form.columns)
    return None if not form.query_columns or names == form.query_columns else names


def _not_whole_table(parts: tuple[str, ...]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{'.'.join(parts)} is not a view of all rows of a single table", help="use the table instead of the view"
    )
