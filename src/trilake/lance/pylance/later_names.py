"""``LaterNames``: methods of newer pylance releases for rows, statistics, metadata and configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance import cleanup
from trilake.lance.commands import delete
from trilake.lance.commands.schema_metadata import (
    update_config,
    update_field_metadata,
    update_metadata,
    update_schema_metadata,
)
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance import transactions
from trilake.lance.pylance.beyond import not_in_format
from trilake.lance.pylance.indexed_dataset import IndexedDataset
from trilake.lance.pylance.scan_options import scan_options
from trilake.lance.pylance.transactions import Transaction
from trilake.lance.scan.projection import ColumnsLike
from trilake.lance.schema import LanceSchema
from trilake.lance.util import local_time
from trilake.storage import open_store

if TYPE_CHECKING:
    import pandas


class LaterNames(IndexedDataset):
    """A dataset with short methods for common operations."""

    def to_pandas(self, columns: ColumnsLike | None = None, **more: Any) -> pandas.DataFrame:
        """Read the rows into a pandas frame.

        ``columns`` and ``more`` are parameters of :meth:`scanner` and of ``pyarrow.Table.to_pandas``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-to-pandas")
        >>> made.to_pandas(filter="a > 1")["a"].tolist()
        [2, 3]
        """
        return self.scanner(columns, **scan_options(more)).to_pandas(**more)

    def slice(self, start: int, end: int, columns: ColumnsLike | None = None) -> pa.Table:
        """Return the rows at positions ``start`` (inclusive) to ``end`` (exclusive), with ``columns``.

        Raises ``InvalidArgumentError`` if the range is out of bounds.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-slice")
        >>> made.slice(1, 3)["a"].to_pylist()
        [2, 3]
        """
        total = self.count_rows()
        if not 0 <= start <= end <= total:
            raise InvalidArgumentError(
                f"rows {start} to {end} are out of range: the dataset has {total} rows", file=self._uri
            )
        return self.to_table(columns, limit=end - start, offset=start)

    def fragment_ids(self) -> set[int]:
        """Return the ids of all fragments.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-fragment-ids")
        >>> made.fragment_ids()
        {0}
        """
        return {reader.fragment.id for reader in self.snapshot.readers}

    def get_version(self) -> dict[str, Any]:
        """Describe this version, as in :meth:`versions`.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-get-version")
        >>> made.get_version()["version"]
        1
        """
        manifest = self.snapshot.manifest
        return {"version": manifest.version, "timestamp": local_time(manifest.timestamp_ns), "metadata": {}}

    @property
    def max_field_id(self) -> int:
        """Highest field id; -1 without columns."""
        return self.snapshot.manifest.schema.max_field_id

    @property
    def lance_schema(self) -> LanceSchema:
        """Schema with field ids."""
        return LanceSchema(self.snapshot.view.schema)

    @property
    def data_storage_version(self) -> str:
        """File format version of the dataset."""
        return str(self.snapshot.manifest.storage_version)

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they are moved."""
        return self.snapshot.manifest.has_stable_row_ids

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created ``version``; ``None`` if its file is gone or its operation unknown.

        Raises ``VersionNotFoundError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-read-transaction")
        >>> _ = made.delete("a = 2")
        >>> type(made.read_transaction(2).operation).__name__
        'Delete'
        """
        return transactions.read(self.snapshot, count("version", version, least=1, other_type=WrongTypeError))

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return up to ``recent_transactions`` transactions up to this version, newest first.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-get-transactions")
        >>> _ = made.delete("a = 2")
        >>> [type(t.operation).__name__ for t in made.get_transactions()]
        ['Delete', 'Overwrite']
        """
        limit = count("recent_transactions", recent_transactions, other_type=WrongTypeError)
        return transactions.recent(self.snapshot, limit)

    @staticmethod
    def drop(
        base_uri: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        ignore_not_found: bool | None = None,
    ) -> None:
        """Delete a dataset with all its files; other files below its path are kept.

        Parameters
        ----------
        base_uri: path or URI of the dataset.
        storage_options: options of the object store.
        ignore_not_found: whether to ignore a missing dataset.

        Raises ``TableNotFoundError``, also for a folder with other files, and ``CorruptLogError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import LanceDataset, write_dataset
        >>> _ = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-drop")
        >>> LanceDataset.drop("memory://doc-lance-drop")
        >>> LanceDataset.drop("memory://doc-lance-drop", ignore_not_found=True)
        """
        ignored = ignore_not_found is not None and flag("ignore_not_found", ignore_not_found)
        store = open_store(base_uri, dict(storage_options or {}))
        if not ignored or next(iter(store.list()), None) is not None:
            cleanup.drop(store)

    def truncate_table(self) -> None:
        """Delete all rows.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-truncate")
        >>> made.truncate_table()
        >>> made.count_rows(), made.version
        (0, 2)
        """
        self.moved(delete.delete(self.snapshot, "true"))

    def config(self) -> dict[str, str]:
        """Return the configuration of the table.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-config")
        >>> made.update_config({"lance.auto_cleanup.interval": "20"})
        {'lance.auto_cleanup.interval': '20'}
        """
        return dict(self.snapshot.manifest.config)

    def update_config(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the configuration with ``values``; ``None`` removes a key, and ``replace`` removes all other keys.

        Returns the new configuration.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-update-config")
        >>> made.update_config({"x": "1"})
        {'x': '1'}
        """
        self.moved(update_config(self.snapshot, values, replace_all=replace))
        return self.config()

    def delete_config_keys(self, keys: Iterable[str]) -> None:
        """Remove ``keys`` from the configuration.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-config-keys")
        >>> _ = made.update_config({"x": "1"})
        >>> made.delete_config_keys(["x"])
        >>> made.config()
        {}
        """
        self.update_config(dict.fromkeys(keys))

    @property
    def metadata(self) -> dict[str, str]:
        """Return the metadata of the table."""
        return dict(self.snapshot.manifest.table_metadata)

    def update_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the table metadata with ``values``; ``None`` removes a key, and ``replace`` removes all other keys.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-table-metadata")
        >>> made.update_metadata({"owner": "sales"}), made.metadata
        ({'owner': 'sales'}, {'owner': 'sales'})
        """
        self.moved(update_metadata(self.snapshot, values, replace_all=replace))
        return self.metadata

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Return the metadata of the schema."""
        metadata = self.snapshot.manifest.schema.metadata
        return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in metadata.items()}

    def update_schema_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the schema metadata with ``values``; ``None`` removes a key, and ``replace`` removes all other keys.

        Returns the new metadata.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-metadata", mode="overwrite")
        >>> made.update_schema_metadata({"owner": "sales"}), made.schema.metadata
        ({'owner': 'sales'}, {b'owner': b'sales'})
        """
        self.moved(update_schema_metadata(self.snapshot, values, replace_all=replace))
        return self.schema_metadata

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Replace the schema metadata with ``new_metadata``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-replace-metadata")
        >>> made.replace_schema_metadata({"owner": "sales"})
        >>> made.schema_metadata
        {'owner': 'sales'}
        """
        self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self, field_updates: Mapping[str, Mapping[str, str | None]], *, replace: bool = False
    ) -> None:
        """Update the metadata of columns or nested fields.

        ``field_updates`` maps column names to metadata; ``None`` removes a key, and ``replace`` removes all other keys.
        Raises ``UnknownColumnError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-fields", mode="overwrite")
        >>> made.update_field_metadata({"a": {"unit": "m"}})
        >>> made.schema.field("a").metadata
        {b'unit': b'm'}
        """
        self.moved(update_field_metadata(self.snapshot, field_updates, replace_all=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Replace the metadata of the column ``field_name`` with ``new_metadata``.

        Raises ``UnknownColumnError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-replace-field")
        >>> made.replace_field_metadata("a", {"unit": "m"})
        >>> made.schema.field("a").metadata
        {b'unit': b'm'}
        """
        self.update_field_metadata({field_name: new_metadata}, replace=True)

    def __getattr__(self, name: str) -> Any:
        raise not_in_format("LanceDataset", name)
