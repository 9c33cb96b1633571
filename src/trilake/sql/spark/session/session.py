"""A session's SQL state: Spark's original ``sql``, and temporary views over trilake tables."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.spark.catalog.entries import catalogs
from trilake.spark.live_frames.connect import follows
from trilake.spark.scan.columns import no_rows
from trilake.spark.session.bypass import bypass
from trilake.spark.session.compat import RELEASE, arrow_frame, is_connect
from trilake.spark.session.internals import java_session
from trilake.spark.session.schemas import from_spark
from trilake.spark.session.settings import session_options
from trilake.sql.parser.literals import Args
from trilake.sql.spark.session import jvm
from trilake.storage import open_store
from trilake.storage.base import Store

#: Prefix of private names.
PRIVATE = "__trilake_sql_"
_COUNTER = itertools.count(1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Query:
    """A query over trilake tables, and the database in which its names are resolved."""

    sql: str
    database: str


@dataclass(frozen=True)
class TempView:
    """A temporary view over trilake tables: Spark's own view has old rows; this one has the query for the newest.
    ``mark`` identifies Spark's view (the view in the JVM, or the hash of its plan), ``query_columns`` are the query's
    columns when the view was created, ``columns`` the names in a column list.  ``frame`` is set for a view of a
    DataFrame."""

    query: Query | None
    mark: Any
    query_columns: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    frame: DataFrame | None = None


@dataclass
class _Namespace:
    catalog: str | None = None
    database: str | None = None


_NAMESPACE: ContextVar[_Namespace | None] = ContextVar("trilake_sql_namespace", default=None)
#: The frames of private names, in a Connect session.
_FRAMES: ContextVar[Mapping[str, DataFrame]] = ContextVar("trilake_sql_frames", default=MappingProxyType({}))


@dataclass
class SqlSession:
    """A session with SQL over trilake tables."""

    spark: SparkSession
    views: dict[str, TempView] = field(default_factory=dict)
    #: Global temporary views, by name without their database.
    global_views: dict[str, TempView] = field(default_factory=dict)
    cached: dict[tuple[str, ...], DataFrame] = field(default_factory=dict)
    #: Views for ``F.expr``, by the current database and the name that they replace.
    lasting_views: dict[tuple[str, str], str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: In a Connect session, how many blocks and queries use a private view; and those that no longer do.
    view_users: Counter[str] = field(default_factory=Counter)
    unused: deque[str] = field(default_factory=deque)

    @cached_property
    def parser(self) -> Any:
        return java_session(self.spark).sessionState().sqlParser()

    @property
    def current_catalog(self) -> str:
        namespace = _NAMESPACE.get()
        if namespace is None:
            return str(self.spark.catalog.currentCatalog())
        if namespace.catalog is None:
            namespace.catalog = str(self.spark.catalog.currentCatalog())
        return namespace.catalog

    @property
    def current_database(self) -> str:
        namespace = _NAMESPACE.get()
        if namespace is not None and namespace.database is not None:
            return namespace.database
        if self.classic:
            database = str(catalogs(self.spark).session.getCurrentDatabase())
        else:
            database = str(self.spark.catalog.currentDatabase())
        if namespace is not None:
            namespace.database = database
        return database

    @contextmanager
    def one_namespace(self) -> Iterator[None]:
        """Look up the current catalog and database only once in the block."""
        token = _NAMESPACE.set(_Namespace())
        try:
            yield
        finally:
            _NAMESPACE.reset(token)

    @cached_property
    def global_database(self) -> str:
        return self.setting("spark.sql.globalTempDatabase", "global_temp").lower()

    @property
    def classic(self) -> bool:
        return not is_connect(self.spark)

    def run(self, sql: str, args: Args = None) -> DataFrame:
        """Run a statement with Spark's original ``sql``."""
        with bypass():
            frame: DataFrame = self.spark.sql(sql, args)  # type: ignore[arg-type]  # Spark rejects other collections
        frames = {name: f for name, f in _FRAMES.get().items() if name in sql}
        return self._carrying(frame, sql, args, frames) if frames else frame

    def _carrying(self, frame: DataFrame, sql: str, args: Args, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Keep the DataFrames that a query of a Connect session names for as long as the query lives."""
        if not is_query(frame):
            return frame
        if CARRIES:
            return with_frames(frame, sql, args, frames)
        keep_views_new(frame, frames)
        for name in frames:
            self.view_users[name] += 1
            # The view is dropped later: garbage collection must not call the server.
            when_gone(frame, partial(self.unused.append, name))
        return frame

    def value(self, expression: str, args: Args = None) -> Any:
        return self.run(f"SELECT {expression}", args).collect()[0][0]

    def values(self, expressions: str, args: Args = None) -> list[Any]:
        """The values of constant expressions, as in an inline table; timestamps as datetimes in UTC, whereas Spark
        would return them in the machine's time zone."""
        frame = self.run(f"VALUES ({expressions})", args)
        instants = [isinstance(f.dataType, T.TimestampType) for f in frame.schema.fields]
        names = [f"c{i}" for i in range(len(instants))]
        columns = [f"unix_micros({n}) AS {n}" if at else n for n, at in zip(names, instants, strict=True)]
        row = frame.toDF(*names).selectExpr(*columns).collect()[0]
        return [
            _EPOCH + dt.timedelta(microseconds=v) if at and v is not None else v
            for v, at in zip(row, instants, strict=True)
        ]

    @contextmanager
    def private_views(self, frames: Mapping[str, DataFrame]) -> Iterator[None]:
        """Create views of DataFrames for the block; queries that :meth:`run` creates in it keep theirs."""
        registered = []
        token = None if self.classic else _FRAMES.set({**_FRAMES.get(), **frames})
        try:
            for name, frame in frames.items():
                if self.classic:
                    jvm.register_view(frame, name)
                else:
                    frame.createOrReplaceTempView(name)
                    self.view_users[name] += 1
                registered.append(name)
            yield
        finally:
            if token is not None:
                _FRAMES.reset(token)
            for name in registered:
                if self.classic:
                    jvm.drop_view(self.spark, name)
                else:
                    self.unused.append(name)
            self._drop_unused()

    def _drop_unused(self) -> None:
        """Drop the private views that no block and no query uses."""
        with suppress(IndexError):
            while True:
                name = self.unused.popleft()
                self.view_users[name] -= 1
                if not self.view_users[name]:
                    del self.view_users[name]
                    self.spark.catalog.dropTempView(name)

    def options(self, path: str) -> dict[str, str]:
        """The session's settings for a path's store: credentials, endpoints."""
        return session_options(self.spark, path)

    def store(self, path: str) -> Store:
        return open_store(path, self.options(path))

    def private_name(self) -> str:
        return f"{PRIVATE}{next(_COUNTER)}"

    def setting(self, key: str, default: str) -> str:
        return str(self.spark.conf.get(key, default))


def session_key(spark: SparkSession) -> str:
    """A key of the session, the same for all of its Python objects."""
    key = spark.__dict__.get("_trilake_key")
    if key is None:
        java = getattr(spark, "_jsparkSession", None)
        key = str(getattr(spark, "session_id", id(spark))) if java is None else str(java.sessionUUID())
        spark.__dict__["_trilake_key"] = key
    return str(key)


# --- results of statements, as small DataFrames ----------------------------------------------------------------------


_KINDS = {"string": T.StringType(), "bigint": T.LongType(), "boolean": T.BooleanType(), "int": T.IntegerType()}


def rows(session: SqlSession, schema: str | T.StructType, values: Iterable[Sequence[Any]]) -> DataFrame:
    """A DataFrame of these rows; ``schema`` may be a list of names and simple types, as in DDL."""
    if isinstance(schema, str):
        pairs = (part.split() for part in schema.split(","))
        schema = T.StructType([T.StructField(name, _KINDS[kind]) for name, kind in pairs])
    data = [tuple(v) for v in values]
    if not data:
        return no_rows(session.spark, schema)
    types = from_spark(schema).to_arrow_schema().types
    columns = [pa.array(column, kind) for column, kind in zip(zip(*data), types, strict=True)]
    return arrow_frame(session.spark, pa.Table.from_arrays(columns, names=schema.names), schema)


def nothing(session: SqlSession) -> DataFrame:
    """The result of a command without rows."""
    return no_rows(session.spark, T.StructType([]))


def counts(session: SqlSession, **numbers: int | None) -> DataFrame:
    """One row of numbers."""
    return rows(session, ", ".join(f"{n} bigint" for n in numbers), [tuple(numbers.values())])


# --- queries of a Connect session, which carry the DataFrames that they name -----------------------------------------


#: Whether a query can carry the frames that it names.
CARRIES = RELEASE >= (4, 0)


def is_query(frame: DataFrame) -> bool:
    """Whether a result of ``spark.sql`` is a query, not the result of a command, which has run."""
    relation = getattr(_plan(frame), "_plan", None)
    return relation is not None and relation.WhichOneof("rel_type") == "sql"


def with_frames(frame: DataFrame, sql: str, args: Args, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The query ``frame`` with the DataFrames that it names."""
    from pyspark.sql.connect import dataframe, plan  # late: needs gRPC, which only Connect sessions do

    columns: Any = F.lit
    by_name = {str(k): columns(v) for k, v in args.items()} if isinstance(args, Mapping) else {}
    in_order = [] if args is None or isinstance(args, Mapping) else [columns(v) for v in args]
    views = [plan.SubqueryAlias(_plan(f), name) for name, f in frames.items()]
    session: Any = frame.sparkSession
    query: DataFrame = dataframe.DataFrame(plan.SQL(sql, in_order, by_name, views), session)
    return query


def keep_views_new(frame: DataFrame, frames: Mapping[str, DataFrame]) -> None:
    """Replace a query's outdated views each time it is sent to the server."""
    plan = _plan(frame)
    views = {name: (f, b"") for name, f in frames.items() if follows(f)}
    query, kind = weakref.ref(plan), type(plan)  # the views are dropped with the query

    renewals = 0

    def message(session: Any) -> Any:
        nonlocal renewals
        for name, (view, sent) in views.items():
            newest = bytes(_plan(view).plan(view.sparkSession.client).SerializeToString(deterministic=True))
            if newest != sent:
                with bypass():
                    view.createOrReplaceTempView(name)
                views[name] = view, newest
                renewals += 1
        relation = copy.deepcopy(kind.plan(query(), session))
        relation.sql.query += " " * renewals  # since Spark 4.0, servers cache plans by query
        return relation

    plan.plan = message
    plan._trilake_views = [_plan(f) for f in frames.values()]  # read by live_frames


def when_gone(frame: DataFrame, then: Callable[[], object]) -> None:
    """Call ``then`` when a query, and all DataFrames derived from it, are garbage-collected."""
    weakref.finalize(_plan(frame), then).atexit = False


def _plan(frame: Any) -> Any:
    return frame._plan
