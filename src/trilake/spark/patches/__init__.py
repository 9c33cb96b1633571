"""What users call: readers, writers and streams under Spark's own names."""
