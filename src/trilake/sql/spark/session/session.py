"""The SQL layer's state of a session: Spark's original ``sql``, and temporary views over trilake tables."""

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

#: How private names begin; no statement of a user should name one.
PRIVATE = "__trilake_sql_"
_COUNTER = itertools.count(1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Query:
    """A query over our tables, and the database in which names in it are looked up."""

    text: str
    database: str


@dataclass(frozen=True)
class TempView:
    """A temporary view over our tables: Spark's own view has the rows of the moment when it was made, this has its
    query.

    ``mark`` tells Spark's view from others that the name may stand for later: the view in the JVM, or, of a Connect
    session, the hash of its plan.  ``queried`` are the columns that the query gave when the view was made, and
    ``columns`` the names that the view shows them by, where it was given some.  ``frame`` is the frame that a view was
    made of, which Spark may keep in its cache; without a query, the rows are those of the frame.
    """

    query: Query | None
    mark: Any
    queried: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    frame: DataFrame | None = None


@dataclass
class _Namespace:
    """The catalogue and the database of names without one, as far as they were asked for."""

    catalog: str | None = None
    database: str | None = None


_NAMESPACE: ContextVar[_Namespace | None] = ContextVar("trilake_sql_namespace", default=None)
#: The frames that private names stand for now, in a Connect session.
_FRAMES: ContextVar[Mapping[str, DataFrame]] = ContextVar("trilake_sql_frames", default=MappingProxyType({}))


@dataclass
class SqlSession:
    """One session with SQL over our tables."""

    spark: SparkSession
    views: dict[str, TempView] = field(default_factory=dict)
    #: Views that all sessions see, by their names without the database that they are in.
    global_views: dict[str, TempView] = field(default_factory=dict)
    cached: dict[tuple[str, ...], DataFrame] = field(default_factory=dict)
    #: Views that columns of ``F.expr`` name, by the current database and by what their strings name.
    kept_views: dict[tuple[str, str], str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: Who needs the view of a private name in a Connect session: its block, and queries; and who needs it no more.
    view_users: Counter[str] = field(default_factory=Counter)
    unused: deque[str] = field(default_factory=deque)

    @cached_property
    def catalogues(self) -> jvm.Catalogues:
        """The catalogue in the JVM of a classic session."""
        return jvm.Catalogues.of(self.spark)

    @cached_property
    def parser(self) -> Any:
        """The parser in the JVM of a classic session."""
        return jvm.parser_of(self.spark)

    @property
    def current_catalog(self) -> str:
        """The catalogue that names without one belong to."""
        namespace = _NAMESPACE.get()
        if namespace is None:
            return str(self.spark.catalog.currentCatalog())
        if namespace.catalog is None:
            namespace.catalog = str(self.spark.catalog.currentCatalog())
        return namespace.catalog

    @property
    def current_database(self) -> str:
        """The database that names without one belong to."""
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
        """Nothing in the block changes the current catalogue and database, so that they are asked for once."""
        token = _NAMESPACE.set(_Namespace())
        try:
            yield
        finally:
            _NAMESPACE.reset(token)

    @cached_property
    def global_database(self) -> str:
        """The database that views which all sessions see are in."""
        return self.setting("spark.sql.globalTempDatabase", "global_temp").lower()

    @property
    def classic(self) -> bool:
        """Whether the session's JVM can be asked."""
        return jvm.is_classic(self.spark)

    def run(self, text: str, args: Args = None) -> DataFrame:
        """Run a statement in Spark as it is, as if nothing were installed."""
        with bypass():
            frame: DataFrame = self.spark.sql(text) if args is None else self.spark.sql(text, args)  # type: ignore[arg-type]
        frames = {name: f for name, f in _FRAMES.get().items() if name in text}
        return self._carrying(frame, text, args, frames) if frames else frame

    def _carrying(self, frame: DataFrame, text: str, args: Args, frames: Mapping[str, DataFrame]) -> DataFrame:
        """A query of a Connect session, with the frames that it names for as long as it is used."""
        if not connect_frames.is_query(frame):
            return frame
        if connect_frames.CARRIES:
            return connect_frames.with_frames(frame, text, args, frames)
        connect_frames.keep_views_new(frame, frames)
        for name in frames:
            self.view_users[name] += 1
            connect_frames.when_gone(
                frame, partial(self.unused.append, name)
            )  # no call to the server while memory is freed
        return frame

    def value(self, expression: str, args: Args = None) -> Any:
        """The value of a constant expression."""
        return self.run(f"SELECT {expression}", args).collect()[0][0]

    def values(self, expressions: str, args: Args = None) -> list[Any]:
        """The values of constant expressions with commas between them; an instant is a datetime of UTC.

        Spark gives instants in the zone of the machine, which need not be that of the session.
        """
        frame = self.run(f"SELECT {expressions}", args)
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
        """Private names for frames, for the time of the block; queries that :meth:`run` makes in it keep theirs."""
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
        """Drop the views of a Connect session whose blocks have ended and whose queries are gone."""
        with suppress(IndexError):
            while True:
                name = self.unused.popleft()
                self.view_users[name] -= 1
                if not self.view_users[name]:
                    del self.view_users[name]
                    self.spark.catalog.dropTempView(name)

    def options(self, path: str) -> dict[str, str]:
        """What the session's settings say of the store that a path is on: credentials, endpoints."""
        return session_options(self.spark, path)

    def store(self, path: str) -> Store:
        """The store at a path."""
        return open_store(path, self.options(path))

    def private_name(self) -> str:
        """A name that no one else uses."""
        return f"{PRIVATE}{next(_COUNTER)}"

    def setting(self, key: str, default: str) -> str:
        """A setting of the session."""
        return str(self.spark.conf.get(key, default))
