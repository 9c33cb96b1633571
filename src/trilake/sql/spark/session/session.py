"""A session's SQL state: Spark's original ``sql``, and temporary views over trilake tables."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from trilake.spark.session.bypass import bypass
from trilake.spark.session.storage import session_options
from trilake.sql.parser.literals import Args
from trilake.sql.spark.session import connect_frames, jvm
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
    """A temporary view over trilake tables: Spark's own view has old rows, this one the query for the newest.

    ``mark`` identifies Spark's view, as the name may be used for another one later: the view in the JVM, or, in a
    Connect session, the hash of its plan.  ``query_columns`` are the query's columns when the view was created,
    ``columns`` the names in a column list.  ``frame`` is set for a view of a DataFrame, which Spark may have cached;
    without a query, the view has its rows.
    """

    query: Query | None
    mark: Any
    query_columns: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    frame: DataFrame | None = None


@dataclass
class _Namespace:
    """Current catalog and database, once looked up."""

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
    def catalogues(self) -> jvm.Catalogues:
        """The catalog in the JVM of a classic session."""
        return jvm.Catalogues.of(self.spark)

    @cached_property
    def parser(self) -> Any:
        """The parser in the JVM of a classic session."""
        return jvm.parser_of(self.spark)

    @property
    def current_catalog(self) -> str:
        """The current catalogue."""
        namespace = _NAMESPACE.get()
        if namespace is None:
            return str(self.spark.catalog.currentCatalog())
        if namespace.catalog is None:
            namespace.catalog = str(self.spark.catalog.currentCatalog())
        return namespace.catalog

    @property
    def current_database(self) -> str:
        """The current database."""
        namespace = _NAMESPACE.get()
        if namespace is None:
            return self._ask_database()
        if namespace.database is None:
            namespace.database = self._ask_database()
        return namespace.database

    def _ask_database(self) -> str:
        if self.classic:
            return str(self.catalogues.session.getCurrentDatabase())
        return str(self.spark.catalog.currentDatabase())

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
        """The database of global temporary views."""
        return self.setting("spark.sql.globalTempDatabase", "global_temp").lower()

    @property
    def classic(self) -> bool:
        """Whether this is a classic session, with its JVM."""
        return jvm.is_classic(self.spark)

    def run(self, sql: str, args: Args = None) -> DataFrame:
        """Run a statement with Spark's original ``sql``."""
        with bypass():
            frame: DataFrame = self.spark.sql(sql) if args is None else self.spark.sql(sql, args)  # type: ignore[arg-type]
        frames = {name: f for name, f in _FRAMES.get().items() if name in sql}
        return self._carrying(frame, sql, args, frames) if frames else frame

    def _carrying(self, frame: DataFrame, sql: str, args: Args, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Keep the DataFrames that a query of a Connect session names for as long as the query lives."""
        if not connect_frames.is_query(frame):
            return frame
        if connect_frames.CARRIES:
            return connect_frames.with_frames(frame, sql, args, frames)
        connect_frames.keep_views_new(frame, frames)
        for name in frames:
            self.view_users[name] += 1
            # The view is dropped later: garbage collection must not call the server.
            connect_frames.when_gone(frame, partial(self.unused.append, name))
        return frame

    def value(self, expression: str, args: Args = None) -> Any:
        """The value of a constant expression."""
        return self.run(f"SELECT {expression}", args).collect()[0][0]

    def values(self, expressions: str, args: Args = None) -> list[Any]:
        """The values of a list of constant expressions; timestamps as datetimes in UTC.

        As in an inline table, queries and aggregates are rejected by Spark.
        Spark would return timestamps in the machine's time zone, not the session's.
        """
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
                    jvm.register_view(self.spark, frame, name)
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
                    jvm.drop_view(self.catalogues, name)
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
        """The store at a path."""
        return open_store(path, self.options(path))

    def private_name(self) -> str:
        """A new private name."""
        return f"{PRIVATE}{next(_COUNTER)}"

    def setting(self, key: str, default: str) -> str:
        """A setting of the session."""
        return str(self.spark.conf.get(key, default))
