"""Typed keys of partitions, for comparing, grouping and naming them.

Protocol: *Partition Value Serialization*.  Writers spell one value in several ways (``1E-7`` and ``0.0000001``,
``True`` and ``true``, a timestamp with and without its zone), so the log's strings do not identify a partition.  As in
Spark's grouping, all nulls are equal, all NaN are equal, and ``0.0`` equals ``-0.0``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.protocol.partitions import format_values, hive_directory, parse_values, partition_strings
from trilake.delta.protocol.schema import PrimitiveType, StructField

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
        """The keys of files with these ``partitionValues``; missing values are null.

        Raises ``CorruptLogError`` for a string that its column's type cannot parse.
        """
        strings = partition_strings(maps, fields)
        return cls(tuple(fields), tuple(map(_key_column, strings, fields)), len(maps))

    @classmethod
    def of_actions(
        cls, values: Iterable[Mapping[str, str | None] | None], fields: Sequence[StructField]
    ) -> PartitionKeys:
        """The same for ``partitionValues`` in JSON."""
        maps = [None if v is None else list(v.items()) for v in values]
        return cls.of(pa.chunked_array([pa.array(maps, pa.map_(pa.string(), pa.string()))]), fields)

    @cached_property
    def codes(self) -> _Integers:
        """A number for each file, equal for files of the same partition: from 0 on, without gaps."""
        codes = np.zeros(self.rows, np.int64)
        for column in self.columns:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            codes = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)  # small again, however many columns
        return codes

    @property
    def count(self) -> int:
        return int(self.codes.max(initial=-1)) + 1

    @property
    def folders(self) -> list[str]:
        """The Hive-style folder of each partition, by its number in ``codes``."""
        names = [f.name for f in self.fields]
        values = zip(*self.distinct().strings(), strict=True)
        return [hive_directory(dict(zip(names, row, strict=True))) for row in values]

    def strings(self) -> list[list[str | None]]:
        """The values as trilake spells them in the log, one list per column."""
        return [format_values(c, _primitive(f)) for c, f in zip(self.columns, self.fields, strict=True)]

    def distinct(self) -> PartitionKeys:
        """One row per partition, in the order of ``codes``."""
        return self.take(np.unique(self.codes, return_index=True)[1])

    def take(self, files: _Integers) -> PartitionKeys:
        return PartitionKeys(self.fields, tuple(c.take(pa.array(files)) for c in self.columns), len(files))

    def among(self, others: PartitionKeys) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each file's partition is one of ``others``, which are keys of the same fields."""
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
