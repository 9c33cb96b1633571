"""Reading Delta tables: Spark's own scan, time travel, paths, change feeds."""
