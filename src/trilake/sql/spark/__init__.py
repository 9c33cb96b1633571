"""SQL in a Spark session: what ``spark.sql`` does after ``trilake.install``."""
