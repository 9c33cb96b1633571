"""Create and copy Scala case classes from Python; classic sessions only.

Releases add fields to case classes: fields that a caller does not name keep their value, or get their default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from trilake.spark.session.internals import jvm


def changed(value: Any, **changes: Any) -> Any:
    """A copy of a case class with some fields changed."""
    parts = [changes[name] if name in changes else getattr(value, name)() for name in _names(value)]
    return value.copy(*parts)


def _names(value: Any) -> list[str]:
    try:
        iterator = value.productElementNames()
    except Py4JError:  # Scala 2.12, with Spark 3.5: the first fields of the class
        return [str(f.getName()) for f in value.getClass().getDeclaredFields()][: value.productArity()]
    names = []
    while iterator.hasNext():
        names.append(str(iterator.next()))
    return names


def case_class_value(spark: SparkSession, name: str, *parts: Any) -> Any:
    """A case class with its first fields as given and defaults for the others.

    ``name`` is the qualified class name.  Raises py4j's errors for an unknown class.
    """
    java = jvm(spark)
    companion = java
    for part in name.split("."):
        companion = getattr(companion, part)
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    kind = java.java.lang.Class.forName(name, True, loader)
    count = max(len(c.getParameterTypes()) for c in kind.getConstructors())
    defaults = [getattr(companion, f"apply$default${i}")() for i in range(len(parts) + 1, count + 1)]
    return companion.apply(*parts, *defaults)


def some(spark: SparkSession, value: object) -> Any:
    """An ``Option``; Python's ``None`` becomes Scala's."""
    return jvm(spark).scala.Option.apply(value)


def string_map(spark: SparkSession, values: Mapping[str, str]) -> Any:
    """An immutable Scala map of strings."""
    return jvm(spark).PythonUtils.toScalaMap(dict(values))
