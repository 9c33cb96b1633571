"""Data files of Iceberg manifests from ``add`` actions: partition values, counts and bounds."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from trilake.delta.iceberg.schema import iceberg_type
from trilake.delta.log.replay import decoded_paths
from trilake.delta.protocol.actions import Metadata
from trilake.delta.protocol.partitions import partition_fields, typed_partitions
from trilake.delta.protocol.schema import ArrayType, MapType, StructType
from trilake.errors import InvalidArgumentError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class _Leaf(NamedTuple):
    """A column with statistics: its path in them, its field id and its type in Iceberg."""

    path: tuple[str, ...]
    field_id: int
    type: types.PrimitiveType


def file_paths(actions: pa.Table, location: str) -> list[str]:
    """The absolute paths of the files of some actions."""
    paths = decoded_paths(actions["path"])
    absolute = pc.match_substring_regex(paths, "^/|^[A-Za-z][A-Za-z0-9+.-]*:/")
    joined: list[str] = pc.if_else(absolute, paths, pc.binary_join_element_wise(location, paths, "/")).to_pylist()
    return joined


def data_files(adds: pa.Table, metadata: Metadata, location: str) -> list[DataFile]:
    """The data files of some ``add`` actions.

    Raises ``InvalidArgumentError`` for a file with a deletion vector, or without a number of rows.
    """
    if adds["deletionVector"].null_count < adds.num_rows:
        raise InvalidArgumentError(
            "a file has a deletion vector, which Iceberg v2 metadata cannot hold",
            help="turn delta.enableDeletionVectors off and purge the table (REORG TABLE ... APPLY (PURGE))",
        )
    leaves = list(_leaves(metadata.schema))
    paths = file_paths(adds, location)
    rows = zip(paths, adds["size"].to_pylist(), adds["stats"].to_pylist(), _partitions(adds, metadata), strict=True)
    return [_data_file(path, size, stats, values, leaves) for path, size, stats, values in rows]


def _partitions(adds: pa.Table, metadata: Metadata) -> Iterator[tuple[Any, ...]]:
    fields = partition_fields(metadata.schema, metadata.partition_columns)
    if not fields:
        return iter([()] * adds.num_rows)
    return zip(*(_plain(column).to_pylist() for column in typed_partitions(adds, fields).values()), strict=True)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates as days and timestamps as microseconds, which is how manifests hold them."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _data_file(path: str, size: int, text: str | None, values: tuple[Any, ...], leaves: list[_Leaf]) -> DataFile:
    # Decimals, since the digits of a float are too few for those of wide columns.
    stats = json.loads(text, parse_float=Decimal) if text else {}
    count = stats.get("numRecords") if isinstance(stats, dict) else None
    if type(count) is not int:
        raise InvalidArgumentError(f"the statistics of {path!r} have no numRecords", help="compute statistics")
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for leaf in leaves:
        number = _at(stats.get("nullCount"), leaf.path)
        if type(number) is int:
            nulls[leaf.field_id] = number
        for side, name in ((lower, "minValues"), (upper, "maxValues")):
            bound = _bound(leaf.type, _at(stats.get(name), leaf.path), up=side is upper)
            if bound is not None:
                side[leaf.field_id] = bound
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=count,
        file_size_in_bytes=size,
        value_counts=dict.fromkeys(nulls, count),
        null_value_counts=nulls,
        lower_bounds=lower,
        upper_bounds=upper,
    )


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
    """A bound as Iceberg writes it; ``None`` where the statistics have none that is certain."""
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
        # Delta writers cut timestamps to milliseconds.
        micros = (stated - _EPOCH) // _MICROSECOND
        return micros + 999 if up and micros % 1000 == 0 else micros
    return value if isinstance(type_, types.StringType) and isinstance(value, str) else None
