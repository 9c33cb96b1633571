"""Find the matching rows of a MERGE: the target's keys are read in groups of files and joined with the source.

Only the columns of the join condition are read per group, and only matching pairs stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from trilake.common.arrow_types import values_at
from trilake.common.parallel import map_ahead
from trilake.delta.commands.merge.scope import Join, Scope
from trilake.delta.commands.rows.row_changes import ChangedFile, gathered, in_large_pieces
from trilake.delta.log.snapshot import Snapshot
from trilake.delta.scan.read import RowsOfFiles, pack_size, packs, read_together, row_keys
from trilake.delta.scan.scan import ReadPlan, read_plan
from trilake.errors import ExpressionError
from trilake.expr.terms.datatypes import normalise
from trilake.expr.terms.engine import QueryError
from trilake.expr.terms.evaluate import Rows, duckdb_table
from trilake.storage.base import Store

#: Target rows joined at a time.
_JOIN_ROWS = 4 << 20
#: Bytes of files per group; matches are kept per group.
_GROUP_BYTES = 2 << 30

Indexes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Pairs:
    """Target rows that match source rows, ordered by file and row of the target.

    ``files`` are positions in the group, ``rows`` indexes in the file and ``source`` indexes of source rows.
    """

    files: Indexes
    rows: Indexes
    source: Indexes

    @classmethod
    def of(cls, parts: Sequence[Pairs]) -> Pairs:
        files, rows, source = (
            np.concatenate([getattr(p, n) for p in parts] or [np.zeros(0, np.int64)])
            for n in ("files", "rows", "source")
        )
        order = np.lexsort((source, rows, files))
        return cls(files[order], rows[order], source[order])

    def __len__(self) -> int:
        return len(self.files)

    def where(self, which: Any) -> Pairs:
        return Pairs(self.files[which], self.rows[which], self.source[which])

    def of_file(self, file: int) -> Pairs:
        lo, hi = np.searchsorted(self.files, [file, file + 1])
        return self.where(slice(int(lo), int(hi)))

    @cached_property
    def keys(self) -> Indexes:
        """File and row of the target, as one number."""
        return row_keys(self.files, self.rows)

    @cached_property
    def repeated(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether the pair has the same target row as the one before it."""
        same = np.zeros(len(self), bool)
        same[1:] = self.keys[1:] == self.keys[:-1]
        return same


def groups(files: Sequence[ChangedFile]) -> Iterator[list[ChangedFile]]:
    """Group files by size."""
    return gathered(files, lambda f: (f.file.size,), (_GROUP_BYTES,))


def read_fields(snapshot: Snapshot, columns: Sequence[str]) -> ReadPlan:
    """The plan for reading some columns of live rows: at least one, which carries the number of rows."""
    names = list(columns) or snapshot.schema.names[:1]
    return replace(read_plan(snapshot, names, None), filter=None)


def read_group(
    store: Store, group: Sequence[ChangedFile], numbers: Sequence[int], plan: ReadPlan, workers: int
) -> Iterator[list[RowsOfFiles]]:
    """Read the live rows of some files of a group, in order; small files are read together."""

    def read(pack: Sequence[int]) -> list[RowsOfFiles]:
        at = np.array(pack, np.int64)
        files = [group[n].file for n in pack]
        rows = in_large_pieces(read_together(store, files, plan))
        return [some._replace(files=at[some.files]) for some in rows]

    todo = list(packs(numbers, lambda n: group[n].file.size, pack_size(len(numbers), workers)))
    if workers <= 1 or len(todo) <= 1:
        yield from map(read, todo)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from map_ahead(pool, read, todo, workers + 1)


class TooManyPairsError(Exception):
    """More pairs of rows match than the caller can hold."""


class Matcher:
    """Joins groups of files with the source.

    Raises :class:`TooManyPairsError` if a group has more than ``most`` pairs.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        scope: Scope,
        join: Join,
        source: pa.Table,
        workers: int,
        most: int | None = None,
    ) -> None:
        self.store, self.scope, self.join, self.workers, self.most = store, scope, join, workers, most
        sides = {side: [p for p in join.paths if scope.side(p) == side] for side in ("target", "source")}
        self.paths = sides["target"]
        self.columns = sorted({p[1] for p in self.paths})
        self.plan = read_fields(snapshot, self.columns)
        self.query = snapshot.engine.query
        self.source = self._numbered(source, sides["source"], {"n": pa.array(np.arange(source.num_rows))})
        self.chunk = max(_JOIN_ROWS, min(source.num_rows, 4 * _JOIN_ROWS))

    def _numbered(self, rows: pa.Table, paths: Sequence[tuple[str, ...]], numbers: dict[str, pa.Array]) -> pa.Table:

        def column(path: tuple[str, ...]) -> pa.ChunkedArray:
            return normalise(values_at(rows, path[1:]))

        table = duckdb_table(Rows(rows.num_rows, column), tuple(paths))
        for name, values in numbers.items():
            table = table.append_column(name, values)
        return table

    def match(self, group: Sequence[ChangedFile]) -> Pairs:
        """Find the pairs of a group.  Raises ``ExpressionError`` if the condition fails on a row, and the errors of
        reading files.
        """
        if not self.source.num_rows:
            return Pairs.of([])
        parts: list[Pairs] = []
        read = read_group(self.store, group, range(len(group)), self.plan, self.workers)
        for packs_read in gathered(read, lambda batches: (sum(len(b.files) for b in batches),), (self.chunk,)):
            if batches := [b for pack in packs_read for b in pack]:
                parts.append(self._joined(batches, sum(map(len, parts))))
        return Pairs.of(parts)

    def _joined(self, waiting: Sequence[RowsOfFiles], count: int) -> Pairs:
        rows = pa.Table.from_batches([some.rows for some in waiting])
        numbers = {
            "f": pa.array(np.concatenate([some.files for some in waiting])),
            "r": pa.array(np.concatenate([some.positions for some in waiting])),
        }
        target = self._numbered(rows, self.paths, numbers)
        sql = f"SELECT t.f, t.r, s.n FROM target t JOIN source s ON {self.join.sql}"
        limit = None if self.most is None else self.most - count
        if limit is not None:
            sql = f"{sql} LIMIT {limit + 1}"
        try:
            pairs = self.query(sql, target=target, source=self.source)
        except QueryError as error:
            raise ExpressionError(
                f"the merge condition {self.join.source} fails on a row: {error.message}",
                help="fix the row, or use CASE or a try_ function",
            ) from error
        if limit is not None and pairs.num_rows > limit:
            raise TooManyPairsError
        return Pairs(*(pairs[n].to_numpy().astype(np.int64) for n in ("f", "r", "n")))
