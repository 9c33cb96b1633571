"""``DatasetChanges``: change the rows and columns of a dataset, each call as one commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError
from trilake.lance.cleanup import after_commit
from trilake.lance.commands import columns as column_changes
from trilake.lance.commands import delete, input_rows, update
from trilake.lance.commands.format_options import check_format, format_of, properties_of
from trilake.lance.commands.fragment_writer import WRITE_OPTIONS, Reporter, WriteOptions
from trilake.lance.commands.replan import Retries
from trilake.lance.commands.write import Mode, write
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.pylance.dataset_part import D, DatasetPart
from trilake.lance.pylance.merge_builder import MergeInsertBuilder
from trilake.lance.scan.parse_sql import PylanceSql
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.udf import BatchUDF
from trilake.storage.base import Store
from trilake.table.table import FilterLike


class DatasetChanges(DatasetPart[D]):
    """Changes of the rows and columns of a dataset, which move it to the new version."""

    # --- rows --------------------------------------------------------------------------------------------------------

    def insert(self, /, data: Any, *, mode: Mode = "append", **options: Any) -> None:
        """Append rows, or replace all rows with ``mode="overwrite"``.

        Parameters
        ----------
        data: see :func:`trilake.lance.commands.input_rows.stream`; ``schema`` may be one of the options.
        options: those of :class:`~trilake.lance.commands.fragment_writer.WriteOptions` (``nulls`` defaults to that of
            this object) and of :func:`~trilake.lance.pylance.lance_dataset.write_dataset`.

        Raises ``SchemaMismatchError``, ``ConflictError`` or ``WriteFailedError``.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-insert")
        >>> ds.insert(pa.table({"a": [4]}))
        >>> ds.count_rows()
        4
        """
        dataset, schema = self._dataset, options.pop("schema", None)
        layout = {name: options.pop(name) for name in WRITE_OPTIONS if name in options}
        layout |= {**format_of(options), "properties": properties_of(options)}
        check_format(options, of="insert")
        write_options = WriteOptions.of(**{"nulls": dataset.nulls, **layout})
        dataset.moved(written(dataset.snapshot.store, data, schema, mode, dataset.snapshot.runtime, write_options))

    def delete(
        self, predicate: FilterLike, *, conflict_retries: int | None = None, retry_timeout: dt.timedelta | None = None
    ) -> dict[str, int]:
        """Delete the rows that match a condition, and return their number as ``num_deleted_rows``.

        Parameters
        ----------
        predicate: SQL or a pyarrow expression.
        conflict_retries, retry_timeout: how often (by default 10 times) and how long to retry if concurrent commits
            changed the same rows.

        Raises ``WrongTypeError`` without a condition, ``FilterError`` for an invalid one, and ``ConflictError``.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-delete")
        >>> ds.delete("a > 1")
        {'num_deleted_rows': 2}
        """
        retries = Retries.of(conflict_retries, retry_timeout)
        if predicate is None:
            raise WrongTypeError("delete needs a predicate, got None", help='pass "true" to delete all rows')
        snapshot, number = delete.delete(self._dataset.snapshot, PylanceSql.of(predicate), retries)
        self._dataset.moved(snapshot)
        return {"num_deleted_rows": number}

    def truncate_table(self) -> None:
        """Delete all rows."""
        snapshot, _ = delete.delete(self._dataset.snapshot, "true")
        self._dataset.moved(snapshot)

    def update(
        self,
        /,
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

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-update")
        >>> ds.update({"a": "a * 10"}, where="a > 1")
        {'num_rows_updated': 2}
        >>> sorted(ds.to_table()["a"].to_pylist())
        [1, 20, 30]
        """
        check_format(later, of="update")
        retries, options = Retries.of(conflict_retries, retry_timeout), WriteOptions(nulls=self._dataset.nulls)
        updates = {column: PylanceSql.of(sql) for column, sql in updates.items()}
        done = update.update(self._dataset.snapshot, updates, PylanceSql.of(where), options=options, retries=retries)
        self._dataset.moved(done.snapshot)
        return {"num_rows_updated": done.num_rows_updated}

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Return a builder of a merge: rows of a source match rows of the dataset by the key columns ``on``.

        By default, ``on`` is the primary key: the columns with ``lance-schema:unenforced-primary-key`` in their
        metadata.  Raises ``InvalidArgumentError`` if there is none.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-merge-insert")
        >>> news = pa.table({"id": [3, 4], "s": ["new", "first"]})
        >>> done = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(news)
        >>> done["num_updated_rows"], done["num_inserted_rows"], ds.count_rows()
        (1, 1, 4)
        """
        if on is None:
            keys = [f for f in self._dataset.snapshot.view.schema.fields if f.is_key]
            on = [f.name for f in sorted(keys, key=lambda f: f.primary_key[1])]
            if not on:
                raise InvalidArgumentError(
                    "the dataset has no primary key", help="pass the key columns: merge_insert('id')"
                )
        return MergeInsertBuilder(self._dataset, on)

    # --- columns -----------------------------------------------------------------------------------------------------

    def merge(self, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None) -> None:
        """Join the columns of other data by key; rows without a match get nulls.

        Parameters
        ----------
        data_obj: the data to join.
        left_on, right_on: key columns of the dataset and of the data; ``right_on`` defaults to ``left_on``.
        schema: schema of data passed as an iterable.

        Raises ``UnknownColumnError``, and ``SchemaMismatchError`` if the data cannot be joined.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-merge")
        >>> ds.merge(pa.table({"id": [1, 2, 3], "n": [10, 20, 30]}), "id")
        >>> ds.schema.names, ds.to_table(["n"], "id = 2").to_pylist()
        (['id', 's', 'n'], [{'n': 20}])
        """
        dataset, data = self._dataset, input_rows.table(data_obj, schema)
        dataset.moved(column_changes.merge(dataset.snapshot, data, left_on, right_on, nulls=dataset.nulls))

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
            null columns, for which no files are written.  From format version 2.2, columns may be new fields of
            existing structs: ``pa.field("s", pa.struct([("b", pa.int64())]))`` adds ``s.b``.
        read_columns: columns to pass to the function, by default all.
        reader_schema: schema of rows passed as an iterable.
        batch_size: maximum number of rows per call of the function, by default those of a row group.

        Raises ``InvalidArgumentError`` for options that do not apply to ``transforms``.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-add-columns")
        >>> ds.add_columns({"double": "a * 2"})
        >>> ds.to_table()["double"].to_pylist()
        [2, 4, 6]
        """
        snapshot, nulls = self._dataset.snapshot, self._dataset.nulls
        wider = column_changes.add(
            snapshot, transforms, read_columns, reader_schema, batch_size=batch_size, nulls=nulls
        )
        self._dataset.moved(wider)
        if isinstance(transforms, BatchUDF):
            transforms.forget()

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop ``columns`` or nested fields; writes only the manifest.  Raises ``UnknownColumnError``.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"id": [1, 2, 3], "s": ["x", "y", "z"]}), "memory://doc-lance-drop-columns")
        >>> ds.drop_columns(["s"])
        >>> ds.schema.names
        ['id']
        """
        self._dataset.moved(column_changes.drop_columns(self._dataset.snapshot, columns))

    def alter_columns(self, *alterations: Mapping[str, Any]) -> None:
        """Rename (``name``), cast (``data_type``) or change the nullability (``nullable``) of the columns at ``path``.

        ``alterations`` are mappings with these keys.  Raises ``UnknownColumnError`` and ``InvalidArgumentError``.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-alter-columns")
        >>> ds.alter_columns({"path": "a", "name": "number", "data_type": pa.int32()})
        >>> ds.schema
        number: int32
        """
        dataset = self._dataset
        dataset.moved(column_changes.alter_columns(dataset.snapshot, alterations, nulls=dataset.nulls))


def written(
    store: Store,
    data: Any,
    schema: pa.Schema | None,
    mode: Mode,
    runtime: Runtime,
    options: WriteOptions,
    progress: Reporter | None = None,
) -> Snapshot:
    """Write rows as a new version, and clean up afterwards if the dataset is configured so."""
    rows_schema, batches = input_rows.stream(data, schema)
    input_rows.check_metadata(rows_schema)
    snapshot = write(store, rows_schema, batches, mode, runtime, options, progress=progress)
    after_commit(snapshot)
    return snapshot
