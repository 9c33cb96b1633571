"""Frames that show a table's newest version whenever they are used, as delta-spark's do.

Spark plans a frame once: the files of one version are in its plan.  Such a frame therefore gets a class of its own, in
which the plan is a property that looks for a newer version first.  The new plan has the columns of the old one, with
the same numbers, so ``frame["x"]`` stays a column of the frame.  What was made of a frame before, such as
``frame.where(...)``, is Spark's own, and keeps the version that it was made of.

While a command of ours runs, and where the frame is cached, it stays as it is.  Classic sessions only.

Its ``count()`` takes the short way where there is one (:mod:`~trilake.spark.native.row_counts`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol, cast

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.delta.table import ArrowDeltaTable
from trilake.errors import SchemaMismatchError, TrilakeError
from trilake.spark.native.row_counts import RowCount, row_count
from trilake.spark.session.analysis_errors import analysis_error, raise_for_spark
from trilake.spark.session.compat import is_connect
from trilake.spark.session.engine import spark_engine
from trilake.spark.session.internals import frame_with_columns, java_frame, say_once
from trilake.spark.session.passing import passing, spark_alone
from trilake.storage.base import ObjectMeta, Store

_log = logging.getLogger("trilake.spark")
_NOTED, _STATE, _PLAN = "_trilake_version", "_trilake_newest", "_jdf"


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


@dataclass(frozen=True)
class _Read:
    """What was read: the version, where it was noted, how its rows are counted, and the frame."""

    shown: ReadVersion | None
    count: RowCount | None
    frame: DataFrame


@dataclass
class _State:
    """What a frame shows now, and how it is read again."""

    read: Callable[[], _Read]
    shown: ReadVersion
    count: RowCount | None
    #: When somebody last looked for a newer version.
    looked_ms: int
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
    first = _read(read, named)
    frame = first.frame
    if first.shown is None or is_connect(frame.sparkSession) or _PLAN not in vars(frame):
        return frame
    frame.__dict__[_STATE] = _State(lambda: _read(read, named), first.shown, first.count, _now_ms())
    frame.__class__ = _class_of(type(frame))
    return frame


def pinned(frame: Any) -> Any:
    """A frame that stays at the version which the given one shows now; anything else as it is."""
    state = getattr(frame, "__dict__", {}).get(_STATE)
    return java_frame(frame.sparkSession, _plan(frame)) if isinstance(state, _State) else frame


def _read(read: Callable[[], DataFrame], named: Callable[[DataFrame], DataFrame]) -> _Read:
    frame = read()
    shown = getattr(frame, "__dict__", {}).get(_NOTED)
    return _Read(shown if isinstance(shown, ReadVersion) else None, row_count(frame), named(frame))


#: The classes that were made, by Spark's own.
_classes: dict[type, type] = {}
#: Milliseconds for which what was found is taken for true where it takes a request to look.
_FRESH_MS = 200


def _class_of(frame: type) -> type:
    """The class of frames that follow their table, made of Spark's own."""
    known = _classes.get(frame)
    if known is None:
        members = {_PLAN: property(_plan, _set_plan), "count": _counting(frame), "__module__": frame.__module__}
        known = _classes.setdefault(frame, type(frame.__name__, (frame,), members))
    return known


def _set_plan(frame: Any, plan: Any) -> None:
    vars(frame)[_PLAN] = plan


def _plan(frame: Any) -> Any:
    """The JVM's frame of the newest version."""
    if not passing():
        renew(frame)
    return vars(frame)[_PLAN]


def renew(frame: Any) -> None:
    """Let a frame that follows its table show the newest version, unless it is cached; any other stays as it is.

    For calls of the user's in which this thread's calls pass the front door.
    """
    state = getattr(frame, "__dict__", {}).get(_STATE)
    if isinstance(state, _State) and not frame.is_cached:
        with state.lock:
            if _behind(state):
                _renew(frame, state)


def _counting(frame: type) -> Callable[[Any], int]:
    """``DataFrame.count`` of frames that follow their table."""
    own: Callable[[Any], int] = frame.count  # type: ignore[attr-defined]  # every class of frames has it

    @wraps(own)
    def count(self: Any) -> int:
        _plan(self)  # looks for a newer version
        short = cast(_State, vars(self)[_STATE]).count
        return own(self) if short is None or self.is_cached else short.count()

    return count


def _now_ms() -> int:
    return spark_engine().runtime.clock_ms()


def _behind(state: _State) -> bool:
    now = _now_ms()
    if 0 <= now - state.looked_ms < _FRESH_MS and state.shown.table.store.local_path("x") is None:
        return False
    state.looked_ms = now
    try:
        return state.shown.table.has_newer(state.shown.version, state.shown.file)
    except (TrilakeError, OSError) as e:  # a store that does not answer, for one: who reads its files is told
        _log.debug("no newer version of %s was found", state.shown.table.store.uri, exc_info=e)
        return False


def _renew(frame: Any, state: _State) -> None:
    with spark_alone():
        old = java_frame(frame.sparkSession, vars(frame)[_PLAN])
        read = state.read()
        if read.shown is None:
            return
        new = read.frame
        _check_columns(old.schema, new.schema, read.shown)
        try:
            vars(frame)[_PLAN] = vars(frame_with_columns(frame.sparkSession, new, old))[_PLAN]
            state.count = read.count
        except (Py4JError, AttributeError) as e:
            say_once("frames keep the version that they were read at", e)
        state.shown = read.shown


def _check_columns(old: T.StructType, new: T.StructType, shown: ReadVersion) -> None:
    """Raise ``SchemaMismatchError``, also one of Spark's, where the table has lost a column or changed its type."""
    types = {f.name: f.dataType.simpleString() for f in new.fields}  # without what may be null in them
    for f in old.fields:
        there, known = types.get(f.name), f.dataType.simpleString()
        if there != known:
            change = "is gone" if there is None else f"is {there} now, not {known},"
            error = SchemaMismatchError(
                f"the column {f.name!r} of the table {change} since this frame was read",
                help="read the table again",
                file=shown.table.store.uri,
                version=shown.version,
                column=f.name,
                condition="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
            )
            raise_for_spark(error, analysis_error(error))
