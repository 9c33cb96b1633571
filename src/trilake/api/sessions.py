"""``register`` and ``unregister``: add the formats to a Spark session, and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> list[str]:
    """Add trilake's formats to the readers, writers and streams of a session, but not to its SQL.

    A local session without a configured Python interpreter runs its tasks in this one.  Use :func:`trilake.install`
    for SQL, too, and :func:`trilake.session` for a new session.

    Parameters
    ----------
    spark: the session.

    Returns the names of the registered formats.  Raises ``MissingDependencyError`` without PySpark, and
    ``UnsupportedSparkError`` for a PySpark that is too old, or a local session whose tasks run an unsuitable
    interpreter.

    >>> import trilake
    >>> [name for name in trilake.register(spark) if "-" not in name]
    ['delta', 'lance', 'trevni']
    >>> spark.range(3).write.format("delta").mode("overwrite").save("lake/registered")
    >>> spark.read.format("delta").load("lake/registered").count()
    3
    """
    from trilake.spark.session.checks import check_pyspark

    check_pyspark()
    from trilake.spark.patches import register as module

    return module.register(spark)


def unregister(spark: SparkSession) -> None:
    """Undo :func:`register`: restore Spark's readers and writers, once all registered sessions have called it.

    DataFrames stay at the version that they show.

    Parameters
    ----------
    spark: the session; without effect if it is not registered.

    >>> import trilake
    >>> _ = trilake.register(spark)
    >>> trilake.unregister(spark)
    """
    from trilake.spark.patches import register as module

    module.unregister(spark)
