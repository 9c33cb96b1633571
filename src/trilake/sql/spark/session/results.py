"""Results of statements, as small DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.spark.scan.columns import no_rows
from trilake.spark.session.compat import arrow_frame
from trilake.sql.spark.session.session import SqlSession


def rows(session: SqlSession, schema: str | T.StructType, values: Iterable[Sequence[Any]]) -> DataFrame:
    """A DataFrame of these rows."""
    struct = schema if isinstance(schema, T.StructType) else _parsed(schema)
    data = [tuple(v) for v in values]
    if not data:
        return _no_rows(session, struct)
    if all(isinstance(f.dataType, T.StringType | T.LongType | T.BooleanType | T.IntegerType) for f in struct.fields):
        kinds = {"string": pa.string(), "bigint": pa.int64(), "boolean": pa.bool_(), "int": pa.int32()}
        columns = [pa.array(list(c), kinds[f.dataType.simpleString()]) for c, f in zip(zip(*data), struct.fields)]
        return arrow_frame(session.spark, pa.Table.from_arrays(columns, names=struct.names), struct)
    return session.spark.createDataFrame(data, struct)


def _parsed(ddl: str) -> T.StructType:
    kinds = {"string": T.StringType(), "bigint": T.LongType(), "boolean": T.BooleanType(), "int": T.IntegerType()}
    fields = []
    for part in ddl.split(","):
        name, kind = part.split()
        fields.append(T.StructField(name, kinds[kind]))
    return T.StructType(fields)


def nothing(session: SqlSession) -> DataFrame:
    """The result of a command without rows."""
    return _no_rows(session, T.StructType([]))


def _no_rows(session: SqlSession, schema: T.StructType) -> DataFrame:
    frame: DataFrame = no_rows(session.spark, schema)
    return frame


def counts(session: SqlSession, **numbers: int | None) -> DataFrame:
    """One row of numbers."""
    return rows(session, ", ".join(f"{n} bigint" for n in numbers), [tuple(numbers.values())])
