"""Values of Scala's case classes, made and changed from Python; classic sessions only.

Case classes gain parts from release to release.  Only those that are named here are set, and all others keep what they
are, or have by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from trilake.spark.session.internals import jvm


def changed(value: Any, **changes: Any) -> Any:
    """A case class's value with some of its parts changed."""
    parts = [changes[name] if name in changes else getattr(value, name)() for name in _names(value)]
    return value.copy(*parts)


def _names(value: Any) -> list[str]:
    """The names of a case class's parts, in order."""
    try:
        iterator = value.productElementNames()
    except Py4JError:  # Scala 2.12, which Spark 3.5 has; there they are the first fields of the class
        return [str(f.getName()) for f in value.getClass().getDeclaredFields()][: value.productArity()]
    names = []
    while iterator.hasNext():
        names.append(str(iterator.next()))
    return names


def case_class_value(spark: SparkSession, name: str, *parts: Any) -> Any:
    """A value of a case class: its first parts as given, all others as they are by default.

    ``name`` is the class's with its package.  Raises one of py4j's errors where there is no such class.
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
    """An ``Option``: ``None`` of Python is ``None`` of Scala."""
    return jvm(spark).scala.Option.apply(value)


def text_map(spark: SparkSession, values: Mapping[str, str]) -> Any:
    """An immutable map of texts."""
    return jvm(spark).PythonUtils.toScalaMap(dict(values))
