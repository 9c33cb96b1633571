"""Frames that show a table's newest version whenever they are used, as delta-spark's do.

Spark plans a frame once: the files of one version are in its plan.  A frame that reads a table therefore gets a class
of its own, in which the plan is a property that looks for a newer version first.  What is made of such a frame gets it
too, by its methods and those of its groups, with the *parts* of its plan that read tables::

    frame --> parts: plans inside of the frame's plan --> sources: reads of tables --> newest versions

Where a source has a newer version, the new read takes the place of the old part, in its columns with their numbers.  So
``frame["x"]`` stays a column of the frame, and all that stands above the part stays as Spark made it.

While a command of trilake runs, and where the frame is cached, it stays as it is, as does what Spark makes of rows that
are there already (``checkpoint``).  For frames of Spark Connect, see :mod:`~trilake.spark.live_frames.connect_plans`.

``count()`` of a table's frame takes the short way where there is one (:mod:`~trilake.spark.scan.row_counts`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from types import FunctionType
from typing import Any, Protocol, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, GroupedData, PandasCogroupedOps
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.delta.table import ArrowDeltaTable
from trilake.errors import SchemaMismatchError, TrilakeError, UnsupportedSparkError
from trilake.spark.live_frames.connect_plans import has_renewed_plans, keep, let_follow, renew_plans, unchanging
from trilake.spark.live_frames.each_plan import newest_in_each_plan
from trilake.spark.live_frames.schemas import PLAN, forget_kept, has_all_of, in_types_of, is_kept, members_about
from trilake.spark.scan.planning.table_reads import MARK
from trilake.spark.scan.row_counts import RowCount, row_count
from trilake.spark.session.analysis_errors import analysis_error, raise_for_spark
from trilake.spark.session.compat import is_connect
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import java_frame, query_execution, say_once
from trilake.spark.session.passing import passing, spark_alone
from trilake.spark.session.plans.exchange import Exchange, frame_with_parts
from trilake.spark.session.sources.api import HAS_DATA_SOURCES
from trilake.storage.base import ObjectMeta, Store

_log = logging.getLogger("trilake.spark")
_NOTED, _STATE, _PARTS = "_trilake_version", "_trilake_newest", "_trilake_parts"
_Any = TypeVar("_Any")
#: What a frame gives before it gives another frame.
_GROUPS = (GroupedData, PandasCogroupedOps)


class Versions(Protocol):
    """The log of a table."""

    store: Store

    def has_newer(self, version: int, file: ObjectMeta | None = None) -> bool:
        """Whether there is another version than this one, whose newest file was ``file``."""


@dataclass(frozen=True)
class ReadVersion:
    """Which version of which table a frame shows, and the newest file of its log, where that is known."""

    table: Versions
    version: int
    file: ObjectMeta | None = None

    @classmethod
    def of(cls, table: ArrowDeltaTable) -> ReadVersion:
        """That of an open table."""
        return cls(table.log, table.version, table.opened.segment.newest_file)


@dataclass(frozen=True, eq=False)
class _Read:
    """What was read: the version, how its rows are counted, and the frame, which is Spark's own."""

    shown: ReadVersion
    count: RowCount | None
    frame: DataFrame


@dataclass(eq=False)
class _Source:
    """A read of a table that is done again for each newer version."""

    read: Callable[[], _Read | None]
    now: _Read
    #: When someone last looked for a newer version.
    looked_ms: int
    lock: threading.RLock = field(default_factory=threading.RLock)

    def of_each_plan(self) -> DataFrame:
        """The rows of the version that is the newest one whenever Spark makes a plan."""
        with spark_alone(), newest_in_each_plan():
            read = self.read()
        return self.now.frame if read is None else read.frame

    def look(self) -> None:
        """Read the newest version, where there is a newer one."""
        with self.lock:
            if _behind(self):
                try:
                    with spark_alone():
                        self.now = self.read() or self.now
                except TrilakeError as e:
                    raise_for_spark(e, analysis_error(e))


@dataclass(frozen=True, eq=False)
class _Part:
    """A plan inside of a frame's plan, which has the rows of a source, in the columns of its first read.

    ``read`` is what of the source it shows; ``put_in`` is the plan, where it is not that of the first read.
    """

    source: _Source
    first: DataFrame
    read: _Read
    put_in: Any = None

    @property
    def plan(self) -> Any:
        return query_execution(self.first).analyzed() if self.put_in is None else self.put_in


@dataclass
class _State:
    """Which parts of a frame's plan may become others; ``whole`` where the frame is nothing but the rows of one."""

    parts: tuple[_Part, ...]
    whole: _Source | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


def note_version(frame: DataFrame, shown: ReadVersion) -> DataFrame:
    """Remember that a frame shows the newest version of a table, which is this one; the frame itself."""
    frame.__dict__[_NOTED] = shown
    return frame


def following(read: Callable[[], DataFrame], named: Callable[[DataFrame], DataFrame] = lambda f: f) -> DataFrame:
    """The frame that ``read`` gives, which from then on shows the newest version whenever it is used.

    Where ``read`` has noted no version, as for an older one that was asked for, the frame stays as it is.

    Parameters
    ----------
    read: reads the table; it is called again for each newer version.
    named: what else is done to the frame.
    """

    def once() -> tuple[DataFrame, _Read | None]:
        frame = read()
        shown, count = getattr(frame, "__dict__", {}).get(_NOTED), row_count(frame)
        frame = named(frame)
        if not isinstance(shown, ReadVersion):
            return frame, None
        if is_connect(frame.sparkSession):
            return frame, _Read(shown, None, unchanging(frame))
        return frame, _Read(shown, count, java_frame(frame.sparkSession, vars(frame)[PLAN]))

    frame, first = once()
    if first is None:
        return frame
    source = _Source(lambda: once()[1], first, _now_ms())
    if is_connect(frame.sparkSession):
        _follow_over_connect(frame, source)
        return frame
    return _with_state(frame, _State((_Part(source, first.frame, first),), source))


def made_of(result: _Any, *origins: Any) -> _Any:
    """What was made of some things, which follows the tables that frames among them follow; the result itself.

    A result that is not a frame of a classic session, nor a group or a list of such, stays as it is; one of Spark
    Connect holds the plans that it is made of.
    """
    out: _Any = _following_too(result, _parts_of(origins), may_be_stream=True)
    return out


def follows(frame: Any) -> bool:
    """Whether this is a frame that shows the newest version of a table."""
    return _state_of(frame) is not None or has_renewed_plans(frame)


def keeping(frame: DataFrame, persist: Callable[[], _Any]) -> Callable[[], _Any] | None:
    """How a frame of Spark Connect is put in the cache where it follows tables; ``None`` for any other frame."""
    return (lambda: keep(frame, persist)) if has_renewed_plans(frame) else None


def pinned(frame: Any) -> Any:
    """A frame that stays at the version which the given one shows now; anything else as it is.

    One of Spark Connect, or its plan, is let show the newest version, and stays there while calls pass the front door.
    """
    if _state_of(frame) is not None:
        return java_frame(frame.sparkSession, _plan(frame))
    if not passing():
        renew_plans(frame)
    return frame


def renew(frame: Any) -> None:
    """Let a frame that follows tables show their newest versions, unless it is cached; any other stays as it is.

    For calls of the user's in which this thread's calls pass the front door.
    """
    state = _state_of(frame)
    if state is None:
        renew_plans(frame)
        return
    if frame.is_cached and is_kept(frame):  # what the catalogue has put out of the cache still says that it is there
        return
    with state.lock:
        for source in {p.source for p in state.parts}:
            source.look()
        if any(p.read is not p.source.now for p in state.parts):
            _renew(frame, state)


# --- what follows ----------------------------------------------------------------------------------------------------

#: The classes that were made, by Spark's own.
_classes: dict[type, type] = {}
#: Milliseconds for which what was found is taken for true where it takes a request to look.
_FRESH_MS = 200


def _state_of(frame: Any) -> _State | None:
    state = getattr(frame, "__dict__", {}).get(_STATE)
    return state if isinstance(state, _State) else None


def _parts_of(origins: Iterable[Any]) -> tuple[_Part, ...]:
    """The parts of all frames and groups among some things, each once."""
    out: list[_Part] = []
    for origin in origins:
        state = _state_of(origin)
        out += state.parts if state is not None else getattr(origin, "__dict__", {}).get(_PARTS, ())
    return _each_once(out)


def _each_once(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    return tuple({id(p): p for p in parts}.values())


def _following_too(result: Any, parts: tuple[_Part, ...], *, may_be_stream: bool) -> Any:
    if not parts:
        return result
    if _are_frames(result):
        return [_following_too(r, parts, may_be_stream=may_be_stream) for r in result]
    if isinstance(result, DataFrame) and PLAN in vars(result):
        if may_be_stream and HAS_DATA_SOURCES and result.isStreaming:
            return _in_stream(result, parts)
        state = _state_of(result)
        if state is None:
            return _with_state(result, _State(parts))
        state.parts = _each_once((*state.parts, *parts))
    if isinstance(result, _GROUPS) and _PARTS not in vars(result):
        vars(result)[_PARTS] = parts
        result.__class__ = _class_of(type(result), {})
    return result


def _are_frames(result: Any) -> bool:
    """Whether this is a list of frames, as of ``randomSplit``, and not one of rows."""
    return isinstance(result, list) and bool(result) and isinstance(result[0], DataFrame)


def _with_state(frame: DataFrame, state: _State) -> DataFrame:
    vars(frame)[_STATE] = state
    own = type(frame)
    looking = {PLAN: property(_plan, _set_plan), "rdd": property(_rdd_of(own)), "count": _counting(own)}
    frame.__class__ = _class_of(own, {**looking, **members_about(own)})
    return frame


def _class_of(own: type, members: dict[str, Any]) -> type:
    """The class of frames or groups that follow tables, made of Spark's own."""
    known = _classes.get(own)
    if known is None:
        names = [n for n in dir(own) if not n.startswith("_") and n not in members]
        methods = {n: m for n in names if isinstance(m := getattr(own, n), FunctionType)}
        passing_on = {n: _passing_on(own, n, m) for n, m in methods.items()}
        made = type(own.__name__, (own,), {**passing_on, **members, "__module__": own.__module__})
        known = _classes.setdefault(own, made)
    return known


def _passing_on(own: type, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose result follows the tables that the object follows, and those of its arguments."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        origins = (self, *args, *kwargs.values())
        before = _parts_of(origins)
        result = getattr(own, name)(self, *args, **kwargs)  # which the front door may have replaced
        if not isinstance(result, (DataFrame, *_GROUPS)) and not _are_frames(result):
            return result
        # A newer version that came in the meantime: the result is of what was there before, or of what is there now.
        joined = any(isinstance(o, DataFrame) and not follows(o) for o in origins)
        return _following_too(result, _each_once((*before, *_parts_of(origins))), may_be_stream=joined)

    return call


def _in_stream(frame: DataFrame, parts: Sequence[_Part]) -> DataFrame:
    """A stream that is joined with tables, or put together with them, each batch of which sees their newest rows."""
    try:
        with spark_alone():
            sources = {p.source: p.source.of_each_plan() for p in parts}
            return frame_with_parts(frame, [Exchange(p.plan, sources[p.source], MARK) for p in parts])[0]
    except (Py4JError, AttributeError) as e:
        say_once("streams see the tables that they are joined with as they were when the streams began", e)
        return frame


def _set_plan(frame: Any, plan: Any) -> None:
    vars(frame)[PLAN] = plan


def _plan(frame: Any) -> Any:
    """The JVM's frame of the newest versions."""
    if not passing():
        renew(frame)
    return vars(frame)[PLAN]


def _rdd_of(own: type) -> Callable[[Any], Any]:
    """``DataFrame.rdd`` of frames that follow their tables: Spark keeps one, :func:`_renew` puts it away."""

    def rdd(self: Any) -> Any:
        _plan(self)  # looks for newer versions
        return own.rdd.__get__(self, own)  # type: ignore[attr-defined]  # every class of frames has it

    rdd.__doc__ = own.rdd.__doc__  # type: ignore[attr-defined]
    return rdd


def _counting(own: type) -> Callable[[Any], int]:
    """``DataFrame.count`` of frames that follow their tables."""
    method: Callable[[Any], int] = own.count  # type: ignore[attr-defined]  # every class of frames has it

    @wraps(method)
    def count(self: Any) -> int:
        _plan(self)  # looks for newer versions
        whole = vars(self)[_STATE].whole
        short = None if whole is None or self.is_cached else whole.now.count
        rows = None if short is None else short.count()
        return method(self) if rows is None else rows

    return count


def _now_ms() -> int:
    return spark_engine().runtime.clock_ms()


def _behind(source: _Source) -> bool:
    now, shown = _now_ms(), source.now.shown
    if 0 <= now - source.looked_ms < _FRESH_MS and shown.table.store.local_path("x") is None:
        return False
    source.looked_ms = now
    try:
        return shown.table.has_newer(shown.version, shown.file)
    except (TrilakeError, OSError) as e:  # a store that does not answer, for one: who reads its files is told
        _log.debug("no newer version of %s was found", shown.table.store.uri, exc_info=e)
        return False


def _renew(frame: Any, state: _State) -> None:
    """Exchange the parts of a frame's plan whose sources have newer versions."""
    newest = {p.source: p.source.now for p in state.parts}
    same = {p for p in state.parts if p.read is newest[p.source] or _are_equal(p.read.frame, newest[p.source].frame)}
    stale = [p for p in state.parts if p not in same]
    for part in stale:
        _check_columns(part.first.schema, newest[part.source].frame.schema, newest[part.source].shown)
    with spark_alone():
        old = java_frame(frame.sparkSession, vars(frame)[PLAN])
        rows = [in_types_of(p.first.schema, newest[p.source].frame) for p in stale]
        try:
            new, plans = frame_with_parts(old, [Exchange(p.plan, f, MARK) for p, f in zip(stale, rows, strict=True)])
        except (Py4JError, AttributeError) as e:
            raise UnsupportedSparkError(
                f"Spark {frame.sparkSession.version} cannot bring a frame that was read before to the newest versions",
                help="read the tables again",
            ) from e
    vars(frame)[PLAN] = vars(new)[PLAN]
    forget_kept(frame)
    parts = [replace(p, read=newest[p.source]) for p in state.parts if p in same]
    for part, there in zip(stale, plans, strict=True):
        # What is nowhere in the plan is none of its parts: rows that Spark had made before, for one.
        parts += (
            [part] if there is None else [_Part(part.source, part.first, newest[part.source], plan) for plan in there]
        )
    state.parts = tuple(parts)


def _are_equal(one: DataFrame, other: DataFrame) -> bool:
    """Whether two reads have one plan, as after a commit that leaves the files as they were."""
    return bool(query_execution(one).analyzed().equals(query_execution(other).analyzed()))


def _follow_over_connect(frame: DataFrame, source: _Source) -> None:
    """Let a frame of Spark Connect, and all that is made of it, show the newest version whenever it is used."""
    first, lock = source.now, threading.RLock()
    shown, rows = first, first.frame

    def renew_rows() -> None:
        nonlocal shown, rows
        with lock:
            source.look()
            now = source.now
            if now is shown or is_kept(rows):
                return
            with spark_alone():
                _check_columns(first.frame.schema, now.frame.schema, now.shown)
                same = in_types_of(first.frame.schema, now.frame)
                rows = same.select(*map(quote_name, first.frame.columns))
            shown = now

    def newest() -> DataFrame:
        if not passing():
            renew_rows()
        return rows

    let_follow(frame, newest, renew_rows)


def _check_columns(old: T.StructType, new: T.StructType, shown: ReadVersion) -> None:
    """Raise ``SchemaMismatchError``, also one of Spark's, where the table has lost a column or changed its type."""
    types = {f.name: f.dataType for f in new.fields}
    for f in old.fields:
        there = types.get(f.name)
        if there is None or not has_all_of(f.dataType, there):
            is_now = None if there is None else f"is {there.simpleString()} now, not {f.dataType.simpleString()},"
            error = SchemaMismatchError(
                f"the column {f.name!r} of the table {is_now or 'is gone'} since this frame was read",
                help="read the table again",
                file=shown.table.store.uri,
                version=shown.version,
                column=f.name,
                condition="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
            )
            raise_for_spark(error, analysis_error(error))
