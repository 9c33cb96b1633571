"""Which rows of a table the plans of a frame ask for, noted for a write of the frame into that very table.

A scan of a table's newest version carries a mark through every plan that it is part of: an option of its files, which
no reader of theirs looks at.  The mark names the table and the version, and leads to the scan's notes as long as
anyone may ask for files through it::

    frame --> its relations --> marks --> notes --> what plans ask for while the rows are written
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias
from weakref import WeakValueDictionary

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from trilake.delta.commit.conflicts import ReadSet
from trilake.spark.scan.roots import is_root
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import relation_options, say_once

#: The option of a scan's files that holds its mark.
MARK = "trilakeRead"
#: Conditions under which a plan asked for rows, SQL strings; none where it asked for all.
Conditions: TypeAlias = tuple[str, ...]

_numbers = count(1)
_known: WeakValueDictionary[int, TableReads] = WeakValueDictionary()
#: The first version of each table, by URI, that was read as its newest one.
_read: dict[str, int] = {}


class TableReads:
    """The notes of one scan.  Before :meth:`begin`, its plans count as having asked for all rows.

    Parameters
    ----------
    uri, version: the table's.
    of: what a transaction has read whose plan asked for rows under some conditions.
    """

    def __init__(self, uri: str, version: int, of: Callable[[Conditions], ReadSet]) -> None:
        self.uri, self.version, self.complete, self._of = uri, version, False, of
        self._watching: list[set[Conditions]] = []
        self._lock = threading.Lock()
        number = next(_numbers)
        self.mark = f"{number} {version} {uri}"
        _known[number] = self
        _read.setdefault(uri, version)

    def begin(self) -> None:
        """From now on each plan with the mark notes what it asks for."""
        self.complete = True

    def holds_at(self, version: int) -> None:
        """The scan reads the very same files at this version, too, which is the newest one now."""
        self.version = max(self.version, version)

    def note(self, conditions: Sequence[str]) -> None:
        """A plan asks for files under these conditions."""
        with self._lock:
            for asked in self._watching:
                asked.add(tuple(conditions))

    @contextmanager
    def watched(self) -> Iterator[Callable[[], ReadSet]]:
        """Gives what tells, after the plans of the block, what they read."""
        asked: set[Conditions] = set()
        with self._lock:
            self._watching.append(asked)
        try:
            yield lambda: _together([self._of(conditions) for conditions in asked])
        finally:
            with self._lock:
                self._watching = [a for a in self._watching if a is not asked]


@dataclass(frozen=True)
class OwnReads:
    """What of a table a frame shows, where it shows the newest version that there was when it was made.

    ``version`` is the oldest such version, ``None`` for a frame that depends on none; the notes are those of its scans,
    ``None`` for one that keeps none.
    """

    version: int | None = None
    notes: tuple[TableReads | None, ...] = ()

    @contextmanager
    def watched(self) -> Iterator[Callable[[], ReadSet]]:
        """Gives what tells, after the rows were computed in the block, what they were made of.

        That is any row where no one can say more.
        """
        with ExitStack() as stack:
            told = [stack.enter_context(n.watched()) for n in self.notes if n is not None]
            unknown = [ReadSet(whole_table=True)] if None in self.notes else []
            yield lambda: _together([*unknown, *(read() for read in told)])


def own_reads(frame: DataFrame, uri: str) -> OwnReads:
    """What of the table at this URI a frame depends on, which is to be written to it."""
    if is_connect(frame.sparkSession) or not is_root(uri):
        return OwnReads()  # the usual write: no frame of the table was ever made here
    try:
        marks = [m.split(" ", 2) for m in set(relation_options(frame, MARK))]
    except Py4JError as e:
        say_once("writes to tables that were read count as made of all their rows, and conflict with other writers", e)
        known = [notes.version for notes in list(_known.values()) if notes.uri == uri]
        return OwnReads(min(known, default=_read.get(uri)), (None,))
    scans = [(int(version), _known.get(int(number))) for number, version, table in marks if table == uri]
    versions = [version if notes is None else notes.version for version, notes in scans]
    complete = (notes if notes is not None and notes.complete else None for _, notes in scans)
    return OwnReads(min(versions, default=None), tuple(complete))


def _together(parts: Sequence[ReadSet]) -> ReadSet:
    out = ReadSet()
    for part in parts:
        out = out.beside(part)
    return out
