"""MERGE as Spark jobs."""
