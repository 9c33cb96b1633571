"""``configure_spark_with_delta_pip``: sessions of a builder know Delta tables."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

#: Settings that name classes of delta-spark's jar, which is not here.
_OF_THE_JAR = {
    "spark.sql.extensions": "io.delta.",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.",
}


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
        for name, start in _OF_THE_JAR.items():
            given = str(builder._options.get(name, ""))
            kept = [c for c in given.split(",") if c and not c.strip().startswith(start)]
            if name in builder._options:
                builder._options.pop(name)
                if kept:
                    builder._options[name] = ",".join(kept)
        from trilake.sql.spark.install import install  # late: a builder may never make a session

        spark: SparkSession = own()
        install(spark)
        return spark

    builder.getOrCreate = get_or_create
    return spark_session_builder
