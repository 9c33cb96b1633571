"""Record which rows of a table the plans of a DataFrame read, to detect conflicts when it is written to the same table.

A scan of a table's newest version carries a mark into every plan that contains the scan: an option of its files that no
reader uses.  The mark names the table and the version, and leads to the scan's records::

    DataFrame --> its relations --> marks --> TableReads --> conditions of the plans while the rows are written
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import count
from typing import TypeAlias
from weakref import WeakValueDictionary

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from trilake.delta.commit.conflicts import ReadAt, ReadSet
from trilake.spark.scan.frame_tables import is_root
from trilake.spark.session.compat import is_connect
from trilake.spark.session.internals import relation_options, say_once

#: The option of a scan with its mark.
MARK = "trilakeRead"
#: The conditions of a plan (SQL strings); empty if it reads all rows.
Conditions: TypeAlias = tuple[str, ...]

_numbers = count(1)
_scans_by_number: WeakValueDictionary[int, TableReads] = WeakValueDictionary()
#: The first version of each table (by URI) that was read as the newest.
_read: dict[str, int] = {}


class TableReads:
    """The plans of one scan of a version; ``of`` returns the read set for the conditions of a plan.  Before
    :meth:`begin`, they count as reading all rows."""

    def __init__(self, uri: str, version: int, of: Callable[[Conditions], ReadSet]) -> None:
        self.uri, self.version, self.complete, self._of = uri, version, False, of
        self._watching: list[set[Conditions]] = []
        self._lock = threading.Lock()
        number = next(_numbers)
        self.mark = f"{number} {version} {uri}"
        _scans_by_number[number] = self
        _read.setdefault(uri, version)

    def begin(self) -> None:
        """Start recording: plans with the mark call :meth:`note` from now on."""
        self.complete = True

    def holds_at(self, version: int) -> None:
        """Record that the scan reads the same files at this version, which is now the newest."""
        self.version = max(self.version, version)

    def note(self, conditions: Sequence[str]) -> None:
        """Record that a plan lists files for these conditions."""
        with self._lock:
            for conditions_seen in self._watching:
                conditions_seen.add(tuple(conditions))

    @contextmanager
    def watched(self) -> Iterator[Callable[[], ReadSet]]:
        """Yield a function that returns what the plans in the block read."""
        conditions_seen: set[Conditions] = set()
        with self._lock:
            self._watching.append(conditions_seen)
        try:
            yield lambda: reduce(ReadSet.beside, (self._of(conditions) for conditions in conditions_seen), ReadSet())
        finally:
            with self._lock:
                self._watching = [a for a in self._watching if a is not conditions_seen]


@dataclass(frozen=True)
class OwnReads:
    """The reads of a DataFrame that is written to the table it reads: its oldest ``version``, and the record of each
    scan, ``None`` for a scan without one."""

    version: int | None = None
    notes: tuple[TableReads | None, ...] = ()

    @contextmanager
    def watched(self) -> Iterator[Callable[[], ReadSet]]:
        """Yield a function that returns what the block read: the whole table if a scan has no record."""
        with ExitStack() as stack:
            reads = [stack.enter_context(n.watched()) for n in self.notes if n is not None]
            unknown = ReadSet(whole_table=None in self.notes)
            yield lambda: reduce(ReadSet.beside, (read() for read in reads), unknown)


def own_reads(frame: DataFrame, uri: str) -> OwnReads:
    """What a DataFrame reads of the table at this URI, to which it is written."""
    if is_connect(frame.sparkSession) or not is_root(uri):
        return OwnReads()  # the usual case: this process has not read the table
    try:
        marks = [m.split(" ", 2) for m in set(relation_options(frame, MARK))]
    except Py4JError as e:
        say_once(
            "a write to a table that was read counts as a read of all its rows, and conflicts with other writers", e
        )
        versions = [notes.version for notes in list(_scans_by_number.values()) if notes.uri == uri]
        return OwnReads(min(versions, default=_read.get(uri)), (None,))
    scans = [(int(version), _scans_by_number.get(int(number))) for number, version, table in marks if table == uri]
    versions = [version if notes is None else notes.version for version, notes in scans]
    complete = (notes if notes is not None and notes.complete else None for _, notes in scans)
    return OwnReads(min(versions, default=None), tuple(complete))


@contextmanager
def reads_of_table(frames: Iterable[DataFrame], uri: str, version: int) -> Iterator[Callable[[], ReadSet]]:
    """Yield a function that returns the other reads of the table (at ``uri``, opened at ``version``), once the block
    has computed the rows; ``frames`` together contain all expressions of the command."""
    of_scans = {
        (reads.version if notes is None else notes.version, notes)
        for reads in (own_reads(frame, uri) for frame in frames)
        for notes in reads.notes
    }
    with ExitStack() as stack:
        watched = [(at, stack.enter_context(OwnReads(at, (notes,)).watched())) for at, notes in of_scans]

        def read() -> ReadSet:
            out = ReadSet()
            for at, read_of in watched:
                part = read_of()
                if not part.blind and at is not None and at != version:
                    part = part.beside(ReadSet(elsewhere=(ReadAt(at, part),)))
                out = out.beside(part)
            return out

        yield read
