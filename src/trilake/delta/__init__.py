"""Delta tables: the transaction log, snapshots, reads, changes and writes, without Spark."""
