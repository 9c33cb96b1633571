"""Data files of Iceberg manifests from ``add`` actions: partition values, counts and bounds."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson
import pyarrow as pa
from pyiceberg import types
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from trilake.delta.iceberg.avro import ManifestSchema
from trilake.delta.iceberg.schema import iceberg_schema, iceberg_type, partition_spec
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.partitions import parse_values, partition_fields
from trilake.delta.protocol.schema import ArrayType, MapType, StructField, StructType
from trilake.errors import InvalidArgumentError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


class FileAction(NamedTuple):
    """An ``add`` or ``remove`` action."""

    path: str
    partition: Mapping[str, str | None]
    size: int
    stats: str | None
    has_vector: bool
    data_change: bool


class _Leaf(NamedTuple):
    """A column with statistics: its path in the statistics, its Iceberg field id and type."""

    path: tuple[str, ...]
    field_id: int
    type: types.PrimitiveType


@dataclass(frozen=True, eq=False)
class Layout:
    """A Delta schema and its partition columns in Iceberg's terms."""

    schema: Schema
    spec: PartitionSpec
    leaves: tuple[_Leaf, ...]
    partition: tuple[StructField, ...]
    partition_types: tuple[types.PrimitiveType, ...]
    #: Schema and partition spec as JSON objects.
    schema_json: dict[str, Any]
    spec_json: dict[str, Any]

    @cached_property
    def exact(self) -> bool:
        """Whether statistics must be parsed as decimals."""
        return any(isinstance(leaf.type, types.DecimalType) for leaf in self.leaves)


@lru_cache(maxsize=64)
def manifest_schema(layout: Layout, schema_id: int, spec_id: int) -> ManifestSchema:
    """The schema of manifests with these schema and partition spec ids."""
    schema = layout.schema.model_copy(update={"schema_id": schema_id})
    return ManifestSchema(schema, layout.spec.model_copy(update={"spec_id": spec_id}))


def layout(metadata: Metadata) -> Layout:
    """Convert the schema of a table.  Raises ``SchemaMismatchError`` for a type that Iceberg v2 lacks."""
    return _layout(metadata.schema_string, metadata.partition_columns, metadata.column_mapping_mode)


@lru_cache(maxsize=64)
def _layout(schema_string: str, columns: tuple[str, ...], mode: str) -> Layout:
    metadata = Metadata("", schema_string, columns, {"delta.columnMapping.mode": mode})
    schema, spec = iceberg_schema(metadata.schema), partition_spec(metadata)
    fields = tuple(partition_fields(metadata.schema, columns))
    return Layout(
        schema,
        spec,
        tuple(_leaves(metadata.schema)),
        fields,
        tuple(iceberg_type(f.type, f) for f in fields),
        orjson.loads(schema.model_dump_json()),
        orjson.loads(spec.model_dump_json()),
    )


def actions_of(table: pa.Table) -> list[FileAction]:
    """The file actions of an Arrow table."""
    columns = ("path", "partitionValues", "size", "stats", "deletionVector", "dataChange")
    nothing = pa.nulls(table.num_rows)
    values = (table[c].to_pylist() if c in table.column_names else nothing.to_pylist() for c in columns)
    return [
        FileAction(path, dict(partition or ()), size, stats, vector is not None, change is not False)
        for path, partition, size, stats, vector, change in zip(*values, strict=True)
    ]


def action_of(action: Mapping[str, Any]) -> FileAction:
    """The file action of a JSON object from the log."""
    partition, vector = action.get("partitionValues") or {}, action.get("deletionVector")
    change = action.get("dataChange") is not False
    return FileAction(
        action["path"], partition, action.get("size") or 0, action.get("stats"), vector is not None, change
    )


def absolute_path(path: str, location: str) -> str:
    """The absolute path of a file, from the ``path`` of its action."""
    decoded = unquote(path, errors="strict") if "%" in path else path
    return decoded if _ABSOLUTE.match(decoded) else f"{location}/{decoded}"


def partitions(actions: Sequence[FileAction], to: Layout) -> list[tuple[Any, ...]]:
    """The partition values of files, as manifests hold them: dates as days and timestamps as microseconds."""
    if not to.partition:
        return [()] * len(actions)
    columns = (
        parse_values(pa.chunked_array([pa.array([a.partition.get(f.physical_name) for a in actions], pa.string())]), f)
        for f in to.partition
    )
    return list(zip(*(_as_integers(c).to_pylist() for c in columns), strict=True))


def data_files(actions: Sequence[FileAction], to: Layout, location: str) -> list[dict[str, Any]]:
    """The manifest records of ``add`` actions.  Raises ``InvalidArgumentError`` for vectors and unknown row counts."""
    if any(a.has_vector for a in actions):
        raise InvalidArgumentError(
            "a file has a deletion vector, which Iceberg v2 does not support",
            help="set delta.enableDeletionVectors to false, then purge the table (REORG TABLE ... APPLY (PURGE))",
        )
    return [_data_file(a, values, to, location) for a, values in zip(actions, partitions(actions, to), strict=True)]


def _as_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _data_file(action: FileAction, values: tuple[Any, ...], to: Layout, location: str) -> dict[str, Any]:
    path = absolute_path(action.path, location)
    stats = _statistics(action.stats or "{}", exact=to.exact)
    count = stats.get("numRecords") if isinstance(stats, dict) else None
    if type(count) is not int:
        raise InvalidArgumentError(
            f"the statistics of {path!r} have no numRecords",
            help="recompute the statistics (ANALYZE TABLE ... COMPUTE DELTA STATISTICS)",
        )
    nulls: list[dict[str, Any]] = []
    lower: list[dict[str, Any]] = []
    upper: list[dict[str, Any]] = []
    stated = stats.get("nullCount"), stats.get("minValues"), stats.get("maxValues")
    for leaf in to.leaves:
        number, least, most = (_at(s, leaf.path) for s in stated)
        if type(number) is int:
            nulls.append({"key": leaf.field_id, "value": number})
        for side, value in ((lower, least), (upper, most)):
            bound = _bound(leaf.type, value, up=side is upper)
            if bound is not None:
                side.append({"key": leaf.field_id, "value": bound})
    return {
        "content": 0,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": values,
        "record_count": count,
        "file_size_in_bytes": action.size,
        "value_counts": [{"key": n["key"], "value": count} for n in nulls],
        "null_value_counts": nulls,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }


def _statistics(json_string: str, *, exact: bool) -> Any:
    if not exact:
        with suppress(orjson.JSONDecodeError):  # some writers write NaN
            return orjson.loads(json_string)
    # As decimals: a float has too few digits for wide decimal columns.
    return json.loads(json_string, parse_float=Decimal)


def _leaves(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[_Leaf]:
    for field in schema.fields:
        path = (*above, field.physical_name)
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, path)
        elif not isinstance(field.type, ArrayType | MapType) and field.column_id is not None:
            yield _Leaf(path, field.column_id, iceberg_type(field.type, field))


def _at(stated: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        stated = stated.get(name) if isinstance(stated, dict) else None
    return stated


def _bound(type_: types.PrimitiveType, value: Any, *, up: bool) -> bytes | None:
    """A bound in Iceberg's encoding; ``None`` if the statistics have no reliable one."""
    try:
        converted = None if value is None else _value(type_, value, up=up)
        return None if converted is None else to_bytes(type_, converted)
    except (ValueError, ArithmeticError, TypeError, AttributeError, struct.error):
        return None


def _value(type_: types.PrimitiveType, value: Any, *, up: bool) -> Any:
    if isinstance(type_, types.IntegerType | types.LongType):
        return value if type(value) is int else None
    if isinstance(type_, types.FloatType | types.DoubleType):
        number = float(value)
        if not math.isfinite(number):
            return None
        # Iceberg orders -0.0 before 0.0.
        return number or (0.0 if up else -0.0)
    if isinstance(type_, types.DecimalType):
        exact = Decimal(value)
        scaled = exact.quantize(Decimal(1).scaleb(-type_.scale))
        return scaled if scaled == exact else None
    if isinstance(type_, types.DateType):
        return dt.date.fromisoformat(value)
    if isinstance(type_, types.TimestampType | types.TimestamptzType):
        stated = dt.datetime.fromisoformat(value)
        if stated.tzinfo is None:
            stated = stated.replace(tzinfo=dt.UTC)
        # Delta writers truncate timestamps to milliseconds.
        micros = (stated - _EPOCH) // _MICROSECOND
        return micros + 999 if up and micros % 1000 == 0 else micros
    return value if isinstance(type_, types.StringType) and isinstance(value, str) else None
