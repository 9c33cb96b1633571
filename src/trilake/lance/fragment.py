"""``LanceFragment``: one fragment of an open dataset.

In a distributed write, each worker creates fragments (:meth:`LanceFragment.create`) and sends their metadata as JSON;
the driver commits them with a :class:`~trilake.lance.pylance.operation.LanceOperation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.dataset

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import columns as commands
from trilake.lance.commands import joins
from trilake.lance.commands.column_updates import update_columns
from trilake.lance.commands.delete import condition_of, mark
from trilake.lance.commands.format_options import check_format, format_of
from trilake.lance.commands.fragment_writer import NullPolicy, Target, WriteOptions, discarded_on_failure
from trilake.lance.commands.input_rows import numbers, stream, table
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.file.errors import NothingToWriteError, UnknownRowError, WrongTypeError
from trilake.lance.file.schema import LanceSchema as StoredSchema
from trilake.lance.fragment_reads import ReadFragment
from trilake.lance.fragment_writes import create_fragments, write_fragments
from trilake.lance.progress import FragmentWriteProgress, NoopFragmentWriteProgress, Reporter
from trilake.lance.pylance.data_files import described
from trilake.lance.pylance.fragment_session import FragmentSession
from trilake.lance.pylance.row_ids import RowIdSequence
from trilake.lance.scan.projection import Selection
from trilake.lance.schema import LanceSchema
from trilake.lance.versions import fragment_metadata, manifest
from trilake.lance.versions.fragment_metadata import DeletionFile, FragmentMetadata, RowDatasetVersionMeta, RowIdMeta
from trilake.lance.versions.manifest import Fragment

__all__ = [
    "DEFAULT_MAX_BYTES_PER_FILE",
    "DataFile",
    "DeletionFile",
    "FragmentMetadata",
    "FragmentSession",
    "FragmentWriteProgress",
    "LanceFragment",
    "NoopFragmentWriteProgress",
    "RowDatasetVersionMeta",
    "RowIdMeta",
    "RowIdSequence",
    "write_fragments",
]


#: Default maximum size of a data file in bytes.
DEFAULT_MAX_BYTES_PER_FILE = 90 << 30


class DataFile(fragment_metadata.DataFile):
    """A data file of a fragment; see :class:`~trilake.lance.versions.fragment_metadata.DataFile`."""

    @classmethod
    def create(cls, dataset: OpenDataset, path: str, *, base_id: int | None = None) -> Self:
        """Create the manifest entry of an existing file below ``data``.

        Raises ``MissingFileError``, ``CorruptFileError``, and ``UnknownColumnError`` for a column that is not in the
        dataset.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1], "b": [2]}), "memory://doc-data-file", data_storage_version="2.2")
        >>> file = DataFile.create(made, made.get_fragments()[0].data_files()[0].path)
        >>> file.fields, file.column_indices, file.file_major_version
        ([0, 1], [0, 1], 2)
        """
        if base_id is not None:
            raise InvalidArgumentError(f"base_id must be None, got {base_id}", help="pass a file of the dataset itself")
        entry, _ = described(dataset.snapshot, path)
        return cls(**vars(fragment_metadata.DataFile.of(entry)))


class LanceFragment(ReadFragment):
    """One fragment of a dataset at its version.  Raises ``InvalidArgumentError`` for an unknown id.

    >>> import pyarrow as pa
    >>> from trilake.lance import write_dataset
    >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-class")
    >>> fragment = made.get_fragments()[0]
    >>> fragment.fragment_id, fragment.physical_rows, fragment.num_deletions
    (0, 3, 0)
    >>> fragment.to_table(filter="a > 1")["a"].to_pylist()
    [2, 3]
    """

    # --- create ------------------------------------------------------------------------------------------------------

    @staticmethod
    def create(
        dataset_uri: str | os.PathLike[str] | OpenDataset,
        data: Any,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        max_rows_per_group: int = 1024,
        progress: Any = None,
        mode: str = "append",
        *,
        nulls: NullPolicy = "error",
        storage_options: Mapping[str, str] | None = None,
        **later: Any,
    ) -> FragmentMetadata:
        """Write rows to one new data file without a commit.

        If the dataset exists and has these columns, the data file uses their field ids.

        Parameters
        ----------
        dataset_uri, data, schema, progress, mode, nulls, storage_options, later: those of :func:`write_fragments`.
        fragment_id: id of the fragment, by default 0; the commit of an append assigns another one.
        max_rows_per_group: maximum rows of a row group.

        Raises ``NothingToWriteError`` without rows.

        >>> import pyarrow as pa
        >>> from trilake.lance import LanceDataset, LanceOperation, write_dataset
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-fragment-create")
        >>> made = LanceFragment.create("memory://doc-fragment-create", pa.table({"a": [2, 3]}))
        >>> done = LanceDataset.commit("memory://doc-fragment-create", LanceOperation.Append([made]), read_version=1)
        >>> done.count_rows()
        3
        """
        format = format_of(later)
        check_format(later, of="LanceFragment.create")
        options = WriteOptions(2**31 - 1, max_rows_per_group, nulls=nulls, **format)
        number = 0 if fragment_id is None else count("fragment_id", fragment_id, other_type=WrongTypeError)
        reporter = Reporter(progress, number)
        fragments, _, _ = create_fragments(dataset_uri, data, schema, options, reporter, storage_options, mode)
        if len(fragments) != 1:
            raise NothingToWriteError(f"expected rows for one fragment, got {len(fragments)} fragments")
        return FragmentMetadata.of(replace(fragments[0], id=number))

    @staticmethod
    def create_from_file(
        filename: str | os.PathLike[str], schema: pa.Schema | OpenDataset, fragment_id: int
    ) -> FragmentMetadata:
        """Create the metadata of an existing data file.

        Parameters
        ----------
        filename: path of the file; only the part below ``data`` is used.
        schema: the dataset; or the schema of a file of the legacy format, which is not checked.
        fragment_id: id of the fragment.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-from-file")
        >>> fragment = made.get_fragments()[0]
        >>> name = fragment.data_files()[0].path
        >>> LanceFragment.create_from_file(name, made, 7).id
        7
        """
        name = os.fspath(filename).replace(os.sep, "/").rpartition("data/")[2]
        if isinstance(schema, pa.Schema):
            entry = manifest.DataFile(name, StoredSchema.from_arrow(schema).field_ids)
            return FragmentMetadata.of(Fragment(fragment_id, (entry,)))
        entry, rows = described(schema.snapshot, name)
        return FragmentMetadata.of(Fragment(fragment_id, (entry,), physical_rows=rows))

    # --- change without a commit -------------------------------------------------------------------------------------

    def delete(self, predicate: str) -> FragmentMetadata | None:
        """Delete the rows that match ``predicate``; returns ``None`` if no row remains.

        Only writes the deletion file; commit it with ``LanceOperation.Delete``.  Raises ``WrongTypeError`` without a
        predicate.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-delete")
        >>> fragment = made.get_fragments()[0]
        >>> from trilake.lance import LanceDataset, LanceOperation
        >>> changed = fragment.delete("a > 1")
        >>> done = LanceDataset.commit(made, LanceOperation.Delete([changed], [], "a > 1"), read_version=1)
        >>> done.count_rows()
        1
        """
        if predicate is None:
            raise WrongTypeError("delete needs a predicate, got None", help='pass "true" to delete all rows')
        snapshot = self._ds.snapshot
        rows = snapshot.matching(condition_of(snapshot, predicate), self._fragment)
        if not len(rows):
            return self.metadata
        marked = mark(self._fragment, rows, read_version=snapshot.version, runtime=snapshot.runtime)
        return None if marked is None else FragmentMetadata.of(marked)

    def delete_rows(self, offsets: Iterable[int]) -> FragmentMetadata | None:
        """Delete rows by physical ``offsets``; returns ``None`` if no row remains.

        Only writes the deletion file; commit it with ``LanceOperation.Delete``.  Raises ``UnknownRowError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-delete-rows")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.delete_rows([0, 1]).num_deletions
        2
        """
        rows = np.unique(numbers(offsets if hasattr(offsets, "__len__") else list(offsets)))
        if len(rows) and (rows[0] < 0 or rows[-1] >= self.physical_rows):
            wrong = rows[-1] if rows[0] >= 0 else rows[0]
            message = f"row {wrong} is out of range: the fragment has {self.physical_rows} rows"
            raise UnknownRowError(message, fragment=self.fragment_id)
        snapshot = self._ds.snapshot
        if not len(rows) or not self._fragment.is_live(rows).any():
            return self.metadata
        marked = mark(self._fragment, rows, read_version=snapshot.version, runtime=snapshot.runtime)
        return None if marked is None else FragmentMetadata.of(marked)

    def add_columns(
        self,
        value_func: Any,
        columns: list[str] | None = None,
        *,
        nulls: NullPolicy = "error",
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> FragmentMetadata:
        """Add columns; parameters are those of :meth:`merge_columns`.

        Only writes the data file; commit it with ``LanceOperation.Merge``.  New field ids follow the highest id of the
        dataset, so that all fragments agree.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-add-columns")
        >>> fragment = made.get_fragments()[0]
        >>> len(fragment.add_columns({"b": "a * 2"}).files)
        2
        """
        return self.merge_columns(value_func, columns, batch_size, reader_schema, nulls=nulls)[0]

    def merge_columns(
        self,
        value_func: Any,
        columns: list[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
        *,
        nulls: NullPolicy = "error",
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Add columns, and also return the schema for ``LanceOperation.Merge``.

        Parameters
        ----------
        value_func: a function that computes record batches of new columns from ``columns``; or SQL expressions by
            column name; or rows in fragment order.
        columns: columns to pass to the function, possibly with ``_rowid``; by default all.
        batch_size: maximum number of rows per call of the function.
        reader_schema: schema of rows passed as an iterable.

        nulls: how to write nulls that the format cannot store.

        Raises ``WrongTypeError`` for options that do not apply to ``value_func``.

        >>> import pyarrow as pa
        >>> from trilake.lance import LanceDataset, LanceOperation, write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-fragment-merge-columns")
        >>> changed, schema = made.get_fragments()[0].merge_columns({"b": "a * 2"})
        >>> done = LanceDataset.commit(made, LanceOperation.Merge([changed], schema), read_version=1)
        >>> done.to_table().to_pydict()
        {'a': [1, 2], 'b': [2, 4]}
        """
        if getattr(value_func, "checkpoint_file", None) is not None:
            raise InvalidArgumentError(
                "A checkpoint file cannot be used with LanceFragment.merge_columns",
                help="call LanceDataset.add_columns, or store the results yourself",
            )
        options = {"columns": columns, "reader_schema": reader_schema, "batch_size": batch_size}
        if isinstance(value_func, Mapping):
            commands.check_use(options, ("batch_size",), "expressions")
            values, new_schema, names = commands.of_expressions(self._ds.snapshot.schema, value_func)
            return self._widened(values, new_schema, names, nulls)
        if not callable(value_func):
            commands.check_use(options, ("reader_schema", "batch_size"), "rows")
            feed = commands.Feed(*stream(value_func, reader_schema))
            widened = self._widened(feed, feed.schema, self._ds.snapshot.schema.names[:1], nulls)
            entry = widened[0].entry
            with discarded_on_failure(self._ds.snapshot.store, [replace(entry, files=entry.files[-1:])]):
                feed.check_end()
            return widened
        commands.check_use(options, ("columns", "batch_size"), "a function")
        return self._computed(value_func, columns, batch_size, nulls)

    def _computed(
        self,
        value_func: Callable[[pa.RecordBatch], pa.RecordBatch],
        columns: list[str] | None,
        batch_size: int | None,
        nulls: NullPolicy,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        # The first result has the types of the new columns.  Reuse it, unless the batch is longer than a row group.
        first = next((b for b in self.to_batches(columns, batch_size=batch_size)), None)
        if first is None:
            raise InvalidArgumentError("cannot add columns to a fragment without rows", fragment=self.fragment_id)
        first_result: list[pa.RecordBatch] = [value_func(first)]
        if not isinstance(first_result[0], pa.RecordBatch):
            raise InvalidArgumentError(f"value_func must return a RecordBatch, got {type(first_result[0]).__name__}")

        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            cached = first_result.pop() if first_result else None
            return cached if cached is not None and cached.num_rows == batch.num_rows else value_func(batch)

        parts = values if batch_size is None else commands.in_batches(values, batch_size)
        return self._widened(parts, first_result[0].schema, columns, nulls)

    def _widened(
        self, values: commands.Values, new_schema: pa.Schema, names: Sequence[str] | None, nulls: NullPolicy
    ) -> tuple[FragmentMetadata, LanceSchema]:
        snapshot = self._ds.snapshot
        commands.check_new(snapshot.manifest.schema, new_schema.names)
        version, first_id = snapshot.manifest.storage_version, commands.next_field_id(snapshot.manifest)
        target = Target.new(new_schema, version, nulls=nulls, first_id=first_id)
        selection = Selection.of(snapshot.view, names)

        def of_read(batch: pa.RecordBatch) -> pa.RecordBatch:
            return values(batch if selection.projection is None else selection.projection.project(batch))

        widened = commands.widen(self._fragment, snapshot, target, selection.columns, of_read, places=selection.places)
        return FragmentMetadata.of(widened), LanceSchema(snapshot.view.schema).with_columns(target.view.schema)

    def merge(
        self, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """Join the columns of ``data_obj``, and also return the schema for ``LanceOperation.Merge``.

        Parameters
        ----------
        data_obj: the data to join.
        left_on, right_on: key columns of the fragment and of the data; ``right_on`` defaults to ``left_on``.
        schema: schema of data passed as an iterable.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-merge")
        >>> fragment = made.get_fragments()[0]
        >>> changed, schema = fragment.merge(pa.table({"a": [1, 2, 3], "n": [10, 20, 30]}), "a")
        >>> len(changed.files)
        2
        """
        values, new = joins.join_values(self._ds.snapshot, table(data_obj, schema), left_on, right_on)
        commands.check_new(self._ds.snapshot.manifest.schema, new.names)
        manifest = self._ds.snapshot.manifest
        target = Target.new(new, manifest.storage_version, first_id=commands.next_field_id(manifest))
        by_id = joins.is_id(self._ds.snapshot, left_on)
        selection = self._ds.snapshot.view.columns([]) if by_id else self._ds.snapshot.view.columns([left_on])
        widened = commands.widen(
            self._fragment, self._ds.snapshot, target, selection, values, places=[left_on] if by_id else []
        )
        return FragmentMetadata.of(widened), LanceSchema(self._ds.snapshot.view.schema).with_columns(target.view.schema)

    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
    ) -> tuple[Any, ...]:
        """Update columns by key; returns the fragment and the ids of the changed fields, for ``LanceOperation.Update``.

        Parameters
        ----------
        data_obj: the new values with a key column; rows without a match are unchanged.
        left_on, right_on: key columns of the fragment and of ``data_obj``; by default row ids.
        schema: schema of rows passed as an iterable.
        with_offsets: whether to also return the offsets of the changed rows, as a serialized Roaring bitmap.

        Raises ``UnknownColumnError`` and ``SchemaMismatchError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import LanceDataset, LanceOperation, write_dataset
        >>> made = write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), "memory://doc-fragment-update")
        >>> changed, fields = made.get_fragments()[0].update_columns(pa.table({"id": [2], "n": [21]}), "id")
        >>> update = LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
        >>> LanceDataset.commit(made, update, read_version=1).to_table()["n"].to_pylist()
        [10, 21]
        """
        flag("with_offsets", with_offsets)
        snapshot, new = self._ds.snapshot, table(data_obj, schema)
        done = update_columns(snapshot, self._fragment, new, left_on, right_on, nulls=self._ds.nulls)
        changed = FragmentMetadata.of(done.fragment), done.field_ids
        return (*changed, done.offsets.serialize()) if with_offsets else changed
