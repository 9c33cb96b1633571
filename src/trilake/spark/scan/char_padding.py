"""Pad ``char(n)`` with spaces, as Spark shows it, even if the files have shorter strings."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from trilake.common.text import quote_name
from trilake.delta.protocol.char_varchar import Length, length_rule
from trilake.delta.protocol.schema import StructType
from trilake.spark.scan.frame_tables import RowCount, note, noted


def with_padding(df: DataFrame, schema: StructType) -> DataFrame:
    """The DataFrame with the strings of ``char(n)`` padded, which ``schema`` has at any depth.  The columns keep their
    metadata, so that Spark also pads the strings with which they are compared."""
    rules = {f.name: rule for f in schema.fields if (rule := length_rule(f)) is not None and _has_char(rule)}
    if not rules:
        return df
    out = []
    for f in df.schema.fields:
        column = F.col(quote_name(f.name))
        rule = rules.get(f.name)
        out.append(column if rule is None else _padded(column, rule, f.dataType).alias(f.name, metadata=f.metadata))
    return note(df.select(*out), noted(df, RowCount))


def _has_char(rule: Length) -> bool:
    return rule.kind == "char" or any(part is not None and _has_char(part) for part in rule.parts)


def _padded(column: Column, rule: Length | None, type_: T.DataType) -> Column:
    if rule is None or not _has_char(rule):
        return column
    if rule.kind:
        return F.when(F.char_length(column) < rule.limit, F.rpad(column, rule.limit, " ")).otherwise(column)
    if isinstance(type_, T.StructType):
        fields = [
            _padded(column.getField(f.name), part, f.dataType).alias(f.name)
            for f, part in zip(type_.fields, rule.parts, strict=True)
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(type_, T.ArrayType):
        element, inside = rule.parts[0], type_.elementType
        return F.transform(column, lambda x: _padded(x, element, inside))
    assert isinstance(type_, T.MapType)
    key, value, kinds = rule.parts[0], rule.parts[1], (type_.keyType, type_.valueType)
    keyed = column if key is None else F.transform_keys(column, lambda k, _: _padded(k, key, kinds[0]))
    return keyed if value is None else F.transform_values(keyed, lambda _, v: _padded(v, value, kinds[1]))
