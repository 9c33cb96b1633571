"""Spark's own Parquet scan over exactly the files of a plan, and its own writer."""
