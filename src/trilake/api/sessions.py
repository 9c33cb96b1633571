"""``register`` and ``unregister``: what a Spark session knows of the formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> list[str]:
    """Make ``spark.read.format("delta")`` and its likes work in a session; see :mod:`trilake.spark.patches.register`.

    The session is looked at once.  A local one whose tasks no one has told an interpreter gets that of this process.

    Parameters
    ----------
    spark: the session, which exists already.  This is for sources alone; :func:`trilake.install` is for SQL too, and
        :func:`trilake.session` makes a session that has it.

    Returns the format names that were registered.  Raises ``MissingDependencyError`` without PySpark, and
    ``UnsupportedSparkError`` for a PySpark that is too old and for a local session whose tasks run an interpreter that
    cannot do the work.

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
    """Take back what :func:`register` did to Spark's reader and writer classes.

    They are Spark's own again once every session that registered has done this.

    Parameters
    ----------
    spark: the session; one that was not registered stays as it is.

    >>> import trilake
    >>> _ = trilake.register(spark)
    >>> trilake.unregister(spark)
    """
    from trilake.spark.patches import register as module

    module.unregister(spark)
