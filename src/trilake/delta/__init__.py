"""Delta tables without Spark: log, snapshots, reads, changes and writes."""
