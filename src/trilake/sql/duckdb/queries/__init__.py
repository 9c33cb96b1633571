"""Spark's queries as DuckDB's of the same meaning: what is not known to mean the same is refused, by name."""
