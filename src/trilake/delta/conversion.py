"""Delta tables as source and target of conversions.

Column metadata, such as comments, becomes Arrow field metadata.  Delta has fewer types than Arrow, so the
original type is kept in the column's metadata: a vector (a fixed-size list) is a vector again when converted back.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from trilake.common.arrow_types import parts as arrow_parts
from trilake.delta.commands.write.request import WriteRequest
from trilake.delta.commands.write.write import finish_write, plan_write
from trilake.delta.files.file_plan import FilePlan, WrittenFiles
from trilake.delta.files.write_files import write_files
from trilake.delta.log.log import DeltaLog
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.schema import (
    DELTA_TYPE,
    DataType,
    StructField,
    StructType,
    from_arrow,
    marked,
    needs_mark,
    parts,
    with_parts,
)
from trilake.delta.protocol.schema_edit import arrow_type
from trilake.delta.scan.read import read_tasks
from trilake.delta.scan.scan import FileTask, ReadPlan, metadata_plan, plan_scan
from trilake.delta.standard import standard_engine
from trilake.delta.table import ArrowDeltaTable
from trilake.expr.views import in_microseconds, without_views, without_views_schema
from trilake.storage.base import Store
from trilake.storage.ownership import discard
from trilake.table.conversion import Done, Piece, Source, TargetRequest, fitted, for_parquet, packed
from trilake.table.format import parse_mode
from trilake.table.table import FilterLike, projected

#: Column metadata key for the original Arrow type.
ARROW_TYPE = "trilake.arrowType"
#: Prefixes of metadata that belongs to a format, not to the column.
_OWN = ("delta.", "__", "PARQUET:", "ARROW:", "trilake:", "lance-")
_T = pa.types

# --- source ----------------------------------------------------------------------------------------------------------


def _rows_of(store: Store, tasks: Sequence[FileTask], plan: ReadPlan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in read_tasks(store, tasks, plan):
        yield fitted(batch, schema)


def delta_source(table: ArrowDeltaTable, columns: list[str] | None, filter: FilterLike | None) -> Source:
    """The rows of a table in pieces.  Raises ``InvalidArgumentError`` and ``FilterError``."""
    schema = projected(from_delta(table.snapshot.schema), columns, table.uri)
    scan = plan_scan(table.snapshot, schema.names, filter)
    # Files may lack columns that the table requires: reads are nullable, writes check.
    read = pa.schema([f.with_nullable(True) for f in schema])
    store, files = table.log.store, scan.tasks()

    def piece(some: Sequence[FileTask]) -> Piece:
        return partial(_rows_of, store, some, scan.plan, read)

    return Source(
        uri=table.uri,
        format="delta",
        version=table.version,
        schema=schema,
        partition_by=tuple(c for c in scan.plan.partition_columns if c in schema.names),
        rows=table.count() if filter is None else None,
        whole=(piece(files),),
        cut=lambda: tuple((piece(run),) for run in packed([(f, f.size) for f in files])),
    )


# --- target ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeltaRows:
    """Writes the rows of a task to files of the target, and reads them back for a check."""

    store: Store
    plan: FilePlan
    metadata: Metadata
    names: tuple[str, ...]

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
        return write_files(self.store, self.plan, (in_microseconds(without_views(b)) for b in batches), task=task)

    def read_back(self, written: WrittenFiles) -> Iterator[pa.RecordBatch]:
        plan = metadata_plan(self.metadata, self.plan.engine, self.store.uri, 0, self.names)
        tasks = [FileTask(unquote(str(a["path"])), int(a["size"]), a["partitionValues"]) for a in written.actions]
        for batch in read_tasks(self.store, tasks, plan):
            yield batch.rename_columns(list(self.names))


class DeltaTarget:
    """A Delta table; the whole conversion is one commit."""

    exact = True

    def __init__(self, log: DeltaLog, request: WriteRequest, schema: pa.Schema) -> None:
        self.log = log
        self.plan = plan_write(log, request)
        if self.plan.files.provider == "parquet":
            for_parquet(self.plan.files.schema.to_arrow_schema())
        self.rows = DeltaRows(log.store, self.plan.files, self.plan.metadata, tuple(schema.names))

    def commit(self, written: Sequence[WrittenFiles]) -> Done:
        committed = finish_write(self.log, self.plan, written)
        return Done(committed.version, committed.files_added, committed.bytes_added)

    def discard(self, written: Sequence[WrittenFiles]) -> None:
        discard(self.log.store, [unquote(str(a["path"])) for part in written for a in part.actions])


def delta_target(store: Store, source: Source, request: TargetRequest, exists: bool) -> DeltaTarget:
    """The target at a location; ``exists``: whether it is a table.  Raises the errors of :func:`plan_write`."""
    schema = for_delta(source.schema)
    partition_by = request.partition_by
    if partition_by is None and not exists and len(source.partition_by) < len(source.schema):
        partition_by = source.partition_by
    write = WriteRequest(
        mode=parse_mode(request.mode),
        schema=to_delta(schema),
        partition_by=partition_by,
        properties=request.options or None,
        data_format=request.data_format,
    )
    return DeltaTarget(DeltaLog(store, standard_engine(runtime=request.runtime)), write, schema)


# --- schemas ---------------------------------------------------------------------------------------------------------


def from_delta(schema: StructType) -> pa.Schema:
    """The columns of a Delta table, with their comments and original Arrow types.

    >>> from trilake.delta.protocol.schema import PrimitiveType
    >>> field = StructField("n", PrimitiveType("long"), False, {"comment": "how many"})
    >>> from_delta(StructType((field,))).field("n").metadata
    {b'comment': b'how many'}
    """
    fields = []
    for one in schema.fields:
        arrow_field = marked(_arrow_field(one), one.type)
        was = one.metadata.get(ARROW_TYPE)
        fields.append(arrow_field.with_type(_decoded(was, arrow_field.type)) if isinstance(was, str) else arrow_field)
    return pa.schema(fields)


def _arrow_field(one: StructField) -> pa.Field:
    metadata = {
        k: v if isinstance(v, str) else orjson.dumps(v).decode()
        for k, v in one.metadata.items()
        if not k.startswith(_OWN) and k != ARROW_TYPE
    }
    return pa.field(one.name, arrow_type(one.type, _arrow_field), one.nullable, metadata or None)


def _decoded(encoded: str, stored: pa.DataType) -> pa.DataType:
    """The type in a column's metadata, unless it is damaged or does not fit the values any more."""
    try:
        original = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded, validate=True))).field(0).type
        pa.array([], stored).cast(original)
    except (ValueError, OSError, pa.ArrowException):
        return stored
    return original


def to_delta(schema: pa.Schema) -> StructType:
    """The columns of a new Delta table.  Raises ``SchemaMismatchError`` for a type that Delta lacks."""
    delta_schema = from_arrow(schema)
    return StructType(
        tuple(_with_metadata(f, one, top=True) for f, one in zip(delta_schema.fields, schema, strict=True))
    )


def _with_metadata(field: StructField, one: pa.Field, *, top: bool) -> StructField:
    strings = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in (one.metadata or {}).items()}
    metadata: dict[str, Any] = {k: v for k, v in strings.items() if not k.startswith(_OWN)}
    kind = field.type
    if top and one.type != kind.arrow:
        plain = one.type.storage_type if isinstance(one.type, pa.BaseExtensionType) else one.type
        if _T.is_fixed_size_list(plain) or _T.is_dictionary(plain):
            metadata[ARROW_TYPE] = base64.b64encode(pa.schema([pa.field("", plain)]).serialize()).decode()
    has_variants = metadata.pop(DELTA_TYPE, None) is not None and needs_mark(kind)
    return replace(field, type=kind if has_variants else _nested(kind, one.type), metadata=metadata)


def _nested(kind: DataType, arrow: pa.DataType) -> DataType:
    if isinstance(kind, StructType) and _T.is_struct(arrow):
        pairs = zip(kind.fields, arrow, strict=True)
        return StructType(tuple(_with_metadata(f, a, top=False) for f, a in pairs))
    inside, fields = [inner for _, inner in parts(kind)], arrow_parts(arrow)
    if isinstance(kind, StructType) or len(inside) != len(fields):
        return kind
    return with_parts(kind, [_nested(inner, f.type) for inner, f in zip(inside, fields, strict=True)])


def for_delta(schema: pa.Schema) -> pa.Schema:
    """Plain columns for a Delta table, without views and run-end encoding.  Raises ``SchemaMismatchError``."""
    flat = without_views_schema(schema)
    to_delta(flat)
    return flat
