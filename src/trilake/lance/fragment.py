"""``LanceFragment``: one fragment of an open dataset.

In a distributed write, each worker creates fragments (:meth:`LanceFragment.create`) and sends their metadata as JSON;
the driver commits them with a :class:`~trilake.lance.pylance.operation.LanceOperation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset

from trilake.common.arguments import count, flag
from trilake.common.runtime import SYSTEM_RUNTIME
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import columns as commands
from trilake.lance.commands.column_updates import update_columns
from trilake.lance.commands.delete import condition_of, mark
from trilake.lance.commands.format_options import check_format, format_of
from trilake.lance.commands.fragment_writer import NullPolicy, Reporter, Target, WriteOptions, discarded_on_failure
from trilake.lance.commands.fragment_writer import write_fragments as write_files
from trilake.lance.commands.input_rows import numbers, stream, table
from trilake.lance.commands.open_dataset import OpenDataset, place_of
from trilake.lance.commands.write import with_bases_of
from trilake.lance.file.errors import NothingToWriteError, UnknownRowError, WrongTypeError
from trilake.lance.file.schema import LanceSchema as StoredSchema
from trilake.lance.file.storage_version import DEFAULT
from trilake.lance.file.view import View
from trilake.lance.progress import FragmentWriteProgress, NoopFragmentWriteProgress
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.pylance.data_files import described
from trilake.lance.pylance.operation import LanceOperation, Transaction, base_paths
from trilake.lance.pylance.scanner import LanceScanner, Scannable, ScannerBuilder
from trilake.lance.scan.fragment_reader import FragmentReader, Rows, one_batch, split
from trilake.lance.scan.parse_sql import PylanceSql
from trilake.lance.scan.projection import ColumnsLike, Selection
from trilake.lance.scan.scan import ScanPlan, finish
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.schema import LanceSchema
from trilake.lance.versions import fragment_metadata, manifest, row_ids
from trilake.lance.versions.fragment_metadata import DeletionFile, FragmentMetadata, RowDatasetVersionMeta, RowIdMeta
from trilake.lance.versions.manifest import Fragment
from trilake.lance.versions.versions import list_versions
from trilake.table.table import FilterLike

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

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1], "b": [2]}), "memory://doc-data-file", data_storage_version="2.2")
        >>> file = DataFile.create(ds, ds.get_fragments()[0].data_files()[0].path)
        >>> file.fields, file.column_indices, file.file_major_version
        ([0, 1], [0, 1], 2)
        """
        if base_id is not None:
            raise InvalidArgumentError(f"base_id must be None, got {base_id}", help="pass a file of the dataset itself")
        entry, _ = described(dataset.snapshot, path)
        return cls.of(entry)


_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class RowIdSequence:
    """Row ids, one for each physical row of a fragment, in order.

    Parameters
    ----------
    row_ids: distinct non-negative integers, as an array or an iterable.

    Raises ``InvalidArgumentError`` and ``WrongTypeError``.

    >>> RowIdSequence([7, 12, 3])
    RowIdSequence([7, 12, 3])
    >>> RowIdSequence.from_inline_metadata(RowIdSequence(range(3)).to_inline_metadata()).to_pyarrow().to_pylist()
    [0, 1, 2]
    """

    row_ids: Any

    def __post_init__(self) -> None:
        values = self.row_ids
        if not isinstance(values, Iterable):
            raise WrongTypeError(f"row ids must be an iterable of integers, got {values!r} ({type(values).__name__})")
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if isinstance(array, range) and len(array) and min(array) < 0:
            raise InvalidArgumentError(f"row ids must be non-negative, got {min(array)}")
        if not isinstance(array, pa.Array):
            items = list(array)
            try:
                array = pa.array(items, pa.uint64()) if items else pa.array([], pa.uint64())
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as e:
                raise WrongTypeError(f"row ids must be an iterable of integers that fit uint64: {e}") from e
        if array.null_count:
            raise InvalidArgumentError("row ids must not be null", help="leave the nulls out")
        if len(array) and not pa.types.is_integer(array.type):
            raise WrongTypeError(f"row ids must be an array of integers, got {array.type}")
        try:
            ids = array.cast(pa.uint64()).to_numpy()
        except pa.ArrowInvalid as e:
            raise InvalidArgumentError(f"row ids must fit uint64: {e}") from e
        if len(np.unique(ids)) < len(ids):
            raise InvalidArgumentError("Row ids must be unique", help="pass each row id once")
        object.__setattr__(self, "row_ids", ids)

    @classmethod
    def from_inline_metadata(cls, metadata: RowIdMeta) -> RowIdSequence:
        """Read the row ids from fragment metadata.  Raises ``InvalidArgumentError`` if they are in a file."""
        if not isinstance(metadata.placed, bytes):
            raise InvalidArgumentError(f"the row ids are not inline: {metadata!r}", help="read them with a scan")
        count = row_ids.count_ids(metadata.placed)
        return cls(pa.array(row_ids.parse_ids(metadata.placed, count, file="")))

    def to_inline_metadata(self) -> RowIdMeta:
        """Convert to fragment metadata."""
        return RowIdMeta(row_ids.serialise_ids(self.row_ids))

    def to_pyarrow(self) -> pa.UInt64Array:
        """Convert to an Arrow array."""
        return pa.array(self.row_ids, pa.uint64())

    def __len__(self) -> int:
        return len(self.row_ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.row_ids.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowIdSequence) and np.array_equal(self.row_ids, other.row_ids)

    __hash__ = None  # type: ignore[assignment]  # not hashable

    def __repr__(self) -> str:
        first = ", ".join(map(str, self.row_ids[:_SHOWN].tolist()))
        more = len(self) > _SHOWN
        return f"RowIdSequence([{first}{', ...' if more else ''}]{f', len={len(self)}' if more else ''})"


@dataclass(frozen=True)
class FragmentSession:
    """Take rows of a fragment; see :meth:`trilake.lance.fragment.LanceFragment.open_session`."""

    snapshot: Snapshot
    reader: FragmentReader
    selection: Selection

    def take(self, indices: npt.ArrayLike) -> pa.Table:
        """Return the rows at the given positions, in the given order.  Raises ``UnknownRowError``."""
        positions, selection = numbers(indices), self.selection
        if len(positions) and (positions.min() < 0 or positions.max() >= self.reader.num_rows):
            raise UnknownRowError(
                f"a row index is out of range: the fragment has {self.reader.num_rows} rows",
                fragment=self.reader.fragment.id,
            )
        view = self.snapshot.view
        plan = ScanPlan(view, selection.columns, row_metadata=selection.row_metadata)
        offsets = self.reader.offsets_of_live(positions)
        stored = one_batch(self.reader.take(offsets, view.stored(plan.columns)))
        rows = finish(plan, self.reader, stored, offsets)
        return selection.show(pa.Table.from_batches([rows]))


class LanceFragment(Scannable, pa.dataset.Fragment):
    """One fragment of a dataset at its version.  Raises ``InvalidArgumentError`` for an unknown id.

    >>> from trilake.lance import write_dataset
    >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-class")
    >>> fragment = ds.get_fragments()[0]
    >>> fragment.fragment_id, fragment.physical_rows, fragment.num_deletions, len(fragment.data_files())
    (0, 3, 0, 1)
    >>> fragment.count_rows(), fragment.count_rows("a > 1"), fragment.scanner(filter="a > 1", limit=1).count_rows()
    (3, 2, 1)
    >>> fragment.to_table(filter="a > 1")["a"].to_pylist(), fragment.to_pandas()["a"].tolist()
    ([2, 3], [1, 2, 3])
    >>> [batch.num_rows for batch in fragment.to_batches(batch_size=2)]
    [2, 1]
    >>> fragment.head(1)["a"].to_pylist(), fragment.take([2, 0])["a"].to_pylist()
    ([1], [3, 1])
    >>> session = fragment.open_session(["a"])
    >>> [session.take([n])["a"][0].as_py() for n in (2, 1)]
    [3, 2]
    >>> fragment.validate()

    Changes write files, and return the metadata to commit:

    >>> fragment.deletion_file() is None, fragment.delete_rows([0, 1]).deletion_file.num_deleted_rows
    (True, 2)
    >>> changed, schema = fragment.merge(pa.table({"a": [1, 2, 3], "n": [10, 20, 30]}), "a")
    >>> len(changed.files), schema.to_pyarrow().names, len(fragment.add_columns({"b": "a * 2"}).files)
    (2, ['a', 'n'], 2)
    >>> LanceFragment.create_from_file(fragment.data_files()[0].path, ds, 7).id
    7
    """

    def __init__(
        self, dataset: OpenDataset, fragment_id: int | None, *, fragment: FragmentReader | None = None
    ) -> None:
        self._ds = dataset
        if fragment is None:
            if fragment_id is None:
                raise InvalidArgumentError("pass either fragment or fragment_id")
            fragment = dataset.snapshot.by_id.get(fragment_id)
        if fragment is None:
            raise InvalidArgumentError(f"fragment {fragment_id} does not exist", file=dataset.uri)
        self._fragment = fragment

    def __repr__(self) -> str:
        files = [f.path for f in self._fragment.fragment.files]
        return f"LanceFragment(id={self.fragment_id}, data_files={files}, deletion_file={self.deletion_file()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._ds, self.fragment_id)

    def __getattr__(self, name: str) -> Any:
        raise not_in_format("LanceFragment", name)

    # --- metadata ----------------------------------------------------------------------------------------------------

    @property
    def fragment_id(self) -> int:
        """Id of the fragment."""
        return self._fragment.fragment.id

    @property
    def metadata(self) -> FragmentMetadata:
        """Metadata of the fragment."""
        return FragmentMetadata.of(self._fragment.fragment)

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows."""
        return self._fragment.num_deleted

    @property
    def physical_rows(self) -> int:
        """Number of rows, including deleted ones."""
        return self._fragment.physical_rows

    @property
    def schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._ds.snapshot.schema

    @property
    def physical_schema(self) -> pa.Schema:
        """Schema of the dataset."""
        return self._ds.snapshot.schema

    def data_files(self) -> list[fragment_metadata.DataFile]:
        """Return the data files."""
        return self.metadata.files

    def deletion_file(self) -> str | None:
        """Return the path of the deletion file relative to the dataset, or ``None``."""
        entry = self._fragment.fragment.deletion_file
        return None if entry is None else entry.key(self.fragment_id)

    # --- reading -----------------------------------------------------------------------------------------------------

    def count_rows(self, filter: FilterLike | None = None) -> int:
        """Count the rows that match ``filter``."""
        return self._fragment.num_rows if filter is None else self.scanner(filter=filter).count_rows()

    def scanner(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        **more: Any,
    ) -> LanceScanner:
        """Return a scanner of this fragment; ``default_scan_options`` of the dataset do not apply.

        Parameters and errors are those of :meth:`trilake.lance.LanceDataset.scanner`, also for ``more``.
        """
        options = {**more, "columns": columns, "filter": filter, "limit": limit, "offset": offset, "fragments": [self]}
        return ScannerBuilder(self._ds).apply_defaults(options).to_scanner()

    def take(self, indices: npt.ArrayLike, columns: ColumnsLike | None = None) -> pa.Table:
        """Return the rows at the positions ``indices``, in that order, with ``columns``."""
        return self.open_session(columns).take(indices)

    def open_session(self, columns: ColumnsLike | None = None, with_row_address: bool | None = None) -> FragmentSession:
        """Open a session for repeated reads of ``columns``; ``with_row_address`` adds a column ``_rowaddr``."""
        addresses = with_row_address is not None and flag("with_row_address", with_row_address)
        return FragmentSession(
            self._ds.snapshot, self._fragment, Selection.of(self._ds.snapshot.view, columns, with_row_address=addresses)
        )

    def validate(self) -> None:
        """Check that the files of the fragment exist and match the manifest.

        Raises ``CorruptFileError``, ``CorruptLogError``, ``MissingFileError`` or ``DeletionVectorError``.
        """
        self._ds.snapshot.validate_fragment(self._fragment)

    # --- create ------------------------------------------------------------------------------------------------------

    @staticmethod
    def create(
        dataset_uri: str | os.PathLike[str] | OpenDataset,
        data: Any,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        max_rows_per_group: int | None = 1024,
        progress: Any = None,
        mode: str | None = "append",
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

        >>> from trilake.lance import LanceDataset, LanceOperation, write_dataset
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-fragment-create")
        >>> ds = LanceFragment.create("memory://doc-fragment-create", pa.table({"a": [2, 3]}))
        >>> done = LanceDataset.commit("memory://doc-fragment-create", LanceOperation.Append([ds]), read_version=1)
        >>> done.count_rows()
        3
        """
        format = format_of(later)
        check_format(later, of="LanceFragment.create")
        options = WriteOptions.of(
            max_rows_per_file=2**31 - 1, max_rows_per_group=max_rows_per_group, nulls=nulls, **format
        )
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

        >>> from trilake.lance import LanceDataset, LanceOperation, write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-delete")
        >>> changed = ds.get_fragments()[0].delete("a > 1")
        >>> done = LanceDataset.commit(ds, LanceOperation.Delete([changed], [], "a > 1"), read_version=1)
        >>> done.count_rows()
        1
        """
        if predicate is None:
            raise WrongTypeError("delete needs a predicate, got None", help='pass "true" to delete all rows')
        snapshot = self._ds.snapshot
        rows = split(snapshot.matching(condition_of(snapshot, PylanceSql.of(predicate)), [self._fragment]))[1]
        return self._marked(rows) if len(rows) else self.metadata

    def delete_rows(self, offsets: Iterable[int]) -> FragmentMetadata | None:
        """Delete rows by physical ``offsets``; returns ``None`` if no row remains.

        Only writes the deletion file; commit it with ``LanceOperation.Delete``.  Raises ``UnknownRowError``.
        """
        rows = np.unique(numbers(offsets if hasattr(offsets, "__len__") else list(offsets)))
        if len(rows) and (rows[0] < 0 or rows[-1] >= self.physical_rows):
            wrong = rows[-1] if rows[0] >= 0 else rows[0]
            message = f"row {wrong} is out of range: the fragment has {self.physical_rows} rows"
            raise UnknownRowError(message, fragment=self.fragment_id)
        return self._marked(rows) if len(rows) and self._fragment.is_live(rows).any() else self.metadata

    def _marked(self, rows: Rows) -> FragmentMetadata | None:
        marked = mark(self._ds.snapshot, self._fragment, rows)
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

        >>> from trilake.lance import LanceDataset, LanceOperation, write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-fragment-merge-columns")
        >>> changed, schema = ds.get_fragments()[0].merge_columns({"b": "a * 2"})
        >>> done = LanceDataset.commit(ds, LanceOperation.Merge([changed], schema), read_version=1)
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
        target = commands.new_columns(snapshot, new_schema, nulls)
        selection = Selection.of(snapshot.view, names)

        def of_read(batch: pa.RecordBatch) -> pa.RecordBatch:
            return values(batch if selection.projection is None else selection.projection.project(batch))

        (widened,) = commands.widen(
            self._fragment,
            snapshot,
            target,
            selection.columns,
            of_read,
            snapshot.store,
            row_metadata=selection.row_metadata,
        )
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
        """
        values, new = commands.join_values(self._ds.snapshot, table(data_obj, schema), left_on, right_on)
        return self._widened(values, new, [left_on], "error")

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

        >>> from trilake.lance import LanceDataset, LanceOperation, write_dataset
        >>> ds = write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), "memory://doc-fragment-update")
        >>> changed, fields = ds.get_fragments()[0].update_columns(pa.table({"id": [2], "n": [21]}), "id")
        >>> update = LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
        >>> LanceDataset.commit(ds, update, read_version=1).to_table()["n"].to_pylist()
        [10, 21]
        """
        flag("with_offsets", with_offsets)
        snapshot, new = self._ds.snapshot, table(data_obj, schema)
        done = update_columns(snapshot, self._fragment, new, left_on, right_on, nulls=self._ds.nulls)
        changed = FragmentMetadata.of(done.fragment), done.field_ids
        return (*changed, done.offsets.serialize()) if with_offsets else changed


def create_fragments(
    uri: str | os.PathLike[str] | OpenDataset,
    data: Any,
    schema: pa.Schema | None,
    options: WriteOptions,
    progress: Reporter,
    storage_options: Mapping[str, str] | None,
    mode: str | None,
) -> tuple[list[Fragment], pa.Schema, int]:
    """Write new fragments; returns them with their schema and the newest version (0 without a dataset)."""
    mode = "create" if mode is None else mode
    if mode not in ("create", "append", "overwrite"):
        raise InvalidArgumentError(f"mode must be create, append or overwrite, got {mode!r}")
    store, _ = place_of(uri, storage_options)
    rows_schema, batches = stream(data, schema)
    if not rows_schema.names:
        raise NothingToWriteError("the rows have no columns")
    manifest = Snapshot.open(store, SYSTEM_RUNTIME).manifest if list_versions(store).versions else None
    storage = options.storage_version or (DEFAULT if manifest is None else manifest.storage_version)
    target, version = Target.new(rows_schema, storage, nulls=options.nulls), 0
    if manifest is not None:
        version, options = manifest.version, with_bases_of(manifest, options, mode)
        # Compare user-visible columns, as null companions depend on the dataset.
        existing, names = View(manifest.schema).schema.names, target.view.schema.names
        if mode == "append" and (
            sorted(existing) == sorted(names) or (not storage.is_legacy and set(names) <= set(existing))
        ):
            target = Target.of(manifest.schema, storage, names, nulls=options.nulls)
    fragments = write_files(store, batches, target, options, SYSTEM_RUNTIME, progress=progress)
    return fragments, rows_schema, version


@overload
def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[False] = False,
    **options: Any,
) -> list[FragmentMetadata]: ...


@overload
def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[True],
    **options: Any,
) -> Transaction: ...


def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str | None = "append",
    max_rows_per_file: int | None = 1 << 20,
    max_rows_per_group: int | None = 1024,
    max_bytes_per_file: int | None = 90 << 30,
    progress: Any = None,
    nulls: NullPolicy = "error",
    storage_options: Mapping[str, str] | None = None,
    **later: Any,
) -> list[FragmentMetadata] | Transaction:
    """Write rows to new data files without a commit.

    Parameters
    ----------
    data: see :func:`trilake.lance.commands.input_rows.stream`.
    dataset_uri: path, URI, or an open dataset; it need not exist.
    schema: schema of the rows.
    return_transaction: whether to return a transaction instead: an append, or an overwrite if ``mode`` is
        ``"overwrite"`` or the dataset does not exist.
    mode: ``"append"`` uses the field ids of the dataset if it has all columns; ``"create"``, ``"overwrite"`` and
        ``None`` assign new ids, which only an overwrite can commit.
    max_rows_per_file, max_rows_per_group, max_bytes_per_file, nulls: see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.
    progress: an object with methods ``begin(fragment)`` and ``complete(fragment)``.
    storage_options: credentials, region and endpoint of the object store.
    later: see :func:`trilake.lance.pylance.lance_dataset.write_dataset`.

    Raises ``SchemaMismatchError``, ``WriteFailedError`` or ``NothingToWriteError``.

    >>> fragments = write_fragments(pa.table({"a": [1, 2]}), "memory://doc-write-fragments")
    >>> [fragment.physical_rows for fragment in fragments]
    [2]
    """
    format, bases = format_of(later), later.pop("initial_bases", None)
    check_format(later, of="write_fragments")
    flag("return_transaction", return_transaction)
    options = WriteOptions.of(
        max_rows_per_file=max_rows_per_file,
        max_rows_per_group=max_rows_per_group,
        max_bytes_per_file=max_bytes_per_file,
        nulls=nulls,
        bases=base_paths(bases),
        **format,
    )
    reporter = Reporter(progress)
    entries, rows_schema, version = create_fragments(
        dataset_uri, data, schema, options, reporter, storage_options, mode
    )
    fragments = [FragmentMetadata.of(entry) for entry in entries]
    if not return_transaction:
        return fragments
    if mode == "append" and version:
        return Transaction(version, LanceOperation.Append(fragments))
    return Transaction(version, LanceOperation.Overwrite(rows_schema, fragments, bases))
