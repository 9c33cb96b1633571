"""What must stay of a table's columns while frames follow it, and the newest rows in the types of the first ones."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.errors import SchemaMismatchError
from trilake.spark.live_frames.versions import ReadVersion
from trilake.spark.session.analysis_errors import analysis_error, raise_for_spark

#: What Spark keeps with a frame once it was needed, and what a frame of PySpark 3.5 keeps so.
_KEPT, _KEPT_IN_35 = ("rdd", "schema"), ("_lazy_rdd", "_schema")


def is_kept(frame: DataFrame) -> bool:
    """Whether Spark keeps the rows of a frame, as it is now, in its cache, whichever frame was put there."""
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk)


def forget_kept(frame: DataFrame) -> None:
    """Let a frame, whose plan is another now, make its RDD and its schema again."""
    for name in _KEPT:
        vars(frame).pop(name, None)
    for name in _KEPT_IN_35:
        if name in vars(frame):
            vars(frame)[name] = None


def check_columns(old: T.StructType, new: T.StructType, shown: ReadVersion) -> None:
    """Raise ``SchemaMismatchError``, also one of Spark's, where the table has lost a column or changed its type."""
    types = {f.name: f.dataType for f in new.fields}
    for f in old.fields:
        there = types.get(f.name)
        if there is None or not has_all_of(f.dataType, there):
            is_now = None if there is None else f"is {there.simpleString()} now, not {f.dataType.simpleString()},"
            error = SchemaMismatchError(
                f"the column {f.name!r} of the table {is_now or 'is gone'} since this frame was read",
                help="read the table again",
                file=shown.table.store.uri,
                version=shown.version,
                column=f.name,
                condition="DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
            )
            raise_for_spark(error, analysis_error(error))


def has_all_of(old: T.DataType, new: T.DataType) -> bool:
    """Whether a type has all that another one has, whatever may be null: the same, or with more fields in its structs.

    >>> old, new = T.ArrayType(T.StructType([])), T.ArrayType(T.StructType([T.StructField("a", T.LongType())]))
    >>> has_all_of(old, new), has_all_of(new, old)
    (True, False)
    """
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        types = {f.name: f.dataType for f in new.fields}
        return all(f.name in types and has_all_of(f.dataType, types[f.name]) for f in old.fields)
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        return has_all_of(old.elementType, new.elementType)
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        return has_all_of(old.keyType, new.keyType) and has_all_of(old.valueType, new.valueType)
    return old.simpleString() == new.simpleString()


def in_types_of(schema: T.StructType, frame: DataFrame) -> DataFrame:
    """The frame, whose structs have the fields of these types, in their order, where they had others."""
    types = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    if all(types[f.name] == f.dataType.simpleString() for f in schema.fields):
        return frame
    return frame.to(T.StructType([T.StructField(f.name, _nullable(f.dataType)) for f in schema.fields]))


def _nullable(t: T.DataType) -> T.DataType:
    if isinstance(t, T.StructType):
        return T.StructType([T.StructField(f.name, _nullable(f.dataType)) for f in t.fields])
    if isinstance(t, T.ArrayType):
        return T.ArrayType(_nullable(t.elementType))
    return T.MapType(_nullable(t.keyType), _nullable(t.valueType)) if isinstance(t, T.MapType) else t
