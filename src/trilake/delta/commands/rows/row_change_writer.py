"""Writes the output of a task of UPDATE or MERGE: new files, change files, row ids, and counts."""

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
    """Counts of rows by kind of change.

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
        return self.updated_matched + self.updated_unmatched

    @property
    def deleted(self) -> int:
        return self.deleted_matched + self.deleted_unmatched


class RowChangeWriter:
    """The open data and change files of one task, and the :attr:`counts` of rows written.

    A context manager: on an error, its files are deleted.  Incoming rows have passed the table's rules.  ``feed``
    says whether the table records changes.
    """

    def __init__(self, store: Store, files: FilePlan, task: int, *, feed: bool, runtime: Runtime | None = None) -> None:
        runtime = runtime or files.engine.runtime
        self.files, self.feed, self.counts = files, feed, RowCounts()
        self.rows = TaskWriter(store, files, task, runtime)
        self.changes = TaskWriter(store, change_file_plan(files), task, runtime)
        id_column = files.configuration.get(row_tracking.ID_COLUMN)
        #: The column with the ids of moved rows; ``None`` without row tracking.
        self.id_column = next((f.name for f in files.extra if f.name == id_column), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()

    def abort(self) -> None:
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
        new: the new rows.
        old: the old rows, for the change feed.
        ids: the ids that they keep, with row tracking; their version is that of the commit.
        matched: whether they matched a condition.
        dictionaries: string columns that are dictionaries in other rows of the file: a column has one type per file.
        """
        self.record_update(new, old, matched=matched)
        self._write_new(as_dictionaries(new, dictionaries), ids)

    def record_update(self, new: pa.RecordBatch, old: Iterable[pa.RecordBatch], *, matched: bool = True) -> None:
        """Record an update of rows whose data file is written elsewhere; parameters as in :meth:`update`.

        Both images are whole where the table records changes.
        """
        if self.feed:
            for rows in old:
                self.changes.write(with_change_type(rows, "update_preimage"))
            self.changes.write(with_change_type(self._as_read(new), "update_postimage"))
        count = new.num_rows
        self.counts += RowCounts(updated_matched=count) if matched else RowCounts(updated_unmatched=count)

    def delete(self, count: int, old: Iterable[pa.RecordBatch], *, matched: bool = True) -> None:
        """Record that ``count`` rows are deleted; ``old`` are these rows, for the change feed."""
        if self.feed:
            for rows in old:
                self.changes.write(with_change_type(rows, "delete"))
        self.counts += RowCounts(deleted_matched=count) if matched else RowCounts(deleted_unmatched=count)

    def insert(self, new: pa.RecordBatch, *, feed: bool) -> None:
        """Write new rows.

        Without ``feed`` the change feed reads them from the data files, which works where nothing else changed.
        """
        if self.feed and feed:
            self.changes.write(with_change_type(self._as_read(new), "insert"))
        self._write_new(new, None)
        self.counts += RowCounts(inserted=new.num_rows)

    def copy(self, rows: pa.RecordBatch, tracked: Sequence[pa.Array]) -> None:
        """Write unchanged rows, with their row tracking columns."""
        for f, values in zip(self.files.extra, tracked, strict=True):
            rows = rows.append_column(f, values)
        self.rows.write(rows)

    def _as_read(self, new: pa.RecordBatch) -> pa.RecordBatch:
        """Cast rows that passed the rules to the types of rows that were read, which are in the same change file
        and all nullable.
        """
        schema = self.changes.plan.schema.to_arrow_schema()
        columns = [as_nullable(c, f.type) for c, f in zip(new.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _write_new(self, new: pa.RecordBatch, ids: pa.Array | None) -> None:
        none = pa.nulls(new.num_rows, pa.int64())
        self.copy(new, [ids if ids is not None and f.name == self.id_column else none for f in self.files.extra])

    def close(self, pipelines: Iterable[RowPipeline | None]) -> tuple[WrittenFiles, tuple[Mapping[str, Any], ...]]:
        """Finish all files; return what was written, and the actions of change files.  ``pipelines`` are the rules
        that new rows passed.
        """
        return WrittenFiles(tuple(self.rows.close()), _identity_marks(pipelines)), tuple(self.changes.close())


def _identity_marks(pipelines: Iterable[RowPipeline | None]) -> dict[str, int]:
    """The furthest identity values of several pipelines."""
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
