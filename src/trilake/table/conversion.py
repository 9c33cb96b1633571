"""Interfaces of conversions: sources and targets of rows, split into tasks.

A :class:`Source` has picklable pieces that open their files themselves.  A target has two halves: :class:`Rows` is
sent to tasks, writes rows into invisible files, and reads them back; :class:`Target` stays with the caller and commits
or discards the files of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from trilake.common.arrow_types import mapped
from trilake.common.runtime import Runtime
from trilake.errors import SchemaMismatchError, TrilakeError
from trilake.expr.views import plain_array

#: Bytes of files per Spark task.
_TASK_SIZE = 128 << 20
_T = pa.types


#: Returns a part of the rows, with the source's schema; picklable.
Piece = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Source:
    """Rows to convert.

    ``schema`` has the selected columns, ``partition_by`` those that partition the source.  ``rows`` is their number, if
    the metadata has it.  ``whole`` holds all rows as one task; ``cut`` plans several by file sizes.
    """

    uri: str
    format: str
    version: int | None
    schema: pa.Schema
    partition_by: tuple[str, ...]
    rows: int | None
    whole: tuple[Piece, ...]
    cut: Callable[[], tuple[tuple[Piece, ...], ...]]


def packed(sized: Sequence[tuple[Any, int]]) -> list[list[Any]]:
    """Group items with sizes into runs of about the size of a task."""
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
    """The part of a target that runs in tasks."""

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> Any:
        """Write rows to invisible files; return picklable references to them."""

    def read_back(self, written: Any) -> Iterator[pa.RecordBatch]:
        """Read these files, with the source's columns."""


@dataclass(frozen=True)
class Done:
    """The result of the commit."""

    version: int | None
    files: int
    bytes: int


class Target(Protocol):
    """The part of a target that stays with the caller."""

    @property
    def rows(self) -> Rows:
        """The part for tasks."""

    @property
    def exact(self) -> bool:
        """Whether rows that are read back must equal the source's."""

    def commit(self, written: Sequence[Any]) -> Done:
        """Make the files of all tasks visible."""

    def discard(self, written: Sequence[Any]) -> None:
        """Remove the invisible files of tasks."""


@dataclass(frozen=True)
class TargetRequest:
    """The caller's arguments for a target."""

    format: str
    mode: str
    partition_by: tuple[str, ...] | None
    options: Mapping[str, str]
    data_format: str | None
    #: Whether tasks run without communication.
    distributed: bool
    runtime: Runtime


def kept_partitions(source: Source, request: TargetRequest, exists: bool) -> tuple[str, ...] | None:
    """The partition columns of the target; by default the source's, if folder names preserve their values."""
    if request.partition_by is not None:
        return request.partition_by
    if exists and request.mode == "append":
        return None
    types = [source.schema.field(n).type for n in source.partition_by]
    plain = all(_T.is_integer(t) or _T.is_string(t) or _T.is_date32(t) for t in types)
    return source.partition_by if plain and len(types) < len(source.schema) else ()


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata of the source format."""

    def users(metadata: dict[bytes, bytes] | None, *prefixes: bytes) -> dict[bytes, bytes] | None:
        return {k: v for k, v in (metadata or {}).items() if not k.startswith(prefixes)} or None

    fields = [
        f.with_type(mapped(f.type, _named_maps)).with_metadata(users(f.metadata, b"PARQUET:", b"trilake:"))
        for f in schema
    ]
    metadata = {k: v for k, v in (schema.metadata or {}).items() if k not in (b"pandas", b"ARROW:schema")}
    return pa.schema(fields, users(metadata, b"org.apache.spark", b"trilake:"))


def _named_maps(kind: pa.DataType) -> pa.DataType:
    """A map with Arrow's names of its parts; Parquet files may have others."""
    if not _T.is_map(kind):
        return kind
    key = pa.field("key", kind.key_type, False)
    return pa.map_(key, pa.field("value", kind.item_type, kind.item_field.nullable), kind.keys_sorted)


def for_parquet(schema: pa.Schema) -> pa.Schema:
    """Check that Parquet supports a schema, and return it.  Raises ``SchemaMismatchError``."""
    return check_each_column(schema, "Parquet", lambda one: pq.write_table(one.empty_table(), pa.BufferOutputStream()))


def check_each_column(schema: pa.Schema, name: str, begin: Callable[[pa.Schema], None]) -> pa.Schema:
    """Check that ``begin`` accepts each column of a schema, and return it.  Raises ``SchemaMismatchError``."""
    for one in schema:
        try:
            begin(pa.schema([one]))
        except (TrilakeError, pa.ArrowException, ValueError, TypeError, OSError) as e:
            raise rejected(name, one.name, e.message if isinstance(e, TrilakeError) else str(e)) from e
    return schema


def rejected(name: str, column: str, why: str) -> SchemaMismatchError:
    """The error for a column that a format does not support."""
    help = "leave it out with columns=[…], or cast it first"
    return SchemaMismatchError(f"{name} does not support the column: {why}", help=help, column=column)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast rows to exactly this schema, matching columns by name.  Raises ``SchemaMismatchError``."""
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
            raise SchemaMismatchError("the column has nulls, but the schema does not allow them", column=one.name)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array, pa.ExtensionArray):
        return _cast(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type))
    if (plain := plain_array(array)) is not array:
        return _cast(plain, kind)
    if _T.is_dictionary(kind) and not _T.is_dictionary(array.type):
        return array.cast(kind.value_type).dictionary_encode().cast(kind)
    return array.cast(kind)
