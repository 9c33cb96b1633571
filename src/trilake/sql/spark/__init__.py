"""SQL in a Spark session: ``spark.sql`` after ``trilake.install``."""

from trilake.common.extras import need

need("pyspark", "Spark's SQL")
