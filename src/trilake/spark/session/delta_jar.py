"""Settings that name delta-spark's jar or its classes, which trilake does not need."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from trilake.errors import UnsupportedSparkError
from trilake.spark.session.bypass import bypass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("trilake.spark")

V = TypeVar("V")
_CATALOG = "spark.sql.catalog.spark_catalog"
_CLASSES: tuple[str, ...] = ("io.delta.", "org.apache.spark.sql.delta.")
_PACKAGES: tuple[str, ...] = (
    "io.delta:delta-core_",
    "io.delta:delta-spark_",
    "io.delta:delta-storage:",
    "io.delta:delta-connect-",
)


def without_jar(settings: Mapping[str, V]) -> dict[str, Any]:
    """The settings of a new session without delta-spark's packages, extensions and catalogs.

    >>> without_jar({"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension, org.other.Extension", "a.b": 1})
    {'spark.sql.extensions': 'org.other.Extension', 'a.b': 1}
    >>> without_jar({"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"})
    {}
    """
    out: dict[str, Any] = {}
    for key, value in settings.items():
        if key == "spark.jars.packages":
            jar = _PACKAGES
        elif key == "spark.sql.extensions" or key.startswith("spark.sql.catalog."):
            jar = _CLASSES
        else:
            out[key] = value
            continue
        names = [name.strip() for name in str(value).split(",")]
        others = [name for name in names if name and not name.startswith(jar)]
        if len(others) == len(names):
            out[key] = value
        elif others:
            out[key] = ",".join(others)
    return out


def drop_missing_catalog(spark: SparkSession) -> None:
    """Unset the session catalog if its class is not on the class path.  Raises ``UnsupportedSparkError`` if the session
    keeps the setting."""
    name = spark.conf.get(_CATALOG, None)
    if name is None or name == "builtin" or _loads(spark, name):
        return
    spark.conf.unset(_CATALOG)
    if not _loads(spark, name):
        raise UnsupportedSparkError(
            f"the setting {_CATALOG} names the class {name}, which is not on Spark's class path",
            help=f"remove the setting {_CATALOG} and start the session again: trilake does not need it",
        )
    _log.warning("removed the setting %s from this session: its class %s is not on Spark's class path", _CATALOG, name)


def _loads(spark: SparkSession, name: str) -> bool:
    """Whether Spark can load its catalog, as it does for the first statement that needs it."""
    try:
        with bypass():
            spark.sql("SHOW NAMESPACES IN spark_catalog").collect()
    except Exception as e:
        if name not in str(e):
            raise
        return False
    return True
