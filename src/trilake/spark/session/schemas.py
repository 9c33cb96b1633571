"""Convert schemas between Delta and Spark.  A Delta schema is Spark's JSON, so this is mostly about metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import orjson
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from trilake.common.text import quote_name, string_literal
from trilake.delta.protocol.char_varchar import TYPE_STRING
from trilake.delta.protocol.schema import (
    DataType,
    PrimitiveType,
    StructField,
    StructType,
    UserDefinedType,
    all_nullable,
    check_distinct,
    each_type,
    is_spatial,
    parse_schema,
)
from trilake.delta.protocol.schema_edit import each_field
from trilake.delta.protocol.sql_types import parse_sql_type, without_limits
from trilake.delta.rules.new_columns import COLLATIONS, check_collations
from trilake.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedProtocolError
from trilake.spark.session.compat import RELEASE
from trilake.spark.session.type_tree import types_in

#: A column type with a length; the table's schema has the nested ones.
_LIMITED = re.compile(r"(var)?char\([0-9]+\)", re.IGNORECASE)


def to_spark(schema: StructType) -> T.StructType:
    """The Spark schema of a table's rows, without the protocol's own metadata and without collations, because files are
    skipped by the bytes of strings.  Before Spark 4.0, a variant is a struct of its two binaries."""
    return T.StructType.fromJson(each_type(schema, _spark_type).to_json())


def _spark_type(t: DataType) -> DataType:
    if isinstance(t, UserDefinedType):
        return t if _loads(t) else each_type(t.sql_type, _spark_type)
    if isinstance(t, StructType):
        return StructType(tuple(StructField(f.name, f.type, f.nullable, _spark_metadata(f.metadata)) for f in t.fields))
    if not isinstance(t, PrimitiveType):
        return t
    if t.name == "variant" and RELEASE < (4, 0):
        return StructType(tuple(StructField(n, PrimitiveType("binary"), False) for n in ("value", "metadata")))
    if is_spatial(t.name):
        return t if _knows(t.name) else PrimitiveType("binary")
    return PrimitiveType("string") if t.traits.name == "string" else t  # also char(n)


def _spark_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in metadata.items() if k != COLLATIONS and not k.startswith("delta.")}


@lru_cache(maxsize=64)
def _knows(name: str) -> bool:
    """Whether Spark, from 4.1 on, supports a spatial type, which depends on its list of reference systems."""
    if RELEASE < (4, 1):
        return False
    try:
        T.StructType.fromJson({"fields": [{"name": "c", "type": name, "nullable": True, "metadata": {}}]})
    except PySparkException:
        return False
    return True


def from_spark(schema: T.StructType, *, keep_nullability: bool = False, limits: bool = False) -> StructType:
    """The Delta schema for rows of a DataFrame: all nullable, as in Delta tables that Spark writes.  With ``limits``,
    columns from ``char(n)`` or ``varchar(n)`` keep their type.  Raises ``UnsupportedProtocolError`` for a type that
    Delta does not have, ``SchemaMismatchError`` for duplicate columns."""
    check_distinct(schema.names)
    parsed = without_limits(parse_schema(orjson.dumps(schema.jsonValue()).decode()))
    clean = each_field(parsed if keep_nullability else parsed.nullable, _clean)
    if not limits:
        return clean
    return StructType(tuple(_limited(f, old.metadata) for f, old in zip(clean.fields, parsed.fields, strict=True)))


def columns_of_source(schema: T.StructType) -> StructType:
    """The columns of a source as :func:`from_spark` reads them, with limits; a column of a type that Delta does not
    have, such as an interval, is void, since expressions can use it."""
    check_distinct(schema.names)
    return StructType(tuple(map(_source_column, schema.fields)))


def _source_column(f: T.StructField) -> StructField:
    with suppress(UnsupportedProtocolError):
        return from_spark(T.StructType([f]), limits=True).fields[0]
    return StructField(f.name, PrimitiveType("void"))


def new_columns(schema: T.StructType) -> pa.Schema:
    """The columns of a new dataset or file for rows of a DataFrame.  Raises ``InvalidArgumentError`` for a collation,
    which trilake's formats do not store."""
    columns = _without_user_types(schema)
    check_collations(columns)
    return columns.to_arrow_schema()


def arrow_columns(schema: T.StructType) -> pa.Schema:
    """The columns of rows for a format without user-defined types.  Raises ``SchemaMismatchError`` for a user-defined
    type, such as ``VectorUDT``."""
    return _without_user_types(schema).to_arrow_schema()


def _without_user_types(schema: T.StructType) -> StructType:
    for path, kind in types_in(schema):
        if isinstance(kind, T.UserDefinedType):
            raise _no_column_of(kind, ".".join(path))
    return from_spark(schema)


def _loads(t: UserDefinedType) -> bool:
    """Whether Spark can import or unpickle the class of a user-defined type in this process, with the same SQL type."""
    try:
        user_type = T.UserDefinedType.fromJson(orjson.loads(t.definition))
        fields = T.StructType([T.StructField("v", user_type.sqlType())])
        same = parse_schema(orjson.dumps(fields.jsonValue()).decode()).fields[0].type
    except Exception:  # noqa: BLE001 - any user code
        return False
    return all_nullable(same) == all_nullable(t.sql_type)


def _limited(f: StructField, metadata: Mapping[str, Any]) -> StructField:
    """The column with the length of the DataFrame's column, unless their types differ."""
    limit = str(metadata.get(TYPE_STRING, ""))
    if not limit:
        return f
    with suppress(InvalidArgumentError):
        kind, limits = parse_sql_type(limit)
        if all_nullable(kind) == f.type and limits:
            return replace(f, metadata={**f.metadata, **limits})
    return f


def _no_column_of(kind: T.UserDefinedType, path: str) -> SchemaMismatchError:
    name = type(kind).__name__
    is_vector = name == "VectorUDT" and "." not in path
    return SchemaMismatchError(
        f"column {path} has the user-defined type {name}, which this format does not support",
        help=f'make it an array: df.withColumn("{path}", pyspark.ml.functions.vector_to_array("{path}"))'
        if is_vector
        else "write its parts as arrays, structs or separate columns",
        column=path,
    )


def _clean(f: StructField) -> StructField:
    """Remove column metadata of another table's protocol; collations stay, so that callers can reject them."""
    return replace(
        f, metadata={k: v for k, v in f.metadata.items() if k == COLLATIONS or not k.startswith(("delta.", "__"))}
    )


def to_physical_spark(fields: Sequence[StructField], *, ids: bool) -> T.StructType:
    """The schema of the files: physical names at every level, and field IDs if ``ids``."""

    def physical(f: StructField) -> StructField:
        metadata = {"parquet.field.id": f.column_id} if ids and f.column_id is not None else {}
        return StructField(f.physical_name, f.type, metadata=metadata)

    return to_spark(each_field(StructType(tuple(fields)), physical).nullable)


def to_ddl(schema: T.StructType) -> str:
    r"""The columns as DDL, including nested comments and NOT NULL.

    >>> inner = T.StructType([T.StructField("a b", T.LongType(), False)])
    >>> to_ddl(T.StructType([T.StructField("s", T.ArrayType(inner), True, {"comment": "it's"})]))
    "`s` ARRAY<STRUCT<`a b`: bigint NOT NULL>> COMMENT 'it\\'s'"
    """
    return ", ".join(_ddl_field(f, " ") for f in schema.fields)


def _ddl_field(f: T.StructField, between: str) -> str:
    limited = str(f.metadata.get(TYPE_STRING, ""))
    kind = limited if isinstance(f.dataType, T.StringType) and _LIMITED.fullmatch(limited) else _ddl_type(f.dataType)
    comment = f.metadata.get("comment")
    return (
        f"{quote_name(f.name)}{between}{kind}{'' if f.nullable else ' NOT NULL'}"
        f"{'' if comment is None else f' COMMENT {string_literal(str(comment))}'}"
    )


def _ddl_type(t: T.DataType) -> str:
    if isinstance(t, T.UserDefinedType):
        return _ddl_type(t.sqlType())
    if isinstance(t, T.StructType):
        return f"STRUCT<{', '.join(_ddl_field(f, ': ') for f in t.fields)}>"
    if isinstance(t, T.ArrayType):
        return f"ARRAY<{_ddl_type(t.elementType)}>"
    if isinstance(t, T.MapType):
        return f"MAP<{_ddl_type(t.keyType)}, {_ddl_type(t.valueType)}>"
    return str(t.simpleString())


def requested_schema(spark: SparkSession, schema: T.StructType | str) -> T.StructType:
    """The argument of ``spark.read.schema``: a type, or DDL such as ``a bigint, b string``."""
    if isinstance(schema, T.StructType):
        return schema
    if not hasattr(T.StructType, "fromDDL"):
        return spark.createDataFrame([], schema).schema
    return cast(T.StructType, T.StructType.fromDDL(schema))
