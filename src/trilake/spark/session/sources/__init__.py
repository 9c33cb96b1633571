"""Python data sources: Spark's API, and how rows get to Spark."""
