"""Writes what a task of UPDATE or MERGE makes of rows: new files, change files, row ids, and counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.delta.commands.rows.row_changes import change_file_plan, with_change_type
from trilake.delta.commit import row_tracking
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import TaskWriter
from trilake.delta.rules.row_rules import RowPipeline
from trilake.delta.scan.conform import as_nullable
from trilake.delta.scan.parquet_rows import as_dictionaries
from trilake.storage.base import Store


@dataclass(frozen=True)
class RowCounts:
    """Rows by what happened to them; sums are of all parts of a command.

    Rows that an UPDATE changes count as matched.
    """

    source: int = 0
    updated_matched: int = 0
    updated_unmatched: int = 0
    deleted_matched: int = 0
    deleted_unmatched: int = 0
    inserted: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(*(getattr(self, n) + getattr(other, n) for n in self.__dataclass_fields__))

    @property
    def updated(self) -> int:
        """Rows with new values."""
        return self.updated_matched + self.updated_unmatched

    @property
    def deleted(self) -> int:
        """Rows that are gone."""
        return self.deleted_matched + self.deleted_unmatched


class RowChangeWriter:
    """The open files of one task, of new rows and of the change feed, and :attr:`counts` of what went into them.

    A context manager: when its block raises, its files are deleted.  Rows that come in have gone through the table's
    rules.  ``feed`` says whether the table records changes.
    """

    def __init__(self, store: Store, files: FilePlan, task: int, *, feed: bool, runtime: Runtime | None = None) -> None:
        runtime = runtime or files.engine.runtime
        self.files, self.feed, self.counts = files, feed, RowCounts()
        self.rows = TaskWriter(store, files, task, runtime)
        self.changes = TaskWriter(store, change_file_plan(files), task, runtime)
        id_column = files.configuration.get(row_tracking.ID_COLUMN)
        #: The column that keeps the ids of rows that move; ``None`` where the table does not track its rows.
        self.id_column = next((f.name for f in files.extra if f.name == id_column), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()

    def abort(self) -> None:
        """Delete the files."""
        self.rows.abort()
        self.changes.abort()

    def update(
        self,
        new: pa.RecordBatch,
        old: Iterable[pa.RecordBatch],
        ids: pa.Array | None,
        *,
        matched: bool = True,
        dictionaries: Collection[str] = (),
    ) -> None:
        """Write rows with new values.

        Parameters
        ----------
        new: the rows as they are now.
        old: the rows as they were, for the change feed.
        ids: the ids that they keep, where the table tracks its rows; their version is that of the commit.
        matched: whether they matched a condition, or nothing.
        dictionaries: text columns that the rows beside these have as dictionaries: a file has one form of a column.
        """
        self.record_update(new, old, matched=matched)
        self._write_new(as_dictionaries(new, dictionaries), ids)

    def record_update(self, new: pa.RecordBatch, old: Iterable[pa.RecordBatch], *, matched: bool = True) -> None:
        """Record that rows, whose file is written otherwise, have new values; parameters as those of :meth:`update`.

        Both images are whole where the table records changes.
        """
        if self.feed:
            for rows in old:
                self.changes.write(with_change_type(rows, "update_preimage"))
            self.changes.write(with_change_type(self._as_read(new), "update_postimage"))
        count = new.num_rows
        self.counts += RowCounts(updated_matched=count) if matched else RowCounts(updated_unmatched=count)

    def delete(self, count: int, old: Iterable[pa.RecordBatch], *, matched: bool = True) -> None:
        """Record that ``count`` rows go; ``old`` are they as they were, for the change feed."""
        if self.feed:
            for rows in old:
                self.changes.write(with_change_type(rows, "delete"))
        self.counts += RowCounts(deleted_matched=count) if matched else RowCounts(deleted_unmatched=count)

    def insert(self, new: pa.RecordBatch, *, feed: bool) -> None:
        """Write rows that are new in the table.

        Without ``feed`` the change feed takes them from the files, which it does where nothing else changed.
        """
        if self.feed and feed:
            self.changes.write(with_change_type(self._as_read(new), "insert"))
        self._write_new(new, None)
        self.counts += RowCounts(inserted=new.num_rows)

    def copy(self, rows: pa.RecordBatch, tracked: Sequence[pa.Array]) -> None:
        """Write rows as they are, with the values of the columns that keep ids and versions."""
        for f, values in zip(self.files.extra, tracked, strict=True):
            rows = rows.append_column(f, values)
        self.rows.write(rows)

    def _as_read(self, new: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that went through the rules in the types of rows that were read, which stand in the same change file:
        there, every part may be null."""
        wanted = self.changes.plan.schema.to_arrow_schema()
        columns = [as_nullable(c, f.type) for c, f in zip(new.columns, wanted, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _write_new(self, new: pa.RecordBatch, ids: pa.Array | None) -> None:
        none = pa.nulls(new.num_rows, pa.int64())
        self.copy(new, [ids if ids is not None and f.name == self.id_column else none for f in self.files.extra])

    def close(self, pipelines: Iterable[RowPipeline | None]) -> tuple[WrittenFiles, tuple[Mapping[str, Any], ...]]:
        """Finish all files: what was written, and the actions of change files.  ``pipelines`` are the rules that new
        rows went through."""
        return WrittenFiles(tuple(self.rows.close()), _identity_marks(pipelines)), tuple(self.changes.close())


def _identity_marks(pipelines: Iterable[RowPipeline | None]) -> dict[str, int]:
    """How far the identity columns of rows moved in all."""
    marks: dict[str, int] = {}
    for pipeline in pipelines:
        if pipeline is None:
            continue
        columns = {c.name: c for c in pipeline.rules.identities}
        for name, mark in pipeline.marks.items():
            further = columns[name].further(mark, marks.get(name))
            assert further is not None
            marks[name] = further
    return marks
