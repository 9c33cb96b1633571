"""Delta tables in Spark."""
