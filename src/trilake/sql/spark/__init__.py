"""SQL in a Spark session: what ``spark.sql`` does after ``trilake.install``."""

from trilake.common.extras import need

need("pyspark", "Spark's SQL")
