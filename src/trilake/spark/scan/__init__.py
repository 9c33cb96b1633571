"""Spark's own Parquet scan of exactly the files of a plan, and Spark's own writer."""
