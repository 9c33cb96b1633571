"""``ChangedDataset``: change rows, columns, metadata and configuration of a dataset; each call is one commit."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from trilake.errors import InvalidArgumentError
from trilake.lance.auto_cleanup import after_commit
from trilake.lance.commands import columns as column_changes
from trilake.lance.commands import delete, input_rows, joins, models, update, write
from trilake.lance.commands.format_options import check_format, format_of, properties_of
from trilake.lance.commands.fragment_writer import WRITE_OPTIONS, WriteOptions
from trilake.lance.commands.open_dataset import place_of
from trilake.lance.commands.replan import Retries
from trilake.lance.commands.schema_metadata import (
    update_config,
    update_field_metadata,
    update_metadata,
    update_schema_metadata,
)
from trilake.lance.commit import runtime_with
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance.indexed_dataset import IndexedDataset
from trilake.lance.pylance.merge_builder import MergeBuilder
from trilake.lance.pylance.operation import DatasetBasePath, base_paths
from trilake.lance.pylance.udf import BatchUDF
from trilake.lance.versions import transaction
from trilake.lance.versions.operations import UpdateBases
from trilake.table.table import FilterLike


class ChangedDataset(IndexedDataset):
    """Insert, update, delete and merge rows; add, alter and drop columns; set metadata."""

    # --- rows --------------------------------------------------------------------------------------------------------

    def insert(self, data: Any, *, mode: write.Mode = "append", **options: Any) -> None:
        """Append rows, or replace all rows with ``mode="overwrite"``.

        Parameters
        ----------
        data: see :func:`trilake.lance.commands.input_rows.stream`; ``schema`` may be one of the options.
        options: those of :class:`~trilake.lance.commands.fragment_writer.WriteOptions` (``nulls`` defaults to that of
            this object) and of :func:`trilake.lance.pylance.functions.write_dataset`.

        Raises ``SchemaMismatchError``, ``ConflictError`` or ``WriteFailedError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-insert")
        >>> made.insert(pa.table({"a": [4]}))
        >>> made.count_rows()
        4
        """
        schema, batches = input_rows.stream(data, options.pop("schema", None))
        input_rows.check_metadata(schema)
        write_options = WriteOptions(**{"nulls": self.nulls, "partial": True, **_layout(options, of="insert")})
        self.moved(write.write(self.snapshot.store, schema, batches, mode, self.snapshot.runtime, write_options))
        after_commit(self.snapshot)

    @classmethod
    def from_pydantic_model(
        cls,
        model_class: Any,
        data: list[Any],
        uri: str | os.PathLike[str] | None = None,
        mode: Any = "create",
        **options: Any,
    ) -> Self:
        """Write instances of a Pydantic model, whose annotations define the columns.

        Parameters
        ----------
        model_class: the Pydantic model.
        data: instances of the model.
        uri: path or URI; by default the name of the class in snake case.
        mode, options: those of :meth:`insert`, and ``storage_options``.

        Raises ``WrongTypeError`` for instances of another class, and ``InvalidArgumentError`` for an empty list.

        >>> from pydantic import BaseModel
        >>> from trilake.lance import LanceDataset
        >>> class Point(BaseModel):
        ...     x: int
        ...     name: str | None = None
        >>> made = LanceDataset.from_pydantic_model(Point, [Point(x=1)], "memory://doc-lance-model")
        >>> made.to_table().to_pylist(), made.schema.field("x").nullable
        ([{'x': 1, 'name': None}], False)
        """
        if not models.is_model(model_class):
            raise WrongTypeError(f"`model_class` must be a Pydantic BaseModel subclass, got {model_class!r}")
        rows = models.table_of(model_class, data)
        if not len(rows):
            raise InvalidArgumentError(
                "data must have at least one row, got an empty list", help="pass model instances"
            )
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", model_class.__name__).lower()
        store, where = place_of(words if uri is None else uri, options.pop("storage_options", None))
        layout = _layout(options, of="from_pydantic_model")
        write_options = WriteOptions(**layout)
        return cls.of(
            write.write(store, rows.schema, rows.to_batches(), mode, runtime_with(None), write_options), where
        )

    def delete(
        self,
        predicate: FilterLike,
        *,
        conflict_retries: int | None = None,
        retry_timeout: dt.timedelta | None = None,
    ) -> dict[str, int]:
        """Delete the rows that match a condition, and return their number as ``num_deleted_rows``.

        Parameters
        ----------
        predicate: SQL or a pyarrow expression.
        conflict_retries, retry_timeout: how often (by default 10 times) and how long to retry if concurrent commits
            changed the same rows.

        Raises ``WrongTypeError`` without a condition, ``FilterError`` for an invalid one, and ``ConflictError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-delete")
        >>> made.delete("a > 1")
        {'num_deleted_rows': 2}
        """
        retries = Retries.of(conflict_retries, retry_timeout)
        if predicate is None:
            raise WrongTypeError("delete needs a predicate, got None", help='pass "true" to delete all rows')
        done = delete.delete_rows(self.snapshot, predicate, retries)
        self.moved(done.snapshot)
        return {"num_deleted_rows": done.num_deleted_rows}

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

    def update(
        self,
        updates: Mapping[str, str],
        where: FilterLike | None = None,
        *,
        conflict_retries: int | None = None,
        retry_timeout: dt.timedelta | None = None,
        **later: Any,
    ) -> dict[str, int]:
        """Update the rows that match a condition, and return their number as ``num_rows_updated``.

        Parameters
        ----------
        updates: SQL expressions by column.
        where: SQL or a pyarrow expression; by default all rows.
        conflict_retries, retry_timeout: see :meth:`delete`.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``InvalidArgumentError`` for an unknown column, ``ExpressionError``, ``FilterError`` or
        ``ConflictError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-update")
        >>> made.update({"a": "a * 10"}, where="a > 1")
        {'num_rows_updated': 2}
        >>> sorted(made.to_table()["a"].to_pylist())
        [1, 20, 30]
        """
        check_format(later, of="update")
        retries = Retries.of(conflict_retries, retry_timeout)
        done = update.update(self.snapshot, updates, where, options=WriteOptions(nulls=self.nulls), retries=retries)
        self.moved(done.snapshot)
        return {"num_rows_updated": done.num_rows_updated}

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeBuilder:
        """Return a builder that matches rows of a source by the key columns ``on`` and says what to do with them.

        By default, ``on`` is the primary key: the columns with ``lance-schema:unenforced-primary-key`` in their
        metadata.  Raises ``InvalidArgumentError`` if there is none.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-merge-insert")
        >>> news = pa.table({"id": [3, 4], "s": ["new", "first"]})
        >>> done = made.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(news)
        >>> done["num_updated_rows"], done["num_inserted_rows"], made.count_rows()
        (1, 1, 4)
        """
        if on is None:
            keys = [f for f in self.snapshot.view.schema.fields if f.is_key]
            on = [f.name for f in sorted(keys, key=lambda f: f.primary_key[1])]
            if not on:
                raise InvalidArgumentError(
                    "the dataset has no primary key", help="pass the key columns: merge_insert('id')"
                )
        return MergeBuilder(self, on)

    # --- columns -----------------------------------------------------------------------------------------------------

    def merge(self, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None) -> None:
        """Join the columns of other data by key; rows without a match get nulls.

        Parameters
        ----------
        data_obj: the data to join.
        left_on, right_on: key columns of the dataset and of the data; ``right_on`` defaults to ``left_on``.
        schema: schema of data passed as an iterable.

        Raises ``UnknownColumnError``, and ``SchemaMismatchError`` if the data cannot be joined.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-merge")
        >>> made.merge(pa.table({"id": [1, 2, 3], "n": [10, 20, 30]}), "id")
        >>> made.schema.names, made.to_table(["n"], "id = 2").to_pylist()
        (['id', 's', 'n'], [{'n': 20}])
        """
        data = input_rows.table(data_obj, schema)
        self.moved(joins.merge(self.snapshot, data, left_on, right_on, nulls=self.nulls))

    def add_columns(
        self,
        transforms: Any,
        read_columns: list[str] | None = None,
        reader_schema: pa.Schema | None = None,
        batch_size: int | None = None,
    ) -> None:
        """Add columns.

        Parameters
        ----------
        transforms: SQL expressions by column name; or a function of record batches (its output schema is the attribute
            ``output_schema`` or that of its first result); or rows in dataset order; or a field, fields or schema of
            null columns, for which no files are written.
        read_columns: columns to pass to the function, by default all.
        reader_schema: schema of rows passed as an iterable.
        batch_size: maximum number of rows per call of the function, by default those of a row group.

        Raises ``InvalidArgumentError`` for options that do not apply to ``transforms``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-add-columns")
        >>> made.add_columns({"double": "a * 2"})
        >>> made.to_table()["double"].to_pylist()
        [2, 4, 6]
        """
        self.moved(
            column_changes.add(
                self.snapshot, transforms, read_columns, reader_schema, batch_size=batch_size, nulls=self.nulls
            )
        )
        if isinstance(transforms, BatchUDF):
            transforms.forget()

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop ``columns`` or nested fields; writes only the manifest.  Raises ``UnknownColumnError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-drop-columns")
        >>> made.drop_columns(["s"])
        >>> made.schema.names
        ['id']
        """
        self.moved(column_changes.drop_columns(self.snapshot, columns))

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Rename (``name``), cast (``data_type``) or change the nullability (``nullable``) of the columns at ``path``.

        ``alterations`` are mappings with these keys.  Raises ``UnknownColumnError`` and ``InvalidArgumentError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-alter-columns")
        >>> made.alter_columns({"path": "a", "name": "number", "data_type": pa.int32()})
        >>> made.schema
        number: int32
        """
        self.moved(column_changes.alter_columns(self.snapshot, alterations, nulls=self.nulls))

    # --- metadata and configuration -----------------------------------------------------------------------------------

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """Return the base paths of this version by id: other locations for its files.

        >>> import pyarrow as pa
        >>> from trilake.lance import DatasetBasePath, write_dataset
        >>> bases = [DatasetBasePath("memory://doc-lance-base", name="hot")]
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-bases", initial_bases=bases)
        >>> made.base_paths()[1].name
        'hot'
        """
        return {path.id: DatasetBasePath.of(path) for path in self.snapshot.manifest.base_paths}

    def add_bases(
        self, new_bases: Iterable[DatasetBasePath], transaction_properties: Mapping[str, str] | None = None
    ) -> Self:
        """Register base paths, to which ``target_bases`` of later writes can refer; returns this object.

        Parameters
        ----------
        new_bases: the base paths.
        transaction_properties: properties of the commit.

        Raises ``InvalidArgumentError`` for an id, path or name that another base path has, and ``ConflictError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import DatasetBasePath, write_dataset
        >>> made = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-add-bases")
        >>> made.add_bases([DatasetBasePath("memory://doc-lance-new-base", name="cold")]).insert(
        ...     pa.table({"a": [2]}), target_bases=["cold"]
        ... )
        >>> [file.base_id for fragment in made.get_fragments() for file in fragment.data_files()]
        [None, 1]
        """
        manifest, runtime = self.snapshot.manifest, self.snapshot.runtime
        manifest.check_writable(self.snapshot.store.uri)
        bases = base_paths(new_bases, manifest.base_paths)
        if bases:
            properties = properties_of({"transaction_properties": transaction_properties})
            begun = transaction.begin(self.snapshot.version, UpdateBases(bases), runtime, properties)
            self.moved(self.snapshot.at(transaction.commit(self.snapshot.store, begun, runtime, base=manifest)))
        return self

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


def _layout(options: dict[str, Any], *, of: str) -> dict[str, Any]:
    """Translate option names to those of ``WriteOptions``; raises for unknown ones."""
    layout = {name: options.pop(name) for name in WRITE_OPTIONS if name in options}
    layout |= {**format_of(options), "properties": properties_of(options)}
    check_format(options, of=of)
    return layout
