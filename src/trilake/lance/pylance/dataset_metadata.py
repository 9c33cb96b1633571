"""``DatasetMetadata``: the configuration, metadata and base paths of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trilake.lance.commands.format_options import properties_of
from trilake.lance.commands.schema_metadata import Maps, update_field_metadata, update_map
from trilake.lance.pylance.dataset_part import D, DatasetPart
from trilake.lance.pylance.operation import DatasetBasePath, base_paths
from trilake.lance.versions.operations import UpdateBases


class DatasetMetadata(DatasetPart[D]):
    """The configuration and metadata of a dataset: each update is one commit."""

    def config(self) -> dict[str, str]:
        """Return the configuration of the table."""
        return dict(self._dataset.snapshot.manifest.config)

    def of_table(self) -> dict[str, str]:
        """Return the metadata of the table."""
        return dict(self._dataset.snapshot.manifest.table_metadata)

    def of_schema(self) -> dict[str, str]:
        """Return the metadata of the schema."""
        metadata = self._dataset.snapshot.manifest.schema.metadata
        return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in metadata.items()}

    def update_config(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the configuration with ``values``; ``None`` removes a key, and ``replace`` removes all other keys.

        Returns the new configuration.
        """
        self._update("config", values, replace)
        return self.config()

    def _update(self, name: Maps, values: Mapping[str, str | None], replace: bool) -> None:
        self._dataset.moved(update_map(self._dataset.snapshot, name, values, replace_all=replace))

    def delete_config_keys(self, keys: Iterable[str]) -> None:
        """Remove ``keys`` from the configuration."""
        self.update_config(dict.fromkeys(keys))

    def update_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the table metadata with ``values``; ``None`` removes a key, and ``replace`` removes all other keys."""
        self._update("table_metadata", values, replace)
        return self.of_table()

    def update_schema_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Update the schema metadata with ``values``; ``None`` removes a key, and ``replace`` removes all other keys.

        Returns the new metadata.
        """
        self._update("schema_metadata", values, replace)
        return self.of_schema()

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Replace the schema metadata with ``new_metadata``."""
        self.update_schema_metadata(new_metadata, replace=True)

    def update_field_metadata(
        self, field_updates: Mapping[str, Mapping[str, str | None]], *, replace: bool = False
    ) -> None:
        """Update the metadata of columns or nested fields.

        ``field_updates`` maps column names to metadata; ``None`` removes a key, and ``replace`` removes all other keys.
        Raises ``UnknownColumnError``.
        """
        self._dataset.moved(update_field_metadata(self._dataset.snapshot, field_updates, replace_all=replace))

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Replace the metadata of the column ``field_name`` with ``new_metadata``.  Raises ``UnknownColumnError``."""
        self.update_field_metadata({field_name: new_metadata}, replace=True)

    # --- base paths --------------------------------------------------------------------------------------------------

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """Return the base paths of this version by id: other locations for its files.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> bases = [DatasetBasePath("memory://doc-lance-base", name="hot")]
        >>> ds = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-bases", initial_bases=bases)
        >>> ds.base_paths()[1].name
        'hot'
        """
        return {path.id: DatasetBasePath.of(path) for path in self._dataset.snapshot.manifest.base_paths}

    def add_bases(
        self, new_bases: Iterable[DatasetBasePath], transaction_properties: Mapping[str, str] | None = None
    ) -> D:
        """Register base paths, to which ``target_bases`` of later writes can refer; returns this object.

        Parameters
        ----------
        new_bases: the base paths.
        transaction_properties: properties of the commit.

        Raises ``InvalidArgumentError`` for an id, path or name that another base path has, and ``ConflictError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-add-bases")
        >>> ds.add_bases([DatasetBasePath("memory://doc-lance-new-base", name="cold")]).insert(
        ...     pa.table({"a": [2]}), target_bases=["cold"]
        ... )
        >>> [file.base_id for fragment in ds.get_fragments() for file in fragment.data_files()]
        [None, 1]
        """
        snapshot = self._dataset.snapshot
        snapshot.manifest.check_writable(snapshot.store.uri)
        bases = base_paths(new_bases, snapshot.manifest.base_paths)
        if bases:
            properties = properties_of({"transaction_properties": transaction_properties})
            self._dataset.moved(snapshot.commit(UpdateBases(bases), properties=properties))
        return self._dataset
