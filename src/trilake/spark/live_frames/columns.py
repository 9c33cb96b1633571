"""Check a newer version of a table against the columns of a DataFrame, and cast its rows to them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.errors import SchemaMismatchError
from trilake.spark.live_frames.versions import ReadVersion
from trilake.spark.session.analysis_errors import analysis_error, raise_for_spark
from trilake.spark.session.type_tree import all_nullable, paired

#: Attributes in which PySpark caches results about a frame's plan; the second pair in PySpark 3.5.
_CACHED_ATTRIBUTES, _CACHED_ATTRIBUTES_35 = ("rdd", "schema"), ("_lazy_rdd", "_schema")


def is_in_cache(frame: DataFrame) -> bool:
    """Whether Spark's cache holds the rows of this DataFrame."""
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk)


def drop_cached_attributes(frame: DataFrame) -> None:
    """Drop the cached RDD and schema of a DataFrame whose plan has changed."""
    for name in _CACHED_ATTRIBUTES:
        vars(frame).pop(name, None)
    for name in _CACHED_ATTRIBUTES_35:
        if name in vars(frame):
            vars(frame)[name] = None


def check_columns(old: T.StructType, new: T.StructType, snapshot: ReadVersion) -> None:
    """Raise ``SchemaMismatchError`` (also one of Spark's) if the table has dropped a column or changed its type."""
    types = {f.name: f.dataType for f in new.fields}
    for f in old.fields:
        new_type = types.get(f.name)
        if new_type is None or not has_all_of(f.dataType, new_type):
            change = (
                "was dropped"
                if new_type is None
                else f"has changed from {f.dataType.simpleString()} to {new_type.simpleString()}"
            )
            error = SchemaMismatchError(
                f"column {f.name!r} of the table {change} since this DataFrame was read",
                help="read the table again",
                file=snapshot.table.store.uri,
                version=snapshot.version,
                column=f.name,
                condition="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
            )
            raise_for_spark(error, analysis_error(error))


def has_all_of(old: T.DataType, new: T.DataType) -> bool:
    """Whether ``new`` has every field of ``old``, including nested structs; nullability is ignored.

    >>> old, new = T.ArrayType(T.StructType([])), T.ArrayType(T.StructType([T.StructField("a", T.LongType())]))
    >>> has_all_of(old, new), has_all_of(new, old)
    (True, False)
    """
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        types = {f.name: f.dataType for f in new.fields}
        return all(f.name in types and has_all_of(f.dataType, types[f.name]) for f in old.fields)
    inside = paired(old, new)
    return old.simpleString() == new.simpleString() if inside is None else all(has_all_of(*pair) for pair in inside)


def in_types_of(schema: T.StructType, frame: DataFrame) -> DataFrame:
    """The DataFrame with its structs cast to the types of ``schema``, if they differ."""
    types = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    if all(types[f.name] == f.dataType.simpleString() for f in schema.fields):
        return frame
    return frame.to(T.StructType([T.StructField(f.name, all_nullable(f.dataType)) for f in schema.fields]))
