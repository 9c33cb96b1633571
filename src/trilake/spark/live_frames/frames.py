"""Frames that show a table's newest version whenever they are used, as delta-spark's do.

Spark plans a frame once: the files of one version are in its plan.  A frame that follows tables therefore has two
plans.  Its *template* has a slot in place of each table, and never changes; what is made of the frame is made of the
template.  Whatever else uses the frame gets the template filled with the newest versions::

    frame.where(...)   --> made of the template                      --> a frame that follows, too
    frame.collect()    --> newest versions --> template, filled      --> rows of one version of each table

Columns keep their numbers, whichever version fills a slot, so ``frame["x"]`` stays a column of the frame.

A frame stays as it is while a command of trilake runs and where Spark has its rows already: in the cache, or in what
``checkpoint`` has made.  What cannot be filled raises; no use shows older rows instead.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar
from weakref import WeakSet

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, GroupedData, PandasCogroupedOps

from trilake.errors import TrilakeError, UnsupportedSparkError
from trilake.spark.live_frames import connect
from trilake.spark.live_frames.columns import check_columns, forget_kept, in_types_of, is_kept
from trilake.spark.live_frames.mode import follow
from trilake.spark.live_frames.templates import (
    Slot,
    filled,
    has_cached_rows,
    is_same_plan,
    read_outside_of_cache,
    slots,
    template,
)
from trilake.spark.live_frames.versions import Read, Source, are_of_one_version, look_for_newest, noted_version
from trilake.spark.scan.row_counts import row_count
from trilake.spark.session.compat import is_connect
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import java_frame, java_of
from trilake.spark.session.passing import passing, spark_alone
from trilake.spark.session.sources.api import HAS_DATA_SOURCES

_LIVE, _PLAN = "_trilake_live", "_jdf"
_Any = TypeVar("_Any")
#: What a frame gives before it gives another frame.
_GROUPS = (GroupedData, PandasCogroupedOps)
#: What a method answers that is made of a template: frames, groups and columns, by the annotations of PySpark.
_MADE = re.compile(r"\b(Parent)?DataFrame\b|\bGroupedData\b|\bColumn'?>?$")
#: Methods that PySpark 3.5 has copied, without their annotations.
_COPIED = frozenset(("where", "groupby", "drop_duplicates"))
#: Methods that answer so, and use rows: those of the moment, or the frame itself.
_OF_ROWS = frozenset(("cache", "persist", "unpersist", "checkpoint", "localCheckpoint", "crosstab", "transpose"))
_OF_ROWS |= {"toJSON", "transform", "scalar", "exists"}
#: What says nothing of rows, for which no newer version is looked for, so that it works whatever became of the table.
_DESCRIBE = ("schema", "columns", "dtypes", "isStreaming", "printSchema")
_CACHE = ("storageLevel", "unpersist")


@dataclass(eq=False)
class _Live:
    """What a frame, or a group, follows.

    Parameters
    ----------
    sources: the tables, by the numbers of their slots.
    shown: for each of them, what the frame shows.
    template: the plan with slots, a frame of Spark's own; ``None`` for a read of which nothing was made so far.
    whole: the slot of the table whose rows the frame shows, all of them and nothing else.
    filled: whether Spark's frame is filled with what is shown; elsewhere it is the template.
    leaves: the slots of the template, once they were needed.
    """

    sources: dict[int, Source]
    shown: dict[int, Read]
    template: DataFrame | None = None
    whole: int | None = None
    filled: bool = False
    leaves: list[Slot] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


_numbers = iter(range(1, 1 << 62))
_frames: WeakSet[DataFrame] = WeakSet()
#: The classes of frames and groups that follow tables, by Spark's own.
_classes: dict[type, type] = {}
_still = threading.local()


def following(read: Callable[[], DataFrame], named: Callable[[DataFrame], DataFrame] = lambda f: f) -> DataFrame:
    """The frame that ``read`` gives, which from then on shows the newest version whenever it is used.

    Where ``read`` has noted no version, as for an older one that was named, the frame stays as it is, and so it does in
    a session whose frames are pinned (:mod:`~trilake.spark.live_frames.mode`).

    Parameters
    ----------
    read: reads the table; it is called again for each newer version.
    named: what else is done to the frame.
    """

    def once() -> tuple[DataFrame, Read | None]:
        frame = read()
        shown, count = noted_version(frame), row_count(frame)
        frame = named(frame)
        if shown is None:
            return frame, None
        if is_connect(frame.sparkSession):
            return frame, Read(shown, None, connect.unchanging(frame))
        return frame, Read(shown, count, java_frame(frame.sparkSession, vars(frame)[_PLAN]))

    frame, first = once()
    if first is None or not follow(frame.sparkSession):
        return frame
    source = Source(lambda: once()[1], first, first, spark_engine().runtime.clock_ms())
    if is_connect(frame.sparkSession):
        connect.let_follow(frame, source)
        return frame
    number = next(_numbers)
    return _live(frame, _Live({number: source}, {number: first}, whole=number, filled=True))


def follows(frame: Any) -> bool:
    """Whether this is a frame that shows the newest version of a table."""
    return is_live(frame) or connect.follows(frame)


def is_live(value: Any) -> bool:
    """Whether this is such a frame of a classic session, or a group of its rows."""
    return _live_of(value) is not None


def make(method: Callable[..., _Any], *args: Any, **kwargs: Any) -> _Any:
    """Call a method that makes something of frames; the result follows what the frames follow."""
    named = {k: template_of(v) for k, v in kwargs.items()}
    result = method(*map(template_of, args), **named)
    for origin in args:
        if result is template_of(origin):  # a method that had nothing to do
            return origin  # type: ignore[no-any-return]
    return made_of(result, *args, *kwargs.values())


def made_of(result: _Any, *origins: Any) -> _Any:
    """What was made of the templates of some frames, which follows what they follow; the result itself.

    A result that is not a frame of a classic session, nor a group or a list of such, stays as it is; one of Spark
    Connect contains the plans that it is made of.
    """
    lives = [live for o in origins if (live := _live_of(o)) is not None]
    if lives:
        _follow(result, lives)
    return result


def template_of(value: Any) -> Any:
    """The template of a frame that follows tables, a frame of Spark's own; anything else as it is."""
    live = _live_of(value)
    if live is None or not isinstance(value, DataFrame):
        return value
    with live.lock:
        if live.template is None:
            ((number, source),) = live.sources.items()
            with _raising(value), spark_alone():
                live.template = template(source.first.frame, number)
        notes = {k: v for k, v in vars(value).items() if k.startswith("_trilake_") and k != _LIVE}
        vars(live.template).update(notes)
        return live.template


def pinned(frame: Any) -> Any:
    """A frame that stays at the version which the given one shows now; anything else as it is.

    One of Spark Connect, or its plan, is let show the newest version, and stays there while a command runs.
    """
    if _live_of(frame) is not None:
        return java_frame(frame.sparkSession, _java(frame))
    if not passing():
        connect.renew_plans(frame)
    return frame


def pin_all() -> None:
    """Let all frames of this process stay as they are from now on, Spark's own again."""
    for frame in list(_frames):
        with spark_alone(), suppress(TrilakeError):  # what cannot be filled raises where it is used
            _java(frame)
        vars(frame).pop(_LIVE)
        frame.__class__ = type(frame).__mro__[1]
    _frames.clear()


def makers(cls: type) -> list[str]:
    """The methods of a class of frames or groups that make frames, groups or columns of it, without a look at rows."""
    return [name for name in dir(cls) if _makes(cls, name)]


# --- what a frame follows --------------------------------------------------------------------------------------------


def _makes(cls: type, name: str) -> bool:
    method = getattr(cls, name)
    if not isinstance(method, FunctionType) or name in _OF_ROWS:
        return False
    if name.startswith("_"):
        return name in ("__getitem__", "__getattr__") and issubclass(cls, DataFrame)
    if not issubclass(cls, DataFrame):
        return True
    return name in _COPIED or _MADE.search(str(method.__annotations__.get("return"))) is not None


def _live_of(value: Any) -> _Live | None:
    return getattr(value, "__dict__", {}).get(_LIVE)


def _live(frame: DataFrame, live: _Live) -> DataFrame:
    vars(frame)[_LIVE] = live
    frame.__class__ = _class_of(type(frame))
    _frames.add(frame)
    return frame


def _follow(result: Any, lives: list[_Live]) -> None:
    if isinstance(result, list):
        for one in result:
            _follow(one, lives)
        return
    known = _live_of(result)
    sources = {n: s for live in lives for n, s in live.sources.items()}
    shown = _newest(lives if known is None else [*lives, known])
    if known is not None:
        known.sources |= sources
        known.shown = shown
    elif isinstance(result, DataFrame) and _PLAN in vars(result):
        if result.isStreaming:
            _follow_in_stream(result, sources)
        else:
            _live(result, _Live(sources, shown, java_frame(result.sparkSession, vars(result)[_PLAN])))
    elif isinstance(result, _GROUPS):
        vars(result)[_LIVE] = _Live(sources, shown)
        result.__class__ = _class_of(type(result))


def _newest(lives: Iterable[_Live]) -> dict[int, Read]:
    """What is shown of each table: one version, also where frames of several are put together."""
    out: dict[int, Read] = {}
    for live in lives:
        for number, read in live.shown.items():
            if number not in out or read is live.sources[number].now:
                out[number] = read
    return out


def _follow_in_stream(frame: DataFrame, sources: Mapping[int, Source]) -> None:
    """Fill a stream that is joined with tables, or put together with them: each batch sees their newest rows.

    PySpark 3.5 has no tables of Python's that are asked in each batch: there the rows are those of now.
    """
    with _raising(frame), spark_alone():
        firsts = {n: s.first.frame for n, s in sources.items()}
        rows = {n: s.of_each_plan() if HAS_DATA_SOURCES else s.now.frame for n, s in sources.items()}
        reads = {n: (first, in_types_of(first.schema, rows[n])) for n, first in firsts.items()}
        leaves = slots(frame, lambda number: len(firsts[number].columns))
        vars(frame)[_PLAN] = filled(frame, leaves, reads.__getitem__)
        forget_kept(frame)


def _java(frame: Any) -> Any:
    """The JVM's frame of the newest versions."""
    live = _live_of(frame)
    if live is None or getattr(_still, "on", False):
        return vars(frame)[_PLAN]
    with live.lock:
        _fill(frame, live, look=not passing())
        return vars(frame)[_PLAN]


def _fill(frame: Any, live: _Live, *, look: bool) -> None:
    """Fill the slots of a frame with what they shall show, where they do not show it already."""
    with _raising(frame), spark_alone():
        if not live.filled:
            _slots(frame, live)
    newest = {n: live.shown[n] for n in live.sources}
    if not (frame.is_cached and _is_kept(frame)) and (look or not are_of_one_version(newest.values())):
        newest = look_for_newest(live.sources)
    with _raising(frame), spark_alone():
        if not live.filled:
            is_newest = all(live.shown[n] is read for n, read in newest.items())
            # Spark's cache may have rows of what the frame was made of.
            _fill_with(frame, live, live.shown if not is_newest and has_cached_rows(frame.sparkSession) else newest)
        behind = _behind(frame, live, newest)
        if behind:
            _fill_with(frame, live, {**live.shown, **{n: newest[n] for n in behind}})


def _fill_with(frame: Any, live: _Live, shown: Mapping[int, Read]) -> None:
    reads = {n: _in_first_columns(source, shown[n]) for n, source in live.sources.items()}
    vars(frame)[_PLAN] = filled(template_of(frame), _slots(frame, live), reads.__getitem__)
    live.shown, live.filled = dict(shown), True
    forget_kept(frame)


def _slots(frame: DataFrame, live: _Live) -> list[Slot]:
    if live.leaves is None:
        live.leaves = slots(template_of(frame), lambda number: len(live.sources[number].first.frame.columns))
        used = {slot.number for slot in live.leaves}
        live.sources = {n: s for n, s in live.sources.items() if n in used}
    return live.leaves


def _in_first_columns(source: Source, read: Read) -> tuple[DataFrame, DataFrame]:
    """The first read of a table, and a newer one in its columns and types.  Raises where the table has lost some."""
    first = source.first
    if read is not first:
        check_columns(first.frame.schema, read.frame.schema, read.shown)
    return first.frame, in_types_of(first.frame.schema, read.frame)


def _behind(frame: Any, live: _Live, newest: Mapping[int, Read]) -> list[int]:
    """The slots that show another plan than that of the newest version, and not out of Spark's cache."""
    other = []
    for number, read in newest.items():
        if live.shown[number] is read:
            continue
        if is_same_plan(live.shown[number].frame, read.frame):
            live.shown = {**live.shown, number: read}
        else:
            other.append(number)
    if not other:
        return other
    shown = java_frame(frame.sparkSession, vars(frame)[_PLAN])
    outside = read_outside_of_cache(shown, [live.shown[n].frame for n in other])
    return [n for n, is_read in zip(other, outside, strict=True) if is_read]


@contextmanager
def _raising(frame: DataFrame) -> Iterator[None]:
    """Raise where something private of Spark's, which was there when the session was probed, fails now."""
    try:
        yield
    except (Py4JError, AttributeError) as e:
        raise UnsupportedSparkError(
            f"Spark {frame.sparkSession.version} cannot bring a frame to the newest version of its tables: {e}",
            help="read the tables again, or set spark.trilake.frames to pinned",
        ) from e


# --- classes ---------------------------------------------------------------------------------------------------------


def _class_of(own: type) -> type:
    """The class of frames or groups that follow tables, made of Spark's own."""
    if own in _classes.values():
        return own
    known = _classes.get(own)
    if known is None:
        members: dict[str, Any] = {name: _maker(own, name) for name in makers(own)}
        if issubclass(own, DataFrame):
            members |= {n: _as_it_is(own, n, _describing) for n in _DESCRIBE}
            members |= {n: _as_it_is(own, n, spark_alone) for n in _CACHE}
            members |= {_PLAN: property(_java, _set_plan), "rdd": _rdd(own), "count": _count(own)}
            members["__reduce_ex__"] = _in_place_of
        if "pivot" in members:
            members["pivot"] = _pivot(own)
        known = _classes.setdefault(own, type(own.__name__, (own,), {**members, "__module__": own.__module__}))
    return known


def _maker(own: type, name: str) -> Callable[..., Any]:
    @wraps(getattr(own, name))
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return make(getattr(own, name), self, *args, **kwargs)  # which may have been replaced since

    return call


def _as_it_is(own: type, name: str, block: Callable[[], Any]) -> Any:
    member = getattr(own, name)
    if isinstance(member, FunctionType):

        @wraps(member)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with block():
                return getattr(own, name)(self, *args, **kwargs)

        return call

    def get(self: Any) -> Any:
        with block():
            return member.__get__(self, own)

    return property(get, doc=member.__doc__)


@contextmanager
def _describing() -> Iterator[None]:
    before, _still.on = getattr(_still, "on", False), True
    try:
        yield
    finally:
        _still.on = before


def _is_kept(frame: DataFrame) -> bool:
    with _describing():
        return is_kept(frame)


def _set_plan(frame: Any, plan: Any) -> None:
    vars(frame)[_PLAN] = plan


def _in_place_of(frame: Any, protocol: Any) -> Any:
    """Spark's own frame, so that Spark says what is wrong where a function for rows names a frame."""
    return _itself, (java_frame(frame.sparkSession, vars(frame)[_PLAN]),)


def _itself(frame: DataFrame) -> DataFrame:
    return frame


def _rdd(own: Any) -> property:
    def rdd(self: Any) -> Any:
        _java(self)  # Spark keeps an RDD with the frame, which goes where a newer version fills it
        return own.rdd.__get__(self, own)

    return property(rdd, doc=own.rdd.__doc__)


def _count(own: Any) -> Callable[[Any], int]:
    """``count()`` of a table's frame takes the short way, where there is one."""

    @wraps(own.count)
    def count(self: Any) -> int:
        _java(self)
        live = _live_of(self)
        way = None if live is None or live.whole is None or self.is_cached else live.shown[live.whole].count
        rows = None if way is None else way.count()
        return int(own.count(self)) if rows is None else rows

    return count


def _pivot(own: Any) -> Callable[..., Any]:
    """``pivot`` without values looks for them in the rows of the moment, as Spark's own does."""

    @wraps(own.pivot)
    def pivot(self: Any, pivot_col: str, values: Any = None) -> Any:
        live = _live_of(self)
        if values is None and live is not None:
            frame = made_of(java_frame(self._df.sparkSession, java_of(self._df)), self)
            limit = int(str(frame.sparkSession.conf.get("spark.sql.pivotMaxValues")))
            rows = frame.select(pivot_col).distinct().sort(pivot_col).limit(limit + 1)
            values = [row.get(0) for row in java_of(rows).collectAsList()]
            if len(values) > limit:
                return pinned(frame).groupBy().pivot(pivot_col)  # Spark says what is wrong
        return make(own.pivot, self, pivot_col, values)

    return pivot
