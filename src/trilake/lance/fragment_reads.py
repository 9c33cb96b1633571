"""``ReadFragment``: read one fragment of an open dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from trilake.common.arguments import flag
from trilake.errors import InvalidArgumentError
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.pylance.fragment_session import FragmentSession
from trilake.lance.pylance.scan_options import scan_options
from trilake.lance.pylance.scanner import LanceScanner, ScannerBuilder
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.scan.projection import ColumnsLike, Selection
from trilake.lance.versions.fragment_metadata import DataFile, FragmentMetadata
from trilake.table.table import FilterLike

if TYPE_CHECKING:
    import pandas


def check_head(options: Mapping[str, Any]) -> None:
    """Raise ``WrongTypeError`` for a limit in addition to the number of rows."""
    if options.get("limit") is not None:
        raise WrongTypeError("num_rows and limit cannot be used together", help="leave limit out")


class ReadFragment(pa.dataset.Fragment):  # type: ignore[misc]
    """The read methods of :class:`~trilake.lance.fragment.LanceFragment`."""

    def __init__(
        self, dataset: OpenDataset, fragment_id: int | None, *, fragment: FragmentReader | None = None
    ) -> None:
        self._ds = dataset
        if fragment is None:
            if fragment_id is None:
                raise InvalidArgumentError("pass either fragment or fragment_id")
            fragment = dataset.snapshot.reader_of(fragment_id)
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

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true: Lance has no partitions."""
        return pc.scalar(True)

    def data_files(self) -> list[DataFile]:
        """Return the data files.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-data-files")
        >>> fragment = made.get_fragments()[0]
        >>> len(fragment.data_files())
        1
        """
        return self.metadata.files

    def deletion_file(self) -> str | None:
        """Return the path of the deletion file relative to the dataset, or ``None``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-deletion-file")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.deletion_file() is None
        True
        >>> _ = made.delete("a = 2")
        >>> made.get_fragments()[0].deletion_file().partition("/")[0]
        '_deletions'
        """
        entry = self.metadata.entry.deletion_file
        return None if entry is None else entry.key(self.fragment_id)

    # --- reading -----------------------------------------------------------------------------------------------------

    def count_rows(self, filter: FilterLike | None = None) -> int:
        """Count the rows that match ``filter``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-count")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.count_rows(), fragment.count_rows("a > 1")
        (3, 2)
        """
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

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-scanner")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.scanner(filter="a > 1", limit=1).to_table()["a"].to_pylist()
        [2]
        """
        options = {**more, "columns": columns, "filter": filter, "limit": limit, "offset": offset, "fragments": [self]}
        return ScannerBuilder(self._ds).apply_defaults(options).to_scanner()

    def to_table(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        **more: Any,
    ) -> pa.Table:
        """Read the rows into a table.  Parameters and errors are those of :meth:`scanner`, also for ``more``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-to-table")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.to_table(["a"], filter="a > 1")["a"].to_pylist()
        [2, 3]
        """
        return self.scanner(columns, filter, limit, offset, **more).to_table()

    def to_batches(
        self,
        columns: ColumnsLike | None = None,
        filter: FilterLike | None = None,
        limit: int | None = None,
        offset: int | None = None,
        **more: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows as batches.  Parameters and errors are those of :meth:`scanner`, also for ``more``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-to-batches")
        >>> fragment = made.get_fragments()[0]
        >>> [batch.num_rows for batch in fragment.to_batches(batch_size=2)]
        [2, 1]
        """
        return self.scanner(columns, filter, limit, offset, **more).to_batches()

    def to_pandas(self, columns: ColumnsLike | None = None, **more: Any) -> pandas.DataFrame:
        """Read the rows into a pandas DataFrame.

        ``columns`` and ``more`` are parameters of :meth:`scanner` and of ``pyarrow.Table.to_pandas``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-to-pandas")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.to_pandas()["a"].tolist()
        [1, 2, 3]
        """
        return self.scanner(columns, **scan_options(more)).to_pandas(**more)

    def head(self, num_rows: int, **more: Any) -> pa.Table:
        """Return the first ``num_rows`` rows; ``more`` are parameters of :meth:`scanner`.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-head")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.head(1)["a"].to_pylist()
        [1]
        """
        check_head(more)
        return self.to_table(**{**more, "limit": num_rows})

    def take(self, indices: npt.ArrayLike, columns: ColumnsLike | None = None) -> pa.Table:
        """Return the rows at the positions ``indices``, in that order, with ``columns``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-take")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.take([2, 0])["a"].to_pylist()
        [3, 1]
        """
        return self.open_session(columns).take(indices)

    def open_session(self, columns: ColumnsLike | None = None, with_row_address: bool | None = None) -> FragmentSession:
        """Open a session for repeated reads of the same ``columns``.

        ``with_row_address`` adds a column ``_rowaddr``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-session")
        >>> fragment = made.get_fragments()[0]
        >>> session = fragment.open_session(["a"])
        >>> [session.take([n])["a"][0].as_py() for n in (2, 1)]
        [3, 2]
        """
        addresses = with_row_address is not None and flag("with_row_address", with_row_address)
        return FragmentSession(
            self._ds.snapshot,
            self._fragment,
            Selection.of(self._ds.snapshot.view, columns, with_row_address=addresses),
        )

    def validate(self) -> None:
        """Check that the files of the fragment exist and match the manifest.

        Raises ``CorruptFileError``, ``CorruptLogError``, ``MissingFileError`` or ``DeletionVectorError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-validate")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.validate()
        """
        self._ds.snapshot.validate_fragment(self._fragment)
