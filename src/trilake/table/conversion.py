"""Conversions: copy rows from a table of one format into another, in pieces for tasks.

A :class:`Source` yields picklable pieces that open their files themselves.  A target has two halves: :class:`Rows` is
sent to tasks, writes rows into invisible files, and reads them back; :class:`Target` stays with the caller and commits
or discards the files of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trilake.common.arrow_types import mapped
from trilake.common.runtime import Runtime
from trilake.errors import InvalidArgumentError, SchemaMismatchError, TrilakeError
from trilake.expr.views import plain_array

#: Bytes of files per Spark task.
_TASK_SIZE = 128 << 20
_T = pa.types

# --- the two sides ---------------------------------------------------------------------------------------------------


class Piece(Protocol):
    """Some of the rows."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the columns and types of the source's schema."""


@dataclass(frozen=True)
class Source:
    """Rows to convert.

    ``schema`` has the selected columns, ``partition_by`` the source's partition columns among them, ``rows`` their
    number if known without reading; ``whole`` are all rows for one task, ``tasks`` the same rows for several tasks,
    which ``cut`` plans by file sizes.
    """

    uri: str
    format: str
    version: int | None
    schema: pa.Schema
    partition_by: tuple[str, ...]
    rows: int | None
    whole: tuple[Piece, ...]
    cut: Callable[[], tuple[tuple[Piece, ...], ...]]
    tasks: tuple[tuple[Piece, ...], ...] = ()


def packed(sized: Sequence[tuple[Any, int]]) -> list[list[Any]]:
    """Group items into runs of about the size of a task."""
    runs: list[list[Any]] = []
    size = 0
    for item, item_size in sized:
        if not runs or size + item_size > _TASK_SIZE:
            runs.append([])
            size = 0
        runs[-1].append(item)
        size += item_size
    return runs


class Rows(Protocol):
    """The half of a target that is sent to tasks."""

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> Any:
        """Write rows into invisible files; the references to them are picklable."""

    def read_back(self, written: Any) -> Iterator[pa.RecordBatch]:
        """The rows of such files, in the source's columns."""


@dataclass(frozen=True)
class Done:
    """The result of the commit."""

    version: int | None
    files: int
    bytes: int


class Target(Protocol):
    """The half of a target that stays with the caller."""

    @property
    def rows(self) -> Rows:
        """The half for tasks."""

    @property
    def exact(self) -> bool:
        """Whether rows that are read back must equal those that were read."""

    def commit(self, written: Sequence[Any]) -> Done:
        """Make the files of all tasks visible."""

    def discard(self, written: Sequence[Any]) -> None:
        """Remove the invisible files of tasks."""


@dataclass(frozen=True)
class TargetRequest:
    """What the caller requests of a target."""

    format: str
    mode: str
    partition_by: tuple[str, ...] | None
    options: Mapping[str, str]
    data_format: str | None
    #: Whether tasks run without communication.
    distributed: bool
    runtime: Runtime


def kept_partitions(source: Source, request: TargetRequest, exists: bool) -> tuple[str, ...] | None:
    """Partition columns whose values survive as folder names, that is, parse back as they were."""
    if request.partition_by is not None:
        return request.partition_by
    if exists and request.mode == "append":
        return None
    types = [source.schema.field(n).type for n in source.partition_by]
    plain = all(_T.is_integer(t) or _T.is_string(t) or _T.is_date32(t) for t in types)
    return source.partition_by if plain and len(types) < len(source.schema) else ()


# --- schemas ---------------------------------------------------------------------------------------------------------


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata of the format that it was read from."""
    metadata = {k: v for k, v in (schema.metadata or {}).items() if k not in (b"pandas", b"ARROW:schema")}
    metadata = {k: v for k, v in metadata.items() if not k.startswith((b"org.apache.spark", b"trilake:"))}
    fields = []
    for one in schema:
        user_metadata = {k: v for k, v in (one.metadata or {}).items() if not k.startswith((b"PARQUET:", b"trilake:"))}
        fields.append(one.with_type(mapped(one.type, _named_maps)).with_metadata(user_metadata or None))
    return pa.schema(fields, metadata or None)


def _named_maps(kind: pa.DataType) -> pa.DataType:
    """A map with the usual names of its parts; Parquet files may have others."""
    if not _T.is_map(kind):
        return kind
    key = pa.field("key", kind.key_type, False)
    return pa.map_(key, pa.field("value", kind.item_type, kind.item_field.nullable), kind.keys_sorted)


def for_parquet(schema: pa.Schema) -> pa.Schema:
    """The schema itself, if a Parquet file can have it.  Raises ``SchemaMismatchError``."""
    return check_each_column(schema, "Parquet", lambda one: pq.write_table(one.empty_table(), pa.BufferOutputStream()))


def check_each_column(schema: pa.Schema, name: str, begin: Callable[[pa.Schema], None]) -> pa.Schema:
    """The schema itself, if ``begin`` takes each column of it.  Raises ``SchemaMismatchError``."""
    for one in schema:
        try:
            begin(pa.schema([one]))
        except (TrilakeError, pa.ArrowException, ValueError, TypeError, OSError) as e:
            raise refused(name, one.name, e.message if isinstance(e, TrilakeError) else str(e)) from e
    return schema


def refused(name: str, column: str, why: str) -> SchemaMismatchError:
    """The error for a column that a format cannot hold."""
    return SchemaMismatchError(
        f"{name} cannot hold a column: {why}",
        help="leave it out with columns=[…], or cast it before",
        column=column,
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with run-end encoded and list view columns as the schema has them; others are left to the writer."""
    arrays = []
    for one, array in zip(batch.schema, batch.columns, strict=True):
        kind = array.type
        changed = _T.is_run_end_encoded(kind) or _T.is_list_view(kind) or _T.is_large_list_view(kind)
        arrays.append(_cast(array, schema.field(one.name).type) if changed else array)
    if all(a is b for a, b in zip(arrays, batch.columns, strict=True)):
        return batch
    fields = [f.with_type(a.type) for f, a in zip(batch.schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, batch.schema.metadata))


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows under exactly this schema, columns by name.  Raises ``SchemaMismatchError``."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    arrays = []
    for one in schema:
        array = batch.column(batch.schema.get_field_index(one.name))
        try:
            arrays.append(_cast(array, one.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as e:
            raise SchemaMismatchError(
                f"a value of {array.type} does not fit {one.type}: {e}", help="cast the column", column=one.name
            ) from e
        if not one.nullable and arrays[-1].null_count:
            raise SchemaMismatchError("a column that must not be null has nulls", column=one.name)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        return _cast(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type))
    if _T.is_run_end_encoded(array.type):
        return _cast(pc.run_end_decode(array), kind)
    if _T.is_list_view(array.type) or _T.is_large_list_view(array.type):
        return plain_array(array).cast(kind)
    if _T.is_dictionary(kind) and not _T.is_dictionary(array.type):
        return array.cast(kind.value_type).dictionary_encode().cast(kind)
    return array.cast(kind)


def check_columns(columns: list[str] | None, schema: pa.Schema, uri: str) -> list[str]:
    """Column names in the schema's spelling.  Raises ``InvalidArgumentError`` for an unknown one."""
    if columns is None:
        return list(schema.names)
    by_name = {name.lower(): name for name in schema.names}
    unknown = [c for c in columns if c.lower() not in by_name]
    if unknown or not columns:
        raise InvalidArgumentError(
            f"there is no column {', '.join(map(repr, unknown))}" if unknown else "there are no columns to convert",
            help=f"the columns are {', '.join(schema.names)}",
            file=uri,
        )
    return [by_name[c.lower()] for c in columns]
