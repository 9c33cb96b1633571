"""Parse and translate Spark SQL."""
