"""DataFrames that always show a table's newest version, like those of delta-spark.

Spark plans a DataFrame once, and the plan contains the files of one version.  So a DataFrame that follows tables has
two plans.  Its *template* has a slot in place of each table and never changes; derived DataFrames are built from it.
Every other use of the DataFrame fills the template with the newest versions::

    df.where(...)   --> built from the template                   --> a DataFrame that follows, too
    df.collect()    --> newest versions --> filled template       --> rows of one version of each table

Expression IDs do not depend on the version that fills a slot, so ``df["x"]`` stays a column of the DataFrame.

A DataFrame does not change while a trilake command runs, nor while Spark has its rows in the cache or a checkpoint.  If
a slot cannot be filled, the use raises; it never falls back to older rows.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from types import FunctionType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, GroupedData, PandasCogroupedOps, SparkSession

from trilake.errors import TrilakeError, UnsupportedSparkError
from trilake.spark.live_frames import connect
from trilake.spark.live_frames.templates import (
    Slot,
    filled,
    has_cached_rows,
    is_same_plan,
    num_columns,
    read_outside_of_cache,
    slots,
    template,
)
from trilake.spark.live_frames.versions import (
    Read,
    ReadVersion,
    Source,
    are_of_one_version,
    check_columns,
    in_types_of,
    is_in_cache,
    look_for_newest,
)
from trilake.spark.scan.frame_tables import RowCount, noted
from trilake.spark.session.bypass import bypass, is_bypassed
from trilake.spark.session.compat import is_connect
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import items_of, java_frame, java_of, query_execution, say_once
from trilake.spark.session.settings import session_choice
from trilake.spark.session.sources.api import HAS_DATA_SOURCES

#: ``follow``, or ``pinned`` for frames that stay at the version at which they were read.
FRAMES = "spark.trilake.frames"
#: Results of the probe, by SparkContext, or by session for Connect.
_probed: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def follow(spark: SparkSession) -> bool:
    """Whether DataFrames that are read now should follow their tables, and this Spark supports that.  Raises
    ``InvalidArgumentError`` for an invalid value of the setting."""
    if session_choice(spark, FRAMES, ("follow", "pinned")) == "pinned":
        return False
    key = spark if is_connect(spark) else spark.sparkContext
    if key not in _probed:
        _probed[key] = _can_follow(spark)
    return _probed[key]


def _can_follow(spark: SparkSession) -> bool:
    try:
        with bypass():
            if not (connect.can_follow(spark) if is_connect(spark) else _fills(spark)):
                raise RuntimeError("a filled plan differs from its source")
    except Exception as e:  # noqa: BLE001 - on any surprise frames are Spark's own
        say_once("DataFrames keep the version of their first read", e)
        return False
    return True


def _fills(spark: SparkSession) -> bool:
    """Fill a plan with three slots for one table: it must read the table three times, with the same columns."""
    read = spark.range(1).where("id >= 0")
    slot = template(read, 0)
    combined = slot.alias("a").join(slot.alias("b").where("id > 0"), "id", "left_semi").unionAll(slot)
    leaves = slots(combined, lambda _: 1)
    plan = filled(combined, leaves, lambda _: (read, read)).queryExecution().analyzed()
    names = [leaf.nodeName() for leaf in items_of(plan.collectLeaves())]
    same = plan.output().equals(query_execution(combined).analyzed().output())
    return len(leaves) == 3 == names.count("Range") and bool(same)


_LIVE, _PLAN = "_trilake_live", "_jdf"
_Any = TypeVar("_Any")
#: Intermediate results from which another frame is built.
_GROUPS = (GroupedData, PandasCogroupedOps)
#: Return annotations of methods that only build a plan: of frames, groups and columns.
_MADE = re.compile(r"\b(Parent)?DataFrame\b|\bGroupedData\b|\bColumn'?>?$")
#: Aliases that have no annotations in PySpark 3.5.
_COPIED = frozenset(("where", "groupby", "drop_duplicates"))
#: Methods with such annotations that read rows, or return the frame itself.
_OF_ROWS = frozenset(("cache", "persist", "unpersist", "checkpoint", "localCheckpoint", "crosstab", "transpose"))
_OF_ROWS |= {"toJSON", "transform", "scalar", "exists"}
#: Members that need no rows, and so no check of the table; they work even if it is gone.
_DESCRIBE = ("schema", "columns", "dtypes", "isStreaming", "printSchema")
_CACHE = ("storageLevel", "unpersist")


@dataclass(eq=False)
class _Live:
    """What a frame, or a group, follows."""

    #: The tables by slot number; after the first use, only those of which the plan has a slot.
    sources: dict[int, Source]
    #: The versions that the plan shows, or would show if it were filled.
    reads: dict[int, Read]
    #: Spark's own frame with slots; made late for a frame that is a read itself.
    template: DataFrame | None = None
    #: The slot of a frame that shows all rows of its table, which the log may count.
    whole: int | None = None
    #: Whether the frame's plan is filled, instead of being that of the template.
    filled: bool = False
    #: The slots of the template, found at the first use.
    leaves: list[Slot] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


_numbers = count(1)
_frames: WeakSet[DataFrame] = WeakSet()
#: The classes of frames and groups that follow tables, by Spark's class.
_classes: dict[type, type] = {}
_still = threading.local()


def following(read: Callable[[], DataFrame], finish: Callable[[DataFrame], DataFrame] = lambda f: f) -> DataFrame:
    """Call ``read`` and return its DataFrame, with ``finish`` applied, which from then on shows the newest version.  It
    does not follow if ``read`` noted no version (time travel), or if the session pins its DataFrames."""

    def once() -> tuple[DataFrame, Read | None]:
        frame = read()
        snapshot, count = noted(frame, ReadVersion), noted(frame, RowCount)
        frame = finish(frame)
        if snapshot is None:
            return frame, None
        if is_connect(frame.sparkSession):
            return frame, Read(snapshot, None, connect.unchanging(frame))
        return frame, Read(snapshot, count, java_frame(frame.sparkSession, vars(frame)[_PLAN]))

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
    """Whether this is a DataFrame that shows the newest version of a table."""
    return is_live(frame) or connect.follows(frame)


def is_live(value: Any) -> bool:
    """Whether this is a classic DataFrame that follows tables, or a group of such a DataFrame."""
    return _live_of(value) is not None


def make(method: Callable[..., _Any], *args: Any, **kwargs: Any) -> _Any:
    """Call a method that builds a result from DataFrames; the result follows the same tables."""
    templates = {k: template_of(v) for k, v in kwargs.items()}
    result = method(*map(template_of, args), **templates)
    unchanged: list[_Any] = [origin for origin in args if result is template_of(origin)]  # it had nothing to do
    return unchanged[0] if unchanged else follow_tables_of(result, *args, *kwargs.values())


def follow_tables_of(result: _Any, *origins: Any) -> _Any:
    """Make a result built from templates follow the tables of ``origins``; returns the result.  A Connect DataFrame
    does so anyway, since it contains the plans from which it is built."""
    lives = [live for o in origins if (live := _live_of(o)) is not None]
    if lives:
        _follow(result, lives)
    return result


def template_of(value: Any) -> Any:
    """The template of a DataFrame that follows tables; any other value unchanged."""
    live = _live_of(value)
    if live is None or not isinstance(value, DataFrame):
        return value
    with live.lock:
        if live.template is None:
            ((number, source),) = live.sources.items()
            with _raising(value), bypass():
                live.template = template(source.first.frame, number)
        notes = {k: v for k, v in vars(value).items() if k.startswith("_trilake_") and k != _LIVE}
        vars(live.template).update(notes)
        return live.template


def pinned(frame: Any) -> Any:
    """A copy of a DataFrame that stays at the current version; any other value unchanged.  A Connect DataFrame (or
    plan) is updated in place, and does not change while a command runs."""
    if _live_of(frame) is not None:
        return java_frame(frame.sparkSession, _java(frame))
    if not is_bypassed():
        connect.renew_plans(frame)
    return frame


def renewed(frame: _Any) -> _Any:
    """Update a DataFrame to the newest version, also in a bypass; returns it."""
    live = _live_of(frame)
    if live is None:
        connect.renew_plans(frame)
        return frame
    with live.lock:
        _fill(frame, live, look=True)
    return frame


def pin_all() -> None:
    """Turn all DataFrames of this process that follow tables into Spark's own again."""
    for frame in list(_frames):
        with bypass(), suppress(TrilakeError):  # if it cannot be filled, using it raises
            _java(frame)
        vars(frame).pop(_LIVE)
        frame.__class__ = type(frame).__mro__[1]
    _frames.clear()


def makers(cls: type) -> list[str]:
    """The methods of a DataFrame or group class that build DataFrames, groups or columns without reading rows."""
    return [name for name in dir(cls) if _makes(cls, name)]


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
    live = _live_of(result)
    sources = {n: s for parent in lives for n, s in parent.sources.items()}
    reads = _newest(lives if live is None else [*lives, live])
    if live is not None:
        live.sources |= sources
        live.reads = reads
    elif isinstance(result, DataFrame) and _PLAN in vars(result):
        if result.isStreaming:
            _follow_in_stream(result, sources)
        else:
            _live(result, _Live(sources, reads, java_frame(result.sparkSession, vars(result)[_PLAN])))
    elif isinstance(result, _GROUPS):
        vars(result)[_LIVE] = _Live(sources, reads)
        result.__class__ = _class_of(type(result))


def _newest(lives: Iterable[_Live]) -> dict[int, Read]:
    """One version per table, even if several DataFrames are combined."""
    out: dict[int, Read] = {}
    for live in lives:
        for number, read in live.reads.items():
            if number not in out or read is live.sources[number].current:
                out[number] = read
    return out


def _follow_in_stream(frame: DataFrame, sources: Mapping[int, Source]) -> None:
    """Fill a stream that is joined or unioned with tables: each batch sees their newest rows.  In PySpark 3.5, which
    cannot re-plan a Python data source per batch, batches see the rows of the start."""
    with _raising(frame), bypass():
        firsts = {n: s.first.frame for n, s in sources.items()}
        rows = {n: s.of_each_plan() if HAS_DATA_SOURCES else s.current.frame for n, s in sources.items()}
        reads = {n: (first, in_types_of(first.schema, rows[n])) for n, first in firsts.items()}
        leaves = slots(frame, lambda number: num_columns(firsts[number]))
        vars(frame)[_PLAN] = filled(frame, leaves, reads.__getitem__)
        _drop_cached_attributes(frame)


def _java(frame: Any) -> Any:
    live = _live_of(frame)
    if live is None or getattr(_still, "on", False):
        return vars(frame)[_PLAN]
    with live.lock:
        _fill(frame, live, look=not is_bypassed())
        return vars(frame)[_PLAN]


def _fill(frame: Any, live: _Live, *, look: bool) -> None:
    with _raising(frame), bypass():
        if not live.filled:
            _slots(frame, live)
    newest = {n: live.reads[n] for n in live.sources}
    if not (frame.is_cached and _is_in_cache(frame)) and (look or not are_of_one_version(newest.values())):
        newest = look_for_newest(live.sources)
    with _raising(frame), bypass():
        if not live.filled:
            is_newest = all(live.reads[n] is read for n, read in newest.items())
            # Spark's cache may have rows of the frames that this frame is derived from.
            _fill_with(frame, live, live.reads if not is_newest and has_cached_rows(frame.sparkSession) else newest)
        behind = _behind(frame, live, newest)
        if behind:
            _fill_with(frame, live, {**live.reads, **{n: newest[n] for n in behind}})


def _fill_with(frame: Any, live: _Live, reads: Mapping[int, Read]) -> None:
    pairs = {n: _in_first_columns(source, reads[n]) for n, source in live.sources.items()}
    vars(frame)[_PLAN] = filled(template_of(frame), _slots(frame, live), pairs.__getitem__)
    live.reads, live.filled = dict(reads), True
    _drop_cached_attributes(frame)


def _slots(frame: DataFrame, live: _Live) -> list[Slot]:
    if live.leaves is None:
        live.leaves = slots(template_of(frame), lambda number: num_columns(live.sources[number].first.frame))
        used = {slot.number for slot in live.leaves}
        live.sources = {n: s for n, s in live.sources.items() if n in used}
    return live.leaves


def _drop_cached_attributes(frame: Any) -> None:
    """Drop the RDD and schema that PySpark caches for a DataFrame whose plan has changed."""
    for name in ("rdd", "schema"):
        vars(frame).pop(name, None)
    for name in ("_lazy_rdd", "_schema"):  # in PySpark 3.5
        if name in vars(frame):
            vars(frame)[name] = None


def _in_first_columns(source: Source, read: Read) -> tuple[DataFrame, DataFrame]:
    first = source.first.frame
    if read is source.first:  # with a thousand columns, fetching the schema takes as long as planning
        return first, first
    check_columns(first.schema, read.frame.schema, read.snapshot)
    return first, in_types_of(first.schema, read.frame)


def _behind(frame: Any, live: _Live, newest: Mapping[int, Read]) -> list[int]:
    """The slots whose plan differs from the newest version's, except slots that Spark serves from its cache."""
    outdated = []
    for number, read in newest.items():
        if live.reads[number] is read:
            continue
        if is_same_plan(live.reads[number].frame, read.frame):
            live.reads = {**live.reads, number: read}
        else:
            outdated.append(number)
    if not outdated:
        return outdated
    current = java_frame(frame.sparkSession, vars(frame)[_PLAN])
    outside = read_outside_of_cache(current, [live.reads[n].frame for n in outdated])
    return [n for n, is_read in zip(outdated, outside, strict=True) if is_read]


@contextmanager
def _raising(frame: DataFrame) -> Iterator[None]:
    """Raise an error if a private API of Spark fails although the probe of the session succeeded."""
    try:
        yield
    except (Py4JError, AttributeError) as e:
        raise UnsupportedSparkError(
            f"Spark {frame.sparkSession.version} cannot update a DataFrame to the newest version of its tables: {e}",
            help="read the tables again, or set spark.trilake.frames to pinned",
        ) from e


def _class_of(base: type) -> type:
    if base in _classes.values():
        return base
    subclass = _classes.get(base)
    if subclass is None:
        members: dict[str, Any] = {name: _maker(base, name) for name in makers(base)}
        if issubclass(base, DataFrame):
            members |= {n: _as_it_is(base, n, _describing) for n in _DESCRIBE}
            members |= {n: _as_it_is(base, n, bypass) for n in _CACHE}
            members |= {_PLAN: property(_java, _set_plan), "rdd": _rdd(base), "count": _count(base)}
            members["__reduce_ex__"] = _in_place_of
        if "pivot" in members:
            members["pivot"] = _pivot(base)
        subclass = _classes.setdefault(base, type(base.__name__, (base,), {**members, "__module__": base.__module__}))
    return subclass


def _maker(base: type, name: str) -> Callable[..., Any]:
    @wraps(getattr(base, name))
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return make(
            getattr(base, name), self, *args, **kwargs
        )  # not the method found earlier, since it may be patched by now

    return call


def _as_it_is(base: type, name: str, block: Callable[[], Any]) -> Any:
    member = getattr(base, name)
    if isinstance(member, FunctionType):

        @wraps(member)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with block():
                return getattr(base, name)(self, *args, **kwargs)

        return call

    def get(self: Any) -> Any:
        with block():
            return member.__get__(self, base)

    return property(get, doc=member.__doc__)


@contextmanager
def _describing() -> Iterator[None]:
    before, _still.on = getattr(_still, "on", False), True
    try:
        yield
    finally:
        _still.on = before


def _is_in_cache(frame: DataFrame) -> bool:
    with _describing():
        return is_in_cache(frame)


def _set_plan(frame: Any, plan: Any) -> None:
    vars(frame)[_PLAN] = plan


def _in_place_of(frame: Any, protocol: Any) -> Any:
    """Pickle as Spark's own DataFrame, so that Spark raises its own error for a UDF that captures a DataFrame."""
    return _itself, (java_frame(frame.sparkSession, vars(frame)[_PLAN]),)


def _itself(frame: DataFrame) -> DataFrame:
    return frame


def _rdd(base: Any) -> property:
    def rdd(self: Any) -> Any:
        _java(self)  # if a newer version fills the frame, this drops the RDD that Spark caches
        return base.rdd.__get__(self, base)

    return property(rdd, doc=base.rdd.__doc__)


def _count(base: Any) -> Callable[[Any], int]:
    """Use the table's row count if it is available without a job."""

    @wraps(base.count)
    def count(self: Any) -> int:
        _java(self)
        live = _live_of(self)
        way = None if live is None or live.whole is None or self.is_cached else live.reads[live.whole].count
        rows = None if way is None else way.count()
        return int(base.count(self)) if rows is None else rows

    return count


def _pivot(base: Any) -> Callable[..., Any]:
    """Collect the pivot values from the current rows, as Spark does."""

    @wraps(base.pivot)
    def pivot(self: Any, pivot_col: str, values: Any = None) -> Any:
        live = _live_of(self)
        if values is None and live is not None:
            frame = follow_tables_of(java_frame(self._df.sparkSession, java_of(self._df)), self)
            limit = int(str(frame.sparkSession.conf.get("spark.sql.pivotMaxValues")))
            rows = frame.select(pivot_col).distinct().sort(pivot_col).limit(limit + 1)
            values = [row.get(0) for row in java_of(rows).collectAsList()]
            if len(values) > limit:
                return pinned(frame).groupBy().pivot(pivot_col)  # Spark raises its own error
        return make(base.pivot, self, pivot_col, values)

    return pivot
