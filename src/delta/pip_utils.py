"""``configure_spark_with_delta_pip``: sessions of a builder know Delta tables."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def configure_spark_with_delta_pip(
    spark_session_builder: SparkSession.Builder, extra_packages: list[str] | None = None
) -> SparkSession.Builder:
    """A builder whose sessions know Delta tables, in SQL and elsewhere: ``trilake.install`` is called on each.

    Parameters
    ----------
    spark_session_builder: the builder; no jar is asked for, and settings that name classes of delta-spark's jar are
        left out, since that is not needed.
    extra_packages: other packages for Spark to load.

    Raises ``TypeError`` for anything but a builder.
    """
    if not isinstance(spark_session_builder, SparkSession.Builder):
        raise TypeError(f"a SparkSession builder is needed, and this is a {type(spark_session_builder)}")
    builder: Any = spark_session_builder
    if extra_packages:
        builder = builder.config("spark.jars.packages", ",".join(extra_packages))
    own = builder.getOrCreate

    def get_or_create() -> SparkSession:
        # late: a builder may never make a session
        from trilake.spark.session.delta_jar import without_jar
        from trilake.sql.spark.install import install

        kept = without_jar(builder._options)
        builder._options.clear()
        builder._options.update(kept)

        spark: SparkSession = own()
        install(spark)
        return spark

    builder.getOrCreate = get_or_create
    return spark_session_builder
