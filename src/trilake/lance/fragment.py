"""``LanceFragment``: one fragment of an open dataset.

A distributed write makes fragments wherever the rows are (:meth:`LanceFragment.create`), sends their metadata as JSON,
and commits them at one place with a :class:`~trilake.lance.pylance.operation.LanceOperation`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from trilake.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import columns as commands
from trilake.lance.commands import joins
from trilake.lance.commands.column_updates import update_columns
from trilake.lance.commands.delete import condition_of, mark
from trilake.lance.commands.format_options import check_format
from trilake.lance.commands.fragment_writer import NullPolicy, Target, WriteOptions, discarded_on_failure
from trilake.lance.commands.fragment_writer import write_fragments as write_files
from trilake.lance.commands.input_rows import numbers, stream, table
from trilake.lance.commands.open_dataset import OpenDataset, place_of
from trilake.lance.file.errors import NothingToWriteError, UnknownRowError, WrongTypeError
from trilake.lance.file.schema import LanceSchema as StoredSchema
from trilake.lance.file.view import View
from trilake.lance.progress import FragmentWriteProgress, NoopFragmentWriteProgress, Reporter
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.pylance.fragment_session import FragmentSession
from trilake.lance.pylance.operation import LanceOperation
from trilake.lance.pylance.scan_options import scan_options
from trilake.lance.pylance.scanner import LanceScanner, ScannerBuilder
from trilake.lance.pylance.transactions import Transaction
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.scan.projection import ColumnsLike, Selection
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.schema import LanceSchema
from trilake.lance.versions.fragment_metadata import DataFileInfo, FragmentMetadata
from trilake.lance.versions.manifest import DataFile, Fragment
from trilake.lance.versions.versions import list_versions
from trilake.runtime import SYSTEM_RUNTIME
from trilake.table import FilterLike

if TYPE_CHECKING:
    import pandas

__all__ = [
    "DataFileInfo",
    "FragmentMetadata",
    "FragmentSession",
    "FragmentWriteProgress",
    "LanceFragment",
    "NoopFragmentWriteProgress",
    "write_fragments",
]


def check_head(options: Mapping[str, Any]) -> None:
    """Refuse a second limit beside the number of rows.  Raises ``WrongTypeError``."""
    if options.get("limit") is not None:
        raise WrongTypeError("the number of rows and limit both say how many", help="leave limit out")


class LanceFragment(pa.dataset.Fragment):  # type: ignore[misc]
    """One fragment of a dataset at its version.  Raises ``InvalidArgumentError`` for an id that is not there."""

    def __init__(
        self, dataset: OpenDataset, fragment_id: int | None, *, fragment: FragmentReader | None = None
    ) -> None:
        self._ds = dataset
        if fragment is None:
            if fragment_id is None:
                raise InvalidArgumentError("either fragment or fragment_id must be given")
            fragment = dataset.snapshot.reader_of(fragment_id)
        if fragment is None:
            raise InvalidArgumentError(f"there is no fragment {fragment_id}", file=dataset.uri)
        self._fragment = fragment

    def __repr__(self) -> str:
        files = [f.path for f in self._fragment.fragment.files]
        return f"LanceFragment(id={self.fragment_id}, data_files={files}, deletion_file={self.deletion_file()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LanceFragment, (self._ds, self.fragment_id)

    def __getattr__(self, name: str) -> Any:
        raise not_in_format("LanceFragment", name)

    # --- making ------------------------------------------------------------------------------------------------------

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
        """Write rows into one new data file, which no version names until it is committed.

        Where the dataset exists and has these columns, their ids are its own.  Parameters are those of
        :func:`write_fragments`.
        """
        check_format(later, of="LanceFragment.create")
        options = WriteOptions(max_rows_per_file=2**31 - 1, max_rows_per_group=max_rows_per_group, nulls=nulls)
        number = 0 if fragment_id is None else count("fragment_id", fragment_id, other_type=WrongTypeError)
        reporter = Reporter(progress, number)
        fragments, _, _ = _create(dataset_uri, data, schema, options, reporter, storage_options, mode)
        if len(fragments) != 1:
            raise NothingToWriteError(f"the rows make {len(fragments)} fragments instead of one")
        return FragmentMetadata.of(replace(fragments[0], id=number))

    @staticmethod
    def create_from_file(
        filename: str | os.PathLike[str], schema: pa.Schema | OpenDataset, fragment_id: int
    ) -> FragmentMetadata:
        """The metadata of a data file that is there already, by its path below ``data``."""
        ids = StoredSchema.from_arrow(schema) if isinstance(schema, pa.Schema) else schema.snapshot.manifest.schema
        name = os.fspath(filename).replace(os.sep, "/").rpartition("data/")[2]
        return FragmentMetadata.of(Fragment(fragment_id, (DataFile(name, ids.field_ids),)))

    # --- what it is --------------------------------------------------------------------------------------------------

    @property
    def fragment_id(self) -> int:
        """The fragment's id."""
        return self._fragment.fragment.id

    @property
    def metadata(self) -> FragmentMetadata:
        """The entry of the fragment."""
        return FragmentMetadata.of(self._fragment.fragment)

    @property
    def num_deletions(self) -> int:
        """Number of deleted rows."""
        return self._fragment.num_deleted

    @property
    def physical_rows(self) -> int:
        """Number of rows, deleted ones included."""
        return self._fragment.physical_rows

    @property
    def schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._ds.schema

    @property
    def physical_schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._ds.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """True: Lance has no partitions."""
        return pc.scalar(True)

    def data_files(self) -> list[DataFileInfo]:
        """The data files."""
        return self.metadata.data_files()

    def deletion_file(self) -> str | None:
        """The deletion file, relative to the dataset, if there is one."""
        return self.metadata.deletion_file()

    # --- reading -----------------------------------------------------------------------------------------------------

    def count_rows(self, filter: FilterLike | None = None) -> int:
        """Number of rows that live and for which ``filter`` is true."""
        return self._fragment.num_rows if filter is None else self.scanner(filter=filter).count_rows()

    def scanner(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        **more: Any,
    ) -> LanceScanner:
        """A scanner over the rows of this fragment, whatever the dataset's ``default_scan_options`` say.

        Parameters are those of :meth:`LanceDataset.scanner`.
        """
        said = {**more, "columns": columns, "filter": filter, "limit": limit, "offset": offset, "fragments": [self]}
        return ScannerBuilder(self._ds).apply_defaults(said).to_scanner()

    def to_table(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        **more: Any,
    ) -> pa.Table:
        """The rows as a table; parameters are those of :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **more).to_table()

    def to_batches(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        **more: Any,
    ) -> Iterator[pa.RecordBatch]:
        """The rows as batches; parameters are those of :meth:`scanner`."""
        return self.scanner(columns, filter, limit, offset, **more).to_batches()

    def to_pandas(self, columns: ColumnsLike | None = None, **more: Any) -> pandas.DataFrame:
        """The rows as a frame of pandas; parameters are those of :meth:`scanner`, and then those of Arrow's tables."""
        return self.scanner(columns, **scan_options(more)).to_pandas(**more)

    def head(self, num_rows: int, **more: Any) -> pa.Table:
        """The first rows; further arguments are those of :meth:`scanner`, without a limit."""
        check_head(more)
        return self.to_table(**{**more, "limit": num_rows})

    def take(self, indices: npt.ArrayLike, columns: ColumnsLike | None = None) -> pa.Table:
        """The rows at some places among those that live, in the order asked for."""
        return self.open_session(columns).take(indices)

    def open_session(self, columns: ColumnsLike | None = None, with_row_address: bool | None = None) -> FragmentSession:
        """What takes rows of the same columns again and again, with ``_rowaddr`` where it is asked for."""
        addresses = with_row_address is not None and flag("with_row_address", with_row_address)
        return FragmentSession(
            self._ds.snapshot,
            self._fragment,
            Selection.of(self._ds.snapshot.view, columns, with_row_address=addresses),
        )

    def validate(self) -> None:
        """Check the fragment: that its files are there and say what the manifest says.

        Raises ``CorruptFileError``, ``CorruptLogError``, ``MissingFileError`` or ``DeletionVectorError``.
        """
        self._ds.snapshot.validate_fragment(self._fragment)

    # --- changing, without a commit ----------------------------------------------------------------------------------

    def delete(self, predicate: str) -> FragmentMetadata | None:
        """The fragment with the rows deleted that match; ``None`` where no row is left.

        The deletion file is written; a ``LanceOperation.Delete`` makes it count.
        """
        if predicate is None:
            raise WrongTypeError("delete got no condition", help='pass "true" to delete all rows')
        snapshot = self._ds.snapshot
        rows = snapshot.matching(condition_of(snapshot, predicate), self._fragment)
        if not len(rows):
            return self.metadata
        marked = mark(self._fragment, rows, read_version=snapshot.version, runtime=snapshot.runtime)
        return None if marked is None else FragmentMetadata.of(marked)

    def delete_rows(self, offsets: Iterable[int]) -> FragmentMetadata | None:
        """The fragment with the rows deleted at some offsets, deleted ones counted; ``None`` where no row is left.

        The deletion file is written; a ``LanceOperation.Delete`` makes it count.  Raises ``UnknownRowError``.
        """
        rows = np.unique(numbers(offsets if hasattr(offsets, "__len__") else list(offsets)))
        if len(rows) and (rows[0] < 0 or rows[-1] >= self.physical_rows):
            raise UnknownRowError(f"the fragment has {self.physical_rows} rows", fragment=self.fragment_id)
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
        """The fragment with more columns; parameters are those of :meth:`merge_columns`.

        The data file is written; a ``LanceOperation.Merge`` makes it count.  Ids of the new columns follow the highest
        that the dataset has, so that all fragments get the same.
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
        """:meth:`add_columns`, and the schema that ``LanceOperation.Merge`` needs with it.

        Parameters
        ----------
        value_func: makes record batches of new columns of those of ``columns``; or SQL expressions by name of the new
            column; or rows in the order of the fragment's.
        columns: that a function gets, ``_rowid`` among them; all by default.
        batch_size: rows that a function gets at most.
        reader_schema: of rows that come as an iterable.

        What the way that is asked for has no use for is refused.
        """
        given = {"columns": columns, "reader_schema": reader_schema, "batch_size": batch_size}
        if isinstance(value_func, Mapping):
            commands.check_use(given, ("batch_size",), "expressions")
            values, new_schema, names = commands.of_expressions(self._ds.schema, value_func)
            return self._widened(values, new_schema, names, nulls)
        if not callable(value_func):
            commands.check_use(given, ("reader_schema", "batch_size"), "rows")
            feed = commands.Feed(*stream(value_func, reader_schema))
            widened = self._widened(feed, feed.schema, self._ds.schema.names[:1], nulls)
            entry = widened[0].entry
            with discarded_on_failure(self._ds.snapshot.store, [replace(entry, files=entry.files[-1:])]):
                feed.check_end()
            return widened
        commands.check_use(given, ("columns", "batch_size"), "a function")
        return self._computed(value_func, columns, batch_size, nulls)

    def _computed(
        self,
        value_func: Callable[[pa.RecordBatch], pa.RecordBatch],
        columns: list[str] | None,
        batch_size: int | None,
        nulls: NullPolicy,
    ) -> tuple[FragmentMetadata, LanceSchema]:
        # The first result tells the new columns' types; it is kept, so that each batch is asked for once, unless this
        # one is longer than a row group.
        first = next((b for b in self.to_batches(columns, batch_size=batch_size)), None)
        if first is None:
            raise InvalidArgumentError("a fragment without rows gets no columns", fragment=self.fragment_id)
        first_result: list[pa.RecordBatch] = [value_func(first)]
        if not isinstance(first_result[0], pa.RecordBatch):
            raise InvalidArgumentError(f"value_func must return a RecordBatch, not a {type(first_result[0]).__name__}")

        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            known = first_result.pop() if first_result else None
            return known if known is not None and known.num_rows == batch.num_rows else value_func(batch)

        parts = values if batch_size is None else commands.in_batches(values, batch_size)
        return self._widened(parts, first_result[0].schema, columns, nulls)

    def _widened(
        self, values: commands.Values, new_schema: pa.Schema, names: Sequence[str] | None, nulls: NullPolicy
    ) -> tuple[FragmentMetadata, LanceSchema]:
        snapshot = self._ds.snapshot
        commands.check_new(snapshot.manifest.schema, new_schema.names)
        target = Target.new(new_schema, nulls=nulls, first_id=commands.next_field_id(snapshot.manifest))
        read = Selection.of(snapshot.view, names)

        def of_read(batch: pa.RecordBatch) -> pa.RecordBatch:
            return values(batch if read.projection is None else read.projection.project(batch))

        widened = commands.widen(self._fragment, snapshot, target, read.columns, of_read, with_row_id=read.with_row_id)
        return FragmentMetadata.of(widened), LanceSchema(snapshot.view.schema).with_columns(target.view.schema)

    def merge(
        self, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None
    ) -> tuple[FragmentMetadata, LanceSchema]:
        """The fragment with the columns of ``data_obj`` joined to it, and the schema for ``LanceOperation.Merge``."""
        values, new = joins.join_values(self._ds.snapshot, table(data_obj, schema), left_on, right_on)
        commands.check_new(self._ds.snapshot.manifest.schema, new.names)
        target = Target.new(new, first_id=commands.next_field_id(self._ds.snapshot.manifest))
        by_id = joins.is_id(self._ds.snapshot, left_on)
        read = self._ds.snapshot.view.columns([]) if by_id else self._ds.snapshot.view.columns([left_on])
        widened = commands.widen(self._fragment, self._ds.snapshot, target, read, values, with_row_id=by_id)
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
        """The fragment with other values in columns, and the ids of these; ``LanceOperation.Update`` needs both.

        Parameters
        ----------
        data_obj: the new values, with a column of keys; rows without one of the keys stay as they are.
        left_on, right_on: the keys, of the fragment and of ``data_obj``; by default row ids.
        schema: of rows that come as an iterable.
        with_offsets: whether the offsets of the rows that were found are returned, too, as a Roaring bitmap's bytes.

        Raises ``UnknownColumnError`` and ``SchemaMismatchError``.
        """
        flag("with_offsets", with_offsets)
        snapshot, new = self._ds.snapshot, table(data_obj, schema)
        done = update_columns(snapshot, self._fragment, new, left_on, right_on, nulls=self._ds.nulls)
        changed = FragmentMetadata.of(done.fragment), done.field_ids
        return (*changed, done.offsets.serialize()) if with_offsets else changed


def _create(
    uri: str | os.PathLike[str] | OpenDataset,
    data: Any,
    schema: pa.Schema | None,
    options: WriteOptions,
    progress: Reporter,
    storage_options: Mapping[str, str] | None,
    mode: str,
) -> tuple[list[Fragment], pa.Schema, int]:
    """The fragments that were written, the schema of their rows, and the newest version; 0 where there is none."""
    if mode not in ("create", "append", "overwrite"):
        raise InvalidArgumentError(f"mode is {mode!r}", help="it is create, append or overwrite")
    store, _ = place_of(uri, storage_options)
    rows_schema, batches = stream(data, schema)
    if not rows_schema.names:
        raise NothingToWriteError("the rows have no columns")
    target, version = Target.new(rows_schema, nulls=options.nulls), 0
    if list_versions(store).versions:
        manifest = Snapshot.open(store, SYSTEM_RUNTIME).manifest
        version = manifest.version
        # By the columns that users see: companions are the dataset's, whatever rows are written with.
        if mode == "append" and sorted(View(manifest.schema).schema.names) == sorted(target.view.schema.names):
            target = Target(manifest.schema, nulls=options.nulls)
    return write_files(store, batches, target, options, SYSTEM_RUNTIME, progress), rows_schema, version


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
    mode: str = "append",
    max_rows_per_file: int = 1 << 20,
    max_rows_per_group: int = 1024,
    max_bytes_per_file: int = 90 << 30,
    progress: Any = None,
    nulls: NullPolicy = "error",
    storage_options: Mapping[str, str] | None = None,
    **later: Any,
) -> list[FragmentMetadata] | Transaction:
    """Write rows into new data files, which no version names until they are committed.

    Parameters
    ----------
    data: see :func:`trilake.lance.commands.input_rows.stream`.
    dataset_uri: the dataset, which need not exist, or may be open.
    schema: of the rows.
    return_transaction: whether the result is a transaction to commit: an append, or an overwrite where ``mode`` says it
        or there is no dataset yet.
    mode: with ``"append"``, the columns are those of the dataset where it has all of them; with ``"create"`` and
        ``"overwrite"``, they are new ones, which only an overwrite can commit.
    max_rows_per_file, max_rows_per_group, max_bytes_per_file, nulls: see
        :class:`~trilake.lance.commands.fragment_writer.WriteOptions`.
    progress: an object with ``begin(fragment)`` and ``complete(fragment)``.
    later: see :func:`trilake.lance.pylance.functions.write_dataset`.
    """
    check_format(later, of="write_fragments")
    flag("return_transaction", return_transaction)
    options = WriteOptions(max_rows_per_file, max_rows_per_group, max_bytes_per_file, nulls)
    written = _create(dataset_uri, data, schema, options, Reporter(progress), storage_options, mode)
    fragments, rows_schema, version = [FragmentMetadata.of(f) for f in written[0]], *written[1:]
    if not return_transaction:
        return fragments
    if mode == "append" and version:
        return Transaction(version, LanceOperation.Append(fragments))
    return Transaction(version, LanceOperation.Overwrite(rows_schema, fragments))
