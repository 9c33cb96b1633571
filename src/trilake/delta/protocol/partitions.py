"""Partition columns: which types they may have, and their values as strings in the log.

Protocol: *Partition Value Serialization*.  An empty string and null are both null, for every type.  A
``timestamp`` value without a time zone is in UTC, not in the session time zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from trilake.common.compute import pc
from trilake.common.text import columns_help
from trilake.delta.protocol.schema import DataType, PrimitiveType, StructField, StructType
from trilake.errors import CorruptLogError, InvalidArgumentError


def can_partition(t: DataType) -> TypeGuard[PrimitiveType]:
    """Whether a folder name can state values of this type."""
    return isinstance(t, PrimitiveType) and t.traits.partitions


def typed_partitions(adds: pa.Table, fields: list[StructField]) -> dict[str, pa.ChunkedArray]:
    """The typed partition columns of files by display name.  Raises ``CorruptLogError`` for a value of another type."""
    strings = partition_strings(adds["partitionValues"], fields)
    return {f.name: parse_values(s, f) for f, s in zip(fields, strings, strict=True)}


def partition_strings(maps: pa.ChunkedArray, fields: Sequence[StructField]) -> list[pa.ChunkedArray]:
    """``partitionValues`` as the log spells them, one array per column; to compare them, use :class:`PartitionKeys`."""
    if not len(maps):
        return [pa.chunked_array([], pa.string()) for _ in fields]
    return [pc.map_lookup(maps, pa.scalar(f.physical_name, pa.string()), "first") for f in fields]


def partitions_by_name(maps: pa.ChunkedArray, fields: Sequence[StructField]) -> pa.ChunkedArray:
    """``partitionValues`` with the columns' names as keys instead of their physical names."""
    if not len(maps) or all(f.physical_name == f.name for f in fields):
        return maps
    rows, count = len(maps), len(fields)
    strings = pa.chunked_array([c for column in partition_strings(maps, fields) for c in column.chunks])
    place = np.arange(rows * count)
    keys = pa.array([f.name for f in fields]).take(place % count)
    values = strings.combine_chunks().take(place % count * rows + place // count)
    return pa.chunked_array(
        [pa.MapArray.from_arrays(np.arange(0, rows * count + 1, count, dtype=np.int32), keys, values)]
    )


def partition_fields(schema: StructType, names: tuple[str, ...]) -> list[StructField]:
    """The fields of the partition columns, in partitioning order."""
    return [schema.field(n) for n in names]


def check_partition_columns(schema: StructType, columns: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Partition columns in the schema's spelling.

    Raises ``InvalidArgumentError`` for a column that is unknown, repeated, or of an unsupported type, and if no column
    would remain in the files.
    """
    out: list[str] = []
    for name in columns:
        f = schema.find(name)
        if f is None:
            raise InvalidArgumentError(
                f"partition column {name!r} is not in the schema",
                help=columns_help(name, schema.names),
                column=name,
                condition="DELTA_PARTITION_COLUMN_NOT_FOUND",
            )
        if not can_partition(f.type):
            message = f"a table cannot be partitioned by a column of type {f.type}"
            raise InvalidArgumentError(message, column=f.name, condition="DELTA_INVALID_PARTITION_COLUMN_TYPE")
        if f.name in out:
            raise InvalidArgumentError(
                f"partition column {f.name!r} is given twice", column=f.name, condition="COLUMN_ALREADY_EXISTS"
            )
        out.append(f.name)
    if out and len(out) == len(schema.fields):
        message = "every column is a partition column, so the files would have no columns"
        help = "leave one column out"
        raise InvalidArgumentError(message, help=help, condition="DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION")
    return tuple(out)


def parse_values(strings: pa.ChunkedArray, field: StructField) -> pa.ChunkedArray:
    """Parse strings of one partition column; each distinct string is parsed once."""
    assert isinstance(field.type, PrimitiveType)
    encoded = strings.combine_chunks().dictionary_encode()
    distinct = encoded.dictionary
    distinct = pc.if_else(pc.equal(distinct, ""), None, distinct)
    try:
        typed_values = field.type.traits.parse(distinct, field.type.arrow)
    except (pa.ArrowException, ValueError, OverflowError) as e:
        message = f"a partition value is not of type {field.type}: {e}"
        help = "partitionValues of the add action are wrong; rewrite the files with the engine that wrote them"
        raise CorruptLogError(message, help=help, column=field.name) from e
    return pa.chunked_array([typed_values.take(encoded.indices)], field.type.arrow)


def format_values(values: pa.Array | pa.ChunkedArray, type_: PrimitiveType) -> list[str | None]:
    """Format values of a partition column for the log.

    >>> import pyarrow as pa
    >>> format_values(pa.array([True, None]), PrimitiveType("boolean"))
    ['true', None]
    """
    return type_.traits.format(values, type_.arrow)


#: Characters that Hive escapes in directory names; all others are written unchanged.
_HIVE_ESCAPES = {c: f"%{c:02X}" for c in (*range(0x20), *b"\"#%'*/:=?\\{[]^\x7f")}
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def hive_directory(values: Mapping[str, str | None]) -> str:
    """The Hive-style directory of a file, not URI-encoded.

    >>> hive_directory({"month": "3", "city": "a/b"})
    'month=3/city=a%2Fb'
    """
    return "/".join(
        f"{k.translate(_HIVE_ESCAPES)}={HIVE_NULL if not v else v.translate(_HIVE_ESCAPES)}" for k, v in values.items()
    )


# --- Typed keys of partitions, for comparing, grouping and naming them ------------------------------------------------
# Protocol: *Partition Value Serialization*.  Writers spell one value in several ways (`1E-7` and `0.0000001`,
# `True` and `true`, a timestamp with and without its zone), so the strings in the log do not identify a partition.  As
# in Spark's grouping, all nulls are equal, all NaN are equal, and `0.0` equals `-0.0`.

_Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class PartitionKeys:
    """The partitions of some files: one row per file, and one column of typed values for each of ``fields``.

    >>> field = StructField("p", PrimitiveType("double"))
    >>> keys = PartitionKeys.of_actions([{"p": "1E-7"}, {"p": "0.0000001"}, {"p": ""}, {}], [field])
    >>> keys.codes.tolist(), keys.folders
    ([0, 0, 1, 1], ['p=1.0E-7', 'p=__HIVE_DEFAULT_PARTITION__'])
    """

    fields: tuple[StructField, ...]
    columns: tuple[pa.Array, ...]
    rows: int

    @classmethod
    def of(cls, maps: pa.ChunkedArray, fields: Sequence[StructField]) -> PartitionKeys:
        """The keys of files with these ``partitionValues``; missing values are null.  Raises ``CorruptLogError``."""
        strings = partition_strings(maps, fields)
        return cls(tuple(fields), tuple(map(_key_column, strings, fields)), len(maps))

    @classmethod
    def of_actions(
        cls, values: Iterable[Mapping[str, str | None] | None], fields: Sequence[StructField]
    ) -> PartitionKeys:
        """Like :meth:`of`, for ``partitionValues`` from JSON."""
        maps = [None if v is None else list(v.items()) for v in values]
        return cls.of(pa.chunked_array([pa.array(maps, pa.map_(pa.string(), pa.string()))]), fields)

    @cached_property
    def codes(self) -> _Integers:
        """A number for each file, equal for files of the same partition: from 0 on, without gaps."""
        codes = np.zeros(self.rows, np.int64)
        for column in self.columns:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)  # small again, with any number of columns
        return codes

    @property
    def count(self) -> int:
        return int(self.codes.max(initial=-1)) + 1

    @property
    def folders(self) -> list[str]:
        """The Hive-style folder of each partition, in the order of ``codes``."""
        names = [f.name for f in self.fields]
        values = zip(*self.distinct().strings(), strict=True)
        return [hive_directory(dict(zip(names, row, strict=True))) for row in values]

    def strings(self) -> list[list[str | None]]:
        """The values as trilake writes them to the log, one list per column."""
        return [format_values(c, _primitive(f)) for c, f in zip(self.columns, self.fields, strict=True)]

    def distinct(self) -> PartitionKeys:
        """One row per partition, in the order of ``codes``."""
        return self.take(np.unique(self.codes, return_index=True)[1])

    def take(self, files: _Integers) -> PartitionKeys:
        return PartitionKeys(self.fields, tuple(c.take(pa.array(files)) for c in self.columns), len(files))

    def among(self, others: PartitionKeys) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each file's partition is in ``others``, which are keys of the same fields."""
        columns = tuple(map(pa.concat_arrays, zip(self.columns, others.columns, strict=True)))
        codes = PartitionKeys(self.fields, columns, self.rows + others.rows).codes
        return np.isin(codes[: self.rows], codes[self.rows :])


def _key_column(strings: pa.ChunkedArray, field: StructField) -> pa.Array:
    values = pa.concat_arrays(parse_values(strings, field).chunks)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 becomes 0.0
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
    return values


def _primitive(field: StructField) -> PrimitiveType:
    assert isinstance(field.type, PrimitiveType)
    return field.type
