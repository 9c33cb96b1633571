"""``ReadFragment``: one fragment of an open dataset, as it is read."""

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
    """Refuse a second limit beside the number of rows.  Raises ``WrongTypeError``."""
    if options.get("limit") is not None:
        raise WrongTypeError("the number of rows and limit both say how many", help="leave limit out")


class ReadFragment(pa.dataset.Fragment):  # type: ignore[misc]
    """What is read of a fragment; :class:`~trilake.lance.fragment.LanceFragment` changes it, too."""

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
        return type(self), (self._ds, self.fragment_id)

    def __getattr__(self, name: str) -> Any:
        raise not_in_format("LanceFragment", name)

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

    def data_files(self) -> list[DataFile]:
        """The data files.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-data-files")
        >>> fragment = made.get_fragments()[0]
        >>> len(fragment.data_files())
        1
        """
        return self.metadata.data_files()

    def deletion_file(self) -> str | None:
        """The deletion file, relative to the dataset, if there is one.

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
        """Number of rows that live and for which ``filter`` is true.

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
        """A scanner over the rows of this fragment, whatever the dataset's ``default_scan_options`` say.

        Parameters are those of :meth:`trilake.lance.LanceDataset.scanner`, ``more`` among them; it raises as that does.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-scanner")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.scanner(filter="a > 1", limit=1).to_table()["a"].to_pylist()
        [2]
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
        """The rows as a table.  Parameters are those of :meth:`scanner`, ``more`` among them; it raises as that does.

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
        """The rows as batches.  Parameters are those of :meth:`scanner`, ``more`` among them; it raises as that does.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-to-batches")
        >>> fragment = made.get_fragments()[0]
        >>> [batch.num_rows for batch in fragment.to_batches(batch_size=2)]
        [2, 1]
        """
        return self.scanner(columns, filter, limit, offset, **more).to_batches()

    def to_pandas(self, columns: ColumnsLike | None = None, **more: Any) -> pandas.DataFrame:
        """The rows as a frame of pandas.

        ``columns`` and ``more`` are parameters of :meth:`scanner`, and then of Arrow's ``Table.to_pandas``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-to-pandas")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.to_pandas()["a"].tolist()
        [1, 2, 3]
        """
        return self.scanner(columns, **scan_options(more)).to_pandas(**more)

    def head(self, num_rows: int, **more: Any) -> pa.Table:
        """The first ``num_rows`` rows; ``more`` are arguments of :meth:`scanner`, without a limit.

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
        """The rows at some places, ``indices``, among those that live, in the order asked for; with all ``columns`` or
        some.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-take")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.take([2, 0])["a"].to_pylist()
        [3, 1]
        """
        return self.open_session(columns).take(indices)

    def open_session(self, columns: ColumnsLike | None = None, with_row_address: bool | None = None) -> FragmentSession:
        """What takes rows of the same ``columns`` again and again.

        ``with_row_address`` asks for a column ``_rowaddr``, too.

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
        """Check the fragment: that its files are there and say what the manifest says.

        Raises ``CorruptFileError``, ``CorruptLogError``, ``MissingFileError`` or ``DeletionVectorError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-fragment-validate")
        >>> fragment = made.get_fragments()[0]
        >>> fragment.validate()
        """
        self._ds.snapshot.validate_fragment(self._fragment)
