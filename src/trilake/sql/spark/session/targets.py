"""Resolve a name in a statement: a trilake table by path or name, a view over such tables, or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from trilake.common.text import quote_parts
from trilake.delta.log.log import DeltaLog
from trilake.delta.scan.scan import read_schema
from trilake.errors import InvalidArgumentError, TableNotFoundError
from trilake.spark.session.bypass import bypass
from trilake.spark.session.engine import spark_engine
from trilake.sql.parser.candidates import candidates
from trilake.sql.parser.paths import bare_path, named_path, version_behind
from trilake.sql.parser.projections import parse_projection
from trilake.sql.spark.session import jvm
from trilake.sql.spark.session.session import PRIVATE, Query, SqlSession, TempView
from trilake.storage import open_store
from trilake.storage.base import Store
from trilake.table.registry import format_of_provider

_CATALOG = "spark_catalog"
_MOST_VIEWS = 64


@dataclass(frozen=True)
class Target:
    """A trilake table: its format and path, the name that the catalogue knows it by, if any, and a version of it.

    ``at`` is what stands behind the path: ``v3``, or a time as ``yyyyMMddHHmmssSSS``.
    """

    parts: tuple[str, ...]
    format: str
    path: str
    entry: jvm.Entry | None = None
    at: str | None = None
    #: What the session's settings say of the store: credentials, endpoints.
    options: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def store(self) -> Store:
        """The store that the table is in."""
        return open_store(self.path, dict(self.options))

    @property
    def log(self) -> DeltaLog:
        """The log of a Delta table."""
        return DeltaLog(self.store, spark_engine())

    @property
    def shown(self) -> str:
        """The name, for messages."""
        return quote_parts(self.parts)

    @property
    def catalog_name(self) -> str | None:
        """The name as the catalogue spells it, ``None`` for a path."""
        return None if self.entry is None else f"spark_catalog.{self.entry.database}.{self.entry.table}"


@dataclass(frozen=True)
class View:
    """A view over trilake tables: a permanent one has an entry in the catalogue, a temporary one what is known of it
    here.  It has no query where it is of a frame that none is known of."""

    parts: tuple[str, ...]
    query: Query | None
    entry: jvm.Entry | None = None
    temporary: TempView | None = None


def resolve(session: SqlSession, parts: tuple[str, ...], *, depth: int = 0) -> Target | View | None:
    """What a name stands for; ``None`` where it is nothing of trilake."""
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
        return _folder(session, parts)
    if len(parts) == 1 and session.classic and jvm.temp_view(session.catalogues, parts[0]) is not None:
        return None  # a view of Spark's own hides the table
    return _of_entry(session, parts, entry, depth)


def _of_entry(session: SqlSession, parts: tuple[str, ...], entry: jvm.Entry, depth: int) -> Target | View | None:
    if not entry.is_view:
        format = format_of_provider(entry.provider)
        if format is None or entry.location is None:
            return None
        return Target(parts, format, entry.location, entry, options=session.options(entry.location))
    if entry.view_text is None or depth > _MOST_VIEWS:
        return None
    _, database = (*jvm.view_form(entry).namespace, _CATALOG, entry.database)[:2]
    query = Query(entry.view_text, database)
    return View(parts, query, entry) if _names_ours(session, query, depth) else None


def _names_ours(session: SqlSession, query: Query, depth: int) -> bool:
    for name in candidates(query.text):
        parts = name if len(name) > 1 else (query.database, *name)
        if name[-1].lower() in ("table_changes", "table_changes_by_path"):
            return True
        if resolve(session, parts, depth=depth + 1) is not None:
            return True
        if len(name) == 2 and path_target(session, name) is not None:
            return True
    return False


def temporary_view(session: SqlSession, parts: tuple[str, ...]) -> TempView | None:
    """What is known of a temporary view, if the name still stands for what was made here."""
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
    """Remember what a temporary view is of that Spark has just made.

    Parameters
    ----------
    parts: the name; that of a view which all sessions see is in the database of such views.
    query: what gives the rows again; ``None`` for a view of a frame which does so itself.
    frame: the rows, as they are now.
    columns: the names that the view shows them by, where they are others.
    of_frame: whether the view was made of that frame, not of a text.
    """
    views, mark = _views_of(session, parts), _mark(session, parts)
    if views is not None and mark is not None:
        kept = frame if of_frame else None
        views[parts[-1].lower()] = TempView(query, mark, tuple(frame.columns), columns, kept)


def _views_of(session: SqlSession, parts: tuple[str, ...]) -> dict[str, TempView] | None:
    """The temporary views among which a name is looked up; ``None`` for a name of none."""
    if len(parts) == 1:
        return session.views
    is_global = len(parts) == 2 and parts[0].lower() == session.global_database
    return session.global_views if is_global else None


def _mark(session: SqlSession, parts: tuple[str, ...]) -> Any:
    """What tells Spark's temporary view of a name from others; ``None`` where it has none."""
    if session.classic:
        find = jvm.temp_view if len(parts) == 1 else jvm.global_temp_view
        return find(session.catalogues, parts[-1])
    with suppress(AnalysisException), bypass():
        return session.spark.table(quote_parts(parts)).semanticHash()
    return None


def path_target(session: SqlSession, parts: tuple[str, ...]) -> Target | None:
    """The table that ``delta.`/path``` names, with a version behind it where nothing has the whole path."""
    path = named_path(parts)
    return None if path is None else _at(session, parts, *path)


def _folder(session: SqlSession, parts: tuple[str, ...]) -> Target | None:
    """The table that ``delta.`t``` names by a path without a slash, where the catalogue has no database ``delta``."""
    path = bare_path(parts)
    if path is None or session.spark.catalog.databaseExists(parts[0]):
        return None
    target = _at(session, parts, *path)
    return target if exists(target) else None


def _at(session: SqlSession, parts: tuple[str, ...], format: str, path: str) -> Target:
    at = version_behind(path)
    whole = Target(parts, format, path, options=session.options(path))
    if at is not None and not exists(whole):
        return Target(parts, format, at[0], at=at[1], options=whole.options)
    return whole


def exists(target: Target) -> bool:
    """Whether something is at the place of a target."""
    return target.log.exists() if target.format == "delta" else next(iter(target.store.list()), None) is not None


def find_entry(session: SqlSession, parts: tuple[str, ...]) -> jvm.Entry | None:
    """The catalogue's entry for a name; ``None`` where it has none, or the name is of another catalogue."""
    whole = len(parts) == 3 and parts[0].lower() == _CATALOG
    if whole:
        parts = parts[1:]
    elif len(parts) > 2:
        return None
    database, table = (session.current_database, parts[0]) if len(parts) == 1 else parts
    if session.classic:
        entry = jvm.find_entry(session.catalogues, database, table)
        # Most names are none of this catalogue: which one is the current one is asked for those that are.
        return entry if entry is None or whole or session.current_catalog == _CATALOG else None
    from trilake.sql.spark.session.connect import find_entry as by_sql  # late: only Connect sessions are asked by SQL

    return by_sql(session, database, table)


def full_parts(session: SqlSession, parts: tuple[str, ...]) -> tuple[str, str]:
    """Database and table of a name in the session's catalogue."""
    if len(parts) == 3 and parts[0].lower() == _CATALOG:
        parts = parts[1:]
    if len(parts) == 2:
        return parts[0], parts[1]
    return session.current_database, parts[-1]


# --- the table that a statement changes -----------------------------------------------------------------------------


def known_table(session: SqlSession, parts: tuple[str, ...]) -> Target | None:
    """The table of trilake that a name stands for, through views that show all of it; ``None`` for anything else.

    Raises ``InvalidArgumentError`` for another view.
    """
    target, columns = shown_table(session, parts)
    if columns is not None:
        raise _not_whole(parts)
    return target


def not_found(parts: Sequence[str]) -> TableNotFoundError:
    """The error for a name that the catalogue does not have, or no longer has."""
    return TableNotFoundError(
        f"the table {'.'.join(parts)} cannot be found", help="check the name", condition="TABLE_OR_VIEW_NOT_FOUND"
    )


def shown_table(session: SqlSession, parts: tuple[str, ...]) -> tuple[Target | None, Mapping[str, str] | None]:
    """The table as :func:`known_table` finds it, through views that show all rows of it, and its columns by the names
    that such a view shows them by, in small letters; ``None`` where it is seen as it is.

    Raises ``InvalidArgumentError`` for a view that shows something else.
    """
    target = resolve(session, parts)
    if isinstance(target, View):
        return _behind(session, target)
    if target is not None and target.at is not None:
        raise InvalidArgumentError(
            f"{target.shown} is a version of a table, which cannot be changed", help="leave the version out"
        )
    return target, None


def _behind(session: SqlSession, view: View) -> tuple[Target | None, Mapping[str, str] | None]:
    if view.query is None:
        raise InvalidArgumentError(
            f"{'.'.join(view.parts)} is the view of a frame, and not one that shows columns of one table of trilake",
            help="change the table itself",
            condition="DELTA_TABLE_ONLY_OPERATION",
        )
    projection = parse_projection(view.query.text)
    if projection is None:
        raise _not_whole(view.parts)
    parts = projection.table
    if len(parts) == 1 and path_target(session, parts) is None:
        parts = (view.query.database, *parts)
    target = known_table(session, parts)
    names = _own_names(view)
    if target is None or (projection.columns is None and names is None):
        return target, None
    if target.format != "delta":
        raise _not_whole(view.parts)
    schema = read_schema(target.log.head().schema)
    columns = projection.columns or tuple((n, n) for n in schema.names)
    if names is not None:
        columns = tuple((display_name, column) for display_name, (_, column) in zip(names, columns))
    if any(schema.find(column) is None for _, column in columns) or len({s.lower() for s, _ in columns}) < len(columns):
        raise _not_whole(view.parts)
    as_it_is = [(s.lower(), c.lower()) for s, c in columns] == [(n.lower(), n.lower()) for n in schema.names]
    return target, None if as_it_is else {s.lower(): schema.field(c).name for s, c in columns}


def _own_names(view: View) -> Sequence[str] | None:
    """The names that a view was made with, ``None`` for one that shows those of its query."""
    if view.temporary is not None:
        return view.temporary.columns
    if view.entry is None:
        return None
    form = jvm.view_form(view.entry)
    names = tuple(name for name, _ in form.shown)
    return None if not form.queried or names == form.queried else names


def _not_whole(parts: tuple[str, ...]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{'.'.join(parts)} is a view, and does not show a whole table", help="change the table itself"
    )
