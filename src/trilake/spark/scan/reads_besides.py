"""What a change of a table's rows reads of that table apart from the rows that it looks for.

That is what subqueries read, in conditions and in new values, and what the source of a MERGE is made of.  Names are
looked up by Spark when it analyses an expression, and a frame keeps the version that it shows while a command runs, so
either may be of another version than the change: the commit is told of which, see
:class:`~trilake.delta.commit.conflicts.ReadAt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import DataFrame

from trilake.delta.commit.conflicts import ReadAt, ReadSet
from trilake.spark.scan.planning.table_reads import OwnReads, own_reads


@contextmanager
def reads_besides(frames: Iterable[DataFrame], uri: str, version: int) -> Iterator[Callable[[], ReadSet]]:
    """Gives what tells, after the rows were computed in the block, what they were made of in addition.

    Parameters
    ----------
    frames: they have all expressions of the change between them.
    uri, version: of the table, where the change begins.
    """
    of_scans = {
        (own.version if notes is None else notes.version, notes)
        for own in (own_reads(frame, uri) for frame in frames)
        for notes in own.notes
    }
    with ExitStack() as stack:
        told = [(at, stack.enter_context(OwnReads(at, (notes,)).watched())) for at, notes in of_scans]

        def read() -> ReadSet:
            out = ReadSet()
            for at, tell in told:
                part = tell()
                if not part.blind and at is not None and at != version:
                    part = part.beside(ReadSet(elsewhere=(ReadAt(at, part),)))
                out = out.beside(part)
            return out

        yield read
