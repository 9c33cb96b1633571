"""Lance datasets in Spark."""
