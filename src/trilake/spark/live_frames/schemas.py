"""What a frame that follows its tables says of itself, and the newest rows in the types of the first ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from trilake.spark.session.internals import java_frame
from trilake.spark.session.passing import spark_alone

#: Where a classic frame keeps the JVM's.
PLAN = "_jdf"
#: What says nothing of rows, for which no newer version is looked for.
_PROPERTIES = ("schema", "columns", "dtypes", "isStreaming", "storageLevel")
_METHODS = ("unpersist", "printSchema", "__getattr__")
#: What Spark keeps with a frame once it was asked for, and what a frame of PySpark 3.5 keeps so.
_KEPT, _KEPT_IN_35 = ("rdd", "schema"), ("_lazy_rdd", "_schema")


def members_about(own: type) -> dict[str, Any]:
    """Members of a class of frames by which a frame says what it is, as it is now.

    So they work whatever has become of the table, as with delta-spark: ``unpersist()`` also where it is dropped.
    """
    return {
        **{n: _as_it_is(own, n) for n in _PROPERTIES},
        **{n: _method_as_it_is(own, n) for n in _METHODS},
        "__getitem__": _items(own),
        "__reduce_ex__": _in_place_of,
    }


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


def _in_place_of(frame: Any, protocol: Any) -> Any:
    """Spark's own frame, so that Spark says what is wrong where a function for rows names a frame."""
    with spark_alone():
        return _itself, (java_frame(frame.sparkSession, vars(frame)[PLAN]),)


def _itself(frame: DataFrame) -> DataFrame:
    return frame


def _as_it_is(own: type, name: str) -> property:
    member = getattr(own, name)

    def get(self: Any) -> Any:
        with spark_alone():
            return member.__get__(self, own)

    return property(get, doc=member.__doc__)


def _method_as_it_is(own: type, name: str) -> Callable[..., Any]:
    method = getattr(own, name)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with spark_alone():
            return method(self, *args, **kwargs)

    return call


def _items(own: Any) -> Callable[[Any, Any], Any]:
    method: Callable[[Any, Any], Any] = own.__getitem__

    @wraps(method)
    def item(self: Any, item: Any) -> Any:
        if not isinstance(item, str | int):
            return method(self, item)
        with spark_alone():
            return method(self, item)

    return item
