"""What a DML command reads of its table in addition to the rows that it changes.

These reads are the subqueries in conditions and new values, and the source of a MERGE.  Spark resolves names when it
analyses an expression, and frames keep their version while a command runs, so these reads may show another version than
the command.  The commit checks them at their version; see :class:`~trilake.delta.commit.conflicts.ReadAt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import DataFrame

from trilake.delta.commit.conflicts import ReadAt, ReadSet
from trilake.spark.scan.planning.table_reads import OwnReads, own_reads


@contextmanager
def reads_besides(frames: Iterable[DataFrame], uri: str, version: int) -> Iterator[Callable[[], ReadSet]]:
    """Yield a function that returns the other reads of the table, once the rows have been computed in the block.

    Parameters
    ----------
    frames: frames that together contain all expressions of the command.
    uri, version: the table and its version at the start of the command.
    """
    of_scans = {
        (reads.version if notes is None else notes.version, notes)
        for reads in (own_reads(frame, uri) for frame in frames)
        for notes in reads.notes
    }
    with ExitStack() as stack:
        watched = [(at, stack.enter_context(OwnReads(at, (notes,)).watched())) for at, notes in of_scans]

        def read() -> ReadSet:
            out = ReadSet()
            for at, tell in watched:
                part = tell()
                if not part.blind and at is not None and at != version:
                    part = part.beside(ReadSet(elsewhere=(ReadAt(at, part),)))
                out = out.beside(part)
            return out

        yield read
